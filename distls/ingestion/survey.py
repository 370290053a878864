"""Stage 0 of an ingest of tables: the survey of the columns, merged in the order of the items."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from distls.ingestion.formats.column_kinds import first_of, id_notice, ordered
from distls.ingestion.request.source_plan import ColumnSurvey
from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import table_columns
from distls.workers.ingestion.formats.mixed_columns import MARKED, is_date, listed_text
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions, is_number
from distls.workers.ingestion.records.labels import alike

# Limits on the distinct values of a column: not declared to be a category, or declared.
MOST_GUESSED = 1000
_SHOWN = 20  # columns named in a notice
_ALL_GUESSED = 2**20
_DOCUMENT_WORDS = 3  # of documents, on average; names and addresses have fewer
_FEW_IDS = 50  # values that all differ, from which they are ids and no category
MOST_DECLARED = 2**17  # each becomes a feature, and a text that every task gets

# (name, limit of each column to collect, columns to check) -> the results of all items
SurveyRun = Callable[[str, dict[int, int], tuple[int, ...]], Iterable[dict[str, Any]]]
# (line counts of all items, item, line in it) -> FILE:LINE
Where = Callable[[Sequence[int], int, int], str]


def surveyed_options(
    survey: ColumnSurvey, n_features: int | None, run: SurveyRun, where: Where
) -> tuple[TableOptions, tuple[str, ...]]:
    """Determine the categorical columns and their values, whether labels are words, and the width of sparse rows.

    Return the completed options, and notices for the user. Raises BadInputError if a column has too many categories,
    or a row too many features.
    """
    found = _Survey(survey.read, survey.declared, survey.typed, where, survey.empty)
    found.collect(run)
    features = tuple(f for f in map(found.feature, survey.read.features) if f is not None)
    if not features:
        raise BadInputError(f"no column is left for features: {found.id_notices()[0]}")
    read = replace(survey.read, features=ordered(_with_width(features, n_features)))
    label_words = len(read.labels) == 1 and found.place[read.label] in found.words
    ids = read.id_column or next(iter(found.ids), "")
    coded = {name for name in read.guessed if found.place[name] in found.codes}
    read = replace(read, label_words=label_words, id_column=ids, coded=read.coded | coded)
    return read, found.notices(features)


def _with_width(features: tuple[Feature, ...], n_features: int | None) -> tuple[Feature, ...]:
    """Give sparse rows the rest of the requested width."""
    if n_features is None or table_columns.text_ranges(features):
        return features
    found = sum(feature.size for feature in features)
    if found > n_features:
        raise BadInputError(f"rows of {found} features do not fit into n_features={n_features}")
    spare = n_features - found
    return tuple(structs.replace(f, width=f.size + spare) if f.indices else f for f in features)


@dataclass
class _Survey:
    """Findings about the columns, by their numbers."""

    read: TableOptions
    declared: Sequence[str]
    typed: bool
    where: Where
    empty: frozenset[str]  # typed columns whose type is not known
    # first value that is not a number, as (item, line, text)
    words: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    values: dict[int, set[str] | None] = field(default_factory=dict)  # distinct values; None: too many
    largest: dict[int, int] = field(default_factory=dict)  # of a column of indices
    lines: list[int] = field(default_factory=list)  # of each item
    repeated: set[int] = field(default_factory=set)  # columns of which an item has a value twice
    codes: set[int] = field(default_factory=set)  # columns with numbers that begin with zeros
    ids: dict[str, tuple[str, ...]] = field(default_factory=dict)  # columns that turned out to be ids
    texts: dict[str, str] = field(default_factory=dict)  # columns that are documents -> one of them
    hashed: list[str] = field(default_factory=list)  # columns with too many values for a feature each

    def __post_init__(self) -> None:
        self.place = {name: c for c, name in enumerate(self.read.columns)}

    def collect(self, run: SurveyRun) -> None:
        """Survey all columns, and again those that turn out to be categories."""
        features = [(self.place[f.name], f) for f in self.read.features]
        limits = {c: self._limit(f.name) for c, f in features if f.categories is not None}
        numbers = [c for c, f in features if f.categories is None and not self._is_typed(f.name)]
        label = [self.place[self.read.label]] if len(self.read.labels) == 1 and not self.typed else []
        self._add(run("survey", limits, (*numbers, *label)), limits)
        # words after many numbers: the values before them were not collected; those of dates are not asked for
        kinds = {self.place[f.name] for f in self.read.features if f.kind}
        late = {c: MOST_GUESSED for c in numbers if c in self.words and c not in kinds}
        if late:
            self._add(run("survey-late", late, ()), late)
        self._check_one_header()

    def _check_one_header(self) -> None:
        """Refuse a line that names the columns once more, as where files were put together."""
        again = [
            (place, text)
            for column, (*place, text) in self.words.items()
            if text.removeprefix("\ufeff") == self.read.columns[column]
            and self.read.dialect.header
            # not the first line or two of a file, which may be a range's
            and int(self.where(self.lines, *place).rpartition(":")[2]) > 2
        ]
        places = [place for place, _ in again]
        # a single value, or one of the first row, may be that of a category, but not behind another file's mark
        if twice := next((p for p, text in again if places.count(p) > 1 or text[:1] == "\ufeff"), None):
            why = "the line has the names of columns once more; remove it"
            raise BadInputError(f"{self.where(self.lines, *twice)}: {why}")

    def _limit(self, name: str) -> int:
        """Return the most values of a column that are collected; all guessed columns together have a bound."""
        # every task gets the values of all columns
        guessed = sum(f.categories is not None and f.name not in self.declared for f in self.read.features)
        most = min(MOST_DECLARED, max(MOST_GUESSED, _ALL_GUESSED // max(guessed, 1)))
        return MOST_DECLARED if name in self.declared else most

    def _add(self, results: Iterable[dict[str, Any]], limits: dict[int, int]) -> None:
        self.lines = []
        for item, result in enumerate(results):
            self.lines.append(result["lines"])
            for column, line, text in result["words"]:
                self.words.setdefault(column, (item, line, text))
            for column, values in result["values"]:
                self._add_values(column, values, limits[column])
            self.repeated |= {*limits} - {*result.get("unique", ())}
            self.codes.update(result.get("codes", ()))
            for column, index in result.get("largest", ()):
                self.largest[column] = max(self.largest.get(column, -1), index)

    def _add_values(self, column: int, values: list[str] | None, limit: int) -> None:
        known = self.values.setdefault(column, set())
        if known is not None and values is not None:
            if not known.isdisjoint(set(values) - {"", self.read.na}):
                self.repeated.add(column)
            known.update(values)
        # None stays None: the column has too many values in one item, or in all together
        if known is None or values is None or len(known) > limit:
            self.values[column] = None

    def feature(self, guess: Feature) -> Feature | None:
        """Return a column as the survey found it, None if it is an id."""
        column = self.place[guess.name]
        if guess.indices:
            return structs.replace(guess, width=max(self.largest[self.place[guess.indices]] + 1, 1))
        if guess.kind not in ("", "set"):
            return guess
        if not guess.kind and not self._is_category(guess):
            return structs.replace(guess, categories=None)
        values = self.values[column]
        if guess.kind or guess.name in self.declared or (values is not None and len(values) <= MOST_GUESSED):
            return self._category(guess, values)
        # more values than a category usually has; numbers with a few words among them were read as numbers at first,
        # and the words are mistakes that have to be found
        if guess.categories is None or self._are_numbers(values):
            raise BadInputError(self._too_many(guess.name))
        n_words = sum(len(value.split()) for value in values or ())
        if values is not None and n_words >= _DOCUMENT_WORDS * len(values):
            self.texts[guess.name] = min(values - {""})
            return Feature(guess.name, width=2 * MOST_DECLARED, kind="text")
        if column not in self.repeated:
            self.ids[guess.name] = tuple(sorted(values or ()))
            return None
        return self._category(guess, values)

    def _category(self, guess: Feature, values: set[str] | None) -> Feature | None:
        if values is None and guess.kind:
            raise BadInputError(
                f'the sets of column "{guess.name}" have more than {MOST_DECLARED} values: --kind '
                f'"{guess.name}=text" hashes them as words'
            )
        if values is None:
            self.hashed.append(guess.name)
            return Feature(guess.name, width=MOST_DECLARED, kind="hash")
        may_be_id = not guess.kind and guess.name not in self.declared and len(values) >= _FEW_IDS
        may_be_id = may_be_id and not table_columns.are_documents(values)
        if may_be_id and self.place[guess.name] not in self.repeated:
            self.ids[guess.name] = tuple(sorted(values))
            return None
        # missing values were collected as empty texts
        impute, own = guess.impute, {*values}
        # 1 and 1.0 are one category
        whole = ((text, text.removesuffix(".0")) for text in own if text.endswith(".0"))
        own -= {twin for twin, text in whole if text in own & {*table_columns.whole_twins((twin,))}}
        if not impute or impute.startswith("constant:"):
            own -= {""} if self.read.gaps else set()
            own |= {impute.removeprefix("constant:")} if impute else set()
        strategy = structs.replace(guess, impute=impute or "category" * ("" in own and self.read.gaps))
        return structs.replace(strategy, categories=tuple(sorted(own)))

    def _are_numbers(self, values: set[str] | None) -> bool:
        """Return whether most values are numbers, so that the others are mistakes."""
        return values is not None and 2 * sum(map(is_number, values)) > len(values)

    def _is_category(self, guess: Feature) -> bool:
        known = guess.name in self.declared or (self.typed and guess.categories is not None)
        # words among numbers that somebody declared are refused with their rows
        return known or (guess.name in self.read.guessed and self.place[guess.name] in self.words)

    def _is_typed(self, name: str) -> bool:
        return self.typed and name not in self.empty

    def _first_word(self, name: str) -> tuple[str, str]:
        *place, text = self.words[self.place[name]]
        return text, self.where(self.lines, *place)

    def _too_many(self, name: str) -> str:
        if name in self.declared:
            return (
                f'column "{name}" has more than {MOST_DECLARED} values: write the table as text of Vowpal Wabbit '
                f'("label |{name} value"), which is hashed and has no limit, or leave it out with --ignore-columns '
                f'"{name}"'
            )
        remedies = (
            f'if it holds documents, read them with --text-column "{name}"; else take its values as categories '
            f'with --categorical "{name}", or leave it out with --ignore-columns "{name}"'
        )
        if self.typed:
            return f'column "{name}" has more than {MOST_GUESSED} values: {remedies}'
        text, where = self._first_word(name)
        if is_date(text):
            why = f'--kind "{name}=date" reads them, --ignore-columns "{name}" leaves it out'
            return f'{where}: column "{name}": "{text}" is a date, and the column has many: {why}'
        why = f"not a number, and the column has more than {MOST_GUESSED} values: correct it; {remedies}"
        return f'{where}: column "{name}": "{text}": {why}'

    def id_notices(self) -> list[str]:
        """Name the ids, in one notice with what else they look like."""
        found = []
        for name, values in self.ids.items():
            doubts = _doubts(Feature(name, values[:MOST_GUESSED]))
            if self._are_numbers({*values}):
                doubts += self._words_among(name, values, "no number")
            found.append("; ".join([id_notice(name), *doubts]))
        return found

    def _words_among(self, name: str, values: Sequence[str], what: str) -> list[str]:
        """Name the first word of a column that has numbers too, which makes it `what` it is."""
        numbers = [value for value in values if is_number(value) and value != self.read.na]
        if not numbers or self.place[name] not in self.words:
            return []
        text, where = self._first_word(name)
        remedy = f'; --na-values "{text}" if that stands for no value' * (len(values) == len(numbers) + 1)
        return [f'column "{name}" has numbers, such as {numbers[0]}, but also "{text}" ({where}): it is {what}{remedy}']

    def _notices_of_others(self) -> list[str]:
        """Name the columns that became no categories."""
        others = self.id_notices()
        others += [
            f'column "{name}" has many values and is taken for documents'
            f"{', though they are lists, whose numbers need a column each' * (listed_text(text) is not None)}: words "
            f"are hashed into {2 * MOST_DECLARED:,} features; --kind NAME=KIND says otherwise"
            for name, text in self.texts.items()
        ]
        many = f"has too many values for a feature each: they are hashed into {MOST_DECLARED:,} features"
        return others + [f'column "{name}" {many}; --kind "{name}=ignore" leaves it out' for name in self.hashed]

    def notices(self, features: Sequence[Feature]) -> tuple[str, ...]:
        """Name the columns that became categories, and why if that may surprise."""
        categories = [feature for feature in features if feature.categories is not None]
        others = self._notices_of_others()
        if not categories:
            return tuple(others)
        notices = [*others, _sizes(categories)]
        pairs = ((feature.name, alike(feature.categories or ())) for feature in categories)
        differ = "values that differ in case, blanks or the form of Unicode only are different categories"
        notices += [f'column "{name}": {differ}: {pair}' for name, pair in pairs if pair]
        for feature in (f for f in categories if f.name not in self.declared):
            notices += _doubts(feature)
            whole = not feature.kind and all(map(is_number, feature.categories or ()))
            if whole and self.read.source == "json":
                notices.append(
                    f'texts in column "{feature.name}" are whole numbers and taken for categories: --kind '
                    f'"{feature.name}=number" reads them as numbers'
                )
        # numbers may well be members of sets
        guessed = (f for f in categories if not (f.kind or f.name in self.declared or self._is_typed(f.name)))
        for feature in guessed:
            notices += self._words_among(feature.name, feature.categories or (), "a category")
        return tuple(notices)


def _sizes(categories: Sequence[Feature]) -> str:
    sizes = first_of([f'"{f.name}" ({f.size} values)' for f in categories], _SHOWN)
    what = "columns" if len(categories) > 1 else "column"
    return f"categorical {what}, with a feature for each value: {sizes}"


# 5 kg, 80km, USD 5; not 5a, 4th
_UNIT = re.compile(
    r"[-+]?\d+(?:[.,]\d+)?(?:\s+([^\W\d_])|\s*(?!st|nd|rd|th)([^\W\d_]{2,4}))|([A-Z]{2,3}\.?)\s+[-+]?\d+(?:[.,]\d+)?"
)


def _doubts(feature: Feature) -> list[str]:
    """Return notices of categories whose values look like something else, though not in the first rows."""
    name, values, found = feature.name, feature.categories or (), []
    dates = [value for value in values if is_date(value)]
    if feature.size >= _SHOWN and 2 * len(dates) > feature.size:
        why = f'--kind "{name}=date"'
        found.append(f'column "{name}" has dates, such as {dates[0]}, which are read as words: {why}')
    if feature.size >= _SHOWN and table_columns.are_documents(values):
        rest = f'whose words --kind "{name}=text" would read'
        found.append(f'the values of column "{name}" look like documents, {rest}')
    marked = [value for value in values if MARKED.fullmatch(value)]
    if 2 * len(marked) > feature.size:
        found.append(
            f'the values of column "{name}" look like numbers, such as "{marked[0]}": --decimal , '
            "reads those with a decimal comma; write others without marks of thousands, percent or currency"
        )
    units = [unit for value in values if (unit := _UNIT.fullmatch(value))]
    many = len(units) > 2 and 2 * len(units) > feature.size
    if many and len({unit[unit.lastindex or 0] for unit in units}) == 1:
        rest = f'such as "{units[0][0]}": they are words; write them without the unit'
        found.append(f'the values of column "{name}" look like numbers with a unit, {rest}')
    return found
