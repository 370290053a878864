"""Tables with typed values, Parquet and JSON lines: roles of the columns by type, and the lists of sparse rows."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import structs

from distls.ingestion.formats import tables
from distls.ingestion.formats.column_kinds import Samples, first_notices, later_notices, ordered
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import OptionInfo, TableColumns, column_list, option
from distls.ingestion.request.like import Like, description_of, missing_values
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import ColumnSurvey, SourcePlan, text_plan
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats import parquet_files
from distls.workers.ingestion.formats.csv import CSV_READER
from distls.workers.ingestion.formats.parquet import PARQUET_READER
from distls.workers.ingestion.formats.parquet_files import ParquetHead, ParquetItem
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions, text_ranges
from distls.workers.ingestion.formats.table_records import first_records, json_head, json_record
from distls.workers.ingestion.parsing.text_blocks import Files
from distls.workers.ingestion.transforms import AUTO, has_step

_SHOWN = 10  # columns in a message
_FEW_SAMPLES = 20  # values of each of many files


def _name_pair(given: str | Sequence[str | int]) -> tuple[str, str]:
    names = column_list(given)
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ParameterError(f"list_columns are two names, of indices and of values, not {given!r}")
    return str(names[0]), str(names[1])


@dataclass(frozen=True)
class ParquetOptions(TableColumns):
    """Options of parquet files.

    Attributes
    ----------
    label_column, weight_column, id_column, ignore_columns, categorical, na, na_values, kind, impute, ngrams, analyzer,
    lowercase, alternate_sign, binary
        As `CsvOptions` has them.
    list_columns : (str, str), optional
        Columns with lists of indices and values: sparse rows. Default: ``indices`` and ``values``.
    """

    list_columns: Sequence[str] | None = option(
        None, OptionInfo("parquet: sparse rows; default indices,values.", "INDICES,VALUES", parse=_name_pair)
    )


class ParquetFormat(Format[ParquetOptions]):
    """Tables with typed columns, read by row groups."""

    name = "parquet"
    signature = b"PAR1"
    options = ParquetOptions
    no_sets = tables.TABLE_NO_SETS

    def plan(self, files: Files, read: ParquetOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Choose the columns by their types and the first row; an item is a row group."""
        heads = read_parquet_heads(files)
        reading, kinds = table_reading(files, heads, read, options, like)
        left_out = heads[0].index - {*reading.columns} if like is None else ()
        items = row_group_items(files, heads)
        survey = None
        # numbers and lists of a fixed length need no survey
        if like is None and any(f.categories == () or f.indices for f in reading.features):
            # of numbers, categories are what their types declare
            declared = (*tables.declared_columns(reading, read), *heads[0].categorical)
            survey = ColumnSurvey(reading, declared, typed=True, facts=tables.table_facts)
        notices = (
            f'column "{name}" is the index of pandas and no feature; --id-column "{name}" keeps it with the rows'
            for name in sorted(left_out)
            if not _is_unnamed(name)
        )
        sizes = tuple(item.n_bytes for item in items)
        facts: dict[str, Any] = {"estimate": sum(sizes) * 2.0, "survey": survey, **tables.table_facts(reading)}
        facts["notices"] = (*notices, *kinds)
        return SourcePlan(self.name, PARQUET_READER, tuple(files), items, sizes, reading, **facts)


