"""Values of mixed tables to features: dates, numbers as text, sets of categories, hashed categories, documents."""

import ast
import contextlib
import csv
import datetime
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from msgspec import structs

from distls.workers.ingestion.formats import table_columns
from distls.workers.ingestion.formats.document_records import Hashing, hashed_texts, hashed_values
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, Words
from distls.workers.ingestion.parsing.array_types import Doubles, Ints
from distls.workers.ingestion.records.messages import NO_NUMBER, number_rule, quoted
from distls.workers.ingestion.records.record_batch import Csr

Fault = Callable[[int, str], None]  # (row, rule that its value breaks)

_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?(?:\s*([AaPp])\.?[Mm]\.?)?"
_TIME_OF_DAY = re.compile(_CLOCK)
# an offset from UTC, an abbreviation or the name of a place; maybe another name of the same behind it
_ZONE = r"(?:(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2}(?::\d{2})?)?|Z|[A-Z]{2,5}|[A-Z][A-Za-z]+(?:/[A-Z][A-Za-z_+-]*\d*)+)"
_TIME = rf"(?:[T ,:]+{_CLOCK}\s*(?:{_ZONE}(?:\s*[\[(][\w /+:-]+[\])])?)?)?"
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})" + _TIME)
# 31-Jan-2024, 31 January 2024; Jan. 31, 2024: they are the same in any order
_DAY_MONTH = re.compile(r"(?P<day>\d{1,2})[-/. ](?P<month>[A-Za-z]{3,9})\.?[-/, ] ?(?P<year>\d{4}|\d\d)(?P<time>.*)")
_MONTH_DAY = re.compile(r"(?P<month>[A-Za-z]{3,9})\.? (?P<day>\d{1,2}),? (?P<year>\d{4})(?P<time>.*)")
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_WEEKDAY = re.compile(r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\.?,? +", re.IGNORECASE)
# as `date` of Unix and Twitter write it: Jan 31 12:00:00 EST 2024
_YEAR_BEHIND = re.compile(
    rf"(?P<month>[A-Za-z]{{3}}) +(?P<day>\d{{1,2}})(?P<time> \d{{1,2}}:\d\d:\d\d(?: {_ZONE})?) (?P<year>\d{{4}})"
)
_OFFSET = re.compile(rf":\d\d(?:\.\d+)?(?:\s*[AaPp]\.?[Mm]\.?)?\s*(?![AP]M\b)({_ZONE})(?:\s*[\[(].*)?\Z")
_PART_OF_YEAR = re.compile(
    r"(?P<year>(?:19|20)\d\d)"
    r"(?:[-/](?P<month>0[1-9]|1[0-2])|[- ]?Q(?P<quarter>[1-4])|-?W(?P<week>[0-4]\d|5[0-3])(?:-?(?P<day>[1-7]))?)"
)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)")
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})" + _TIME)
# 30:24, 1:02:33.5, and with days as Python and pandas write them: 1 day, 2:03:04 or 0 days 00:03:45
_DURATION = re.compile(
    r"(?:(-?\d+) days?(?:,? \+?|\Z))?(?:(?:(\d+):(?=[0-5]?\d:))?(\d+):([0-5]\d(?:\.\d+)?))?", re.IGNORECASE
)
# without a T an M is of months, which have no length
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
# 1h 30m, 90 min, 2 days 4 hours
_WITH_UNITS = re.compile(
    r"(?=\d)"
    + r"[\s,]*".join(
        rf"(?:(\d+(?:\.\d+)?)\s*(?:{unit})(?![A-Za-z]))?"
        for unit in ("d|days?", "h|hrs?|hours?", "m|mins?|minutes?", "s|secs?|seconds?")
    )
)
# A number with marks: 1,234.5 or 1 234 or 12 % or $5 or (5), as accounts write what is negative; one with a typographic
# minus, as spreadsheets write it; 12.50-, as SAP and COBOL do, but not 2024-; 1.5D+02 and .5D+02 of Fortran; 0x1F, of
# as many digits as float64 keeps.
HEXADECIMAL = re.compile(r"[-+]?0[xX][0-9a-fA-F]{1,13}")
_DIGITS = r"(?:\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+(?:[.,]\d+)?|\d[\d.,']*|\.\d+)"
_FORTRAN = r"[dD][-+]\d{2,3}"  # with its sign: 2.0D4 is a name
MARKED = re.compile(
    rf"{HEXADECIMAL.pattern}|(?=.*(?:[,%$€£¥'()\u2212]|\d[ \u00a0\u2009\u202f]\d|\.\d*{_FORTRAN}|[.,]\d+-\Z))"
    r"(?![-+\u2212].*[-\u2212]\Z)"
    rf"[-+(\u2212]?\s*[$€£¥]?\s*[-+\u2212]?{_DIGITS}(?:{_FORTRAN}|[eE][-+\u2212]?\d{{1,3}})?"
    r"\s*[%$€£¥]?\s*(?:\)|(?<=[\d.%$€£¥])[-\u2212]\Z)?"
)
_MARKS = re.compile(r"[\s%$€£¥'()]")
_SIGNS = re.compile(r"[^%$€£¥]")
_DOUBLE = re.compile(r"(?<=[\d.,])[dD](?=[-+]\d{2,3})")
# 1,234,567; 12,34,567, as in India
_GROUPED = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d{1,2}(,\d{2})*,\d{3})(\.\d*)?(e[-+]\d+)?|[^,]*")
_ADJOINING = re.compile(r"""['"]\s+['"]""")
_DATE_RULE = (
    "a date, as 2024-01-31 or 31.1.2024, maybe with a time; --kind of ingest and train says where the day is, as in "
    "NAME=date:dmy or NAME=date:mdy"
)
_RULES = {
    "duration": "a length of time, as 3:45, 1:02:33, 1h 30m, PT1H30M or 2 days 00:00:01",
    "time": "a time of day, as 13:45; --kind NAME=duration of ingest and train reads lengths of time",
}
_DAY, _TRUTHS = 86400.0, {"true": 1.0, "false": 0.0}


