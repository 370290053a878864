"""The hash table of words that the parser of separated text looks fields up in: it grows here, in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from distls.workers.ingestion.parsing.word_table_kernels import ENTRIES, Words, has_room, insert_words

__all__ = ["WordTable"]

_SPARE = bytes(8)


class WordTable:
    """Words of several columns, each with a value.

    The key of a word is twice its column, plus 1 for a text between quotes in which quotes are doubled.
    """

    def __init__(self, n_entries: int = 4096, n_bytes: int = 2**16) -> None:
        self.words = _empty(n_entries, n_bytes)

    def __len__(self) -> int:
        return int(self.words.size[ENTRIES])

    def add(self, column: int, texts: Sequence[str], values: Sequence[float]) -> None:
        """Enter new words of a column."""
        # a quote is doubled in a field between quotes, and single in another
        forms = [(text, value, 0) for text, value in zip(texts, values, strict=True)]
        forms += [(text.replace('"', '""'), value, 1) for text, value, _ in forms if '"' in text]
        encoded = [text.encode() for text, _, _ in forms]
        while not has_room(self.words, len(encoded), sum(map(len, encoded))):
            self.grow()
        first = len(self)
        keys = np.array([2 * column + doubled for _, _, doubled in forms], dtype=np.int64)
        joined = np.frombuffer(b"".join(encoded) + _SPARE, dtype=np.uint8)
        self._insert(keys, np.zeros_like(keys), joined, np.cumsum([*map(len, encoded)], dtype=np.int64))
        self.words.values[first : len(self)] = [value for _, value, _ in forms]

    def _insert(
        self,
        keys: NDArray[np.int64],
        lines: NDArray[np.int64],
        text: NDArray[np.uint8],
        ends: NDArray[np.int64],
    ) -> None:
        insert_words(self.words, keys, lines, np.array(text), ends)

    def grow(self) -> None:
        """Double the room."""
        self._rebuild(len(self), 2)

    def forget_line(self, line: int) -> None:
        """Take out the words that were entered last, first seen in this line."""
        kept = int(np.searchsorted(self.words.lines[: len(self)], line))
        if kept < len(self):
            self._rebuild(kept, 1)

    def _rebuild(self, n: int, factor: int) -> None:
        """Enter the first `n` words into a new table with room for `factor` times as many as this one."""
        old = self.words
        self.words = _empty(factor * len(old.keys), factor * len(old.text))
        self._insert(old.keys[:n], old.lines[:n], old.text, old.starts[1 : n + 1])
        self.words.values[:n] = old.values[:n]

    def by_column(self) -> dict[int, list[int]]:
        """Return the entries of each column that has some, in the order in which they were entered."""
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
        """Return the text of an entry as it stands in the source."""
        start, end = self.words.starts[entry : entry + 2].tolist()
        return self.words.text[start:end].tobytes()

    def text(self, entry: int) -> str:
        """Return the text of an entry.

        Raises
        ------
        UnicodeDecodeError
            It is not UTF-8.
        """
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
