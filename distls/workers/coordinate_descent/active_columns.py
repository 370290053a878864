"""The active columns of block coordinate descent, those with non-zero weights, in memory and in RUN/state.

In memory too: what is known of products of all columns with the slopes of the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import are_below, are_offsets
from distls.storage.errors import StateLostError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows, n_rows_of, take_rows
from distls.storage.temporary.row_state import IN_MEMORY, RowState
from distls.workers.coordinate_descent.working_set_kernels import lengths_of
from distls.workers.losses.targets import slice_rows
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.runtime.buffers import job_memory

# Folders in RUN/state: of columns with weights, and of those of a working set.
ACTIVE, WORKING = "active", "working"

Array = NDArray[np.float64]


class Active(NamedTuple):
    """Columns with non-zero weights: their numbers, and the columns as rows of X^T."""

    columns: NDArray[np.int64]
    x: Rows
    places: NDArray[np.int64] | None = None  # of the columns in x, if it has others too

    def part(self, first: int, end: int) -> "Active":
        """Return some of the columns, with no others beside them."""
        if self.places is None:
            return Active(self.columns[first:end], slice_rows(self.x, slice(first, end)))
        return Active(self.columns[first:end], take_rows(self.x, self.places[first:end]))


def bytes_of(x: Rows) -> int:
    """Return the bytes of columns."""
    return sum(array.nbytes for array in x)


def store_active(
    state: str, round_: int, lane: int, found: Sequence[Active], kind: str = ACTIVE, *, alone: bool = False
) -> None:
    """Store a lane's active columns, each array under a number of its own, for one lane to sweep them all.

    `alone` if this process will read them: they stay in its memory.
    """
    name = f"{kind} {lane}"
    job_memory.pop(name, None)  # before the copies are made
    if alone:
        # as they are: who reads them puts them together with those of other lanes
        job_memory[name] = state, round_, list(found)
        return
    found = [each if each.places is None else each.part(0, len(each.columns)) for each in found]
    columns = np.concatenate([each.columns for each in found])
    x = found[0].x if len(found) == 1 else concatenate_rows([each.x for each in found])
    # The process that reads them may be this one.
    if state != IN_MEMORY:
        job_memory[name] = state, round_, [Active(columns, x)]
    for place, array in enumerate((columns, *x)):
        RowState(state, kind).write(4 * lane + place, round_, array)


def read_active(
    state: str, round_: int, lane: int, meta: DatasetMeta, kind: str = ACTIVE, *, alone: bool = False
) -> list[Active]:
    """Return a lane's active columns, in parts; raise StateLostError if they are missing, or not within the data."""
    folder, newest = RowState(state, kind), job_memory.pop(f"{kind} {lane}", None)
    if alone:
        if newest is None or newest[:2] != (state, round_):
            raise StateLostError(f"{folder.folder}: active columns of lane {lane} are not in memory")
        return list(newest[2])
    columns = folder.read(4 * lane, round_)
    # The file says which columns are meant: another process may have stored later ones under the same number.
    if newest is not None and newest[:2] == (state, round_) and np.array_equal(newest[2][0].columns, columns):
        return list(newest[2])
    array = folder.read(4 * lane + 1, round_)
    x: Rows = DenseRows(array)
    if array.ndim == 1:
        x = CsrRows(array, *(folder.read(4 * lane + place, round_) for place in (2, 3)))
    if n_rows_of(x) != len(columns) or not _is_sound(columns, x, meta):
        raise StateLostError(f"{folder.folder}: active columns of lane {lane} do not fit each other")
    return [Active(columns, x)]


def _is_sound(columns: NDArray[Any], x: Rows, meta: DatasetMeta) -> bool:
    """Return whether columns and rows are within the data."""
    # kernels index by them without a check of bounds
    if columns.dtype != np.int64 or not are_below(columns, meta.n_features):
        return False
    if isinstance(x, DenseRows):
        return x.values.ndim == 2 and x.values.shape[1] == meta.n_rows and x.values.dtype.kind == "f"
    typed = x.indptr.dtype == np.int64 and x.indices.dtype in (np.uint16, np.uint32)
    fits = typed and x.data.dtype.kind == "f" and x.data.shape == x.indices.shape
    return fits and are_offsets(x.indptr, len(x.data), meta.n_rows) and are_below(x.indices, meta.n_rows)


# Of dense columns of one output: slopes before the newest whose products are kept, and of how many of them, for which
# it was read, those of a shard count.
_RECENT, _COUNTED = 4, 3
_NEVER = 1e300  # a bound of what is not known


class _OfShard(NamedTuple):
    """Products of a shard's columns with slopes, and whether they are unknown."""

    found: Array  # (columns, k)
    unknown: Array  # (columns,): 1 or 0


@dataclass(frozen=True, eq=False)
class SlopeProducts:
    """Products of columns with slopes of all rows (n_rows, k), to which tasks of these slopes add others."""

    slopes: Array
    shards: dict[int, _OfShard] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)  # shards of which others than columns in memory are known

    def of(self, shard: int, columns: int) -> _OfShard:
        """Return the products of a shard, which are to be completed."""
        found = self.shards.get(shard)
        if found is None:
            # in one step: tasks of several fits may have the same slopes
            found = self.shards.setdefault(shard, _OfShard(np.zeros((columns, self.slopes.shape[1])), np.ones(columns)))
        return found


