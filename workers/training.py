"""The task of the stochastic solvers: a lane works through its partitions, lanes merge by averaging."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Partition, n_rows_of
from distls.workers.kernels.averaging import merge_mean
from distls.workers.kernels.linear import add_gradient, evaluate_rows
from distls.workers.kernels.stochastic import (
    T,
    mcid_block,
    mcid_settings,
    new_clock,
    weights_from,
    window_mean,
)
from distls.workers.lanes import Lane
from distls.workers.losses import LOSSES
from distls.workers.process import peak_rss, process_name
from distls.workers.sample import SampleRef, mean_loss
from distls.workers.seeds import Purpose, rng
from distls.workers.stream import DatasetRef, ReadStats, stream
from distls.workers.targets import is_codes

__all__ = [
    "KernelTypes",
    "LaneResult",
    "LaneStart",
    "StochasticJob",
    "merge_by_key",
    "merge_lanes",
    "row_weights",
    "train_lane",
    "warm_up",
]

N = TypeVar("N", int, float)
Start = tuple[NDArray[Any], NDArray[np.float64]]


@dataclass(frozen=True)
class StochasticJob:
    """What all lanes of a round share, but for the weights.

    Attributes
    ----------
    data : DatasetRef
    loss : str
    alpha, t0 : float
    batch_size : int
    fit_intercept : bool
    averaging : bool
        Whether lanes return the mean of the iterates in their window.
    class_weight : float64 array of shape (n_classes,) or None
        Normalised weight of a row of each class; None when all rows weigh one.
    shuffle : bool
        Visit the rows of a partition in random order, else as stored.
    seed, round : int
    sample : SampleRef or None
        Where the lanes' weights are judged before they are averaged.
    """

    data: DatasetRef
    loss: str
    alpha: float
    t0: float
    batch_size: int
    fit_intercept: bool
    averaging: bool
    class_weight: NDArray[np.float64] | None
    shuffle: bool
    seed: int
    round: int
    sample: SampleRef | None


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
    tail_from: float


@dataclass
class LaneResult:
    """One lane's round, or the merged result of several.

    Attributes
    ----------
    weights : array of shape (n_features, n_outputs)
        Mean over the lanes, weighted by their rows.
    intercept : float64 array of shape (n_outputs,)
    tail, tail_intercept : arrays
        Means over the iterates in the lanes' windows; empty without averaging.
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

    weights: NDArray[Any]
    intercept: NDArray[np.float64]
    tail: NDArray[Any]
    tail_intercept: NDArray[np.float64]
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


def train_lane(job: StochasticJob, start: Start, item: LaneStart) -> LaneResult:
    """Work through one lane's partitions from the averaged weights, counting the lane's own steps.

    Parameters
    ----------
    start : (weights of shape (n_features, n_outputs), intercept of shape (n_outputs,))
        Read only: other lanes of this process start from the same arrays.
    """
    entered = time.perf_counter()
    weights, intercept = start
    settings = mcid_settings(
        LOSSES[job.loss],
        job.alpha,
        t0=job.t0,
        batch_size=job.batch_size,
        fit_intercept=job.fit_intercept,
        tail_from=item.tail_from if job.averaging else math.inf,
    )
    clock = new_clock()
    clock[T] = item.time
    with np.errstate(over="ignore", invalid="ignore"):  # divergence is the loop's to report
        u = weights * weights.dtype.type(job.alpha * (item.time + job.t0))
    q = np.zeros(u.shape if job.averaging else (0, u.shape[1]), u.dtype)
    b, qb = intercept.astype(np.float64), np.zeros(len(intercept))
    reads, loss_sum, errors, n_rows, seconds = ReadStats(), 0.0, 0, 0, 0.0
    for index, part in stream(job.data, item.lane.blocks, reads):
        count = n_rows_of(part.x)
        generator = rng(job.seed, Purpose.ROWS, job.round, index)
        order = generator.permutation(count) if job.shuffle else np.arange(count)
        began = time.perf_counter()
        loss, wrong = mcid_block(
            part.x, part.y, row_weights(part, job.class_weight), order, u, q, b, qb, clock, settings
        )
        seconds += time.perf_counter() - began
        loss_sum, errors, n_rows = loss_sum + loss, errors + int(wrong), n_rows + count
    tail_steps = max(clock[T] - item.tail_from, 0.0) if job.averaging else 0.0
    if tail_steps:
        window_mean(u, q, clock, tail_steps)
        qb /= tail_steps
    else:
        q, qb = q[:0], qb[:0]
    with np.errstate(over="ignore", invalid="ignore"):
        weights_from(u, job.alpha, clock[T] + job.t0, out=u)
    sample_loss = (
        0.0 if job.sample is None else n_rows * mean_loss(job.data, job.sample, job.loss, u, b, reads)
    )
    return LaneResult(
        weights=u,
        intercept=b,
        tail=q,
        tail_intercept=qb,
        tail_steps=tail_steps,
        n_rows=n_rows,
        loss_sum=loss_sum,
        errors=errors,
        sample_loss=sample_loss,
        times={item.lane.index: float(clock[T])},
        blocks=list(item.lane.blocks),
        reads=reads,
        kernel_seconds=seconds,
        busy={process_name(): time.perf_counter() - entered},
        peaks={process_name(): peak_rss()},
    )


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
    distance = merge_mean(left.weights.reshape(-1), right.weights.reshape(-1), share)
    left.intercept += (right.intercept - left.intercept) * share
    tail, tail_intercept = _merge_tails(left, right)
    return replace(
        left,
        tail=tail,
        tail_intercept=tail_intercept,
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


def _merge_tails(left: LaneResult, right: LaneResult) -> tuple[NDArray[Any], NDArray[np.float64]]:
    if not left.tail_steps or not right.tail_steps:
        kept = left if left.tail_steps else right
        return kept.tail, kept.tail_intercept
    share = right.tail_steps / (left.tail_steps + right.tail_steps)
    merge_mean(left.tail.reshape(-1), right.tail.reshape(-1), share)
    left.tail_intercept += (right.tail_intercept - left.tail_intercept) * share
    return left.tail, left.tail_intercept


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
    """

    layout: str
    data: str
    indices: str
    weights: str
    loss: str


def warm_up(types: KernelTypes) -> None:
    """Compile the kernels of a job, or load them from the disk cache, on one row of nothing.

    Done by the driver first: workers on its machine then load them instead of compiling, which would cost
    them seconds and memory they keep.
    """
    values = np.ones(1, types.data)
    csr = CsrRows(np.array([0, 1], np.int64), np.zeros(1, types.indices), values)
    x = csr if types.layout == "csr" else DenseRows(values[None])
    y, one, none = np.zeros(1, np.int32), np.empty(0), np.empty(0, np.int32)
    u, b = np.zeros((1, 2), types.weights), np.zeros(2)
    loss = LOSSES[types.loss]
    order = np.zeros(1, np.int64)
    mcid_block(
        x, y, one, order, u, u.copy(), b, b.copy(), new_clock(), mcid_settings(loss, 1.0, tail_from=0.0)
    )
    merge_mean(u.reshape(-1), u.reshape(-1).copy(), 0.5)
    evaluate_rows(x, y, one, loss, u, b, none)
    if types.loss != "perceptron":
        add_gradient(x, y, one, loss, u, b, np.zeros((1, 2)), b.copy())
