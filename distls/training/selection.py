"""Fits among which the data choose: settings by held-out rows, points of regularization paths by these or by folds.

Each is a child run. Where a method's fits can share reads they do; else those of a path start from the one before.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from distls.execution.executor import Executor
from distls.execution.row_reads import reduce_rows
from distls.memory_plan import check_workers
from distls.methods.method import Params
from distls.storage.dataset.dataset import Dataset, Fold
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place
from distls.training.child_runs import Children
from distls.training.configuration import FitRequest, Setting
from distls.training.memory_search import are_compared_here, compared_here
from distls.training.refit import joined_rows
from distls.training.run_folder import Run
from distls.training.setting_fit import FitOptions, FitResult
from distls.workers.evaluation.fold_task import FoldCounts, FoldTask
from distls.workers.rounds.block_stream import DatasetRef

# Differences that are told apart no further: of the error itself, and as a part of it
_PRECISION, _PART = 0.003, 0.07
# Errors of numbers and of label sets are no counts: what one differs from another by chance, as a part of it
_SPREAD = 3.0  # over the square root of the rows


class FoldView(NamedTuple):
    """A data set without a fold, and the fold alone."""

    rest: Dataset
    alone: Dataset


def fold_views(dataset: Dataset, executor: Executor, folds: int) -> list[FoldView]:
    """Return the views of a data set's folds, whose weights take one read of the data.

    Raises ParameterError where a fold has no rows, or leaves nothing of any weight to fit.
    """
    meta, classes = dataset.meta, len(dataset.meta.label_weights) if dataset.meta.target == "class" else 1
    task = FoldTask(DatasetRef.of(dataset), (folds, classes))
    total: FoldCounts = reduce_rows(executor, dataset, None, task)
    views = []
    for number in range(folds):
        rows, weights = total.rows[number], total.weights.sum(axis=0) - total.weights[number]
        if not rows.sum() or not weights.sum() > 0.0:
            raise ParameterError(
                f"folds={folds}: a fold has no rows, or leaves none of any weight; ask for fewer, or ingest with a "
                "larger --partition-size"
            )
        counts = (total.rows.sum(axis=0) - rows).tolist()
        by_class = {"label_counts": counts, "label_weights": weights.tolist()} if meta.target == "class" else {}
        rest = _changed(dataset, weighted=True, weight_sum=float(weights.sum()), **by_class)
        alone = _changed(dataset, n_rows=int(rows.sum()))
        views.append(
            FoldView(
                replace(rest, fold=Fold(number, folds, alone=False)),
                replace(alone, fold=Fold(number, folds, alone=True)),
            )
        )
    return views


def _changed(dataset: Dataset, **fields: Any) -> Dataset:
    return replace(dataset, meta=msgspec.structs.replace(dataset.meta, **fields))


def train_children(run: Run, request: FitRequest, chains: Sequence[Sequence[Params]], options: FitOptions) -> FitResult:
    """Train one child run per setting, in order, and publish the best on the selection data.

    Without these it is the best on the evaluation data, and without any data the last. The runs of a chain start from
    the model of the run before.
    """
    race = Race(chains, counts=False, prune=False)
    children = Children(run, request, options, len(race.points) + request.refit)
    fits = _fitted(children, request, race, [None])
    if children.interrupted:
        return children.stopped()
    won = _best_of(request, fits)
    if won is None:
        return children.publish(None, {})
    if request.select is None or not request.refit:
        return children.publish(won.result, won.params)
    return _refitted(run, request, children, won, race.points[won.place], options)


def train_folds(run: Run, request: FitRequest, paths: list[list[Params]], options: FitOptions) -> FitResult:
    """Fit paths without each fold, each point from the one before, and publish a fit at the point of least error.

    The error is that of the folds' rows, each by the fit without its fold; of equal points the first is taken, in a
    path that of the largest alpha. The last fit starts from the first fold's at that point. With ``prune`` points that
    are clearly worse are left out, those of the other folds start from the first fold's, and fits are ended by their
    estimates. Of a method that is exact the folds of few rows are compared in memory, and the last fit is the only run.
    """
    setting = request.settings[0]
    folds, prune = int(setting.params["folds"]), bool(setting.params.get("prune"))
    race = Race(paths, counts=setting.problem.target == "class", prune=prune)
    begun = time.perf_counter()
    views = fold_views(request.data, options.executor, folds)
    # in memory all settings see the same rows
    alike = len({each.problem.dataset.standardization is None for each in request.settings}) == 1
    here = alike and are_compared_here(setting)
    count = 1 if here else folds * len(race.points) + 1
    children = Children(run, request, options, count, at_most=prune)
    start, errors = None, None
    if here:
        errors, start = compared_here(run, request, race, paths, views)
        children.compared(time.perf_counter() - begun)
    else:
        fits = _fitted(children, request.without("select", "eval_data", trial=prune), race, views)
        if children.interrupted:
            return children.stopped()
        folds = fits[-1].fold + 1
        start = None if request.method.side_by_side else _first_model(children, fits, race.best)
    params = _from(race.points[race.best], start)
    result = children.train(_child_request(request, params), f"{_named(race.points, race.best)}, all rows")
    if children.interrupted:
        return children.stopped()
    return children.publish(_told(result, race, folds, errors), race.points[race.best])


# -- the points that are left ----------------------------------------------------------------------------


class Race:
    """The points that are left, and what they got wrong on the rows of the folds so far.

    `paths` has the parameters of the points of each path, by decreasing strength. With `counts` errors are shares of
    rows that are wrong; without `prune` no points are left out.
    """

    def __init__(self, paths: Sequence[Sequence[Params]], *, counts: bool, prune: bool) -> None:
        self.points = [point for path in paths for point in path]
        # A point is compared along its own path while a fold is going on.
        self._path = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
        self._counts, self.prunes = counts, prune
        self._wrong, self._rows = np.zeros(len(self.points)), np.zeros(len(self.points))
        self.left = list(range(len(self.points)))

    def starts(self, place: int) -> bool:
        """Return whether a point is the first of its path."""
        return place == 0 or self._path[place] != self._path[place - 1]

    def judge(self, place: int, error: float | None, rows: int) -> None:
        """Enter the error of a point on the rows of a fold; None where the fit has diverged.

        What is clearly worse than the best of its own path is followed by no weaker penalties.
        """
        # Infinity: a diverged fit never wins.
        self._wrong[place] += math.inf if error is None else error * rows
        self._rows[place] += rows
        if not self.prunes:
            return
        # Stronger penalties of the same path that are judged already.
        before = [i for i in self.left if self._path[i] == self._path[place] and i < place]
        if before and self._behind(place, min(before, key=self._wrong.__getitem__)):
            # Weaker penalties overfit more, so they are not tried on this fold.
            self.left = [i for i in self.left if self._path[i] != self._path[place] or i <= place]

    def fold_ended(self) -> bool:
        """Leave out what is clearly worse than the best; return whether another fold can change the choice."""
        if not self.prunes:
            return True
        best = self.best
        self.left = [i for i in self.left if i == best or not self._behind(i, best)]
        error, rows = self._wrong[best] / self._rows[best], self._rows[best]
        # The choice is fine enough once chance decides between what is left.
        fine = self._margin(best, best) / rows <= min(_PRECISION, _PART * error)
        return len(self.left) > 1 and not fine

    def keep_first(self) -> None:
        """Leave out all paths but the first, unless another one is better by more than chance."""
        first = [place for place in self.left if self._path[place] == 0]
        if not self._behind(min(first, key=self._wrong.__getitem__), self.best):
            self.left = first

    @property
    def best(self) -> int:
        """The place of the point with the least error of those left, of equal ones the first."""
        return min(self.left, key=self._wrong.__getitem__)

    def errors(self) -> list[tuple[int, float]]:
        """Return the place of each point that was fitted, and its error on all the rows that it has judged."""
        fitted = np.flatnonzero(self._rows).tolist()
        return [(place, float(self._wrong[place] / self._rows[place])) for place in fitted]

    def _behind(self, place: int, best: int) -> bool:
        """Return whether a point that has judged the same rows is worse by more than chance."""
        return bool(self._wrong[place] - self._wrong[best] > self._margin(place, best))

    def _margin(self, place: int, best: int) -> float:
        if self._counts:  # no more rows than these are right with the one and wrong with the other
            return math.sqrt(self._wrong[place] + self._wrong[best])
        # The deviation of a mean falls with the root of the number of rows.
        return float(self._wrong[best] * _SPREAD / math.sqrt(self._rows[best]))


# -- the fits --------------------------------------------------------------------------------------------


class _Fit(NamedTuple):
    """A fit of a point, to all rows or without a fold."""

    fold: int
    place: int  # of the point
    params: Params  # of the point, with the model that the fit started from
    result: FitResult


def _fitted(children: Children, request: FitRequest, race: Race, views: Sequence[FoldView | None]) -> list[_Fit]:
    """Fit the points that are left, to all rows (None) or without each fold, which judges them, until interrupted."""
    if not request.method.side_by_side:
        return _fitted_in_chains(children, request, race, views)
    places = [(fold, place) for fold in range(len(views)) for place in race.left]
    results = children.train_all(
        [
            (_child_request(request, race.points[place], views[fold]), _what(race, place, fold, views[fold]))
            for fold, place in places
        ]
    )
    fits = [
        _Fit(fold, place, race.points[place], result) for (fold, place), result in zip(places, results, strict=False)
    ]
    for fit in () if children.interrupted else fits:
        _judge(race, fit, views[fit.fold])
    return fits


def _fitted_in_chains(
    children: Children, request: FitRequest, race: Race, views: Sequence[FoldView | None]
) -> list[_Fit]:
    """Fit one after the other, each from the model before it in its chain, or from that of the first fold."""
    fits: list[_Fit] = []
    for fold, view in enumerate(views):
        before: Place | None = None
        for place, planned in enumerate(race.points):
            if place not in race.left:
                continue
            if race.prunes and fold:
                before = _first_model(children, fits, place)
            elif race.starts(place):
                before = None
            params = _from(planned, before)
            result = children.train(_child_request(request, params, view), _what(race, place, fold, view))
            fits.append(_Fit(fold, place, params, result))
            if children.interrupted:
                return fits
            _judge(race, fits[-1], view)
            if result.model is not None:
                before = children.path(len(fits) - 1)
        if not race.fold_ended():
            break
    return fits


def _first_model(children: Children, fits: Sequence[_Fit], place: int) -> Place | None:
    """Return the run of a point's first fit that has a model."""
    models = (number for number, fit in enumerate(fits) if fit.place == place and fit.result.model is not None)
    return next((children.path(number) for number in models), None)