class Held(NamedTuple):
    """All columns of a shard that have weights, violate the conditions or nearly do, at least at one strength."""

    own: Active
    penalty: tuple[str, float]  # its name, and `l1_ratio`
    alpha: float
    slopes: Array


@dataclass
class KnownProducts:
    """Products of columns with the newest slopes of all rows, and with some for which a shard was read before.

    The slopes are about a combination of earlier ones, and so are the products, but for the length of the column times
    that of what is left: those that cannot reach alpha need not be computed (docs/decisions/0037). What a task has of
    it stays as it is while other fits of the process go on to other slopes.
    """

    data: DatasetRef
    newest: SlopeProducts
    # slopes before, newest first; of each shard, those of them for which it was read
    recent: tuple[SlopeProducts, ...] = ()
    earlier: dict[int, tuple[SlopeProducts, ...]] = field(default_factory=dict)
    lengths: dict[int, Array] = field(default_factory=dict)  # of columns, (columns,), rounded upwards
    # how the newest slopes follow from such earlier ones: factors (combinations, earlier), the lengths of what is left
    combined: dict[tuple[SlopeProducts, ...], tuple[Array, Array]] = field(default_factory=dict)
    # of each shard, all columns that matter at some strength; the newest strength, and the one before it
    held: dict[int, Held] = field(default_factory=dict)
    alphas: tuple[float, float] = (0.0, 0.0)

    def measure(self, index: int, x: Rows) -> None:
        """Keep the lengths of a shard's columns, rows of X^T, if they are dense."""
        if index not in self.lengths and isinstance(x, DenseRows):
            lengths = np.empty(len(x.values))
            lengths_of(x.values, lengths)
            self.lengths[index] = lengths

    def bounds(self, index: int, columns: int) -> Array:
        """Return what the sizes of a shard's products with the newest slopes are at most."""
        earlier = self.earlier.get(index, ())
        if not earlier or index not in self.lengths:
            return np.full(columns, _NEVER)
        factors, rests = self._combined(earlier)
        known = [each.shards[index] for each in earlier]
        unknown, found = np.stack([each.unknown for each in known]), np.stack([each.found[:, 0] for each in known])
        sizes = np.abs(factors @ found) + np.outer(rests, self.lengths[index])
        sizes += _NEVER * ((factors != 0.0) @ unknown)
        return np.asarray(sizes.min(axis=0))

    def _combined(self, earlier: tuple[SlopeProducts, ...]) -> tuple[Array, Array]:
        """Return the combinations of some of the earlier slopes that are nearest to the newest."""
        if earlier not in self.combined:
            spans = [span for size in (1, 2) for span in combinations(range(len(earlier)), size)]
            factors, rests = np.zeros((len(spans), len(earlier))), np.zeros(len(spans))
            target = self.newest.slopes.ravel()
            for number, span in enumerate(spans):
                some = np.stack([earlier[place].slopes.ravel() for place in span])
                # Any combination gives a bound.
                by = np.linalg.lstsq(some @ some.T, some @ target, rcond=None)[0]
                sizes = float(np.abs(by) @ np.linalg.norm(some, axis=1) + np.linalg.norm(target))
                # Products are sums of as many terms as there are rows, each rounded.
                factors[number, list(span)] = by
                rests[number] = np.linalg.norm(target - by @ some) + (1e-9 + 1e-15 * len(target)) * sizes
            self.combined[earlier] = factors, rests
        return self.combined[earlier]

    def after(self, slopes: Array, *, screened: bool) -> "KnownProducts":
        """Return those with other slopes as the newest, and earlier ones if columns are `screened` by them."""
        # At once: tasks of other fits add to it meanwhile.
        read = tuple(self.newest.read)
        recent = ((self.newest, *self.recent)[:_RECENT] if read else self.recent) * screened
        before = {**self.earlier, **{index: (self.newest, *self.earlier.get(index, ())) for index in read}}
        earlier = {index: tuple(each for each in of if each in recent)[:_COUNTED] for index, of in before.items()}
        newest = SlopeProducts(slopes)
        return replace(self, newest=newest, recent=recent, earlier=earlier, combined={}, held=dict(self.held))


def known_bytes(meta: DatasetMeta, k: int) -> int:
    """Return the bytes of `KnownProducts` for each row, but for columns that are held."""
    screened = k == 1 and meta.layout == "dense"
    slopes = 1 + _RECENT * screened
    return 8 * (k * slopes + ((k + 1) * slopes + screened) * -(-meta.n_features // meta.n_rows))


def known_products(data: DatasetRef, slopes: Array) -> KnownProducts:
    """Return the products with the slopes that are known already, to which others are added.

    The next strength of a path begins with the slopes at which the last one has ended: its first read computes little.
    Equal slopes have equal products, to the last bit, so that no result depends on what is known.
    """
    own, known = data.whole.uncached(), job_memory.get("products")
    # What is tried on one row before a fit replaces nothing.
    if data.one_row or known is None or known.data != own or known.newest.slopes.shape != slopes.shape:
        known = KnownProducts(own, SlopeProducts(slopes))
    elif not np.array_equal(known.newest.slopes, slopes):
        screened = slopes.shape[1] == 1 and open_ref(data).meta.layout == "dense" and bool(np.isfinite(slopes).all())
        known = known.after(slopes, screened=screened)
    if not data.one_row:
        job_memory["products"] = known
    return known
