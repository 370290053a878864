"""The plan of an ingest: sources cut into items, and how they are read."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.storage.dataset.metadata import Label
from distls.storage.errors import ParameterError
from distls.storage.filesystem.safe_read import LARGEST_JSON
from distls.workers.ingestion.formats.table_columns import TableOptions, too_many_columns
from distls.workers.ingestion.parsing.row_cuts import row_items
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile, TextItem
from distls.workers.ingestion.records.reader import Reader, SourceItem
from distls.workers.ingestion.records.record_batch import ArrayHeader, ReadOptions

RANGE_BYTES = 32 * 2**20
# Bytes of a column's name, and of the feature of that name, in the metadata of a data set, without the names.
_COLUMN_BYTES, _FEATURE_BYTES = 6, 31

_MAX_BUCKETS = 2**17
_BUCKETS_PER_PARTITION = 16
# Decoded bytes for a byte of source, estimated high: more buckets than needed cost next to nothing.
_EXPANSION = {"none": 1.0, "mac": 1.0, "gzip": 4.0, "zstd": 4.0, "bz2": 5.0, "xz": 6.0}


def check_columns(columns: Sequence[str], features: Sequence[str]) -> None:
    """Raise BadInputError unless the names fit into the metadata of a data set."""
    names = len(json.dumps(columns)) + len(json.dumps(features))
    if names + _COLUMN_BYTES * len(columns) + _FEATURE_BYTES * len(features) > LARGEST_JSON:
        raise too_many_columns(len(columns), "the table has ")


@dataclass(frozen=True)
class ColumnSurvey:
    """The survey of a table's columns that comes before its rows are read."""

    # ``categories=()`` of a feature: it may be a category; if columns are typed, it is one
    read: TableOptions
    declared: tuple[str, ...]  # categories whatever their values
    typed: bool  # the file has column types; else the values show them
    # fields of `SourcePlan` that follow from the completed `read`
    facts: Callable[[TableOptions], Mapping[str, Any]]
    empty: frozenset[str] = frozenset()  # columns whose type no value has shown


@dataclass(frozen=True)
class SourcePlan:
    """Recognised sources, cut into items."""

    format: str  # ``memory`` for arrays in memory
    reader: Reader[Any, Any]
    files: tuple[SourceFile, ...]
    items: tuple[SourceItem, ...]
    item_bytes: tuple[int, ...]  # for the progress display
    read: ReadOptions
    # one per file for arrays; a single one, for the width, for hashed text and tables; empty for numbered columns,
    # whose largest number is the width
    headers: tuple[ArrayHeader, ...] = ()
    width: int = 0  # of numbered columns, at least, as the source says it
    labelled: bool = True
    weighted: bool = False
    labels: tuple[Label, ...] = ()  # some of the labels, whether or not a row has them
    may_be_unweighted: bool = False  # weights that are all 1 are not stored
    zero_based: str = "auto"  # auto | yes | no; auto: zero if index 0 occurs
    estimate: float = 0.0  # of decoded bytes
    # JSON values by which a later ``like`` reads more of the same kind
    description: dict[str, Any] = field(default_factory=dict)
    encoding: str = ""  # of text, where it is asked for or known; recorded with the description
    survey: ColumnSurvey | None = None
    feature_names: tuple[str, ...] = ()  # of all features, or empty
    notices: tuple[str, ...] = ()  # for the user
    beside: tuple[SourceFile, ...] = ()  # other files that are read
    facts: dict[str, Any] = field(default_factory=dict)  # of sources without files, by which they are known
    joined: SourceFile | None = None  # file with the labels of the rows, where they are not with them
    in_process: bool = False  # items hold arrays of this process and are never sent to a worker

    @property
    def identity(self) -> list[dict[str, Any]]:
        """Facts that must not change until an unfinished ingest is resumed."""
        return [*filter(None, [self.facts]), *(file.identity for file in (*self.files, *self.beside))]

    @property
    def is_numbered(self) -> bool:
        """Whether columns are numbered in the source, so that the largest number gives the width."""
        return not self.headers

    @property
    def is_dense(self) -> bool:
        """Whether rows are stored dense."""
        return bool(self.headers) and not self.headers[0].sparse

    def n_buckets(self, options: IngestOptions) -> int:
        """Return the buckets per chunk: a power of two, several for each partition."""
        # rows in source order: buckets are slices of one chunk, not of the whole
        share = self.estimate if options.shuffle else min(self.estimate, 2 * RANGE_BYTES)
        wanted = _BUCKETS_PER_PARTITION * math.ceil(share / options.partition_size)
        return int(min(max(2 ** math.ceil(math.log2(max(wanted, 1))), _BUCKETS_PER_PARTITION), _MAX_BUCKETS))


def shared_options(options: IngestOptions) -> dict[str, Any]:
    """Return the fields of `ReadOptions` that follow from the options of every format."""
    own = {"multilabel": options.multilabel, "float64": options.float64}
    return {"labelled": not options.unlabelled, "skip_errors": options.on_error == "skip", **own}


def text_ids(given: str | int | None, kind: str, path: str, like: Like | None) -> str:
    """Return `kind`, the only place of ids in a format of text, where it is asked for or known of `like`.

    Raises ParameterError if another place is named.
    """
    if given not in (None, kind):
        raise ParameterError(f'id_column: the ids of rows in {path} are in its {kind}s: --id-column "{kind}"')
    return kind if given or description_of(like).get("id_column") == kind else ""


def text_plan(name: str, reader: Reader[TextItem, Any], files: Files, read: ReadOptions, **facts: Any) -> SourcePlan:
    """Plan line-oriented text files: an item is a range of a plain file, or a whole compressed one.

    `name` is that of the format; `facts` are other fields of `SourcePlan`.
    """
    steps = [(file, RANGE_BYTES if file.is_plain else max(file.size, 1)) for file in files]
    ranges = [(f, start, min(start + step, f.size)) for f, step in steps for start in range(0, f.size, step)]
    items = item_facts(reader, tuple(TextItem(n, *entry) for n, entry in enumerate(ranges)))
    estimate = sum(file.size * _EXPANSION[file.compression] for file in files)
    own = {"estimate": estimate, "labelled": read.labelled, **items, **facts}
    return SourcePlan(name, files=tuple(files), read=read, **own)


def record_items(files: Files, separator: str | None) -> tuple[TextItem, ...]:
    """Return the items of text that is read by records; see `row_items`."""
    return row_items(files, separator, RANGE_BYTES)


def item_facts(reader: Reader[Any, Any], items: tuple[TextItem, ...]) -> dict[str, Any]:
    """Return the fields of a `SourcePlan` that follow from its items."""
    sizes = tuple(item.stop - item.start for item in items)
    return {"reader": reader, "items": items, "item_bytes": sizes}
