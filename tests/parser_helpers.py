"""Text to the parsers of text, and the records that they return."""

import contextlib
import itertools

import numpy as np
import pytest

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.record_kernels import gather_pairs, read_labels
from distls.workers.ingestion.parsing.svmlight_kernels import PADDING
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.records.record_batch import Progress, ReadRun, RowError


def block_of(text, starts_file=False):
    return TextBlock(np.frombuffer(text + b"\n" * PADDING, dtype=np.uint8).copy(), len(text), starts_file)


class _UpToRefusal(Progress):
    def skip(self, line, reason):
        raise RowError(line, reason)


def run_of(options, n_extra=0):
    """Return a run that ends at the first refused row, unless such rows are to be skipped."""
    progress = Progress() if options.skip_errors else _UpToRefusal()
    return ReadRun(options, progress, n_extra, 0, 2**20, BufferPool())


@contextlib.contextmanager
def located(name):
    """Name the line of a row that is refused."""
    try:
        yield
    except RowError as error:
        raise BadInputError(f"{name}:{error.line + 1}: {error}") from None


def refusal(parse, *given, **options):
    """Return the message by which text is refused."""
    with pytest.raises(BadInputError) as caught:
        parse(*given, **options)
    return str(caught.value)


def sparse_records(batch, float64):
    """Return the CSR arrays of a batch, and its labels with their offsets."""
    row_at = batch.row_at[:-1]
    nnz, n_labels = int(batch.words[row_at].sum()), int(batch.words[row_at + 1].sum())
    indptr, indices = np.zeros(len(row_at) + 1, np.int64), np.zeros(nnz, np.uint32)
    data = np.zeros(nnz, np.float64 if float64 else np.float32)
    gather_pairs(batch.words, row_at, 0, 0, indptr, indices, data)
    return (indptr, indices, data), *labels_of(batch, n_labels)


def labels_of(batch, n_labels):
    """Return the labels of a batch, and where those of each row begin."""
    labels, offsets = np.zeros(n_labels), np.zeros(len(batch.row_at), np.int64)
    read_labels(batch.words, batch.row_at[:-1], 0, labels, offsets)
    return labels, offsets


def listed(batch, float64):
    """Return the pairs of index and value of each row, and its labels."""
    (indptr, indices, data), labels, offsets = sparse_records(batch, float64)
    pairs = list(zip(indices.tolist(), data.tolist(), strict=True))
    rows = [pairs[a:b] for a, b in itertools.pairwise(indptr)]
    return rows, [labels[a:b].tolist() for a, b in itertools.pairwise(offsets)]
