"""Find the column of labels by its name, where nobody names it."""

from collections.abc import Sequence
from typing import Any

from distls.ingestion.adhoc_dataset import in_memory
from distls.ingestion.formats.csv import CsvOptions
from distls.ingestion.formats.csv_header import Expected, read_head
from distls.ingestion.formats.format_registry import ReadRequest, folder_format, format_of
from distls.ingestion.formats.frames import frame_columns
from distls.ingestion.formats.tables import LABEL_NAMES
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_start import encoded, first_lines, source_file
from distls.workers.ingestion.formats.data_frames import is_frame
from distls.workers.ingestion.formats.parquet_files import read_parquet_head


def found_label_column(sources: Sequence[Any], format: str, named: dict[str, Any]) -> str | None:
    """Return the first of the usual names that a table has, None if it has none or the sources are no table.

    Parameters
    ----------
    sources : sequence of path, or of one data frame

    Raises
    ------
    BadInputError
        A source cannot be read.
    """
    request = ReadRequest(format, None, named)
    if named.get("labels") is not None:
        return None
    if in_memory(sources[0]):
        names = frame_columns(sources[0]) if is_frame(sources[0]) else ()
        return None if {"label_column", "text_column"} & named.keys() else _first_label(names)
    file = source_file(sources[0], lambda folder: folder_format(folder) is not None)
    kind = format_of(file, IngestOptions(format=request.format), None, request.given).name
    if kind not in ("csv", "parquet") or named.get("label_column") is not None:
        return None
    if kind == "parquet":
        columns = tuple(read_parquet_head(file).kinds)
    else:
        reading: dict[str, Any] = {name: named.get(name) for name in ("separator", "header", "encoding")}
        given = CsvOptions(**reading)
        file = encoded(file, given.encoding or "")
        columns = read_head(first_lines(file), file.path, Expected(given)).columns
    return _first_label(columns)


def _first_label(columns: Sequence[str]) -> str | None:
    return next((name for name in LABEL_NAMES if name in columns), None)
