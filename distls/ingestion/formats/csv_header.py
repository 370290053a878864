"""Detect the separator, the header and the columns from the start of separated text."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from distls.ingestion.request.source_plan import MOST_COLUMNS, too_many_columns
from distls.ingestion.request.source_start import first_lines
from distls.storage.errors import BadInputError, ParameterError
from distls.workers.ingestion.formats.csv import separator_line
from distls.workers.ingestion.formats.table_columns import are_documents, is_number, is_word
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.records.messages import CONVERT

_SEPARATORS = (",", "\t", ";", "|")  # of several candidates that fit, the first is taken
_WRITTEN = {"\\t": "\t", "tab": "\t", "space": " "}
_SAMPLED_LINES = 500
_QUOTED = re.compile('"[^"]*"')


@dataclass(frozen=True)
class Head:
    """The start of a file."""

    separator: str
    headed: bool  # the first line names the columns
    certain: bool  # no other reading of the first line is plausible
    columns: tuple[str, ...]  # the names; without a header, the positions from 0
    rows: list[list[str]]  # the first rows
    unnamed: bool = False  # the first field of the header is empty

    @property
    def index(self) -> str:
        """Name of a column that only numbers the rows, as pandas writes it: first, without a name; else empty."""
        # of two columns it may be the only feature
        return "0" if self.unnamed and len(self.columns) > 2 and _numbers_rows(self.rows) else ""

    @property
    def documents(self) -> str:
        """The first column that looks like documents, empty if none does."""
        for c, name in enumerate(self.columns):
            values = [row[c] for row in self.rows if c < len(row)]
            if len({*values}) > 1 and are_documents(values):
                return name
        return ""

    @property
    def words(self) -> set[str]:
        """Columns with something other than numbers in these rows."""
        return {
            name
            for c, name in enumerate(self.columns)
            if any(c < len(row) and is_word(row[c]) for row in self.rows)
        }


def looks_like_table(start: bytes) -> bool:
    """Return whether lines have equally many fields, some of them numbers."""
    lines = _lines(start)
    if len(lines) < 2 or "\0" in lines[0]:
        return False
    for separator in _SEPARATORS:
        rows = _split(lines, separator)
        widths = {len(row) for row in rows}
        if len(widths) == 1 and widths != {1}:
            return any(all(is_number(row[c]) for row in rows[1:]) for c in range(len(rows[0])))
    return False


def _lines(start: bytes) -> list[str]:
    """Return the first complete non-empty lines; bytes that are not UTF-8 become surrogates."""
    text = start.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    lines = text.split("\n", _SAMPLED_LINES)
    if len(lines) > 1:
        lines.pop()  # possibly incomplete, or everything after the sample
    return [line.replace("\r", " ") for line in lines if line.strip()]


def _split(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Split lines into fields; quotes do not span lines."""
    stripped = (line.strip(" ") if separator == " " else line for line in lines)
    readers = (csv.reader([line], delimiter=separator, skipinitialspace=True) for line in stripped)
    try:
        return [[field.strip() for field in next(reader, [""])] for reader in readers]
    except csv.Error:
        return [[line] for line in lines]


def read_head(
    start: bytes, path: str, separator: str | None, header: str | bool | None, known: Sequence[str] = ()
) -> Head:
    """Parse the start of the file `path`; `separator` and `header` are as in `CsvOptions`.

    A first line that has all `known` names of columns is a header. Raises BadInputError if it is not text, no
    separator is found, or two columns have one name; ParameterError if the separator that was asked for cannot be
    one.
    """
    named = separator_line(start.removeprefix(b"\xef\xbb\xbf")[:16])
    if named:  # Excel's first line, which is no row
        start, separator = start.split(b"\n", 1)[1], separator or named
    lines = _lines(start)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (lines and "\0" in lines[0]):
        raise BadInputError(f"{path}: not UTF-8 text; convert it first")
    if not lines:
        raise BadInputError(f"{path}: no rows")
    separator = _separator(lines, path, separator)
    rows = _split(lines, separator)
    headed, certain = _is_headed(rows, header, known)
    columns = _names(rows[0], path) if headed else tuple(map(str, range(len(rows[0]))))
    return Head(separator, headed, certain, columns, rows[1:] if headed else rows, headed and not rows[0][0])


