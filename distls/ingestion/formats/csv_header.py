"""Detect the separator, the header and the columns from the start of separated text."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from distls.facts import counted
from distls.ingestion.formats.column_kinds import Samples
from distls.ingestion.formats.tables import LABEL_NAMES, are_row_names, difference, listed, named_columns
from distls.ingestion.request.format_options import checked_separator, label_names, position_of
from distls.ingestion.request.like import Like, known_dialect, missing_values
from distls.ingestion.request.source_start import first_lines, other_quotes
from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import table_columns
from distls.workers.ingestion.formats.csv import separator_line
from distls.workers.ingestion.formats.documents import check_names, joined_rows, with_whole_first
from distls.workers.ingestion.formats.table_columns import Dialect, is_number
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile
from distls.workers.ingestion.records.messages import ENCODED

_SEPARATORS = (",", "\t", ";", "|")  # of several candidates that fit, the first is taken
_SAMPLED_LINES = 500
_FEW_SAMPLES = 20  # of each of many files
_QUOTED = re.compile('"[^"]*"')
_FEW_ROWS = 10  # too few to tell that labels recur
_COMMAS = Dialect(decimal=",")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")  # or a decimal comma and three digits


@dataclass(frozen=True)
class Expected:
    """What is known of a table before it is read: options, and how the data were read that it is like."""

    given: Any  # has the options separator, header, decimal
    label: int | None = None  # the position of the labels, where it is known
    named: frozenset[str] = frozenset()  # columns that options name
    features: frozenset[str] = frozenset()  # columns that have to be there, where they have names
    dialect: Dialect | None = None  # of the data that it is like
    headless: bool = False  # these have positions for names
    widths: frozenset[int] = frozenset()  # numbers of columns that it may have
    missing: tuple[str, ...] = table_columns.MISSING
    separator: str | None = None  # which the file itself names

    @classmethod
    def of(cls, read: Any, others: Iterable[Any], unlabelled: bool, like: Like | None) -> Expected:
        """Return what the options say, which are `read` and columns they name besides, and the dialect of `like`."""
        labels = label_names(read.label_column)
        label = position_of(labels[0]) if labels else None
        named = named_columns((*labels, read.weight_column, read.id_column, *others))
        widths = frozenset({1} if unlabelled else ())
        missing = missing_values(read.na_values, like, typed=False)
        return cls(read, label, named, dialect=known_dialect(like), widths=widths, missing=missing)

    def has_names(self, first: Sequence[str]) -> bool:
        """Return whether a first line has the names of the columns that have to be there."""
        return bool(self.features) and self.features <= set(first)


@dataclass(frozen=True)
class Head:
    """The start of a file."""

    dialect: Dialect
    certain: bool  # no other reading of the first line is plausible
    columns: tuple[str, ...]  # the names; without a header, the positions from 0
    rows: list[list[str]]  # the first rows
    unnamed: bool = False  # the header's first field is empty, and those below it number or name the rows
    nameless: frozenset[str] = frozenset()  # columns without a name in the header
    line_breaks: bool = False  # a field of the first row has some, so that all are read by records

    @property
    def index(self) -> str:
        """Name of a column that only numbers the rows, as pandas writes it: first, without a name; else empty."""
        # of two columns it may be the only feature
        return self.columns[0] if self.unnamed and len(self.columns) > 2 else ""

    @property
    def empty(self) -> tuple[str, ...]:
        """Columns without a name or a value in these rows: of separators at the ends of lines, as Excel writes them."""
        samples = self.samples.values
        return tuple(name for name in self.columns if name in self.nameless and not any(samples[name]))

    @property
    def samples(self) -> Samples:
        """The first values of the columns."""
        values = {name: [row[c] for row in self.rows if c < len(row)] for c, name in enumerate(self.columns)}
        return Samples(values, self.dialect)

    @property
    def documents(self) -> str:
        """The first column that looks like documents, empty if none does."""
        found = (n for n, v in self.samples.values.items() if len({*v}) > 1 and table_columns.are_documents(v))
        return next(found, "")

    @property
    def words(self) -> set[str]:
        """Columns with something other than numbers in these rows."""
        values = self.samples.values
        return {name for name in self.columns if any(map(self.dialect.is_word, values[name]))}


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
    lines = lines[:-1] or lines  # the last is possibly incomplete, or everything after the sample
    return [line.rstrip("\r").replace("\r", " ") for line in lines if line.strip()]


def _split(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Split lines into fields; quotes do not span lines."""
    stripped = (line.strip(" ") if separator == " " else line for line in lines)
    readers = (csv.reader([line], delimiter=separator, skipinitialspace=True) for line in stripped)
    try:
        return [[field.strip() for field in next(reader, [""])] for reader in readers]
    except csv.Error:
        return [[line] for line in lines]


