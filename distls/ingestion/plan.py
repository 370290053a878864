"""Plan an ingest: recognise the sources, and compare the plan with that of an unfinished ingest."""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from distls.ingestion.adhoc_dataset import in_memory
from distls.ingestion.formats.csv import CsvOptions
from distls.ingestion.formats.csv_header import Expected, read_head
from distls.ingestion.formats.format_registry import ReadRequest, folder_format, format_of, option_defaults
from distls.ingestion.formats.frames import frame_columns
from distls.ingestion.formats.tables import LABEL_NAMES
from distls.ingestion.request import source_plan
from distls.ingestion.request.format import plan_as_asked, seen_options
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.request.source_start import encoded, first_lines, source_file, start_of, whole_lines
from distls.storage.dataset.dataset import STAGING, is_dataset
from distls.storage.errors import BadInputError, IncompleteError, ParameterError, StorageError
from distls.storage.filesystem.atomic import remove_tree
from distls.storage.filesystem.locks import DATASET_LOCK
from distls.storage.filesystem.paths import Place
from distls.storage.temporary.transpose_spill import SpillArea
from distls.workers.ingestion.formats.data_frames import is_frame
from distls.workers.ingestion.formats.parquet_files import read_parquet_head
from distls.workers.ingestion.parsing.text_blocks import Files

_HIVE_FOLDER = re.compile(r"([A-Za-z_]\w*)=([^/]+)(?=/)")
_UNFINISHED = {STAGING, DATASET_LOCK}  # content of a folder that may be written to


def plan_files(
    paths: Sequence[str | Place], request: ReadRequest, options: IngestOptions, like: Like | None = None
) -> tuple[SourcePlan, FormatOptions]:
    """Recognise source files and cut them into items; return the plan and the options of their format.

    Raises BadInputError if a file is missing, empty, unreadable, of no recognised format, or does not match the
    others.
    """
    if not paths:
        raise ParameterError("no sources were given")
    files = tuple(source_file(path, lambda folder: folder_format(folder) is not None) for path in paths)
    seen = seen_options(options) if "labels" in request.given else options
    formats = [format_of(file, seen, like, request.given) for file in files]
    format = formats[0]
    for file, other in zip(files, formats, strict=True):
        if other is not format:
            remedy = "ingest one format at a time"
            raise BadInputError(f"{file.path}: {other.name}, but {files[0].path} is {format.name}; {remedy}")
    read = request.options_of(format, options.multilabel)
    encoding = ""
    if "encoding" in vars(read):
        # asked for, or as that of the data that these are like; recorded for the next
        encoding = vars(read)["encoding"] or description_of(like).get("encoding", "")
        files = tuple(encoded(file, encoding) for file in files)
    # Labels of another file are joined behind the reader, the same way for all formats.
    plan = plan_as_asked(read, options, format, lambda own, asked: format.plan(files, own, asked, like))
    folders = _folder_notices(files, getattr(plan.read, "columns", ())) if like is None else ()
    notices = (*plan.notices, *folders, *_repeated(files), *_other_encoding(files, encoding))
    return replace(plan, encoding=encoding, notices=notices), read


def _repeated(files: Files) -> tuple[str, ...]:
    """Return a notice of files that are given twice, maybe by links."""
    first: dict[Any, str] = {}
    for file in files:
        found = os.stat(file.path) if os.path.exists(file.path) else None  # of stores there are no links
        key = (found.st_dev, found.st_ino) if found else file.path
        if key in first:
            return (f"{file.path}: the same file as {first[key]}: its rows are read twice",)
        first[key] = file.path
    return ()


def _other_encoding(files: Files, encoding: str) -> tuple[str, ...]:
    """Return a notice of files that are UTF-8, but read in another encoding, as asked or as the training data were."""
    for file in files if encoding else ():
        start = whole_lines(start_of(replace(file, encoding=""))) if file.encoding == encoding else b""
        with contextlib.suppress(UnicodeDecodeError):
            if not start.isascii() and start.decode():
                return (
                    f"{file.path}: valid UTF-8, with characters beyond ASCII, but read as {encoding}: --encoding utf-8 "
                    "reads it as it is",
                )
    return ()


def _folder_notices(files: Files, columns: Sequence[str]) -> list[str]:
    """Return a notice of values that are in the names of folders alone, as Hive and Spark write tables in parts."""
    pairs = {pair for file in files for pair in _HIVE_FOLDER.findall(file.path)}
    counts = Counter(key for key, _ in pairs)
    # one value for all rows says nothing
    lost = sorted(key for key, n_values in counts.items() if n_values > 1 and key not in columns)
    if not lost:
        return []
    return [f"{', '.join(lost)} of the names of folders: not read, as no column of the files has that name"]


def plan_document(
    plan: SourcePlan, read: FormatOptions, options: IngestOptions, like_fingerprint: str | None
) -> dict[str, Any]:
    """Return the record of a plan that a resumed ingest is compared with."""
    shared = {**asdict(options), "like": like_fingerprint, "format": plan.format}
    return {
        "version": 6,  # of what is staged
        "sources": plan.identity,
        # the options of all formats: the record is the same whether they came as `read` or by name
        "options": {**shared, **option_defaults(), **asdict(read)},
        "range_bytes": source_plan.RANGE_BYTES,
        # read by records, whose ranges are not those of the first try
        **({"line_breaks": True} if getattr(plan.read, "line_breaks", False) else {}),
    }


def check_same_plan(dataset: Place, earlier: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise IncompleteError if an unfinished ingest had other sources or options."""
    if difference := _difference(earlier, now):
        remedy = f"give the same arguments to resume it, or remove {dataset} to start over"
        raise IncompleteError(f"{dataset}: holds an unfinished ingest, and {difference}; {remedy}")


def _difference(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    before = {source["path"]: source for source in earlier["sources"]}
    after = {source["path"]: source for source in now["sources"]}
    if [*before] != [*after]:
        return f"its sources were {', '.join(map(os.path.basename, before))}"
    if changed := [path for path in before if before[path] != after[path]]:
        return f"{changed[0]} has changed since"
    for name, value in earlier["options"].items():
        if name in now["options"] and value != (given := now["options"][name]):
            return f"its {name} was {value!r}, not {given!r}"
    return "" if earlier == now else "it was made by another version of distls"


def check_no_files(roots: Sequence[Place]) -> None:
    """Refuse a file in the place of a data set."""
    for root in roots:
        if isinstance(root, Path) and root.exists() and not root.is_dir():
            rest = "and the last name is that of the data set to write; choose another"
            raise StorageError(f"{root}: a file, {rest}")


def check_free(root: Place) -> None:
    """Refuse to write into anything but a new or empty folder."""
    if is_dataset(root):
        # an ingest killed between publishing and cleaning up leaves staged files
        remove_tree(root / STAGING)
        if SpillArea(root).folder.exists():
            remedy = f"run `distls columns {root}` to finish them"
            raise StorageError(f"{root}: exists already, but for its column shards; {remedy}")
        raise StorageError(f"{root}: exists already; remove it or choose another name")
    if root.exists() and (not root.is_dir() or any(each.name not in _UNFINISHED for each in root.iterdir())):
        raise StorageError(f"{root}: exists and is not an unfinished ingest; choose another name")


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
