"""Row records with other labels: copies of those that are kept (see `record_kernels` for their layout)."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import kernel
from distls.workers.ingestion.parsing.array_types import Doubles, Ints, UInts
from distls.workers.ingestion.parsing.decimal_kernels import write_double

_MAGNITUDE = np.uint32(0x7FFFFFFF)  # bits of a word that are not a sign: minus zero is no feature


@kernel
def relabel_records(
    words: UInts,
    row_at: Ints,
    rows: Ints,
    labels: Doubles,
    ends: Ints,
    n_extra: int,
    out: UInts,
    out_at: Ints,
) -> None:
    """Copy the records of `rows` (shape (n_kept,)) with labels[ends[r]:ends[r + 1]] of each row r for their own.

    `out_at` (shape (n_kept + 1,)) becomes the first word of each record in `out`, and the end.
    """
    at = 0
    for k in range(len(rows)):
        r = rows[k]
        start, n_labels = row_at[r], ends[r + 1] - ends[r]
        values_at = start + 2 + n_extra + 2 * np.int64(words[start + 1])
        out_at[k] = at
        out[at], out[at + 1] = words[start], n_labels
        for i in range(n_extra):
            out[at + 2 + i] = words[start + 2 + i]
        at += 2 + n_extra
        for i in range(ends[r], ends[r + 1]):
            write_double(out, at, labels[i])
            at += 2
        for i in range(values_at, row_at[r + 1]):
            out[at] = words[i]
            at += 1
    out_at[len(rows)] = at


@kernel
def have_features(
    words: UInts, row_at: Ints, n_extra: int, stride: int, dense: bool, found: NDArray[np.bool_]
) -> None:
    """Fill `found` (shape (n_rows,)) with whether a record has a value that is not zero."""
    for r in range(len(found)):
        at = row_at[r] + 2 + n_extra + 2 * np.int64(words[row_at[r] + 1])
        found[r] = False
        while at < row_at[r + 1] and not found[r]:
            # the first word of a pair is its index
            for i in range(0 if dense else 1, stride):
                found[r] |= (words[at + i] & _MAGNITUDE) != 0
            at += stride
