"""Text sources as blocks of whole lines: byte ranges of plain files, streams of compressed ones."""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, cast

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Bytes, Singles
from distls.workers.ingestion.parsing.svmlight_kernels import PADDING

MAX_LINE = 64 * 2**20
_READ_BYTES = 2**16


@dataclass(frozen=True)
class SourceFile:
    """A source as it was when the ingest was planned."""

    path: str
    size: int
    mtime_ns: int
    compression: str = "none"  # none | gzip | bz2 | xz | zstd; mac: lines end with a carriage return alone
    encoding: str = ""  # of its text; empty: UTF-8
    columns: tuple[str, ...] = ()  # in their order, where the first file of a table has another one

    @property
    def identity(self) -> dict[str, Any]:
        """Facts that must not change until an ingest is resumed."""
        return {"path": self.path, "size": self.size, "mtime_ns": self.mtime_ns}

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are those of the text, so that it can be read from any of them on."""
        return self.compression == "none" and not self.encoding

    def check(self) -> None:
        """Refuse a file that changed or vanished since the plan."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise BadInputError(f"{self.path}: vanished while it was being ingested") from None
        if (found.st_size, found.st_mtime_ns) != (self.size, self.mtime_ns):
            remedy = "ingest it again from the start"
            raise BadInputError(f"{self.path}: changed while it was being ingested; {remedy}")

    def open(self) -> IO[bytes]:
        """Open the decompressed bytes, as UTF-8 if they are text of a known encoding."""
        self.check()
        packed = self._unpacked()
        if not self.encoding:
            return packed
        decoder = codecs.getincrementaldecoder(self.encoding)()
        return cast(IO[bytes], _Converted(packed, lambda raw, last: decoder.decode(raw, last).encode()))

    def _unpacked(self) -> IO[bytes]:
        if self.compression == "gzip":
            return cast(IO[bytes], gzip.open(self.path, "rb"))
        if self.compression == "bz2":
            return bz2.open(self.path, "rb")
        if self.compression == "xz":
            return lzma.open(self.path, "rb")
        if self.compression == "zstd":
            return _open_zstd(self.path)
        plain = cast(IO[bytes], io.FileIO(self.path))
        if self.compression == "mac":
            return cast(IO[bytes], _Converted(plain, lambda raw, _: raw.replace(b"\r", b"\n")))
        return plain


Files = Sequence[SourceFile]


def _open_zstd(path: str) -> IO[bytes]:
    try:
        from pyarrow import CompressedInputStream
    except ImportError:
        remedy = f"pip install 'distls[parquet]', or unpack it: zstd -d {path}"
        raise BadInputError(f"{path}: zstd is read with pyarrow; {remedy}") from None
    return cast(IO[bytes], CompressedInputStream(path, "zstd"))


class _Converted(io.RawIOBase):
    """The text of a file, made UTF-8 with newlines by a function of some bytes and whether they are the last."""

    def __init__(self, file: IO[bytes], convert: Callable[[bytes, bool], bytes]) -> None:
        self._file = file
        self._convert = convert
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        n = 0
        # full, or at the end of the file: short reads mean that
        while n < len(into) and (self._ready or self._read_on()):
            part = self._ready[: len(into) - n]
            into[n : n + len(part)] = part
            n, self._ready = n + len(part), self._ready[len(part) :]
        return n

    def _read_on(self) -> bool:
        """Convert some more bytes; return whether there is text."""
        while raw := self._file.read(2**20):
            if text := self._convert(raw, False):
                self._ready = memoryview(text)
                return True
        self._convert(b"", True)  # raises if it is cut short within a character
        return False

    def close(self) -> None:
        self._file.close()
        super().close()


class _FileRange(io.RawIOBase):
    """The next bytes of a file, and no more."""

    def __init__(self, file: IO[bytes], n_bytes: int) -> None:
        self._file: Any = file
        self._left = n_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        n = self._file.readinto(memoryview(into)[: self._left]) or 0
        self._left -= n
        return n

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(frozen=True)
class TextItem:
    """The lines that start in bytes start, ..., stop - 1 of a file (of its decompressed text: all of it)."""

    number: int
    file: SourceFile
    start: int
    stop: int
    weights: Singles | None = None  # of its lines, where a file has them
    before: tuple[int, int] | None = None  # lines and rows of its file in front of it, where they are known

    def where(self, line: int, lines_before: int = 0) -> str:
        """Format the position of a 0-based line of the item, which has `lines_before` in its file."""
        before = lines_before if self.before is None else self.before[0]
        return f"{self.file.path}:{before + line + 1}"

    def open(self) -> IO[bytes]:
        """Open the bytes of an item that starts and stops with a line, decompressed."""
        file = self.file.open()
        if not self.file.is_plain or (self.start, self.stop) == (0, self.file.size):
            return file
        file.seek(self.start)
        return cast(IO[bytes], _FileRange(file, self.stop - self.start))

    def own(self, options: Any) -> Any:
        """Return the options of a reader of tables with the columns as this file has them."""
        return replace(options, columns=self.file.columns) if self.file.columns else options


@dataclass(frozen=True)
class TextBlock:
    """Whole lines."""

    text: Bytes
    size: int  # bytes of the lines
    starts_file: bool = False  # the first line is the file's


