"""A data set of one row and one column shard, of the types of another: what kernels are compiled on before a fit."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import PartitionTable, ShardTable
from distls.storage.rows import ColumnShard, CscColumns, CsrRows, DenseColumns, DenseRows, Partition, index_dtype

_ONE = np.ones(1, np.int64)


def one_row_fingerprint(fingerprint: str, n_features: int) -> str:
    """Return the fingerprint of `one_row_of` a data set."""
    return f"{fingerprint}, one row of {n_features}"


def one_row_of(dataset: Dataset, n_features: int) -> Dataset:
    """Return a data set with the types and outputs of another, of one row of so many features, in memory."""
    nnz = 1 if dataset.meta.layout == "csr" else n_features
    meta = msgspec.structs.replace(dataset.meta, n_rows=1, n_features=n_features, nnz=nnz)
    fingerprint = one_row_fingerprint(dataset.fingerprint, n_features)
    table = PartitionTable(_ONE, _ONE * nnz, {}, {})
    return _OneRow(dataset.path, meta, table, fingerprint, like=dataset)


@dataclass(frozen=True, repr=False)
class _OneRow(Dataset):
    like: Dataset | None = None

    def read(self, index: int, pool: BufferPool | None = None) -> Partition:
        """Return the row."""
        weight = np.ones(1, np.float32) if self.meta.weighted else None
        values = np.ones(self.meta.nnz, self.meta.dtype)
        if self.meta.layout == "dense":
            return Partition(DenseRows(values[None]), self._target(), weight)
        assert self.like is not None
        indices = np.zeros(1, index_dtype(self.like.meta.n_features))
        return Partition(CsrRows(np.arange(2), indices, values), self._target(), weight)

    def read_targets(self, index: int) -> Partition:
        """Return the row, with its feature."""
        return self.read(index)

    def _target(self) -> Any:
        """Return the first class, its label, or zeros."""
        if self.meta.target == "multilabel":
            return CsrRows(np.arange(2), np.zeros(1, np.uint32), np.ones(1, np.float32))
        if self.meta.target == "continuous":
            return np.zeros((1, self.meta.n_targets))
        return np.zeros(1, np.int32) if self.meta.target == "class" else None

    @cached_property
    def decoded_bytes(self) -> NDArray[np.int64]:
        """See `Dataset.decoded_bytes`."""
        return _ONE

    @cached_property
    def columns(self) -> ColumnShards | None:
        """One column, where the other data set has columns."""
        like = None if self.like is None else self.like.columns
        if like is None:
            return None
        return _OneColumn(like.path, like.meta, like.shard_size, like.codec, _ONE_SHARD, like.digest)


_ONE_SHARD = ShardTable(_ONE, _ONE, {}, {})


class _OneColumn(ColumnShards):
    """The column shard; `meta` is that of the other data set."""

    def read(self, index: int, pool: BufferPool | None = None) -> ColumnShard:
        """Return the column."""
        values, meta = np.ones(1, self.meta.dtype), self.meta
        if meta.layout == "dense":
            return ColumnShard(0, DenseColumns(values[None]))
        return ColumnShard(0, CscColumns(np.arange(2), np.zeros(1, index_dtype(meta.n_rows)), values))
