"""The task of the stochastic solvers: a lane works through its partitions, lanes merge by averaging."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition, n_rows_of, take_rows
from distls.workers.evaluation.loss_sums import add_gradient
from distls.workers.evaluation.sample import SampleRef, evaluate_targets, mean_loss
from distls.workers.features.design import blocks, design_of
from distls.workers.losses.registry import LOSSES
from distls.workers.losses.targets import is_codes, slice_rows
from distls.workers.prediction.predictor import Readout
from distls.workers.rounds.block_stream import DatasetRef, ReadStats, open_ref, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.runtime.process import peak_rss, process_name, single_threaded_blas
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.averaging import merge_mean
from distls.workers.stochastic.updates import Arrays, Learner, SgdLearner, Update, one_row

__all__ = [
    "KernelTypes",
    "LaneResult",
    "LaneStart",
    "MeanSums",
    "StochasticJob",
    "Trial",
    "mean_lane",
    "merge_by_key",
    "merge_lanes",
    "merge_means",
    "row_weights",
    "train_lane",
    "try_update",
    "warm_up",
]

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class StochasticJob:
    """What all lanes of a round share, but for the arrays.

    Attributes
    ----------
    data : DatasetRef
    update : Update
    class_weight : float64 array of shape (n_classes,) or None
        Normalised weight of a row of each class; None when all rows weigh one.
    shuffle : bool
        Visit the rows of a partition in random order, else as stored.
    seed, round : int
    sample : SampleRef or None
        Where the lanes' weights are judged before they are averaged.
    recipe, arrays : dicts
        Of generated features, as `distls.workers.prediction.predictor.Readout` has them; empty for the rows themselves.
    dtype : str
        Of generated features.
    """

    data: DatasetRef
    update: Update
    class_weight: NDArray[np.float64] | None
    shuffle: bool
    seed: int
    round: int
    sample: SampleRef | None
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    dtype: str = "float32"

    def readout(self, update: Update, arrays: Arrays) -> Readout:
        """Return what scores rows with an update's arrays."""
        return Readout(*update.model(arrays), self.recipe, self.arrays)


@dataclass(frozen=True)
class LaneStart:
    """Where one lane starts in a round.

    Attributes
    ----------
    lane : Lane
    time : float
        Steps the lane has taken in earlier rounds.
    tail_from : float
        Steps after which the averaging window starts.
    """

    lane: Lane
    time: float
    tail_from: float = math.inf


@dataclass
class LaneResult:
    """One lane's round, or the merged result of several.

    Attributes
    ----------
    arrays : Arrays
        Of the update; mean over the lanes, weighted by their rows.
    tail : Arrays
        Mean (weights, intercept) over the iterates in the lanes' windows; empty without averaging.
    tail_steps : float
        Iterates in the windows.
    spread : float
        Sum over lanes of rows * ||lane - mean||^2.
    n_rows : int
    loss_sum : float
        Of s_i * loss, each row scored before it was learned from.
    errors : int
    sample_loss : float
        Sum over lanes of rows * mean loss on the sample.
    times : dict of lane -> steps taken
    blocks : list of int
        Partitions worked through.
    reads : ReadStats
    kernel_seconds : float
    busy : dict of process -> seconds in its lanes, reading and averaging included
    peaks : dict of process -> peak resident bytes
    """

    arrays: Arrays
    tail: Arrays
    tail_steps: float
    n_rows: int
    loss_sum: float
    errors: int
    sample_loss: float
    times: dict[int, float]
    blocks: list[int]
    reads: ReadStats
    kernel_seconds: float
    spread: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)


def train_lane(job: StochasticJob, start: Arrays, item: LaneStart) -> LaneResult:
    """Work through one lane's partitions from the averaged arrays, counting the lane's own steps.

    Parameters
    ----------
    start : Arrays
        Read only: other lanes of this process start from the same arrays.
    """
    entered = time.perf_counter()
    learner = job.update.begin(start, item.time, item.tail_from)
    reads, loss_sum, errors, n_rows, seconds = ReadStats(), 0.0, 0, 0, 0.0
    for index, part in stream(job.data, item.lane.blocks, reads):
        count = n_rows_of(part.x)
        generator = rng(job.seed, Purpose.ROWS, job.round, index)
        order = generator.permutation(count) if job.shuffle else np.arange(count)
        began = time.perf_counter()
        loss, wrong = _learn(job, learner, part, order)
        seconds += time.perf_counter() - began
        loss_sum, errors, n_rows = loss_sum + loss, errors + wrong, n_rows + count
    reached, (tail, tail_steps) = learner.time, _window(learner)
    arrays = learner.arrays()
    sample_loss = 0.0
    if job.sample is not None:
        readout = job.readout(job.update, arrays)
        sample_loss = n_rows * mean_loss(job.data, job.sample, job.update.loss, readout, reads)
    return LaneResult(
        arrays=arrays,
        tail=tail,
        tail_steps=tail_steps,
        n_rows=n_rows,
        loss_sum=loss_sum,
        errors=errors,
        sample_loss=sample_loss,
        times={item.lane.index: reached},
        blocks=list(item.lane.blocks),
        reads=reads,
        kernel_seconds=seconds,
        busy={process_name(): time.perf_counter() - entered},
        peaks={process_name(): peak_rss()},
    )


