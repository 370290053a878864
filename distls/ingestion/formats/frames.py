"""Data frames as sources: read as Parquet files of the same columns, tables or documents, would be."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distls.ingestion.formats.format_registry import ReadRequest, recognised
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.ingestion.request import source_plan
from distls.ingestion.request.format import SourceStart, plan_as_asked
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.storage.errors import BadInputError, ParameterError
from distls.workers.ingestion.formats.data_frames import FRAME, arrow_table, column_labels, frame_source, is_frame
from distls.workers.ingestion.formats.parquet_files import FrameSource
from distls.workers.ingestion.records.labels import LabelSets

_FORMATS = ("parquet", "text")


def is_source_frame(source: Any, y: Any, like: Like | None) -> bool:
    """Return whether a source is a data frame whose columns are read by name and type.

    Those with several targets a row, dask frames whose labels are no dask Series, and those to be read like data
    without names are taken as arrays.

    Raises
    ------
    BadInputError
        It is lazy: its rows are not there yet.
    """
    if hasattr(source, "collect"):
        raise BadInputError(f"{FRAME}: a lazy frame; give {FRAME}.collect()")
    if isinstance(source, Mapping) or not is_frame(source):
        return False
    if hasattr(source, "__dask_graph__") and y is not None and not hasattr(y, "divisions"):
        return False
    if isinstance(y, LabelSets):
        return False
    return (np.ndim(y) < 2 or np.shape(y)[1] == 1) and (like is None or bool(description_of(like)))


def frame_columns(frame: Any) -> tuple[str, ...]:
    """Return the names of the columns."""
    return tuple(str(label) for label in column_labels(frame))


def plan_frame(
    frame: Any, y: Any, sample_weight: Any, request: ReadRequest, options: IngestOptions, like: Like | None
) -> tuple[SourcePlan, FormatOptions]:
    """Plan a data frame of pandas, polars, Arrow or Dask; return the plan and the options of its format.

    Labels and weights that are given beside it are columns like those in it.

    Raises
    ------
    BadInputError, MismatchError, ParameterError
        As for Parquet files; or labels are given twice.
    """
    others: dict[str, Any] = {}
    for option, name, values in (("label_column", "y", y), ("weight_column", "sample_weight", sample_weight)):
        if values is not None:
            column = _free_name(name, frame)
            request = request.with_column(option, column, name)
            others[column] = _flat(unwrapped(name, values))
            n_rows, own = getattr(frame, "shape", (None,))[0], others[column]
            if isinstance(n_rows, int) and not hasattr(own, "__dask_graph__") and len(own) != n_rows:
                raise BadInputError(f"{name}: {len(own):,} values do not go with the {n_rows:,} rows of X")
    if request.format not in ("auto", *_FORMATS):
        raise ParameterError(f"format={request.format} is for files; a data frame was given")
    source = _source(frame, others)
    if request.format == "auto":
        format = recognised(SourceStart(b"PAR1", FRAME, options, like, request.given))
    else:
        format = request.named_format()
    assert format is not None, "Parquet is recognised"
    read = request.options_of(format, options.multilabel)
    plan = plan_as_asked(read, options, format, lambda own, asked: format.plan((source,), own, asked, like))
    return replace(plan, in_process=True), read


def _free_name(name: str, frame: Any) -> str:
    taken = frame_columns(frame)
    while name in taken:
        name += "_"
    return name


def _flat(values: Any) -> Any:
    """Return a frame of one column as the column."""
    return values[column_labels(values)[0]] if np.ndim(values) == 2 and is_frame(values) else values


def _source(frame: Any, others: Mapping[str, Any]) -> FrameSource:
    if hasattr(frame, "__dask_graph__"):
        from distls.ingestion.formats.dask_arrays import computed_frames  # loads Dask

        return computed_frames(frame, others)
    return frame_source(arrow_table(frame, others), source_plan.RANGE_BYTES)