def _judge(race: Race, fit: _Fit, view: FoldView | None) -> None:
    if view is not None:
        race.judge(fit.place, fit.result.record.get("select_error"), view.alone.meta.n_rows)


def _from(params: Params, before: Place | None) -> Params:
    """Return a point's parameters with the run it starts from, where there is one before it."""
    if before is None:
        return params
    # in place of the start that the first of a chain may have
    return {**params, "init": str(before.resolve()), **({"start": None} if "start" in params else {})}


def _child_request(request: FitRequest, params: Params, view: FoldView | None = None) -> FitRequest:
    """Return the request of one fit, which the parent judges by its selection data, or by the fold that it lacks."""
    data, judge = (request.data, request.select) if view is None else (view.rest, view.alone)
    known = [setting for setting in request.settings if setting.params == params and view is None]
    # a point of a path is a new setting
    setting = known[0] if known else _setting(request, params, view)
    # only what the parent publishes is calibrated
    return request.without("calibrate", "select", data=data, settings=[setting], selected_on=judge)


def _setting(request: FitRequest, params: Params, view: FoldView | None) -> Setting:
    data = request.data if view is None else view.rest
    return Setting.of(request.method, params, data, request.seed, request.parallelism or 1)


def _best_of(request: FitRequest, fits: Sequence[_Fit]) -> _Fit | None:
    """Return the fit of least error, the first of equal ones, or without any data to judge by the last."""
    fits = [fit for fit in fits if fit.result.model is not None]
    if not fits or (request.select is None and request.eval_data is None):
        return fits[-1] if fits else None
    judge = "select_error" if request.select is not None else "eval_error"

    def error(fit: _Fit) -> float:
        found = fit.result.record.get(judge)
        return math.inf if found is None else found

    return min(fits, key=error)


