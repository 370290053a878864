"""Formats of array files, npy, npz and idx: shapes, label files, ranges of rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from distls.ingestion.request import source_plan
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import LABELS, FormatOptions, option
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options
from distls.ingestion.request.source_start import source_file
from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.arrays import ARRAY_READER, ArrayItem, read_header, read_labels_file
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile
from distls.workers.ingestion.public_sets.cifar import CIFAR_READER, cifar_header, labels_of_picture
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import ArrayHeader, ReadOptions

ARRAY_NO_SETS = (
    "an array file has one label a row; sets of labels are read from svmlight, vw and JSON lines text, and taken from "
    "arrays in memory"
)


@dataclass(frozen=True)
class ArrayOptions(FormatOptions):
    """Options of array files.

    Attributes
    ----------
    labels : path, optional
        IDX, npy or text file with the labels.
    """

    labels: str | Path | None = option(None, LABELS)  # noqa: RUF009 - a call that returns a field


class _ArrayFormat(Format[ArrayOptions]):
    """Files that each hold an array."""

    options = ArrayOptions
    no_sets = ARRAY_NO_SETS
    reader: ClassVar[BlockReader[ArrayItem, ReadOptions]] = ARRAY_READER
    packed: ClassVar[bool] = False  # it may be

    def _header(self, file: SourceFile) -> ArrayHeader:
        return read_header(file, self.name)

    def plan(self, files: Files, read: ArrayOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Read the shapes, find the labels, and cut the files into ranges of rows."""
        for file in files:
            if file.compression != "none" and not self.packed:
                raise BadInputError(f"{file.path}: {self.name} files are read plain; unpack it first")
        headers = tuple(self._header(file) for file in files)
        _check_same_width(files, headers)
        labels = None if read.labels is None else _label_file(read.labels, sum(h.n_rows for h in headers))
        labelled = labels is not None or (headers[0].labelled and not options.unlabelled)
        if not labelled and not options.unlabelled:
            named = ", which an array y or labels would hold" if self.name == "npz" else ""
            remedy = "give their file with --labels, or ingest --unlabelled"
            raise BadInputError(f"{files[0].path}: no labels{named}; {remedy}")
        items = tuple(_items(files, headers, self.name, labels))
        itemsize = 8 if options.float64 else 4
        return SourcePlan(
            self.name,
            self.reader,
            tuple(files),
            items,
            tuple(max(item.stop - item.start, 1) * headers[0].n_features * itemsize for item in items),
            ReadOptions(**shared_options(options)),
            headers,
            labelled=labelled,
            estimate=sum(
                f.size * 4.0 if h.sparse else float(h.n_rows) * h.n_features * itemsize
                for f, h in zip(files, headers, strict=True)
            ),
            beside=(labels,) if labels else (),
        )


class NpyFormat(_ArrayFormat):
    """An array of NumPy."""

    name = "npy"
    signature = b"\x93NUMPY"


class NpzFormat(_ArrayFormat):
    """An archive of a dense array, or of a scipy matrix in CSR, optionally with labels."""

    name = "npz"
    signature = b"PK"  # of zip archives


class IdxFormat(_ArrayFormat):
    """The format of MNIST; plain or gzip."""

    name = "idx"
    packed = True

    def recognises(self, start: SourceStart) -> bool:
        """Return whether it starts with two zeros, a type and a number of axes."""
        return re.match(rb"\0\0[\x08-\x0e][\x01-\x04]", start.content) is not None


class CifarFormat(_ArrayFormat):
    """The binary version of CIFAR-10 and CIFAR-100; plain or packed."""

    name = "cifar"
    reader = CIFAR_READER
    packed = True

    def _header(self, file: SourceFile) -> ArrayHeader:
        return cifar_header(file)

    def recognises(self, start: SourceStart) -> bool:
        """Return whether it has the name of such a file, and classes where its labels are."""
        # the bytes alone could be anything
        return start.name.endswith(".bin") and labels_of_picture(start.content) > 0


def _check_same_width(files: Files, headers: Sequence[ArrayHeader]) -> None:
    for file, header in zip(files[1:], headers[1:], strict=True):
        if (header.n_features, header.sparse) != (headers[0].n_features, headers[0].sparse):
            raise BadInputError(
                f"{file.path}: {header.n_features} columns{' (sparse)' * header.sparse}, but {files[0].path} "
                f"has {headers[0].n_features}{' (sparse)' * headers[0].sparse}"
            )


def _label_file(path: str | Path, n_rows: int) -> SourceFile:
    file = source_file(path)
    found = len(read_labels_file(file))
    if found != n_rows:
        raise BadInputError(f"{path}: {found} labels for {n_rows} rows")
    return file


def _items(files: Files, headers: Sequence[ArrayHeader], kind: str, labels: SourceFile | None) -> Iterator[ArrayItem]:
    number = first_row = 0
    for file, header in zip(files, headers, strict=True):
        # only npy, which is memory-mapped, can be read from the middle
        range_rows = max(1, source_plan.RANGE_BYTES // (4 * max(header.n_features, 1)))
        step = range_rows if kind == "npy" else max(header.n_rows, 1)
        for start in range(0, header.n_rows, step):
            stop = min(start + step, header.n_rows)
            yield ArrayItem(number, file, kind, start, stop, labels, first_row)
            number += 1
        first_row += header.n_rows
