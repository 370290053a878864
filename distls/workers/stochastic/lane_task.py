"""The task of the stochastic solvers: a lane works through its partitions, lanes merge by averaging."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition, concatenate_partitions, n_rows_of, take_rows
from distls.workers.evaluation.sample import SampleRef, evaluate_targets, mean_loss
from distls.workers.features.design import blocks
from distls.workers.features.design_recipe import design_of
from distls.workers.linear_algebra.gram import exact_column_sums, weighted_square
from distls.workers.losses.targets import is_codes, label_sets, slice_rows
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.averaging import merge_mean
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Needs, Task
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.joint_learning import together
from distls.workers.stochastic.update import Arrays, Learner, Update

DRAWS = "draws"  # rows of all partitions of a lane's round, with replacement


@dataclass(eq=False)
class StochasticTask(Task):
    """Base of the tasks of the stochastic methods."""

    data: DatasetRef
    update: Update
    class_weight: NDArray[np.float64] | None  # (n_classes,), normalised; None: all rows weigh one
    shuffle: bool | str  # visit a partition's rows in random order, else as stored; or `DRAWS`
    seed: int
    round: int
    sample: SampleRef | None  # where the lanes' weights are judged before they are averaged
    # of generated features, with `arrays`, as in `LinearPredictor`; empty: rows themselves
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    dtype: str = "float32"  # of generated features
    # of a lane, in all rounds: the rows after them are read and not learned from
    most_steps: float = math.inf

    shares_reads = True
    learner = cast(Learner, None)  # of a copy at work

    @classmethod
    def introduce(cls, tasks: Sequence[StochasticTask]) -> None:
        """Have lanes, or trials, that see the same rows in the same order learn as the update can."""
        groups: dict[Any, list[StochasticTask]] = {}
        for task in tasks:
            if not task.recipe and task.shuffle != DRAWS:  # features may differ, and rows that are held
                groups.setdefault(task.sees, []).append(task)
        for group in groups.values():
            learners = together([task.learner for task in group])
            for task, learner in zip(group, learners, strict=True):
                task.learner = learner

    @property
    def sees(self) -> Any:
        """What determines the rows of a partition, their order and their weights."""
        weight = None if self.class_weight is None else self.class_weight.tobytes()
        return self.data, self.seed, self.round, self.shuffle, weight, self.most_steps

    def predictor(self, update: Update, arrays: Arrays) -> LinearPredictor:
        """Return the predictor made of an update's arrays."""
        return LinearPredictor(*update.model(arrays), self.recipe, self.arrays)

    def learn(self, part: Partition, order: NDArray[np.int64]) -> tuple[float, int]:
        """Learn from the rows `order` of a partition, or from their features, made batch by batch."""
        weight = row_weights(part, self.class_weight)
        if not self.recipe:
            return self.learner.learn(part.x, _as_kernels_take(part.y), weight, order)
        (design,) = design_of(self.recipe["features"], self.arrays)
        # Rows are gathered in their order first, so that features are made of contiguous batches.
        x, y, loss_sum, errors = take_rows(part.x, order), take_rows(part.y, order), 0.0, 0
        weight = weight[order] if len(weight) else weight
        # One thread: workers are as many as cores, and products must not depend on the number of threads.
        with single_threaded_blas():
            for rows, batch in blocks(design, x, np.dtype(self.dtype)):
                own = _as_kernels_take(slice_rows(y, rows))
                loss, wrong = self.learner.learn(batch, own, weight[rows], np.arange(n_rows_of(batch)))
                loss_sum, errors = loss_sum + loss, errors + wrong
        return loss_sum, errors


@dataclass(frozen=True)
class LaneStart:
    """Where one lane starts in a round."""

    lane: Lane
    time: float  # steps the lane has taken in earlier rounds
    tail_from: float = math.inf  # steps after which the averaging window starts

    @property
    def blocks(self) -> tuple[int, ...]:
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


