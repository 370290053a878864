"""The growing hash table in which the parser of separated text looks words up."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Int32s, Ints, ULongs
from distls.workers.ingestion.parsing.decimal_kernels import load_word

ENTRIES, BYTES = 0, 1  # of `Words.size`

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Words(NamedTuple):
    """Open addressing with linear probing; entries are in the order of insertion."""

    slots: Int32s  # shape (a power of two,), entry + 1 or 0
    hashes: ULongs  # shape (n_entries,)
    keys: Ints  # shape (n_entries,); distinguishes equal texts of different columns
    lines: Ints  # shape (n_entries,); first occurrence
    starts: Ints  # shape (n_entries + 1,), into `text`
    values: Doubles  # shape (n_entries,); NaN: not known yet
    text: Bytes
    size: Ints  # shape (2,); entries, and bytes of their texts


@helper
def _word_before(text: Bytes, p: int, n: int) -> np.uint64:
    """Return the eight bytes at `p`, of which those from the n-th on are zero."""
    word = load_word(text, p)
    return word & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1)) if n < 8 else word


@helper
def word_hash(text: Bytes, start: int, end: int, key: int) -> np.uint64:
    """Hash text[start:end] eight bytes at a time; eight bytes behind it must be readable."""
    value = np.uint64(key + 1) * _MIX
    while start < end:
        value = (value ^ _word_before(text, start, end - start)) * _MIX
        value ^= value >> np.uint64(29)
        start += 8
    return value


@helper
def _same(words: Words, entry: int, text: Bytes, start: int, end: int) -> bool:
    at = words.starts[entry]
    if words.starts[entry + 1] - at != end - start:
        return False
    for p in range(start, end, 8):
        if _word_before(words.text, at + p - start, end - p) != _word_before(text, p, end - p):
            return False
    return True


@helper
def find_word(words: Words, value: np.uint64, key: int, text: Bytes, start: int, end: int) -> Any:
    """Return (entry or -1, slot where it is or belongs) of the word text[start:end] with the hash `value`."""
    mask = len(words.slots) - 1
    slot = np.int64(value >> np.uint64(20)) & mask
    while words.slots[slot]:
        entry = np.int64(words.slots[slot]) - 1
        known = words.hashes[entry] == value and words.keys[entry] == key
        if known and _same(words, entry, text, start, end):
            return entry, slot
        slot = (slot + 1) & mask
    return -1, slot


@helper
def has_room(words: Words, n_entries: int, n_bytes: int) -> bool:
    """Return whether `n_entries` more words of `n_bytes` in all fit in."""
    # eight bytes to spare, as word_hash reads behind the last word
    enough = words.size[ENTRIES] + n_entries <= len(words.keys)
    return enough and words.size[BYTES] + n_bytes + 8 <= len(words.text)


@helper
def insert_word(
    words: Words, slot: int, value: np.uint64, key: int, line: int, text: Bytes, start: int, end: int
) -> int:
    """Insert a new word at its slot; return its entry."""
    entry, at = words.size[ENTRIES], words.size[BYTES]
    for k in range(end - start):
        words.text[at + k] = text[start + k]
    words.slots[slot] = np.int32(entry + 1)
    words.hashes[entry], words.keys[entry] = value, key
    words.starts[entry], words.starts[entry + 1] = at, at + end - start
    words.values[entry], words.lines[entry] = np.nan, line
    words.size[ENTRIES], words.size[BYTES] = entry + 1, at + end - start
    return entry


@kernel
def insert_words(words: Words, keys: Ints, lines: Ints, text: Bytes, ends: Ints) -> None:
    """Insert new words, concatenated in `text` (and eight bytes more), into a table with room for them."""
    start = 0
    for k in range(len(keys)):
        value = word_hash(text, start, ends[k], keys[k])
        _, slot = find_word(words, value, keys[k], text, start, ends[k])
        insert_word(words, slot, value, keys[k], lines[k], text, start, ends[k])
        start = ends[k]


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
        yield from np.flatnonzero(np.isnan(self.words.values[: len(self)])).tolist()

    def raw(self, entry: int) -> bytes:
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
