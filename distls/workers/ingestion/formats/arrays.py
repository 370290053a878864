"""Array files, IDX (.gz), npy, npz and scipy CSR npz, in blocks of rows; no file is loaded whole."""

import contextlib
import errno
import gzip
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Array
from distls.workers.ingestion.parsing.text_blocks import SourceFile, discard
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import ArrayHeader, FileRows, Progress, ReadOptions, RowBlock

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CSR_KEYS = {"data", "indices", "indptr", "shape", "format"}
_LARGEST_FACT = 4096  # bytes of shape or format in an npz: a header, and two numbers or a word
_MOST_FEATURES = 2**32
_DAMAGED = (
    *(EOFError, KeyError, NotImplementedError, OverflowError, RecursionError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, gzip.BadGzipFile, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)

_AS_TEXTS = '.astype(str), with "" where one is missing, or numbers'


@dataclass(frozen=True)
class ArrayItem(FileRows):
    """Rows start, ..., stop - 1 of an array file, with their labels if there are any."""

    number: int
    file: SourceFile
    kind: str  # npy | npz | idx
    start: int
    stop: int
    labels: SourceFile | None = None
    first_row: int = 0  # rows of the files before this one in the label file


def read_header(file: SourceFile, kind: str) -> ArrayHeader:
    """Return the shape of an array file, or raise BadInputError if it is not a table of numbers."""
    try:
        if kind == "npz":
            return _npz_header(file)
        # Compressed or not, only the header is read here.
        with open_array(file) as stream:
            shape, dtype = _stream_header(stream, kind)
            _check_sizes(shape)
            # the length of a compressed file is known only after reading it
            if file.compression == "none":
                _check_length(stream.tell(), shape, dtype, file.size)
    except _DAMAGED as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"{file.path}: not a readable {kind} file ({error})") from None
    return _dense_header(shape, dtype, file.path)


def _dense_header(shape: tuple[int, ...], dtype: np.dtype[Any], path: str) -> ArrayHeader:
    if len(shape) < 2:
        raise BadInputError(f"{path}: an array of shape {shape}; data must have rows and columns")
    if dtype.kind not in "fiub":
        raise BadInputError(f"{path}: values of type {dtype}; data must be real numbers")
    return ArrayHeader(shape[0], math.prod(shape[1:]), False)


def _check_sizes(shape: tuple[int, ...]) -> None:
    """Refuse shapes that are not those of a table, before anything is computed with them."""
    # Products of untrusted sizes could overflow, and then pass the checks that follow.
    if any(n < 0 for n in shape) or shape[:1] > (2**48,) or math.prod(shape[1:]) > _MOST_FEATURES:
        raise ValueError(f"an array of shape {shape}")


def _check_length(start: int, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    """Refuse a header that declares more values than the file has."""
    # Before memory is allocated for what the header merely claims.
    if start + math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"it has {size} bytes, too few for an array of shape {shape} and type {dtype}")


