"""Columns of a table and their features: one for a number, one for each value of a category."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Annotated, Literal

import msgspec

from distls.storage.dataset.metadata import Width
from distls.storage.errors import BadInputError
from distls.storage.filesystem.safe_read import LARGEST_JSON
from distls.workers.ingestion.records.record_batch import ReadOptions

# Texts that stand for no value: those of pandas' read_csv, the one of SQL dumps, and a question mark.
MISSING: tuple[str, ...] = (
    "",
    "?",
    "\\N",
    "NA",
    "N/A",
    "n/a",
    "NULL",
    "null",
    "None",
    "NaN",
    "nan",
    "-NaN",
    "-nan",
    "<NA>",
    "#NA",
    "#N/A",
    "#N/A N/A",
    "1.#IND",
    "-1.#IND",
    "1.#QNAN",
    "-1.#QNAN",
)
# One ASCII character, as `checked_separator` in the driver asks for.
SEPARATORS = r"^[\x01-\x09\x0b\x0c\x0e-!#-*,/:-@\[-`{-\x7f]\Z"
# with the shortest names that so many can have in the metadata of a data set
MOST_COLUMNS = LARGEST_JSON // 51
LONGEST_MARKER = 60  # characters, so that UTF-8 has at most 255 bytes

_TRUTHS = ("true", "false")  # of a column without other words: the numbers 1 and 0

_WHOLE = re.compile(r"[+-]?[0-9]+(\.0)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_COMMA_NUMBER = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]*)(,[0-9]*)?([eE][+-]?[0-9]+)?")


def check_count(count: int, path: str) -> None:
    """Raise BadInputError for so many columns that no data set can name them."""
    if count > MOST_COLUMNS:
        raise too_many_columns(count, f"{path}: ")


def too_many_columns(count: int, where: str) -> BadInputError:
    """Return what is raised for a table whose columns no data set can name."""
    return BadInputError(
        f"{where}{count:,} columns, whose names need more than {LARGEST_JSON // 2**20} MiB of metadata; write rows "
        "with few values as svmlight text, whose columns are numbers"
    )


class Dialect(msgspec.Struct, frozen=True):
    """How the values of a table are written; the recipe of a source has it as JSON."""

    separator: Annotated[str, msgspec.Meta(pattern=SEPARATORS)] = ","
    header: bool = False  # the first line of each file names the columns
    decimal: Literal[".", ","] = "."  # with a comma, points may stand between thousands
    missing: tuple[Annotated[str, msgspec.Meta(max_length=LONGEST_MARKER)], ...] = MISSING

    def plain(self, text: str) -> str:
        """Return a number with a point for decimals, other texts unchanged."""
        if self.decimal == ".":
            return text
        # any other point makes it no number
        is_number = _COMMA_NUMBER.fullmatch(text)
        return text.replace(".", "").replace(",", ".") if is_number else text.replace(".", "?")

    def is_missing(self, text: str) -> bool:
        number = self.plain(text)
        return text in self.missing or (is_number(number) and float(number) in self.numbers)

    def is_word(self, text: str) -> bool:
        """Return whether a text makes its column a category: neither number, boolean, infinity, nor missing."""
        return (
            text not in self.missing
            and text.lower() not in _TRUTHS
            and not _NUMBER.fullmatch(self.plain(text))
            and not _INFINITY.fullmatch(text)
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """Return the numbers that stand for no value."""
        return tuple(float(self.plain(text)) for text in self.missing if is_number(self.plain(text)))


COMMON = Dialect()


def in_decimals(dialect: Dialect, mark: str) -> Dialect:
    """Return a dialect for a column with a decimal mark of its own, if it has one."""
    return msgspec.structs.replace(dialect, decimal=mark) if mark else dialect


# What words of a column go through instead of the transforms of all, in this order.
WordSteps = Literal["log1p", "idf", "l2norm", "log1p+idf", "log1p+l2norm", "idf+l2norm", "log1p+idf+l2norm"]
WORD_STEPS = ("log1p", "idf", "l2norm")

# Features of a date: days since 2000 and the position in the year, the week and, of times, the day.
DATE_PARTS = ("days", "year sin", "year cos", "week sin", "week cos", "day sin", "day cos")


class Words(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the words of documents are hashed, as scikit-learn's HashingVectorizer does it."""

    ngrams: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**16)], int] = (1, 1)  # shortest and longest run
    analyzer: Literal["word", "char", "char_wb"] = "word"
    lowercase: bool = True
    alternate_sign: bool = False  # hash collisions cancel out on average
    binary: bool = False  # ones instead of counts


