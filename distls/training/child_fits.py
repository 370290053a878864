"""Fits of several settings in child runs: of a selection, or of the points of a regularization path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from distls.execution.turns import Turn, side_by_side
from distls.memory_plan import check_workers
from distls.methods.method import Params
from distls.problem import penalty_of
from distls.solvers.events import FitStart, RoundEvent, SilentCallback
from distls.solvers.solver import Record, Status
from distls.storage.filesystem.atomic import remove_tree
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import save_model, used_rows
from distls.training.configuration import FitRequest, Setting
from distls.training.refit import joined_rows
from distls.training.regularization_path import warm_started
from distls.training.run_folder import Run, is_run
from distls.training.setting_fit import FitOptions, FitResult, train_setting
from distls.training.side_by_side import budget_of, fits_at_once
from distls.workers.penalties.penalty_registry import penalty_named

_DIGITS = 9  # of passes, which are sums of fractions


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
        result = self._train_child(len(self._summaries), request, what, self._options)
        self._note(request, result)
        return result

    def train_all(self, requests: Sequence[tuple[FitRequest, str]]) -> list[FitResult]:
        """Train the next children, as many side by side as there is memory for; if interrupted, not all of them."""
        settings = [request.settings[0] for request, _ in requests]
        options, results = self._options, list[FitResult]()
        at_once = fits_at_once(settings, options.executor.slots, options.memory)
        while len(results) < len(requests) and not self.interrupted:
            group = requests[len(results) : len(results) + at_once]
            found = self._train_group(group)
            for (request, _), result in zip(group, found, strict=True):
                self._note(request, result)
            results += found
        return results

    def _train_group(self, group: Sequence[tuple[FitRequest, str]]) -> list[FitResult]:
        """Train children that share each read."""
        first, options = len(self._summaries), self._options
        if len(group) == 1:
            return [self._train_child(first, *group[0], options)]
        memory = budget_of(options.memory, options.executor.slots, len(group))

        def train(place: int, turn: Turn[FitResult]) -> FitResult:
            watchers = (*options.callbacks, _Position(turn))
            own = replace(options, executor=turn, memory=memory, callbacks=watchers)
            return self._train_child(first + place, *group[place], own)

        works = [partial(train, place) for place in range(len(group))]
        return side_by_side(works, options.executor, interrupted=_was_interrupted)

    def _train_child(self, number: int, request: FitRequest, what: str, options: FitOptions) -> FitResult:
        path = self.path(number)
        child = Run.open(path) if is_run(path) else Run.create(path, request.config)
        with child.held():
            return train_setting(
                child, request, replace(options, what=f"{what} ({number + 1} of {self._count})")
            )

    def _note(self, request: FitRequest, result: FitResult) -> None:
        self._seconds, self._passes = self._seconds + result.seconds, self._passes + result.passes
        self.interrupted = self.interrupted or _was_interrupted(result)
        self._summaries.append(_child_summary(request.settings[0].params, result))

    def refit(self, request: FitRequest, params: Params) -> FitResult:
        """Train the chosen setting on more rows, as the last child; `params` are those of its first fit."""
        result = self._train_child(len(self._summaries), request, "all rows", self._options)
        self._note(request, result)
        self._summaries[-1] |= {"params": params, "refit": True}
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


class _Position(SilentCallback):
    """Reports the progress of a fit to the turns that order fits side by side."""

    def __init__(self, turn: Turn[FitResult]) -> None:
        self._turn = turn

    def on_start(self, start: FitStart) -> None:
        """Report where it starts."""
        self._turn.position = round(start.passes, _DIGITS)

    def on_round(self, event: RoundEvent) -> None:
        """Report where it is."""
        self._turn.position = round(event.state.passes, _DIGITS)


def train_children(
    run: Run, request: FitRequest, chains: Sequence[Sequence[Params]], options: FitOptions
) -> FitResult:
    """Train one child run per setting, in order, and publish the best on the selection data.

    Without these it is the best on the evaluation data, and without any data the last. The runs of a chain start from
    the model of the run before.
    """
    settings = list(itertools.chain.from_iterable(chains))
    children = Children(run, options, len(settings) + request.refit)
    if request.method.side_by_side:
        requests = [
            (_child_request(request, params), named(settings, number))
            for number, params in enumerate(settings)
        ]
        fitted = list(zip(children.train_all(requests), settings, strict=False))
    else:
        fitted = _in_chains(children, request, settings, chain_starts(chains))
    if children.interrupted:
        return children.stopped(first_interrupted([result for result, _ in fitted]))
    won, params = _best_of(request, fitted)
    if request.select is None or not request.refit or won is None:
        return children.publish(won, params)
    planned = next(own for own, (_, used) in zip(settings, fitted, strict=True) if used is params)
    return _refitted(run, request, children, won, (planned, params), options)


def _refitted(
    run: Run,
    request: FitRequest,
    children: Children,
    won: FitResult,
    chosen: tuple[Params, Params],
    options: FitOptions,
) -> FitResult:
    """Fit the chosen setting to all rows, as it would be fitted to them alone, and publish that.

    `chosen` is the setting, and the same as its child was given, which may have started from another child.
    """
    assert request.select is not None
    folder = run.path / "all-rows"
    rows = joined_rows(folder, request.data, request.select, options.executor)
    check_workers(options.executor, rows, run.path)
    setting = Setting.of(request.method, chosen[0], rows, request.seed)
    alone = request.without("calibrate", "select", data=rows, settings=[setting])
    result = children.refit(alone, chosen[1])
    if children.interrupted:
        return children.stopped(result)
    judged = {name: value for name, value in won.record.items() if name.startswith("select_")}
    note = f"fitted again, to all {rows.meta.n_rows:,} rows: training and selection data"
    record = {**result.record, **judged, "notes": [*(result.record.get("notes") or []), note]}
    published = children.publish(replace(result, record=record), chosen[1])
    remove_tree(folder)
    return published


def _in_chains(
    children: Children, request: FitRequest, settings: Sequence[Params], starts: set[int]
) -> list[tuple[FitResult, Params]]:
    """Train one after the other, each from the model before it in its chain, until interrupted."""
    fitted: list[tuple[FitResult, Params]] = []
    before: Place | None = None
    for number, planned in enumerate(settings):
        before = None if number in starts else before
        params = warm_started(planned, before)
        result = children.train(_child_request(request, params), named(settings, number))
        fitted.append((result, params))
        if children.interrupted:
            break
        before = before if result.model is None else children.newest
    return fitted


def first_interrupted(results: Sequence[FitResult]) -> FitResult:
    """Return the first result that was interrupted."""
    return next(result for result in results if _was_interrupted(result))


def _was_interrupted(result: FitResult) -> bool:
    return result.status == Status.INTERRUPTED


def _best_of(
    request: FitRequest, fitted: Sequence[tuple[FitResult, Params]]
) -> tuple[FitResult | None, Params]:
    """Return the fit of least error, the first of equal ones, or without any data to judge by the last."""
    judge = "select_error" if request.select is not None else "eval_error"
    best: tuple[float, FitResult, Params] | None = None
    for result, params in fitted:
        judged = result.record.get(judge)
        error = math.inf if judged is None else judged
        if result.model is None:
            continue
        if best is None or error < best[0] or (request.select is None and request.eval_data is None):
            best = (error, result, params)
    return (None, {}) if best is None else best[1:]


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
    return request.without("calibrate", "select", settings=[setting], selected_on=request.select)


def _child_summary(params: Params, result: FitResult) -> Record:
    """Return the entry of a child in its parent's ``status.json``."""
    record = result.record
    summary: Record = {"params": params, "status": result.status}
    summary["error"] = record.get("select_error")
    if "select_mse" in record:
        summary["mse"] = record["select_mse"]
    if not penalty_named(penalty_of(params)).quadratic and result.model is not None:
        summary["non_zero_rows"] = len(used_rows(result.model.weights))
    shown = {name: record[name] for name in ("objective", "eval_error") if record.get(name) is not None}
    return {**summary, "passes": result.passes, **shown}
