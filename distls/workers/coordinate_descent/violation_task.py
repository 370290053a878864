"""A read of all columns: which of them violate the optimality conditions, and the dual point of the certificate.

Each lane has the slopes g of all rows and computes ``X_j' g`` of its columns. The same numbers say which columns are to
be worked on next, and by how much g has to be scaled to be a point of the dual, whose value bounds the optimum. The
columns with weights and the largest violators are copied while their shard is in memory, so that the descent that
follows needs no other read (docs/decisions/0037).
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, n_rows_of, take_rows
from distls.workers.coordinate_descent.active_columns import WORKING, Active, bytes_of, store_active
from distls.workers.coordinate_descent.all_rows import RowSums, known_scores, read_slopes, store_all
from distls.workers.coordinate_descent.descent_kernels import Step
from distls.workers.coordinate_descent.dual_bounds import DualFactor, conjugate_mean
from distls.workers.coordinate_descent.row_scores_task import RowScores, with_rows
from distls.workers.coordinate_descent.sweep_task import Shard, given_weights, transposed
from distls.workers.coordinate_descent.working_columns import products_of, ranks_of, sizes_of
from distls.workers.coordinate_descent.working_set_kernels import add_products
from distls.workers.penalties.penalty_registry import penalty_named, prox_rows
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream_columns
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.task import Task
from distls.workers.runtime.buffers import job_memory

Array = NDArray[np.float64]


def moves_of(penalty: str, w: Array, gradient: Array, step: Step) -> Array:
    """Return how far rows of weights are from the optimality conditions: the excess over alpha of those of zero."""
    # A step of size one: of a zero block it is the excess over alpha, as in Eq. 9 of the paper.
    return sizes_of(prox_rows(penalty, w - gradient, step.alpha, step.rho) - w)


@dataclass
class Violations:
    """The sums of one lane, or of several."""

    factor: float = 1.0  # the least of the columns', see `DualFactor`
    conjugated: float = 0.0
    product: float = 0.0
    violation: float = 0.0  # sum over the columns, and the largest
    largest: float = 0.0
    held: int = 0  # columns that are kept; -1 where those with weights alone are too many
    left_out: int = 0  # columns that would have been kept, had there been memory
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def dual(self) -> DualFactor:
        """The factor of all columns."""
        return DualFactor(self.factor, self.conjugated, self.product)


@dataclass(eq=False)
class OnAllScores(Task):
    """Base of tasks on the scores of all rows as one array; raises StateLostError if they are not there."""

    scores: RowScores
    penalty: str
    step: Step

    def __post_init__(self) -> None:
        """Read the data of the scores."""
        self.data = self.scores.data

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Shard]]:
        """See `Task.stream`: shards in their order, so that sums over columns have one order."""
        for index, shard in stream_columns(self.data, sorted(blocks), self.ledger):
            yield index, transposed(shard, index)

    def count(self, index: int, block: Any) -> None:
        """Enter a shard."""
        self.ledger.blocks.append(index)


_READING = threading.Lock()


class _Products(NamedTuple):
    """The newest products of columns, (columns, k) of each shard, with the slopes of all rows."""

    data: DatasetRef
    slopes: Array
    found: dict[int, Array]


def _products_of(data: DatasetRef, slopes: Array) -> tuple[Array, dict[int, Array]]:
    """Return the slopes, and the products with them that are known already, to which others are added.

    The next strength of a path begins with the slopes at which the last one has ended: its first read computes nothing.
    Equal slopes have equal products, to the last bit, so that no result depends on what is known.
    """
    # What is tried on one row before a fit replaces nothing.
    if data.one_row:
        return slopes, {}
    newest, own = job_memory.get("products"), data.whole.uncached()
    if newest is None or newest.data != own or not np.array_equal(newest.slopes, slopes):
        newest = job_memory["products"] = _Products(own, slopes, {})
    return newest.slopes, newest.found


@dataclass(eq=False)
class ViolationTask(OnAllScores):
    """Looks for violations in a lane's columns, given the weights as `SparseWeights`."""

    room: int = 1  # columns without weights that a lane keeps
    most_bytes: int = 0  # of the columns that it keeps

    def start(self) -> None:
        """See `Task.start`."""
        k = len(self.shared.intercept)
        # One of a worker's threads at a time: slopes that another has read already are shared, not held twice.
        with _READING:
            self._slopes, self._products = _products_of(self.data, read_slopes(self.scores, k))
        self.total = Violations()
        self._kept: list[tuple[Active, Array]] = []
        self._floor = 0.0  # what a column has to be ranked above to be kept

    def add(self, index: int, shard: Shard) -> None:
        """Judge the columns of a shard, and keep some."""
        step, total = self.step, self.total
        given, w = given_weights(self.shared, shard)
        gradient = self._gradient(index, shard)
        # The dual point is feasible if it is for every column: the least factor counts.
        factor, conjugated = penalty_named(self.penalty).conjugate(-gradient, step.alpha, step.rho)
        total.factor, total.conjugated = min(total.factor, factor), total.conjugated + conjugated
        total.product += float(np.vdot(gradient[given], w[given]))
        # Nearly violating columns follow those that do, and weights come first: a descent may change any of them.
        rank = ranks_of(self.penalty, gradient, step)
        rank[given] = np.inf
        some = np.flatnonzero(rank)  # the others are where they are to be
        sizes = moves_of(self.penalty, w[some], gradient[some], step)
        total.violation += float(sizes.sum())
        total.largest = max(total.largest, float(sizes.max(initial=0.0)))
        self._keep(shard, rank)

    def _gradient(self, index: int, shard: Shard) -> Array:
        """Return the products of a shard's columns with the slopes, computed anew only where they are not known."""
        found = self._products.get(index)
        if found is None:
            with self.ledger.in_kernels():
                found = products_of(shard.x, self._slopes, alone=self.scores.alone)
            self._products[index] = found
        return found

    def _keep(self, shard: Shard, rank: Array) -> None:
        """Copy the columns of a shard that are ranked high enough."""
        places = np.flatnonzero(rank > self._floor)
        places = np.sort(places[self._best(rank[places])])
        self._kept.append((Active(shard.first + places, take_rows(shard.x, places)), rank[places]))
        others = rank[places][np.isfinite(rank[places])]
        if 0 < self.room == len(others):
            self._floor = float(others.min(initial=np.inf))
        # Thinned now and then only, as each time copies what stays.
        if self._n_kept() > 2 * self.room:
            self._thin()

    def _best(self, ranks: Array) -> NDArray[np.int64]:
        """Return the places of all columns with weights, and of as many others as there is room for, best first."""
        most = int(np.isinf(ranks).sum()) + self.room
        places = np.arange(len(ranks))
        if len(ranks) > most:
            # Most are far behind, and need no order.
            least = np.partition(ranks, len(ranks) - most)[len(ranks) - most]
            places = np.flatnonzero(ranks >= least)
        return places[np.argsort(-ranks[places], kind="stable")][:most]

    def _fits(self, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.cumsum(sizes) <= self.most_bytes

    def _n_kept(self) -> int:
        return sum(int(np.isfinite(ranks).sum()) for _, ranks in self._kept)

    def _thin(self) -> None:
        """Keep the columns with weights, and of the others the largest violators for which there is room."""
        if not self._kept:
            return
        ranks = np.concatenate([ranks for _, ranks in self._kept])
        sizes = np.concatenate([_column_bytes(kept.x) for kept, _ in self._kept])
        order = self._best(ranks)
        fits = np.zeros(len(ranks), bool)
        fits[order] = self._fits(sizes[order])
        self.total.left_out += len(order) - int(fits.sum())
        # Without its columns with weights, or without any, a descent would lead nowhere.
        if not fits[np.isinf(ranks)].all() or len(ranks) > int(fits.sum()) == 0:
            self.total.held = -1
        # With the room taken, later columns have to be better than the least of these.
        if np.isfinite(ranks[fits]).sum() >= self.room:
            self._floor = float(ranks[fits].min())
        start, thinned = 0, []
        for kept, own in self._kept:
            chosen = np.flatnonzero(fits[start : start + len(own)])
            start += len(own)
            if len(chosen) < len(own):
                kept, own = Active(kept.columns[chosen], take_rows(kept.x, chosen)), own[chosen]
            thinned.append((kept, own))
        self._kept = thinned

    def result(self) -> Violations:
        """Store the columns; return the sums."""
        self._thin()
        total: Violations = self.total
        if total.held >= 0 and self._kept:
            total.held = sum(len(ranks) for _, ranks in self._kept)
            found = [kept for kept, _ in self._kept]
            state, version, lane = self.scores.state, self.scores.version, self.item.index
            store_active(state, version, lane, found, WORKING, alone=self.scores.alone)
        total.ledger = self.ledger
        return total

    @staticmethod
    def merge(left: Violations, right: Violations) -> Violations:
        """Merge the sums of two lanes."""
        held = -1 if min(left.held, right.held) < 0 else left.held + right.held
        return add_sums(
            left,
            right,
            factor=min(left.factor, right.factor),
            largest=max(left.largest, right.largest),
            held=held,
        )


class ConjugateTask(OnAllScores):
    """Computes the mean conjugate at the gradients times a factor, which is `shared`, from all rows."""

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Shard]]:
        """See `Task.stream`: nothing is read, and there need not be shards."""
        return iter(())

    def result(self) -> float:
        """Return it."""
        factor, k = self.shared
        slopes = read_slopes(self.scores, k)
        margins = with_rows(self.scores, slopes)
        return conjugate_mean(self.scores.loss, margins, slopes, factor, self.step.scale, alone=True)

    @staticmethod
    def merge(left: float, right: float) -> float:
        """Return the one result."""
        # There is one lane.
        return left