def _learn(
    job: StochasticJob, learner: Learner, part: Partition, order: NDArray[np.int64]
) -> tuple[float, int]:
    """Learn from the rows `order` of a partition, or from their features, made in pieces."""
    weight = row_weights(part, job.class_weight)
    if not job.recipe:
        return learner.learn(part.x, part.y, weight, order)
    (design,) = design_of(job.recipe["features"], job.arrays)
    x, y, loss_sum, errors = take_rows(part.x, order), part.y[order], 0.0, 0
    weight = weight[order] if len(weight) else weight
    with single_threaded_blas():
        for rows, piece in blocks(design, x, np.dtype(job.dtype)):
            loss, wrong = learner.learn(piece, y[rows], weight[rows], np.arange(n_rows_of(piece)))
            loss_sum, errors = loss_sum + loss, errors + wrong
    return loss_sum, errors


def _window(learner: Learner) -> tuple[Arrays, float]:
    """Return the mean of the iterates in a learner's window, and how many they are."""
    if not isinstance(learner, SgdLearner) or not learner.window_steps:
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
    for _, part in stream(job.data, lane.blocks, ReadStats()):
        given, count = row_weights(part, job.class_weight), n_rows_of(part.x)
        weight = given if len(given) else np.ones(count)
        if isinstance(part.x, CsrRows):
            each = np.repeat(weight, np.diff(part.x.indptr)) * part.x.data
            sums.x += np.bincount(part.x.indices, each, minlength=shape[0])
        else:
            for start in range(0, count, 1024):
                rows = slice(start, start + 1024)
                sums.x += weight[rows] @ part.x.values[rows].astype(np.float64)
        codes = is_codes(part.y)
        sums.y += np.bincount(part.y, weight, minlength=shape[1]) if codes else weight @ part.y
        sums.weight += float(weight.sum())
    return sums


def merge_means(left: MeanSums, right: MeanSums) -> MeanSums:
    """Add the sums of two lanes."""
    return MeanSums(left.x + right.x, left.y + right.y, left.weight + right.weight)


@dataclass(frozen=True)
class Trial:
    """A setting to be tried on some rows.

    Attributes
    ----------
    update : Update
    blocks : tuple of int
        Partitions.
    n_rows : int
        The first of their rows, in their order, are learned from, and as many after them judge.
    """

    update: Update
    blocks: tuple[int, ...]
    n_rows: int


def try_update(job: StochasticJob, start: Arrays, trial: Trial) -> float:
    """Return the objective on some rows after a pass over others, infinite where it is not finite.

    Weights are those of the job; the objective is that of `distls.problem`.
    """
    learner, reads = trial.update.begin(start, 0.0), ReadStats()
    for index, part, rows in _between(job, trial.blocks, 0, trial.n_rows, reads):
        order = rng(job.seed, Purpose.TRIAL, index).permutation(rows.stop - rows.start)
        _learn(job, learner, part, rows.start + order)
    readout = job.readout(trial.update, learner.arrays())
    loss_sum, weight_sum = 0.0, 0.0
    for _, part, rows in _between(job, trial.blocks, trial.n_rows, 2 * trial.n_rows, reads):
        x, y, weight = slice_rows(part.x, rows), part.y[rows], row_weights(part, job.class_weight)[rows]
        loss, total = evaluate_targets(x, y, weight, trial.update.loss, readout)
        loss_sum, weight_sum = loss_sum + loss, weight_sum + total
    with np.errstate(over="ignore", invalid="ignore"):
        penalty = trial.update.alpha * trial.update.penalty_of(readout.weights)
        value = loss_sum / weight_sum + penalty if weight_sum > 0 else penalty
    return value if math.isfinite(value) else math.inf


