"""Options of an input format: dataclasses that declare each option once, for Python and the command line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from distls.storage.errors import ParameterError
from distls.workers.ingestion.formats.table_columns import LONGEST_MARKER, is_number

T = TypeVar("T")


@dataclass(frozen=True)
class OptionInfo:
    """Description of an option besides its type and default."""

    help: str  # one line, for the command line
    metavar: str = ""
    choices: tuple[str, ...] = ()  # empty: any value
    bounds: tuple[int, int] | None = None  # inclusive
    flag: str = ""  # of a boolean: its spelling, as in ``--binary`` or ``--lowercase/--no-lowercase``
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


def option(default: T, info: OptionInfo) -> T:
    """Declare an option: a field of a subclass of `FormatOptions`."""
    return field(default=default, metadata={"info": info})


@dataclass(frozen=True)
class FormatOptions:
    """Base of the options of a format, all declared with `option` and checked on construction."""

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


# -- parsers ---------------------------------------------------------------------------------------------


def yes_or_no(given: bool | str) -> str:
    """Return "yes" or "no" for a boolean, other words unchanged."""
    return {True: "yes", False: "no"}[given] if isinstance(given, bool) else given


def absolute_path(given: str | Path) -> str:
    """Return the absolute path, which stays valid when the current folder changes."""
    return str(Path(given).absolute())


def column_list(given: str | int | Sequence[str | int]) -> tuple[str | int, ...]:
    """Turn a line of CSV such as ``"id,name"``, or a sequence, into column names and positions."""
    if isinstance(given, str):
        return tuple(name.strip() for name in next(csv.reader([given], skipinitialspace=True), []))
    return (given,) if isinstance(given, int) else tuple(given)


def marker_list(given: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Turn a line of CSV such as ``"-,-999"``, a number or a sequence into texts that stand for no value."""
    several = (
        column_list(given)
        if isinstance(given, str)
        else [given]
        if isinstance(given, (int, float))
        else given
    )
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


# -- shared by several formats ---------------------------------------------------------------------------


SEPARATOR = OptionInfo("csv: a character, tab or space; default: detected.")
HEADER = OptionInfo(
    "csv: first line names columns; default: detected.", choices=("yes", "no"), parse=yes_or_no
)
DECIMAL = OptionInfo('csv: decimal mark, "." or ","; default: detected.', choices=(".", ","))
NA_VALUES = OptionInfo("Further texts that stand for no value, such as -999.", "A,B,...", parse=marker_list)


# in vw text the id is the tag, in svmlight text the comment after #
ID_COLUMN = OptionInfo("The id of a row, for predictions; vw: tag, svmlight: comment.", "COLUMN")


@dataclass(frozen=True)
class LabelColumn(FormatOptions):
    """Options of sources with named columns or fields."""

    label_column: str | int | None = option(
        None, OptionInfo("Name, position or last; JSON: default label, ...", "COLUMN")
    )
    weight_column: str | int | None = option(None, OptionInfo("The sample weight.", "COLUMN"))


@dataclass(frozen=True)
class TableColumns(LabelColumn):
    """Options of tables; see `CsvOptions`."""

    ignore_columns: Sequence[str | int] = option(
        (), OptionInfo("Columns of a table to leave out.", "A,B,...", parse=column_list)
    )
    categorical: Sequence[str | int] = option(
        (), OptionInfo("Columns to take as categories.", "A,B,...", fitted=True, parse=column_list)
    )
    id_column: str | int | None = option(None, ID_COLUMN)
    na: str | float | None = option(
        None,
        OptionInfo(
            "Number that missing values stand for; default: they are refused.", "VALUE", parse=decimal_number
        ),
    )
    na_values: Sequence[str] = option((), NA_VALUES)
