"""The task of the text export: one partition as lines of text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distls.storage.rows import CsrRows, n_rows_of
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.synthetic.text_kernels import BYTES_PER_VALUE, format_rows

__all__ = ["ExportJob", "export_block"]


@dataclass(frozen=True)
class ExportJob:
    """Common input of the export of all partitions."""

    data: DatasetRef
    labels: tuple[int, ...]  # written for each class code
    first_index: int
    separator: bytes  # between label and features


def export_block(job: ExportJob, shared: None, index: int) -> bytes:
    """Return partition `index` as text."""
    ((_, part),) = stream(job.data, [index])
    x = part.x
    assert isinstance(x, CsrRows)
    labels = np.array(job.labels, dtype=np.int64)[part.y]
    out = np.empty((len(x.data) + n_rows_of(x)) * BYTES_PER_VALUE, dtype=np.uint8)
    size = format_rows(*x, labels, job.first_index, np.frombuffer(job.separator, np.uint8), out)
    return out[:size].tobytes()
