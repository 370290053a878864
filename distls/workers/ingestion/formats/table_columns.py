"""Columns of a table and their features: one for a number, one for each value of a category."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from distls.storage.dataset.metadata import Width
from distls.workers.ingestion.records.record_batch import ReadOptions

# Texts that stand for no value; the parser of separated text knows them too.
MISSING = ("", "?", "NA", "NaN", "nan")

_TRUTHS = ("true", "false")  # of a column without other words: the numbers 1 and 0

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# 2024-01-31, 31.1.2024, 1/31/24, with or without a time
_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d\d))([T ].*)?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)


class Feature(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a table and the features it becomes; the recipe of a source has it as JSON."""

    name: str
    categories: tuple[str, ...] | None = None  # sorted values, each an indicator feature; None: a number
    width: Width = 0  # features of a column of lists; 0: it has no lists
    indices: str = ""  # column of the indices of sparse rows; empty: all lists have `width` numbers

    @property
    def size(self) -> int:
        """Number of features."""
        return len(self.categories) if self.categories is not None else max(self.width, 1)

    def names(self) -> Iterator[str]:
        """Yield the names of its features: ``age``, ``service=http``, ``embedding[0]``."""
        if self.categories is not None:
            yield from (f"{self.name}={category}" for category in self.categories)
        elif self.width:
            yield from (f"{self.name}[{k}]" for k in range(self.width))
        else:
            yield self.name


@dataclass(frozen=True)
class TableOptions(ReadOptions):
    """Columns of a table and their roles."""

    columns: tuple[str, ...] = ()  # all names, in the order of the source
    label: str = ""  # column name, empty if there is none
    weight: str = ""  # likewise
    label_words: bool = False  # some labels are not numbers
    features: tuple[Feature, ...] = ()  # categories=() before the survey: values are to be collected
    na: str = ""  # value of missing fields; empty: they are refused

    @property
    def dense(self) -> bool:
        """Whether no feature is a category or comes from sparse rows."""
        return all(feature.categories is None and not feature.indices for feature in self.features)


def first_columns(features: Iterable[Feature]) -> list[int]:
    """Return the first feature of each column, then the number of features."""
    return [0, *accumulate(feature.size for feature in features)]


def feature_names(features: Sequence[Feature]) -> tuple[str, ...]:
    """Return the names of all features, empty if some are only numbered."""
    if any(feature.indices for feature in features):
        return ()
    return tuple(name for feature in features for name in feature.names())


def are_documents(values: Iterable[str]) -> bool:
    """Return whether most texts have several words, as documents have and categories have not."""
    counts = [len(value.split()) for value in values]
    return 2 * sum(count > 3 for count in counts) > len(counts)


def spelled_truths(categories: Sequence[str]) -> tuple[str, str]:
    """Return how categories spell false and true: as CSV files of pandas do, or as Arrow."""
    return ("False", "True") if {"False", "True"} & {*categories} else ("false", "true")


def is_date(text: str) -> bool:
    """Return whether a text is a date in digits."""
    return _DATE.fullmatch(text.strip()) is not None


def is_number(text: str) -> bool:
    """Return whether a text is a finite number in decimal notation."""
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def is_word(text: str) -> bool:
    """Return whether a text makes its column a category: neither number, boolean, infinity, nor missing."""
    return (
        text not in MISSING
        and text.lower() not in _TRUTHS
        and not _NUMBER.fullmatch(text)
        and not _INFINITY.fullmatch(text)
    )