@functools.lru_cache(maxsize=2**17)
def date_parts(text: str, style: str) -> tuple[float, ...] | None:
    """Return the numbers of a date, as `DATE_PARTS` names them, None if it is none.

    `style` is ``dmy`` or ``mdy``, of dates that begin with no year, ``time``, of times of day, which have a cycle
    alone, or ``duration``, of lengths of time, which are seconds. Times are as they are written, in any zone.
    """
    if style == "duration":
        return _seconds(text)
    text = _with_number(text.strip())
    if style == "time":
        part = _day_part(found.groups()) if (found := _TIME_OF_DAY.fullmatch(text)) else None
        return None if part is None else _cycles(part)
    found = _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text)
    if found is None:
        return None
    first, _, second, third, *clock = found.groups()
    # from here on year, month, day
    order = (first, second, third) if found.re is _YEAR_FIRST else (third, second, first)
    if found.re is _YEAR_LAST and style == "mdy":
        order = third, first, second
    try:
        day = datetime.date(_full_year(order[0]), int(order[1]), int(order[2]))
    except ValueError:
        return None
    part = _day_part(clock)
    if part is None:
        return None
    # days from 2000: float32 then has minutes for two centuries
    days = day.toordinal() - datetime.date(2000, 1, 1).toordinal() + part
    return days, *_cycles((day.timetuple().tm_yday - 1 + part) / 365.25, (day.weekday() + part) / 7.0, part)


def _seconds(text: str) -> tuple[float] | None:
    """Return the seconds of a length of time; two numbers are minutes and seconds."""
    ways = (_DURATION, _ISO_DURATION, _WITH_UNITS)
    found = next(filter(None, (way.fullmatch(text.strip()) for way in ways)), None)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return (_DAY * days + 3600.0 * hours + 60.0 * minutes + seconds,)


