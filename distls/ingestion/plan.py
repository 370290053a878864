"""What an ingest will do: options checked, sources recognised, cut into items, and compared with an earlier plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distls.ingestion.formats.anndata import anndata_head, anndata_items, check_same_names
from distls.ingestion.formats.documents import (
    document_options,
    document_recipe,
)
from distls.ingestion.formats.parquet import parquet_items, parquet_options
from distls.ingestion.formats.recognition import first_lines, format_of, source_file, start_of, whole_lines
from distls.ingestion.formats.tables import table_facts, table_options
from distls.ingestion.formats.vw import vw_notice, vw_options, vw_recipe
from distls.ingestion.like import Like
from distls.ingestion.options import IngestOptions
from distls.storage.errors import BadInputError, IncompleteError, ParameterError
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.workers.ingestion.formats.arrays import (
    ArrayHeader,
    ArrayItem,
    read_header,
    read_labels_file,
)
from distls.workers.ingestion.formats.parquet import read_parquet_head
from distls.workers.ingestion.formats.svmlight import TextOptions
from distls.workers.ingestion.parsing.text_blocks import SourceFile, TextItem

if TYPE_CHECKING:
    pass

__all__ = [
    "SourcePlan",
    "check_same_plan",
    "plan_document",
    "plan_files",
    "refuse_foreign_options",
    "refuse_text_options",
    "text_options",
]

RANGE_BYTES = 32 * 2**20

_MAX_BUCKETS = 2**17
_BUCKETS_PER_PARTITION = 16
# Options that not every source has a use for.
_OPTION_FORMATS = {
    "hash_bits": ("vw",),
    "text_column": ("text",),
    "label_column": ("text", "csv", "parquet", "anndata"),
    "weight_column": ("text", "csv", "parquet", "anndata"),
    "ignore_columns": ("csv", "parquet"),
    "categorical": ("csv", "parquet"),
    "na": ("csv", "parquet"),
    "list_columns": ("parquet",),
    "separator": ("csv",),
    "header": ("csv",),
    "ngrams": ("text",),
    "analyzer": ("text",),
    "lowercase": ("text",),
    "alternate_sign": ("text",),
    "binary": ("text",),
}
# Decoded bytes for a byte of source, on the high side: more buckets than needed cost next to nothing.
_EXPANSION = {"none": 1.0, "gzip": 4.0, "bz2": 5.0}


@dataclass(frozen=True)
class SourcePlan:
    """Recognised sources, cut into items.

    Attributes
    ----------
    format : {"svmlight", "vw", "text", "csv", "parquet", "anndata", "npy", "npz", "idx", "memory"}
    files : tuple of SourceFile
    items : tuple of TextItem, ArrayItem, MemoryItem or ComputedItem
    item_bytes : tuple of int
        For the progress display.
    headers : tuple of ArrayHeader
        One a file for array sources; one, for the width, for hashed text and tables; else empty.
    labelled, weighted : bool
    estimate : float
        Decoded bytes to expect.
    text : TextOptions
        How the source is read.
    recipe : dict
        What a later ``like`` needs to read more of the same kind: JSON values.
    surveyed : bool
        Nothing of the columns is left to find out before rows are read.
    feature_names : tuple of str
        Of all features, or empty.
    notices : tuple of str
        What the user should know.
    identity : list of dict
        What must be the same when an unfinished ingest is resumed.
    """

    format: str
    files: tuple[SourceFile, ...]
    items: tuple[Any, ...]
    item_bytes: tuple[int, ...]
    headers: tuple[ArrayHeader, ...] = ()
    labelled: bool = True
    weighted: bool = False
    estimate: float = 0.0
    text: TextOptions = field(default_factory=TextOptions)
    recipe: dict[str, Any] = field(default_factory=dict)
    surveyed: bool = True
    feature_names: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    identity: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_numbered(self) -> bool:
        """Whether columns have numbers in the source, which shows how many there are."""
        return not self.headers

    @property
    def is_dense(self) -> bool:
        """Whether rows are stored dense."""
        return bool(self.headers) and not self.headers[0].sparse

    @property
    def block_bytes(self) -> int:
        """Decompressed bytes of a compressed source in one chunk."""
        return RANGE_BYTES

    def n_buckets(self, options: IngestOptions) -> int:
        """Return the buckets of a chunk: a power of two, several for each partition there will be."""
        # rows in source order: buckets are slices of one chunk, not of the whole
        share = self.estimate if options.shuffle else min(self.estimate, 2 * RANGE_BYTES)
        wanted = _BUCKETS_PER_PARTITION * math.ceil(share / options.partition_size)
        return int(min(max(2 ** math.ceil(math.log2(max(wanted, 1))), _BUCKETS_PER_PARTITION), _MAX_BUCKETS))


# -- files -----------------------------------------------------------------------------------------------


def plan_files(paths: Sequence[str | Place], options: IngestOptions, like: Like | None = None) -> SourcePlan:
    """Recognise source files and cut them into items.

    Parameters
    ----------
    like : Like, optional
        Where the recipe of the source comes from.

    Raises
    ------
    BadInputError
        A file is missing, empty, unreadable, of no recognised format, or does not go with the others.
    """
    if not paths:
        raise ParameterError("no sources were given")
    files = tuple(source_file(_file_path(path)) for path in paths)
    formats = [format_of(file, options, like) for file in files]
    if len(set(formats)) > 1:
        other = next(i for i, name in enumerate(formats) if name != formats[0])
        raise BadInputError(
            f"{files[other].path}: {formats[other]}, but {files[0].path} is {formats[0]}; ingest one format at a time"
        )
    refuse_foreign_options(options, formats[0])
    planned = _PLANNED.get(formats[0])
    return planned(files, options, like) if planned else _plan_array_files(files, formats[0], options)


def _identity(file: SourceFile) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "mtime_ns": file.mtime_ns}


def _plan_documents(files: tuple[SourceFile, ...], options: IngestOptions, like: Like | None) -> SourcePlan:
    if options.zero_based != "auto":
        raise ParameterError("zero_based is for svmlight text; the columns of hashed text have no numbers")
    if options.labels is not None:
        raise ParameterError("labels is for array sources; raw text has its own")
    start = start_of(files[0])
    read = document_options(start, files[0].path, options, like, text_options(options))
    return replace(
        _plan_text(files, options),
        format="text",
        headers=(ArrayHeader(-1, read.hashing.n_features, sparse=True),),
        weighted=bool(read.weight_column),
        text=read,
        recipe=document_recipe(read),
    )


def _plan_vw(files: tuple[SourceFile, ...], options: IngestOptions, like: Like | None) -> SourcePlan:
    if options.labels is not None:
        raise ParameterError("labels is for array sources; Vowpal Wabbit text has its own")
    start = whole_lines(start_of(files[0]))
    read = vw_options(start, files[0].path, options, like, text_options(options))
    return replace(
        _plan_text(files, options),
        format="vw",
        headers=() if read.hash_bits is None else (ArrayHeader(-1, 2**read.hash_bits, sparse=True),),
        weighted=True,
        text=read,
        recipe=vw_recipe(read),
        notices=vw_notice(read, options),
    )


def _plan_table(files: tuple[SourceFile, ...], options: IngestOptions, like: Like | None) -> SourcePlan:
    starts = [(first_lines(file), file.path) for file in files]
    read, notices = table_options(starts, options, like, text_options(options))
    return replace(
        _plan_text(files, options),
        format="csv",
        labelled=bool(read.label),
        weighted=bool(read.weight),
        text=read,
        surveyed=like is not None,
        notices=notices,
        **table_facts(read),
    )


def _plan_parquet(files: tuple[SourceFile, ...], options: IngestOptions, like: Like | None) -> SourcePlan:
    heads = [read_parquet_head(file) for file in files]
    read = parquet_options(files, heads, options, like, text_options(options))
    items = parquet_items(files, heads)
    unknown = any(f.categories == () or f.indices for f in read.features)
    return SourcePlan(
        "parquet",
        files,
        items,
        tuple(item.n_bytes for item in items),
        labelled=bool(read.label),
        weighted=bool(read.weight),
        estimate=sum(item.n_bytes for item in items) * 2.0,
        text=read,
        surveyed=like is not None or not unknown,
        identity=[_identity(file) for file in files],
        **table_facts(read),
    )


def _plan_anndata(files: tuple[SourceFile, ...], options: IngestOptions, like: Like | None) -> SourcePlan:
    refuse_text_options(options)
    if options.labels is not None:
        raise ParameterError(
            "labels is for npy, npz and idx sources; labels of AnnData are in a column of obs"
        )
    heads = [anndata_head(file, options, like) for file in files]
    check_same_names(files, heads, like)
    items = anndata_items(files, heads, RANGE_BYTES)
    n_bytes = sum(head.header.n_rows * head.row_bytes for head in heads)
    return SourcePlan(
        "anndata",
        files,
        items,
        tuple(heads[0].row_bytes * (item.stop - item.start) for item in items),
        tuple(head.header for head in heads),
        labelled=bool(heads[0].label),
        weighted=bool(heads[0].weight),
        estimate=float(n_bytes),
        text=TextOptions(**text_options(options)),
        recipe={"label": heads[0].label, "weight": heads[0].weight},
        feature_names=heads[0].names,
        identity=[_identity(file) for file in files],
    )


def refuse_foreign_options(options: IngestOptions, kind: str) -> None:
    """Refuse an option that says nothing about sources of this kind."""
    for name, formats in _OPTION_FORMATS.items():
        if getattr(options, name) not in (None, ()) and kind not in formats:
            raise ParameterError(f"{name} is for sources of format {' or '.join(formats)}, these are {kind}")


def _plan_text(files: tuple[SourceFile, ...], options: IngestOptions, like: Like | None = None) -> SourcePlan:
    if options.labels is not None:
        raise ParameterError("labels is for array sources; svmlight text has its own")
    ranges = [(file, start, stop) for file in files for start, stop in _ranges(file)]
    items = tuple(TextItem(n, *entry) for n, entry in enumerate(ranges))
    return SourcePlan(
        "svmlight",
        files,
        items,
        tuple(stop - start for _, start, stop in ranges),
        labelled=not options.unlabelled,
        estimate=sum(file.size * _EXPANSION[file.compression] for file in files),
        text=TextOptions(**text_options(options)),
        identity=[_identity(file) for file in files],
    )


def text_options(options: IngestOptions) -> dict[str, Any]:
    """Return what the options of every source say about reading it: fields of TextOptions."""
    return {
        "labelled": not options.unlabelled,
        "multilabel": options.multilabel,
        "one_based": options.zero_based == "no",
        "float64": options.float64,
        "skip_errors": options.on_error == "skip",
    }


def _ranges(file: SourceFile) -> Iterator[tuple[int, int]]:
    if file.compression != "none":
        yield 0, file.size
        return
    for start in range(0, file.size, RANGE_BYTES):
        yield start, min(start + RANGE_BYTES, file.size)


def refuse_text_options(options: IngestOptions) -> None:
    """Refuse the options of numbered columns and label lists for rows of an array."""
    if options.zero_based != "auto":
        raise ParameterError("zero_based is for svmlight text; columns of arrays have no numbers")
    if options.multilabel:
        raise ParameterError("multilabel is for svmlight text; an array of labels has one a row")


def _plan_array_files(files: tuple[SourceFile, ...], kind: str, options: IngestOptions) -> SourcePlan:
    refuse_text_options(options)
    headers = tuple(read_header(file, kind) for file in files)
    for file, header in zip(files[1:], headers[1:], strict=True):
        if (header.n_features, header.sparse) != (headers[0].n_features, headers[0].sparse):
            raise BadInputError(
                f"{file.path}: {header.n_features} columns{' (sparse)' * header.sparse}, but {files[0].path} "
                f"has {headers[0].n_features}{' (sparse)' * headers[0].sparse}"
            )
    labels = None if options.labels is None else _label_file(options.labels, sum(h.n_rows for h in headers))
    labelled = labels is not None or (headers[0].labelled and not options.unlabelled)
    if not labelled and not options.unlabelled:
        raise BadInputError(f"{files[0].path}: no labels; give their file with --labels, or --unlabelled")
    items = tuple(_array_items(files, headers, kind, labels))
    itemsize = 8 if options.float64 else 4
    return SourcePlan(
        kind,
        files,
        items,
        tuple(max(item.stop - item.start, 1) * headers[0].n_features * itemsize for item in items),
        headers,
        labelled=labelled,
        estimate=sum(
            f.size * 4.0 if h.sparse else float(h.n_rows) * h.n_features * itemsize
            for f, h in zip(files, headers, strict=True)
        ),
        text=TextOptions(**text_options(options)),
        identity=[_identity(file) for file in (*files, *([labels] if labels else []))],
    )


def _file_path(source: str | Place) -> Path:
    place = place_of(source)
    if isinstance(place, StorePath):
        raise BadInputError(f"{place}: sources are read from files; fetch it to a disk first")
    return place


def _label_file(path: str, n_rows: int) -> SourceFile:
    file = source_file(_file_path(path))
    found = len(read_labels_file(file))
    if found != n_rows:
        raise BadInputError(f"{path}: {found} labels for {n_rows} rows")
    return file


def _array_items(
    files: tuple[SourceFile, ...], headers: tuple[ArrayHeader, ...], kind: str, labels: SourceFile | None
) -> Iterator[ArrayItem]:
    number = first_row = 0
    for file, header in zip(files, headers, strict=True):
        # only npy can be entered anywhere
        step = (
            max(1, RANGE_BYTES // (4 * max(header.n_features, 1))) if kind == "npy" else max(header.n_rows, 1)
        )
        for start in range(0, header.n_rows, step):
            stop = min(start + step, header.n_rows)
            yield ArrayItem(number, file, kind, start, stop, labels, first_row)
            number += 1
        first_row += header.n_rows


_PLANNED: dict[str, Callable[[tuple[SourceFile, ...], IngestOptions, Like | None], SourcePlan]] = {
    "svmlight": _plan_text,
    "text": _plan_documents,
    "vw": _plan_vw,
    "csv": _plan_table,
    "parquet": _plan_parquet,
    "anndata": _plan_anndata,
}


# -- resuming --------------------------------------------------------------------------------------------


def plan_document(plan: SourcePlan, options: IngestOptions, like_fingerprint: str | None) -> dict[str, Any]:
    """Return what is stored of a plan, for an ingest that resumes it to compare."""
    return {
        "version": 1,
        "sources": plan.identity,
        "options": {**asdict(options), "like": like_fingerprint, "format": plan.format},
        "range_bytes": RANGE_BYTES,
    }


def check_same_plan(dataset: Place, earlier: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to resume an unfinished ingest with other sources or options.

    Raises
    ------
    IncompleteError
        Says what differs and how to start over.
    """
    difference = _difference(earlier, now)
    if difference:
        raise IncompleteError(
            f"{dataset}: holds an unfinished ingest, and {difference}; give the same arguments to resume it, "
            f"or remove {dataset} to start over"
        )


def _difference(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    before = {source["path"]: source for source in earlier["sources"]}
    after = {source["path"]: source for source in now["sources"]}
    if [*before] != [*after]:
        return f"its sources were {', '.join(map(os.path.basename, before))}"
    changed = [path for path in before if before[path] != after[path]]
    if changed:
        return f"{changed[0]} has changed since"
    for name, value in earlier["options"].items():
        if value != now["options"][name]:
            return f"its {name} was {value!r}, not {now['options'][name]!r}"
    return "" if earlier == now else "it was made by another version of distls"
