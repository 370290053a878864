"""Documents in a column of CSV or Parquet: which column, which labels, and the items to read."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distls.ingestion.formats.csv_header import read_head
from distls.ingestion.formats.parquet import read_parquet_heads, row_group_items
from distls.ingestion.formats.tables import TEXT_NAMES, ColumnFinder, listed
from distls.ingestion.request.source_start import first_lines
from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.document_tables import CSV_DOCUMENT_READER, PARQUET_DOCUMENT_READER
from distls.workers.ingestion.parsing.text_blocks import SourceFile, TextItem
from distls.workers.ingestion.records.reader import Reader, SourceItem

__all__ = [
    "LABEL_NAMES",
    "DocumentTable",
    "is_parquet",
    "names_documents",
    "open_document_table",
]

# Names of fields and columns of labels, in the order in which they are tried.
LABEL_NAMES = ("label", "class", "category", "intent", "target", "y")
_TABLE_NAMES = (".csv", ".tsv")


@dataclass(frozen=True)
class DocumentTable:
    """Tables with a column of documents."""

    path: str  # the first, for messages
    reader: Reader[Any, Any]
    columns: tuple[str, ...]
    items: tuple[SourceItem, ...]
    item_bytes: tuple[int, ...]
    reading: Mapping[str, Any] = field(default_factory=dict)  # options of the reader
    notices: tuple[str, ...] = ()

    def find(self, option: str, wanted: str | int | None, known: str, names: Sequence[str]) -> str:
        """Return the column of `option`: as given, as known from other data, or the first of `names`."""
        if wanted is not None:
            return ColumnFinder(self.columns, self.path)(option, wanted)
        if known in self.columns:
            return known
        found = next((name for name in names if name in self.columns), None)
        if found is None:
            remedy = " or --unlabelled" if option == "label_column" else ""
            raise BadInputError(
                f"{self.path}: no column named {', '.join(names)}; it has {listed(self.columns)}: "
                f"name one with --{option.replace('_', '-')}{remedy}"
            )
        return found

    def ignored(self, taken: Sequence[str]) -> tuple[str, ...]:
        """Return a notice about the columns that are not read, if there are any."""
        others = [name for name in self.columns if name not in taken]
        if not others:
            return ()
        what = "columns" if len(others) > 1 else "column"
        return (f"{what} {listed(others)} not read: the features are the words of the documents",)


def is_parquet(start: bytes) -> bool:
    """Return whether a file starts as Parquet does."""
    return start.startswith(b"PAR1")


def names_documents(name: str, start: bytes, known: str) -> bool:
    """Return whether a file is a table by its name, and its first line names a column of documents."""
    if not name.endswith(_TABLE_NAMES):
        return False
    line = start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    fields = {cell.strip() for mark in ",\t;|" for cell in next(csv.reader([line], delimiter=mark), [])}
    return bool(fields & {known or TEXT_NAMES[0], *TEXT_NAMES})


def open_document_table(
    files: Sequence[SourceFile],
    parquet: bool,
    known: Sequence[str],
    separator: str | None = None,
    header: str | bool | None = None,
) -> DocumentTable:
    """Read the heads of tables; a first line that has all `known` names of columns is a header.

    Raises BadInputError if a file cannot be read, or its columns are not those of the first.
    """
    return _open_parquet(files) if parquet else _open_csv(files, known, separator, header)


def _open_parquet(files: Sequence[SourceFile]) -> DocumentTable:
    heads = read_parquet_heads(files)
    items = row_group_items(files, heads)
    return DocumentTable(
        files[0].path,
        PARQUET_DOCUMENT_READER,
        tuple(heads[0].kinds),
        items,
        tuple(item.n_bytes for item in items),
    )


def _open_csv(
    files: Sequence[SourceFile], known: Sequence[str], separator: str | None, header: str | bool | None
) -> DocumentTable:
    heads = [read_head(first_lines(file), file.path, separator, header, known) for file in files]
    head, path = heads[0], files[0].path
    for file, other in zip(files[1:], heads[1:], strict=True):
        if (other.headed, other.columns) != (head.headed, head.columns):
            raise BadInputError(f"{file.path}: its first line is not like that of {path}")
    notices: tuple[str, ...] = ()
    if not head.certain:
        taken, opposite = ("names of columns", "no") if head.headed else ("a row", "yes")
        notices = (f"the first line of {path} is taken for {taken}; --header {opposite} if it is not",)
    # a quoted field may have line breaks, so that no range but the whole file certainly starts with a row
    items = tuple(TextItem(number, file, 0, file.size) for number, file in enumerate(files))
    reading = {"columns": head.columns, "separator": head.separator, "headed": head.headed}
    sizes = tuple(file.size for file in files)
    return DocumentTable(path, CSV_DOCUMENT_READER, head.columns, items, sizes, reading, notices)
