"""CSV format: separator, header and the roles of the columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from distls.facts import counted
from distls.ingestion.formats import tables
from distls.ingestion.formats.column_kinds import first_notices, later_notices
from distls.ingestion.formats.csv_header import Expected, Head, looks_like_table, read_heads
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import SeparatedText, TableColumns, label_names, position_of
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import ColumnSurvey, SourcePlan, text_plan
from distls.storage.errors import MismatchError, ParameterError
from distls.workers.ingestion.formats.csv import CSV_READER
from distls.workers.ingestion.formats.table_columns import TableOptions, text_ranges
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile


@dataclass(frozen=True)
class CsvOptions(TableColumns, SeparatedText):
    """Options of separated text.

    Attributes
    ----------
    label_column, weight_column : str or int, optional
        By name, by position from 0, from -1 backwards, or ``"last"``; the label has no default. Several columns,
        ``["a", "b"]`` or ``"a,b"``, are the targets of a regression.
    id_column : str or int, optional
        The id of a row, which is no feature: kept for predictions, not learned from.
    ignore_columns, categorical : str or sequence
        Columns to leave out, and to treat as categorical whatever they hold. A column with anything but numbers in it
        is a category by itself: a feature for each of its values.
    na : float, optional
        The number that missing values stand for. Default: they are refused.
    na_values : str, number or sequence, optional
        Further texts, or numbers, that stand for no value, beside those of pandas and SQL.
    separator : str, optional
        Between the fields: a character, ``tab`` or ``space``. Default: detected.
    header : bool, optional
        Whether the first line names the columns. Default: detected.
    encoding : str, optional
        Of the text, by Python's name, such as ``cp1252``. Default: UTF-8, or what its byte order mark says.
    decimal : {".", ","}, optional
        Decimal mark; with a comma, points may stand between thousands. Default: detected.
    kind : mapping or sequence of str, optional
        ``{"note": "text"}`` or ``"note=text"``: number (``number:log1p`` and ``number:none``: with a transform of its
        own), category, text (documents, whose words are hashed; ``text:tfidf``, ``text:none``, ``text:log1p+l2norm``:
        with transforms of its own), date, duration, set (a list, or values with the mark of ``set:|`` between them),
        hash, id, weight, label, ignore. Default: found.
    impute : str, mapping or sequence of str, optional
        What missing values become, of all columns or of one (``"age=mean"``): ``median``, ``mean``,
        ``most_frequent``, ``constant:VALUE``, with ``+indicator`` also a feature that says where; ``category``, one of
        their own; ``refuse``. Default: refused, with ``transform=auto`` ``median+indicator``, and of categories
        ``category``.
    ngrams, analyzer, lowercase, alternate_sign, binary : optional
        Of columns of documents, as `DocumentOptions` has them.
    """


class CsvFormat(Format[CsvOptions]):
    """Tables as text, CSV and TSV; plain, gzip, bz2, xz or zstd."""

    name = "csv"
    options = CsvOptions
    rank = 3
    no_sets = tables.TABLE_NO_SETS

    def recognises(self, start: SourceStart) -> bool:
        """Return whether its name is that of a table, `like` is one, or its lines have equally many fields."""
        if start.name.endswith((".csv", ".tsv")) or (start.like is not None and tables.is_table(start.like)):
            return True
        first = next(filter(None, map(bytes.strip, start.content.split(b"\n"))), b"")
        # lines with a bar are more likely Vowpal Wabbit's
        return b"|" not in first and looks_like_table(start.content)

    def plan(self, files: Files, read: CsvOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Inspect the start of each file and choose the columns."""
        reading, files, notices = _reading(files, read, options, like)
        if options.n_features is not None and not text_ranges(reading.features):
            raise ParameterError("n_features is not for tables of text, whose columns are the features")
        facts = partial(tables.text_facts, files)
        survey = None
        if like is None:
            own = replace(reading, source="csv" if reading.by_records else "")
            survey = ColumnSurvey(own, tables.declared_columns(reading, read), typed=False, facts=facts)
        plan = text_plan(self.name, CSV_READER, files, reading, survey=survey, notices=notices)
        return replace(plan, **facts(reading))


def with_line_breaks(plan: SourcePlan) -> SourcePlan | None:
    """Return the plan of separated text that is read by records, None if it already is, or is no such text."""
    if plan.format != "csv" or not isinstance(plan.read, TableOptions) or plan.read.by_records:
        return None
    read = replace(plan.read, line_breaks=True)
    survey = plan.survey
    if survey is not None:
        survey = replace(survey, read=replace(read, source="csv"))
    return replace(plan, survey=survey, **tables.text_facts(plan.files, read))


