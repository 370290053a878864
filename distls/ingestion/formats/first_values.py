"""What the first values of a table's columns show that is worth a word, at training and later."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from distls.ingestion.formats.column_kinds import Samples
from distls.workers.ingestion.formats.mixed_columns import undecided_date
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions


def first_notices(read: TableOptions, samples: Samples) -> tuple[str, ...]:
    """Name ids that occur more than once."""
    found = samples.present(read.id_column) if read.id_column in samples.values else []
    seen: set[str] = set()
    again = next((text for text in map(str, found) if text in seen or seen.add(text)), None)  # type: ignore[func-returns-value]
    if again is None:
        return ()
    return (
        f'ids in "{read.id_column}" occur more than once in the first rows, such as {again}: predictions have the row '
        "too, by which they are joined",
    )


def later_notices(features: Iterable[Feature], values: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Name dates of which nothing tells day and month apart, where those of the training data began with the year."""
    dates = ((f.name, values.get(f.name, ())) for f in features if f.kind == "date" and not f.style)
    found = ((name, undecided_date([v for v in first if isinstance(v, str)])) for name, first in dates)
    return tuple(
        f'nothing in the first rows of "{name}" tells day and month apart, and the training data have no such dates: '
        f"{text} is read with the day first; write the year first where that is wrong"
        for name, text in found
        if text
    )