def _npz_header(file: SourceFile) -> ArrayHeader:
    with _archive(file.path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        labelled = _label_key(names) is not None
        if names >= _CSR_KEYS:
            n_rows, n_features = map(int, _fact(archive, "shape").tolist())
            _check_sizes((n_rows, n_features))
            kind = _fact(archive, "format").item()
            kind = kind.decode() if isinstance(kind, bytes) else str(kind)
            if kind != "csr":
                raise BadInputError(f"{file.path}: a scipy {kind} matrix; convert it with .tocsr() first")
            heads = [_member_header(archive, key) for key in ("data", "indices", "indptr")]
            shapes, types = zip(*heads, strict=True)
            numbered = all(dtype.kind in "iu" for dtype in types[1:])
            # The length of `indptr` is the number of rows and one.
            if shapes[0] != shapes[1] or shapes[2] != (n_rows + 1,) or not numbered:
                raise ValueError("its arrays do not fit its shape")
            _dense_header((1, 1), types[0], file.path)
            return ArrayHeader(n_rows, n_features, True, labelled)
        shape, dtype = _member_header(archive, _dense_key(names, file.path))
    return replace(_dense_header(shape, dtype, file.path), labelled=labelled)


@contextlib.contextmanager
def _archive(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        # a damaged directory leads to a place before the start of the file
        if error.errno != errno.EINVAL:
            raise
        raise zipfile.BadZipFile("its directory leads out of the file") from None


def _member(archive: zipfile.ZipFile, key: str) -> IO[bytes]:
    return archive.open(f"{key}.npy")


def _dense_key(names: set[str], path: str) -> str:
    for key in ("X", "x", "data"):
        if key in names:
            return key
    remedy = "the data must be named X or data"
    raise BadInputError(f"{path}: holds {', '.join(sorted(names)) or 'nothing'}; {remedy}")


def _label_key(names: set[str]) -> str | None:
    return next((key for key in ("y", "labels") if key in names), None)


def _member_header(archive: zipfile.ZipFile, key: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of a member, whose length was checked against them."""
    with _member(archive, key) as stream:
        shape, dtype = _npy_header(stream)
        _check_sizes(shape)
        _check_length(stream.tell(), shape, dtype, archive.getinfo(f"{key}.npy").file_size)
    return shape, dtype


def _fact(archive: zipfile.ZipFile, key: str) -> Array:
    """Return a small member: the shape or the format of a matrix."""
    # Facts are tiny: anything larger is no fact, and is not read.
    if archive.getinfo(f"{key}.npy").file_size > _LARGEST_FACT:
        raise ValueError(f"{key} of more than {_LARGEST_FACT} bytes")
    return _small_member(archive, key)


def _small_member(archive: zipfile.ZipFile, key: str) -> Array:
    _member_header(archive, key)
    with _member(archive, key) as stream:
        # Never pickled: an object array would execute what the file says.
        return np.lib.format.read_array(stream, allow_pickle=False)


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    # Headers of version 1 have lengths of two bytes.
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(stream)
    # rows of a column-major array cannot be read as a stream
    if fortran and len(shape) > 1:
        raise ValueError("it is stored by columns; save np.ascontiguousarray of it")
    return shape, dtype


def _idx_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    magic = stream.read(4)
    if len(magic) != 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES:
        raise ValueError("its first bytes are not those of an IDX file")
    # The fourth byte of the magic is the number of dimensions.
    sizes = stream.read(4 * magic[3])
    if len(sizes) != 4 * magic[3]:
        raise EOFError("it ends in its header")
    return tuple(np.frombuffer(sizes, ">u4").tolist()), np.dtype(_IDX_TYPES[magic[2]])


def _stream_header(stream: IO[bytes], kind: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return _idx_header(stream) if kind == "idx" else _npy_header(stream)


def open_array(file: SourceFile) -> IO[bytes]:
    """Open the bytes of a file, packed or not."""
    file.check()  # a label file may be compressed where the data are not
    return open(file.path, "rb") if file.compression == "none" else file.open()


def read_labels_file(file: SourceFile) -> Array:
    """Return the labels in an IDX (.gz) or npy file, shape (n_rows,) or (n_rows, n_targets)."""
    with open_array(file) as stream:
        # By content, since names of label files tell nothing.
        start = stream.read(6)
        stream.seek(0)
        kind = "npy" if start == b"\x93NUMPY" else "idx"
        try:
            shape, dtype = _stream_header(stream, kind)
            _check_sizes(shape)
            if dtype.hasobject:
                raise ValueError(f"it is of dtype object: save labels{_AS_TEXTS}")
            values = np.frombuffer(_read_up_to(stream, math.prod(shape) * dtype.itemsize), dtype)
            values = values.reshape(shape)
            # Trailing bytes mean that the header is of another array.
            if stream.read(1):
                raise ValueError(f"it is longer than an array of shape {shape}")
        except _DAMAGED as error:
            raise BadInputError(f"{file.path}: not a readable label file, IDX or npy ({error})") from None
    _check_labels(values, f"{file.path}: labels")
    return values


def _read_up_to(stream: IO[bytes], n_bytes: int) -> bytearray:
    """Read at most `n_bytes`."""
    content = bytearray()
    # in steps: no memory is allocated for bytes that a header merely claims
    while chunk := stream.read(min(n_bytes - len(content), 2**24)):
        content += chunk
    return content


def _check_labels(values: Array, name: str) -> None:
    of_numbers = values.ndim in (1, 2) and values.dtype.kind in "fiub"
    if not of_numbers and (values.ndim, values.dtype.kind) != (1, "U"):
        raise BadInputError(f"{name} must be one number or word a row, or one row of numbers")


def array_blocks(item: ArrayItem, _: ReadOptions, progress: Progress, n_bytes: int) -> Iterator[RowBlock]:
    """Yield the rows of a file from the `progress.offset`-th on, in blocks of about `n_bytes` as float32."""
    try:
        blocks = {"npz": _npz_blocks, "npy": _npy_blocks, "idx": _idx_blocks}[item.kind]
        yield from blocks(item, progress.offset, n_bytes)
    except _DAMAGED as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"{item.file.path}: damaged or cut short ({error})") from None


def row_ranges(start: int, stop: int, n_features: int, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of about `block_bytes` as float32."""
    # A row may be larger than a block.
    step = max(1, block_bytes // (4 * max(n_features, 1)))
    for first in range(start, stop, step):
        yield first, min(first + step, stop)


def item_labels(item: ArrayItem) -> Array | None:
    """Return the labels of an item's label file, None if it has none."""
    return None if item.labels is None else read_labels_file(item.labels)[item.first_row :]


def as_targets(y: Array | None, first: int, stop: int) -> Array | None:
    """Return the labels of rows first, ..., stop - 1 in the form of `RowBlock`."""
    if y is None:
        return None
    part = np.asarray(y[first:stop], dtype=None if y.dtype.kind in "Uiu" else np.float64)
    return part.reshape(len(part), -1)


def _npy_blocks(item: ArrayItem, skip: int, block_bytes: int) -> Iterator[RowBlock]:
    item.file.check()
    # Memory-mapped: pages are read as rows are converted.
    values = np.load(item.file.path, mmap_mode="r", allow_pickle=False)
    y = item_labels(item)
    n_features = math.prod(values.shape[1:])
    for first, stop in row_ranges(item.start + skip, item.stop, n_features, block_bytes):
        block = values[first:stop].reshape(stop - first, n_features)
        yield RowBlock(first, block, None, as_targets(y, first, stop))


def _idx_blocks(item: ArrayItem, skip: int, block_bytes: int) -> Iterator[RowBlock]:
    with open_array(item.file) as stream:
        shape, dtype = _idx_header(stream)
        # Labels of the files before this one come first in the label file.
        yield from stream_blocks(stream, shape, dtype, item_labels(item), skip, block_bytes)


def stream_blocks(
    stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], y: Array | None, skip: int, block_bytes: int
) -> Iterator[RowBlock]:
    """Yield the rows of an array that a stream has from its position on, without the first `skip`."""
    n_features = math.prod(shape[1:])
    # A compressed stream cannot seek, so rows that are done are read and dropped.
    discard(stream, skip * n_features * dtype.itemsize)
    for first, stop in row_ranges(skip, shape[0], n_features, block_bytes):
        block = _read_values(stream, (stop - first) * n_features, dtype).reshape(stop - first, n_features)
        yield RowBlock(first, block, None, as_targets(y, first, stop))


def _read_values(stream: IO[bytes], n_values: int, dtype: np.dtype[Any]) -> Array:
    payload = stream.read(n_values * dtype.itemsize)
    # A short read is a file that was cut off.
    if len(payload) != n_values * dtype.itemsize:
        raise EOFError(f"{n_values * dtype.itemsize - len(payload)} bytes are missing")
    return np.frombuffer(payload, dtype=dtype)


def _npz_blocks(item: ArrayItem, skip: int, block_bytes: int) -> Iterator[RowBlock]:
    item.file.check()
    with _archive(item.file.path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        y = item_labels(item)
        key = _label_key(names)
        if y is None and key is not None:
            (n_labels, *_), _ = _member_header(archive, key)
            # A label more or less would shift all that follow.
            if n_labels != item.stop:
                raise BadInputError(f"{item.file.path}: {key} has {n_labels} labels for {item.stop} rows")
            if _member_header(archive, key)[1].hasobject:
                raise BadInputError(f"{item.file.path}: {key} is of dtype object; save {key}{_AS_TEXTS}")
            y = _small_member(archive, key)
            _check_labels(y, f"{item.file.path}: {key}")
        if names >= _CSR_KEYS:
            yield from _csr_blocks(archive, item, y, skip, block_bytes)
            return
        with _member(archive, _dense_key(names, item.file.path)) as stream:
            shape, dtype = _npy_header(stream)
            yield from stream_blocks(stream, shape, dtype, y, skip, block_bytes)


def _csr_blocks(
    archive: zipfile.ZipFile, item: ArrayItem, y: Array | None, skip: int, block_bytes: int
) -> Iterator[RowBlock]:
    with _member(archive, "data") as data, _member(archive, "indices") as indices, _member(archive, "indptr") as ptr:
        # the members are read in parallel, as three streams positioned after their headers
        types = {stream: _npy_header(stream)[1] for stream in (data, indices, ptr)}
        # The first offset need not be zero.
        end = int(_read_values(ptr, 1, types[ptr])[0])
        # as many rows of average length as fill a block
        # Bounded from above: rows of a nearly empty matrix are small.
        step = max(1, min(2**16, block_bytes * max(item.stop, 1) // (8 * max(item.file.size, 1))))
        for first in range(0, item.stop, step):
            stop = min(first + step, item.stop)
            ends = _read_values(ptr, stop - first, types[ptr]).astype(np.int64)
            indptr = np.concatenate([[0], ends - end])
            # Refused by its row, as kernels rely on increasing offsets.
            if np.any(np.diff(indptr) < 0):
                raise BadInputError(f"{item.file.path}, row {first}: row offsets decrease")
            own, values = (_read_values(part, int(indptr[-1]), types[part]) for part in (indices, data))
            end = int(ends[-1])
            # resumed: an earlier attempt cut the rows into the same blocks
            if first >= skip:
                yield RowBlock(first, None, (indptr, own, values), as_targets(y, first, stop))


ARRAY_READER = BlockReader(array_blocks)
