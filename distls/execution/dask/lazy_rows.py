"""The rows of a data set as Dask collections: a chunk a partition, read by the worker that needs it."""

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask import delayed

from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.stored_rows import StoredRows, dataset_of, rows_of_partition
from distls.storage.filesystem.paths import Place
from distls.workers.rounds.block_stream import DatasetRef, open_ref


def to_dask(dataset: Dataset | Place | str) -> StoredRows:
    """Return the rows of a data set as Dask arrays, of which nothing is read yet.

    Parameters
    ----------
    dataset : path or Dataset
        Its path must be the same on every worker.

    Returns
    -------
    StoredRows
        ``X``, ``y`` and ``sample_weight`` as Dask arrays with a chunk for each partition, whose chunks are those of
        `to_arrays`; sparse data have chunks that are `scipy.sparse.csr_matrix`.
    """
    data = dataset_of(dataset)
    read = partial(_read, DatasetRef.of(data))
    chunks = [delayed(read, pure=True)(index) for index in range(len(data))]
    # Types and widths as those of rows: the first partition tells
    first = rows_of_partition(data, 0)
    return StoredRows(*(_array(data, chunks, place, each) for place, each in enumerate(first)))


def _array(data: Dataset, chunks: list[Any], place: int, first: Any) -> Any:
    """Return the collection of one field of all partitions, whose first is known."""
    if first is None:
        return None
    meta = first[:0] if sp.issparse(first) else np.empty((0, *first.shape[1:]), first.dtype)
    parts = [
        da.from_delayed(chunk[place], (int(n_rows), *first.shape[1:]), meta=meta)
        for chunk, n_rows in zip(chunks, data.table.rows, strict=True)
    ]
    return da.concatenate(parts)


def _read(ref: DatasetRef, index: int) -> StoredRows:
    return rows_of_partition(open_ref(ref), index)
