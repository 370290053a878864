"""Where text that is read by records can be cut: behind line ends that are certainly not within a field."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import functools
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing import text_blocks
from distls.workers.ingestion.parsing.array_types import Bytes, Ints
from distls.workers.ingestion.parsing.decimal_kernels import load_word
from distls.workers.ingestion.parsing.svmlight_kernels import PADDING
from distls.workers.ingestion.parsing.text_blocks import SourceFile, TextItem


class Seen(IntEnum):
    """Bits that tell what is in text."""

    QUOTE = 1
    RETURN = 2  # a carriage return
    CONTROL = 4  # any other control character but newlines and tabs
    HIGH = 8  # a byte that is not ASCII


_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_NEWLINES, _TABS, _RETURNS, _QUOTES = (_ONES * np.uint64(code) for code in b'\n\t\r"')
_CONTROLS = _ONES * np.uint64(0xE0)  # bits that no control character has
_EVEN = np.uint64(0x00FF00FF00FF00FF)
_SUM = np.uint64(0x0001000100010001)


@helper
def _zero_bytes(word: np.uint64) -> np.uint64:
    """Return a word with the top bit of each byte set that is zero."""
    return ~(((word & ~_TOPS) + ~_TOPS) | word) & _TOPS


@kernel
def look_at_bytes(text: Bytes, stop: int) -> Any:
    """Return (number of newlines, bits of Seen) of text[:stop], behind which are at least seven newlines."""
    n_ends, p = 0, 0
    quotes = returns = controls = high = np.uint64(0)
    while p < stop:
        end, counts = min(p + 8 * 255, stop), np.uint64(0)  # a byte counts up to 255
        # without branches, so that many words are looked at together
        for q in range(p, end, 8):
            word = load_word(text, q)
            newline, carriage = _zero_bytes(word ^ _NEWLINES), _zero_bytes(word ^ _RETURNS)
            counts += newline >> np.uint64(7)
            quotes |= _zero_bytes(word ^ _QUOTES)
            returns |= carriage
            controls |= _zero_bytes(word & _CONTROLS) & ~(newline | carriage | _zero_bytes(word ^ _TABS))
            high |= word & _TOPS
        pairs = (counts & _EVEN) + ((counts >> np.uint64(8)) & _EVEN)
        n_ends += np.int64((pairs * _SUM) >> np.uint64(48))
        p = end
    seen = (quotes > 0) * Seen.QUOTE + (returns > 0) * Seen.RETURN
    seen += (controls > 0) * Seen.CONTROL + (high > 0) * Seen.HIGH
    return n_ends - (-stop) % 8, seen


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PIECE_BYTES = 8 * 2**20  # of whole lines
_LARGE = 2**20  # bytes


class Lines(NamedTuple):
    """Whole lines, in a buffer that the next ones have too."""

    text: Bytes  # shape (at least size + PADDING,), newlines from `size` on
    size: int
    n_ends: int  # of lines
    seen: int  # bits of Seen of what may be in them

    @property
    def content(self) -> bytes:
        return self.text[: self.size].tobytes()

    @property
    def n_lines(self) -> int:
        """The number of lines, of which the last may have no end."""
        return self.n_ends + bool(self.size and self.text[self.size - 1] != ord("\n"))

    @property
    def breaks_within(self) -> bool:
        """Whether a carriage return is not before a newline."""
        return self.seen & Seen.RETURN > 0 and self.content.count(b"\r") != self.content.count(b"\r\n")


def line_pieces(item: TextItem, n_bytes: int) -> Iterator[Lines]:
    """Yield the text of an item in whole lines, about `n_bytes` at a time, nothing at a line that is too long."""
    buffer = rest = np.empty(0, np.uint8)
    with text_blocks.damage_described(item.file), item.open() as file:
        while True:
            n_rest = len(rest)
            if len(buffer) < n_rest + n_bytes + PADDING:
                buffer = np.empty(n_rest + 2 * n_bytes + PADDING, np.uint8)
            buffer[:n_rest] = rest
            size = n_rest + text_blocks.read_fully(file, buffer[n_rest : n_rest + n_bytes])
            end = text_blocks.after_last_newline(buffer, size) if size > n_rest else size
            rest = buffer[end:size].copy()
            too_long = not end and size > text_blocks.MAX_LINE
            if end or too_long:
                yield _lines(buffer, end)
            if size == n_rest or too_long:
                break
        # After the last row: what changed meanwhile is not one source.
        item.file.check()


def _lines(buffer: Bytes, size: int) -> Lines:
    buffer[size : size + PADDING] = ord("\n")
    if size >= _LARGE:
        return Lines(buffer, size, *look_at_bytes(buffer, size))
    # the kernel takes longer to compile than little text to be read with care
    return Lines(buffer, size, int(np.count_nonzero(buffer[:size] == ord("\n"))), sum(Seen))


def row_items(files: Sequence[SourceFile], separator: str | None, n_bytes: int) -> tuple[TextItem, ...]:
    """Return the items of files of records: ranges of about `n_bytes` of plain ones, others whole.

    `separator` is that of fields that may have line breaks between quotes, None if no record has any. A file with a
    quote that neither begins nor ends a field is one item, as readers differ about what it means.
    """
    items: list[TextItem] = []
    for file in files:
        cuts = _row_cuts(file, separator, n_bytes)
        stops = [*(start for start, *_ in cuts[1:]), file.size]
        for (start, n_lines, n_rows), stop in zip(cuts, stops, strict=True):
            items.append(TextItem(len(items), file, start, stop, before=(n_lines, n_rows)))
    return tuple(items)


@functools.lru_cache(maxsize=1024)  # a survey and the reading after it ask alike
def _row_cuts(file: SourceFile, separator: str | None, n_bytes: int) -> tuple[tuple[int, int, int], ...]:
    """Return the starts of ranges of rows: the byte, and the lines and rows before it."""
    whole = ((0, 0, 0),)
    mark = b"," if separator is None else separator.encode()
    if not file.is_plain or file.size <= n_bytes or len(mark) > 1:
        return whole
    cuts, start, n_lines, n_rows, quoted, blank = [*whole], 0, 0, 0, False, True
    for piece in line_pieces(TextItem(0, file, 0, file.size), min(n_bytes, PIECE_BYTES)):
        # a carriage return alone ends the record where it is no character of a field
        if not piece.size or (separator is not None and piece.breaks_within):
            return whole
        # the names of columns are in the first range, whatever is before them
        due = not blank and start >= cuts[-1][0] + n_bytes
        blank = blank and not piece.content.removeprefix(BYTE_ORDER_MARK).strip()
        if due and not quoted:
            cuts.append((start, n_lines, n_rows))
        if separator is None or not (quoted or piece.seen & Seen.QUOTE):
            new_lines = new_rows = piece.n_ends
        else:
            marked = start == 0 and piece.text[:3].tobytes() == BYTE_ORDER_MARK
            text = piece.text[3 * marked : piece.size]
            quotes, ends = np.flatnonzero(text == ord('"')), np.flatnonzero(text == ord("\n"))
            if not _around_fields(text, quotes, mark, quoted):
                return whole
            rows = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == quoted)
            if due and quoted and len(rows):
                cuts.append((start + int(ends[rows[0]]) + 1, n_lines + int(rows[0]) + 1, n_rows + 1))
            new_lines, new_rows, quoted = len(ends), len(rows), quoted ^ bool(len(quotes) % 2)
        start, n_lines, n_rows = start + piece.size, n_lines + new_lines, n_rows + new_rows
    return tuple(cuts)


def _around_fields(text: Bytes, quotes: Ints, mark: bytes, quoted: bool) -> bool:
    """Return whether all quotes begin or end a field, or are doubled in one."""
    ends = np.zeros(256, dtype=bool)
    ends[[*b'"\n', mark[0]]] = True
    opening, closing = quotes[quoted::2], quotes[not quoted :: 2]
    before, after = text[opening[opening > 0] - 1], text[closing[closing < len(text) - 1] + 1]
    return bool(ends[before].all() and (ends[after] | (after == ord("\r"))).all())
