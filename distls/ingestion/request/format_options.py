"""Options of an input format: dataclasses that declare each option once, for Python and the command line."""

import codecs
import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from distls.storage.errors import ParameterError
from distls.workers.ingestion.formats.table_columns import LONGEST_MARKER, WordSteps, is_number
from distls.workers.ingestion.row_rules import DROPPED

T = TypeVar("T")
KINDS = ("number", "category", "text", "date", "duration", "set", "hash", "id", "weight", "label", "ignore")
# of one column: of numbers before those of all, of documents in their place
_TRANSFORMS = {"number": ("log1p", "none"), "text": ("tfidf", "none", *get_args(WordSteps))}
_WRITTEN = {"\\t": "\t", "tab": "\t", "space": " "}
_YES_NO = ("yes", "no")


@dataclass(frozen=True)
class OptionInfo:
    """Description of an option besides its type and default."""

    help: str  # one line, for the command line
    metavar: str = ""
    choices: tuple[str, ...] = ()  # empty: any value
    bounds: tuple[int, int] | None = None  # inclusive
    flag: str = ""  # of a boolean: its spelling, as in ``--binary`` or ``--lowercase/--no-lowercase``
    repeated: bool = False  # it may be given several times
    fitted: bool = False  # it makes the features, so that data read like others have theirs
    # to the stored form; idempotent, as options that were given by name are parsed twice
    parse: Callable[[Any], Any] | None = None

    def checked(self, name: str, value: Any) -> Any:
        """Return the value in its stored form, or raise ParameterError."""
        value = value if value is None or self.parse is None else self.parse(value)
        if value is not None and self.choices and value not in self.choices:
            raise ParameterError(f"{name} must be one of {', '.join(self.choices)}, not {value!r}")
        if value is not None and self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            raise ParameterError(f"{name} must be from {self.bounds[0]} to {self.bounds[1]}, not {value}")
        return value


def yes_or_no(given: bool | str) -> str:
    """Return "yes" or "no" for a boolean, other words unchanged."""
    return {True: "yes", False: "no"}[given] if isinstance(given, bool) else given


def absolute_path(given: str | Path) -> str:
    """Return the absolute path, which stays valid when the current folder changes."""
    return str(Path(given).absolute())


def checked_separator(text: str) -> str:
    """Return a separator as one character; raise ParameterError if it could be part of a number or a quoted field."""
    separator = _WRITTEN.get(text, text)
    if len(separator) != 1 or not separator.isascii() or separator.isalnum() or separator in '"+-.\r\n':
        rest = f"digit, quote, sign or point, not {text!r}"
        raise ParameterError(f"separator must be one character that is no letter, {rest}")
    return separator


