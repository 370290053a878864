"""Kinds of a table's columns: as the option names them, or as the first rows show them."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec import structs

from distls.ingestion.request.format_options import TableColumns
from distls.ingestion.request.options import IngestOptions
from distls.storage.errors import ParameterError
from distls.workers.ingestion.formats import mixed_columns as mixed
from distls.workers.ingestion.formats import table_columns
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions, Words, is_number
from distls.workers.ingestion.transforms import AUTO, has_step

HASHED = 2**17  # features of hashed categories
DOCUMENTS = 2**18  # features of a column of documents
_FEW = 20  # rows that are too few to tell that all values differ
_MANY = 100  # rows in which whole numbers that all differ may be ids
_SET_MARKS = ("|", ";", ",")
_ID_NAME = re.compile(r"(?i:(.*[_\-. ])?(id|ids|uuid|guid|key|index|row|rownum))|.*[a-z](Id|ID|Key)")
_CODE = re.compile(r"0[0-9]+")
_LAST_YEAR = re.compile(r"(?<!\d)(?<!:\d\d[.,])9999(?!\d)")  # no fraction of a second
_STRATEGIES = ("median", "mean", "most_frequent", "category", "refuse")
_WHAT = {
    "text": "documents",
    "date": "dates",
    "time": "times of day (--kind NAME=duration: lengths of time, NAME=category: neither)",
    "duration": "lengths of time, in seconds",
    "set": "sets",
    "hash": "hashed values",
    "marked": "numbers with marks",
    "hexadecimal": "hexadecimal numbers",
}


# what is said of columns of numbers and categories; that numbers are codes is said once all rows are known
_NOTED = {
    "long": "fractions in {} have more digits than float64: different ones may become equal; --kind NAME=category "
    "(hash, id) keeps them apart",
    "missing": "several texts in {}, such as NA and an empty one, are all read as missing; in Parquet only nulls are",
    "days": "numbers in {} look like dates written as 20240131: --kind NAME=date reads them so",
    "ids": "no whole number occurs twice in the first rows of {}: --kind NAME=id if they are ids",
}


@dataclass(frozen=True)
class Samples:
    """The first values of the columns, by name; of a column that is left out nothing is guessed."""

    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=Dialect)
    typed: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # kinds of columns by their type alone

    def present(self, name: str) -> list[Any]:
        """Return the values that are not missing."""
        found = self.values.get(name, ())
        return [v for v in found if v is not None and not (isinstance(v, str) and v in self.dialect.missing)]

    def kind(self, name: str) -> tuple[str, str]:
        """Return the kind of a column, empty for numbers and categories, and its style (see `Feature`)."""
        values = self.present(name)
        if values and all(isinstance(value, list) for value in values):
            return ("set", "") if any(isinstance(v, str) for value in values for v in value) else ("", "")
        if not values:
            return self.typed.get(name, ("", ""))
        # all values differ, and the name says that they are ids
        if _ID_NAME.fullmatch(name) and _all_differ(values, _FEW):
            return "id", ""
        if not all(isinstance(value, str) for value in values):
            return "", ""
        # before numbers with marks: 1.5.2024 would be one
        style = mixed.date_style(values)
        # a number alone, such as 20240131, is a date where somebody says so
        if all(mixed.date_parts(value, style) and not value.isdecimal() for value in values):
            return "date", mixed.recorded_style(values)
        for mark in ("", ","):
            dialect = table_columns.in_decimals(self.dialect, mark)
            if all(_is_marked(value, dialect) for value in values) and any(map(dialect.is_word, values)):
                return "marked", mark
        lists = [found for value in values if (found := mixed.listed_text(value)) is not None]
        # one value between braces may be an id
        several = not values[0].startswith("{") or any(len(found) > 1 for found in lists)
        if len(lists) == len(values) and several and any(isinstance(v, str) for each in lists for v in each):
            return "set", ""
        # values of a category recur, however long they are
        if 2 * len({*values}) > len(values) > 1 and table_columns.are_documents(values):
            return "text", ""
        mark = next((mark for mark in _SET_MARKS if _is_joined(values, mark)), "")
        return ("set" if mark else ""), mark

    def may_be_id(self, name: str) -> bool:
        """Return whether all values are different whole numbers, which may be ids or a quantity."""
        values = self.present(name)
        return _all_differ(values, _MANY) and all(str(value).isdecimal() for value in values)


def _is_marked(value: str, dialect: Dialect) -> bool:
    plain = dialect.plain(mixed.unmarked(value, dialect))
    return is_number(plain) and (mixed.MARKED.fullmatch(value) is not None or plain == value)


def _all_differ(values: Sequence[Any], least: int) -> bool:
    if len(values) < least or not all(isinstance(value, (str, int)) for value in values):
        return False
    # numbers with a fraction, and texts of several words, name nothing
    named = all(not is_number(text) or text.isdecimal() for text in map(str, values))
    return named and len({*values}) == len(values) and not any(" " in str(value) for value in values)


def _is_joined(values: Sequence[str], mark: str) -> bool:
    """Return whether values are sets with a mark between their members, which recur."""
    # sentences have commas too: members are short, and most occur again
    parts = [part.strip() for value in values for part in value.split(mark)]
    joined = 2 * sum(mark in value for value in values) >= len(values) >= 4
    short = all(part and len(part.split()) <= 2 and not is_number(part) for part in parts)
    return joined and short and 2 * len({*parts}) <= len(parts)


@dataclass
class FeatureMaker:
    """Makes the features of columns."""

    read: TableColumns
    options: IngestOptions
    samples: Samples
    declared: Mapping[str, tuple[str, str]]
    found: dict[str, list[str]] = field(default_factory=dict)  # kind -> columns that nobody declared
    noted: dict[str, list[str]] = field(default_factory=dict)  # what is said (see `_NOTED`) -> columns
    zones: dict[str, list[str]] = field(default_factory=dict)  # columns of local times of several zones
    # columns of dates -> one with its day and month in any order
    undecided: dict[str, str] = field(default_factory=dict)
    several: dict[str, list[str]] = field(default_factory=dict)  # of numbers -> those with different marks

    def feature(self, name: str, *, is_category: bool) -> Feature | None:
        """Return a column, None if it is an id and no feature; of a category the values are still to be collected."""
        kind, style = self.declared.get(name, ("category" if name in self.read.categorical else "", ""))
        if not kind:
            kind, style = self.samples.kind(name)
            if kind == "marked" and len(texts := mixed.marks_of(self.samples.present(name))) > 1:
                self.several[name] = texts
            if kind:
                coded = kind == "marked" and all(map(mixed.HEXADECIMAL.fullmatch, self.samples.present(name)))
                what = "hexadecimal" if coded else style if style in _WHAT else kind
                self.found.setdefault(what, []).append(name)
            else:
                for what in self._seen(name, is_category):
                    self.noted.setdefault(what, []).append(name)
        if kind == "id":
            return None
        return self._of_kind(name, kind or ("category" if is_category else "number"), style)

    def _seen(self, name: str, is_category: bool) -> Iterator[str]:
        """Yield what is to be noted of a number or a category, as `_NOTED` names it."""
        if has_step(self.options.transform, AUTO) and self.samples.may_be_id(name):
            yield "ids"
        elif is_category:
            texts = {value for value in self.samples.values.get(name, ()) if isinstance(value, str)}
            if len({*table_columns.MISSING} & {*self.samples.dialect.missing} & texts) > 1:
                yield "missing"
        else:
            found = [*map(str, self.samples.present(name))]
            if any(map(_CODE.fullmatch, found)):
                yield "codes"
            if any(map(_is_long, found)):
                yield "long"
            if len(found) > 1 and all(map(_is_day, found)):
                yield "days"

    def _of_kind(self, name: str, kind: str, style: str) -> Feature:
        if kind in ("number", "category"):
            return Feature(name, () if kind == "category" else None, transform=style)  # type: ignore[arg-type]
        if kind == "text":
            width = self.options.n_features or DOCUMENTS
            return Feature(name, width=width, kind="text", words=self._words(), transform=style)  # type: ignore[arg-type]
        if kind == "date":
            texts = [str(value) for value in self.samples.present(name)]
            # decided once for all rows, and recorded: the rows of a day may not tell
            style = style or mixed.recorded_style(texts)
            if name not in self.declared and (text := mixed.undecided_date(texts)):
                self.undecided[name] = text
            if len(offsets := mixed.utc_offsets(texts)) > 1:
                self.zones[name] = offsets
            return Feature(name, width=mixed.date_width(texts, style), kind="date", style=style)
        if kind == "set":
            return Feature(name, (), kind="set", style=style or "|")
        if kind == "hash":
            return Feature(name, width=HASHED, kind="hash")
        return Feature(name, kind="marked", style=style)

    def _words(self) -> Words:
        given = {n: v for n in Words.__struct_fields__ if (v := vars(self.read)[n]) is not None}
        return Words(**given)

    def _other_readings(self) -> list[str]:
        """Name values that may be read otherwise."""
        one = "convert them to one where instants count"
        notices = [
            f'times in "{name}" are of several zones, {_some_of(offsets)}, and read as they are written: {one}'
            for name, offsets in self.zones.items()
        ]
        for name in self.found.get("date", ()):
            if text := next((t for t in map(str, self.samples.present(name)) if _LAST_YEAR.search(t)), ""):
                why = f'such as {text} may stand for no value: --na-values "{text}" reads them so'
                notices.append(f'dates in "{name}" {why}')
        for name, text in self.undecided.items():
            first, other = ("day", "mdy") if mixed.date_style([text]) == "dmy" else ("month", "dmy")
            notices.append(
                f'nothing in the first rows of "{name}" tells day and month apart: {text} is read with the {first} '
                f'first; --kind "{name}=date:{other}" reads them the other way'
            )
        left = "have different marks, which are left out"
        return notices + [
            f'numbers in "{name}" {left}: {" and ".join(texts)} are read as they are without'
            for name, texts in self.several.items()
        ]

    def notices(self) -> tuple[str, ...]:
        """Say which kinds were found, and how to overrule it."""
        found = ((names, _WHAT[kind]) for kind, names in self.found.items() if kind in _WHAT)
        verb = ("is", "are")
        parts = [f"{', '.join(map(_quoted, names))} {verb[len(names) > 1]} {what}" for names, what in found]
        said = f"columns by their values: {'; '.join(parts)}; --kind NAME=KIND says otherwise"
        notices = [said] * bool(parts)
        notices += [id_notice(name, "each of the first rows") for name in self.found.get("id", ())]
        noted = {w: said.format(_some(self.noted[w])) for w, said in _NOTED.items() if w in self.noted}
        last = noted.pop("ids", None)
        return (*notices, *noted.values(), *self._other_readings(), *filter(None, [last]))


def _is_long(text: str) -> bool:
    # whole numbers are looked at in all rows; Python has no decimal numbers with exponents of any size
    is_long = len(text) > sys.float_info.dig and "." in text and is_number(text) and float(text) != 0.0
    return is_long and mixed.is_rounded(Decimal(text))


def _is_day(text: str) -> bool:
    return text[:2] in ("19", "20") and text.isdecimal() and mixed.date_parts(text, "") is not None


def _some(names: Sequence[str]) -> str:
    return _some_of([*map(_quoted, names)])


def _some_of(texts: Sequence[str]) -> str:
    return ", ".join(texts[:5]) + ", ..." * (len(texts) > 5)


def _quoted(name: str) -> str:
    return f'"{name}"'


def first_of(texts: Sequence[str], most: int) -> str:
    """Join the first texts for a message, and say how many more there are."""
    return ", ".join(texts[:most]) + f" and {len(texts) - most} more" * (len(texts) > most)


def codes_notice(names: Sequence[str]) -> str:
    """Return the notice that numbers may be codes."""
    return f"numbers in {_some(names)} begin with zeros, as codes do: --kind NAME=category keeps them as they are"


def id_notice(name: str, rows: str = "each row") -> str:
    """Return the notice that a column is an id."""
    rest = f'which is no feature; --kind "{name}=number" or "{name}=category" makes it one'
    return f'column "{name}" has another value in {rows} and is taken for an id, {rest}'


def ordered(features: Iterable[Feature]) -> tuple[Feature, ...]:
    """Return the features of a mixed table with numbers first and documents last; others as they are."""
    # the order of other tables stays as it was in earlier versions
    features = tuple(features)
    if not any(feature.kind for feature in features):
        return features
    return tuple(sorted(features, key=lambda f: 0 if f.is_dense else 2 if f.kind == "text" else 1))


# -- missing values --------------------------------------------------------------------------------------


def imputed(features: Sequence[Feature], read: TableColumns, options: IngestOptions, find: Any) -> tuple[Feature, ...]:
    """Return the features with what their missing values become."""
    by_column: dict[str, str] = {}
    default = "median+indicator" if read.na is None and has_step(options.transform, AUTO) else ""
    for entry in read.impute:
        name, equals, strategy = entry.rpartition("=")
        base = strategy.removesuffix("+indicator")
        if base not in _STRATEGIES and not base.startswith("constant:"):
            how = f"{', '.join(_STRATEGIES)}, constant:VALUE, of numbers maybe with +indicator behind it"
            raise ParameterError(f"impute is one of {how}, or NAME= and one of them; not {entry!r}")
        if equals:
            by_column[find("impute", name)] = strategy
        else:
            default = strategy
    if read.impute and read.na is not None:
        why = "impute=constant:VALUE is a value with an indicator"
        raise ParameterError(f"na and impute exclude each other: {why}")
    unknown = by_column.keys() - {feature.name for feature in features}
    if unknown:
        raise ParameterError(f'impute: column "{min(unknown)}" is not a feature')
    return tuple(_imputed(f, by_column.get(f.name), default) for f in features)


def _imputed(feature: Feature, own: str | None, default: str) -> Feature:
    strategy = default if own is None else own
    fillable = feature.is_dense or feature.categories is not None
    if strategy in ("", "refuse") or feature.indices or not fillable:
        return feature
    base = strategy.removesuffix("+indicator")
    if feature.is_dense:
        number = base.removeprefix("constant:")
        if base == "category" or (number != base and not is_number(number)):
            if own is not None:
                raise ParameterError(f'impute: column "{feature.name}" has numbers; {own} is for categories')
            return feature
        return structs.replace(feature, impute=strategy)
    if feature.kind == "set":  # has none of its values
        return feature
    if own is not None and base in ("median", "mean"):
        raise ParameterError(f'impute: column "{feature.name}" has categories; {base} is for numbers')
    # those that are missing are a category of their own, unless they become another one
    return structs.replace(feature, impute=base if base not in ("median", "mean") else "category")


# -- what the first values show that is worth a word, at training and later -------------------------------


def first_notices(read: TableOptions, samples: Samples) -> tuple[str, ...]:
    """Name ids that occur more than once."""
    found = samples.present(read.id_column) if read.id_column in samples.values else []
    seen: set[str] = set()
    again = next((text for text in map(str, found) if text in seen or seen.add(text)), None)  # type: ignore[func-returns-value]
    if again is None:
        return ()
    return (
        f'ids in "{read.id_column}" occur more than once in the first rows, such as {again}: predictions have the row '
        "too, by which they are joined",
    )


def later_notices(features: Iterable[Feature], values: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Name dates of which nothing tells day and month apart, where those of the training data began with the year."""
    dates = ((f.name, values.get(f.name, ())) for f in features if f.kind == "date" and not f.style)
    found = ((name, mixed.undecided_date([v for v in first if isinstance(v, str)])) for name, first in dates)
    return tuple(
        f'nothing in the first rows of "{name}" tells day and month apart, and the training data have no such dates: '
        f"{text} is read with the day first; write the year first where that is wrong"
        for name, text in found
        if text
    )