def _cycles(*turns: float) -> tuple[float, ...]:
    # of Python's own functions: those of arrays may round otherwise at another place of the array
    return tuple(f(2.0 * math.pi * turn) for turn in turns for f in (math.sin, math.cos))


def _day_part(clock: Sequence[str | None]) -> float | None:
    """Return the part of a day that hour, minute, second and half of the day say, None if there is no such time."""
    hour, minute, second = int(clock[0] or 0), int(clock[1] or 0), float(clock[2] or 0)
    half = (clock[3] or "").lower()
    if hour > (12 if half else 24) or minute > 59 or second >= 61:
        return None
    hour = hour % 12 + 12 * (half == "p") if half else hour
    return (3600.0 * hour + 60.0 * minute + second) / _DAY


def _full_year(digits: str) -> int:
    """Return a year; two digits are those of 1969 to 2068, as POSIX has it."""
    return int(digits) + (0 if len(digits) == 4 else 1900 if int(digits) > 68 else 2000)


def _with_number(text: str) -> str:
    """Return a date whose month has an English name, or the first letters of one, with its number; 20240131 too."""
    if found := _COMPACT.fullmatch(text):
        return "-".join(found.groups())
    if found := _PART_OF_YEAR.fullmatch(text):
        return _first_day(found)
    text = _WEEKDAY.sub("", text)
    found = _DAY_MONTH.fullmatch(text) or _MONTH_DAY.fullmatch(text) or _YEAR_BEHIND.fullmatch(text)
    if found is None:
        return text
    name = found["month"].lower()
    months = [k for k, month in enumerate(_MONTHS, 1) if month.startswith("sep" if name == "sept" else name)]
    return f"{_full_year(found['year'])}-{months[0]:02}-{found['day']}{found['time']}" if months else text


def _first_day(found: re.Match[str]) -> str:
    """Return the first day of a month, a quarter or a week, as 2024-03, 2024Q1 and 2024-W05 name them; 2024-W05-3."""
    year, month = int(found["year"]), int(found["month"] or 1)
    month = 3 * int(found["quarter"]) - 2 if found["quarter"] else month
    if not found["week"]:
        return datetime.date(year, month, 1).isoformat()
    try:
        return datetime.date.fromisocalendar(year, int(found["week"]), int(found["day"] or 1)).isoformat()
    except ValueError:  # not all years have a 53rd week
        return found.string


def date_style(texts: Iterable[str]) -> str:
    """Return the order of day and month in dates: ``dmy`` if some number says so, or points are between them.

    Of times of day ``time``, of lengths of time that are none ``duration``.
    """
    texts = list(texts)
    for style in ("time", "duration"):
        if texts and all(date_parts(text, style) for text in texts):
            return style
    matches = [found for text in texts if (found := _YEAR_LAST.fullmatch(text.strip()))]
    if any(int(found.group(3)) > 12 for found in matches):
        return "mdy"
    day_first = any(int(found.group(1)) > 12 or found.group(2) != "/" for found in matches)
    return "dmy" if day_first or not matches else "mdy"


def recorded_style(texts: Iterable[str]) -> str:
    """Return the style of dates, empty if none begins with its day or month, so that nothing was decided."""
    texts = list(texts)
    style = date_style(texts)
    decided = style in ("time", "duration") or any(_YEAR_LAST.fullmatch(text.strip()) for text in texts)
    return style if decided else ""


def undecided_date(texts: Iterable[str]) -> str:
    """Return one of several dates if none says whether its day or its month is first, else an empty text.

    Points say so: the day is before them.
    """
    found = [(t, match) for t in texts if (match := _YEAR_LAST.fullmatch(t.strip())) and match[2] != "."]
    if any(int(match[k]) > 12 for _, match in found for k in (1, 3)):
        return ""
    return next((text for text, match in found if int(match[1]) != int(match[3])), "")


