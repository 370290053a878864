"""Survey of the columns of a table that is read as record batches: values of categories, widths, words."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.mixed_columns import members
from distls.workers.ingestion.formats.parquet_files import (
    ParquetItem,
    as_text,
    kind_of_column,
    load_arrow,
    without_markers,
)
from distls.workers.ingestion.formats.table_columns import TableOptions
from distls.workers.ingestion.formats.table_records import table_batches
from distls.workers.ingestion.parsing.array_types import Ints
from distls.workers.ingestion.parsing.text_blocks import TextItem
from distls.workers.ingestion.records.labels import value_labels
from distls.workers.ingestion.records.messages import quoted

_LARGEST_BATCH = 2**17
_MOST_FEATURES = 2**32


def survey_columns(
    item: ParquetItem | TextItem, text: TableOptions, limits: dict[int, int], checked: Sequence[int] = ()
) -> dict[str, Any]:
    """Survey the columns of one row group, or of a file of text, that are categories, indices, or to be `checked`.

    The result is as of `survey_item`, and ``largest``: (column, largest index) of each column of indices.
    """
    names, arrow, n_rows = text.columns, load_arrow(item.file.path), 0
    values: dict[int, set[str]] = {column: set() for column in limits}
    largest = {names.index(f.indices): -1 for f in text.features if f.indices}
    words: dict[int, tuple[int, str]] = {}
    styles = {f.name: f.style for f in text.features if f.kind == "set"}
    seen: dict[int, int] = {}  # rows with a value, while it is collected
    wanted = [names[column] for column in dict.fromkeys((*values, *largest, *checked))]
    for batch, lines, _ in table_batches(item, text, wanted, _LARGEST_BATCH):
        where = np.arange(n_rows, n_rows + batch.num_rows) if lines is None else lines
        for column, known in values.items():
            # Too many values are no categories: collecting stops there.
            if len(known) <= limits[column]:
                texts = _texts(item.file.path, names[column], batch, text, arrow)
                if names[column] in styles:
                    style = styles[names[column]]
                    known.update(m for value in texts.to_pylist() for m in members(value, style))
                    continue
                seen[column] = seen.get(column, 0) + len(texts) - texts.null_count
                _note_word(words, column, texts, text, where, arrow)
                _collect(known, texts, text, arrow)
        # columns of types need no check: their type says that they are numbers
        for column in checked:
            if column not in words and isinstance(item, TextItem):
                texts = _texts(item.file.path, names[column], batch, text, arrow)
                _note_word(words, column, texts, text, where, arrow)
        for column in largest:
            found = _largest(item, n_rows, names[column], batch[names[column]], arrow)
            largest[column] = max(largest[column], found)
        n_rows += batch.num_rows
    return {
        "lines": n_rows,
        "words": [[column, *words[column]] for column in sorted(words)],
        "values": [[c, sorted(v) if len(v) <= limits[c] else None] for c, v in values.items()],
        "unique": [c for c, count in seen.items() if 1 < count == len(values[c] - {text.na, ""})],
        "largest": [[c, index] for c, index in largest.items()],
    }


def _texts(path: str, name: str, batch: Any, options: TableOptions, arrow: Any) -> Any:
    """Return a column as texts, null for those that stand for no value; lists as they are."""
    column = batch[name]
    if hasattr(column.type, "value_field"):  # a list
        return column
    # by their text, whatever their type: files of other formats have to find the same values
    return without_markers(as_text(path, name, column, arrow), options, arrow)


def _note_word(
    words: dict[int, tuple[int, str]],
    column: int,
    texts: Any,
    options: TableOptions,
    lines: Ints,
    arrow: Any,
) -> None:
    """Record the first text of a column that is no number, or of labels no label by its value."""
    if column in words or kind_of_column(arrow.types, texts.type) != "text" or not options.source:
        return
    is_label = options.columns[column] == options.label
    if not is_label and options.dialect.decimal == "." and _are_numbers(texts, arrow):
        return
    # different texts only: a column has fewer of them than rows
    for text in filter(None, arrow.compute.unique(texts).to_pylist()):
        if value_labels([text])[1] if is_label else options.dialect.is_word(text):
            words[column] = (int(lines[arrow.compute.index(texts, text).as_py()]), text)
            return


def _are_numbers(texts: Any, arrow: Any) -> bool:
    """Return whether all texts are numbers for Arrow, which sees that many times as fast."""
    with contextlib.suppress(arrow.ArrowInvalid):
        values = arrow.compute.cast(texts, arrow.float64())
        return not arrow.compute.any(arrow.compute.is_nan(values)).as_py()
    return False


def _collect(known: set[str], column: Any, text: TableOptions, arrow: Any) -> None:
    found = arrow.compute.unique(column).to_pylist()
    # a missing value is read as na, which may be a category, or is a category of its own
    missing = bool(text.na) or text.gaps
    known.update(text.na if value is None else value for value in found if value is not None or missing)


def _largest(item: ParquetItem | TextItem, first: int, name: str, column: Any, arrow: Any) -> int:
    """Return the largest index of a column, -1 without any; `first` is the number of the batch's first row."""
    flat = arrow.compute.list_flatten(column)
    largest = arrow.compute.max(flat).as_py()
    # An empty column, or one without numbers.
    if largest is None or math.isnan(largest):  # rows without numbers are refused when they are read
        return -1
    if largest >= _MOST_FEATURES:
        # The row of the largest index, for the message.
        place = arrow.compute.index(flat, largest).as_py()
        row = first + arrow.compute.list_parent_indices(column)[place].as_py()
        raise BadInputError(
            f"{item.where(row)}: column {quoted(name.encode())}: {largest}: an index must be a whole number from 0 "
            f"to {_MOST_FEATURES - 1}"
        )
    return int(largest)
