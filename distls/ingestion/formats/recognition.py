"""Which format a source file has, by its name and its start."""

from __future__ import annotations

import gzip
import re
import stat
import zlib
from pathlib import Path

from distls.ingestion.formats.csv_header import looks_like_table
from distls.ingestion.formats.documents import is_hashed_text, looks_like_json_lines
from distls.ingestion.formats.tables import is_table
from distls.ingestion.formats.vw import looks_like_vw
from distls.ingestion.like import Like
from distls.ingestion.options import FORMATS, IngestOptions
from distls.storage.dataset.dataset import is_dataset
from distls.storage.errors import BadInputError
from distls.storage.sources.anndata_store import is_store
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, SourceFile

__all__ = ["first_lines", "format_of", "source_file", "start_of", "whole_lines"]

_JSON_NAMES = (".jsonl", ".ndjson")
_TEXT_NAMES = (".svm", ".svmlight", ".libsvm")
_TABLE_NAMES = (".csv", ".tsv")


def source_file(path: Path) -> SourceFile:
    """Look at a file without reading it.

    Raises
    ------
    BadInputError
        It is missing, empty, unreadable, or a folder that is no source.
    """
    path = path.absolute()
    try:
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise BadInputError(f"{path}: not a regular file; save its content in one")
        with path.open("rb") as file:
            start = file.read(3)
    except FileNotFoundError:
        raise BadInputError(f"{path}: no such file") from None
    except IsADirectoryError:
        if is_dataset(path):
            raise BadInputError(f"{path}: a data set of distls, not a source") from None
        if not is_store(path):
            raise BadInputError(f"{path}: a folder; name the files in it") from None
        return SourceFile(str(path), found.st_size, found.st_mtime_ns)
    except PermissionError:
        raise BadInputError(f"{path}: permission denied") from None
    if not start:
        raise BadInputError(f"{path}: the file is empty")
    compression = "gzip" if start[:2] == b"\x1f\x8b" else "bz2" if start == b"BZh" else "none"
    return SourceFile(str(path), found.st_size, found.st_mtime_ns, compression)


def format_of(file: SourceFile, options: IngestOptions, like: Like | None) -> str:
    """Return the format of a file: what was asked for, or what it looks like.

    Raises
    ------
    BadInputError
        It looks like none.
    """
    if Path(file.path).is_dir() and options.format not in ("auto", "anndata"):
        raise BadInputError(f"{file.path}: a folder; name the files in it")
    if Path(file.path).is_dir() or options.format != "auto":
        return "anndata" if options.format == "auto" else options.format
    if like is not None and is_hashed_text(like):
        return "text"
    start = start_of(file)
    if kind := _array_format(start) or _text_format(start, file, options, like):
        return kind
    first = start.split(b"\n", 1)[0][:40].decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in first)
    raise BadInputError(
        f'{file.path}: not recognised by its name or its start ("{shown}"); '
        f"name its format, one of {', '.join(FORMATS[1:])}"
    )


def _text_format(start: bytes, file: SourceFile, options: IngestOptions, like: Like | None) -> str:
    name = re.sub(r"\.(gz|bz2)\Z", "", file.path)
    if name.endswith(_JSON_NAMES) or looks_like_json_lines(start):
        return "text"
    if name.endswith(_TEXT_NAMES) or _looks_like_svmlight(start, options):
        return "svmlight"
    if name.endswith(_TABLE_NAMES) or (like is not None and is_table(like)):
        return "csv"
    if looks_like_vw(start):
        return "vw"
    return "csv" if looks_like_table(start) else ""


def _array_format(start: bytes) -> str:
    if start.startswith(b"\x93NUMPY"):
        return "npy"
    if start.startswith(b"PK"):
        return "npz"
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"\x89HDF"):
        return "anndata"
    idx = start[:2] == b"\0\0" and len(start) > 3 and start[2] in range(8, 15) and 1 <= start[3] <= 4
    return "idx" if idx else ""


def start_of(file: SourceFile, n_bytes: int = 2**16) -> bytes:
    """Return the first bytes of a file, decompressed.

    Raises
    ------
    BadInputError
        Its compression is damaged.
    """
    try:
        with file.open() as stream:
            return stream.read(n_bytes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{file.path}: damaged or cut short {file.compression} file ({error})") from None
    except OSError as error:
        if error.errno is None:
            raise BadInputError(f"{file.path}: damaged {file.compression} file ({error})") from None
        raise


_LABEL = rb"[+-]?[0-9.]+([eE][+-]?[0-9]+)?(,[+-]?[0-9.]+)*"
_SVMLIGHT_LINE = re.compile(rb"\s*(" + _LABEL + rb")?(\s+qid:[0-9]+)?(\s*[0-9]+:[^\s:]+)*\s*")


def _looks_like_svmlight(start: bytes, options: IngestOptions) -> bool:
    """Judge by the first line with content: numbers and pairs, and a pair or one label at least."""
    lines = (line.split(b"#", 1)[0].strip() for line in start.split(b"\n"))
    line = next(filter(None, lines), b"")
    if not line or not _SVMLIGHT_LINE.fullmatch(line[:4096].rsplit(None, 1)[0] if len(line) > 4096 else line):
        return False
    # a line of numbers between commas is CSV as well
    return b":" in line or b"," not in line or options.multilabel


def first_lines(file: SourceFile) -> bytes:
    """Return the start of a file, with two whole lines at least."""
    n_bytes = 2**16
    while True:
        start = start_of(file, n_bytes)
        if len(start) < n_bytes or start.count(b"\n") > 1 or n_bytes > MAX_LINE:
            return start if len(start) == n_bytes or start.endswith(b"\n") else start + b"\n"
        n_bytes *= 4


def whole_lines(start: bytes) -> bytes:
    """Drop a last line that may go on, or the last word of an only one."""
    return start[: start.rfind(b"\n") + 1] or start.rpartition(b" ")[0] or start