def utc_offsets(texts: Iterable[str]) -> list[str]:
    """Return the zones that the times of dates say, sorted: how far from UTC, or names."""
    found = {match[1] for text in texts if (match := _OFFSET.search(_with_number(text.strip())))}
    return sorted({*map(_offset, found)})


def _offset(zone: str) -> str:
    """Return a zone as ``+01:00`` if it is an offset from UTC, else as it is written."""
    sign, digits = re.sub(r"UTC|GMT|Z", "", zone)[:1], re.findall(r"\d+", zone)
    if sign not in ("", "+", "-"):
        return zone
    hours, minutes = (digits[0][:2], digits[0][2:] or "0") if digits else ("0", "0")
    return f"{sign or '+'}{int(hours):02}:{int((digits[1:] or [minutes])[0]):02}"


def is_date(text: str) -> bool:
    """Return whether a text is a date, maybe with a time."""
    style = date_style([text])
    return date_parts(text, style) is not None and style not in ("time", "duration") and not text.isdecimal()


def date_width(texts: Iterable[str], style: str) -> int:
    """Return the number of features of dates: those of the day are left out where no date has a time."""
    if style in ("time", "duration"):
        return 2 if style == "time" else 1
    # constant features would do no harm, but be shown with weights
    timed = any((parts := date_parts(text, style)) and parts[0] != math.floor(parts[0]) for text in texts)
    return len(table_columns.DATE_PARTS) if timed else len(table_columns.DATE_PARTS) - 2


def date_numbers(texts: Sequence[str | None], rows: Ints, feature: Feature, fault: Fault) -> Doubles:
    """Return the numbers of dates, NaN where one is missing, shape (n_rows, width); `rows` has the text of each."""
    missing = (math.nan,) * feature.width
    parts = [missing if text is None else date_parts(text, feature.style) for text in texts]
    wrong = [text for text, found in enumerate(parts) if found is None]
    for row in np.flatnonzero(np.isin(rows, wrong)) if wrong else ():
        text = str(texts[rows[row]])
        # of a word, or 0000-00-00, nobody asks where its day is
        word = f'; --na-values "{text}" if it stands for no value' * (not re.search("[1-9]", text))
        fault(int(row), f"{quoted(text.encode())}: expected {_RULES.get(feature.style, _DATE_RULE)}{word}")
    values = np.array([(found or missing)[: feature.width] for found in parts], dtype=np.float64)
    return values.reshape(len(texts), feature.width)[rows]


def unmarked(text: str, dialect: Dialect) -> str:
    """Return a number without marks of thousands, percent and currency, in decimals; an account's with a sign."""
    if HEXADECIMAL.fullmatch(text):
        return str(int(text, 16))
    bare = _DOUBLE.sub("e", _MARKS.sub("", text).replace("\u2212", "-"))
    if bare.endswith("-") and bare[0] not in "+-":
        bare = f"-{bare[:-1]}"
    # with a decimal comma, points are between thousands, which `plain` knows
    if dialect.decimal == "." and _GROUPED.fullmatch(bare):
        bare = bare.replace(",", "")
    return f"-{bare}" if text.strip().startswith("(") and not bare.startswith("-") else bare


