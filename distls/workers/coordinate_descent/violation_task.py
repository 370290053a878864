"""A read of all columns: which of them violate the optimality conditions, and the dual point of the certificate.

Each lane has the slopes g of all rows and computes ``X_j' g`` of its columns. The same numbers say which columns are to
be worked on next, and by how much g has to be scaled to be a point of the dual, whose value bounds the optimum. The
columns with weights and the largest violators are copied while their shard is in memory, so that the descent that
follows needs no other read (docs/decisions/0037).
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, n_rows_of, take_rows
from distls.workers.coordinate_descent.active_columns import (
    WORKING,
    Active,
    Held,
    bytes_of,
    known_products,
    store_active,
)
from distls.workers.coordinate_descent.all_rows import RowSums, known_scores, read_slopes, store_all
from distls.workers.coordinate_descent.descent_kernels import Step
from distls.workers.coordinate_descent.dual_bounds import DualFactor, conjugate_mean
from distls.workers.coordinate_descent.row_scores_task import RowScores, with_rows
from distls.workers.coordinate_descent.sweep_task import Shard, given_weights, transposed
from distls.workers.coordinate_descent.working_columns import products_of, ranks_of, sizes_of
from distls.workers.coordinate_descent.working_set_kernels import add_products
from distls.workers.penalties.penalty_registry import penalty_named, prox_rows
from distls.workers.rounds.block_stream import open_columns_of, open_ref, stream_columns
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.task import Task

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

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
        """See `Task.stream`: shards in their order, so that sums over columns have one order."""
        for index, shard in stream_columns(self.data, sorted(blocks), self.ledger):
            yield index, transposed(shard, index)

    def count(self, index: int, block: Any) -> None:
        """Enter a shard."""
        self.ledger.blocks.append(index)


_READING = threading.Lock()
# Of the next strength, down to which columns of a path are held.
_HELD = 0.7


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
            self._products = known_products(self.data, read_slopes(self.scores, k))
            alphas, alpha = self._products.alphas, self.step.alpha
            if alpha != alphas[0]:
                self._products.alphas = alphas = alpha, alphas[0]
            # others may hold other columns of the same slopes meanwhile
            self._held = dict(self._products.held)
        self._slopes, self._known = self._products.newest.slopes, self._products.newest
        # A path is likely to go on as it went: columns are read for its next strength too.
        self._goes_on = falls = self.scores.alone and alphas[0] < alphas[1]
        # Where shards are decoded for every read, more is computed and held, for reads to come.
        self._spares_reads = falls and bool(self.data.cache_bytes < open_columns_of(self.data).decoded_bytes.sum())
        self._near = self.step
        if falls:
            self._near = self.step._replace(alpha=(1.0 - 1e-6) * alpha * alpha / alphas[1])
        held = [self._held[index] for index in self.item.blocks if index in self._held]
        self._spare = self.most_bytes * falls - sum(bytes_of(each.own.x) for each in held)
        self.total = Violations()
        self._kept: list[tuple[Active, Array]] = []
        self._floor = 0.0  # what a column has to be ranked above to be kept

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
        """See `Task.stream`: shards are None of which all that matters is in memory."""
        read = {index for index in blocks if not self._is_held(index)}
        shards = super().stream(tuple(read))
        for index in sorted(blocks):
            yield next(shards) if index in read else (index, None)

    def _is_held(self, index: int) -> bool:
        """Return whether no column of a shard has to be read: all that matter, or may, are in memory."""
        held = self._held.get(index) if self.scores.alone else None
        if held is None or held.penalty != (self.penalty, self.step.rho):
            return False
        first, columns = self._span(index, None)
        given = given_weights(self.shared, first, columns)[0]
        if not np.isin(first + given, held.own.columns).all():
            return False
        # Where it is larger, fewer matter.
        if held.slopes is self._slopes and self.step.alpha >= held.alpha:
            return True
        if not self._spares_reads:
            return False
        small = self._small(self._products.bounds(index, columns))
        small[held.own.columns - first] = True
        if small.all():
            self._hold(index, held.own)
        return bool(small.all())

    def _span(self, index: int, shard: Shard | None) -> tuple[int, int]:
        """Return the first column of a shard, and the number of its columns."""
        if shard is not None:
            return shard.first, n_rows_of(shard.x)
        first, end = open_columns_of(self.data).first[index : index + 2].tolist()
        return first, end - first

    def _rank(self, gradient: Array, given: NDArray[np.int64]) -> Array:
        """Return the ranks of columns: those that violate the conditions, or nearly, come after those with weights."""
        rank = ranks_of(self.penalty, gradient, self.step)
        rank[given] = np.inf
        return rank

    def add(self, index: int, shard: Shard | None) -> None:
        """Judge the columns of a shard, and keep some."""
        step, total = self.step, self.total
        given, w = given_weights(self.shared, *self._span(index, shard))
        gradient = self._gradient(index, shard, given)
        # The dual point is feasible if it is for every column: the least factor counts.
        factor, conjugated = penalty_named(self.penalty).conjugate(-gradient, step.alpha, step.rho)
        total.factor, total.conjugated = min(total.factor, factor), total.conjugated + conjugated
        total.product += float(np.vdot(gradient[given], w[given]))
        rank = self._rank(gradient, given)
        some = np.flatnonzero(rank)  # the others are where they are to be
        sizes = moves_of(self.penalty, w[some], gradient[some], step)
        total.violation += float(sizes.sum())
        total.largest = max(total.largest, float(sizes.max(initial=0.0)))
        self._keep(index, shard, rank, gradient)

    def _wanted(self, index: int, shard: Shard | None, given: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which products are not known: of columns in memory alone, or which no bound tells to be small."""
        first, columns = self._span(index, shard)
        wanted = np.asarray(self._known.of(index, columns).unknown > 0.0)
        if shard is None:
            wanted &= np.isin(np.arange(first, first + columns), self._held[index].own.columns)
        elif not self._spares_reads and wanted.any():
            small = self._small(self._products.bounds(index, columns))
            small[given] = False
            wanted &= ~small
        return wanted

    def _gradient(self, index: int, shard: Shard | None, given: NDArray[np.int64]) -> Array:
        """Return the products of a shard's columns with the slopes; zero of some that are where they are to be."""
        first, columns = self._span(index, shard)
        (found, unknown), wanted = self._known.of(index, columns), self._wanted(index, shard, given)
        if wanted.any():
            places = np.flatnonzero(wanted)
            if shard is not None:
                x, some = shard.x, None if wanted.all() else places
            else:
                own = self._held[index].own
                x, some = own.x, np.searchsorted(own.columns, first + places)
            with self.ledger.in_kernels():
                found[places] = products_of(x, self._slopes, some, alone=self.scores.alone)
            unknown[places] = 0.0
        if shard is not None:
            self._known.read.add(index)
            if self._slopes.shape[1] == 1:
                self._products.measure(index, shard.x)
        return np.where(unknown[:, None] > 0.0, 0.0, found)

    def _small(self, bounds: Array) -> NDArray[np.bool_]:
        """Return which columns cannot violate the conditions, nor are about to, so that the dual has nothing of them.

        Between two gradients at which a weight stays zero, it does: a step is monotone in the gradient.
        """
        both = np.concatenate([bounds, -bounds])[:, None]
        return np.asarray((ranks_of(self.penalty, both, self._near).reshape(2, -1) == 0.0).all(axis=0))

    def _keep(self, index: int, shard: Shard | None, rank: Array, gradient: Array) -> None:
        """Keep the columns of a shard that are ranked high enough."""
        places = np.flatnonzero(rank > self._floor)
        places = np.sort(places[self._best(rank[places])])
        columns = self._span(index, shard)[0] + places
        held = None if shard is None else self._held_of(index, shard, rank, gradient)
        if shard is not None and held is None:
            kept = Active(columns, take_rows(shard.x, places))
        else:
            own = self._held[index].own
            kept = Active(columns, own.x, np.searchsorted(own.columns, columns))
        self._kept.append((kept, rank[places]))
        others = rank[places][np.isfinite(rank[places])]
        if 0 < self.room == len(others):
            self._floor = float(others.min(initial=np.inf))
        # Thinned now and then only, as each time copies what stays.
        if self._n_kept() > 2 * self.room:
            self._thin()

    def _held_of(self, index: int, shard: Shard, rank: Array, gradient: Array) -> Held | None:
        """Return the columns of a shard that matter now or next, which are held from now on; None without memory."""
        before = self._held.pop(index, None)
        self._products.held.pop(index, None)
        self._spare += 0 if before is None else bytes_of(before.own.x)
        if not self._goes_on:
            return None
        sizes, share = _column_bytes(shard.x), min(self.most_bytes // len(self.item.blocks), self._spare)
        # More of them than matter next, if there is room, serve for strengths that follow.
        for part, most in (*[(_HELD, share)] * self._spares_reads, (1.0, self._spare)):
            near = self._near._replace(alpha=part * self._near.alpha)
            places = np.flatnonzero((rank > 0.0) | (ranks_of(self.penalty, gradient, near) > 0.0))
            n_bytes = int(sizes[places].sum())
            if n_bytes <= most:
                self._spare -= n_bytes
                return self._hold(index, Active(shard.first + places, take_rows(shard.x, places)))
        return None

    def _hold(self, index: int, own: Active) -> Held:
        """Keep the columns of a shard that matter at these slopes, down to the next strength."""
        held = Held(own, (self.penalty, self.step.rho), self._near.alpha, self._slopes)
        self._held[index] = self._products.held[index] = held
        return held

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
        sizes = np.concatenate([_column_bytes(kept.x, kept.places) for kept, _ in self._kept])
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
                own, places = own[chosen], kept.places
                x = kept.x if places is not None else take_rows(kept.x, chosen)
                kept = Active(kept.columns[chosen], x, None if places is None else places[chosen])
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
            left, right, factor=min(left.factor, right.factor), largest=max(left.largest, right.largest), held=held
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

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
        """See `Task.stream`: nothing is read where the scores are known."""
        return super().stream(blocks if self._known is None else ())

    def add(self, index: int, shard: Shard) -> None:
        """Add the scores by a shard's columns."""
        given, w = given_weights(self.shared, shard.first, n_rows_of(shard.x))
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


def _column_bytes(x: Any, places: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the bytes of each column, or of those at some places."""
    if isinstance(x, CsrRows):
        found = np.diff(x.indptr) * (x.indices.itemsize + x.data.itemsize) + 8
    else:
        found = np.full(n_rows_of(x), bytes_of(x) // max(n_rows_of(x), 1), np.int64)
    return found if places is None else found[places]
