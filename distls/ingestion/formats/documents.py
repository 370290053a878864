"""Raw text format: hashing, and the fields or columns of document, label and weight."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from distls.ingestion.formats.csv_header import Expected
from distls.ingestion.formats.document_tables import (
    DocumentTable,
    is_document_table,
    looks_like_labelled_lines,
    open_document_table,
)
from distls.ingestion.formats.tables import LABEL_NAMES, TEXT_NAMES
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import (
    ID_COLUMN,
    NA_VALUES,
    HashedWords,
    LabelColumn,
    OptionInfo,
    SeparatedText,
    TableColumns,
    option,
)
from distls.ingestion.request.like import Like, description_of, known_dialect, missing_values
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, item_facts, shared_options, text_ids, text_plan
from distls.ingestion.request.source_start import first_lines, start_of
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats.document_records import MAX_COLUMNS, DocumentReadOptions, Hashing
from distls.workers.ingestion.formats.documents import DOCUMENT_READER
from distls.workers.ingestion.formats.table_columns import Dialect, Words
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile, TextItem
from distls.workers.ingestion.public_sets.marked_documents import MARKED_READER, marks_of
from distls.workers.ingestion.records.record_batch import ArrayHeader

_JSON_NAMES = (".jsonl", ".ndjson")
_MOST_NAMED = 2**22  # columns that are named by their words, all in the driver's memory
_COLUMNS = ("text_column", "label_column", "weight_column", "id_column")
# options that ask for a table
_OF_TABLES = ({*TableColumns.infos()} | {*SeparatedText.infos()}) - {*HashedWords.infos(), "encoding"}


@dataclass(frozen=True)
class DocumentOptions(LabelColumn, HashedWords, SeparatedText):
    """Options of raw text, which is hashed as scikit-learn's HashingVectorizer does it, without a norm.

    Attributes
    ----------
    text_column, label_column, weight_column : str or int, optional
        Fields of JSON lines, or columns of CSV and Parquet, by name or position; `text_column` says that a table has
        documents. By default the document is the first of ``text``, ``document``, ``sentence``, ``content``, ``body``
        that is there, its label the first of ``label``, ``class``, ``category``, ``intent``, ``target``, ``y``; there
        is no weight.
    id_column : str or int, optional
        The id of a document, kept for predictions.
    ngrams : (int, int) or str, optional
        Shortest and longest run of words or characters. Default: (1, 1).
    analyzer : {"word", "char", "char_wb"}, optional
        What is counted. Default: "word".
    lowercase : bool, optional
        Default: true.
    alternate_sign : bool, optional
        Alternate the sign of hashed features. Default: false, as log1p and idf need counts.
    binary : bool, optional
        Ones instead of counts. Default: false.
    keep_words : bool, optional
        Keep the most frequent word of each column as its name, for reports and coefficients. Default: false.
    separator, header, decimal, na_values, encoding : optional
        Of documents in CSV, as `CsvOptions` has them; `na_values` also of labels in plain lines.
    """

    text_column: str | int | None = option(
        None, OptionInfo("Documents in CSV, Parquet, JSON; there default text, document, ...", "COLUMN")
    )
    id_column: str | int | None = option(None, ID_COLUMN)
    keep_words: bool | None = option(
        None, OptionInfo("Raw text: name columns by their most frequent word.", fitted=True, flag="--keep-words")
    )
    na_values: Sequence[str] = option((), NA_VALUES)


class DocumentFormat(Format[DocumentOptions]):
    """One document a line, or in a column of a table; see the readers in `distls.workers.ingestion.formats`."""

    name = "text"
    options = DocumentOptions
    # asked first: data like hashed text are hashed text, whatever they look like
    rank = 0

    def recognises(self, start: SourceStart) -> bool:
        """Return whether `like` is hashed text, a text column is named, or the file starts as raw text does."""
        hashed = start.like is not None and _is_hashed_text(start.like)
        if hashed or "text_column" in start.given or start.name.endswith(_JSON_NAMES):
            return True
        if _looks_like_json_lines(start.content) or _has_prefixed_labels(start.content):
            return True
        if marks_of(start.content):
            return True
        return not start.given & _OF_TABLES and looks_like_labelled_lines(start.name, start.content)

    def plan(self, files: Files, read: DocumentOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Choose columns and hashing, which must be the hashing of `like`."""
        path, start = files[0].path, _first_record_of(files[0])
        if like is not None and not _is_hashed_text(like):
            kind = like.meta.source.get("format", "other")
            raise MismatchError(f"{path} is raw text, but {like.path} has features of {kind} sources")
        known = description_of(like)
        hashing = _hashing(read, options.n_features, known, like)
        words = _keeps_words(read, hashing, like)
        own, facts = _as_found(files, start, read, options.unlabelled, like)
        reading = DocumentReadOptions(hashing=hashing, keep_words=words, **own, **shared_options(options))
        facts |= {"weighted": bool(reading.weight_column), "description": _recipe(reading)}
        headers = (ArrayHeader(-1, hashing.n_features, sparse=True),)
        plan = text_plan(self.name, DOCUMENT_READER, files, reading, headers=headers)
        return replace(plan, **facts)


