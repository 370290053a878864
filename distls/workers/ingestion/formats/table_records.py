"""Records of mixed tables, in separated text or JSON lines, as the record batches that Parquet files have."""

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

import msgspec
import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import parquet_files
from distls.workers.ingestion.formats.document_records import Refused, check_fields
from distls.workers.ingestion.formats.documents import csv_rows, named_fields, short_lines
from distls.workers.ingestion.formats.parquet_files import ParquetHead, ParquetItem, load_arrow
from distls.workers.ingestion.formats.plain_csv import plain_batches
from distls.workers.ingestion.formats.table_columns import TableOptions, check_count, is_number
from distls.workers.ingestion.parsing.array_types import Ints
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.text_blocks import SourceFile, TextItem, damage_described
from distls.workers.ingestion.records.labels import is_encodable
from distls.workers.ingestion.records.messages import quoted

# Of text, whose fields are objects of Python: in a batch, the size of each without its text.
_CHUNK_ROWS, _CHUNK_BYTES, _OBJECT_BYTES = 2**14, 16 * 2**20, 64
_RECORD = msgspec.json.Decoder(dict[str, msgspec.Raw])
# The 0-based line of a record, its fields by name, or why it cannot be read, and its size in memory.
_Record = tuple[int, dict[str, Any] | Refused, int]


class TableBatch(NamedTuple):
    """Rows of a table."""

    batch: Any  # of Arrow
    lines: Ints | None  # of the rows; None: their numbers
    faults: dict[int, str]  # rows that cannot be read, which lack all values, and why


def table_batches(
    item: ParquetItem | TextItem, options: TableOptions, names: list[str], n_rows: int
) -> Iterator[TableBatch]:
    """Yield the item's columns in batches of `n_rows` at most."""
    if isinstance(item, ParquetItem):
        for batch in parquet_files.parquet_batches(item, names, n_rows):
            yield TableBatch(_typed(batch, options, item.file.path), None, {})
        return
    options = item.own(options)
    done = -1  # the last line of those that are plain
    if options.source == "csv":
        for first, batch in plain_batches(item, options, names, n_rows):
            if batch is None:
                return
            yield TableBatch(batch, np.arange(first, first + batch.num_rows), {})
            done = first + batch.num_rows - 1
    records = (_csv_records if options.source == "csv" else _json_records)(item, options, names, done)
    for chunk in _chunks(records, min(n_rows, _CHUNK_ROWS)):
        yield _batch_of(chunk, options, names, item.file.path)


