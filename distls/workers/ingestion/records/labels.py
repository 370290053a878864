"""Labels as text: numbers by value, words by their hash until the classes are known.

A row record has a float64 for each label. A word is represented by the first 53 bits of the BLAKE2b hash of its UTF-8
bytes, a whole number that is exact in float64; the facts of a chunk map these to words. A label that reads as a number
is that number, even among words, so that ``7``, ``7.0`` and ``+7`` are one class. Numbers that float64 does not keep,
with leading zeros or more than 15 digits (16 up to 2**53), are words: they are mostly codes.
"""

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distls.storage.dataset.metadata import Label
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Ints
from distls.workers.ingestion.records.messages import EMPTY_LABEL

_SIXTEEN = re.compile(r"[+-]?[1-9][0-9]{15}")
_EXACT = 2**53  # float64 has all whole numbers up to here
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def alike(values: Iterable[Any]) -> str:
    """Return the first values that differ in case, blanks or the form of Unicode only, for a message."""
    first: dict[str, Any] = {}
    for value in values:
        # a byte order mark where files were joined is not seen either
        seen = unicodedata.normalize("NFKC", str(value)).replace("\ufeff", "").casefold()
        if first.setdefault(key := " ".join(seen.split()), value) != value:
            return f'"{first[key]}" and "{value}"'
    return ""


def label_value(label: Label) -> float:
    """Return the value of a label in a row record."""
    if not isinstance(label, str):
        return float(label)
    number = _number(label)
    return _hash(label) if number is None else number


def class_values(classes: Sequence[Label]) -> Doubles:
    """Return the values of classes in records, shape (n_spellings, n_classes).

    Two truths have several spellings: files of text have them as words, frames and Arrow as values, others as 1 and 0.
    """
    spellings: list[Sequence[Label]] = [classes]
    names = [str(label).lower() for label in classes]
    if {*names} in ({"0", "1"}, {"false", "true"}) and len(names) == 2:
        spelled = (("false", "true"), ("False", "True"), ("FALSE", "TRUE"))
        pairs: tuple[tuple[Label, Label], ...] = ((0, 1), *spelled)
        spellings += [[pair[name in ("1", "true")] for name in names] for pair in pairs]
    return np.array([[label_value(label) for label in each] for each in spellings], dtype=np.float64)


def number_label(value: float) -> int | float:
    """Return a number as a class: a whole one as an integer."""
    return int(value) if value == int(value) else value


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        return float(text) if _SIXTEEN.fullmatch(text) and abs(int(text)) <= _EXACT else None
    # Both zeros are one class.
    return value + 0.0  # -0 is 0


def _hash(word: str) -> float:
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    # 53 bits: the largest whole numbers that float64 holds exactly.
    return float(int.from_bytes(digest, "big") >> 11)


def label_fault(label: str) -> str:
    """Return why a text cannot be a label, empty if it can."""
    if not label:
        return EMPTY_LABEL
    return "" if is_encodable(label) else "the label has a lone surrogate, which is no character"


