"""The task that copies partitions of one data set into another, whose class codes may differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.partitions import PartitionRecord, write_partition
from distls.storage.filesystem.paths import place_of
from distls.storage.rows import CsrRows, Partition, n_rows_of
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger


@dataclass(frozen=True)
class JoinJob:
    """Where partitions go, and what they are there."""

    root: str  # the data set that is written, as every worker sees it
    first: int  # number there of the first partition
    n_features: int
    n_classes: int
    codes: NDArray[np.int32]  # the class there of each class here
    weighted: bool
    codecs: dict[str, str]


@dataclass
class Joined:
    """The partitions that were written."""

    records: list[PartitionRecord]
    ledger: Ledger = field(default_factory=Ledger)


def join_lane(data: DatasetRef, job: JoinJob, _shared: None, lane: Lane) -> Joined:
    """Copy one lane's partitions."""
    with Ledger.of_task() as ledger:
        written = Joined([], ledger)
        root = place_of(job.root)
        for index, part in stream(data, lane.blocks, ledger):
            n_rows = n_rows_of(part.x)
            weight = part.sample_weight
            if weight is None and job.weighted:
                weight = np.ones(n_rows, dtype=np.float32)
            copy = Partition(part.x, _recoded(part.y, job.codes), weight)
            number = job.first + index
            written.records.append(
                write_partition(root, number, copy, job.n_features, job.n_classes, job.codecs)
            )
            ledger.count(index, n_rows)
        return written


def _recoded(y: Any, codes: NDArray[np.int32]) -> Any:
    """Return targets with the codes of the data set that is written."""
    if isinstance(y, CsrRows):
        named = codes[y.indices].astype(y.indices.dtype)
        # increasing within each row, which other codes need not be
        rows = np.repeat(np.arange(len(y.indptr) - 1), np.diff(y.indptr))
        return CsrRows(y.indptr, named[np.lexsort((named, rows))], y.data)
    return codes[y] if y is not None and y.ndim == 1 else y
