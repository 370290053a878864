"""The task of the stochastic solvers: a lane works through its partitions, lanes merge by averaging."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition, n_rows_of, take_rows
from distls.workers.evaluation.loss_sums import add_gradient, add_gradients
from distls.workers.evaluation.sample import SampleRef, evaluate_targets, mean_loss
from distls.workers.features.design import blocks
from distls.workers.features.design_recipe import design_of
from distls.workers.linear_algebra.gram import exact_column_sums
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.losses.targets import is_codes, label_sets, slice_rows
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.averaging import add_scaled, merge_mean
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream
from distls.workers.rounds.kernel_types import KernelTypes, one_row
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.shared_reads import done_by, read_alone
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.joint_learning import together
from distls.workers.stochastic.update import LEAST_JOINT, Arrays, Learner, Update


@dataclass(frozen=True)
class StochasticJob:
    """The part of a round's input that all lanes share, except for the arrays."""

    data: DatasetRef
    update: Update
    class_weight: NDArray[np.float64] | None  # (n_classes,), normalised; None: all rows weigh one
    shuffle: bool  # visit a partition's rows in random order, else as stored
    seed: int
    round: int
    sample: SampleRef | None  # where the lanes' weights are judged before they are averaged
    # of generated features, with `arrays`, as in `LinearPredictor`; empty: rows themselves
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    dtype: str = "float32"  # of generated features

    @property
    def sees(self) -> Any:
        """What determines the rows of a partition, their order and their weights."""
        weight = None if self.class_weight is None else self.class_weight.tobytes()
        return self.data, self.seed, self.round, self.shuffle, weight

    def predictor(self, update: Update, arrays: Arrays) -> LinearPredictor:
        """Return the predictor made of an update's arrays."""
        return LinearPredictor(*update.model(arrays), self.recipe, self.arrays)


@dataclass(frozen=True)
class LaneStart:
    """Where one lane starts in a round."""

    lane: Lane
    time: float  # steps the lane has taken in earlier rounds
    tail_from: float = math.inf  # steps after which the averaging window starts

    @property
    def reads(self) -> tuple[int, ...]:
        """See `Lane.reads`."""
        return self.lane.blocks


@dataclass
class LaneResult:
    """One lane's round, or the merged result of several."""

    arrays: Arrays  # mean over the lanes, weighted by their rows
    tail: Arrays  # mean (weights, intercept) of the iterates in the lanes' windows; empty without averaging
    tail_steps: float  # iterates in the windows
    loss_sum: float  # of s_i * loss, each row scored before its own step
    errors: int
    sample_loss: float  # sum over lanes of rows * mean loss on the sample
    times: dict[int, float]  # lane -> steps taken
    ledger: Ledger  # process seconds include reading and averaging
    spread: float = 0.0  # sum over lanes of rows * ||lane - mean||^2


class LaneTraining:
    """Training on one lane's partitions, from the averaged arrays `start`, which other lanes read too."""

    def __init__(self, job: StochasticJob, start: Arrays, item: LaneStart) -> None:
        self.job, self._lane = job, item.lane
        self.data, self.blocks, self.ledger = job.data, item.lane.blocks, Ledger()
        self.learner = job.update.start_lane(start, item.time, item.tail_from)
        self._loss_sum, self._errors = 0.0, 0

    @property
    def sees(self) -> Any:
        """What determines the rows, their order and their weights, among lanes that share a read."""
        return self.job.sees

    def take(self, index: int, part: Partition) -> None:
        """Learn from a partition."""
        job, count = self.job, n_rows_of(part.x)
        order = _order_of(job.seed, job.round, index, count) if job.shuffle else np.arange(count)
        with self.ledger.in_kernels():
            loss, wrong = _learn(job, self.learner, part, order)
        self._loss_sum, self._errors = self._loss_sum + loss, self._errors + wrong
        self.ledger.count(index, count)

    def result(self) -> LaneResult:
        """Return what the lane has learned, judged on the sample."""
        job, learner, ledger = self.job, self.learner, self.ledger
        # before `arrays`, which ends the learner
        reached, (tail, tail_steps) = learner.time, _window(learner)
        arrays = learner.arrays()
        sample_loss = 0.0
        if job.sample is not None:
            predictor = job.predictor(job.update, arrays)
            sample_loss = ledger.n_rows * mean_loss(job.data, job.sample, job.update.loss, predictor, ledger)
        return LaneResult(
            arrays=arrays,
            tail=tail,
            tail_steps=tail_steps,
            loss_sum=self._loss_sum,
            errors=self._errors,
            sample_loss=sample_loss,
            times={self._lane.index: reached},
            ledger=ledger,
        )


def _learn_together(trainings: Sequence[LaneTraining | Trying]) -> None:
    """Have lanes, or trials, that see the same rows in the same order learn as the update can."""
    groups: dict[Any, list[LaneTraining | Trying]] = {}
    for training in trainings:
        if not training.job.recipe:  # features may differ
            groups.setdefault(training.sees, []).append(training)
    for group in groups.values():
        learners = together([training.learner for training in group])
        for training, learner in zip(group, learners, strict=True):
            training.learner = learner