def read_heads(
    files: Sequence[SourceFile], separator: str | None, header: str | bool | None, known: Sequence[str]
) -> tuple[Head, tuple[str, ...]]:
    """Return the head that all files have, as `read_head` does, and a notice if its first line may mislead."""
    path = files[0].path
    head, *others = (read_head(first_lines(file), file.path, separator, header, known) for file in files)
    for file, other in zip(files[1:], others, strict=True):
        if (other.headed, other.columns) != (head.headed, head.columns):
            raise BadInputError(
                f"{file.path}: its first line is not like that of {path}; one of them may be a header"
            )
    if head.certain:
        return head, ()
    taken, opposite = ("names of columns", "no") if head.headed else ("a row", "yes")
    return head, (f"the first line of {path} is taken for {taken}; --header {opposite} if it is not",)


def _separator(lines: Sequence[str], path: str, given: str | None) -> str:
    candidates = _SEPARATORS if given is None else (checked_separator(given),)
    # before they are taken apart: a line of 64 MiB may have as many fields
    few = [separator for separator in candidates if _count_fields(lines[0], separator) <= MOST_COLUMNS]
    if given is not None and few:
        return few[0]
    widths = {separator: [len(row) for row in _split(lines, separator)] for separator in few}
    possible = [separator for separator in few if widths[separator][0] > 1]
    if not possible and len(few) < len(candidates):
        raise too_many_columns(max(_count_fields(lines[0], mark) for mark in candidates), f"{path}: ")
    if not possible:
        shown = lines[0][:40].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise BadInputError(
            f'{path}: no comma, tab, semicolon or bar in its first line ("{shown}"); '
            "name its separator with --separator"
        )
    # the separator on which most lines agree; among equals, the one with most columns
    return max(possible, key=lambda s: (widths[s].count(widths[s][0]), widths[s][0]))


def _count_fields(line: str, separator: str) -> int:
    return (line if '"' not in line else _QUOTED.sub("", line)).count(separator) + 1


def checked_separator(text: str) -> str:
    """Return a separator as one character; raise ParameterError if it could be part of a number or a quoted field."""
    separator = _WRITTEN.get(text, text)
    if len(separator) != 1 or not separator.isascii() or separator.isalnum() or separator in '"+-.\r\n':
        raise ParameterError(
            f"separator must be one character that is no letter, digit, quote, sign or point, not {text!r}"
        )
    return separator


def _is_headed(rows: list[list[str]], header: str | bool | None, known: Sequence[str]) -> tuple[bool, bool]:
    """Return whether the first line names columns, and whether that is certain."""
    if header is not None:
        return header == "yes", True
    first, others = rows[0], rows[1:]
    if known and set(known) <= set(first):
        return True, True
    # pandas writes the numbers of the rows under an empty name
    names = first[1:] if not first[0] and _numbers_rows(others) else first
    if not names or not all(map(is_word, names)) or len(set(names)) < len(names):
        return False, True
    columns = range(len(first) - len(names), len(first))
    if any(any(is_number(row[c]) for row in others if c < len(row)) for c in columns):
        return True, True
    # words everywhere: values of a category recur, names do not
    return not any(any(row[c] == first[c] for row in others if c < len(row)) for c in columns), False


def _numbers_rows(rows: Sequence[list[str]]) -> bool:
    """Return whether the first fields are different whole numbers."""
    numbers = [row[0] for row in rows]
    return len(numbers) > 1 and all(text.isdecimal() for text in numbers) and len({*numbers}) == len(numbers)


def _names(fields: list[str], path: str) -> tuple[str, ...]:
    """Return the column names; a column without a name gets its position."""
    names = tuple(field or str(c) for c, field in enumerate(fields))
    known: set[str] = set()  # a linear search would take a minute for 100,000 columns
    for c, name in enumerate(names):
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise BadInputError(f"{path}: the name of column {c} is not UTF-8 text; {CONVERT}")
        if name in known:
            raise BadInputError(f'{path}: two columns are named "{name}"; rename one of them')
        known.add(name)
    return names
