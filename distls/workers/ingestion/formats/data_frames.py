"""Data frames in memory (pandas, polars, Arrow, a mapping of columns) to rows, through those of Parquet."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import parquet_files
from distls.workers.ingestion.formats.parquet_files import FrameSource, ParquetHead, load_arrow
from distls.workers.ingestion.formats.table_columns import TableOptions
from distls.workers.ingestion.formats.table_records import arrow_values

_FRAMES = "data frames with categories or missing values"  # what is read with pyarrow
FRAME = "X"  # in messages, as of arrays


def is_frame(x: Any) -> bool:
    """Return whether an object has named columns, which ``x[name]`` returns."""
    # Of any library: only the column names and access by name are needed.
    named = hasattr(x, "columns") and hasattr(x, "__getitem__") and not isinstance(x, np.ndarray)
    return isinstance(x, Mapping) or hasattr(x, "column_names") or named


def column_labels(frame: Any) -> list[Any]:
    """Return the keys of a frame's columns."""
    if isinstance(frame, Mapping):
        return list(frame)
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def plain_numbers(frame: Any, labels: Sequence[Any]) -> Any:
    """Return columns of a pandas frame as an array if all are plain numbers and none is missing, else None."""
    # a row of 50 numbers takes 1 ms through Arrow, 0.1 ms here
    types: Any = getattr(frame, "dtypes", None)
    if not hasattr(frame, "to_numpy") or not hasattr(types, "to_list"):
        return None
    own = types.to_list()
    # Objects and extension types may hold missing values of their own kind.
    if not all(isinstance(kind, np.dtype) and kind.kind in "fiub" for kind in own):
        return None
    values = (frame if list(frame.columns) == list(labels) else frame[list(labels)]).to_numpy(np.float64)
    # Missing values need the rules of tables, which Arrow's path has.
    return None if np.isnan(values).any() else values


def record_batch(frame: Any, labels: Sequence[Any], options: TableOptions) -> Any:
    """Return the columns that the features of `options` need as an Arrow record batch.

    `labels` has the key in `frame` of each of ``options.columns``. Raises
    BadInputError if a column mixes types, or pyarrow is not installed.
    """
    arrow = load_arrow(FRAME, _FRAMES)
    label_of = dict(zip(options.columns, labels, strict=True))
    arrays = {}
    for feature in options.features:
        # An Arrow column of nulls has no type of its own.
        empty = arrow.float64() if feature.is_dense and feature.kind != "date" else arrow.string()
        for name in filter(None, (feature.name, feature.indices)):
            values = frame[label_of[name]]
            mixed = isinstance(values, list) and feature.kind
            where = f'{FRAME}: column "{name}"'
            array = arrow_values(values, arrow) if mixed else _as_arrow(values, arrow, where)
            arrays[name] = array.cast(empty) if arrow.types.is_null(array.type) else array
    return arrow.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _as_arrow(column: Any, arrow: Any, where: str) -> Any:
    found = _arrow_column(column, arrow, where)
    if isinstance(found, arrow.ChunkedArray):
        # Chunks are joined twice: dictionaries may leave one chunk of chunks.
        found = found.combine_chunks()
    return found.combine_chunks() if isinstance(found, arrow.ChunkedArray) else found


def _arrow_column(column: Any, arrow: Any, where: str) -> Any:
    try:
        found = column.to_arrow() if hasattr(column, "to_arrow") else _spans_as_text(column, arrow)
        if not isinstance(found, (arrow.Array, arrow.ChunkedArray)):
            # pandas' NaN becomes a missing value.
            found = arrow.array(found, from_pandas=True)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        # sparse columns of pandas, long doubles and foreign byte orders are numbers that Arrow does not know
        if (plain := np.asarray(column)).ndim == 1 and plain.dtype.kind in "fiub":
            native = float if plain.dtype == np.longdouble else plain.dtype.newbyteorder("=")
            return arrow.array(plain.astype(native), from_pandas=True)
        texts = _mixed_texts(column)
        if texts is None:
            said = " ".join(str(error).split())
            raise BadInputError(f"{where}: of a type that is not read, {plain.dtype} ({said})") from None
        found = arrow.array(texts, arrow.string())
    return found


def _spans_as_text(column: Any, arrow: Any) -> Any:
    """Return intervals (of ``pandas.cut``, as categories) and periods as a CSV file has them, others as they are."""
    dtype = getattr(column, "dtype", None)
    name = str(getattr(getattr(dtype, "categories", None), "dtype", dtype))
    if not name.startswith(("interval", "period")):
        return column
    texts = arrow.array([None if value != value else str(value) for value in column], arrow.string())
    return texts.dictionary_encode() if name.startswith("interval") else texts


def _mixed_texts(column: Any) -> list[str | None] | None:
    """Return texts and numbers of one column as a CSV file of them has them, None for a column of others."""
    values = [None if type(v).__name__ == "NAType" else v for v in column]
    if not all(v is None or isinstance(v, (str, int, float, np.number, np.bool_)) for v in values):
        return None
    return [None if v is None or v != v else str(v) for v in values]