@done_by(LaneTraining, _learn_together)
def train_lane(job: StochasticJob, start: Arrays, item: LaneStart) -> LaneResult:
    """Return the result of `LaneTraining`."""
    result: LaneResult = read_alone(LaneTraining(job, start, item))
    return result


_LAST = threading.local()


def _order_of(seed: int, round_: int, index: int, count: int) -> NDArray[np.int64]:
    """Return the order of a partition's rows; fits side by side draw it once."""
    key = seed, round_, index, count
    if getattr(_LAST, "key", None) != key:
        _LAST.key, _LAST.order = key, rng(seed, Purpose.ROWS, round_, index).permutation(count)
    order: NDArray[np.int64] = _LAST.order
    return order


def _learn(
    job: StochasticJob, learner: Learner, part: Partition, order: NDArray[np.int64]
) -> tuple[float, int]:
    """Learn from the rows `order` of a partition, or from their features, made batch by batch."""
    weight = row_weights(part, job.class_weight)
    if not job.recipe:
        return learner.learn(part.x, _as_kernels_take(part.y), weight, order)
    (design,) = design_of(job.recipe["features"], job.arrays)
    x, loss_sum, errors = take_rows(part.x, order), 0.0, 0
    y = take_rows(part.y, order) if isinstance(part.y, CsrRows) else part.y[order]
    weight = weight[order] if len(weight) else weight
    with single_threaded_blas():
        for rows, batch in blocks(design, x, np.dtype(job.dtype)):
            own = _as_kernels_take(slice_rows(y, rows))
            loss, wrong = learner.learn(batch, own, weight[rows], np.arange(n_rows_of(batch)))
            loss_sum, errors = loss_sum + loss, errors + wrong
    return loss_sum, errors


def _as_kernels_take(y: Any) -> Any:
    return label_sets(y) if isinstance(y, CsrRows) else y


def _window(learner: Learner) -> tuple[Arrays, float]:
    """Return the mean of the iterates in a learner's window, and their number."""
    if not learner.window_steps:
        return (), 0.0
    return learner.window(consume=True), learner.window_steps


@dataclass
class MeanSums:
    """Weighted sums of rows, shape (n_features,), of targets, shape (k,), and of their weights."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    weight: float


def mean_lane(job: StochasticJob, shape: tuple[int, int], lane: Lane) -> MeanSums:
    """Return the sums of a lane's rows and targets; those of classes are indicators."""
    sums = MeanSums(np.zeros(shape[0]), np.zeros(shape[1]), 0.0)
    for _, part in stream(job.data, lane.blocks):
        given = row_weights(part, job.class_weight)
        weight = given if len(given) else np.ones(n_rows_of(part.x))
        sums.x += exact_column_sums(part.x, weight, shape[0])
        codes = is_codes(part.y)
        sums.y += np.bincount(part.y, weight, minlength=shape[1]) if codes else weight @ part.y
        sums.weight += float(weight.sum())
    return sums


def merge_means(left: MeanSums, right: MeanSums) -> MeanSums:
    """Add the sums of two lanes."""
    return MeanSums(left.x + right.x, left.y + right.y, left.weight + right.weight)


@dataclass(frozen=True)
class Trial:
    """An update to be tried on some rows."""

    update: Update
    blocks: tuple[int, ...]  # partitions
    n_rows: int  # rows to learn from, in their order; as many after them score the result

    @property
    def reads(self) -> tuple[int, ...]:
        """See `Lane.reads`."""
        return (*self.blocks, self.n_rows)


