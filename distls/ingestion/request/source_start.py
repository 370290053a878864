"""Source files: whether they are readable, and their first bytes, by which they are recognised."""

import itertools
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from distls.storage.dataset.dataset import is_dataset
from distls.storage.errors import BadInputError
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, SourceFile, damage_described, line_too_long

# Byte order marks, the longer first.
_MARKS = {b"\xff\xfe\0\0": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_SINGLE_QUOTES = re.compile(r"(?:^|[,;\t|])'[^']*[,;\t|][^']*'(?:[,;\t|]|$)")
_PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"}
_AS_ARRAY = "make an array of them first: numpy.savez('pictures.npz', X=PIXELS, y=LABELS)"
_MAGIC = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0", "zstd": b"\x28\xb5\x2f\xfd"}


def source_file(source: str | Place, is_source: Callable[[Path], bool] = lambda _: False) -> SourceFile:
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
        with path.open("rb") as opened:
            start = opened.read(2**16)
    except FileNotFoundError:
        raise BadInputError(f"{path}: {absent(path)}") from None
    except IsADirectoryError:
        if is_dataset(path):
            raise BadInputError(f"{path}: a data set of distls, not a source") from None
        if not is_source(path):
            raise BadInputError(f"{path}: {of_folder(path)}") from None
        return SourceFile(str(path), found.st_size, found.st_mtime_ns)
    except PermissionError:
        raise BadInputError(f"{path}: permission denied") from None
    if not start:
        raise BadInputError(f"{path}: the file is empty")
    compression = next((name for name, magic in _MAGIC.items() if start.startswith(magic)), "none")
    # lines of old Macs, unless it is no text at all
    if compression == "none" and b"\r" in start and b"\n" not in start and b"\0" not in start:
        compression = "mac"
    file = SourceFile(str(path), found.st_size, found.st_mtime_ns, compression)
    begin = start if compression in ("none", "mac") else start_of(file, 4)
    marked = next((name for mark, name in _MARKS.items() if begin.startswith(mark)), "")
    return replace(file, encoding=marked)


def of_folder(path: Path) -> str:
    """Return the message about a folder that is no source."""
    first = list(itertools.islice(itertools.chain(path.glob("*.*"), path.glob("*/*.*")), 100))
    pictures = first and all(map(of_picture, first))
    return f"a folder of pictures; {_AS_ARRAY}" if pictures else "a folder; name the files in it"


def of_picture(path: Path) -> str:
    """Return the message about a picture, empty for another file."""
    return f"a picture; {_AS_ARRAY}" if path.suffix.lower() in _PICTURES else ""


def absent(path: Path) -> str:
    """Return the message about a file that is not there."""
    pattern = any(character in path.name for character in "*?[")
    if path.name == "-":
        return "no such file; predict and evaluate read standard input, save it in a file for others"
    return "no such file" + "; patterns are expanded by shells, and by glob.glob of Python" * pattern


def other_quotes(lines: Sequence[str]) -> str:
    """Return how fields between other quotes than those of CSV are to be written, empty if no line has such."""
    if any('\\"' in line for line in lines):
        return 'a quote within quotes is written twice, as in "5"" pipe", and not behind a backslash'
    if any(_SINGLE_QUOTES.search(line) for line in lines):
        return "fields are put between double quotes, not between single ones"
    return ""


def encoded(file: SourceFile, encoding: str) -> SourceFile:
    """Return a file of text in an encoding, unless its own first bytes say which it has."""
    known = bool(file.encoding) or encoding in ("", "utf-8", "utf-8-sig")
    if known or start_of(file, 4).startswith((b"\xef\xbb\xbf", b"PAR1")):
        return file
    return replace(file, encoding=encoding)


def start_of(file: SourceFile, n_bytes: int = 2**16) -> bytes:
    """Return the first bytes of a file, decompressed; raise BadInputError if its compression is damaged."""
    with damage_described(file), file.open() as stream:
        return stream.read(n_bytes)


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