# Fields of `DocumentReadOptions`, and those of `SourcePlan` that differ from those of lines.
_Found = tuple[dict[str, Any], dict[str, Any]]


def _as_found(files: Files, start: bytes, read: DocumentOptions, unlabelled: bool, like: Like | None) -> _Found:
    """Return how the kind of files is read that these are: with marks, tables, or lines."""
    path, known = files[0].path, description_of(like)
    if marks := marks_of(start):
        return _marked(files, marks, read, like)
    table = _table(files, start, read, unlabelled, like)
    if table is None:
        dialect = Dialect(missing=missing_values(read.na_values, like, typed=False))
        columns = _columns(start, path, read, unlabelled, known)
        return {**columns, "prefixed": _has_prefixed_labels(start), "dialect": dialect}, {}
    columns = _table_columns(table, read, unlabelled, known)
    ignored = () if like else table.ignored(tuple(columns.values()))
    facts = {**table.facts, "estimate": sum(table.facts["item_bytes"]) * 2.0}
    return {**columns, **table.reading}, {**facts, "notices": (*table.notices, *ignored)}


def _marked(files: Files, marks: str, read: DocumentOptions, like: Like | None) -> _Found:
    """Plan files whose documents are between marks: an item is a file, which has no lines to be cut at."""
    path, known = files[0].path, {"smart": ".I", "rdf": "about"}
    for column in ("text_column", "label_column", "weight_column"):
        if vars(read)[column] is not None:
            remedy = f"the documents of {path} are between marks"
            raise ParameterError(f"{column} is for tables and JSON lines; {remedy}")
    # the ids of SMART are all that its documents can be known by
    ids = text_ids(read.id_column, known[marks], path, like) or (known[marks] if marks == "smart" else "")
    for file in files[1:]:
        if marks_of(start_of(file)) != marks:
            raise BadInputError(f"{file.path}: not of the kind of {path}; ingest one kind of file at a time")
    items = tuple(TextItem(number, file, 0, file.size) for number, file in enumerate(files))
    return {"marks": marks, "id_column": ids}, item_facts(MARKED_READER, items)


def _keeps_words(read: DocumentOptions, hashing: Hashing, like: Like | None) -> bool:
    if read.keep_words and hashing.n_features > _MOST_NAMED:
        remedy = f"ingest with --n-features of {_MOST_NAMED} at most"
        raise ParameterError(f"keep_words: {hashing.n_features} columns are too many to be named; {remedy}")
    # names are those of the training data
    return bool(read.keep_words) and like is None


def _recipe(reading: DocumentReadOptions) -> dict[str, Any]:
    """Return how other documents are read alike, whatever kind of file they are in."""
    hashing = msgspec.structs.asdict(reading.hashing) | {"ngrams": list(reading.hashing.ngrams)}
    columns: dict[str, Any] = {name: getattr(reading, name) for name in _COLUMNS}
    if not reading.id_column:
        del columns["id_column"]  # the recipe is part of the fingerprint
    # that of lines has nothing to say but of what stands for no label
    if reading.columns:
        columns["dialect"] = msgspec.to_builtins(reading.dialect)
    return hashing | columns


def _has_prefixed_labels(start: bytes) -> bool:
    return start.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"__label__")


def _table(
    files: Files, start: bytes, read: DocumentOptions, unlabelled: bool, like: Like | None
) -> DocumentTable | None:
    """Return the tables that the files are, None for lines of text."""
    parquet, lines = start.startswith(b"PAR1"), _looks_like_json_lines(start)
    names = {"text_column", "separator", "header", "decimal", *["encoding"] * parquet}
    asked = names & read.given().keys()
    if (parquet or lines) and asked - {"text_column"}:
        what = "Parquet" if parquet else "JSON lines"
        raise ParameterError(f"{min(asked - {'text_column'})} is for CSV; {files[0].path} is {what}")
    if lines:
        return None
    column, dialect = description_of(like).get("text_column", ""), known_dialect(like)
    name = re.sub(r"\.(gz|bz2|xz|zst)\Z", "", files[0].path)
    # of data to be scored nobody says where the documents are
    written = like is not None and is_document_table(name, start, column, dialect)
    if not parquet and not asked and not written:
        return None
    if column and read.header is None and read.text_column is None:
        # a column that is not there is an error, no document
        headed = dialect.header if dialect is not None else not column.isdecimal()
        read = replace(read, header="yes" if headed else "no")
    expected = Expected.of(read, (read.text_column,), unlabelled, like)
    return open_document_table(files, parquet, replace(expected, features=frozenset({column} - {""})))


