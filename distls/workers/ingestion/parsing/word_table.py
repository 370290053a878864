"""The growing hash table in which the parser of separated text looks words up."""

from collections.abc import Iterator, Sequence

import numpy as np

from distls.workers.ingestion.parsing.word_table_kernels import ENTRIES, Words, has_room, insert_words

_SPARE = bytes(8)


class WordTable:
    """Words of several columns, each with a value.

    The key of a word is twice its column, plus 1 for the text of a quoted field with escaped quotes.
    """

    def __init__(self, n_entries: int = 4096, n_bytes: int = 2**16) -> None:
        self.words = _empty(n_entries, n_bytes)

    def __len__(self) -> int:
        return int(self.words.size[ENTRIES])

    def add(self, column: int, texts: Sequence[str], values: Sequence[float]) -> None:
        """Insert new words of a column."""
        # a quote is doubled in a quoted field, and single in another
        forms = [(text, value, 0) for text, value in zip(texts, values, strict=True)]
        forms += [(text.replace('"', '""'), value, 1) for text, value, _ in forms if '"' in text]
        encoded = [text.encode() for text, _, _ in forms]
        # in Python: compiled for this one call, it would take a tenth of a second
        is_room = has_room.py_func  # type: ignore[attr-defined]
        while not is_room(self.words, len(encoded), sum(map(len, encoded))):
            self.grow()
        first = len(self)
        keys = np.array([2 * column + doubled for _, _, doubled in forms], dtype=np.int64)
        joined = np.frombuffer(b"".join(encoded) + _SPARE, dtype=np.uint8)
        ends = np.cumsum([*map(len, encoded)], dtype=np.int64)
        # a copy: frombuffer is read-only, for which the kernel would be compiled once more
        insert_words(self.words, keys, np.zeros_like(keys), np.array(joined), ends)
        self.words.values[first : len(self)] = [value for _, value, _ in forms]

    def grow(self) -> None:
        """Double the capacity."""
        self._rebuild(len(self), 2)

    def forget_line(self, line: int) -> None:
        """Remove the last words if they first occurred in this line."""
        kept = int(np.searchsorted(self.words.lines[: len(self)], line))
        if kept < len(self):
            self._rebuild(kept, 1)

    def _rebuild(self, n: int, factor: int) -> None:
        """Insert the first `n` words into a new table of `factor` times the capacity."""
        old = self.words
        self.words = _empty(factor * len(old.keys), factor * len(old.text))
        insert_words(self.words, old.keys[:n], old.lines[:n], old.text, old.starts[1 : n + 1])
        self.words.values[:n] = old.values[:n]

    def by_column(self) -> dict[int, list[int]]:
        """Return the entries of each column that has any, in the order of insertion."""
        columns = self.words.keys[: len(self)] >> 1
        order = np.argsort(columns, kind="stable")
        found, starts = np.unique(columns[order], return_index=True)
        # an empty table has one part, and no column for it
        parts = np.split(order, starts[1:])
        return {column: part.tolist() for column, part in zip(found.tolist(), parts, strict=False)}

    def unvalued(self) -> Iterator[int]:
        """Yield the entries that have no value yet."""
        yield from np.flatnonzero(np.isnan(self.words.values[: len(self)])).tolist()

    def raw(self, entry: int) -> bytes:
        """Return the text of an entry as in the source."""
        start, end = self.words.starts[entry : entry + 2].tolist()
        return self.words.text[start:end].tobytes()

    def text(self, entry: int) -> str:
        """Return the text of an entry; raise UnicodeDecodeError if it is not UTF-8."""
        text = self.raw(entry).decode()
        return text.replace('""', '"') if self.words.keys[entry] & 1 else text


def _empty(n_entries: int, n_bytes: int) -> Words:
    return Words(
        slots=np.zeros(4 * n_entries, dtype=np.int32),
        hashes=np.empty(n_entries, dtype=np.uint64),
        keys=np.empty(n_entries, dtype=np.int64),
        lines=np.empty(n_entries, dtype=np.int64),
        starts=np.zeros(n_entries + 1, dtype=np.int64),
        values=np.empty(n_entries, dtype=np.float64),
        text=np.zeros(n_bytes, dtype=np.uint8),
        size=np.zeros(2, dtype=np.int64),
    )
