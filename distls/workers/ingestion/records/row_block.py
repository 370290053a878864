"""Blocks of rows as arrays, the output of readers of all formats but text."""

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from distls.workers.ingestion.parsing.array_types import Ints, Singles
from distls.workers.ingestion.parsing.rounding_kernels import Rounded
from distls.workers.ingestion.parsing.text_blocks import SourceFile

Csr = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and kind of a source of rows."""

    # n_rows, n_features: trailing axes of an image array count as features
    n_rows: int
    n_features: int
    sparse: bool
    labelled: bool = False  # the source holds the labels too


class FileRows:
    """Names the rows of an item, which is a dataclass with the fields `file` and `start`."""

    file: SourceFile
    start: int

    @property
    def name(self) -> str:
        """The source, for messages."""
        return self.file.path

    def where(self, line: int, _lines_before: int = 0) -> str:
        """Format the position of a row of the item."""
        return f"{self.name}, row {self.start + line}"


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of a source."""

    first_row: int  # number of the first row in its source
    values: NDArray[Any] | None  # shape (n_rows, n_features); None for sparse rows
    csr: Csr | None
    # shape (n_rows, n_targets), or None; float64 or integers; or str, where labels may be words
    labels: NDArray[Any] | None
    weights: Singles | None = None  # shape (n_rows,), or None
    ids: list[str] | None = None
    faults: dict[int, str] = field(default_factory=dict)  # rows of the block that the reader refuses, and why
    label_ends: Ints | None = None  # row r has labels[label_ends[r]:label_ends[r + 1]], where they are sets
    lines: Ints | None = None  # of the rows in their item; None: their numbers
    # columns of numbers that the float64 in `values` does not keep
    rounded: list[Rounded] = field(default_factory=list)