class Trying:
    """The trial of an update: an epoch over some rows, then the objective on as many others."""

    def __init__(self, job: StochasticJob, start: Arrays, trial: Trial) -> None:
        self.job, self._update, self.data, self.ledger = job, trial.update, job.data, Ledger()
        self.learner = trial.update.start_lane(start, 0.0)
        first = _between(job, trial.blocks, 0, trial.n_rows)
        then = _between(job, trial.blocks, trial.n_rows, 2 * trial.n_rows)
        self._slices = [
            *((True, rows) for rows in first.values()),
            *((False, rows) for rows in then.values()),
        ]
        self.blocks = (*first, *then)
        self._predictor: LinearPredictor | None = None
        self._taken, self._loss_sum, self._weight_sum = 0, 0.0, 0.0

    @property
    def sees(self) -> Any:
        """What determines the rows, their order and their weights, among trials that share a read."""
        return self.job.sees

    def take(self, index: int, part: Partition) -> None:
        """Learn from the first rows, or score others."""
        learns, rows = self._slices[self._taken]
        self._taken += 1
        if learns:
            order = rng(self.job.seed, Purpose.TRIAL, index).permutation(rows.stop - rows.start)
            _learn(self.job, self.learner, part, rows.start + order)
            return
        x, y = slice_rows(part.x, rows), slice_rows(part.y, rows)
        weight = row_weights(part, self.job.class_weight)[rows]
        # a step that is too long may give any numbers: it is then not the one to be chosen
        with np.errstate(over="ignore", invalid="ignore"):
            loss, total = evaluate_targets(x, y, weight, self._update.loss, self._learned())
        self._loss_sum, self._weight_sum = self._loss_sum + loss, self._weight_sum + total

    def _learned(self) -> LinearPredictor:
        if self._predictor is None:
            self._predictor = self.job.predictor(self._update, self.learner.arrays())
        return self._predictor

    def result(self) -> float:
        """Return the objective on the rows that were scored; infinity if it is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            penalty = self._update.alpha * self._update.penalty_of(self._learned().coefficients)
            value = self._loss_sum / self._weight_sum + penalty if self._weight_sum > 0 else penalty
        return value if math.isfinite(value) else math.inf


@done_by(Trying, _learn_together)
def try_update(job: StochasticJob, start: Arrays, trial: Trial) -> float:
    """Return the objective on some rows after an epoch over others; infinity if it is not finite."""
    value: float = read_alone(Trying(job, start, trial))
    return value


def _between(job: StochasticJob, blocks: tuple[int, ...], first: int, last: int) -> dict[int, slice]:
    """Return the partitions that hold rows `first` to `last` of these blocks, each with the slice of such rows."""
    counts = open_ref(job.data).table.rows[list(blocks)]
    found, at = {}, 0
    for block, count in zip(blocks, counts.tolist(), strict=True):
        rows = slice(max(first - at, 0), min(last - at, count))
        if rows.start < rows.stop:
            found[block] = rows
        at += count
    return found


def merge_lanes(left: LaneResult, right: LaneResult) -> LaneResult:
    """Average two results, each weighted by its rows; reuses the memory of `left`."""
    entered = time.perf_counter()
    ledger = left.ledger.merge(right.ledger)
    share = right.ledger.n_rows / ledger.n_rows if ledger.n_rows else 0.0
    # all arrays are averaged; the first distance, that of the weights, is the spread
    distance, *_ = [
        merge_mean(a.reshape(-1), b.reshape(-1), share)
        for a, b in zip(left.arrays, right.arrays, strict=True)
    ]
    if left.tail_steps and right.tail_steps:
        for a, b in zip(left.tail, right.tail, strict=True):
            merge_mean(a.reshape(-1), b.reshape(-1), right.tail_steps / (left.tail_steps + right.tail_steps))
    ledger.charge(time.perf_counter() - entered)
    return replace(
        left,
        tail=left.tail if left.tail_steps else right.tail,
        tail_steps=left.tail_steps + right.tail_steps,
        spread=left.spread + right.spread + distance * left.ledger.n_rows * share,
        loss_sum=left.loss_sum + right.loss_sum,
        errors=left.errors + right.errors,
        sample_loss=left.sample_loss + right.sample_loss,
        times=left.times | right.times,
        ledger=ledger,
    )


def warm_up(types: KernelTypes, update: Update, models: int = 1) -> None:
    """Compile the kernels of a job, or load them from the disk cache, on a single row; `models` train side by side."""
    # the driver calls this first: workers on its machine then load the kernels instead of compiling them, which would
    # cost them seconds and memory they do not give back
    x = one_row(types.layout, types.data, types.indices)
    k = 1 if update.one_column else 2
    y = _one_target(types.target, k)
    none, order = np.empty(0), np.zeros(1, np.int64)
    arrays = update.zeros((1, 2), types.weights)
    learner = update.start_lane(arrays, 0.0, 0.0)
    learner.learn(x, _as_kernels_take(y), none, order)
    for other in together([update.start_lane(arrays, 0.0) for _ in range(min(models, LEAST_JOINT))]):
        other.learn(x, _as_kernels_take(y), none, order)
    _window(learner)
    for array in learner.arrays():
        merge_mean(array.reshape(-1), array.reshape(-1).copy(), 0.5)
    add_scaled(np.zeros(1), np.zeros(1), np.zeros(1, types.weights), 1.0)  # the driver's averages
    weights, intercept = update.model(arrays)
    evaluate_targets(x, y, none, types.loss, LinearPredictor(weights, intercept))
    if LOSSES[types.loss].certificate != "none" and types.target == "class":
        given = x, y, none, LOSSES[types.loss]
        add_gradient(*given, weights, intercept, np.zeros((1, 2)), np.zeros(2))
        if models > 1:
            for d in (1, 2):  # as many values as features, and fewer
                wide = np.zeros((d, 2), types.weights)
                add_gradients(*given, wide, intercept[None], np.zeros((d, 2)), np.zeros((1, 2)))


def _one_target(target: str, k: int) -> Any:
    if target == "multilabel":
        return CsrRows(np.array([0, 1], np.int64), np.zeros(1, np.uint32), np.ones(1, np.float32))
    return np.zeros((1, k)) if target == "continuous" else np.zeros(1, np.int32)