def _refitted(
    run: Run, request: FitRequest, children: Children, won: _Fit, planned: Params, options: FitOptions
) -> FitResult:
    """Fit the chosen setting to all rows, as it would be fitted to them alone, and publish that."""
    assert request.select is not None
    folder = run.path / "all-rows"
    rows = joined_rows(folder, request.data, request.select, options.executor)
    check_workers(options.executor, rows, run.path)
    setting = Setting.of(request.method, planned, rows, request.seed, request.parallelism or 1)
    alone = request.without("calibrate", "select", data=rows, settings=[setting])
    result = children.refit(alone, won.params)
    if children.interrupted:
        return children.stopped()
    judged = {name: value for name, value in won.result.record.items() if name.startswith("select_")}
    note = f"fitted again, to all {rows.meta.n_rows:,} rows: training and selection data"
    return children.publish(_noted(result, note, judged), won.params)


# -- what they are called, and what is told of them ------------------------------------------------------


def _differing(points: Sequence[Params]) -> list[str]:
    """Return the names of the parameters by which points differ."""
    return [name for name in points[0] if any(other[name] != points[0][name] for other in points)]


def _named(points: Sequence[Params], place: int) -> str:
    """Return the parameters by which a point differs from others, of one alone its alpha."""
    names, own = _differing(points) or ["alpha"], points[place]
    values = [(name, own[name]) for name in names if name in own]
    return ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in values)


