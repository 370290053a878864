"""Dask arrays and DataFrames as sources: chunks are computed one at a time, by whatever scheduler is current."""

from collections.abc import Mapping
from typing import Any

import dask
import dask.array
import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import data_frames
from distls.workers.ingestion.formats.parquet_files import FrameSource

# bytes of a DataFrame up to which what the first reading has computed is kept, for categories and rows
_MOST_KEPT = 32 * 2**20


def computed_frames(frame: Any, others: Mapping[str, Any]) -> FrameSource:
    """Return a dask DataFrame, and columns of it that stand apart, as a source; computes it once, for its types.

    A small one is kept; of others each partition is computed again whenever it is read.

    Raises
    ------
    BadInputError
        A column is not of the same partitions, or has different types in them.
    """
    for name, values in others.items():
        if getattr(values, "npartitions", None) != frame.npartitions or not hasattr(values, "to_delayed"):
            rest = "or a dask Series of the same partitions"
            raise BadInputError(f"{name}: labels and weights of a dask DataFrame are columns of it, {rest}")
        frame = frame.assign(**{name: values})
    parts = frame.to_delayed()
    most = _MOST_KEPT // max(len(parts), 1)
    described, kept = zip(*dask.compute(*(dask.delayed(_described)(p, most) for p in parts)), strict=True)
    whole = all(part is not None for part in kept)
    facts = {"path": "a dask DataFrame", "chunks": len(parts), "name": dask.base.tokenize(frame)}
    read = kept.__getitem__ if whole else (lambda number: parts[number].compute())
    return data_frames.computed_source(described, read, facts)


def _described(frame: Any, most: int) -> tuple[data_frames.FrameFacts, Any]:
    """Return the facts of a frame, and itself where it is small."""
    facts = data_frames.describe_frame(frame)
    return facts, data_frames.arrow_table(frame) if facts.n_bytes <= most else None


class RowChunks:
    """The row chunks of X (dense, or of blocks that are sparse or have ``tocsr()``), y and the weights.

    Raises BadInputError if the rows of these arrays do not go together.
    """

    def __init__(self, x: Any, y: Any, sample_weight: Any) -> None:
        x = _lazy(x)
        if x.ndim != 2 or x.dtype.kind not in "fiub" or np.isnan(x.shape[1]):
            remedy = "rows of real numbers are needed"
            raise BadInputError(f"X: a dask array of shape {x.shape} and type {x.dtype}; {remedy}")
        if any(value is not None and not _is_lazy(value) for value in (y, sample_weight)):
            # a copy: compute_chunk_sizes works in place, on the user's array
            x = dask.array.Array(x.dask, x.name, x.chunks, meta=x._meta)
            # the rows of all chunks are counted, which computes them once
            x = x.compute_chunk_sizes() if np.isnan(x.shape[0]) else x
        self.x = _in_rows(x)
        self.y, self.sample_weight = (
            _like_x(name, value, self.x) for name, value in (("y", y), ("sample_weight", sample_weight))
        )

    def __len__(self) -> int:
        return int(self.x.numblocks[0])

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.x.shape[1])

    @property
    def sparse(self) -> bool:
        """Whether X is declared to have sparse blocks."""
        return hasattr(self.x._meta, "tocsr")

    @property
    def rows(self) -> list[int] | None:
        """Rows of each chunk, where they are known."""
        sizes = self.x.chunks[0]
        return None if np.isnan(sizes).any() else [int(size) for size in sizes]

    @property
    def names(self) -> list[str]:
        """Dask's names of the arrays, which are derived from their content."""
        return [array.name for array in (self.x, self.y, self.sample_weight) if array is not None]

    def compute(self, number: int) -> tuple[Any, Any, Any]:
        """Compute one chunk of X, y and weights; tasks they share run once."""
        lazy = (self.x, self.y, self.sample_weight)
        parts = dask.compute(*(None if array is None else array.blocks[number] for array in lazy))
        return parts[0], parts[1], parts[2]


def _is_lazy(value: Any) -> bool:
    return hasattr(value, "__dask_graph__")


def _lazy(value: Any) -> Any:
    """Return a dask DataFrame or Series as an array."""
    return value.to_dask_array() if hasattr(value, "to_dask_array") else value


def _in_rows(x: Any) -> Any:
    return x.rechunk({1: -1}) if x.ndim == 2 and x.numblocks[1] > 1 else x


def _like_x(name: str, value: Any, x: Any) -> Any:
    """Rechunk an array like X."""
    if value is None:
        return None
    value = _lazy(value) if _is_lazy(value) else dask.array.from_array(np.asarray(value))
    unknown = np.isnan(x.shape[0]) or np.isnan(value.shape[0])
    if not unknown and value.shape[0] != x.shape[0]:
        raise BadInputError(f"{name}: shape {value.shape} does not go with the {x.shape[0]} rows of X")
    if unknown and value.numblocks[0] != x.numblocks[0]:
        raise BadInputError(
            f"{name}: {value.numblocks[0]} chunks of rows, but X has {x.numblocks[0]} and their lengths are "
            "not known; cut both in the same way, or call compute_chunk_sizes() on both"
        )
    return _in_rows(value if unknown else value.rechunk({0: x.chunks[0]}))
