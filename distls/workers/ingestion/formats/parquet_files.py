"""Parquet files, and data frames in their place: columns with their types, and row groups as record batches."""

import contextlib
import datetime
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.table_columns import TableOptions, check_count
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.records.record_batch import FileRows

SAMPLED = 500  # rows that show the kinds of columns


@dataclass(frozen=True)
class ParquetHead:
    """Footer of a file, and the lengths of the lists in its first row."""

    # of each column, in order: ``number``, ``text``, ``list``, or the Arrow type of one that cannot be a feature
    kinds: dict[str, str]
    lengths: dict[str, int]
    groups: tuple[tuple[int, int], ...]  # rows and decoded bytes of each row group
    index: frozenset[str] = frozenset()  # columns that are row labels of pandas
    # first values of columns whose kind they may tell
    sample: dict[str, list[Any]] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()  # columns without a value in the rows that show the types
    categorical: frozenset[str] = frozenset()  # columns of numbers that were declared to be categories


@dataclass(frozen=True)
class ParquetItem(FileRows):
    """A row group: rows start, ..., stop - 1 of a file."""

    number: int
    file: SourceFile
    group: int
    start: int
    stop: int
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class FrameSource(SourceFile):
    """A data frame, read as a Parquet file of the same columns is."""

    head: ParquetHead
    table: Callable[[int], Any]  # number of a row group -> its rows as an Arrow table
    facts: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        return self.facts

    def check(self) -> None:
        """Nothing to check: frames do not change under their names as files do."""

    def open(self) -> IO[bytes]:
        """Return the signature of Parquet, by which formats are recognised."""
        return io.BytesIO(b"PAR1")


def load_arrow(path: str, what: str = "parquet files, and tables with dates, texts or gaps,") -> Any:
    """Return pyarrow with what reads Parquet; where it is missing, `path` is named, and `what` is read with it."""
    # pyarrow is optional, and loaded only where there is a Parquet file
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise BadInputError(f"{path}: {what} are read with pyarrow; pip install 'distls[parquet]'") from None
    return pyarrow


def _open(file: SourceFile) -> Any:
    file.check()
    # no read-ahead: its memory is in no budget
    return load_arrow(file.path).parquet.ParquetFile(file.path, pre_buffer=False, page_checksum_verification=True)


@contextlib.contextmanager
def damage_described(path: str) -> Iterator[None]:
    """Raise BadInputError for what pyarrow raises where a file is damaged."""
    arrow = load_arrow(path)
    try:
        yield
    except BadInputError:
        raise
    except (OSError, UnicodeDecodeError, arrow.ArrowException) as error:
        raise BadInputError(f"{path}: not a readable parquet file ({' '.join(str(error).split())})") from None


def parquet_batches(item: ParquetItem, columns: list[str], n_rows: int) -> Iterator[Any]:
    """Yield the item's columns in record batches of `n_rows` at most."""
    if isinstance(item.file, FrameSource):
        yield from item.file.table(item.group).select(columns).to_batches(n_rows)
        return
    with damage_described(item.file.path), _open(item.file) as source:
        # One thread: workers are as many as cores.
        yield from source.iter_batches(n_rows, [item.group], columns, use_threads=False)


def read_parquet_head(file: SourceFile) -> ParquetHead:
    """Read the footer of a file and its first row, or raise BadInputError."""
    if isinstance(file, FrameSource):
        return file.head
    types = load_arrow(file.path).types
    with damage_described(file.path), _open(file) as source:
        check_count(source.metadata.num_columns, file.path)
        schema, meta = source.schema_arrow, source.metadata
        kinds = kinds_of_columns(types, schema)
        # A dictionary of names would drop one of the columns.
        if len(kinds) < len(schema):
            raise BadInputError(f"{file.path}: two columns have one name; rename one of them")
        lists = [name for name, kind in kinds.items() if kind == "list"]
        shown = [c.name for c in schema if kinds[c.name] == "list" or _tells_kind(types, c.type)]
        first = next(source.iter_batches(SAMPLED, columns=shown, use_threads=False), None) if shown else None
    # From the footer: no data are read for sizes.
    groups = (meta.row_group(g) for g in range(meta.num_row_groups))
    return ParquetHead(
        kinds,
        {} if first is None else list_lengths(first, lists),
        tuple((group.num_rows, group.total_byte_size) for group in groups),
        _named_by_pandas(schema, "index_columns", lambda entry: entry),
        {} if first is None else first_values(first, load_arrow(file.path)),
        categorical=categorical_columns(types, schema),
    )


