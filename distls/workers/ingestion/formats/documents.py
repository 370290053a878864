"""Documents to batches of row records: in a column of a table, CSV or Parquet, or one a line, hashed into columns.

A line is ``LABEL<TAB>DOCUMENT``, ``__label__NAME DOCUMENT`` as of fastText, a document alone, or a JSON object with
named fields.
"""

import csv
import io
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, AnyStr

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import document_records
from distls.workers.ingestion.formats.csv import separator_line
from distls.workers.ingestion.formats.document_records import Document, DocumentReadOptions, Found, Refused
from distls.workers.ingestion.formats.parquet_files import ParquetItem, parquet_batches
from distls.workers.ingestion.formats.table_columns import Dialect
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, TextBlock, TextItem, damage_described
from distls.workers.ingestion.records.labels import is_encodable
from distls.workers.ingestion.records.messages import ENCODED, SEVERAL_LABELS, UNLABELLED, quoted
from distls.workers.ingestion.records.reader import TextReader
from distls.workers.ingestion.records.record_batch import ReadRun, RecordBatch

_MOST_BREAKS = 5  # of lines in the name of a column
_UNCLOSED = "{}: a quote in its first line is never closed"
# The 0-based line (row) of a record, and its fields by name, or why it cannot be read.
_Record = tuple[int, dict[str, Any] | Refused]


def _documents(records: Iterable[_Record], options: DocumentReadOptions) -> Iterator[Found]:
    for line, record in records:
        try:
            yield (line, record if isinstance(record, Refused) else document_records.document_of(record, options))
        except Refused as refused:
            yield line, refused


def _csv_documents(item: TextItem, options: DocumentReadOptions) -> Iterator[Found]:
    own = item.own(options)
    names = filter(None, (own.text_column, own.label_column, own.weight_column, own.id_column))
    place = {name: own.columns.index(name) for name in names}
    rows = csv_rows(item, own.dialect, len(own.columns))
    fields = ((line, named_fields(row, place, {own.text_column})) for line, row in rows)
    return _documents(((line, _as_document(record, own)) for line, record in fields), own)


def csv_rows(item: TextItem, dialect: Dialect, wanted: int) -> Iterator[tuple[int, list[str] | Refused]]:
    """Yield line and fields of the rows of an item, `wanted` of them; quoted fields may have line breaks.

    What is not UTF-8 is there as surrogates.
    """
    csv.field_size_limit(MAX_LINE)  # 128 KiB by default
    with damage_described(item.file), item.open() as file:
        # a wrong byte is found in its record, which has a line
        encoding = "utf-8" if item.start else "utf-8-sig"
        text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="\n")
        rows = csv.reader(
            short_lines(text, item.file.path),
            delimiter=dialect.separator,
            skipinitialspace=dialect.separator != " ",
            # Strict: a quote in the middle of a field is refused instead of guessed at.
            strict=True,
        )
        expects_header = dialect.header and not item.start
        while True:
            # Before the record: a quoted field may span lines.
            line = rows.line_num
            try:
                row = next(rows)
            except StopIteration:
                break
            except csv.Error as error:
                yield line, Refused(_csv_rule(error))
                continue
            if line == item.start == 0 and separator_line(f"{dialect.separator.join(row)}\n".encode(errors="replace")):
                continue
            # the first line that is not blank
            if row and not expects_header:
                yield line, row if len(row) == wanted else _of_another_width(row, dialect, wanted)
            expects_header = expects_header and not row
        # After the last row: what changed meanwhile is not one source.
        item.file.check()


def short_lines(text: IO[AnyStr], path: str) -> Iterator[AnyStr]:
    """Yield the lines of text or bytes; raise BadInputError for one that is too long."""
    while line := text.readline(MAX_LINE):
        # A binary file has no line ends, and would be read whole.
        if len(line) == MAX_LINE:
            raise BadInputError(f"{path}: a line of more than {MAX_LINE // 2**20} MiB: not text in lines")
        yield line


def is_open(line: str, separators: Iterable[str | None]) -> bool:
    """Return whether a quote that opens a field is never closed; one within a field, as of inches, opens nothing."""
    for separator in {"\0", *(s for s in separators if s and s in line)}:  # the first for a line of one field
        try:
            next(csv.reader([line], delimiter=separator, skipinitialspace=True, strict=True), None)
        except csv.Error as error:
            if "unexpected end" in str(error):
                return True
    return False


