"""Read untrusted files: regular, of bounded size, and inside the folder they belong to; see docs/security.md.

Other files could block, exhaust the memory, or lead elsewhere. An object store has neither links nor devices.
"""

import contextlib
import errno
import json
import logging
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import CorruptDataError, DistlsError, FormatError, StorageError
from distls.storage.filesystem.paths import Place, StorePath

T = TypeVar("T")

LARGEST_JSON = 64 * 2**20  # a dataset of a million classes with long names has 50 MiB of metadata
# Each takes at least 64 bytes in memory; the three lists of a dataset with 2 million classes stay below.
_MOST_VALUES = 2**23
# Ours are four levels deep; a few hundred would overflow the stack when they are written again.
_DEEPEST = 64

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Do not wait for the writer of a FIFO, nor become the owner of a terminal.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

_LOG = logging.getLogger(__name__)
_WAITS = (0.05, 0.5)  # seconds before the second and the third attempt
# errors that do not go away
_LASTING = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG,
}  # fmt: skip


# -- files -----------------------------------------------------------------------------------------------


def open_regular(path: Path, within: Place | None = None) -> int:
    """Open a regular file in `within` (default: its folder) for reading; the caller closes the descriptor.

    Raises FormatError for a FIFO, a device or the like, or a link out of `within`, which may be a link itself.
    """
    # Opened first and checked by its descriptor: a check by name could be overtaken by a change.
    descriptor = os.open(path, _FLAGS)
    try:
        _check_regular(descriptor, path)
        _check_inside(descriptor, path, within if isinstance(within, Path) else path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(descriptor: int, path: Path) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(21, os.strerror(21), str(path))
    if not stat.S_ISREG(mode):
        raise FormatError(f"{path}: not a regular file; a file of distls is never a pipe, socket or device")


def _check_inside(descriptor: int, path: Path, folder: Path) -> None:
    """Refuse an open file that is not in `folder`."""
    # the name of the open file, as a link in its path may be changed at any time
    try:
        found = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no /proc
        found = os.path.realpath(path)
    if found.startswith(_resolved(str(folder))):
        return
    # a link to the folder may have changed since it was cached
    _resolved.cache_clear()
    if not found.startswith(_resolved(str(folder))):
        raise _leads_out(path, folder)


@lru_cache(64)
def _resolved(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")


def _leads_out(path: Place | str, folder: Place) -> FormatError:
    return FormatError(f"{path}: a link leads out of {folder}; all its files must be inside it: copy them there")


def refuse_links(folder: Place, within: Place | None = None) -> None:
    """Raise FormatError for links in `folder` that lead out of `within` (default: `folder`), and for special files."""
    if isinstance(folder, StorePath):
        return  # a store has no links
    root = os.path.join(os.path.realpath(within or folder), "")
    if not os.path.join(os.path.realpath(folder), "").startswith(root):
        raise _leads_out(folder, within or folder)
    for entry in _entries(folder):
        if entry.is_symlink():
            # Only where links lead matters, not that they are there.
            if not os.path.realpath(entry.path).startswith(root):
                raise _leads_out(entry.path, within or folder)
        elif not entry.is_file(follow_symlinks=False):
            raise FormatError(f"{entry.path}: not a regular file; remove it")


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a folder except folders; links are not followed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)
            else:
                yield entry


def read_bytes(path: Place, within: Place | None = None, *, limit: int | None = None) -> bytes:
    """Return a file's bytes; raise FormatError if it has more than `limit` or `open_regular` refuses it."""
    if isinstance(path, StorePath):

        def room(size: int) -> NDArray[np.uint8]:
            _check_size(path, size, limit)
            return np.empty(size, np.uint8)

        return path.read_whole(room).tobytes()

    def read() -> bytes:
        with open(open_regular(path, within), "rb", buffering=0) as file:
            # Size first: the memory is not allocated for a file that is too large.
            _check_size(path, os.fstat(file.fileno()).st_size, limit)
            return file.read()

    return read_with_retries(read, path)


def first_bytes(path: Place, count: int) -> bytes:
    """Return the start of a file, by which it is judged; nothing of what is no file: a pipe would wait."""
    if not path.is_file():
        return b""
    if isinstance(path, StorePath):
        return bytes(path.read_range(0, count))
    with path.open("rb") as file:
        return file.read(count)


def _check_size(path: Any, size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise FormatError(f"{path}: {size} bytes, more than the {limit} that such a file of distls has at most")


def read_array_file(path: Place, within: Place | None = None) -> NDArray[np.uint8]:
    """Return a file's bytes as a writable array; raises as `read_bytes`."""
    if isinstance(path, StorePath):
        return path.read_whole(lambda size: np.empty(size, np.uint8))

    def read() -> NDArray[np.uint8]:
        with open(open_regular(path, within), "rb", buffering=0) as file:
            return np.fromfile(file, np.uint8)

    return read_with_retries(read, path)


@contextlib.contextmanager
def as_format_error(where: str) -> Iterator[None]:
    """Turn exceptions of code that inspects untrusted values into a FormatError of one line."""
    try:
        yield
    except DistlsError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # our messages are ValueErrors; those of Python mean little without their type
        why = _one_line(error) if type(error) is ValueError else f"{type(error).__name__}: {_one_line(error)}"
        raise FormatError(f"{where}: not written by distls ({why})") from None


@contextlib.contextmanager
def opened_ranges(path: Place, within: Place) -> Iterator[Callable[..., int]]:
    """Yield a function that fills views of memory, one after the other, from an offset on, and returns the bytes found.

    Raises as `open_regular`.
    """
    if isinstance(path, StorePath):
        yield lambda at, *into: _copied(path.read_range(at, at + sum(map(len, into))), into)
        return
    descriptor = open_regular(path, within)
    try:
        yield lambda at, *into: _read_up_to(descriptor, at, into)
    finally:
        os.close(descriptor)


def _copied(found: memoryview, into: Sequence[memoryview]) -> int:
    done = 0
    for view in into:
        some = found[done : done + len(view)]
        view[: len(some)] = some
        done += len(some)
    return done


def _read_up_to(descriptor: int, at: int, into: Sequence[memoryview]) -> int:
    done = 0
    while into and (got := os.preadv(descriptor, into, at + done)):
        done += got
        into = _behind(into, got)
    return done


def _behind(views: Sequence[memoryview], n_bytes: int) -> list[memoryview]:
    """Return what is left of the views behind their first bytes: a read may return less than asked for."""
    left = list[memoryview]()
    for view in views:
        if len(view) > n_bytes:
            left.append(view[n_bytes:])
        n_bytes = max(n_bytes - len(view), 0)
    return left


# -- storage that fails occasionally ---------------------------------------------------------------------


def read_with_retries(read: Callable[[], T], what: Place, *, of_store: bool = False) -> T:
    """Return `read()`, retried if storage failed (three attempts in all) or the bytes were wrong (two).

    With `of_store` wrong bytes are waited for like a failure: a store may list for a moment only some of its objects.
    `read` must open the file itself, as a stale handle stays stale. Raises the last attempt's OSError or
    CorruptDataError.
    """
    failed: Exception | None = None
    # The last attempt has no wait after it.
    for wait in (*_WAITS, None):
        try:
            result = read()
        except (OSError, CorruptDataError) as error:
            if wait is None or _lasts(error, None if of_store else failed):
                raise
            failed = error
            if of_store or isinstance(error, OSError):
                time.sleep(wait)
        else:
            if failed is not None:
                _LOG.warning("%s: read again, and well, after: %s", what, failed)
            return result
    raise AssertionError("unreachable")


def _lasts(error: Exception, before: Exception | None) -> bool:
    # a torn read looks like damage; damage is found the second time too
    if isinstance(error, CorruptDataError):
        return isinstance(before, CorruptDataError)
    # requests of object stores have retries of their own
    return isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in _LASTING)


# -- JSON ------------------------------------------------------------------------------------------------


def read_json(path: Place, kind: type[T], within: Place | None = None) -> T:
    """Read a JSON file as a value of type `kind`, mostly a `msgspec.Struct`; raises as `read_bytes`, `parse_json`."""
    return parse_json(read_bytes(path, within, limit=LARGEST_JSON), kind)


def parse_json(content: bytes, kind: type[T]) -> T:
    """Decode a JSON text as a value of type `kind`: finite numbers, valid Unicode, bounded in depth and in values.

    Raises ValueError if it is no JSON, exceeds a bound, or is not of that type.
    """
    # before memory is allocated for any of them
    # A cheap upper bound of the number of values, by counting separators.
    if content.count(b",") + content.count(b"[") + content.count(b"{") > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} JSON values")
    try:
        value = _decode(content, kind)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.MsgspecError as error:
        raise ValueError(_one_line(error)) from None
    _check_depth(value)
    return value


