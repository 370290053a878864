"""Fits of several settings in child runs: of a selection, or of the points of a regularization path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from distls.methods.method import Params
from distls.solvers.solver import Record, Status
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import save_model, used_rows
from distls.training.configuration import FitRequest, Setting
from distls.training.regularization_path import warm_started
from distls.training.run_folder import Run
from distls.training.setting_fit import FitOptions, FitResult, train_setting

__all__ = ["train_children"]


def train_children(
    run: Run,
    request: FitRequest,
    settings: Sequence[Params],
    options: FitOptions,
    *,
    chained: bool = False,
) -> FitResult:
    """Train one child run per setting, in order, and publish the best on the selection data.

    Without these it is the best on the evaluation data, and without any data the last. Chained runs start from the
    model of the run before.
    """
    judge = "select_error" if request.select is not None else "eval_error"
    seconds, passes = 0.0, 0.0
    results: list[Record] = []
    best: tuple[float, FitResult, Params] | None = None
    before: Place | None = None
    for number, planned in enumerate(settings):
        path = run.path / "children" / f"{number:03d}"
        params = warm_started(planned, before) if chained else planned
        child_request = _child_request(request, params)
        # a resumed parent continues its children where they were
        child = Run.open(path) if (path / "config.json").exists() else Run.create(path, child_request.config)
        with child.held():
            result = train_setting(child, child_request, replace(options, what=_named(settings, number)))
        seconds, passes = seconds + result.seconds, passes + result.passes
        if result.status == Status.INTERRUPTED:
            run.write_status({**result.record, "status": result.status, "passes": passes, "seconds": seconds})
            return replace(result, run=run.path, passes=passes, seconds=seconds)
        results.append(_child_summary(params, result))
        judged = result.record.get(judge)
        error = math.inf if judged is None else judged
        if result.model is not None:
            before = path
            if best is None or error < best[0] or (request.select is None and request.eval_data is None):
                best = (error, result, params)
    return _publish_best(run, best, results, passes, seconds)


def _named(settings: Sequence[Params], number: int) -> str:
    """Return the parameters by which a setting differs from others, and its number."""
    own = settings[number]
    names = [name for name in own if any(other[name] != own[name] for other in settings)]
    values = [
        f"{name}={own[name]:.4g}" if isinstance(own[name], float) else f"{name}={own[name]}" for name in names
    ]
    return f"{', '.join(values)} ({number + 1} of {len(settings)})"


def _child_request(request: FitRequest, params: Params) -> FitRequest:
    """Return the request of one setting, which the parent run judges by its selection data."""
    known = [setting for setting in request.settings if setting.params == params]
    # a point of a path is a new setting
    setting = known[0] if known else Setting.of(request.method, params, request.data, request.seed)
    return replace(request, settings=[setting], select=None, selected_on=request.select)


def _publish_best(
    run: Run,
    best: tuple[float, FitResult, Params] | None,
    results: list[Record],
    passes: float,
    seconds: float,
) -> FitResult:
    if best is None:
        run.write_status(
            {"status": Status.DIVERGED, "passes": passes, "seconds": seconds, "children": results}
        )
        return FitResult(Status.DIVERGED, None, run.path, passes, seconds, {})
    _, won, params = best
    assert won.model is not None
    save_model(run.path / "model", won.model)
    final = {**won.record, "status": won.status, "passes": passes, "seconds": seconds}
    final |= {"selected": params, "children": results, "weights_sha256": won.model.sha256}
    run.write_status(final)
    run.clear()
    return replace(won, run=run.path, passes=passes, seconds=seconds, selected=params)


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