@dataclass(frozen=True)
class FrameFacts:
    """What is known of rows of a frame before they are read."""

    schema: Any  # of Arrow
    rows: int
    n_bytes: int
    lengths: dict[str, int]  # of the lists in the first row
    sample: dict[str, Any]  # as of `ParquetHead`


def arrow_table(frame: Any, others: Mapping[str, Any] | None = None) -> Any:
    """Return a frame, and `others`, columns by name, as an Arrow table; row labels of pandas are left out.

    Raises
    ------
    BadInputError
        Columns have one name, mix types, or have other lengths than the rest, or pyarrow is not installed.
    """
    arrow = load_arrow(FRAME, _FRAMES)
    labels = column_labels(frame)
    names = [str(label) for label in labels]
    others = others or {}
    # Names are texts in the model: 1 and "1" would be one column.
    if len({*names, *others}) < len(names) + len(others):
        raise BadInputError(f"{FRAME}: two columns have one name; rename one of them")
    columns = [(name, frame[label]) for name, label in zip(names, labels, strict=True)]
    arrays = {
        name: _arrow_column(values, arrow, f'{FRAME}: column "{name}"') for name, values in (*columns, *others.items())
    }
    try:
        return arrow.table(arrays)
    except arrow.ArrowException as error:
        raise BadInputError(f"{FRAME}: {' '.join(str(error).split())}") from None


def describe_frame(frame: Any) -> FrameFacts:
    """Return the facts of a frame."""
    table = arrow_table(frame)
    lists = [name for name, kind in column_kinds(table).items() if kind == "list"]
    lengths = parquet_files.list_lengths(table, lists) if table.num_rows else {}
    sample = parquet_files.first_values(table, load_arrow(FRAME))
    return FrameFacts(table.schema, table.num_rows, table.nbytes, lengths, sample)


def frame_source(table: Any, range_bytes: int) -> FrameSource:
    """Return an Arrow table as a source, with row groups of about `range_bytes`."""
    facts = describe_frame(table)
    # Row groups of about the size of a range, as of a file.
    step = max(1, range_bytes * max(facts.rows, 1) // max(facts.n_bytes, 1))
    starts = range(0, facts.rows, step)
    groups = [min(step, facts.rows - start) for start in starts]
    head = _head(facts, [(rows, facts.n_bytes * rows // facts.rows) for rows in groups])
    # The content's checksum stands for the file's identity, so that a resumed ingest notices another frame.
    sink, arrow = _Checksum(), load_arrow(FRAME)
    # Streamed through the checksum: no copy of the data is made.
    with arrow.ipc.new_stream(arrow.PythonFile(sink, "w"), table.schema) as stream:
        stream.write_table(table)
    found = {"path": "a data frame", "rows": facts.rows, "crc32": sink.crc}

    def rows_of(group: int) -> Any:
        return table.slice(group * step, step)  # without a copy

    return FrameSource(FRAME, facts.n_bytes, 0, head=head, table=rows_of, facts=found)


def computed_source(parts: Sequence[FrameFacts], compute: Callable[[int], Any], facts: dict[str, Any]) -> FrameSource:
    """Return frames that are computed when they are read as a source, a row group each.

    Raises
    ------
    BadInputError
        A column has different types in different frames.
    """
    arrow = load_arrow(FRAME)
    try:
        # a column without values in one part has the type of the others
        schema = arrow.unify_schemas([part.schema for part in parts], promote_options="permissive")
    except arrow.ArrowException as error:
        raise BadInputError(f"{FRAME}: {' '.join(str(error).split())}") from None
    first = next((part for part in parts if part.rows), parts[0])
    rows, n_bytes = sum(part.rows for part in parts), sum(part.n_bytes for part in parts)
    whole = FrameFacts(schema, rows, n_bytes, first.lengths, first.sample)
    head = _head(whole, [(part.rows, part.n_bytes) for part in parts])

    def rows_of(group: int) -> Any:
        table = arrow_table(compute(group))
        try:
            # Chunks may infer other types than the schema of all.
            return table.cast(schema)
        except (arrow.ArrowException, ValueError) as error:
            raise BadInputError(f"{FRAME}, chunk {group}: {' '.join(str(error).split())}") from None

    return FrameSource(FRAME, whole.n_bytes, 0, head=head, table=rows_of, facts=facts)


def _head(facts: FrameFacts, groups: Sequence[tuple[int, int]]) -> ParquetHead:
    types = load_arrow(FRAME).types
    kinds = parquet_files.kinds_of_columns(types, facts.schema)
    coded = parquet_files.categorical_columns(types, facts.schema)
    return ParquetHead(kinds, facts.lengths, tuple(groups), sample=facts.sample, categorical=coded)


class _Checksum:
    """A file that keeps nothing but the CRC of what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.crc = 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return len(data)

    def flush(self) -> None:
        """Have nothing to do."""


def column_kinds(batch: Any) -> dict[str, str]:
    """Return the kind of each column of a record batch, as `ParquetHead` has it."""
    return parquet_files.kinds_of_columns(load_arrow(FRAME).types, batch.schema)