def read_head(start: bytes, path: str, expected: Expected) -> Head:
    """Parse the start of the file `path`.

    Raises BadInputError if it is not text, no separator is found, or two columns have one name; ParameterError if the
    separator that was asked for cannot be one.
    """
    named = separator_line(start.removeprefix(b"\xef\xbb\xbf")[:16])
    if named:  # Excel's first line, which is no row
        start, expected = start.split(b"\n", 1)[1], replace(expected, separator=named)
    lines = _lines(start)
    if not lines or "\0" in lines[0]:
        raise BadInputError(f"{path}: not UTF-8 text; {ENCODED}" if lines else f"{path}: no rows")
    given = expected.given.separator
    marks = (None if given is None else checked_separator(given), *_SEPARATORS)
    lines, line_breaks = with_whole_first(lines, path, marks)
    separator, rows = _separated(lines, path, expected)
    rows, names_rows = _with_whole_header(joined_rows(lines, separator) or rows, lines, path, expected)
    decimal: Any = expected.given.decimal or _decimal(rows, separator, expected.dialect, expected.missing)
    dialect = Dialect(separator, False, decimal, expected.missing)
    headed, certain = (True, True) if names_rows is not None else _is_headed(rows, dialect, expected)
    headed = headed and (certain or not line_breaks)  # few names have any
    columns = _names(rows[0], path, separator) if headed else tuple(map(str, range(len(rows[0]))))
    unnamed = bool(names_rows) or (headed and not rows[0][0] and _numbers_rows(rows[1:]))
    nameless = [name for c, name in enumerate(columns) if not rows[0][c]] if headed else columns[-1:]
    dialect = structs.replace(dialect, header=headed)
    return Head(dialect, certain, columns, rows[headed:], unnamed, frozenset(nameless), line_breaks)


def _with_whole_header(
    rows: list[list[str]], lines: Sequence[str], path: str, expected: Expected
) -> tuple[list[list[str]], bool | None]:
    """Add to a header the empty name of a column that only other lines have: names of rows, or behind a last separator.

    Return whether it is names of rows, as R writes them; None if the header has as many fields as other lines. Raises
    BadInputError if all lines but the first, which may be a title, have another number of fields.
    """
    first, others = rows[0], rows[1:]
    widths = {len(row) for row in others}
    # quotes over several lines are read otherwise
    if len(widths) != 1 or widths == {len(first)} or any(line.count('"') % 2 for line in lines):
        return rows, None
    headed = expected.given.header != "no" and not any(not field or is_number(field) for field in first)
    if headed and widths == {len(first) + 1}:
        if not any(row[-1] for row in others):
            return [[*first, ""], *others], False
        if are_row_names([row[0] for row in others]):
            if remedy := other_quotes(lines[1:]):
                raise BadInputError(f"{path}: its lines have a field more than the first: {remedy}")
            return [["", *first], *others], True
    if len(others) < 2:  # which of them is wrong is said where rows are read
        return rows, None
    shown = lines[0][:40].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    remedy = other_quotes(lines[1:]) or (
        "remove it if it is no part of the table, or name the separator with --separator"
    )
    rest = f"the others have {min(widths)}: {remedy}"
    raise BadInputError(f'{path}: its first line ("{shown}") has {counted(len(first), "field")}, {rest}')


