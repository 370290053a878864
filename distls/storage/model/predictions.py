"""Predictions as zarr arrays, appended block by block; they appear when complete."""

from __future__ import annotations

import csv
import io
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import Label, TargetKind
from distls.storage.dataset.row_origins import OriginFacts, RowSources
from distls.storage.filesystem.atomic import replace_directory
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import first_bytes, read_json

_ORIGINS = ("source_row", "source_file", "id_text", "id_ends")
_CHUNK_ROWS = 65_536
_CHUNK_BYTES = 2**20


_START_BYTES = 2**16  # of a CSV file that is judged
_HEADER_BYTES = 2**26  # at most, as far as its header goes on
# Columns, in their order, and line ends as only we write them; the last has the name that the user's ids have.
_NUMBER = r'(prediction_[^,"\r\n]+|"prediction_([^"]|"")+")'
_HEADER = re.compile(
    rf"row,((prediction|{_NUMBER})(,{_NUMBER})*|(labels,)?label,(score|probability)(,label_\d+,(score|probability)_\d+)*)"
    r"(,source_file)?(,source_row)?(,(?P<id>[^,\r\n]+))?\r\n"
)
_MEMBERS = {"zarr.json", "prediction", "label", "score", "labels", *_ORIGINS}


def are_predictions(path: Place, ids: Collection[str] = ("id",), *, whole: bool = True) -> bool:
    """Return whether a file or group is one of predictions, by its content: nothing else is ever replaced or removed.

    A column of ids has one of the names `ids`. Not `whole`, it may be what a killed process has left of one.
    """
    if path.is_dir():
        return _is_group(path, whole)
    size = _START_BYTES
    while len(start := first_bytes(path, size)) == size < _HEADER_BYTES and not _is_headed(start):
        size *= 2
    text = start.decode("utf-8", "replace")
    found = _HEADER.match(text)
    if found is None or found["id"] not in (None, *ids):
        return not (whole or start)
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    if len(start) == size or not whole:
        rows = rows[:-1]  # the last one may be cut
    return all((len(row), row[0]) == (len(header), str(number)) for number, row in enumerate(rows))


def _is_headed(start: bytes) -> bool:
    """Return whether the start of a file has all of its header, if that may be ours."""
    # a line ends outside quotes, in a file of others maybe otherwise than ours do
    ended = any(b"\n" in part for part in start.split(b'"')[::2])
    return ended or not start.startswith((b"row,prediction", b'row,"prediction', b"row,label"))


def _is_group(path: Place, whole: bool) -> bool:
    names = {member.name for member in path.iterdir()}
    if names - _MEMBERS or not whole:
        return not names - _MEMBERS
    try:
        found = read_json(path / "zarr.json", dict[str, Any], path)["attributes"].keys() - {"files"}
    except (OSError, ValueError, LookupError, AttributeError):
        return False
    return {"prediction"} <= names if not found else {"label", "score"} <= names and found == {"classes"}