def is_encodable(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8."""
    try:  # JSON and NumPy may give half a pair of surrogates
        # UTF-8 decides, as models store their classes so.
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def value_labels(labels: Iterable[str]) -> tuple[Doubles, dict[float, str]]:
    """Return the values of labels without faults, shape (n_labels,), and the words among them by value."""
    labels = list(labels)
    value_of: dict[str, float] = {}
    words: dict[float, str] = {}
    # Distinct labels only: a column has few of them, and many rows.
    for label in dict.fromkeys(labels):
        number = _number(label)
        value_of[label] = _hash(label) if number is None else number
        if number is None:
            check_one_name(words.setdefault(value_of[label], label), label)
    # A number may be the hash of a word, however unlikely.
    for label, value in value_of.items():
        check_one_name(words.get(value, label), label)
    return np.fromiter(map(value_of.__getitem__, labels), np.float64, len(labels)), words


def whole_labels(values: Array) -> tuple[Doubles, dict[float, str]]:
    """Return the values of whole numbers in records, and those beyond float64, which are words, by value."""
    found = values.astype(np.float64)
    beyond = np.abs(found) >= _EXACT
    # 2**53 itself may be a rounded number
    beyond[beyond] = [not -_EXACT <= value <= _EXACT for value in values[beyond].tolist()]
    if not beyond.any():
        return found, {}
    names, places = np.unique(values[beyond], return_inverse=True)
    hashes, words = value_labels(map(str, names.tolist()))
    found[beyond] = hashes[places]
    return found, words


def check_one_name(first: str, second: str) -> None:
    """Raise BadInputError if two labels with one hash are different."""
    if first != second:
        remedy = "write one of them differently"
        raise BadInputError(f'the labels "{first}" and "{second}" have the same hash; {remedy}')


_SETS = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class LabelSets:
    """The labels of each row, one row after another."""

    ends: Ints  # shape (n_rows + 1,), from 0
    labels: Array  # shape (n_labels,); whole numbers or str
    known: tuple[Any, ...] = ()  # all there are, also those that no row has

    def __len__(self) -> int:
        return len(self.ends) - 1

    def rows(self, first: int, stop: int) -> tuple[Array, Ints]:
        ends = self.ends[first : stop + 1]
        return self.labels[ends[0] : ends[-1]], ends - ends[0]


def label_sets(y: Any, asked: bool) -> LabelSets | None:
    """Return sets of labels as scikit-learn's `type_of_target` knows them, and lists of labels; None for others.

    Sets are a matrix of 0 and 1, dense or sparse, a column a label, or a list (tuple, set) for each row. Raises
    BadInputError if they are `asked` for, and are none of these, or a label is no whole number and no word.
    """
    if hasattr(y, "tocsr"):
        return _of_matrix(y.tocsr())
    names = [str(name) for name in getattr(y, "columns", ())]
    values = _as_array(y)
    is_matrix = values is not None and values.ndim == 2 and values.dtype.kind in "fiub"
    if values is not None and is_matrix and (asked or values.shape[1] > 1) and np.isin(values, (0, 1)).all():
        rows, columns = np.nonzero(values)
        return _sets(np.bincount(rows, minlength=len(values)), columns, names or range(values.shape[1]))
    listed = values is not None and values.ndim == 1 and values.dtype == object  # a Series of lists
    lists: Any = y if isinstance(y, (list, tuple)) else values if listed else ()
    if len(lists) and all(isinstance(row, _SETS) for row in lists) and (asked or not is_matrix):
        return _of_lists(lists)
    if asked:
        rest = "or a list of labels for each row"
        raise BadInputError(f"y: sets of labels are a matrix of 0 and 1 with a column for each, {rest}")
    return None


def _as_array(y: Any) -> Array | None:
    """Return the values as an array; None for rows of different lengths."""
    try:
        return np.asarray(y)
    except ValueError:
        return None


def _of_matrix(matrix: Any) -> LabelSets:
    matrix.eliminate_zeros()
    if not (matrix.data == 1).all():
        raise BadInputError("y: a sparse matrix of sets of labels has ones, and no other numbers")
    return _sets(np.diff(matrix.indptr), matrix.indices, range(matrix.shape[1]))


def _sets(counts: Array, columns: Array, names: Any) -> LabelSets:
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return LabelSets(ends, np.array(names)[columns], tuple(names))


def _of_lists(lists: Any) -> LabelSets:
    # a label that is given twice counts once
    rows = [[*dict.fromkeys(row.tolist() if isinstance(row, np.ndarray) else row)] for row in lists]
    flat = [label for row in rows for label in row]
    words = any(isinstance(label, str) for label in flat)
    for label in {*map(str, flat)} if words else ():
        if fault := label_fault(label):
            raise BadInputError(f"y: {fault}")
    labels = np.array([str(label) for label in flat] if words else flat, dtype=None if flat else np.int64)
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise BadInputError("y: the labels of a row are whole numbers or words")
    counts = [len(row) for row in rows]
    return LabelSets(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), labels)