def marks_of(texts: Iterable[str]) -> list[str]:
    """Return a number with each mark of percent or currency, and one without where others have percent."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(_SIGNS.sub("", text), text)
    return [text for mark, text in found.items() if mark or "%" in found]


def is_rounded(number: Decimal) -> bool:
    """Return whether float64 has another number for a decimal one, as it is written with the same places."""
    value = float(number)
    if value == 0.0 or math.isinf(value):  # such an exponent is not written out, which may take all memory
        return bool(number)
    places = len(f"{number:f}".partition(".")[2].rstrip("0"))
    return Decimal(f"{value:.{places}f}") != number


def text_numbers(texts: Sequence[str | None], dialect: Dialect, marked: bool, fault: Fault) -> Doubles:
    """Return numbers that are written as text, as the kernel of separated text reads them; NaN if missing."""
    values = np.full(len(texts), math.nan)
    for row, text in enumerate(texts):
        if text is None:
            continue
        plain = dialect.plain(unmarked(text, dialect) if marked else text)
        if table_columns.is_number(plain) or plain.lower().lstrip("+-") in ("inf", "infinity"):
            values[row] = float(plain)
        elif text.lower() in _TRUTHS:
            values[row] = _TRUTHS[text.lower()]
        else:
            rule = number_rule(plain.encode("utf-8", "surrogateescape"), "a value", NO_NUMBER)
            fault(row, f"{quoted(text.encode('utf-8', 'surrogateescape'))}: {rule}")
    return values


def document_rows(texts: Sequence[str | None], feature: Feature) -> Csr:
    """Return the hashed words of documents; one that is missing has none."""
    # counts of words are small whole numbers, of which float32 keeps all
    return hashed_texts(hashing_of(feature), [text or "" for text in texts], np.dtype(np.float64))


def hashing_of(feature: Feature) -> Hashing:
    """Return how a column of documents is hashed."""
    return Hashing(n_features=feature.width, **structs.asdict(feature.words or Words()))


def hashed_rows(texts: Sequence[str | None], feature: Feature) -> Csr:
    """Return an indicator of the hash of each value; a missing one is a value of its own."""
    columns = hashed_values(["" if text is None else text for text in texts], feature.width)
    return np.arange(len(texts) + 1), columns, np.ones(len(texts))


def members(value: Any, mark: str) -> list[str]:
    """Return the values of a set, which is a list, also as text, or a text with marks between them."""
    marked = mark not in ("", ",") and isinstance(value, str) and mark in value
    value = value if (found := listed_text(value, braces=not marked)) is None else found
    # sorted: features of a row are in the order of their columns
    if value is None or isinstance(value, str):
        value = (value or "").split(mark) if mark else [value or ""]
    parts = map(str, value)
    return sorted({part.strip() for part in parts} - {""})


def listed_text(value: Any, *, braces: bool = True) -> list[Any] | None:
    """Return the list that a text is, as JSON, Python or, between braces, PostgreSQL write it, else None."""
    if braces and isinstance(value, str) and (value == "set()" or value[:1] + value[-1:] == "{}"):
        return _between_braces(value)
    # of adjoining texts Python makes one, but NumPy writes arrays so
    if not isinstance(value, str) or value[:1] + value[-1:] != "[]" or _ADJOINING.search(value):
        return None
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        try:
            return list(json.loads(value))
        except ValueError:
            return list(ast.literal_eval(value))
    return None


def _between_braces(value: str) -> list[Any] | None:
    """Return a set of Python, or an array of PostgreSQL without its nulls; None of a dict."""
    if value in ("{}", "set()"):
        return []
    with contextlib.suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        found = ast.literal_eval(value)
        return list(found) if isinstance(found, set) else None
    with contextlib.suppress(csv.Error):  # line breaks, and fields of more than 128 KiB
        if ": " not in value:
            parts = next(csv.reader([value[1:-1]], skipinitialspace=True, escapechar="\\"))
            return [part for part in parts if part != "NULL"]
    return None


def set_rows(sets: Sequence[Any], feature: Feature, unseen: Fault) -> Csr:
    """Return the indicators of sets; values that are not known are none, and told to `unseen`."""
    known = feature.categories or ()
    # 1 and 1.0 are one value, as of categories
    place = {**table_columns.whole_twins(known), **{name: k for k, name in enumerate(known)}}
    indptr, indices = [0], list[int]()
    for row, value in enumerate(sets):
        own = members(value, feature.style)
        indices += sorted({place[member] for member in own if member in place})
        for member in own:
            if member not in place:
                unseen(row, member)
        indptr.append(len(indices))
    return np.array(indptr, np.int64), np.array(indices, np.int64), np.ones(len(indices))
