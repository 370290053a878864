"""The task that copies partitions of one data set into another, whose class codes may differ."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distls.storage.dataset.partitions import PartitionRecord, write_partition
from distls.storage.filesystem.paths import place_of
from distls.storage.rows import CsrRows, Partition, n_rows_of
from distls.workers.ingestion.parsing.array_types import Int32s
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.task import Task


@dataclass
class Joined:
    """The partitions that were written."""

    records: list[PartitionRecord]
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class JoinTask(Task):
    """Copies partitions to another data set."""

    data: DatasetRef
    root: str  # the data set that is written, as every worker sees it
    first: int  # number there of the first partition
    n_features: int
    n_classes: int
    codes: Int32s  # the class there of each class here
    weighted: bool
    codecs: dict[str, str]

    def start(self) -> None:
        self.total = Joined([])

    def add(self, index: int, part: Partition) -> None:
        weight = part.sample_weight
        if weight is None and self.weighted:
            weight = np.ones(n_rows_of(part.x), dtype=np.float32)
        copy, number = Partition(part.x, _recoded(part.y, self.codes), weight), self.first + index
        self.total.records.append(
            write_partition(place_of(self.root), number, copy, self.n_features, self.n_classes, self.codecs)
        )


def _recoded(y: Any, codes: Int32s) -> Any:
    """Return targets with the codes of the data set that is written."""
    if isinstance(y, CsrRows):
        named = codes[y.indices].astype(y.indices.dtype)
        # increasing within each row, which other codes need not be
        rows = np.repeat(np.arange(len(y.indptr) - 1), np.diff(y.indptr))
        return CsrRows(y.indptr, named[np.lexsort((named, rows))], y.data)
    return codes[y] if y is not None and y.ndim == 1 else y