def drop_kinds(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of rows to leave out, in the order of `DROPPED`."""
    kinds = {kind.strip() for kind in (given.split(",") if isinstance(given, str) else given)} - {""}
    if unknown := sorted(kinds - {*DROPPED}):
        raise ParameterError(f"drop takes {', '.join(DROPPED)}, not {', '.join(unknown)}")
    return tuple(kind for kind in DROPPED if kind in kinds)


def column_list(given: str | int | Sequence[str | int]) -> tuple[str | int, ...]:
    """Turn a line of CSV such as ``"id,name"``, or a sequence, into column names and positions."""
    if isinstance(given, str):
        try:
            return tuple(name.strip() for name in next(csv.reader([given], skipinitialspace=True), []))
        except csv.Error:  # no line of CSV: one name, of several lines or very long
            return (given,)
    return (given,) if isinstance(given, int) else tuple(given)


def label_names(given: str | int | Sequence[str | int] | None) -> tuple[str | int, ...]:
    """Return the names that columns of labels may have: of a text the whole, and what is between its commas."""
    if given is None or isinstance(given, int):
        return () if given is None else (given,)
    several = column_list(given)
    return (given, *several) if isinstance(given, str) and len(several) > 1 else several


class Pairs(tuple[str, ...]):
    """Texts ``NAME=VALUE``, whose names may have commas."""


def pair_list(given: str | Mapping[str, str] | Sequence[str]) -> Pairs:
    """Turn a line of CSV such as ``"a=text,b=date"``, several of them, or a mapping into pairs."""
    if isinstance(given, Mapping):
        return Pairs(f"{name}={value}" for name, value in given.items())
    if isinstance(given, Pairs):
        return given
    lines = [given] if isinstance(given, str) else given
    return Pairs(str(part) for line in lines for part in column_list(line))


def encoding_name(given: str) -> str:
    """Return Python's name of an encoding of text."""
    try:
        found = codecs.lookup(given)
        "a".encode(given)  # raises for those that are of bytes
    except (LookupError, ValueError):
        rest = f"such as utf-8, cp1252, latin-1 or utf-16, not {given!r}"
        raise ParameterError(f"encoding must be one that Python knows, {rest}") from None
    return found.name


def ngram_range(given: str | int | Sequence[int]) -> tuple[int, int]:
    """Turn ``"1,2"``, ``(1, 2)`` or ``2`` (as ``(2, 2)``) into shortest and longest."""
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else given
    try:
        shortest, longest = int(parts[0]), int(parts[-1])
    except (IndexError, TypeError, ValueError):
        shortest = longest = 0
    if not 1 <= shortest <= longest or len(parts) > 2:
        raise ParameterError(f"ngrams are the shortest and the longest, as in 1,2; {given!r} was given")
    return shortest, longest


def marker_list(given: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Turn a line of CSV such as ``"-,-999"``, a number or a sequence into texts that stand for no value."""
    several = column_list(given) if isinstance(given, str) else given
    several = [several] if isinstance(several, (int, float)) else several
    markers = tuple(str(marker).strip() for marker in several)
    if any(len(marker) > LONGEST_MARKER for marker in markers):
        raise ParameterError(f"na_values have at most {LONGEST_MARKER} characters")
    return markers


def decimal_number(given: str | float) -> str:
    """Return the number as text: the recipe compares it literally."""
    text = str(given).strip()
    if not is_number(text):
        raise ParameterError(f"na must be the number that missing values stand for, not {given!r}")
    return text


def option(default: T, info: OptionInfo, *, kw_only: bool = False) -> T:
    """Declare an option: a field of a subclass of `FormatOptions`."""
    return field(default=default, metadata={"info": info}, kw_only=kw_only)


_LABELS = "Labels in a file: idx, npy, or text with one a line, ID LABEL, or LABEL ID 1."
LABELS = OptionInfo(_LABELS, "PATH", parse=absolute_path)


LABEL_MAP = OptionInfo("File of labels and what they become: pairs, or a tree.", "PATH", parse=absolute_path)
LABEL_LEVEL = OptionInfo("Level of the tree of labels, or parts of A/B/C, to keep.", bounds=(1, 99))
DROP = OptionInfo("Rows to leave out: several, unknown, empty.", "A,B,...", parse=drop_kinds)


@dataclass(frozen=True)
class FormatOptions:
    """Base of the options of a format, all declared with `option` and checked on construction.

    Attributes
    ----------
    labels : path, optional
        File with the labels: IDX, npy, or text with a label for each row in order; where rows have ids (`id_column`)
        lines ``ID LABEL``, or ``LABEL ID 1`` as the relevance judgements of TREC, several for a row with several.
    label_map : path, optional
        What becomes of labels: lines ``LABEL OTHER``, ``parent: OTHER child: LABEL``, or the structure of DMOZ.
    label_level : int, optional
        Replace labels by their ancestors at this level of the tree in `label_map`; without one, of labels that are
        paths ``A/B/C`` keep so many parts. 1 is the level below the root.
    drop : sequence of {"several", "unknown", "empty"}, optional
        Leave out rows with several labels; with none that is known (in `labels`, `label_map`, the data of `like`);
        without features.
    """

    labels: str | Path | None = option(None, LABELS, kw_only=True)  # noqa: RUF009 - a call that returns a field
    label_map: str | Path | None = option(None, LABEL_MAP, kw_only=True)  # noqa: RUF009
    label_level: int | None = option(None, LABEL_LEVEL, kw_only=True)
    drop: Sequence[str] = option((), DROP, kw_only=True)

    def __post_init__(self) -> None:
        for name, info in self.infos().items():
            # the dataclass is frozen
            object.__setattr__(self, name, info.checked(name, vars(self)[name]))

    @classmethod
    def infos(cls) -> dict[str, OptionInfo]:
        """Return the description of each option, by name."""
        return {entry.name: entry.metadata["info"] for entry in fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Return the default of each option, by name."""
        return {entry.name: entry.default for entry in fields(cls)}

    def given(self) -> Mapping[str, object]:
        """Return the options that are not left at their defaults."""
        defaults = self.defaults()
        return {name: value for name, value in vars(self).items() if value != defaults[name]}


_NA_VALUES = "Further texts that stand for no value, such as -999; !None: that is one."
NA_VALUES = OptionInfo(_NA_VALUES, "A,B,...", parse=marker_list)


@dataclass(frozen=True)
class TextFile(FormatOptions):
    """Options of all formats of text."""

    encoding: str | None = option(
        None, OptionInfo("Of text files, such as cp1252; default: utf-8, or as a mark says.", parse=encoding_name)
    )


@dataclass(frozen=True)
class SeparatedText(TextFile):
    """Options of separated text, see `CsvOptions`."""

    separator: str | None = option(None, OptionInfo("csv: a character, tab or space; default: detected."))
    header: str | bool | None = option(
        None, OptionInfo("csv: first line names columns; default: detected.", choices=_YES_NO, parse=yes_or_no)
    )
    decimal: str | None = option(
        None, OptionInfo('csv: decimal mark, "." or ","; default: detected.', choices=(".", ","))
    )


# in vw text the id is the tag, in svmlight text the comment after #
ID_COLUMN = OptionInfo("The id of a row, for predictions; vw: tag, svmlight: comment.", "COLUMN")


# in svmlight text, the weight stands behind the label
WEIGHT_COLUMN = OptionInfo("The sample weight; svmlight: label, in LABEL:WEIGHT.", "COLUMN")


@dataclass(frozen=True)
class LabelColumn(FormatOptions):
    """Options of sources with named columns or fields."""

    label_column: str | int | Sequence[str | int] | None = option(
        None, OptionInfo("Name, position or last, A,B: several targets; JSON: default label, ...", "COLUMN")
    )
    weight_column: str | int | None = option(None, WEIGHT_COLUMN)


def _hashed(text: str, **facts: Any) -> OptionInfo:
    return OptionInfo(f"Raw text: {text}", fitted=True, **facts)


@dataclass(frozen=True)
class HashedWords(FormatOptions):
    """Options of documents, whose words are hashed; see `DocumentOptions`."""

    ngrams: str | Sequence[int] | None = option(
        None, _hashed("runs of words or characters; default 1,1.", metavar="MIN,MAX", parse=ngram_range)
    )
    analyzer: str | None = option(None, _hashed("default word.", choices=("word", "char", "char_wb")))
    lowercase: bool | None = option(None, _hashed("default yes.", flag="--lowercase/--no-lowercase"))
    alternate_sign: bool | None = option(
        None, _hashed("alternate the sign of hashed features.", flag="--alternate-sign")
    )
    binary: bool | None = option(None, _hashed("ones instead of counts.", flag="--binary"))


_NA = "Number that missing values stand for; default: refused, unless imputed."
_KIND = f"Kind of a column: {', '.join(KINDS)}; default: found."
_IMPUTE = "Missing values: median, mean, most_frequent, constant:X, each maybe +indicator, category, refuse."


def _of_columns(text: str, metavar: str) -> OptionInfo:
    return OptionInfo(text, metavar, fitted=True, repeated=True, parse=pair_list)


@dataclass(frozen=True)
class TableColumns(LabelColumn, HashedWords):
    """Options of tables; see `CsvOptions`."""

    @property
    def named(self) -> set[str | int | None]:
        """Columns that an option names, by name or by position."""
        others = self.weight_column, self.id_column, *self.categorical, *self.ignore_columns
        return {*label_names(self.label_column), *others}

    ignore_columns: Sequence[str | int] = option(
        (), OptionInfo("Columns of a table to leave out.", "A,B,...", parse=column_list)
    )
    categorical: Sequence[str | int] = option(
        (), OptionInfo("Columns to take as categories.", "A,B,...", fitted=True, parse=column_list)
    )
    id_column: str | int | None = option(None, ID_COLUMN)
    na: str | float | None = option(None, OptionInfo(_NA, "VALUE", parse=decimal_number))
    na_values: Sequence[str] = option((), NA_VALUES)
    kind: Sequence[str] = option((), _of_columns(_KIND, "NAME=KIND"))
    impute: Sequence[str] = option((), _of_columns(_IMPUTE, "[NAME=]HOW"))


def position_of(wanted: str | int) -> int | None:
    """Return the position by which an option may name a column, None for a name."""
    try:
        return -1 if wanted == "last" else int(wanted)
    except (TypeError, ValueError):
        return None


def declared_kinds(given: Sequence[str], find: Any) -> dict[str, tuple[str, str]]:
    """Return the kind of each column that the option names, and the mark of its sets: ``NAME=KIND``, ``tags=set:|``."""
    kinds, before = {}, ""
    for entry in given:
        if "=" not in entry and given[-1] is not entry:  # the start of a name with a comma
            before += f"{entry},"
            continue
        name, equals, rest = (before + entry).rpartition("=")
        before = ""
        kind, _, style = rest.partition(":")
        if not equals or kind not in KINDS:
            raise ParameterError(f"kind is NAME=KIND with one of {', '.join(KINDS)}, not {entry!r}")
        if kind == "duration" and not style:
            kind, style = "date", kind
        dated = kind == "date" and style in ("", "dmy", "mdy", "time", "duration")
        if kind in ("date", "duration") and not dated:
            raise ParameterError(f"the kind of dates is date, date:dmy, date:mdy, date:time or duration, not {entry!r}")
        # a set may have any mark but the name of a transform
        known = ("", *_TRANSFORMS.get(kind, ()))
        if style not in known and (kind not in ("date", "set") or style in _TRANSFORMS["text"]):
            raise ParameterError(
                f"kind {kind} has no transform {style!r}: numbers have number:log1p and number:none, documents "
                "text:tfidf, text:none, and some of log1p, idf and l2norm in this order, as text:log1p+l2norm"
            )
        style = "idf+l2norm" if style == "tfidf" else style
        spaced = name.replace(",", ", ")  # as it may have been given
        kinds[find("kind", spaced if spaced in find.names else name)] = kind, style
    return kinds
