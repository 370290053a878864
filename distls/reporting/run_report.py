"""The report of a run: everything it knows about itself and, on labelled data, what its model does; JSON or a page."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from distls.execution import executor_of
from distls.execution.executor import Executor
from distls.facts import Fact, Shown
from distls.long_calls import Workers, long_call
from distls.methods.method import Params
from distls.methods.method_registry import METHODS
from distls.reporting.costs import costs_of
from distls.reporting.judgement import Judgement, judge
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import DistlsError, FormatError, MismatchError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import as_format_error, refuse_links
from distls.storage.model.model import LinearModel, load_model
from distls.training.fit_facts import RECORDED, fit_facts
from distls.training.run_config import TESTED_BY, RunConfig, moved_along
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
            reading = {name: value for name, value in test["options"].items() if name in TESTED_BY}
            return [str(file) for file in test["files"]], reading


def read_run(path: str | Place) -> RunRecord:
    """Read a run folder; raise FormatError if it is no run, or has links to elsewhere."""
    run = Run.open(place_of(path))
    refuse_links(run.path)
    with as_format_error(str(path)):
        status, config = run.status, run.config
        child = _published_child(run, config, status)
        # a run of several settings has no rounds of its own
        events = run.events() or ([] if child is None else child.events())
        if child is not None:
            status = {**{name: child.status.get(name) for name in _CHILD_FIELDS}, **status}
        model = load_model(run.path) if (run.path / "model").is_dir() else None
        return RunRecord(run.path, config, status, events, _settings(run, config, status), model)


_CHILD_FIELDS = ("plan", "versions", "startup_seconds")


def _published_child(run: Run, config: RunConfig, status: Record) -> Run | None:
    """Return the child run whose model was published, if there are children."""
    # that of all rows may have begun at another model than the user gave, unless several were given
    alike = {"init": None} if len({params.get("init") for params in config.grid}) == 1 else {}
    for number, child in reversed(list(enumerate(status.get("children", [])))):
        folder = run.path / "children" / f"{number:03d}"
        own, chosen = ({**(each or {}), **alike} for each in (child.get("params"), status.get("selected")))
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


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A run, and its model on labelled data."""

    record: RunRecord
    training: Dataset | None  # None unless asked for, where it is no longer there, or another one
    judged: Judgement | None
    remarks: list[str] = field(default_factory=list)

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        return [Fact("run", self.record.path, str), *fit_facts(self.record.status)]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; docs/cli.md lists the fields."""
        record, status = self.record, self.record.status
        return {
            "kind": "report", "run": str(record.path), "method": record.config.method,
            "dataset": record.config.dataset, "dataset_fingerprint": record.config.dataset_fingerprint,
            "seed": record.config.seed, "params": record.params, "status": status["status"],
            "passes": status["passes"], **{name: status[name] for name in RECORDED if name in status},
            "command": fit_command(record.config, str(record.path)), "versions": status.get("versions"),
            "costs": costs_of(record.events, status), "events": record.events, "settings": record.settings,
            "notes": [*status.get("notes", []), *self.remarks],
            "evaluation": None if self.judged is None else self.judged.to_json(),
        }  # fmt: skip


@long_call
def report(
    run: str | Place,
    data: str | Place | None = None,
    *,
    html: str | Place | None = None,
    own_data: bool = False,
    executor: Any = None,
    **workers: Unpack[Workers],
) -> Report:
    """Return the report of a run, its model scored on `data`, a data set or a file, if that is given.

    With `own_data` what the run's files name is opened too: its training data are described, and if `data` is None
    the model is scored on those of `eval_data` or `select`, or on the test files of `train`, if they are still there. A
    run of somebody else may name any path or URL.

    With `html` the report is also written there, as one file that needs no network; an older report is replaced, any
    other file is refused.

    Raises FormatError if `run` is no run, MismatchError if the model cannot score the data; BadInputError if Bokeh is
    not installed, MismatchError or StorageError if `html` cannot be written.
    """
    if html is None:
        return _made(run, data, own_data, executor_of(executor))
    from distls.reporting.page import checked_page, write_page
    from distls.reporting.run_page import render_report

    page, made = checked_page(html), _made(run, data, own_data, executor_of(executor))
    write_page(page, render_report(made))
    return made


def _made(run: str | Place, data: str | Place | None, own_data: bool, executor: Executor) -> Report:
    record = read_run(run)
    remarks: list[str] = []
    training = _training(record, remarks) if own_data else None
    if data is not None:
        if record.model is None:
            raise MismatchError(f"{run}: no model yet; `distls resume {run}` continues the run")
        found = judge(record.model, data, str(run), executor, notify=remarks.append)
        return Report(record, training, found, remarks)
    own, reading = record.judged_on
    if record.model is None or not own:
        return Report(record, training, None, remarks)
    if not own_data:
        said = f"the model was not evaluated: the run names {', '.join(own)}, which --own-data would read"
        return Report(record, None, None, [said])
    try:
        with as_format_error(str(run)):
            found = judge(record.model, own, str(run), executor, notify=remarks.append, **reading)
    except (DistlsError, OSError) as error:
        # the run itself is sound: its report must not fail for data that were moved since
        why = f"the model was not evaluated: {error}; --data DATASET or FILE names other rows"
        return Report(record, training, None, [*remarks, why])
    return Report(record, training, found, remarks)


def _training(record: RunRecord, remarks: list[str]) -> Dataset | None:
    """Return the training data if they are still there, else note why not."""
    try:
        found = open_dataset(moved_along(record.config.dataset, record.path))
    except (DistlsError, OSError):
        remarks.append(f"the training data {record.config.dataset} are no longer there")
        return None
    if found.fingerprint == record.config.dataset_fingerprint:
        return found
    remarks.append(f"{record.config.dataset} is not what the model was trained on: it was replaced")
    return None
