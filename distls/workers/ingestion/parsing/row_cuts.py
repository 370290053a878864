"""Where text that is read by records can be cut: behind line ends that are certainly not within a field."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from distls.workers.ingestion.parsing.array_types import Bytes, Ints
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, SourceFile, TextItem, damage_described

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PIECE_BYTES = 8 * 2**20  # of whole lines


def line_pieces(item: TextItem, n_bytes: int) -> Iterator[bytes]:
    """Yield the text of an item in whole lines, about `n_bytes` at a time, nothing at a line that is too long."""
    rest = b""
    with damage_described(item.file), item.open() as file:
        while piece := file.read(n_bytes):
            text = rest + piece
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            if end:
                yield text[:end]
            elif len(rest) > MAX_LINE:
                yield b""
                return
        if rest:
            yield rest
        # After the last row: what changed meanwhile is not one source.
        item.file.check()


def count_byte(text: bytes, byte: bytes) -> int:
    """Return how often a byte is in text, for one that is often there many times as fast as `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == byte[0]))


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
        if not piece or (separator is not None and piece.count(b"\r") != piece.count(b"\r\n")):
            return whole
        # the names of columns are in the first range, whatever is before them
        due = not blank and start >= cuts[-1][0] + n_bytes
        blank = blank and not piece.removeprefix(BYTE_ORDER_MARK).strip()
        if due and not quoted:
            cuts.append((start, n_lines, n_rows))
        if separator is None or not (quoted or b'"' in piece):
            new_lines = new_rows = count_byte(piece, b"\n")
        else:
            text = np.frombuffer(piece if start else piece.removeprefix(BYTE_ORDER_MARK), np.uint8)
            quotes, ends = np.flatnonzero(text == ord('"')), np.flatnonzero(text == ord("\n"))
            if not _around_fields(text, quotes, mark, quoted):
                return whole
            rows = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == quoted)
            if due and quoted and len(rows):
                cuts.append((start + int(ends[rows[0]]) + 1, n_lines + int(rows[0]) + 1, n_rows + 1))
            new_lines, new_rows, quoted = len(ends), len(rows), quoted ^ bool(len(quotes) % 2)
        start, n_lines, n_rows = start + len(piece), n_lines + new_lines, n_rows + new_rows
    return tuple(cuts)


def _around_fields(text: Bytes, quotes: Ints, mark: bytes, quoted: bool) -> bool:
    """Return whether all quotes begin or end a field, or are doubled in one."""
    ends = np.zeros(256, dtype=bool)
    ends[[*b'"\n', mark[0]]] = True
    opening, closing = quotes[quoted::2], quotes[not quoted :: 2]
    before, after = text[opening[opening > 0] - 1], text[closing[closing < len(text) - 1] + 1]
    return bool(ends[before].all() and (ends[after] | (after == ord("\r"))).all())
