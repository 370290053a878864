"""Cross-validation of regularization paths: every fold's paths, then a fit to everything at the point that won."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from distls.execution.executor import Executor
from distls.execution.row_reads import reduce_rows
from distls.methods.method import Params
from distls.storage.dataset.dataset import Dataset, Fold
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place
from distls.training.child_fits import Children, chain_starts, differing, first_interrupted, named
from distls.training.configuration import FitRequest, Setting
from distls.training.racing import Race
from distls.training.regularization_path import warm_started
from distls.training.run_folder import Run
from distls.training.setting_fit import FitOptions, FitResult
from distls.workers.evaluation.fold_task import FoldCounts, FoldTask
from distls.workers.rounds.block_stream import DatasetRef


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
        by_class = (
            {"label_counts": counts, "label_weights": weights.tolist()} if meta.target == "class" else {}
        )
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


def train_folds(run: Run, request: FitRequest, paths: list[list[Params]], options: FitOptions) -> FitResult:
    """Fit paths without each fold, each point from the one before, and publish a fit at the point of least error.

    The error is that of the folds' rows, each by the fit without its fold; of equal points the first is taken, in a
    path that of the largest alpha. The last fit starts from the first fold's at that point. With ``prune`` points that
    are clearly worse are left out, those of the other folds start from the first fold's, and fits are ended by their
    estimates.
    """
    setting = request.settings[0]
    folds, prune = int(setting.params["folds"]), bool(setting.params.get("prune"))
    race = Race(paths, counts=setting.problem.target == "class", prune=prune)
    children = Children(run, options, folds * len(race.points) + 1, at_most=prune)
    apart = request.without("select", "eval_data", trial=prune)
    views = fold_views(request.data, options.executor, folds)
    first: dict[int, Place] = {}
    if request.method.side_by_side:
        stopped, used = _side_by_side(children, apart, race, views), folds
    else:
        stopped, used = _in_chains(children, apart, race, views, chain_starts(paths), first, prune=prune)
    if stopped is not None:
        return children.stopped(stopped)
    params = warm_started(race.points[race.best], first.get(race.best))
    result = children.train(_request_of(request, params, None), f"{_named(race.points, race.best)}, all rows")
    if children.interrupted:
        return children.stopped(result)
    return children.publish(_told(result, race, used), params)


def _in_chains(
    children: Children,
    request: FitRequest,
    race: Race,
    views: Sequence[FoldView],
    starts: set[int],
    first: dict[int, Place],
    *,
    prune: bool,
) -> tuple[FitResult | None, int]:
    """Judge each point by fits one after the other; return the one that was interrupted, and the folds taken.

    `first` is given each point's first fit that has a model.
    """
    used = 0
    for number, view in enumerate(views):
        used, before = number + 1, None
        for place in range(len(race.points)):
            if place not in race.left:
                continue
            before = first.get(place) if prune and number else None if place in starts else before
            child = _request_of(request, warm_started(race.points[place], before), view)
            result = children.train(child, _named_fold(race.points, place, number))
            if children.interrupted:
                return result, used
            race.judge(place, result.record.get("select_error"), view.alone.meta.n_rows)
            before = children.newest if result.model is not None else before
            if result.model is not None:
                first.setdefault(place, children.newest)
        if not race.fold_ended():
            break
    return None, used


def _side_by_side(
    children: Children, request: FitRequest, race: Race, views: Sequence[FoldView]
) -> FitResult | None:
    """Judge each point by fits of all folds at the same reads; return one that was interrupted."""
    places = [(number, place) for number in range(len(views)) for place in range(len(race.points))]
    results = children.train_all(
        [
            (_request_of(request, race.points[place], views[number]), _named_fold(race.points, place, number))
            for number, place in places
        ]
    )
    if children.interrupted:
        return first_interrupted(results)
    for (number, place), result in zip(places, results, strict=True):
        race.judge(place, result.record.get("select_error"), views[number].alone.meta.n_rows)
    return None


def _named_fold(points: list[Params], place: int, number: int) -> str:
    return f"without fold {number + 1}, {_named(points, place)}"


def _named(points: list[Params], place: int) -> str:
    """Return how a point is called: its alpha, also where it is the only one, and what else differs."""
    return named(points, place) if len(points) > 1 else f"alpha={points[place]['alpha']:.4g}"


def _request_of(request: FitRequest, params: Params, view: FoldView | None) -> FitRequest:
    """Return the request of one fit: without a fold, which judges it, or to all rows."""
    data = request.data if view is None else view.rest
    setting = Setting.of(request.method, params, data, request.seed)
    alone = None if view is None else view.alone
    return request.without("calibrate", data=data, settings=[setting], selected_on=alone)


def _told(result: FitResult, race: Race, folds: int) -> FitResult:
    """Return the result with each alpha's error, and a note of the choice."""
    names = dict.fromkeys((*differing(race.points), "alpha"))
    found = race.errors()
    path = [
        {**{name: race.points[place][name] for name in names}, "cv_error": error} for place, error in found
    ]
    best = next(line for line, (place, _) in zip(path, found, strict=True) if place == race.best)
    others = "".join(f"{name}={best[name]} " for name in names if name != "alpha")
    note = (
        f"{others}alpha={best['alpha']:.6g} has the lowest mean error of {len(path)} in {folds}-fold cross-validation, "
        f"{best['cv_error']:.6g}"
    )
    details = {**(result.record.get("details") or {}), "path": path}
    notes = [*(result.record.get("notes") or []), note]
    return replace(result, record={**result.record, "details": details, "notes": notes})