def with_whole_first(lines: list[str], path: str, separators: Sequence[str | None]) -> tuple[list[str], bool]:
    """Return lines whose first is a whole row, maybe with line breaks in its fields, and whether it has any.

    Raises BadInputError if a quote in it is never closed.
    """
    for count in range(1, len(lines) + 1):
        first = "\n".join(lines[:count])
        if not (count > 1 and first.count('"') % 2) and not is_open(first, separators):
            return [first, *lines[count:]], count > 1
    raise BadInputError(_UNCLOSED.format(path))


def check_names(names: Sequence[str], separator: str, path: str) -> None:
    """Raise BadInputError if one of the names of columns is rows up to another stray quote."""
    if any("\n" in name and (separator in name or name.count("\n") > _MOST_BREAKS) for name in names):
        raise BadInputError(_UNCLOSED.format(path))


def joined_rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the rows of lines of which some are parts of fields, the last perhaps not whole; none if all are rows.

    None either if these rows have several widths, as where a quote is never closed.
    """
    if not any(line.count('"') % 2 for line in lines):
        return []
    try:
        reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, skipinitialspace=True)
        rows = [[field.strip() for field in row] for row in reader]
    except csv.Error:
        return []
    # a field that goes on behind these lines
    rows = rows[: len(rows) - sum(line.count('"') for line in lines) % 2]
    return rows if len({*map(len, rows)}) == 1 and len(rows) > 1 else []


def _csv_rule(error: csv.Error) -> str:
    if "unexpected end" in str(error) or "field limit" in str(error):
        return "a quote is never closed"
    if "expected after" in str(error):
        return "text after a closing quote; a quote between quotes is doubled"
    return str(error)


def _of_another_width(row: list[str], dialect: Dialect, wanted: int) -> Refused:
    # Names are positions: a row of another length has unknown fields.
    start = quoted(dialect.separator.join(row).encode("utf-8", "surrogateescape"))
    return Refused(f"{start}: {len(row)} field{'s' * (len(row) > 1)} where there should be {wanted}")


def named_fields(
    row: list[str] | Refused, place: Mapping[str, int], documents: Container[str]
) -> dict[str, Any] | Refused:
    """Return some fields of a row by name; blanks around a value are no part of it, but may count in documents."""
    if isinstance(row, Refused):
        return row
    fields = {name: row[c] if name in documents else row[c].strip() for name, c in place.items()}
    for name, text in fields.items():
        # Surrogates stand for the bytes that were not UTF-8.
        if not is_encodable(text):
            shown = quoted(text.encode("utf-8", "surrogateescape"))
            return Refused(f'column "{name}": {shown} is not UTF-8; {ENCODED}')
    return fields


def _as_document(fields: dict[str, Any] | Refused, options: DocumentReadOptions) -> dict[str, Any] | Refused:
    """Return the fields of a document as JSON has them, with a list of labels and a number as weight."""
    if isinstance(fields, Refused):
        return fields
    if options.label_column:
        label = fields[options.label_column]
        # what stands for no value is an empty label, which is refused
        label = "" if label in options.missing else label
        if options.multilabel:
            label = [part.strip() for part in label.split(",")] if label else []
        fields[options.label_column] = label
    if options.weight_column:
        fields[options.weight_column] = _number(options.dialect.plain(fields[options.weight_column]))
    return fields


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # refused as a weight, with its rule


def _parquet_documents(item: ParquetItem, options: DocumentReadOptions) -> Iterator[Found]:
    return _documents(_parquet_records(item, options), options)


def _parquet_records(item: ParquetItem, options: DocumentReadOptions) -> Iterator[_Record]:
    names = [options.text_column, options.label_column if options.labelled else "", options.weight_column]
    names.append(options.id_column)
    row_bytes = max(item.n_bytes // max(item.stop - item.start, 1), 1)
    # Rows of about equal size, so that a batch has bounded memory.
    n_rows = max(1, min(document_records.CHUNK_CHARACTERS // row_bytes, document_records.CHUNK_ROWS))
    row = 0
    # Each column once, though it may serve for two things.
    for batch in parquet_batches(item, list(dict.fromkeys(filter(None, names))), n_rows):
        try:
            records = batch.to_pylist()
        except UnicodeDecodeError:  # Arrow does not check the strings it reads
            why = f'column "{options.text_column}" is not UTF-8 text'
            raise BadInputError(f"{item.file.path}: {why}") from None
        for record in records:
            yield row, record
            row += 1


CSV_DOCUMENT_READER = document_records.DocumentReader(_csv_documents)
PARQUET_DOCUMENT_READER = document_records.DocumentReader(_parquet_documents)


_CHUNK_BYTES = 8 * 2**20  # of text hashed at a time: its tokens take several times its size
# as fastText: every word with this prefix is a label, wherever it is
_PREFIXED_LABEL = re.compile(r"(?<!\S)__label__(\S+)\s?")


class DocumentParser:
    """Parses the blocks of one item."""

    def __init__(self, run: ReadRun[DocumentReadOptions]) -> None:
        self.options = options = run.options
        self.progress = run.progress
        self._packer = document_records.DocumentPacker(options, run.n_extra)
        self._read = _read_plain
        if options.text_column or options.prefixed:
            self._read = _read_json if options.text_column else _read_prefixed

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        # Hashing takes several times the memory of the text.
        for chunk in _line_chunks(block):
            found = list(self._documents(chunk))
            self.progress.offset += len(chunk)
            # The last line may lack its end.
            self.progress.lines += chunk.count(b"\n") + (not chunk.endswith(b"\n"))
            if found:
                yield self._packer.batch(found)

    def _documents(self, chunk: bytes) -> Iterator[tuple[int, Document]]:
        # Numbered from the item's lines, as messages name them.
        for line, raw in enumerate(chunk.removesuffix(b"\n").split(b"\n"), self.progress.lines):
            try:
                document = self._read(raw, self.options)
            except Refused as refused:
                self.progress.skip(line, f"{quoted(raw)}: {refused}")
                continue
            if document is not None:
                yield line, document


def _line_chunks(block: TextBlock) -> Iterator[bytes]:
    """Cut a block into chunks of whole lines, of at most _CHUNK_BYTES unless a line is longer."""
    start = 0
    while start < block.size:
        stop = min(start + _CHUNK_BYTES, block.size)
        newlines = np.flatnonzero(block.text[start:stop] == ord("\n"))
        # no line ends in the chunk: extend it to the end of the line
        if stop < block.size and not len(newlines):
            # The text is followed by one more byte, a line end if there is one.
            stop += int(np.argmax(block.text[stop : block.size + 1] == ord("\n"))) + 1
        elif stop < block.size:
            # Behind the last whole line of the chunk.
            stop = start + int(newlines[-1]) + 1
        yield block.text[start : min(stop, block.size)].tobytes()
        start = stop


def _read_plain(raw: bytes, options: DocumentReadOptions) -> Document | None:
    text = _decoded(raw)
    if not options.labelled:
        return Document(text, [], 1.0)
    if not text.strip():
        return None
    label, tab, document = text.partition("\t")
    if not tab:
        # A document without a tab is most likely one without a label.
        raise Refused("expected LABEL<TAB>DOCUMENT; documents alone are for ingest --unlabelled, and predict")
    label = label.strip()
    # what stands for no value is an empty label, which is refused
    labels = ["" if label in options.missing else label]
    if options.multilabel:
        labels = label.split(",") if label.strip() else []
    return Document(document, document_records.checked_labels([label.strip() for label in labels]), 1.0)


def _read_prefixed(raw: bytes, options: DocumentReadOptions) -> Document | None:
    text = _decoded(raw)
    if options.labelled and not text.strip():
        return None
    # Labels are no words of the document.
    document = _PREFIXED_LABEL.sub("", text)
    if not options.labelled:
        return Document(document, [], 1.0)
    labels = _PREFIXED_LABEL.findall(text)
    if len(labels) != 1 and not options.multilabel:
        raise Refused(SEVERAL_LABELS if labels else f"expected __label__NAME; documents {UNLABELLED}")
    return Document(document, document_records.checked_labels(labels), 1.0)


def _decoded(raw: bytes) -> str:
    try:
        # A byte order mark may begin any file of a concatenation.
        return raw.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise Refused(f"byte {error.start + 1} of the line is not UTF-8; {ENCODED}") from None


def _read_json(raw: bytes, options: DocumentReadOptions) -> Document | None:
    text = _decoded(raw)
    if not text.strip():
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise Refused("expected a JSON object with named fields")
    document_records.check_fields(record, raw.removeprefix(BYTE_ORDER_MARK))
    return document_records.document_of(record, options)


DOCUMENT_READER = TextReader(DocumentParser)