def categorical_columns(types: Any, schema: Any) -> frozenset[str]:
    """Return columns of numbers that are categories of Arrow, or were some of pandas when they were written."""
    coded = {column.name for column in schema if types.is_dictionary(column.type)}
    coded |= _named_by_pandas(
        schema, "columns", lambda entry: entry["pandas_type"] == "categorical" and entry["field_name"]
    )
    return frozenset(c.name for c in schema if c.name in coded and kind_of_column(types, c.type) == "number")


def _named_by_pandas(schema: Any, part: str, name_of: Callable[[Any], Any]) -> frozenset[str]:
    """Return the columns that entries of pandas' metadata name."""
    try:
        names = map(name_of, (schema.pandas_metadata or {}).get(part, ()))
        return frozenset(name for name in names if isinstance(name, str))
    except (AttributeError, KeyError, TypeError, ValueError):  # written by anybody
        return frozenset()


def list_lengths(first: Any, names: list[str]) -> dict[str, int]:
    """Return the lengths of the lists in the first row of columns."""
    return {name: len(first[name][0].as_py() or ()) for name in names}


def first_values(rows: Any, arrow: Any) -> dict[str, list[Any]]:
    """Return the first values of the columns but for fractions and categories, dates and times as text."""
    types, rows = arrow.types, rows.slice(0, SAMPLED)
    found = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if types.is_temporal(column.type) and not types.is_interval(column.type):
            # as text they are what other formats have
            column = time_text(column, arrow)
        if _tells_kind(types, column.type):
            with contextlib.suppress(UnicodeDecodeError):  # refused when the rows are read
                found[name] = column.to_pylist()
    return found


def _tells_kind(types: Any, found: Any) -> bool:
    """Return whether values of a type may be ids, dates, documents or sets; a dictionary of Arrow is a category."""
    plain = kind_of_column(types, found) in ("number", "list") or types.is_dictionary(found)
    return types.is_integer(found) or not plain


def kind_of_column(types: Any, found: Any) -> str:
    """Return the kind of an Arrow type, as `ParquetHead.kinds` has it; `types` is ``pyarrow.types``."""
    # Categories of Arrow are codes; the values decide the kind.
    if types.is_dictionary(found):
        return kind_of_column(types, found.value_type)
    if _is_number(types, found):
        return "number"
    if types.is_string(found) or types.is_large_string(found):
        return "text"
    listed = types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found)
    return "list" if listed and _is_number(types, found.value_type) else str(found)


def kinds_of_columns(types: Any, schema: Any) -> dict[str, str]:
    """Return the kind of each column of an Arrow schema."""
    return {column.name: kind_of_column(types, column.type) for column in schema}


def _is_number(types: Any, found: Any) -> bool:
    return any(test(found) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def as_text(path: str, name: str, column: Any, arrow: Any) -> Any:
    """Return a column as valid UTF-8 strings."""
    text = time_text(decoded(path, column, arrow), arrow)
    try:  # Arrow does not check the strings it reads
        text.validate(full=True)
    except arrow.ArrowInvalid:
        raise BadInputError(f"{path}: column {quoted(name.encode())} is not UTF-8 text") from None
    return text


def time_text(column: Any, arrow: Any) -> Any:
    """Return dates, times, and lengths of time as pandas writes them, as texts; others by Arrow's cast."""
    if not arrow.types.is_duration(column.type):
        return arrow.compute.cast(column, arrow.string())
    # whose nanoseconds Python does not have
    values = arrow.compute.cast(column, arrow.duration("us"), safe=False).to_pylist()
    texts = (v if v is None else f"{v.days} days {v - datetime.timedelta(v.days)}" for v in values)
    return arrow.array(list(texts), arrow.string())


def without_markers(column: Any, options: TableOptions, arrow: Any) -> Any:
    """Return texts with nulls in place of those that stand for no value."""
    if not options.dialect.missing:
        return column
    unknown = arrow.compute.is_in(column, value_set=arrow.array(options.dialect.missing, arrow.string()))
    return arrow.compute.if_else(unknown, arrow.scalar(None, arrow.string()), column)


def decoded(path: str, column: Any, arrow: Any) -> Any:
    """Return a column with values in place of codes."""
    if not arrow.types.is_dictionary(column.type):
        return column
    with damage_described(path):  # Arrow does not check on reading that codes have values
        return column.dictionary_decode()
