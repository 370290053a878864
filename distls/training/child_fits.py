"""Fits of several settings in child runs: of a selection, or of the points of a regularization path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from distls.methods.method import Params
from distls.solvers.solver import Record, Status
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import save_model, used_rows
from distls.training.configuration import FitRequest, Setting
from distls.training.regularization_path import warm_started
from distls.training.run_folder import Run, is_run
from distls.training.setting_fit import FitOptions, FitResult, train_setting

__all__ = ["Children", "chain_starts", "differing", "named", "train_children"]


class Children:
    """The child runs of a run, which are trained one after the other, and what they have cost."""

    def __init__(self, run: Run, options: FitOptions, count: int, *, at_most: bool = False) -> None:
        self._run, self._options = run, options
        self._count = f"at most {count}" if at_most else str(count)
        self._seconds, self._passes = 0.0, 0.0
        self._summaries: list[Record] = []
        self.interrupted = False

    def path(self, number: int) -> Place:
        """Return the folder of a child."""
        return self._run.path / "children" / f"{number:03d}"

    @property
    def newest(self) -> Place:
        """The folder of the child that was trained last."""
        return self.path(len(self._summaries) - 1)

    def train(self, request: FitRequest, what: str) -> FitResult:
        """Train the next child, or continue it where a parent that is resumed had left it."""
        number, (setting,) = len(self._summaries), request.settings
        path = self.path(number)
        child = Run.open(path) if is_run(path) else Run.create(path, request.config)
        options = replace(self._options, what=f"{what} ({number + 1} of {self._count})")
        with child.held():
            result = train_setting(child, request, options)
        self._seconds, self._passes = self._seconds + result.seconds, self._passes + result.passes
        self.interrupted = result.status == Status.INTERRUPTED
        self._summaries.append(_child_summary(setting.params, result))
        return result

    def stopped(self, result: FitResult) -> FitResult:
        """Note that the last child was interrupted, and with it the run."""
        cost: Record = {"passes": self._passes, "seconds": self._seconds}
        self._run.write_status({**result.record, "status": result.status, **cost})
        return replace(result, run=self._run.path, **cost)

    def publish(self, won: FitResult | None, params: Params) -> FitResult:
        """Publish the model of a child, with the settings of all; without one the fit has diverged."""
        run = self._run
        cost: Record = {"passes": self._passes, "seconds": self._seconds}
        if won is None or won.model is None:
            run.write_status({"status": Status.DIVERGED, **cost, "children": self._summaries})
            return FitResult(Status.DIVERGED, None, run.path, self._passes, self._seconds, {})
        save_model(run.path / "model", won.model)
        chosen = {"selected": params, "children": self._summaries, "weights_sha256": won.model.sha256}
        run.write_status({**won.record, "status": won.status, **cost, **chosen})
        run.clear()
        return replace(won, run=run.path, **cost, selected=params)


def train_children(
    run: Run,
    request: FitRequest,
    chains: Sequence[Sequence[Params]],
    options: FitOptions,
) -> FitResult:
    """Train one child run per setting, in order, and publish the best on the selection data.

    Without these it is the best on the evaluation data, and without any data the last. The runs of a chain start from
    the model of the run before.
    """
    settings = list(itertools.chain.from_iterable(chains))
    starts = chain_starts(chains)
    judge = "select_error" if request.select is not None else "eval_error"
    children = Children(run, options, len(settings))
    best: tuple[float, FitResult, Params] | None = None
    before: Place | None = None
    for number, planned in enumerate(settings):
        before = None if number in starts else before
        params = warm_started(planned, before)
        result = children.train(_child_request(request, params), named(settings, number))
        if children.interrupted:
            return children.stopped(result)
        judged = result.record.get(judge)
        error = math.inf if judged is None else judged
        if result.model is not None:
            before = children.newest
            if best is None or error < best[0] or (request.select is None and request.eval_data is None):
                best = (error, result, params)
    return children.publish(None if best is None else best[1], {} if best is None else best[2])


def chain_starts(chains: Sequence[Sequence[Params]]) -> set[int]:
    """Return the positions, among the settings of all chains, of those that start from nothing."""
    return set(itertools.accumulate((len(chain) for chain in chains), initial=0))


def differing(settings: Sequence[Params]) -> list[str]:
    """Return the names of the parameters by which settings differ."""
    return [name for name in settings[0] if any(other[name] != settings[0][name] for other in settings)]


def named(settings: Sequence[Params], number: int) -> str:
    """Return the parameters by which a setting differs from others."""
    own = settings[number]
    values = [
        f"{name}={own[name]:.4g}" if isinstance(own[name], float) else f"{name}={own[name]}"
        for name in differing(settings)
    ]
    return ", ".join(values)


def _child_request(request: FitRequest, params: Params) -> FitRequest:
    """Return the request of one setting, which the parent run judges by its selection data."""
    known = [setting for setting in request.settings if setting.params == params]
    # a point of a path is a new setting
    setting = known[0] if known else Setting.of(request.method, params, request.data, request.seed)
    alone = replace(request, calibrate=None, calibration=None)
    return replace(alone, settings=[setting], select=None, selected_on=request.select)


def _child_summary(params: Params, result: FitResult) -> Record:
    """Return the entry of a child in its parent's ``status.json``."""
    record = result.record
    summary: Record = {"params": params, "status": result.status}
    summary["error"] = record.get("select_error")
    if "select_mse" in record:
        summary["mse"] = record["select_mse"]
    if params.get("penalty", "l2") != "l2" and result.model is not None:
        summary["non_zero_rows"] = len(used_rows(result.model.weights))
    shown = {name: record[name] for name in ("objective", "eval_error") if record.get(name) is not None}
    return {**summary, "passes": result.passes, **shown}