def _line_start(file: IO[bytes], offset: int, source: SourceFile) -> int:
    """Return the start of the first line of a plain file at or after `offset`, its size if there is none."""
    size = source.size
    if offset == 0 or offset >= size:
        return min(offset, size)
    position = offset - 1
    file.seek(position)
    while position < size:
        chunk = file.read(_READ_BYTES)
        found = chunk.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(chunk)
        if not chunk or position - offset > MAX_LINE:
            break
    if position < size:
        raise line_too_long(source.path, line_starts(source, [offset])[0])
    return size


def line_too_long(path: str, line: int) -> BadInputError:
    """Return what is raised for a line that nobody can hold."""
    return BadInputError(f"{path}:{line}: a line of more than {MAX_LINE // 2**20} MiB: not text in lines")


def line_starts(file: SourceFile, offsets: Sequence[int]) -> list[int]:
    """Count the lines of a file that start before each of increasing offsets into its text."""
    counts, position = [], 0
    n_lines, last = 0, ord("\n")  # the first byte starts a line as one behind a line end does
    with damage_described(file), file.open() as opened:
        for offset in offsets:
            while position < offset and (chunk := opened.read(min(offset - position, 2**22))):
                n_lines += (last == ord("\n")) + chunk.count(b"\n") - (chunk[-1] == ord("\n"))
                position, last = position + len(chunk), chunk[-1]
            counts.append(n_lines)
    return counts


def text_blocks(item: TextItem, skip: int, block_bytes: int, line: int, pool: BufferPool) -> Iterator[TextBlock]:
    """Yield the item's text from its byte `skip` on, in blocks of whole lines that share a buffer.

    A plain range is one block, a compressed file has blocks of about `block_bytes`. `line` is the line at `skip`.
    Raises BadInputError if the file changed, its compression is damaged, or a line is longer than MAX_LINE.
    """
    path = item.file.path
    with damage_described(item.file), item.file.open() as file:
        if not item.file.is_plain:
            discard(file, skip)
            for block in _streamed(file, block_bytes, path, line, pool):
                yield replace(block, starts_file=skip == 0)
                skip += block.size
            return
        start = _line_start(file, item.start, item.file) + skip
        size = _line_start(file, item.stop, item.file) - start
        if size > 0:
            file.seek(start)
            buffer = pool.take("text", size + PADDING)
            block = _padded_block(buffer, read_fully(file, buffer[:size]))
            yield replace(block, starts_file=start == 0)
            item.file.check()


@contextlib.contextmanager
def damage_described(file: SourceFile) -> Iterator[None]:
    """Raise BadInputError where the compression of a file is damaged, or its text not of its encoding."""
    try:
        yield
    except UnicodeError as error:
        why = f"not {file.encoding} text ({getattr(error, 'reason', error)})"
        raise BadInputError(f"{file.path}: {why}; --encoding names another encoding") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise BadInputError(f"{file.path}: damaged or cut short {file.compression} file ({error})") from None
    except OSError as error:
        # bz2 reports damage as an OSError without a number
        if error.errno is None:
            raise BadInputError(f"{file.path}: damaged {file.compression} file ({error})") from None
        raise


def _padded_block(buffer: Bytes, size: int) -> TextBlock:
    buffer[size : size + PADDING] = ord("\n")
    return TextBlock(buffer, size)


def read_fully(file: Any, into: Bytes) -> int:
    """Read into all of a buffer, or until the end of a file; return the number of bytes."""
    view, done = into.data, 0
    while done < len(view) and (got := file.readinto(view[done:])):
        done += got
    return done


def discard(file: IO[bytes], n_bytes: int) -> None:
    """Read and drop bytes of a stream that cannot seek."""
    while n_bytes > 0 and (chunk := file.read(min(n_bytes, 2**20))):
        n_bytes -= len(chunk)


def _streamed(file: IO[bytes], block_bytes: int, path: str, line: int, pool: BufferPool) -> Iterator[TextBlock]:
    buffer = pool.take("text", block_bytes + PADDING)
    filled = 0
    while True:
        filled += read_fully(file, buffer[filled:-PADDING])
        at_end = filled < len(buffer) - PADDING
        stop = filled if at_end else after_last_newline(buffer, filled)
        rest = buffer[stop:filled].copy()
        if stop:
            line += int(np.count_nonzero(buffer[:stop] == ord("\n")))
            yield _padded_block(buffer, stop)
        elif not at_end:
            if filled > MAX_LINE:
                raise line_too_long(path, line + 1)
            buffer = pool.take("text", min(2 * len(buffer), MAX_LINE + 1 + PADDING))
        if at_end:
            return
        buffer[: len(rest)] = rest
        filled = len(rest)


def after_last_newline(buffer: Bytes, size: int) -> int:
    """Return where the last whole line of buffer[:size] ends, 0 if there is none."""
    for start in range(max(size - _READ_BYTES, 0), -_READ_BYTES, -_READ_BYTES):
        chunk = buffer[max(start, 0) : min(max(start, 0) + _READ_BYTES, size)].tobytes()
        found = chunk.rfind(b"\n")
        if found >= 0:
            return max(start, 0) + found + 1
    return 0
