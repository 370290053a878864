"""Extrapolates a data set's metadata to another size, for planning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.execution.memory_budget import MIB
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import DatasetMeta, PartitionTable, ShardTable

# Decoded bytes of a partition, unless those of the data at hand are larger.
_PARTITION = 16 * MIB


@dataclass(frozen=True)
class _Resized(Dataset):
    """Metadata of a hypothetical data set; no partition can be read."""

    shards: ColumnShards | None = None

    @cached_property
    def columns(self) -> ColumnShards | None:
        """The hypothetical column shards."""
        return self.shards


def resized(dataset: Dataset, stored_bytes: int) -> Dataset:
    """Return the metadata that a data set of `stored_bytes` would have, with rows like those of `dataset`.

    All its partitions have the same size: that of the largest given one, or the default of an ingest if larger.
    """
    factor = stored_bytes / int(dataset.stored_bytes.sum())
    decoded, largest = int(dataset.decoded_bytes.sum()), int(dataset.decoded_bytes.max(initial=0))
    count = max(1, math.ceil(decoded * factor / max(_PARTITION, largest)))
    meta, table = dataset.meta, dataset.table
    grown = msgspec.structs.replace(
        meta,
        n_rows=_times(meta.n_rows, factor),
        nnz=_times(meta.nnz, factor),
        label_counts=[_times(rows, factor) for rows in meta.label_counts],
        label_weights=[weight * factor for weight in meta.label_weights],
        weight_sum=meta.weight_sum * factor,
    )
    parts = PartitionTable(
        _cut(grown.n_rows, count),
        _cut(grown.nnz, count),
        {name: _cut(_times(int(sizes.sum()), factor), count) for name, sizes in table.sizes.items()},
        {name: np.zeros(count, np.uint32) for name in table.sizes},
    )
    shards = _resized_columns(dataset, grown, factor)
    return _Resized(dataset.path, grown, parts, dataset.fingerprint, shards=shards)


def _resized_columns(dataset: Dataset, grown: DatasetMeta, factor: float) -> ColumnShards | None:
    """Return column shards over more rows: more of them, of fewer columns."""
    shards = dataset.columns
    if shards is None:
        return None
    decoded = int(shards.decoded_bytes.sum()) * factor
    count = min(grown.n_features, max(len(shards), math.ceil(decoded / shards.shard_size)))
    table = ShardTable(
        _cut(grown.n_features, count),
        _cut(_times(int(shards.table.nnz.sum()), factor), count),
        {name: _cut(_times(int(sizes.sum()), factor), count) for name, sizes in shards.table.sizes.items()},
        {name: np.zeros(count, np.uint32) for name in shards.table.sizes},
    )
    return replace(shards, meta=grown, table=table)


def _times(number: int, factor: float) -> int:
    return max(round(number * factor), min(number, 1))


def _cut(total: int, count: int) -> NDArray[np.int64]:
    """Return `count` whole numbers as equal as can be, with this sum."""
    return total // count + (np.arange(count, dtype=np.int64) < total % count)
