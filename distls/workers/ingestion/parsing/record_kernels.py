"""Row records: the 32-bit words in which rows travel from a source to a partition.

One record per row, so that the shuffle moves rows by copying memory and a partition is assembled from ranges of
files. Words of a record::

    n_values  n_labels  extra[n_extra]  labels[2 * n_labels]  values

A label is a float64 (two words, low first). Values are (index, float32), (index, float64) for sparse rows and
float32 or float64 alone for dense ones: 2, 3, 1 or 2 words each (the `stride`). The extra words are the sample
weight (float32) and the ranks that a split needs, where there are any.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Array, Bools, Doubles, Int32s, Ints, Singles, UInts
from distls.workers.ingestion.parsing.decimal_kernels import read_double, write_double
from distls.workers.linear_algebra.prefetch import prefetch_element


class Records(NamedTuple):
    """Buffers for the records of rows, one after another."""

    words: UInts  # shape (n_words,)
    floats: Singles  # shape (n_words,), the same memory
    # shape (at least n_words // 2,) each: the record's first word, 0-based line, weight
    row_at: Ints
    row_line: Int32s
    row_weight: Singles


_ROWS_AHEAD = 16  # rows between prefetch and use: shuffled ones are anywhere
_LINE = 16  # words of a cache line


@kernel
def sort_records(words: UInts, row_at: Ints, bucket: UInts, extra: UInts, table: UInts, out: UInts) -> None:
    """Copy records into buckets, stable, filling in their extra words.

    Parameters
    ----------
    words : shape (n_words,)
    row_at : shape (n_rows + 1,), first word of each record, and the end
    bucket : shape (n_rows,)
    extra : shape (n_extra, n_rows)
    table : shape (n_buckets + 1, 3), zeros; becomes the rows, words and values before each bucket
    out : shape (n_words,)
    """
    n_rows, n_buckets = len(bucket), len(table) - 1
    for r in range(n_rows):
        b = bucket[r] + 1
        table[b, 0] += 1
        table[b, 1] += row_at[r + 1] - row_at[r]
        table[b, 2] += words[row_at[r]]
    for b in range(n_buckets):
        for k in range(3):
            table[b + 1, k] += table[b, k]
    place = table[:, 1].copy()
    for r in range(n_rows):
        for k in range(len(extra)):
            words[row_at[r] + 2 + k] = extra[k, r]
        start, size = row_at[r], row_at[r + 1] - row_at[r]
        to = np.int64(place[bucket[r]])
        for k in range(size):
            out[to + k] = words[start + k]
        place[bucket[r]] += size


@kernel
def copy_records(words: UInts, row_at: Ints, own_at: Ints, own: UInts) -> None:
    """Copy the records at `row_at` (shape (n_rows,)) to own[own_at[r]:own_at[r + 1]]."""
    for r in range(len(row_at)):
        for k in range(own_at[r + 1] - own_at[r]):
            own[own_at[r] + k] = words[row_at[r] + k]


@kernel
def locate_records(words: UInts, n_extra: int, stride: int, row_at: Ints) -> int:
    """Fill `row_at` (shape (n_rows + 1,)) with each record's first word; return the number of labels."""
    at = n_labels = 0
    for r in range(len(row_at) - 1):
        row_at[r] = at
        n_labels += np.int64(words[at + 1])
        at += 2 + n_extra + 2 * np.int64(words[at + 1]) + stride * np.int64(words[at])
    row_at[len(row_at) - 1] = at
    return n_labels


@helper
def _fetch_ahead(words: UInts, row_at: Ints, r: int) -> None:
    """Prefetch the record of a row behind row `r`: its first lines, behind which the processor itself goes on."""
    at = row_at[min(r + _ROWS_AHEAD, len(row_at) - 1)]
    prefetch_element(words, at)
    prefetch_element(words, at + _LINE)


@kernel
def count_entries(words: UInts, row_at: Ints) -> Any:
    """Return the numbers of values and of labels of the records at `row_at` (shape (n_rows,))."""
    n_values = n_labels = 0
    for r in range(len(row_at)):
        _fetch_ahead(words, row_at, r)
        n_values += np.int64(words[row_at[r]])
        n_labels += np.int64(words[row_at[r] + 1])
    return n_values, n_labels


@kernel
def read_labels(words: UInts, row_at: Ints, n_extra: int, labels: Doubles, offsets: Ints) -> None:
    """Read the labels of the records at `row_at` (shape (n_rows,)); row r owns labels[offsets[r]:offsets[r + 1]]."""
    n = 0
    for r in range(len(row_at)):
        _fetch_ahead(words, row_at, r)
        offsets[r] = n
        at = row_at[r] + 2 + n_extra
        for k in range(np.int64(words[row_at[r] + 1])):
            labels[n] = read_double(words, at + 2 * k)
            n += 1
    offsets[len(row_at)] = n


@helper
def is_repeated(words: UInts, at: int, n_before: int) -> bool:
    """Return whether the label at word `at` is one of the `n_before` before it."""
    for before in range(at - 2 * n_before, at, 2):
        if words[before] == words[at] and words[before + 1] == words[at + 1]:
            return True
    return False