def _what(race: Race, place: int, fold: int, view: FoldView | None) -> str:
    name = _named(race.points, place)
    return name if view is None else f"without fold {fold + 1}, {name}"


def _told(result: FitResult, race: Race, folds: int, errors: list[float] | None) -> FitResult:
    """Return the result with each alpha's error, and a note of the choice; with `errors` losses have decided."""
    names, what = dict.fromkeys((*_differing(race.points), "alpha")), "error" if errors is None else "loss"
    found = race.errors()
    path = [
        {
            **{name: race.points[place][name] for name in names},
            **({} if errors is None else {"cv_error": errors[place]}),
            f"cv_{what}": value,
        }
        for place, value in found
    ]
    best = next(line for line, (place, _) in zip(path, found, strict=True) if place == race.best)
    others = "".join(f"{name}={best[name]} " for name in names if name != "alpha")
    how = f"in {folds}-fold cross-validation" if folds > 1 else "on the rows of one fold, which were left out"
    value = best[f"cv_{what}"]
    note = f"{others}alpha={best['alpha']:.6g} has the lowest mean {what} of {len(path)} {how}, {value:.6g}"
    return _noted(result, note, {"details": {**(result.record.get("details") or {}), "path": path}})


def _noted(result: FitResult, note: str, more: dict[str, Any]) -> FitResult:
    notes = [*(result.record.get("notes") or []), note]
    return replace(result, record={**result.record, **more, "notes": notes})
