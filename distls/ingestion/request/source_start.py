"""Source files: whether they are readable, and their first bytes, by which they are recognised."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

from distls.storage.dataset.dataset import is_dataset
from distls.storage.errors import BadInputError
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, SourceFile, line_too_long


def _no_folder(path: Path) -> bool:
    return False


def source_file(source: str | Place, is_source: Callable[[Path], bool] = _no_folder) -> SourceFile:
    """Stat a file and detect its compression; `is_source` decides whether a folder is a source.

    Raises BadInputError if it is missing, empty, unreadable, not on a disk, or a folder that is no source.
    """
    path = place_of(source)
    if isinstance(path, StorePath):
        raise BadInputError(f"{path}: sources are read from files; fetch it to a disk first")
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
        if not is_source(path):
            raise BadInputError(f"{path}: a folder; name the files in it") from None
        return SourceFile(str(path), found.st_size, found.st_mtime_ns)
    except PermissionError:
        raise BadInputError(f"{path}: permission denied") from None
    if not start:
        raise BadInputError(f"{path}: the file is empty")
    compression = "gzip" if start[:2] == b"\x1f\x8b" else "bz2" if start == b"BZh" else "none"
    return SourceFile(str(path), found.st_size, found.st_mtime_ns, compression)


def start_of(file: SourceFile, n_bytes: int = 2**16) -> bytes:
    """Return the first bytes of a file, decompressed; raise BadInputError if its compression is damaged."""
    try:
        with file.open() as stream:
            return stream.read(n_bytes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{file.path}: damaged or cut short {file.compression} file ({error})") from None
    except OSError as error:
        if error.errno is None:
            raise BadInputError(f"{file.path}: damaged {file.compression} file ({error})") from None
        raise


def first_lines(file: SourceFile) -> bytes:
    """Return the start of a file with at least two whole lines; raise BadInputError if the first is too long."""
    n_bytes = 2**16
    while True:
        start = start_of(file, n_bytes)
        if len(start) < n_bytes or start.count(b"\n") > 1 or n_bytes > MAX_LINE:
            break
        n_bytes = min(4 * n_bytes, MAX_LINE + 1)
    if len(start) > MAX_LINE and b"\n" not in start:
        raise line_too_long(file.path, 1)
    return start if len(start) == n_bytes or start.endswith(b"\n") else start + b"\n"


def whole_lines(start: bytes) -> bytes:
    """Drop the last, possibly incomplete line, or the last word of a single line."""
    return start[: start.rfind(b"\n") + 1] or start.rpartition(b" ")[0] or start