def _decode(content: bytes, kind: type[T]) -> T:
    if not _SURROGATE.search(content):
        return msgspec.json.decode(content, type=kind)
    # msgspec refuses lone surrogates, which stand for the bytes of file names that are not UTF-8
    value = json.loads(content.decode(), parse_constant=_finite, parse_float=_finite)
    # Encoding proves that the surrogates are those of file names.
    json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return msgspec.convert(value, kind)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def convert_json(value: object, kind: type[T], name: str = "") -> T:
    """Convert a value decoded by `parse_json` to type `kind`, or raise a ValueError that begins with `name`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.MsgspecError as error:  # not a ValueError before msgspec 0.21
        raise ValueError(f"{name}: {_one_line(error)}" if name else _one_line(error)) from None


def _one_line(error: Exception) -> str:
    # it may quote names of the file
    return " ".join(str(error).split())[:200]


def _check_depth(value: Any) -> None:
    level = [value]
    # Level by level: a recursive check would itself overflow.
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _members(outer) if type(inner) not in _PLAIN]
        if not level:
            return
    raise _too_deep()


# asked of millions of labels: the check of an instance is fifty times slower
_PLAIN = frozenset({str, int, float, bool, type(None)})


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.astuple(value)
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _too_deep() -> ValueError:
    return ValueError(f"JSON values nested more than {_DEEPEST} deep")
