"""Input and output of every reader: shared options, progress, batches of records."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.row_origins import RowIds
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Int32s, Ints, Singles, UInts
from distls.workers.ingestion.parsing.record_kernels import count_entries, read_labels
from distls.workers.ingestion.parsing.rounding_kernels import Rounded
from distls.workers.ingestion.parsing.svmlight_kernels import Mode
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.records.messages import kind_of, lacks_label

REPORTED_LINES = 10
_MOST_KINDS = 10


@dataclass(frozen=True)
class ReadOptions:
    """Options of all readers; formats with more of them inherit from it."""

    labelled: bool = True
    multilabel: bool = False
    one_based: bool = False
    float64: bool = False
    continuous: bool = False  # labels are numbers; else those that float64 does not keep are names of classes
    skip_errors: bool = False  # refused rows are left out, and the others staged
    weighted: bool = False  # labels of svmlight text may have weights
    id_column: str = ""  # column or field with the id of a row; empty if there is none

    @property
    def gaps(self) -> bool:
        """Whether values may be missing, which are imputed."""
        return False

    @property
    def mode(self) -> int:
        """Bits for the kernels."""
        return sum(int(bit) for bit in Mode if getattr(self, bit.name.lower()))


class RowError(BadInputError):
    """A fault behind which an item cannot be read; `refusals_together` says where the 0-based line is."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass
class Progress:
    """Position in an item and counts up to there, stored with each chunk to resume from; lines start from 0."""

    offset: int = 0
    lines: int = 0
    qids: int = 0
    tags: int = 0
    bases: int = 0
    weighted: bool = False  # a weight other than 1 was read
    min_index: int = -1  # -1: no index was read
    min_line: int = 0  # first occurrence of min_index
    max_index: int = -1
    max_line: int = 0
    skipped: int = 0
    skipped_first: list[tuple[int, str]] = field(default_factory=list)
    # of each kind of refusal, of ten at most: rows, and the line of the first
    refused: dict[str, list[int]] = field(default_factory=dict)
    skipped_since: list[int] = field(default_factory=list)  # lines refused since the last chunk was staged
    gaps: int = 0  # values that are missing, or some of them
    unseen: int = 0  # values of categories that the training data do not have
    unseen_first: tuple[int, str] | None = None
    # columns of numbers with texts that begin with zeros, and of dates with times where the first have none
    codes: list[str] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)  # rows left out on purpose, by kind
    unlabelled: int | None = None  # refused rows without a label, where they are to be left out

    # So many more refused lines, but for those without a label; 0: never. No field: it is not stored.
    stop_after = 0

    def skip(self, line: int, reason: str) -> None:
        """Count a refused line, and keep the reason of the first few; raise BadInputError where it is one too many."""
        self.skipped += 1
        # Kept until a chunk is staged, since row numbers count refused rows too.
        self.skipped_since.append(line)
        if self.unlabelled is not None and lacks_label(reason):
            self.unlabelled += 1
            return
        kind = kind_of(reason)
        if kind in self.refused or len(self.refused) < _MOST_KINDS:
            self.refused.setdefault(kind, [0, line])[0] += 1
        # A few are enough to see what is wrong.
        if len(self.skipped_first) < REPORTED_LINES:
            self.skipped_first.append((line, reason))
        if self.stop_after and not lacks_label(reason):
            self.stop_after -= 1
            if not self.stop_after:
                self._stop(line, reason)

    def _stop(self, line: int, reason: str) -> None:
        """Raise BadInputError for a refused line that is the last to be read."""
        self.lines = line + 1
        # lines that lack a label may be left out on purpose, so that they are not what is wrong
        if all(map(lacks_label, (first for _, first in self.skipped_first))):
            self.skipped_first.insert(0, (line, reason))
        raise BadInputError(reason)


OptionsT = TypeVar("OptionsT", bound=ReadOptions)


@dataclass(frozen=True)
class ReadRun(Generic[OptionsT]):
    """Arguments of a reader besides the item."""

    options: OptionsT
    progress: Progress  # where to start; up to date whenever a batch is yielded
    n_extra: int  # words to reserve in each record
    n_features: int  # columns, where they are known before the rows are read
    block_bytes: int  # decoded bytes to hold at a time
    pool: BufferPool


@dataclass(frozen=True)
class RecordLayout:
    """Layout of the records of an ingest (see `parsing/record_kernels.py`)."""

    dense: bool = False
    float64: bool = False
    weighted: bool = False  # the first extra word is the sample weight
    ranked: bool = False  # two more extra words: the row's random rank within its label, and within its chunk

    @property
    def n_extra(self) -> int:
        return int(self.weighted) + 2 * int(self.ranked)

    @property
    def stride(self) -> int:
        """Words of one value."""
        return (0 if self.dense else 1) + (2 if self.float64 else 1)


@dataclass(frozen=True)
class RecordBatch:
    """Records of consecutive rows, in buffers that the reader reuses."""

    words: UInts  # shape (n_words,)
    row_at: Ints  # shape (n_rows + 1,)
    row_line: Int32s  # shape (n_rows,); 0-based lines, from the item's first
    weights: Singles | None = None  # shape (n_rows,), or None
    # by value; see `distls.workers.ingestion.records.labels`
    label_words: dict[float, str] = field(default_factory=dict)
    ids: RowIds | None = None  # where `ReadOptions.id_column` names them
    # of hashed text, if they are kept: column -> its most frequent word, and how often that occurs
    column_words: dict[int, tuple[str, int]] | None = None
    rounded: list[Rounded] = field(default_factory=list)  # columns whose values float32 does not keep apart


def labels_in(words: UInts, row_at: Ints, n_extra: int) -> tuple[Doubles, Ints]:
    """Return the labels of records; row r has labels[offsets[r]:offsets[r + 1]]."""
    labels = np.empty(int(count_entries(words, row_at)[1]), dtype=np.float64)
    offsets = np.empty(len(row_at) + 1, dtype=np.int64)
    read_labels(words, row_at, n_extra, labels, offsets)
    return labels, offsets


Csr = tuple[Array, Array, Array]


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
        return f"{self.name}, row {self.start + line}"


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of a source."""

    first_row: int  # number of the first row in its source
    values: Array | None  # shape (n_rows, n_features); None for sparse rows
    csr: Csr | None
    # shape (n_rows, n_targets), or None; float64 or integers; or str, where labels may be words
    labels: Array | None
    weights: Singles | None = None  # shape (n_rows,), or None
    ids: list[str] | None = None
    faults: dict[int, str] = field(default_factory=dict)  # rows of the block that the reader refuses, and why
    label_ends: Ints | None = None  # row r has labels[label_ends[r]:label_ends[r + 1]], where they are sets
    lines: Ints | None = None  # of the rows in their item; None: their numbers
    # columns of numbers that the float64 in `values` does not keep
    rounded: list[Rounded] = field(default_factory=list)