def _chunks(records: Iterator[_Record], n_rows: int) -> Iterator[list[_Record]]:
    """Yield records by `n_rows` at most, fewer where they are long: a batch has bounded memory, or one row."""
    chunk: list[_Record] = []
    size = 0
    for record in records:
        if chunk and (len(chunk) == n_rows or size + record[2] > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += record[2]
    if chunk:
        yield chunk


def _batch_of(chunk: Sequence[_Record], options: TableOptions, names: list[str], path: str) -> TableBatch:
    # a row that cannot be read stays, without values, so that the others keep their numbers
    faults = {row: str(record) for row, (_, record, _) in enumerate(chunk) if isinstance(record, Refused)}
    fields: list[dict[str, Any]] = [{} if isinstance(record, Refused) else record for _, record, _ in chunk]
    arrow = load_arrow(path)
    columns = [arrow_values([record.get(name) for record in fields], arrow) for name in names]
    batch = _typed(arrow.RecordBatch.from_arrays(columns, names=names), options, path)
    return TableBatch(batch, np.array([line for line, *_ in chunk], dtype=np.int64), faults)


def _typed(batch: Any, options: TableOptions, path: str) -> Any:
    """Return a batch in which columns without a value have the type that they have elsewhere."""
    arrow, names = load_arrow(path), batch.schema.names
    if not any(map(arrow.types.is_null, batch.schema.types)):
        return batch
    numbers = {f.name for f in options.features if f.is_dense and not f.kind} | {options.weight}
    types = [arrow.float64() if name in numbers else arrow.string() for name in names]
    columns = [c.cast(t) if arrow.types.is_null(c.type) else c for c, t in zip(batch, types, strict=True)]
    return arrow.RecordBatch.from_arrays(columns, names=names)


def arrow_values(values: list[Any], arrow: Any) -> Any:
    """Return values as an Arrow array; those of several types as texts."""
    try:
        return arrow.array(values)
    except (arrow.ArrowException, OverflowError, TypeError, ValueError):
        texts = (v if v is None or isinstance(v, str) else json.dumps(v) for v in values)
        return arrow.array(list(texts), arrow.string())


def _csv_records(item: TextItem, options: TableOptions, names: Sequence[str], done: int) -> Iterator[_Record]:
    """Yield the records behind the line `done`."""
    place = {name: options.columns.index(name) for name in names}
    documents = {feature.name for feature in options.features if feature.kind == "text"}
    for line, row in csv_rows(item, options.dialect, len(options.columns)):
        if line <= done:
            continue
        size = 0 if isinstance(row, Refused) else sum(map(len, row)) + _OBJECT_BYTES * len(row)
        yield line, named_fields(row, place, documents), size


def _json_records(item: TextItem, *_: Any) -> Iterator[_Record]:
    with damage_described(item.file), item.open() as file:
        for line, raw in enumerate(_lines(file, item.file.path)):
            if raw.strip():
                record = json_record(raw)
                n_fields = 1 if isinstance(record, Refused) else len(record)
                yield line, record, len(raw) + _OBJECT_BYTES * n_fields
        # After the last row: what changed meanwhile is not one source.
        item.file.check()


def _lines(file: IO[bytes], path: str) -> Iterator[bytes]:
    # a plain file is read as it comes
    with io.BufferedReader(cast(io.RawIOBase, file)) as buffered:
        yield from short_lines(cast(IO[bytes], buffered), path)


def json_record(raw: bytes) -> dict[str, Any] | Refused:
    """Return the fields of a line, or why it has none."""
    # deep nesting exhausts the stack of the parser
    try:
        record = json.loads(raw.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return Refused(f"{quoted(raw)}: not a JSON object")
    if not isinstance(record, dict):
        return Refused(f"{quoted(raw)}: not a JSON object")
    if b"NaN" in raw:  # as programs write what frames lack
        record = {name: None if value != value else value for name, value in record.items()}
    try:
        check_fields(record, raw.removeprefix(BYTE_ORDER_MARK))
    except Refused as refused:
        return Refused(f"{quoted(raw)}: {refused}")
    # half a pair of surrogates is written as an escape
    if b"\\u" in raw and not is_encodable(json.dumps(record, ensure_ascii=False)):
        return Refused(f"{quoted(raw)}: a lone surrogate, which is no character")
    return record


def first_records(files: Sequence[SourceFile]) -> list[dict[str, Any]]:
    """Return the first records of files that can be read, and in one record the fields that only later ones have."""
    records: list[dict[str, Any]] = []
    fields: set[str] = set()
    later: dict[str, Any] = {}
    for file in files:
        with damage_described(file), file.open() as opened:
            for raw in filter(bytes.strip, _lines(opened, file.path)):
                # most lines have no new field, which is seen before their values are parsed
                if len(records) >= parquet_files.SAMPLED and fields.issuperset(_fields_of(raw)):
                    continue
                record = json_record(raw)
                if isinstance(record, dict) and len(records) < parquet_files.SAMPLED:
                    records.append(record)
                elif isinstance(record, dict):
                    later |= {name: value for name, value in record.items() if name not in fields}
                fields.update(record if isinstance(record, dict) else ())
                check_count(len(fields), file.path)
    return [*records, later] if later else records


def _fields_of(raw: bytes) -> Iterable[str]:
    try:
        return _RECORD.decode(raw)
    except msgspec.DecodeError:
        record = json_record(raw)  # a number such as NaN, or no record
        return record if isinstance(record, dict) else ()


def json_head(path: str, records: Sequence[dict[str, Any]]) -> ParquetHead:
    """Return the columns of records as those of a Parquet file; raise BadInputError without any."""
    if not records:
        raise BadInputError(f"{path}: no JSON object on its first lines")
    arrow = load_arrow(path)
    names = dict.fromkeys(itertools.chain.from_iterable(records))
    # a field that a record lacks is a missing value
    fields = {name: [record.get(name) for record in records] for name in names}
    written = {name for name, values in fields.items() if _are_fractions(values)}
    columns = [
        arrow_values([float(v) if name in written and isinstance(v, str) else v for v in values], arrow)
        for name, values in fields.items()
    ]
    # a column without a value so far may have numbers, or be found a category by a survey; of texts others may follow
    empty = written.union(n for n, c in zip(names, columns, strict=True) if arrow.types.is_null(c.type))
    columns = [c.cast(arrow.float64()) if arrow.types.is_null(c.type) else c for c in columns]
    table = arrow.table(columns, names=list(names))
    kinds = parquet_files.kinds_of_columns(arrow.types, table.schema)
    # of lists of numbers, all of which are as long as the first that is there
    lists = [name for name in names if kinds[name] == "list"]
    lengths = {name: next((len(r[name]) for r in records if r.get(name)), 0) for name in lists}
    return ParquetHead(kinds, lengths, (), sample=parquet_files.first_values(table, arrow), empty=frozenset(empty))


def _are_fractions(values: Sequence[Any]) -> bool:
    """Return whether texts are numbers, some with a fraction: whole ones may be codes."""
    texts = [value for value in values if isinstance(value, str)]
    return all(map(is_number, texts)) and any("." in text for text in texts)