class TrainTask(StochasticTask):
    """Trains on a lane's partitions, from the averaged arrays that are shared; items are `LaneStart`s."""

    @staticmethod
    def needs(weight_bytes: int, work_bytes: int) -> Needs:
        """Return what it needs: its result has a lane's arrays, and its window's mean or the certificate's gradient."""
        return Needs(weight_bytes, 2 * weight_bytes, work_bytes)

    def start(self) -> None:
        self.learner = self.update.start_lane(self.shared, self.item.time, self.item.tail_from)
        self._loss_sum, self._errors, self._learned, self._steps = 0.0, 0, 0, self.item.time
        self._held: list[Partition] = []

    def add(self, index: int, part: Partition) -> None:
        """Learn from a partition, or hold its rows until all are there to be drawn from."""
        count = n_rows_of(part.x)
        if self.shuffle == DRAWS:
            self._held.append(concatenate_partitions([part]))
            return
        # Drawn from the seed, the round and the partition: the order does not depend on which worker reads it.
        order = _order_of(self.seed, self.round, index, count) if self.shuffle else np.arange(count)
        self._learn(part, order)

    def _learn(self, part: Partition, order: NDArray[np.int64]) -> None:
        if self.most_steps < math.inf:
            # its own count: of learners side by side, the first to learn moves the clock of all
            batch = getattr(self.update, "batch_size", 1)
            order = order[: max(int(self.most_steps - self._steps), 0) * batch]
            self._steps += -(-len(order) // batch)
        self._learned += len(order)
        with self.ledger.in_kernels():
            loss, wrong = self.learn(part, order)
        # In the order of the lane's partitions, so that the sum has the same rounding on any worker.
        self._loss_sum, self._errors = self._loss_sum + loss, self._errors + wrong

    def result(self) -> LaneResult:
        """Return what the lane has learned, judged on the sample."""
        if self._held:
            part, batch = concatenate_partitions(self._held), getattr(self.update, "batch_size", 1)
            generator = rng(self.seed, Purpose.DRAWS, self.round, self.item.lane.index)
            self._learn(part, draws_of(generator, n_rows_of(part.x), batch))
        learner, ledger, sample_loss = self.learner, self.ledger, 0.0
        # of all rows that were read, where steps ended before them
        whole = ledger.n_rows / max(self._learned, 1) if self.most_steps < math.inf else 1.0
        # before `arrays`, which ends the learner; without iterates in the window there is no mean
        reached, tail_steps = learner.time, learner.window_steps
        tail = learner.window(consume=True) if tail_steps else ()
        arrays = learner.arrays()
        if self.sample is not None:
            predictor = self.predictor(self.update, arrays)
            # Weighted by rows here, divided by all rows after merging.
            mean = mean_loss(self.data, self.sample, self.update.loss, predictor, ledger)
            sample_loss = ledger.n_rows * mean
        return LaneResult(
            arrays=arrays,
            tail=tail,
            tail_steps=tail_steps,
            loss_sum=self._loss_sum * whole,
            errors=round(self._errors * whole),
            sample_loss=sample_loss,
            times={self.item.lane.index: reached},
            ledger=ledger,
        )

    @staticmethod
    def merge(left: LaneResult, right: LaneResult) -> LaneResult:
        """Average two results, each weighted by its rows; reuses the memory of `left`."""
        entered = time.perf_counter()
        ledger = left.ledger.merge(right.ledger)
        # A running mean, weighted by rows: merging three lanes gives each its own weight.
        share = right.ledger.n_rows / ledger.n_rows if ledger.n_rows else 0.0
        # all arrays are averaged; the first distance, that of the weights, is the spread
        distance, *_ = [
            # In place, and in the fixed order of merging, which makes averages bitwise identical.
            merge_mean(a.reshape(-1), b.reshape(-1), share)
            for a, b in zip(left.arrays, right.arrays, strict=True)
        ]
        if left.tail_steps and right.tail_steps:
            for a, b in zip(left.tail, right.tail, strict=True):
                merge_mean(
                    # Windows are weighted by their iterates, not by rows.
                    a.reshape(-1),
                    b.reshape(-1),
                    right.tail_steps / (left.tail_steps + right.tail_steps),
                )
        ledger.charge(time.perf_counter() - entered)
        return replace(
            left,
            # a copy: the next merge changes it
            tail=left.tail if left.tail_steps else tuple(np.copy(each) for each in right.tail),
            tail_steps=left.tail_steps + right.tail_steps,
            # The parallel update of a sum of squares: distances within both parts, and between them.
            spread=left.spread + right.spread + distance * left.ledger.n_rows * share,
            loss_sum=left.loss_sum + right.loss_sum,
            errors=left.errors + right.errors,
            sample_loss=left.sample_loss + right.sample_loss,
            times=left.times | right.times,
            ledger=ledger,
        )


# Fits side by side read the same partition one after the other in one thread, so the last order is enough.
_LAST = threading.local()


def _order_of(seed: int, round_: int, index: int, count: int) -> NDArray[np.int64]:
    """Return the order of a partition's rows; fits side by side draw it once."""
    # Thread-local: two threads work on different partitions.
    key = seed, round_, index, count
    if getattr(_LAST, "key", None) != key:
        _LAST.key, _LAST.order = key, rng(seed, Purpose.ROWS, round_, index).permutation(count)
    order: NDArray[np.int64] = _LAST.order
    return order


def draws_of(generator: np.random.Generator, count: int, batch: int) -> NDArray[np.int64]:
    """Return as many rows as there are, drawn uniformly; no batch has one twice (the MCID paper's A_t)."""
    if batch == 1:
        return generator.integers(count, size=count)
    size = min(batch, count)
    return np.concatenate([generator.choice(count, size, replace=False) for _ in range(count // size)])


def _as_kernels_take(y: Any) -> Any:
    return label_sets(y) if isinstance(y, CsrRows) else y


@dataclass
class MeanSums:
    """Weighted sums of rows, shape (n_features,), of targets, shape (k,), of their squares, and of the weights."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    x_square: float  # of |x|^2
    y_square: NDArray[np.float64]
    weight: float


class MeanTask(StochasticTask):
    """Sums rows and targets, those of classes as indicators; shared is the shape of the weights."""

    shares_reads = False

    def start(self) -> None:
        d, k = self.shared
        self.total = MeanSums(np.zeros(d), np.zeros(k), 0.0, np.zeros(k), 0.0)

    def add(self, index: int, part: Partition) -> None:
        sums, given = self.total, row_weights(part, self.class_weight)
        weight = given if len(given) else np.ones(n_rows_of(part.x))
        # An exact sum: the fixed mean is the same whatever the lanes, to the last bit.
        sums.x += exact_column_sums(part.x, weight, len(sums.x))
        sums.x_square += weighted_square(part.x, weight)
        if not is_codes(part.y):
            y, squares = weight @ part.y, weight @ np.square(part.y, dtype=np.float64)
        elif len(sums.y) == 1:  # of two classes -1 and 1
            y, squares = weight @ np.where(part.y == 1, 1.0, -1.0), weight.sum()
        else:  # indicators are counted, weighted, without being made
            y = squares = np.bincount(part.y, weight, minlength=len(sums.y))
        sums.y, sums.y_square = sums.y + y, sums.y_square + squares
        sums.weight += float(weight.sum())


@dataclass(frozen=True)
class Trial:
    """An update to be tried on some rows."""

    update: Update
    blocks: tuple[int, ...]  # partitions
    n_rows: int  # rows to learn from, in their order; as many after them score the result
    same: bool = False  # or these themselves


class TrialTask(StochasticTask):
    """Tries updates: an epoch over some rows, then the objective on as many others; items are `Trial`s.

    The result is infinity where it is not finite.
    """

    def reads(self, item: Trial) -> tuple[int, ...]:
        """See `Task.reads`: partitions to learn from, then those to score."""
        return tuple(block for block, _, _ in self._slices(item))

    def _slices(self, trial: Trial) -> list[tuple[int, bool, slice]]:
        """Return partitions, whether to learn from their rows, and which rows these are."""
        # Rows to learn from and to judge by are disjoint: a step that overfits must not win (`same` is the paper's).
        first = _between(self.data, trial.blocks, 0, trial.n_rows)
        start = 0 if trial.same else trial.n_rows
        then = _between(self.data, trial.blocks, start, start + trial.n_rows)
        return [(block, found is first, rows) for found in (first, then) for block, rows in found.items()]

    def start(self) -> None:
        self._update, self._left = self.item.update, self._slices(self.item)[::-1]
        self.learner = self._update.start_lane(self.shared, 0.0)
        # Made once, since it ends the learner.
        self._predictor: LinearPredictor | None = None
        self._loss_sum, self._weight_sum = 0.0, 0.0

    def add(self, index: int, part: Partition) -> None:
        """Learn from the first rows, or score others."""
        _, learns, rows = self._left.pop()
        if learns:
            # An own purpose: the trial's order is independent of the first pass.
            order = rng(self.seed, Purpose.TRIAL, index).permutation(rows.stop - rows.start)
            self.learn(part, rows.start + order)
            return
        x, y = slice_rows(part.x, rows), slice_rows(part.y, rows)
        weight = row_weights(part, self.class_weight)[rows]
        # a step that is too long may give any numbers: it is then not the one to be chosen
        with np.errstate(over="ignore", invalid="ignore"):
            loss, total = evaluate_targets(x, y, weight, self._update.loss, self._learned())
        self._loss_sum, self._weight_sum = self._loss_sum + loss, self._weight_sum + total

    def _learned(self) -> LinearPredictor:
        if self._predictor is None:
            self._predictor = self.predictor(self._update, self.learner.arrays())
        return self._predictor

    def result(self) -> float:
        """Return the objective on the rows that were scored."""
        with np.errstate(over="ignore", invalid="ignore"):
            penalty = self._update.alpha * self._update.penalty_of(self._learned().coefficients)
            # Rows of no weight judge nothing; then the penalty alone is compared.
            value = self._loss_sum / self._weight_sum + penalty if self._weight_sum > 0 else penalty
        return float(value) if math.isfinite(value) else math.inf


def _between(data: DatasetRef, blocks: tuple[int, ...], first: int, last: int) -> dict[int, slice]:
    """Return the partitions that hold rows `first` to `last` of these blocks, each with the slice of such rows."""
    # Row counts are known from metadata, so no partition is read to find the slices.
    counts = open_ref(data).table.rows[list(blocks)]
    found, at = {}, 0
    for block, count in zip(blocks, counts.tolist(), strict=True):
        rows = slice(max(first - at, 0), min(last - at, count))
        if rows.start < rows.stop:
            found[block] = rows
        at += count
    return found