def table_reading(
    files: Files, heads: Sequence[ParquetHead], read: ParquetOptions, options: IngestOptions, like: Like | None
) -> tuple[TableOptions, tuple[str, ...]]:
    """Return the options of the reader, and notices."""
    path, kinds = files[0].path, heads[0].kinds
    if like is None:
        # a column without a value is one of numbers, as in separated text
        kinds = {name: "number" if kind == "null" else kind for name, kind in kinds.items()}
        heads = [replace(head, kinds=kinds) for head in heads]
    index = heads[0].index - read.named - {*description_of(like).get("columns", ())}
    names = [name for name in kinds if name not in index and not _is_unnamed(name)]
    # of all files, so that their order does not matter
    share = max(parquet_files.SAMPLED // len(heads), _FEW_SAMPLES)
    sample = {n: [v for h in heads for v in h.sample.get(n, ())[:share]] for n in heads[0].sample}
    dialect = Dialect(missing=missing_values(read.na_values, like, typed=True))
    samples = Samples(sample, dialect, _kinds_of_times(kinds))
    if like is None:
        words = [name for name in names if kinds[name] == "text" or name in heads[0].categorical]
        documents = next((name for name in tables.TEXT_NAMES if name in words), "")
        reading, notices = tables.choose_columns(names, words, path, read, options, samples, documents)
        reading = replace(reading, features=ordered(_features(reading, heads[0], path, read, options)))
    else:
        reading = _renamed(tables.like_columns(names, True, path, read, options, like), names)
        kinds = _kinds_of_empty(reading, kinds)
        check_like_kinds(reading, kinds, path, like)
        notices = later_notices(reading.features, sample)
    _check_types(reading, kinds, path)
    return reading, (*notices, *first_notices(reading, samples))


def _kinds_of_times(kinds: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the kinds of columns of dates and times, which need no value to be known."""
    styles = {"date": "", "timestamp": "", "time": "time", "duration": "duration"}
    types = {name: re.split(r"\d|\[", kind)[0] for name, kind in kinds.items()}
    return {name: ("date", styles[kind]) for name, kind in types.items() if kind in styles}


def _kinds_of_empty(table: TableOptions, kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds of columns; one without a single value, which has no type, is what it was in training."""
    features = (f for f in table.features if not _has_lists(f))
    own = {f.name: "number" if f.is_dense and not f.kind else "text" for f in features}
    return {name: own.get(name, kind) if kind == "null" else kind for name, kind in kinds.items()}


def _has_lists(feature: Feature) -> bool:
    return bool(feature.indices or (feature.width and not feature.kind))


def _is_unnamed(name: str) -> bool:
    return name.startswith("__index_level_")  # row labels of pandas, which are no data


def read_parquet_heads(files: Files) -> list[ParquetHead]:
    """Read the footers of files, or raise BadInputError if their columns are not those of the first."""
    heads = [parquet_files.read_parquet_head(file) for file in files]
    kinds = dict(heads[0].kinds)
    for file, other in zip(files[1:], heads[1:], strict=True):
        wrong = f"{file.path}: its columns are not those of {files[0].path}: "
        if {*other.kinds} != {*kinds}:
            raise BadInputError(f"{wrong}{tables.difference([*other.kinds], [*kinds])}")
        for name, kind in other.kinds.items():
            # a column without a single value in a file has no type there
            kinds[name] = kind if kinds[name] == "null" else kinds[name]
            if kind not in (kinds[name], "null"):
                raise BadInputError(f'{wrong}"{name}" is of kind {kind}, not {kinds[name]}')
    return [replace(head, kinds=kinds) for head in heads]


def row_group_items(files: Files, heads: Sequence[ParquetHead]) -> tuple[ParquetItem, ...]:
    """Return one item a row group with rows."""
    items: list[ParquetItem] = []
    for file, head in zip(files, heads, strict=True):
        start = 0
        for group, (n_rows, n_bytes) in enumerate(head.groups):
            if n_rows:
                items.append(ParquetItem(len(items), file, group, start, start + n_rows, n_bytes))
            start += n_rows
    return tuple(items)


def _renamed(table: TableOptions, names: Sequence[str]) -> TableOptions:
    """Give columns that were matched by position the names they have in the file."""
    own = dict(zip(table.columns, names, strict=True))
    features = tuple(
        structs.replace(feature, name=own[feature.name], indices=own.get(feature.indices, ""))
        for feature in table.features
    )
    label, weight, ids = (own.get(name, "") for name in (table.label, table.weight, table.id_column))
    table = replace(table, more_labels=tuple(own[name] for name in table.more_labels))
    return replace(table, columns=tuple(names), label=label, weight=weight, features=features, id_column=ids)


def _features(
    table: TableOptions, head: ParquetHead, path: str, read: ParquetOptions, options: IngestOptions
) -> tuple[Feature, ...]:
    """Return the features, lists included; the width of sparse rows is left to the survey."""
    indices, values = _sparse_pair(table, head.kinds, path, read.list_columns)
    features = []
    for feature in table.features:
        if feature.name == values:
            features.append(Feature(values, indices=indices))
        elif feature.name != indices:
            if head.kinds[feature.name] == "list" and not feature.kind:
                feature = structs.replace(feature, width=_list_length(feature.name, head, path))
            features.append(feature)
    if options.n_features is not None and not values and not text_ranges(features):
        remedy = "there are no two columns of lists, indices and values"
        raise ParameterError(f"n_features is for sparse rows; {remedy}")
    return tuple(features)


def _sparse_pair(
    table: TableOptions, kinds: Mapping[str, str], path: str, given: Sequence[str] | None
) -> tuple[str, str]:
    """Return the columns of indices and values of sparse rows, empty if there are none."""
    lists = [feature.name for feature in table.features if kinds[feature.name] == "list"]
    pair = given or ("indices", "values")
    if set(pair) <= set(lists):
        return pair[0], pair[1]
    if given is not None:
        missing = next(name for name in pair if name not in lists)
        raise ParameterError(f'list_columns: {path} has no column "{missing}" of lists of numbers')
    return "", ""


def _list_length(name: str, head: ParquetHead, path: str) -> int:
    if not head.lengths.get(name):
        raise BadInputError(
            f'{path}, row 0: column "{name}": an empty list; the first row says how long lists are, '
            "unless --list-columns INDICES,VALUES names two columns that are sparse rows"
        )
    return head.lengths[name]


def check_like_kinds(table: TableOptions, kinds: Mapping[str, str], path: str, like: Like) -> None:
    """Refuse columns of another kind than those of `like`."""
    wrong = []
    for feature in table.features:
        expected = "list" if _has_lists(feature) else "number" if feature.categories is None else "text"
        name, found = feature.name, kinds[feature.name]
        # values of the other kinds are read as text, numbers serve as categories: they are compared as text
        if feature.kind:
            expected, found = "text", found if found == "list" and feature.kind != "set" else "text"
        if found != expected and (found, expected) != ("number", "text"):
            wrong.append(f'column "{name}" is of kind {found}, but that of {like.path} of kind {expected}')
    if wrong:
        raise MismatchError(f"{path}: {'; '.join(wrong[:_SHOWN])}")


def _check_types(table: TableOptions, kinds: Mapping[str, str], path: str) -> None:
    """Refuse columns of types that do not suit their roles."""
    allowed: dict[str, tuple[str, ...]]
    allowed = {f.name: ("number", "text", "list") for f in table.features if not f.kind}
    allowed |= {f.name: (kinds[f.name],) for f in table.features if f.kind}  # whatever is read as text
    allowed |= dict.fromkeys(table.labels, ("number", "text") if len(table.labels) == 1 else ("number",))
    allowed[table.weight] = ("number",)
    allowed[table.id_column] = ("number", "text")
    wrong = [name for name, fitting in allowed.items() if name and kinds[name] not in fitting]
    if wrong:
        parts = [
            f'column "{name}" is of type {kinds[name]}, not '
            + " or ".join(allowed[name]).replace("list", "list of numbers")
            for name in wrong[:_SHOWN]
        ]
        left_out = ",".join([name for name in wrong if len(allowed[name]) == 3][:_SHOWN])
        remedy = f'; --ignore-columns "{left_out}" leaves it out' if left_out else ""
        if any("list" in kinds[name] for name in table.labels if name in wrong):
            remedy += "; sets of labels are for documents: --multilabel of ingest and train"
        raise BadInputError(f"{path}: {'; '.join(parts)}{remedy}")


# -- JSON lines ----------------------------------------------------------------------------------------


class JsonLinesFormat(Format[ParquetOptions]):
    """Records with named fields, as those of Parquet files with their types; documents alone are raw text."""

    name = "jsonl"
    options = ParquetOptions
    rank = -1  # before raw text
    no_sets = tables.TABLE_NO_SETS

    def recognises(self, start: SourceStart) -> bool:
        """Return whether its lines are records without documents, or with more than one, its label, weight and id."""
        if not start.content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return False
        # data to be scored are what those of training were
        if start.like is not None:
            return tables.is_table(start.like)
        if start.given & {"kind", "impute", "categorical", "ignore_columns", "na"}:
            return True
        if "text_column" in start.given or start.options.multilabel:
            return False
        chosen = has_step(start.options.transform, AUTO) and not start.given & {"weight_column", "id_column"}
        return _is_table(start.content, start.options.unlabelled, chosen)

    def plan(self, files: Files, read: ParquetOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Choose the columns by the first records; an item is a file."""
        head = json_head(files[0].path, first_records(files))
        if like is None and not options.unlabelled and not any(k.endswith("=label") for k in read.kind):
            label = next((name for name in tables.LABEL_NAMES if name in head.kinds), None)
            read = replace(read, label_column=label if read.label_column is None else read.label_column)
        reading, notices = table_reading(files, [head], read, options, like)
        # unlike fields of separated text, values have types
        reading = replace(reading, source="json")
        facts, survey = partial(tables.text_facts, files), None
        unknown = any(f.categories == () or f.indices or f.name in head.empty for f in reading.features)
        if like is None and unknown:
            declared = tables.declared_columns(reading, read)
            survey = ColumnSurvey(reading, declared, typed=True, facts=facts, empty=head.empty)
        plan = text_plan(self.name, CSV_READER, files, reading, survey=survey, notices=notices)
        return replace(plan, **facts(reading))


def _is_table(content: bytes, unlabelled: bool, chosen: bool) -> bool:
    """Return whether the first records have no documents or, where that is `chosen`, features beside them."""
    lines = content.split(b"\n")
    records = [json_record(line) for line in itertools.islice(lines[:-1] or lines, 20) if line.strip()]
    found = [record for record in records if isinstance(record, dict)]
    if not found:
        return False
    names = dict.fromkeys(itertools.chain(*found))
    samples = Samples({name: [record.get(name) for record in found] for name in names})
    label = next((name for name in tables.LABEL_NAMES if name in samples.values and not unlabelled), None)
    others = {*samples.values} - {label}
    if not others & {*tables.TEXT_NAMES}:
        # documents with another name are named by an option
        return len(others) > 1 or any(samples.kind(name)[0] != "text" for name in others)
    if not chosen:
        return False
    # beside documents: numbers, truths, and words that recur
    others -= {next(name for name in tables.TEXT_NAMES if name in others)}
    return any(_is_feature(samples, name) for name in others)


def _is_feature(samples: Samples, name: str) -> bool:
    # words that never recur are names of something, or documents
    values = samples.present(name)
    if samples.kind(name)[0] in ("id", "text") or name.lower() in ("id", "weight") or not values:
        return False
    return not all(isinstance(value, str) for value in values) or len({*values}) < len(values)