@helper
def store_pair(words: Any, floats: Any, at: int, index: int, value: float, wide: int) -> int:
    """Write one pair at word `at` and return the next word; zeros are not kept."""
    words[at] = np.uint32(index)
    if wide:
        write_double(words, at + 1, value)
        return at + 3 if value != 0.0 else at
    # rounded before the test: a value that underflows float32 would be a stored zero
    rounded = np.float32(value)
    floats[at + 1] = rounded
    return at + 2 if rounded != np.float32(0.0) else at


@helper
def _values_at(words: UInts, at: int, n_extra: int) -> int:
    return at + 2 + n_extra + 2 * np.int64(words[at + 1])


@kernel
def gather_pairs(
    words: UInts, row_at: Ints, n_extra: int, base: int, indptr: Ints, indices: Array, data: Array
) -> None:
    """Copy the sparse records at `row_at` (shape (n_rows,)) into CSR arrays, `base` subtracted from the indices."""
    n, floats = 0, words.view(np.float32)
    wide = data.itemsize == 8  # the records hold values of its type
    for r in range(len(row_at)):
        _fetch_ahead(words, row_at, r)
        indptr[r] = n
        at = _values_at(words, row_at[r], n_extra)
        n_values = np.int64(words[row_at[r]])
        if wide:
            for k in range(n_values):
                indices[n + k] = np.int64(words[at + 3 * k]) - base
                data[n + k] = read_double(words, at + 3 * k + 1)
        else:
            for k in range(n_values):
                indices[n + k] = np.int64(words[at + 2 * k]) - base
                data[n + k] = floats[at + 2 * k + 1]
        n += n_values
    indptr[len(row_at)] = n


@kernel
def gather_dense(words: UInts, row_at: Ints, n_extra: int, values: Array) -> None:
    """Copy the dense records at `row_at` (shape (n_rows,)) into `values` (shape (n_rows, n_features))."""
    wide, floats = values.itemsize == 8, words.view(np.float32)
    for r in range(len(row_at)):
        _fetch_ahead(words, row_at, r)
        at = _values_at(words, row_at[r], n_extra)
        for k in range(values.shape[1]):
            values[r, k] = read_double(words, at + 2 * k) if wide else floats[at + k]


@kernel
def count_columns(words: UInts, row_at: Ints, n_extra: int, stride: int, base: int, counts: Ints) -> None:
    """Add to `counts` (shape (n_features,)) the non-zeros of each column of the sparse records at `row_at`."""
    for r in range(len(row_at)):
        at = _values_at(words, row_at[r], n_extra)
        for k in range(np.int64(words[row_at[r]])):
            counts[np.int64(words[at + stride * k]) - base] += 1


@kernel
def value_facts(words: UInts, row_at: Ints, n_extra: int, stride: int, dense: bool) -> Any:
    """Return (smallest value, its row, largest magnitude, whether all are whole and none negative) of records.

    The smallest value and its row are (0.0, -1) if none is negative.
    """
    smallest, row, largest, counts = 0.0, -1, 0.0, True
    index_words, floats = 0 if dense else 1, words.view(np.float32)
    for r in range(len(row_at)):
        at = _values_at(words, row_at[r], n_extra) + index_words
        for k in range(np.int64(words[row_at[r]])):
            place = at + stride * k
            value = np.float64(floats[place]) if stride - index_words == 1 else read_double(words, place)
            if value < smallest:
                smallest, row = value, r
            largest = max(largest, abs(value))
            counts = counts and value >= 0.0 and value == np.floor(value)
    return smallest, row, largest, counts


@kernel
def pack_pairs(
    indptr: Ints, indices: Array, data: Array, offsets: Ints, labels: Doubles, n_extra: int, words: UInts, row_at: Ints
) -> None:
    """Write CSR rows and their labels (row r has labels[offsets[r]:offsets[r + 1]]) as records."""
    at, floats = 0, words.view(np.float32)
    wide = data.itemsize == 8
    for r in range(len(indptr) - 1):
        row_at[r] = at
        words[at] = indptr[r + 1] - indptr[r]
        words[at + 1] = offsets[r + 1] - offsets[r]
        at += 2 + n_extra
        for k in range(offsets[r], offsets[r + 1]):
            write_double(words, at, labels[k])
            at += 2
        for k in range(indptr[r], indptr[r + 1]):
            words[at] = np.uint32(indices[k])
            if wide:
                write_double(words, at + 1, data[k])
            else:
                floats[at + 1] = data[k]
            at += 3 if wide else 2
    row_at[len(indptr) - 1] = at


_MAGNITUDE = np.uint32(0x7FFFFFFF)  # bits of a word that are not a sign: minus zero is no feature


@kernel
def relabel_records(
    words: UInts, row_at: Ints, rows: Ints, labels: Doubles, ends: Ints, n_extra: int, out: UInts, out_at: Ints
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
def have_features(words: UInts, row_at: Ints, n_extra: int, stride: int, dense: bool, found: Bools) -> None:
    """Fill `found` (shape (n_rows,)) with whether a record has a value that is not zero."""
    for r in range(len(found)):
        at = row_at[r] + 2 + n_extra + 2 * np.int64(words[row_at[r] + 1])
        found[r] = False
        while at < row_at[r + 1] and not found[r]:
            # the first word of a pair is its index
            for i in range(0 if dense else 1, stride):
                found[r] |= (words[at + i] & _MAGNITUDE) != 0
            at += stride