@dataclass
class Scored:
    """What `ScoresOfColumns` returns."""

    rows: RowSums
    ledger: Ledger


class ScoresOfColumns(OnAllScores):
    """Computes the scores of all rows from the columns with weights, in their order; stores them and the slopes."""

    def start(self) -> None:
        """See `Task.start`."""
        self._known = known_scores(self.scores, self.shared)
        if self._known is None:
            self._z = np.tile(self.shared.intercept, (open_ref(self.data).meta.n_rows, 1))
        else:
            self._z = self._known

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Shard]]:
        """See `Task.stream`: nothing is read where the scores are known."""
        return super().stream(blocks if self._known is None else ())

    def add(self, index: int, shard: Shard) -> None:
        """Add the scores by a shard's columns."""
        given, w = given_weights(self.shared, shard)
        add_products(take_rows(shard.x, given), w[given], self._z)

    def result(self) -> Scored:
        """Store the scores."""
        margins = with_rows(self.scores, self._z)
        rows = store_all(self.scores, self.scores.version, margins, self.step.scale, self.shared)
        return Scored(rows, self.ledger)

    @staticmethod
    def merge(left: Scored, right: Scored) -> Scored:
        """Return the one result."""
        return left


def _column_bytes(x: Any) -> NDArray[np.int64]:
    """Return the bytes of each column."""
    if isinstance(x, CsrRows):
        return np.diff(x.indptr) * (x.indices.itemsize + x.data.itemsize) + 8
    return np.full(n_rows_of(x), bytes_of(x) // max(n_rows_of(x), 1), np.int64)
