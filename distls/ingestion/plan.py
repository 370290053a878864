"""What an ingest will do: options checked, sources recognised, cut into items, and compared with an earlier plan."""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from distls.ingestion.options import FORMATS, IngestOptions
from distls.storage.errors import BadInputError, IncompleteError, ParameterError
from distls.workers.sources import ArrayHeader, ArrayItem, MemoryItem, read_header, read_labels_file
from distls.workers.text import SourceFile, TextItem

__all__ = ["SourcePlan", "check_same_plan", "plan_arrays", "plan_document", "plan_files"]

RANGE_BYTES = 32 * 2**20

_MAX_BUCKETS = 2**17
_BUCKETS_PER_PARTITION = 16
_TEXT_NAMES = (".svm", ".svmlight", ".libsvm")
# Decoded bytes for a byte of source, on the high side: more buckets than needed cost next to nothing.
_EXPANSION = {"none": 1.0, "gzip": 4.0, "bz2": 5.0}


@dataclass(frozen=True)
class SourcePlan:
    """Recognised sources, cut into items.

    Attributes
    ----------
    format : {"svmlight", "npy", "npz", "idx", "memory"}
    files : tuple of SourceFile
    items : tuple of TextItem, ArrayItem or MemoryItem
    item_bytes : tuple of int
        For the progress display.
    headers : tuple of ArrayHeader
        One a file for array sources, else empty.
    labelled, weighted : bool
    estimate : float
        Decoded bytes to expect.
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
    identity: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_text(self) -> bool:
        """Whether rows come with line numbers and feature numbers."""
        return self.format == "svmlight"

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


def plan_files(paths: Sequence[str | Path], options: IngestOptions) -> SourcePlan:
    """Recognise source files and cut them into items.

    Raises
    ------
    BadInputError
        A file is missing, empty, unreadable, of no recognised format, or does not go with the others.
    """
    if not paths:
        raise ParameterError("no sources were given")
    files = tuple(_source_file(Path(path)) for path in paths)
    formats = [_format_of(file, options) for file in files]
    if len(set(formats)) > 1:
        other = next(i for i, name in enumerate(formats) if name != formats[0])
        raise BadInputError(
            f"{files[other].path}: {formats[other]}, but {files[0].path} is {formats[0]}; ingest one format at a time"
        )
    if formats[0] == "svmlight":
        return _plan_text(files, options)
    return _plan_array_files(files, formats[0], options)


def _source_file(path: Path) -> SourceFile:
    path = path.absolute()
    try:
        found = path.stat()
        with path.open("rb") as file:
            start = file.read(3)
    except FileNotFoundError:
        raise BadInputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise BadInputError(f"{path}: a folder; name the files in it") from None
    except PermissionError:
        raise BadInputError(f"{path}: permission denied") from None
    if not start:
        raise BadInputError(f"{path}: the file is empty")
    compression = "gzip" if start[:2] == b"\x1f\x8b" else "bz2" if start == b"BZh" else "none"
    return SourceFile(str(path), found.st_size, found.st_mtime_ns, compression)


def _identity(file: SourceFile) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "mtime_ns": file.mtime_ns}


def _format_of(file: SourceFile, options: IngestOptions) -> str:
    if options.format != "auto":
        return options.format
    start = _peek(file)
    if start.startswith(b"\x93NUMPY"):
        return "npy"
    if start.startswith(b"PK"):
        return "npz"
    if start[:2] == b"\0\0" and len(start) > 3 and start[2] in range(8, 15) and 1 <= start[3] <= 4:
        return "idx"
    name = re.sub(r"\.(gz|bz2)\Z", "", file.path)
    if name.endswith(_TEXT_NAMES) or _looks_like_svmlight(start, options):
        return "svmlight"
    first = start.split(b"\n", 1)[0][:40].decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in first)
    raise BadInputError(
        f'{file.path}: not recognised by its name or its start ("{shown}"); '
        f"name its format, one of {', '.join(FORMATS[1:])}"
    )


def _peek(file: SourceFile) -> bytes:
    try:
        with file.open() as stream:
            return stream.read(2**16)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{file.path}: damaged or cut short {file.compression} file ({error})") from None
    except OSError as error:
        if error.errno is None:
            raise BadInputError(f"{file.path}: damaged {file.compression} file ({error})") from None
        raise


_LABEL = rb"[+-]?[0-9.]+([eE][+-]?[0-9]+)?(,[+-]?[0-9.]+)*"
_SVMLIGHT_LINE = re.compile(rb"\s*(" + _LABEL + rb")?(\s+qid:[0-9]+)?(\s*[0-9]+:[^\s:]+)*\s*")


def _looks_like_svmlight(start: bytes, options: IngestOptions) -> bool:
    """Judge by the first line with content: numbers and pairs, and a pair or one label at least."""
    lines = (line.split(b"#", 1)[0].strip() for line in start.split(b"\n"))
    line = next(filter(None, lines), b"")
    if not line or not _SVMLIGHT_LINE.fullmatch(line[:4096].rsplit(None, 1)[0] if len(line) > 4096 else line):
        return False
    # a line of numbers between commas is CSV as well
    return b":" in line or b"," not in line or options.multilabel


def _plan_text(files: tuple[SourceFile, ...], options: IngestOptions) -> SourcePlan:
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
        identity=[_identity(file) for file in files],
    )


def _ranges(file: SourceFile) -> Iterator[tuple[int, int]]:
    if file.compression != "none":
        yield 0, file.size
        return
    for start in range(0, file.size, RANGE_BYTES):
        yield start, min(start + RANGE_BYTES, file.size)


def _refuse_text_options(options: IngestOptions) -> None:
    if options.zero_based != "auto":
        raise ParameterError("zero_based is for svmlight text; columns of arrays have no numbers")
    if options.multilabel:
        raise ParameterError("multilabel is for svmlight text; an array of labels has one a row")


def _plan_array_files(files: tuple[SourceFile, ...], kind: str, options: IngestOptions) -> SourcePlan:
    _refuse_text_options(options)
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
        identity=[_identity(file) for file in (*files, *([labels] if labels else []))],
    )


def _label_file(path: str, n_rows: int) -> SourceFile:
    file = _source_file(Path(path))
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


# -- arrays in memory ------------------------------------------------------------------------------------


def plan_arrays(x: Any, y: Any, sample_weight: Any, options: IngestOptions) -> SourcePlan:
    """Check arrays in memory and cut them into items.

    Raises
    ------
    BadInputError
        Shapes do not match, or the arrays do not hold real numbers.
    """
    _refuse_text_options(options)
    if options.format != "auto" or options.labels is not None:
        raise ParameterError("format and labels are for files; arrays in memory were given")
    sparse = scipy.sparse.issparse(x)
    x = scipy.sparse.csr_array(x) if sparse else np.asarray(x)
    if x.ndim != 2 or x.dtype.kind not in "fiub":
        raise BadInputError(
            f"X: an array of shape {x.shape} and type {x.dtype}; rows of real numbers are needed"
        )
    y = _row_values("y", y, x.shape[0])
    weight = _row_values("sample_weight", sample_weight, x.shape[0])
    if y is None and not options.unlabelled:
        raise BadInputError("y: no labels; give them, or unlabelled=True")
    step = _memory_step(x, sparse)
    ranges = [(start, min(start + step, x.shape[0])) for start in range(0, x.shape[0], step)]
    n_bytes = (12 * x.nnz if sparse else 4 * x.size) + 8 * x.shape[0]
    return SourcePlan(
        "memory",
        (),
        tuple(MemoryItem(n, x, y, weight, start, stop) for n, (start, stop) in enumerate(ranges)),
        tuple((stop - start) * max(n_bytes // max(x.shape[0], 1), 1) for start, stop in ranges),
        (ArrayHeader(x.shape[0], x.shape[1], sparse),),
        labelled=y is not None,
        weighted=weight is not None,
        estimate=float(n_bytes),
        identity=[_memory_identity(x, y, weight)],
    )


def _row_values(name: str, values: Any, n_rows: int) -> Any:
    if values is None:
        return None
    values = np.asarray(values)
    if len(values) != n_rows or values.ndim not in ((1, 2) if name == "y" else (1,)):
        raise BadInputError(f"{name}: shape {values.shape} does not go with the {n_rows} rows of X")
    if values.dtype.kind not in "fiub":
        raise BadInputError(f"{name}: values of type {values.dtype}; real numbers are needed")
    return values


def _memory_step(x: Any, sparse: bool) -> int:
    row_bytes = 8 * x.nnz // max(x.shape[0], 1) if sparse else 4 * x.shape[1]
    return max(1, RANGE_BYTES // max(row_bytes, 16))


def _memory_identity(x: Any, y: Any, weight: Any) -> dict[str, Any]:
    parts = [x.indptr, x.indices, x.data] if scipy.sparse.issparse(x) else [x]
    crc = 0
    for array in (*parts, y, weight):
        if array is not None:
            crc = zlib.crc32(np.ascontiguousarray(array).data.cast("B") if array.size else b"", crc)
    return {"path": "arrays in memory", "size": int(x.shape[0]), "crc32": crc}


# -- resuming --------------------------------------------------------------------------------------------


def plan_document(plan: SourcePlan, options: IngestOptions, like_fingerprint: str | None) -> dict[str, Any]:
    """Return what is stored of a plan, for an ingest that resumes it to compare."""
    return {
        "version": 1,
        "sources": plan.identity,
        "options": {**asdict(options), "like": like_fingerprint, "format": plan.format},
        "range_bytes": RANGE_BYTES,
    }


def check_same_plan(dataset: Path, earlier: dict[str, Any], now: dict[str, Any]) -> None:
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
