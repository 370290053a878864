"""The types that a job's kernels are compiled for, and a row of them to compile on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distls.storage.rows import CsrRows, DenseRows, Rows


@dataclass(frozen=True)
class KernelTypes:
    """The types that a job's kernels are compiled for."""

    layout: str  # "csr" or "dense"
    data: str  # names of dtypes, as are the next two
    indices: str
    weights: str
    loss: str
    target: str = "class"  # kind of the targets


def one_row(layout: str, data: str, indices: str) -> Rows:
    """Return one row of one feature, of the types that kernels are compiled for."""
    values = np.ones(1, data)
    if layout == "dense":
        return DenseRows(values[None])
    return CsrRows(np.array([0, 1], np.int64), np.zeros(1, indices), values)
