"""The active columns of block coordinate descent, those with non-zero weights, in memory and in RUN/state."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import are_below, are_offsets
from distls.storage.errors import StateLostError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows, n_rows_of
from distls.storage.temporary.row_state import IN_MEMORY, RowState
from distls.workers.runtime.buffers import job_memory

# Folders in RUN/state: of columns with weights, and of those of a working set.
ACTIVE, WORKING = "active", "working"


class Active(NamedTuple):
    """Columns with non-zero weights: their numbers, and the columns as rows of X^T."""

    columns: NDArray[np.int64]
    x: Rows


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