def _reading(
    files: Files, read: CsvOptions, options: IngestOptions, like: Like | None
) -> tuple[TableOptions, Sequence[SourceFile], tuple[str, ...]]:
    """Return the options of the reader, the files with their columns, and notices for the user."""
    path = files[0].path
    features: list[dict[str, Any]] = description_of(like).get("features", [])
    if like is not None and any("width" in feature and "kind" not in feature for feature in features):
        raise MismatchError(f"{path} is a table of text, but {like.path} has columns of lists")
    head, files, doubt = read_heads(files, _expected(read, options, like))
    read, notices = _without_index(head, read, [feature["name"] for feature in features])
    if like is None:
        names = head.columns, head.words
        reading, kinds = tables.choose_columns(*names, path, read, options, head.samples, head.documents)
        reading = replace(reading, line_breaks=head.line_breaks)
        if broken := [name.replace("\n", " ") for name in head.columns if "\n" in name]:
            doubt = (*doubt, f"names with line breaks, as a stray quote makes them too: {tables.listed(broken)}")
        return reading, files, (*notices, *doubt, *kinds, *first_notices(reading, head.samples))
    reading = tables.like_columns(head.columns, head.dialect.header, path, read, options, like, head.dialect)
    # class labels are read as text, as in every other text format
    words = like.meta.target != "continuous"
    reading = replace(reading, label_words=words, line_breaks=head.line_breaks)
    later = (*first_notices(reading, head.samples), *later_notices(reading.features, head.samples.values))
    return reading, files, (*(notices if doubt else ()), *doubt, *later)


def _expected(read: CsvOptions, options: IngestOptions, like: Like | None) -> Expected:
    """Return what options and data `like` say about a table before it is read."""
    expected = Expected.of(read, (*read.ignore_columns, *read.categorical), options.unlabelled, like)
    known = description_of(like)
    if like is None or not tables.is_table(like):
        return expected
    columns, labels = known["columns"], tables.known_labels(known)
    headless = tables.has_positions(like) and like.meta.source.get("format") == "csv"
    if headless and labels and not options.unlabelled and read.label_column is None:
        expected = replace(expected, label=columns.index(labels[0]))
    n_needed = len(known["features"]) + len(labels) * (not options.unlabelled)
    widths = frozenset({len(columns), len(columns) - len(labels) * options.unlabelled, n_needed})
    names = frozenset(() if headless else (feature["name"] for feature in known["features"]))
    return replace(expected, features=names, headless=headless, widths=widths)


def _without_index(head: Head, read: CsvOptions, known: Sequence[str]) -> tuple[CsvOptions, tuple[str, ...]]:
    """Leave out numbers and names of rows that come first, and columns without name and value; and say so."""
    # those that an option names, or that were features in training, stay
    unnamed = [name for name in dict.fromkeys((head.index, *head.empty)) if name and name not in known]
    unnamed = [name for name in unnamed if not read.named & {name, head.columns.index(name)}]
    empty = [name for name in unnamed if name in head.empty]
    notices = []
    if len(unnamed) > len(empty):
        rest = "as an index: it is left out"
        notices.append(f"the first column has no name and numbers or names the rows, {rest}")
    if empty:
        why = f"{counted(len(empty), 'column')} left out, {tables.listed(empty)}"
        notices.append(f"no name, and no value in the first rows: {why}")
    read = _counted_from_the_last(head.columns, frozenset(empty), read)
    return replace(read, ignore_columns=(*read.ignore_columns, *unnamed)), tuple(notices)


def _counted_from_the_last(columns: Sequence[str], empty: frozenset[str], read: CsvOptions) -> CsvOptions:
    """Return options that name the columns which they count from the last one that is not left out as empty."""
    kept = list(columns)
    while kept and kept[-1] in empty:
        kept.pop()
    if len(kept) == len(columns):
        return read

    def named(column: str | int) -> str | int:
        place = position_of(column) if column not in columns else None
        return column if place is None or not -len(kept) <= place < 0 else kept[place]

    asked = {"weight_column": read.weight_column, "id_column": read.id_column}
    changed: dict[str, Any] = {name: named(column) for name, column in asked.items() if column is not None}
    several = label_names(read.label_column)
    if several and several[0] not in columns:
        own = [named(name) for name in several if name != read.label_column or len(several) == 1]
        changed["label_column"] = own[0] if len(own) == 1 else own
    return replace(read, **changed)
