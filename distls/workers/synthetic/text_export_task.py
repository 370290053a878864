"""The task of the text export: one partition as lines of text."""

from dataclasses import dataclass

import numpy as np

from distls.storage.rows import CsrRows, Partition, n_rows_of
from distls.workers.compilation.jit import helper, kernel
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.task import Task


@dataclass(eq=False)
class ExportTask(Task):
    """Writes a partition as text; items are numbers of partitions."""

    data: DatasetRef
    labels: tuple[int, ...]  # written for each class code
    first_index: int
    separator: bytes  # between label and features

    def add(self, index: int, part: Partition) -> None:
        x = part.x
        assert isinstance(x, CsrRows)
        labels = np.array(self.labels, dtype=np.int64)[part.y]
        out = np.empty((len(x.data) + n_rows_of(x)) * BYTES_PER_VALUE, dtype=np.uint8)
        size = format_rows(*x, labels, self.first_index, np.frombuffer(self.separator, np.uint8), out)
        self.total = out[:size].tobytes()


# " 4294967295:-1234567890.1234567" and some room
BYTES_PER_VALUE = 36
_DECIMALS = 7


@helper
def _put_integer(out, at, value):  # type: ignore[no-untyped-def]
    """Write a non-negative integer at `at`; return the place after it."""
    digits = 1
    rest = value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for place in range(at + digits - 1, at - 1, -1):
        out[place] = 48 + value % 10
        value //= 10
    return at + digits


@helper
def _put_decimal(out, at, value):  # type: ignore[no-untyped-def]
    """Write a number below 2^31 in size with at most 7 decimals; return the place after it."""
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    scaled = np.int64(np.rint(value * 1e7))
    at = _put_integer(out, at, scaled // 10_000_000)
    fraction = scaled % 10_000_000
    if fraction == 0:
        return at
    out[at] = 46
    end = at + 1
    for place in range(at + _DECIMALS, at, -1):
        out[place] = 48 + fraction % 10
        end = max(end, place + 1) if fraction % 10 != 0 else end
        fraction //= 10
    return end


@kernel
def format_rows(indptr, indices, data, labels, first_index, separator, out):  # type: ignore[no-untyped-def]
    """Write rows as lines ``label index:value ...``; return the number of bytes.

    Labels are int64, not negative; `first_index` is added to column numbers: 1 for one-based text; `separator` comes
    between label and features: empty for svmlight, " |" for Vowpal Wabbit. `out` has (nnz + n_rows) * BYTES_PER_VALUE
    bytes.
    """
    at = 0
    for i in range(len(indptr) - 1):
        at = _put_integer(out, at, labels[i])
        for character in separator:
            out[at] = character
            at += 1
        for p in range(indptr[i], indptr[i + 1]):
            out[at] = 32
            at = _put_integer(out, at + 1, np.int64(indices[p]) + first_index)
            out[at] = 58
            at = _put_decimal(out, at + 1, np.float64(data[p]))
        out[at] = 10
        at += 1
    return at