def _table_columns(
    table: DocumentTable, read: DocumentOptions, unlabelled: bool, known: Mapping[str, Any]
) -> dict[str, str]:
    """Return the columns of document, label and weight, the last two empty if there are none."""
    columns = dict.fromkeys(_COLUMNS, "")
    for name, usual in (("text_column", TEXT_NAMES), ("label_column", () if unlabelled else LABEL_NAMES)):
        if usual:
            columns[name] = table.find(name, vars(read)[name], known.get(name, ""), usual)
    for name in ("weight_column", "id_column"):
        own = known.get(name, "")
        columns[name] = own if own in table.columns else ""
        if vars(read)[name] is not None:
            columns[name] = table.find(name, vars(read)[name], "", ())
    if len(set(filter(None, columns.values()))) < sum(map(bool, columns.values())):
        raise ParameterError(f"{', '.join(_COLUMNS)} must be different columns")
    return columns


def _looks_like_json_lines(start: bytes) -> bool:
    return start.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _first_record_of(file: SourceFile) -> bytes:
    """Return the first bytes of a file, of JSON lines at least the first record."""
    start = start_of(file)
    return first_lines(file) if _looks_like_json_lines(start) and b"\n" not in start else start


def _is_hashed_text(like: Like) -> bool:
    return like.meta.source.get("format") == "text"


def _hashing(
    read: DocumentOptions, n_features: int | None, description: Mapping[str, Any], like: Like | None
) -> Hashing:
    """Return the requested hashing, which must be that of `like`."""
    given: dict[str, Any] = {n: v for n, v in read.given().items() if n in Words.__struct_fields__}
    if n_features is not None:
        given["n_features"] = n_features
    if like is None:
        hashing = Hashing(**given)
    else:
        hashing = known_hashing(description)
        for name, value in given.items():
            if value != getattr(hashing, name):
                raise MismatchError(f"{name}={value}, but {like.path} has {name}={getattr(hashing, name)}")
    if hashing.n_features > MAX_COLUMNS:
        why = f"text is hashed into {MAX_COLUMNS} columns at most"
        raise ParameterError(f"n_features={hashing.n_features}: {why}")
    return hashing


def known_hashing(description: Mapping[str, Any]) -> Hashing:
    """Return the hashing of a recorded description of raw text."""
    return msgspec.convert(description, Hashing)


def _columns(
    start: bytes, path: str, read: DocumentOptions, unlabelled: bool, description: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the field names, all empty for plain text."""
    asked = {name: read.given().get(name) for name in _COLUMNS}
    if not _looks_like_json_lines(start):
        given = next((name for name, value in asked.items() if value is not None), None)
        if given:
            remedy = f"the lines of {path} are LABEL<TAB>DOCUMENT, or documents with unlabelled"
            raise ParameterError(f"{given} is for JSON lines; {remedy}")
        return dict.fromkeys(_COLUMNS, "")
    record = _first_record(start)
    # a field of `like` is taken over only if it is a field here too
    known = {name: description.get(name, "") for name in asked}
    names = {name: value or (known[name] if known[name] in record else "") for name, value in asked.items()}
    # label and text are required, a weight is not
    if unlabelled:
        names["label_column"] = ""
    else:
        names["label_column"] = names["label_column"] or _found(record, path, "label", LABEL_NAMES)
    names["text_column"] = names["text_column"] or _found(record, path, "text", TEXT_NAMES)
    return names


def _first_record(start: bytes) -> dict[str, Any]:
    try:
        record = json.loads(start.removeprefix(BYTE_ORDER_MARK).lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _found(record: dict[str, Any], path: str, what: str, names: tuple[str, ...]) -> str:
    """Return the first of `names` that is a field of the first record."""
    found = next((name for name in names if name in record), None)
    if found is None:
        fields = ", ".join(f'"{name}"' for name in list(record)[:10]) or "none that can be read on its line"
        remedy = " or ingest --unlabelled" if what == "label" else ""
        advice = f"the first record has {fields}: name one with --{what}-column{remedy}"
        raise BadInputError(f"{path}: no field named {', '.join(names)}; {advice}")
    return found
