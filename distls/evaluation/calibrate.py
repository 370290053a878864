"""Calibration of a model's probabilities on rows that were held out."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.compatibility import check_model_scores, check_targets, class_codes
from distls.evaluation.metrics import LabelEvaluation
from distls.evaluation.scores import measure_classes, measure_labels
from distls.evaluation.thresholds import check_threshold, with_threshold, without_threshold
from distls.execution import executor_of
from distls.execution.batch import run_alone
from distls.execution.executor import Executor
from distls.execution.row_reads import reduce_rows
from distls.ingestion.adhoc_dataset import Notify, Scorable, opened_like, pass_on, source_options
from distls.long_calls import long_call
from distls.model_check import check_model, predictor_of
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import Label
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.filesystem.atomic import os_errors_described, sweep
from distls.storage.filesystem.locks import locked
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel, load_model, save_model
from distls.workers.evaluation.calibration_task import (
    CurveSum,
    CutTask,
    DifferenceTask,
    Margins,
    MarginTask,
    Objective,
    ObjectivePoint,
    ObjectiveSum,
    ObjectiveTask,
    best_cut,
    objective_of,
)
from distls.workers.evaluation.ranked_scores import RankedScores, scores_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import scored_as
from distls.workers.prediction.probability_map import CALIBRATIONS, LABEL_CALIBRATIONS, CalibrationKind
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import add_sums
from distls.workers.runtime.process import single_threaded_blas

Floats = NDArray[np.float64]
# Scores that are gathered on the driver, 256 MiB in float64; with more the rows are read for every evaluation. It does
# not depend on the machine, so that the bits do not either.
MOST_HELD = 2**25
_CACHE_BYTES = 2**28  # decoded partitions that workers keep between such reads
_REMEDY = "the model is as it was; make room and calibrate again"
_WHAT = {"class": "classes", "multilabel": "sets of labels"}
_LEAST_SCALE = 1e-6  # a temperature does not turn the order of the classes


class Calibrated(NamedTuple):
    """A calibrated model, and how good it is on the rows it was calibrated on.

    Attributes
    ----------
    model : LinearModel
    evaluation : Evaluation or LabelEvaluation
    before : LabelEvaluation or None
        Of a multi-label model with the threshold of its loss.
    """

    model: LinearModel
    evaluation: Any
    before: LabelEvaluation | None = None

    def _repr_html_(self) -> str:
        shown: str = self.evaluation._repr_html_()
        return shown


@long_call
def calibrate(
    model: str | Place | LinearModel,
    dataset: Scorable,
    calibration: CalibrationKind | str | None = None,
    *,
    threshold_for: str | None = None,
    executor: Any = None,
    notify: Notify | None = None,
    **reading: Any,
) -> Calibrated:
    """Calibrate the probabilities of a model of classes, or the thresholds of one of label sets, on held-out rows.

    Weights stay as they are, and without `threshold_for` so do predicted classes; predicted sets of labels change. A
    run or model on disk is stored with its calibration, in place of an earlier one.

    Parameters
    ----------
    model : run path, model path or LinearModel
    dataset : path or Dataset, or paths of source files
        Held-out rows with labels; each counts one.
    calibration : {"temperature", "vector", "platt", "isotonic", "micro-f1", "macro-f1"}, optional
        Default: "platt" for two classes, "temperature" for more, "micro-f1" for sets of labels; see docs/metrics.md.
    threshold_for : {"f1", "recall=R", "precision=P", "cost=FP:FN"}, optional
        Of two classes, predict the second above the score that is best on these rows: the highest F1, the fewest
        rows with that recall, the highest recall with that precision, or the least cost of rows that are wrongly
        predicted to be of it, and of rows that are missed. It is stored as another intercept.
    executor, notify, **reading
        As of `distls.evaluate`.

    Returns
    -------
    Calibrated
        ``model`` with its calibration, and ``evaluation``, what `distls.evaluate` says about it on these rows, with the
        quality of its probabilities before and after.

    Raises
    ------
    MismatchError, ParameterError
        Before any partition is read: the model predicts numbers, the rows are those of the training data or lack a
        class, or the kind does not suit the number of classes.
    """
    path = None if isinstance(model, LinearModel) else place_of(model)
    name = "the model" if path is None else str(path)
    if reading.get("kind") in (*CALIBRATIONS, *LABEL_CALIBRATIONS):
        raise ParameterError("kind is calibration= now")
    reading = source_options(dataset, reading)
    beside = path or place_of(f"{tempfile.gettempdir()}/distls-calibrate")
    runner = executor_of(executor)
    options = {**reading, "executor": runner}
    with _alone(path):
        fitted = check_model(model if isinstance(model, LinearModel) else load_model(model), name)
        chosen = check_calibrable(fitted.target, fitted.n_outputs, calibration, name)
        check_threshold(threshold_for, fitted.target, fitted.n_outputs, chosen, name)
        with opened_like(fitted, dataset, name=name, beside=beside, **options) as (data, notices):
            pass_on(notices, notify)
            found = calibrate_model(runner, data, fitted, calibration, name, threshold_for)
        if path is not None:
            store_calibrated(path, found.model)
    return found


@contextlib.contextmanager
def _alone(path: Place | None) -> Iterator[None]:
    """Hold the lock of a run while its model is read and replaced."""
    if path is None or not (path / "config.json").exists():
        yield
        return
    with contextlib.ExitStack() as held:
        with os_errors_described(f"cannot write {path}", _REMEDY):
            held.enter_context(locked(path / "lock", str(path)))
        yield


def store_calibrated(path: Place, model: LinearModel) -> None:
    """Replace the model of a run, or a model folder, by one that is calibrated."""
    # A run has its model in a folder, a model is one.
    folder = path / "model" if (path / "model").is_dir() else path
    with os_errors_described(f"cannot write {folder}", _REMEDY):
        if folder != path:  # of a run, which is held
            sweep(path, folder.name)
        save_model(folder, model)


def check_calibrable(target: str, n_classes: int, kind: CalibrationKind | str | None, name: str) -> str:
    """Return the kind of calibration, by default one that suits the number of classes (docs/metrics.md).

    Raises MismatchError or ParameterError for what cannot be calibrated, or not like this.
    """
    if target == "continuous":
        raise MismatchError(
            f"{name} predicts numbers, which have no probabilities; only models of classes or of sets of labels can be "
            "calibrated"
        )
    known_kinds: tuple[str, ...] = CALIBRATIONS if target == "class" else LABEL_CALIBRATIONS
    if kind is None:
        return "platt" if target == "class" and n_classes == 2 else known_kinds[0]
    if kind == "isotonic" and target == "class" and n_classes != 2:
        raise ParameterError(
            f"calibration isotonic is for two classes, {name} has {n_classes}; take temperature, vector or platt"
        )
    if kind in known_kinds:
        return kind
    other = kind in (*CALIBRATIONS, *LABEL_CALIBRATIONS)
    of = f" for {name}, which predicts {_WHAT[target]}" if other else ""
    raise ParameterError(f"calibration {kind}: expected one of {', '.join(known_kinds)}{of}")


def check_held_out(
    data: Dataset, codes: NDArray[np.int32], classes: Sequence[Label], trained_on: str, kind: str, name: str
) -> Floats:
    """Return the held-out rows of each class; raise MismatchError where they cannot calibrate.

    `codes` are the model's codes of the data's classes, `trained_on` the fingerprint of the training data.
    """
    if data.fingerprint == trained_on:
        raise MismatchError(
            f"{data.path} is what {name} was trained on, where it is too sure of itself; give rows that were held out, "
            "for instance by `distls ingest --split held=0.1`"
        )
    counts = np.zeros(len(classes))
    # Unknown labels are left out of the counts.
    np.add.at(counts, codes[codes >= 0], np.asarray(data.meta.label_counts)[codes >= 0])
    missing = [label for label, count in zip(classes, counts, strict=True) if not count]
    if missing and kind not in ("temperature", *LABEL_CALIBRATIONS):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        remedy = "hold out more" + ("" if len(classes) == 2 else ", or take temperature")
        raise MismatchError(
            f"{data.path} has no rows of class {missing[0]}{more}, and calibration {kind} needs some of every class; "
            f"{remedy}"
        )
    return counts


def calibrate_model(
    executor: Executor,
    data: Dataset,
    model: LinearModel,
    kind: CalibrationKind | str | None,
    name: str,
    threshold_for: str | None = None,
) -> Calibrated:
    """Fit the calibration of a model to held-out rows; parameters and errors as those of `calibrate`."""
    model = without_threshold(model)
    chosen = check_calibrable(model.target, model.n_outputs, kind, name)
    check_model_scores(data, model, name)
    check_targets(data, model.target, model.n_outputs, name)
    remedy = "; read from files, --drop unknown leaves their rows out"
    codes = class_codes(data, model.classes, name, "error", remedy)
    counts = check_held_out(data, codes, model.classes, model.dataset_fingerprint, chosen, name)
    if chosen in LABEL_CALIBRATIONS:
        made = _calibrated(model, data, chosen, fitted_cuts(executor, data, model, codes, chosen))
        plain = replace(model, calibration={}, calibration_arrays={})
        now, before = (run_alone(measure_labels(data, each, codes), executor) for each in (made, plain))
        return Calibrated(made, now, before)
    scored = DatasetRef.of(data, _CACHE_BYTES), scored_as(model.loss, model.recipe), chosen, codes
    if chosen == "isotonic":
        arrays = _isotonic(executor, data, model, scored)
    else:
        arrays = _Fit(executor, data, model, scored, chosen, counts).arrays()
    made = _calibrated(model, data, chosen, arrays)
    if threshold_for is not None:
        ranked = _by_difference(executor, data, model, scored)
        made = with_threshold(made, ranked, threshold_for, name)
    return Calibrated(made, run_alone(measure_classes(data, made, codes), executor))


def _calibrated(model: LinearModel, data: Dataset, kind: str, arrays: dict[str, Floats]) -> LinearModel:
    said = {"kind": kind, "n_rows": data.meta.n_rows, "dataset_fingerprint": data.fingerprint}
    return replace(model, calibration=said, calibration_arrays=arrays)


class _Fit:
    """The convex fit of scales and offsets."""

    def __init__(
        self,
        executor: Executor,
        data: Dataset,
        model: LinearModel,
        scored: tuple[Any, ...],  # the fields that tasks have in common
        kind: str,
        counts: Floats,
    ) -> None:
        self._executor, self._data, self._scored, self._kind = executor, data, scored, kind
        self._predictor, self._k = predictor_of(model), model.n_outputs
        self._single = kind == "platt" and self._k == 2
        # Margins of all rows, or of a sample only.
        held = data.meta.n_rows * self._k <= MOST_HELD
        task, asked = replace(MarginTask(*scored), first_piece=not held), range(len(data) if held else 1)
        blocks = list(executor.map(task, asked, shared=self._predictor))
        self._held = blocks if held else None
        self._objective = self._prepared(counts, blocks[0])

    def _prepared(self, counts: Floats, sample: Margins) -> Objective:
        """Return the objective: its targets, and units that suit the minimiser, from a sample of rows."""
        n_rows, k = self._data.meta.n_rows, self._k
        values = sample.values.astype(np.float64)
        if self._kind == "platt":
            of_class = counts[1:] if self._single else counts
            # Platt's targets: (n + 1) / (n + 2) and 1 / (n + 2), so that the minimum is finite.
            high, low = (of_class + 1) / (of_class + 2), 1 / (n_rows - of_class + 2)
            values = values[:, 1:] - values[:, :1] if self._single else values
        else:  # one row more, of which nothing is known
            low = np.full(k, 1 / (n_rows + 1) / k)
            high = low + n_rows / (n_rows + 1)
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        if self._kind == "temperature":  # one scale, no offsets
            mean, deviation = np.zeros(k), np.full(k, np.sqrt(np.square(deviation).mean()))
        # A margin that never varies keeps its unit.
        return Objective(self._kind == "platt", mean, np.where(deviation > 0.0, deviation, 1.0), high, low)

    def arrays(self) -> dict[str, Floats]:
        """Return scale and offset at the minimum, in the units of the margins."""
        from scipy.optimize import minimize  # a sixth of the imports of `distls fit`, which seldom calibrates

        size, one = len(self._objective.mean), self._kind == "temperature"
        # The start is the uncalibrated model.
        start = np.ones(1) if one else np.concatenate([np.ones(size), np.zeros(size)])
        # an offset makes the order of classes depend on them anyway; one scale alone must not turn it
        bounds = [(_LEAST_SCALE, None)] if one else None
        # Tolerances near rounding: few unknowns, and the same bits wanted on every machine.
        options = {"maxiter": 500, "maxfun": 1000, "ftol": 1e-13, "gtol": 1e-8}
        with single_threaded_blas():
            found = minimize(self._evaluated, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if not np.isfinite(found.fun):
            raise MismatchError(f"{self._data.path}: the scores of its rows are not finite; nothing to calibrate")
        deviation, mean = self._objective.deviation, self._objective.mean
        if one:
            return {"scale": found.x / deviation[:1]}
        scale = found.x[:size] / deviation
        # Back to the units of the margins, from standardised ones.
        return {"scale": scale, "offset": found.x[size:] - scale * mean}

    def _evaluated(self, point: Floats) -> tuple[float, Floats]:
        """Return the objective of a mean row, and its gradient."""
        size, n_rows = len(self._objective.mean), self._data.meta.n_rows
        if self._kind == "temperature":
            total = self._sums(point, np.zeros(size))
            gradient = total.scale.sum(keepdims=True)
        else:
            total = self._sums(point[:size], point[size:])
            gradient = np.concatenate([total.scale, total.offset])
        return total.loss / n_rows, gradient / n_rows

    def _sums(self, scale: Floats, offset: Floats) -> ObjectiveSum:
        if self._held is None:
            task = ObjectiveTask(*self._scored)
            at = ObjectivePoint(self._predictor, self._objective, scale, offset)
            total: ObjectiveSum = reduce_rows(self._executor, self._data, at, task)
            return total
        zero = np.zeros(len(self._objective.mean))
        total = ObjectiveSum(0.0, zero, zero)
        for values, y in self._held:
            total = add_sums(total, objective_of(self._objective, values, y, scale, offset))
        return total


def _by_difference(executor: Executor, data: Dataset, model: LinearModel, scored: tuple[Any, ...]) -> RankedScores:
    """Return the rows in the order of the difference of their two scores."""
    total: CurveSum = reduce_rows(executor, data, predictor_of(model), DifferenceTask(*scored))
    return total.curves[0]


def _isotonic(executor: Executor, data: Dataset, model: LinearModel, scored: tuple[Any, ...]) -> dict[str, Floats]:
    """Return the increasing function of the difference of two scores that is nearest to the second class's indicator.

    Probabilities of 0 and 1 are moved inwards as far as one row more could: no loss is infinite.
    """
    from scipy.optimize import isotonic_regression

    rows = _by_difference(executor, data, model, scored)
    weight = rows.own + rows.others
    fitted = isotonic_regression(rows.own / weight, weights=weight).x
    # As if one row more of each class had been seen.
    least = 1.0 / (data.meta.n_rows + 2)
    # of a run of equal values both ends are enough: between them it is constant
    ends = np.ones(len(fitted), bool)
    ends[1:-1] = (fitted[1:-1] != fitted[:-2]) | (fitted[1:-1] != fitted[2:])
    return {"scores": scores_of(rows)[ends], "probabilities": np.clip(fitted[ends], least, 1.0 - least)}


# -- sets of labels --------------------------------------------------------------------------------------


def fitted_cuts(
    executor: Executor, data: Dataset, model: LinearModel, codes: NDArray[np.int32], kind: str
) -> dict[str, NDArray[np.float64]]:
    """Return the arrays of a calibration; labels that no row has keep the threshold of the loss."""
    task = CutTask(DatasetRef.of(data), codes, model.n_outputs, kind == "macro-f1")
    total: CurveSum = reduce_rows(executor, data, predictor_of(model), task)
    if not all(np.isfinite(scores_of(rows)).all() for rows in total.curves):
        raise MismatchError(f"{data.path}: the scores of its rows are not finite; nothing to calibrate")
    found = [best_cut(rows, model.weights.dtype) for rows in total.curves]
    kept = float(loss_named(model.loss).threshold)
    return {"threshold": np.array([kept if cut is None else cut for cut in found], np.float64)}