def _between(
    job: StochasticJob, blocks: tuple[int, ...], first: int, last: int, reads: ReadStats
) -> Iterator[tuple[int, Partition, slice]]:
    """Yield the partitions that hold rows first to last of some, with where these are in them."""
    counts = open_ref(job.data).table.rows[list(blocks)]
    found, at = {}, 0
    for block, count in zip(blocks, counts.tolist(), strict=True):
        rows = slice(max(first - at, 0), min(last - at, count))
        if rows.start < rows.stop:
            found[block] = rows
        at += count
    for index, part in stream(job.data, tuple(found), reads):
        yield index, part, found[index]


def row_weights(part: Partition, class_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the normalised weight of each row, shape (n_rows,), or an empty array for all ones.

    Parameters
    ----------
    class_weight : float64 array of shape (n_classes,), or (1,) where targets are not classes, or None (ones)
    """
    if class_weight is None:
        return np.empty(0) if part.sample_weight is None else part.sample_weight.astype(np.float64)
    by_class = class_weight[part.y] if is_codes(part.y) else np.full(n_rows_of(part.x), class_weight[0])
    return by_class if part.sample_weight is None else by_class * part.sample_weight


def merge_lanes(left: LaneResult, right: LaneResult) -> LaneResult:
    """Average two results, each weighted by its rows; reuses the memory of `left`."""
    entered = time.perf_counter()
    n_rows = left.n_rows + right.n_rows
    share = right.n_rows / n_rows if n_rows else 0.0
    distance, *_ = [
        merge_mean(a.reshape(-1), b.reshape(-1), share) for a, b in _pairs(left.arrays, right.arrays)
    ]
    if left.tail_steps and right.tail_steps:
        for a, b in _pairs(left.tail, right.tail):
            merge_mean(a.reshape(-1), b.reshape(-1), right.tail_steps / (left.tail_steps + right.tail_steps))
    return replace(
        left,
        tail=left.tail if left.tail_steps else right.tail,
        tail_steps=left.tail_steps + right.tail_steps,
        spread=left.spread + right.spread + distance * left.n_rows * share,
        n_rows=n_rows,
        loss_sum=left.loss_sum + right.loss_sum,
        errors=left.errors + right.errors,
        sample_loss=left.sample_loss + right.sample_loss,
        times=left.times | right.times,
        blocks=left.blocks + right.blocks,
        reads=left.reads.merge(right.reads),
        kernel_seconds=left.kernel_seconds + right.kernel_seconds,
        busy=merge_by_key(sum, left.busy, right.busy, {process_name(): time.perf_counter() - entered}),
        peaks=merge_by_key(max, left.peaks, right.peaks),
    )


def _pairs(left: Arrays, right: Arrays) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    return zip(left, right, strict=True)


def merge_by_key(how: Callable[[list[N]], N], *tables: dict[str, N]) -> dict[str, N]:
    """Return one table of what `how` makes of the values under each key."""
    keys = set().union(*tables)
    return {key: how([table[key] for table in tables if key in table]) for key in sorted(keys)}


@dataclass(frozen=True)
class KernelTypes:
    """The types that a job's kernels are compiled for.

    Attributes
    ----------
    layout : {"csr", "dense"}
    data, indices, weights : str
        Names of dtypes.
    loss : str
    target : str
        Kind of the targets.
    """

    layout: str
    data: str
    indices: str
    weights: str
    loss: str
    target: str = "class"


def warm_up(types: KernelTypes, update: Update) -> None:
    """Compile the kernels of a job, or load them from the disk cache, on one row of nothing.

    Done by the driver first: workers on its machine then load them instead of compiling, which would cost
    them seconds and memory they keep.
    """
    x = one_row(types.layout, types.data, types.indices)
    k = 1 if update.single else 2
    y: NDArray[Any] = np.zeros((1, k)) if types.target == "continuous" else np.zeros(1, np.int32)
    none, order = np.empty(0), np.zeros(1, np.int64)
    arrays = update.zeros((1, 2), types.weights)
    learner = update.begin(arrays, 0.0, 0.0)
    learner.learn(x, y, none, order)
    _window(learner)
    for array in learner.arrays():
        merge_mean(array.reshape(-1), array.reshape(-1).copy(), 0.5)
    weights, intercept = update.model(arrays)
    evaluate_targets(x, y, none, types.loss, Readout(weights, intercept))
    if LOSSES[types.loss].certificate != "none" and types.target != "continuous":
        add_gradient(x, y, none, LOSSES[types.loss], weights, intercept, np.zeros((1, 2)), np.zeros(2))
