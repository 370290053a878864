"""Predictions as zarr arrays: appended block by block, named only when whole."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from distls.storage.format import Label

__all__ = ["PredictionArrays"]

_CHUNK_ROWS = 65_536


class PredictionArrays:
    """A zarr group with arrays ``label`` (codes into the attribute ``classes``) and ``score``.

    Parameters
    ----------
    target : Path
        Appears when the context ends without error.
    n_rows, top : int
        Shape of both arrays.
    classes : list of labels
    dtype : of the scores
    """

    def __init__(
        self, target: Path, n_rows: int, top: int, classes: list[Label], dtype: np.dtype[Any]
    ) -> None:
        self._target = target
        self._temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")
        self._row = 0
        group = zarr.create_group(str(self._temporary), attributes={"classes": classes})
        shape, chunks = (n_rows, top), (max(1, min(n_rows, _CHUNK_ROWS)), top)
        self._label = group.create_array("label", shape=shape, chunks=chunks, dtype=np.int32)
        self._score = group.create_array("score", shape=shape, chunks=chunks, dtype=dtype)

    def append(self, codes: NDArray[np.int32], scores: NDArray[Any]) -> None:
        """Write the next rows."""
        rows = slice(self._row, self._row + len(codes))
        self._label[rows] = codes
        self._score[rows] = scores
        self._row = rows.stop

    def __enter__(self) -> PredictionArrays:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._temporary.rename(self._target)
        else:
            shutil.rmtree(self._temporary, ignore_errors=True)