class Feature(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a table and the features it becomes; the recipe of a source has it as JSON."""

    name: str
    categories: tuple[str, ...] | None = None  # sorted values, each an indicator feature; None: a number
    width: Width = 0  # features of a column of lists, or of a `kind`; 0: it has no lists
    indices: str = ""  # column of the indices of sparse rows; empty: all lists have `width` numbers
    # what is neither a number nor a category: documents, dates, sets of categories, hashed categories, or numbers
    # with marks of thousands, percent or currency
    kind: Literal["", "text", "date", "set", "hash", "marked"] = ""
    impute: str = ""  # what missing values become, as the option has it; empty: they are refused
    words: Words | None = None  # of documents
    # of a number, what comes before the transforms of all, or that there is none for it; of documents, what takes the
    # place of the transforms of all
    transform: Literal["", "none", WordSteps] = ""
    # of dates the order of day, month and year, of sets the mark between values, of numbers the decimal comma
    style: str = ""

    @property
    def size(self) -> int:
        return len(self.categories) if self.categories is not None else max(self.width, 1)

    @property
    def is_dense(self) -> bool:
        """Whether every row has a number for each of its features."""
        return self.categories is None and not self.indices and self.kind in ("", "date", "marked")

    def names(self) -> Iterator[str]:
        """Yield the names of its features: ``age``, ``service=http``, ``embedding[0]``, ``signup[days]``."""
        if self.categories is not None:
            yield from (f"{self.name}={category}" for category in self.categories)
        elif self.kind == "date":
            parts = DATE_PARTS[-2:] if self.style == "time" else DATE_PARTS[: self.width]
            parts = ("seconds",) if self.style == "duration" else parts
            yield from (f"{self.name}[{part}]" for part in parts)
        elif self.width:
            yield from (f"{self.name}[{k}]" for k in range(self.width))
        else:
            yield self.name


@dataclass(frozen=True)
class TableOptions(ReadOptions):
    """Columns of a table and their roles."""

    columns: tuple[str, ...] = ()  # all names, in the order of the source
    label: str = ""  # column name, empty if there is none
    more_labels: tuple[str, ...] = ()  # of several targets, which are numbers, those after the first
    weight: str = ""  # likewise
    label_words: bool = False  # some labels are not numbers
    features: tuple[Feature, ...] = ()  # categories=() before the survey: values are to be collected
    guessed: frozenset[str] = frozenset()  # columns of features whose kind nobody declared
    coded: frozenset[str] = frozenset()  # those with numbers that begin with zeros, as far as is known
    na: str = ""  # value of missing fields; empty: they are refused
    dialect: Dialect = COMMON
    line_breaks: bool = False  # some fields have them
    source: Literal["", "csv", "json"] = ""  # text that is read by records, whose fields may be anything

    @property
    def dense(self) -> bool:
        """Whether no feature is a category or comes from sparse rows."""
        return all(feature.is_dense for feature in self.features)

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label, *self.more_labels) if self.label else ()

    @property
    def mixed(self) -> bool:
        """Whether some columns are neither numbers nor categories."""
        return any(feature.kind for feature in self.features)

    @property
    def by_records(self) -> bool:
        """Whether separated text is read by records, not by the kernel of numbers, categories and one label."""
        return self.source == "json" or self.line_breaks or self.mixed or bool(self.more_labels)

    @property
    def gaps(self) -> bool:
        """Whether some columns may lack values, which are imputed."""
        return any(feature.impute for feature in self.features)


# What recipes have behind training rows without a missing value: the category that they have most often.
USUAL = "most_frequent:"


def fills_usual(feature: Feature, na: str) -> bool:
    """Return whether a missing category is read as the usual one, and told, as training rows lacked none."""
    return not na and feature.categories is not None and feature.impute.startswith(USUAL)


def missing_category(feature: Feature, na: str) -> str | None:
    """Return the category that stands for a missing value, None if there is none and such rows are refused."""
    constant = feature.impute.removeprefix("constant:")
    if constant != feature.impute:
        return constant
    if fills_usual(feature, na):
        return feature.impute.removeprefix(USUAL)
    # the empty one is that of missing values, where the training data had any
    return na or ("" if "" in (feature.categories or ()) else None)


def first_columns(features: Iterable[Feature]) -> list[int]:
    """Return the first feature of each column, then the number of features."""
    return [0, *accumulate(feature.size for feature in features)]


def feature_names(features: Sequence[Feature]) -> tuple[str, ...]:
    """Return the names of all features, empty if some are only numbered."""
    if any(feature.indices for feature in features):
        return ()
    return tuple(name for feature in features for name in feature.names())


def text_ranges(features: Iterable[Feature]) -> list[list[int]]:
    """Return first and last column + 1 of each column of documents."""
    features = tuple(features)
    starts = zip(features, first_columns(features), strict=False)
    return [[start, start + feature.size] for feature, start in starts if feature.kind == "text"]


def dense_width(features: Sequence[Feature]) -> int:
    """Return the number of features of the leading columns of numbers."""
    return sum(feature.size for feature in takewhile(lambda feature: feature.is_dense, features))


def are_documents(values: Iterable[str]) -> bool:
    """Return whether most texts have several words, as documents have and categories have not."""
    counts = [len(value.split()) for value in values]
    return 2 * sum(count > 3 for count in counts) > len(counts)


def whole_twins(categories: Sequence[str]) -> dict[str, int]:
    """Return other spellings of whole numbers, ``1.0`` of ``1`` and the reverse, and the place of their category.

    Of truths too: CSV files have them as ``True`` or ``TRUE``, JSON and Arrow as ``true``.
    """
    known, found = {*categories}, {}
    if {*_TRUTHS} <= {text.lower() for text in categories}:
        forms = (str.lower, str.title, str.upper)
        spelled = ((form(text), k) for k, text in enumerate(categories) for form in forms)
        found = {text: k for text, k in spelled if text.lower() in _TRUTHS and text not in known}
    for place, text in enumerate(categories):
        if _WHOLE.fullmatch(text):
            # pandas writes whole numbers with a point where their column lacks values
            twin = text.removesuffix(".0") if text.endswith(".0") else f"{text}.0"
            if twin not in known:
                found[twin] = place
    return found


def spelled_truths(categories: Sequence[str]) -> tuple[str, str]:
    """Return how categories spell false and true: as CSV files of pandas do, or as Arrow."""
    return ("False", "True") if {"False", "True"} & {*categories} else ("false", "true")


def is_number(text: str) -> bool:
    """Return whether a text is a finite number in decimal notation."""
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))
