"""The columns of a table, and the features they become: a number is one, a category is one for each of its values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from distls.workers.ingestion.records.batch import ReadOptions

__all__ = ["MISSING", "Feature", "TableOptions", "feature_names", "first_columns", "is_number", "is_word"]

# Texts that stand for no value; the parser of separated text knows them too.
MISSING = ("", "?", "NA", "NaN", "nan")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


@dataclass(frozen=True)
class Feature:
    """A column of a table and the features it becomes."""

    name: str
    # its values, sorted: a feature each, which is 1 where the column has that value. None: the column is a
    # number.
    categories: tuple[str, ...] | None = None
    width: int = 0  # features of a column of lists of numbers; 0: it has no lists
    # the column that says which features the numbers of a list are; empty: the first, the second and so on of
    # all, so that every list has this length
    indices: str = ""

    @property
    def size(self) -> int:
        """Features."""
        return len(self.categories) if self.categories is not None else max(self.width, 1)

    def names(self) -> Iterator[str]:
        """Yield the names of its features: ``age``, ``service=http``, ``embedding[0]``."""
        if self.categories is not None:
            yield from (f"{self.name}={category}" for category in self.categories)
        elif self.width:
            yield from (f"{self.name}[{k}]" for k in range(self.width))
        else:
            yield self.name

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes."""
        value: dict[str, Any] = {"name": self.name}
        if self.categories is not None:
            value["categories"] = list(self.categories)
        if self.width:
            value["width"] = self.width
        if self.indices:
            value["indices"] = self.indices
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Feature:
        """Undo `to_json`."""
        categories = value.get("categories")
        return cls(
            value["name"],
            None if categories is None else tuple(categories),
            value.get("width", 0),
            value.get("indices", ""),
        )


@dataclass(frozen=True)
class TableOptions(ReadOptions):
    """What the columns of a table are."""

    columns: tuple[str, ...] = ()  # names of all columns, in the order of the source
    # label, weight: their columns; empty: there is none
    label: str = ""
    weight: str = ""
    label_words: bool = False  # some labels are not numbers
    features: tuple[Feature, ...] = ()  # in the order of the features
    na: str = ""  # the number that missing values stand for; empty: they are refused

    @property
    def dense(self) -> bool:
        """Whether no feature is a category, or one of few that a row names."""
        return all(feature.categories is None and not feature.indices for feature in self.features)


def first_columns(features: Iterable[Feature]) -> list[int]:
    """Return the number of the first feature of each column, and of all features."""
    return [0, *accumulate(feature.size for feature in features)]


def feature_names(features: Sequence[Feature]) -> tuple[str, ...]:
    """Return the names of all features; none where some are only numbered."""
    if any(feature.indices for feature in features):
        return ()
    return tuple(name for feature in features for name in feature.names())


def is_number(text: str) -> bool:
    """Return whether a text is a finite number in decimal notation."""
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def is_word(text: str) -> bool:
    """Return whether a text makes its column a category: neither number, nor infinity, nor missing."""
    return text not in MISSING and not _NUMBER.fullmatch(text) and not _INFINITY.fullmatch(text)
