"""Documents in a column of CSV or Parquet: which column, which labels, and the items to read."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distls.ingestion.formats.csv_header import Expected, read_heads
from distls.ingestion.formats.parquet import read_parquet_heads, row_group_items
from distls.ingestion.formats.tables import TEXT_NAMES, ColumnFinder, listed
from distls.ingestion.request.source_plan import item_facts, record_items
from distls.storage.errors import BadInputError, MismatchError
from distls.workers.ingestion.formats.documents import CSV_DOCUMENT_READER, PARQUET_DOCUMENT_READER
from distls.workers.ingestion.formats.table_columns import Dialect
from distls.workers.ingestion.parsing.text_blocks import Files

_TABLE_NAMES = (".csv", ".tsv")
# Of lines of a label, a tab and a document, which resemble a table of two columns.
_SAMPLED = 200
_LABEL = re.compile(r"[^\s|:]{1,100}")  # one word; bars are Vowpal Wabbit's, colons svmlight's
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class DocumentTable:
    """Tables with a column of documents."""

    path: str  # the first, for messages
    columns: tuple[str, ...]
    facts: Mapping[str, Any]  # of `SourcePlan`: reader, items and their bytes
    reading: Mapping[str, Any] = field(default_factory=dict)  # options of the reader
    notices: tuple[str, ...] = ()

    def find(self, option: str, wanted: Any, known: str, names: Sequence[str]) -> str:
        """Return the column of `option`: as given, as known from other data, or the first of `names`."""
        if wanted is not None:
            return ColumnFinder(self.columns, self.path)(option, wanted)
        if known in self.columns:
            return known
        flag = f"--{option.replace('_', '-')}"
        if known:
            what = "documents" if option == "text_column" else "labels"
            raise MismatchError(
                f'{self.path}: no column "{known}", which had the {what} in training; there are '
                f"{listed(self.columns)}: {flag} names another one"
            )
        found = next((name for name in names if name in self.columns), None)
        if found is None:
            remedy = " or ingest --unlabelled" if option == "label_column" else ""
            advice = f"it has {listed(self.columns)}: name one with {flag}{remedy}"
            raise BadInputError(f"{self.path}: no column named {', '.join(names)}; {advice}")
        return found

    def ignored(self, taken: Sequence[str]) -> tuple[str, ...]:
        """Return a notice about the columns that are not read, if there are any."""
        others = [name for name in self.columns if name not in taken]
        if not others:
            return ()
        what = "columns" if len(others) > 1 else "column"
        return (f"{what} {listed(others)} not read: the features are the words of the documents",)


def is_document_table(name: str, start: bytes, known: str, dialect: Dialect | None) -> bool:
    """Return whether a file to be read like documents is a table: those of the column `known`, of lines if it is empty.

    A file named as a table is one, unless the documents were in none (without `dialect`) and its first line does not
    name them: such files may have lines of LABEL<TAB>DOCUMENT. One with another name is one if its lines are like
    theirs.
    """
    lines = start.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").split("\n")[:_SAMPLED]
    marks = {*",\t;|", "," if dialect is None else dialect.separator}
    fields = {cell.strip() for mark in marks for cell in next(csv.reader(lines[:1], delimiter=mark), [])}
    if dialect is None:
        named = bool(fields & {known or TEXT_NAMES[0], *TEXT_NAMES})
        return named and name.endswith(_TABLE_NAMES)
    # another case is a name that is not there, and no document
    named = known.casefold() in {field.casefold() for field in fields}
    widths = {len(row) for row in csv.reader(lines[:-1], delimiter=dialect.separator) if row}
    return named or name.endswith(_TABLE_NAMES) or (len(lines) > 2 and len(widths) == 1 < max(widths))


def open_document_table(files: Files, parquet: bool, expected: Expected) -> DocumentTable:
    """Read the heads of tables.

    Raises BadInputError if a file cannot be read, or its columns are not those of the first.
    """
    path = files[0].path
    if parquet:
        heads = read_parquet_heads(files)
        groups = row_group_items(files, heads)
        sizes = tuple(item.n_bytes for item in groups)
        facts = {"reader": PARQUET_DOCUMENT_READER, "items": groups, "item_bytes": sizes}
        return DocumentTable(path, tuple(heads[0].kinds), facts)
    head, files, notices = read_heads(files, expected)
    items = item_facts(CSV_DOCUMENT_READER, record_items(files, head.dialect.separator))
    return DocumentTable(path, head.columns, items, {"columns": head.columns, "dialect": head.dialect}, notices)


def looks_like_labelled_lines(name: str, start: bytes) -> bool:
    """Return whether each line of a file is a label, a tab and several words.

    A file named as a table is one. The first line must have several words too, which no name of a column has.
    """
    if name.endswith(_TABLE_NAMES):
        return False
    text = start.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = [line for line in text.split("\n")[:_SAMPLED] if line.strip()]
    if len(start) >= 2**16 and len(lines) > 1:
        lines.pop()  # possibly incomplete
    parts = [line.partition("\t") for line in lines]
    if not parts or not all(tab and _LABEL.fullmatch(label.strip()) for label, tab, _ in parts):
        return False
    documents = [document for _, _, document in parts]
    counts = [len(_WORD.findall(document)) for document in documents]
    if any("\t" in document for document in documents) or counts[0] < 2:
        return False
    return 2 * sum(count > 2 for count in counts) >= len(counts)
