"""Data frames in memory (pandas, polars, Arrow, a mapping of columns) to rows, through those of Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.parquet import record_batch_rows
from distls.workers.ingestion.formats.parquet_files import kind_of_column
from distls.workers.ingestion.formats.table_columns import MISSING, TableOptions
from distls.workers.ingestion.records.batch import Progress
from distls.workers.ingestion.records.row_block import RowBlock

__all__ = ["column_kinds", "column_labels", "frame_rows", "is_frame", "plain_numbers", "record_batch"]


def is_frame(x: Any) -> bool:
    """Return whether an object has named columns, which ``x[name]`` returns."""
    return isinstance(x, Mapping) or hasattr(x, "column_names") or _is_data_frame(x)


def _is_data_frame(x: Any) -> bool:
    return hasattr(x, "columns") and hasattr(x, "__getitem__") and not isinstance(x, np.ndarray)


def column_labels(frame: Any) -> list[Any]:
    """Return the keys of a frame's columns."""
    if isinstance(frame, Mapping):
        return list(frame)
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def plain_numbers(frame: Any, labels: Sequence[Any]) -> Any:
    """Return columns of a pandas frame as an array if all are plain numbers and none is missing, else None."""
    # a row of 50 numbers takes 1 ms through Arrow, 0.1 ms here
    types: Any = getattr(frame, "dtypes", None)
    if not hasattr(frame, "to_numpy") or not hasattr(types, "to_list"):
        return None
    own = types.to_list()
    if not all(isinstance(kind, np.dtype) and kind.kind in "fiub" for kind in own):
        return None
    values = (frame if list(frame.columns) == list(labels) else frame[list(labels)]).to_numpy(np.float64)
    return None if np.isnan(values).any() else values


def record_batch(frame: Any, labels: Sequence[Any], options: TableOptions, path: str) -> Any:
    """Return the columns that the features of `options` need as an Arrow record batch.

    `labels` has the key in `frame` of each of ``options.columns``; messages call the frame `path`. Raises
    BadInputError if a column mixes types, or pyarrow is not installed.
    """
    arrow = _pyarrow(path)
    label_of = dict(zip(options.columns, labels, strict=True))
    arrays = {}
    for feature in options.features:
        empty = arrow.string() if feature.categories is not None else arrow.float64()
        for name in filter(None, (feature.name, feature.indices)):
            array = _as_arrow(frame[label_of[name]], arrow, f'{path}: column "{name}"')
            arrays[name] = array.cast(empty) if arrow.types.is_null(array.type) else array
    return arrow.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _pyarrow(path: str) -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise BadInputError(
            f"{path}: data frames with categories or missing values are read with pyarrow; "
            "pip install 'distls[parquet]'"
        ) from None
    return pyarrow


def _as_arrow(column: Any, arrow: Any, where: str) -> Any:
    try:
        found = column.to_arrow() if hasattr(column, "to_arrow") else column
        if not isinstance(found, (arrow.Array, arrow.ChunkedArray)):
            found = arrow.array(found, from_pandas=True)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise BadInputError(f"{where}: {' '.join(str(error).split())}") from None
    if isinstance(found, arrow.ChunkedArray):
        found = found.combine_chunks()
    return found.combine_chunks() if isinstance(found, arrow.ChunkedArray) else found


def column_kinds(batch: Any) -> dict[str, str]:
    """Return the kind of each column of a record batch, as `ParquetHead` has it."""
    types = _pyarrow("").types
    return {column.name: kind_of_column(types, column.type) for column in batch.schema}


def frame_rows(
    batch: Any, options: TableOptions, path: str, progress: Progress, first_row: int, *, written: bool
) -> RowBlock:
    """Return the rows of a record batch; `written` are categories of separated text, with its missing values."""
    if written:
        batch = _as_written(batch, options)
    return record_batch_rows(batch, options, path, progress, first_row)


def _as_written(batch: Any, options: TableOptions) -> Any:
    """Return the batch with categories as separated text has them: True and False, and missing ones by any name."""
    arrow = _pyarrow("")
    for feature in options.features:
        if feature.categories is None:
            continue
        place, column = batch.schema.get_field_index(feature.name), batch[feature.name]
        if arrow.types.is_boolean(column.type):
            column = arrow.compute.if_else(column, "True", "False")
        if arrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        text = arrow.compute.cast(column, arrow.string())
        unknown = arrow.compute.is_in(text, value_set=arrow.array(MISSING, arrow.string()))
        text = arrow.compute.if_else(unknown, arrow.scalar(None, arrow.string()), text)
        batch = batch.set_column(place, feature.name, text)
    return batch