def read_heads(files: Files, expected: Expected) -> tuple[Head, tuple[SourceFile, ...], tuple[str, ...]]:
    """Return the head that all files have, as `read_head` does, the files, and notices of what may be otherwise.

    Files with a header may have the columns in another order, which they then know.
    """
    path = files[0].path
    head = read_head(first_lines(files[0]), path, expected)
    # values of all files, so that their order does not matter
    share = max(_SAMPLED_LINES // len(files), _FEW_SAMPLES)
    if head.dialect.header:
        # what names columns in one file does so in all
        expected = replace(expected, features=frozenset(head.columns))
    known, heads, rows = [files[0]], [head], head.rows[:share]
    for file in files[1:]:
        other = read_head(first_lines(file), file.path, expected)
        own, mark = other.dialect.separator, head.dialect.separator
        if own != mark and len(other.columns) > 1 and mark.encode() not in first_lines(file):
            remedy = "convert one of them"
            raise BadInputError(f"{file.path}: its separator is {own!r}, that of {path} {mark!r}; {remedy}")
        headed, order = other.dialect.header, [*range(len(other.columns))]
        if headed and other.columns != head.columns and {*other.columns} == {*head.columns}:
            place = {name: c for c, name in enumerate(other.columns)}
            order, file = [place[name] for name in head.columns], replace(file, columns=other.columns)
        elif (headed, other.columns) != (head.dialect.header, head.columns):
            why = f"its first line is not like that of {path}; one of them may be a header"
            if headed and head.dialect.header:
                why = f"its columns are not those of {path}: {difference(other.columns, head.columns)}"
            raise BadInputError(f"{file.path}: {why}")
        rows += [[row[c] for c in order if c < len(row)] for row in other.rows[:share]]
        known.append(file)
        heads.append(other)
        if other.dialect.decimal == ",":  # the others may have whole numbers only
            head = replace(head, dialect=structs.replace(head.dialect, decimal=","))
    head = replace(head, rows=rows, line_breaks=any(each.line_breaks for each in heads))
    notices = []
    if not head.certain:
        taken, opposite = ("names of columns", "no") if head.dialect.header else ("a row", "yes")
        notices.append(f"the first line of {path} is taken for {taken}; --header {opposite} if it is not")
    if head.dialect.decimal == "," != expected.given.decimal and expected.dialect is None:
        notices.append(f"numbers in {path} have a decimal comma; --decimal . if they have not")
    return head, tuple(known), tuple(notices)


def _separated(lines: Sequence[str], path: str, expected: Expected) -> tuple[str, list[list[str]]]:
    given = expected.given.separator or expected.separator
    own = () if expected.dialect is None else (expected.dialect.separator,)
    marks = dict.fromkeys((*own, *_SEPARATORS) if given is None else (checked_separator(given),))
    # before they are taken apart: a line of 64 MiB may have as many fields
    rows = {m: _split(lines, m) for m in marks if _count_fields(lines[0], m) <= table_columns.MOST_COLUMNS}
    possible = [separator for separator in rows if len(rows[separator][0]) > 1 or given is not None]
    if not possible and len(rows) < len(marks):
        table_columns.check_count(max(_count_fields(lines[0], mark) for mark in marks), path)
    # of several columns only one may be there: which are not is said where columns are matched
    if not possible and (1 in expected.widths or lines[0].strip().strip('"') in expected.features):
        unused = (separator for separator in rows if not any(separator in line for line in lines))
        separator = next(unused, _SEPARATORS[0])
        return separator, rows[separator]
    if not possible:
        shown = lines[0][:40].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        title = "; or remove the lines before the names of columns" * (len(lines) > 2)
        rest = f'semicolon or bar in its first line ("{shown}"); name its separator with --separator{title}'
        raise BadInputError(f"{path}: no comma, tab, {rest}")

    def fitness(mark: str) -> tuple[Any, ...]:
        # the expected columns; then on which most lines agree, one that is never between quotes, most columns
        first, width = rows[mark][0], len(rows[mark][0])
        agreeing = sum(len(row) == width for row in rows[mark])
        quoted = sum(map(len, rows[mark])) > sum(_count_fields(line, mark) for line in lines)
        return expected.has_names(first), width in expected.widths, agreeing, not quoted, width

    separator = max(possible, key=fitness)
    if separator == "," and not own and given is None:
        # a comma may be the decimal mark in fields between others
        separator = next((s for s in possible if s != "," and _has_decimal_commas(rows[s])), separator)
    return separator, rows[separator]


def _has_decimal_commas(rows: list[list[str]]) -> bool:
    """Return whether lines have equally many fields, and those with a comma are numbers."""
    fields = [field for row in rows for field in row if "," in field]
    return len({*map(len, rows)}) == 1 and bool(fields) and all(map(is_number, map(_COMMAS.plain, fields)))


def _decimal(rows: list[list[str]], separator: str, known: Dialect | None, missing: Sequence[str]) -> str:
    """Return the decimal mark: a comma if a column has numbers with one, and no other has numbers with a point."""
    found = default = "." if known is None else known.decimal
    if separator == ",":
        # between quotes; they may as well be thousands
        return default if known is not None and known.separator == "," else "."
    for c in range(len(rows[0])):
        values = [row[c] for row in rows[1:] or rows if c < len(row) and row[c] not in missing]
        if any(is_number(value) and not is_number(_COMMAS.plain(value)) for value in values):
            return "."
        commas = [value for value in values if "," in value and not _THOUSANDS.fullmatch(value)]
        if commas and all(is_number(_COMMAS.plain(value)) for value in values):
            found = ","
    return found


def _count_fields(line: str, separator: str) -> int:
    return (line if '"' not in line else _QUOTED.sub("", line)).count(separator) + 1


def _is_headed(rows: list[list[str]], dialect: Dialect, expected: Expected) -> tuple[bool, bool]:
    """Return whether the first line names columns, and whether that is certain."""
    if expected.given.header is not None:
        return expected.given.header == "yes", True
    first, others = rows[0], rows[1:]
    if expected.has_names(first):
        # names that are numbers may be values
        return True, not all(map(is_number, expected.features))
    # 2020 is no position where there are not so many columns
    numbered = expected.label is not None and not -len(first) <= expected.label < len(first)
    if expected.named & set(first) or (numbered and str(expected.label) in first):
        return True, True
    below = [[row[c] for row in others if c < len(row)] for c in range(len(first))]
    # pandas writes the numbers of the rows under an empty name
    start = int(not first[0] and _numbers_rows(others))
    names = first[start:]
    if not names or not all(map(dialect.is_word, names)) or len(set(names)) < len(names):
        return _is_headed_in_part(first, below, dialect, expected)
    if any(is_number(dialect.plain(value)) for column in below[start:] for value in column):
        return True, True
    # words everywhere: values of a category recur, names do not
    recur = any(name in column for name, column in zip(names, below[start:], strict=True))
    return not recur and not expected.headless, expected.headless


def _is_headed_in_part(
    first: list[str], below: list[list[str]], dialect: Dialect, expected: Expected
) -> tuple[bool, bool]:
    """Decide about a first line with numbers, empty or equal fields, as `_is_headed` does."""
    label = expected.label
    if label is None:
        label = next((c for c, field in enumerate(first) if field in LABEL_NAMES), None)
    while label is not None and -len(first) < label < 0 and not first[label] and not any(below[label]):
        label -= 1  # behind a last separator is no column
    if label is not None and -len(first) <= label < len(first):
        # labels recur, and the name of their column does not
        field, labels = first[label], below[label]
        several = len(labels) >= _FEW_ROWS and 5 * len({*labels}) <= len(labels)
        if field in labels:
            return False, True
        if _is_name(field, labels, dialect, several):
            return True, False
    if len(first) > 2 and not expected.headless and first == [str(c) for c in range(len(first))]:
        # the names that pandas gives to columns of an array
        return True, False
    named, points = False, dialect.decimal
    for field, values in zip(first, below, strict=True):
        # names may be whole numbers, such as years; a fraction above fractions is a value, and a word that recurs
        fraction = is_number(dialect.plain(field)) and points in field and any(points in v for v in values)
        if fraction or (dialect.is_word(field) and field in values):
            return False, True
        named = named or _is_name(field, values, dialect)
    return named, not named


def _is_name(field: str, values: Sequence[str], dialect: Dialect, recurring: bool = False) -> bool:
    """Return whether a word is above nothing but numbers, or above `recurring` values, or a number above words."""
    known = [value for value in values if value not in dialect.missing]
    if is_number(field):  # a year, a place
        return len(known) >= _FEW_ROWS and all(map(dialect.is_word, known))
    fitting = recurring or (bool(known) and all(is_number(dialect.plain(value)) for value in known))
    return fitting and dialect.is_word(field) and any(map(str.isalpha, field))


def _numbers_rows(rows: Sequence[list[str]]) -> bool:
    """Return whether the first fields are different whole numbers."""
    numbers = [row[0] for row in rows]
    return len(numbers) > 1 and all(text.isdecimal() for text in numbers) and len({*numbers}) == len(numbers)


def _names(fields: list[str], path: str, separator: str) -> tuple[str, ...]:
    """Return the column names; a column without a name gets its position, or if that is a name one as of pandas."""
    check_names(fields, separator, path)
    taken = {*fields}
    names = tuple(f or (str(c) if str(c) not in taken else f"Unnamed: {c}") for c, f in enumerate(fields))
    if wrong := [c for c, name in enumerate(names) if any("\ud800" <= mark <= "\udfff" for mark in name)]:
        raise BadInputError(f"{path}: the name of column {wrong[0]} is not UTF-8 text; {ENCODED}")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        given = f"{listed(twice)}; rename one of them, or give --header no if the line is a row"
        raise BadInputError(f"{path}: two columns are named {given}")
    return names
