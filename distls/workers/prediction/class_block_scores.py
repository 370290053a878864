"""Scores of models of very many classes, whose weights are stored by blocks of classes, one in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.model.sparse_blocks import ClassBlock, ClassBlocks
from distls.storage.rows import CsrRows, Rows, n_rows_of
from distls.workers.compilation.jit import helper, kernel
from distls.workers.losses.targets import slice_rows

# Bytes of the scores of a batch: every batch reads all blocks, so it should have many rows.
_BATCH_BYTES = 64 * 2**20
_BATCH_ENTRIES = 2**20  # of a batch whose scores are not kept
# Features of which a table fits well into memory; of more, those of the batch are looked up.
_LARGEST_TABLE = 2**25
# Totals of a tile of rows fit into the cache of a core, with the weights of a block: 1,024 rows of 128 classes.
_TILE_BYTES = 2**19
_NO_WEIGHTS = 128  # classes of a block that stands for classes without weights
# A feature with weights for more than one in so many classes of a block is added to all of them, in vectors.
_FULL_SHARE = 16


class _Entries(NamedTuple):
    """The values of a batch by tiles of rows, and in a tile by features."""

    starts: NDArray[np.int64]  # (n_tiles + 1,)
    features: NDArray[np.int32]  # (nnz,); their numbers in the batch
    rows: NDArray[np.int32]  # (nnz,); their numbers in the tile
    values: NDArray[Any]  # (nnz,)


class _Batch(NamedTuple):
    """A batch of rows, whose features are numbered by their order among those that it has."""

    features: NDArray[np.int64]  # increasing
    # the numbers of all features, -1 of those it lacks; None: they are looked up
    places: NDArray[np.int32] | None
    height: int  # rows of a tile
    entries: _Entries

    @classmethod
    def of(cls, x: Rows, weights: ClassBlocks) -> _Batch:
        """Number the features of some rows."""
        n_features, widest = weights.shape[0], max((b.stop - b.first for b in weights.blocks), default=1)
        fitting = max(1, _TILE_BYTES // (max(widest, _NO_WEIGHTS) * weights.itemsize))
        if isinstance(x, CsrRows):
            indptr, indices, values = x.indptr, x.indices, x.data
        else:
            rows, indices = np.nonzero(x.values)
            counts, values = np.bincount(rows, minlength=len(x.values)), x.values[rows, indices]
            indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places, height = None, min(fitting, len(indptr) - 1)
        if n_features <= _LARGEST_TABLE:
            places = np.full(n_features, -1, np.int32)
            places[indices] = 0
            features = np.flatnonzero(places == 0)
            places[features] = np.arange(len(features), dtype=np.int32)
            numbers = places[indices]
        else:
            features, numbers = np.unique(indices.astype(np.int64), return_inverse=True)
            numbers = numbers.astype(np.int32)
        return cls(features, places, height, _Entries(*_by_tiles(indptr, numbers, values, len(features), height)))

    def find(self, indices: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the numbers of features, -1 of those the batch lacks."""
        if self.places is not None:
            return self.places[indices]
        found = np.searchsorted(self.features, indices).astype(np.int32)
        # A search may end beyond the last feature.
        same = np.append(self.features, -1)[found] == indices
        return np.where(same, found, np.int32(-1))


def block_score_pieces(
    x: Rows, weights: ClassBlocks, intercept: NDArray[np.float64]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, their scores of shape (n, k)) for consecutive batches of rows."""
    n_rows, k = n_rows_of(x), weights.shape[1]
    step = max(1, _BATCH_BYTES // max(k * weights.itemsize, 1))
    for first in range(0, n_rows, step):
        rows = slice(first, min(first + step, n_rows))
        batch = _Batch.of(slice_rows(x, rows), weights)
        out = np.empty((rows.stop - rows.start, k), weights.dtype)
        out[:] = intercept.astype(weights.dtype)
        # Every block is read once a batch, which is why batches are large.
        for block in weights.read():
            own = _by_feature(block.indptr, batch.find(block.indices), block.values, len(batch.features))
            _add_scores(batch.entries, own, block.first, batch.height, out)
        yield rows, out


def best_of_blocks(
    x: Rows, weights: ClassBlocks, intercept: NDArray[np.float64], top: int
) -> tuple[NDArray[np.int32], NDArray[Any]] | None:
    """Return the codes and scores of the `top` best classes of all rows, ties to the lower code.

    None where a score is infinite or NaN. No other score is kept, so that batches have many rows.
    """
    n_rows, start = n_rows_of(x), intercept.astype(weights.dtype)
    codes, best = np.zeros((n_rows, top), np.int32), np.full((n_rows, top), -np.inf, weights.dtype)
    entries = len(x.data) if isinstance(x, CsrRows) else x.values.size
    step = max(1, n_rows * _BATCH_ENTRIES // max(entries, 1))
    for rows in (slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)):
        batch = _Batch.of(slice_rows(x, rows), weights)
        kept = batch.height, start, codes[rows], best[rows]
        for block in _all_classes(weights):
            own = _by_feature(block.indptr, batch.find(block.indices), block.values, len(batch.features))
            if not _keep_best(batch.entries, own, block.first, *kept):
                return None
    return codes, best


def _all_classes(weights: ClassBlocks) -> Iterator[ClassBlock]:
    """Yield the blocks, and of classes that are in none blocks without weights."""
    stop = 0
    for block in weights.read():
        yield from _without_weights(stop, block.first, weights.dtype)
        yield block
        stop = block.stop
    yield from _without_weights(stop, weights.shape[1], weights.dtype)


def _without_weights(first: int, stop: int, dtype: np.dtype[Any]) -> Iterator[ClassBlock]:
    none = np.empty(0, np.uint32), np.empty(0, dtype)
    for start in range(first, stop, _NO_WEIGHTS):
        yield ClassBlock(start, np.zeros(min(_NO_WEIGHTS, stop - start) + 1, np.int64), *none)


@kernel
def _by_feature(indptr: Any, places: Any, values: Any, n: int) -> Any:
    """Return a block's weights feature by feature: (starts, classes, weights) of few classes, else (slots, table)."""
    width, starts = len(indptr) - 1, np.zeros(n + 2, np.int64)
    for place in places:
        if place >= 0:
            starts[place + 2] += 1
    slots, full = np.full(n, -1, np.int32), 0
    for j in range(n):
        if starts[j + 2] > width // _FULL_SHARE:
            slots[j], starts[j + 2] = full, 0
            full += 1
        starts[j + 2] += starts[j + 1]
    classes, weights = np.empty(starts[n + 1], np.int32), np.empty(starts[n + 1], values.dtype)
    table = np.zeros((full, width), values.dtype)
    for c in range(width):
        for p in range(indptr[c], indptr[c + 1]):
            j = places[p]
            if j >= 0 and slots[j] >= 0:
                table[slots[j], c] = values[p]
            elif j >= 0:
                # the end so far, which becomes the start of the next feature
                q = starts[j + 1]
                classes[q], weights[q], starts[j + 1] = c, values[p], q + 1
    return starts, classes, weights, slots, table