class PredictionArrays:
    """A zarr group of predictions, which appears at `target` when the context ends without error.

    By the kind of target it holds for

    * classes: arrays ``label`` (codes into the attribute ``classes``) and ``score``, both of shape (n_rows, width);
    * sets of labels: these, and a group ``labels``, a valid AnnData `csr_matrix` whose row i has a 1 for each label;
    * numbers: an array ``prediction`` of shape (n_rows, width).

    With `origins` it holds ``source_row`` of shape (n_rows,), with several files ``source_file``, codes into the
    attribute ``files``, and with ids ``id_text`` and ``id_ends``: id i is ``id_text[id_ends[i]:id_ends[i + 1]]``.
    For an object store it is assembled in this machine's folder for temporary files.
    """

    def __init__(
        self,
        target: Place,
        n_rows: int,
        width: int,
        classes: list[Label],
        dtype: np.dtype[Any],
        kind: TargetKind = "class",
        origins: OriginFacts | None = None,
    ) -> None:
        self._target = target
        name = f"{target.name}.{uuid.uuid4().hex[:8]}.partial"
        local = isinstance(target, Path)
        # zarr appends to local arrays; an object store gets the finished group
        self._temporary = target.with_name(name) if local else Path(tempfile.gettempdir()) / name
        self._row = 0
        # continuous targets have no classes
        attributes = {} if kind == "continuous" else {"classes": classes}
        import zarr  # a tenth of a second, which predictions as text save

        group = zarr.create_group(str(self._temporary), attributes=attributes)
        names = {"prediction": dtype} if kind == "continuous" else {"label": np.int32, "score": dtype}
        shape, chunks = (n_rows, width), (max(1, min(n_rows, _CHUNK_ROWS)), width)
        self._arrays = [
            group.create_array(name, shape=shape, chunks=chunks, dtype=each) for name, each in names.items()
        ]
        # of the next rows: what has their sets of labels, and their origins, appended to it
        self.sets = _Sets(group, n_rows, len(classes)) if kind == "multilabel" else None
        self.origins = None if origins is None else _Origins(group, n_rows, origins)

    def append(self, *values: NDArray[Any]) -> None:
        """Write the next rows: codes and scores, or numbers."""
        rows = slice(self._row, self._row + len(values[0]))
        for array, block in zip(self._arrays, values, strict=True):
            # Slices are written to disk at once; nothing is collected.
            array[rows] = block
        self._row = rows.stop

    def __enter__(self) -> PredictionArrays:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            # Only without an error: half of the predictions must not look whole.
            replace_directory(self._temporary, self._target)
        # after an exchange it holds what was there before
        shutil.rmtree(self._temporary, ignore_errors=True)


class _Sets:
    """The group ``labels``, which grows as the number of labels is not known before the end."""

    def __init__(self, group: Any, n_rows: int, n_labels: int) -> None:
        attributes = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_rows, n_labels]}
        sets = group.create_group("labels", attributes=attributes)
        chunks = (_CHUNK_ROWS,)
        self._indptr = sets.create_array("indptr", shape=(n_rows + 1,), chunks=chunks, dtype=np.int64)
        self._indices = sets.create_array("indices", shape=(0,), chunks=chunks, dtype=np.int64)
        self._data = sets.create_array("data", shape=(0,), chunks=chunks, dtype=np.float32)
        self._row, self._size = 0, 0

    def append(self, indptr: NDArray[np.int64], labels: NDArray[np.int32]) -> None:
        # Offsets of a block start at zero, those of the array go on.
        self._indptr[self._row : self._row + len(indptr)] = indptr + self._size
        self._indices.append(labels.astype(np.int64))
        self._data.append(np.ones(len(labels), np.float32))
        self._row += len(indptr) - 1
        self._size += len(labels)


class _Origins:
    """The arrays with the origins of the rows."""

    def __init__(self, group: Any, n_rows: int, facts: OriginFacts) -> None:
        shape, chunks = (n_rows,), (max(1, min(n_rows, _CHUNK_ROWS)),)
        self._rows = group.create_array("source_row", shape=shape, chunks=chunks, dtype=facts.dtype)
        self._files: Any = None
        if len(facts.files) > 1:
            group.attrs["files"] = facts.files
            self._files = group.create_array("source_file", shape=shape, chunks=chunks, dtype=np.uint32)
        self._ends: Any = None
        if facts.ids:
            self._ends = group.create_array("id_ends", shape=(n_rows + 1,), chunks=chunks, dtype=np.int64)
            self._text = group.create_array("id_text", shape=(0,), chunks=(_CHUNK_BYTES,), dtype=np.uint8)
        self._row, self._size = 0, 0

    def append(self, sources: RowSources) -> None:
        rows = slice(self._row, self._row + len(sources.rows))
        self._rows[rows] = sources.rows
        if self._files is not None:
            self._files[rows] = sources.files
        if self._ends is not None and sources.ids is not None:
            self._ends[rows.start : rows.stop + 1] = sources.ids.ends + self._size
            self._text.append(sources.ids.text)
            self._size += len(sources.ids.text)
        self._row = rows.stop
