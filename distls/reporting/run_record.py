"""The contents of a run folder, read once for a report: request, status, rounds, settings tried, model."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distls.methods.method import Params
from distls.methods.method_registry import METHODS
from distls.storage.errors import FormatError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import as_format_error, refuse_links
from distls.storage.model.model import LinearModel, load_model
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run, is_run

Record = dict[str, Any]


@dataclass(frozen=True)
class RunRecord:
    """One run, as it is on disk."""

    path: Place
    config: RunConfig
    status: Record
    events: list[Record]
    settings: list[Record]  # of the settings that were tried, those of a path among them; see `_settings`
    model: LinearModel | None  # None until one is published

    @property
    def params(self) -> Params:
        """The parameters of the published model, or those that were asked for."""
        chosen: Params = self.status.get("selected") or self.config.grid[0]
        return chosen

    @property
    def judged_on(self) -> tuple[list[str], Record]:
        """The data that the run itself was judged by, none or more, and how `train` has read its test files."""
        path, test = self.config.eval_data or self.config.select, self.status.get("test")
        if path is not None or test is None:
            return [] if path is None else [path], {}
        with as_format_error(str(self.path)):
            return [str(file) for file in test["files"]], dict(test["options"])


def read_run(path: str | Place) -> RunRecord:
    """Read a run folder; raise FormatError if it is no run, or has links to elsewhere."""
    run = Run.open(place_of(path))
    refuse_links(run.path)
    with as_format_error(str(path)):
        status, config = run.status, run.config
        child = _published_child(run, status)
        # a run of several settings has no rounds of its own
        events = run.events() or ([] if child is None else child.events())
        if child is not None:
            status = {**{name: child.status.get(name) for name in _CHILD_FIELDS}, **status}
        model = load_model(run.path) if (run.path / "model").is_dir() else None
        return RunRecord(run.path, config, status, events, _settings(run, config, status), model)


_CHILD_FIELDS = ("plan", "versions", "startup_seconds")


def _published_child(run: Run, status: Record) -> Run | None:
    """Return the child run whose model was published, if there are children."""
    for number, child in reversed(list(enumerate(status.get("children", [])))):
        folder = run.path / "children" / f"{number:03d}"
        # that of all rows may have begun at another model than the user gave
        own, chosen = (
            {**(each or {}), "init": None} for each in (child.get("params"), status.get("selected"))
        )
        if own == chosen and is_run(folder):
            return Run.open(folder)
    return None


def _settings(run: Run, config: RunConfig, status: Record) -> list[Record]:
    """Return a line for each setting tried: `params`, `error`, `eval_error`, `objective`, `certificate` and so on."""
    cross_validated = (status.get("details") or {}).get("path")
    if cross_validated:
        # the errors over all folds: each child run is of one fold only
        return [
            {"params": {k: v for k, v in point.items() if not k.startswith("cv_")}, **point}
            for point in _points(cross_validated)
        ]
    return [
        {**child, **_certificate_of(run.path / "children" / f"{number:03d}"), "number": number}
        for number, child in enumerate(status.get("children", []))
        if not child.get("refit")
    ]


def _points(path: Any) -> list[Record]:
    if not isinstance(path, list) or not all(isinstance(p, dict) and "alpha" in p for p in path):
        raise FormatError("the errors of its path were not written by distls")
    return path


def _certificate_of(folder: Place) -> Record:
    """Return the certificate that a child run ended with."""
    if not is_run(folder):
        return {}
    status = Run.open(folder).status
    return {name: status[name] for name in ("certificate", "seconds") if status.get(name) is not None}


def fit_command(config: RunConfig, run: str) -> str:
    """Return the command that repeats a run, of which only `run` is to be another folder."""
    words = ["distls", "fit", config.method, config.dataset, run]
    for name, value in _given(config):
        words += ["-p", f"{name}={value}"]
    for option, value in config.asked.items():
        words += [option.flag] if value is True else [option.flag, _text(value)]
    return shlex.join(words)


def _given(config: RunConfig) -> list[tuple[str, str]]:
    """Return the parameters that differ from the method's defaults, several values separated by commas."""
    method = METHODS.get(config.method)
    defaults = {} if method is None else {p.name: p.default for p in method.parameters}
    given = []
    for name in config.grid[0]:
        values = list(dict.fromkeys(_text(params.get(name)) for params in config.grid))
        if len(values) > 1 or config.grid[0][name] not in (None, defaults.get(name)):
            given.append((name, ",".join(values)))
    return given


def _text(value: object) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def thinned(values: Sequence[Record], most: int) -> list[Record]:
    """Return at most about `most` of the values, evenly spaced, the last one among them."""
    step = -(-len(values) // most) if values else 1
    kept = list(values[::step])
    if values and kept[-1] is not values[-1]:
        kept.append(values[-1])
    return kept