@kernel
def _by_tiles(indptr: Any, numbers: Any, x: Any, n: int, height: int) -> Any:
    """Return the values of rows, of `n` features, as `_Entries` of tiles of `height` rows."""
    n_rows, nnz = len(indptr) - 1, len(numbers)
    ends = np.zeros(n + 1, np.int64)
    for j in numbers:
        ends[j + 1] += 1
    for j in range(n):
        ends[j + 1] += ends[j]
    # by features, and then, in this order, by tiles
    owners, places = np.empty(nnz, np.int32), np.empty(nnz, np.int64)
    for i in range(n_rows):
        for p in range(indptr[i], indptr[i + 1]):
            q = ends[numbers[p]]
            owners[q], places[q], ends[numbers[p]] = i, p, q + 1
    n_tiles = (n_rows + height - 1) // height
    starts = np.empty(n_tiles + 1, np.int64)
    for t in range(n_tiles + 1):
        starts[t] = indptr[min(t * height, n_rows)] - indptr[0]
    ends = starts.copy()
    features, rows, values = np.empty(nnz, np.int32), np.empty(nnz, np.int32), np.empty(nnz, x.dtype)
    for q in range(nnz):
        i = owners[q]
        r = ends[i // height]
        features[r], rows[r], values[r] = numbers[places[q]], i % height, x[places[q]]
        ends[i // height] = r + 1
    return starts, features, rows, values


@helper
def _sum_tile(entries: Any, block: Any, t: int, total: Any) -> None:
    """Set total[i, c] to ``sum_j x_ij w_jc`` for the rows i of tile t and all classes c of the block."""
    starts, classes, weights, slots, table = block
    kind, width = total.dtype.type, total.shape[1]
    total[:] = kind(0.0)
    # features in order, whatever is full: a class has the sum that it would have alone
    for p in range(entries.starts[t], entries.starts[t + 1]):
        j, value, own = entries.features[p], kind(entries.values[p]), total[entries.rows[p]]
        if slots[j] >= 0:
            row = table[slots[j]]
            if np.isfinite(value):
                for c in range(width):
                    own[c] += row[c] * value
            else:
                # no NaN of the zeros that stand for no weight
                for c in range(width):
                    own[c] += row[c] * value if row[c] != 0 else kind(0.0)
        else:
            for q in range(starts[j], starts[j + 1]):
                own[classes[q]] += weights[q] * value


@kernel
def _add_scores(entries: Any, block: Any, first: int, height: int, out: Any) -> None:
    """Add the sums of a block, whose classes begin at `first`, to the scores of all rows of the batch."""
    # Totals of their own: the intercept is added once, and sums do not depend on blocks.
    total = np.empty((height, block[4].shape[1]), out.dtype)
    for i in range(len(out)):
        if i % height == 0:
            _sum_tile(entries, block, i // height, total)
        for c in range(total.shape[1]):
            out[i, first + c] += total[i % height, c]


@kernel
def _keep_best(entries: Any, block: Any, first: int, height: int, intercept: Any, codes: Any, best: Any) -> bool:
    """Keep the largest scores of each row and of the block's classes, with their codes; False if one is not finite.

    `codes` and `best` have shape (n_rows, top), the largest first; of equal ones the lower code is kept.
    """
    total, last = np.empty((height, block[4].shape[1]), best.dtype), best.shape[1] - 1
    for i in range(len(best)):
        if i % height == 0:
            _sum_tile(entries, block, i // height, total)
        own, least, n_better, n_sound = total[i % height], best[i, last], 0, 0
        for c in range(len(own)):
            own[c] += intercept[first + c]
            n_sound += np.isfinite(own[c])
            n_better += own[c] > least
        if n_sound < len(own):
            return False
        for c in range(len(own) if n_better else 0):
            score = own[c]
            if score <= best[i, last]:
                continue
            place = last
            while place > 0 and best[i, place - 1] < score:
                best[i, place], codes[i, place] = best[i, place - 1], codes[i, place - 1]
                place -= 1
            best[i, place], codes[i, place] = score, first + c
    return True
