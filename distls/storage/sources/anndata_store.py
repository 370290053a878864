"""Read AnnData files, ``.zarr`` and ``.h5ad``, by blocks of rows: matrix, one column of labels, names of variables.

The on-disk format is that of https://anndata.readthedocs.io (dataframe 0.2; stores of zarr 2 and 3). Groups and
arrays of zarr and of h5py are read by the same code. All members are read through `_member`, which refuses links
out of the store and codecs that run code.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import BadInputError, FormatError, needing
from distls.storage.filesystem.safe_read import refuse_links
from distls.storage.sources.string_counts import check_counts

_HDF5_START = b"\x89HDF\r\n\x1a\n"
_ZARR_GROUPS = ("zarr.json", ".zgroup")
# exceptions of zarr, h5py and numcodecs for damaged stores
_UNREADABLE = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError),
    # SystemError: numcodecs of a negative size
    *(OSError, RuntimeError, SystemError, TypeError, ValueError),
)
# allowed codecs: numcodecs also has one that unpickles
_CODECS = {
    *("adler32", "astype", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset"),
    *("fletcher32", "gzip", "lz4", "lzma", "packbits", "quantize", "shuffle", "zlib", "zstd"),
    *("bytes", "endian", "sharding_indexed", "transpose", "vlen-bytes", "vlen-utf8"),
}
# Bytes of a decoded chunk: any store may have the few, none more than HDF5 has, and between them no more than the array
# holds, and this many times what is stored.
_SMALL_CHUNK, _LARGEST_CHUNK = 64 * 2**20, 4 * 2**30
_COMPRESSION = 1000


def is_store(path: Path) -> bool:
    """Return whether `path` is an HDF5 file or a folder with a zarr group."""
    if path.is_dir():
        return any((path / name).exists() for name in _ZARR_GROUPS)
    with path.open("rb") as file:
        return file.read(len(_HDF5_START)) == _HDF5_START


@contextlib.contextmanager
def open_anndata(path: str | Path) -> Iterator[AnnDataStore]:
    """Open a store, or raise BadInputError if it is unreadable, outdated, or its matrix is not stored by rows."""
    root, where = Path(path), str(path)
    with contextlib.ExitStack() as stack:
        with reading(where):
            store = _open_zarr(where) if root.is_dir() else stack.enter_context(_open_hdf5(where))
            opened = AnnDataStore(where, store, _matrix(store, where))
        yield opened


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn exceptions of the libraries into a BadInputError of one line."""
    try:
        yield
    except _UNREADABLE as error:
        if isinstance(error, BadInputError):
            raise
        text = " ".join(str(error).split())
        raise BadInputError(f"{where}: not a readable AnnData store ({text})") from None


def _open_zarr(path: str) -> Any:
    import zarr

    # the members' own metadata, not a consolidated copy that may differ
    return zarr.open_group(path, mode="r", use_consolidated=False)


def _open_hdf5(path: str) -> Any:
    with needing(f"{path}: HDF5 files are read with h5py; pip install 'distls[anndata]'", BadInputError):
        import h5py
    return h5py.File(path, "r")


@dataclass(frozen=True)
class _Matrix:
    """X as it is stored: an array, or a CSR group."""

    stored: Any
    shape: tuple[int, int]
    sparse: bool


def _matrix(store: Any, where: str) -> _Matrix:
    if not all(_has(store, name) for name in ("X", "obs", "var")):
        raise BadInputError(
            f"{where}: no AnnData store, which has X, obs and var; read the arrays of another file with h5py or zarr, "
            "and save them by numpy.save or give them to distls.ingest"
        )
    stored = _member(store, "X")
    sparse = hasattr(stored, "keys")
    if sparse:
        attributes = dict(stored.attrs)
        if "h5sparse_format" in attributes:
            raise _too_old(where, "X")
        encoding = attributes.get("encoding-type", "unknown")
        if encoding != "csr_matrix":
            raise BadInputError(
                f"{where}: X is stored as {encoding}; rows are needed: adata.X = adata.X.tocsr(), and write it again"
            )
        shape, data = attributes.get("shape"), _member(stored, "data")
        dtype = data.dtype
        for name in ("data", "indices", "indptr"):
            _check_whole(_member(stored, name))
    else:
        shape, dtype = stored.shape, stored.dtype
    if shape is None or len(shape) != 2 or dtype.kind not in "fiub":
        raise BadInputError(f"{where}: X is of shape {shape} and type {dtype}; rows of real numbers are needed")
    n_rows, n_features = int(shape[0]), int(shape[1])
    fits = not sparse or (
        _member(stored, "indptr").shape == (n_rows + 1,) and _member(stored, "indices").shape == data.shape
    )
    if min(n_rows, n_features) < 0 or not fits:
        raise BadInputError(f"{where}: X is of shape {shape}, which does not fit its arrays; damaged")
    return _Matrix(stored, (n_rows, n_features), sparse)


# -- members ---------------------------------------------------------------------------------------------


def check_links(path: str | Path) -> None:
    """Raise BadInputError for a zarr folder with links that lead out of it."""
    try:
        if Path(path).is_dir():
            refuse_links(Path(path))
    except FormatError as error:
        raise BadInputError(str(error)) from None


def _has(group: Any, name: str) -> bool:
    if not _is_hdf5(group):
        return name in group
    # `in` would open what a link leads to
    try:
        return _hdf5_member(group, name) is not None
    except KeyError:
        return False


def _is_hdf5(group: Any) -> bool:
    return type(group).__module__.startswith("h5py")


def _member(group: Any, name: str) -> Any:
    """Return a member of a group, once it is known to be in the same store and free of code."""
    if _is_hdf5(group):
        return _hdf5_member(group, name)
    found = group[name]
    if not hasattr(found, "keys"):
        _check_codecs(found)
    return found


def _hdf5_member(group: Any, name: str) -> Any:
    import h5py

    first, _, rest = name.partition("/")
    link = group.get(first, getlink=True) if first not in ("", ".", "..") else None
    if link is None:
        raise KeyError(name)
    if not isinstance(link, h5py.HardLink):
        raise ValueError(f"{first} is a link; copy what it leads to in its place")
    found = group[first]
    if rest:
        return _hdf5_member(found, rest)
    if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
        raise ValueError(f"{first} has its values in other files; copy them into this one")
    if isinstance(found, h5py.Dataset) and found.chunks:
        _check_chunks(found, found.name, lambda: Path(found.file.filename).stat().st_size)
    return found


def _check_codecs(array: Any) -> None:
    described = array.metadata.to_dict()
    filters, codecs = described.get("filters") or [], described.get("codecs") or []
    codecs = [*filters, described.get("compressor"), *codecs]
    unknown = set(_names_of(codecs)) - _CODECS
    if unknown:
        raise ValueError(f"{array.path} is stored with {', '.join(sorted(unknown))}, which is not read")
    _check_chunks(array, array.path, array.nbytes_stored)


def _check_chunks(array: Any, name: str, stored_bytes: Callable[[], int]) -> None:
    """Refuse chunks for which more memory would be allocated than their values can need."""
    claimed = math.prod(array.chunks) * array.dtype.itemsize
    if claimed <= _SMALL_CHUNK:
        return
    stored = stored_bytes()
    whole = math.prod(array.shape) * array.dtype.itemsize
    most = max(min(_COMPRESSION * stored, whole, _LARGEST_CHUNK), _SMALL_CHUNK)
    if claimed > most:
        raise ValueError(
            f"{name} has chunks of {claimed} bytes, which is more than its shape and the {stored} bytes stored allow; "
            "damaged"
        )


def _names_of(codecs: Any) -> Iterator[str]:
    for codec in codecs:
        if codec is None:
            continue
        yield str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.")
        inner = codec.get("configuration") or {}
        yield from _names_of([*inner.get("codecs", []), *inner.get("index_codecs", [])])


@dataclass(frozen=True)
class AnnDataStore:
    """An open store."""

    path: str
    root: Any
    matrix: _Matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.matrix.shape

    @property
    def sparse(self) -> bool:
        """Whether X is stored as CSR."""
        return self.matrix.sparse

    @property
    def row_bytes(self) -> int:
        """Mean bytes of a row of X, decoded."""
        stored = self.matrix.stored
        if not self.sparse:
            return max(self.shape[1] * stored.dtype.itemsize, 1)
        data, indices = _member(stored, "data"), _member(stored, "indices")
        size = data.shape[0] * (data.dtype.itemsize + indices.dtype.itemsize)
        return max(size // max(self.shape[0], 1), 8)

    @property
    def chunk_rows(self) -> int:
        """Rows of X in a chunk; 1 if unknown."""
        chunks = None if self.sparse else self.matrix.stored.chunks
        return int(chunks[0]) if chunks else 1

    def feature_names(self) -> tuple[str, ...]:
        """Return the names of the variables."""
        with reading(self.path):
            var = _frame(self.root, "var", self.path)
            values = _column(var, _text(var.attrs["_index"]), 0, self.shape[1], self.path)
        if len(values) != self.shape[1]:
            raise BadInputError(f"{self.path}: var has {len(values)} rows for {self.shape[1]} columns of X")
        return tuple(map(str, values.tolist()))

    def columns(self) -> list[str]:
        """Return the names of the columns of ``obs``."""
        with reading(self.path):
            obs = _frame(self.root, "obs", self.path)
            return [_text(name) for name in np.asarray(obs.attrs.get("column-order", [])).tolist()]

    def column(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return rows of a column of ``obs``: float64, or str; missing values are NaN, or empty."""
        with reading(self.path):
            return _column(_frame(self.root, "obs", self.path), name, start, stop, self.path)

    def dense_rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows of a dense X, shape (stop - start, n_features)."""
        with reading(self.path):
            return np.asarray(self.matrix.stored[start:stop])

    def row_ends(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return where rows start in a CSR X, and the end of the last; shape (stop - start + 1,)."""
        with reading(self.path):
            indptr = _member(self.matrix.stored, "indptr")
            return np.asarray(indptr[start : stop + 1], dtype=np.int64)

    def values(self, first: int, last: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return indices and data first, ..., last - 1 of a CSR X."""
        with reading(self.path):
            indices, data = (_member(self.matrix.stored, name) for name in ("indices", "data"))
            return np.asarray(indices[first:last]), np.asarray(data[first:last])


# -- data frames -----------------------------------------------------------------------------------------


def _frame(store: Any, name: str, path: str) -> Any:
    group = _member(store, name)
    # dataframe 0.1 keeps the categories of all columns in a group of their own
    if not hasattr(group, "keys") or _has(group, "__categories"):
        raise _too_old(path, name)
    return group


def _too_old(path: str, name: str) -> BadInputError:
    return BadInputError(
        f"{path}: {name} is stored as before anndata 0.8; read the file with anndata and write it again"
    )


def _column(frame: Any, name: str, start: int, stop: int, path: str) -> NDArray[Any]:
    if not _has(frame, name):
        raise BadInputError(f'{path}: no column "{name}"')
    stored = _member(frame, name)
    if hasattr(stored, "keys"):
        if _has(stored, "codes"):
            # categorical: the categories are read whole, the codes by rows
            codes = np.asarray(_member(stored, "codes")[start:stop])
            return _named(_plain(_member(stored, "categories")), codes)
        # nullable integers and booleans
        if _has(stored, "mask") and _has(stored, "values"):
            missing = np.asarray(_member(stored, "mask")[start:stop], dtype=bool)
            return _without(_plain(_member(stored, "values"), start, stop), missing)
        raise BadInputError(f'{path}: column "{name}" is stored as {dict(stored.attrs).get("encoding-type")}')
    return _plain(stored, start, stop)


def _plain(stored: Any, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Return the entries of an array as float64 or str."""
    strings = getattr(stored, "asstr", None)
    # before memory is allocated for them
    _check_whole(stored)
    if stored.dtype.kind in "fiub":
        numbers = np.asarray(stored[start:stop])
        # float64 would not keep these: as in text, they are names
        if numbers.dtype.kind in "iu" and np.any(np.abs(numbers.astype(np.float64)) >= 2.0**53):
            return numbers.astype(str)
        return numbers.astype(np.float64)
    if not _is_hdf5(stored):
        check_counts(stored, start, stop)
    # h5py gives bytes unless it is asked for text
    values = strings()[start:stop] if strings is not None else stored[start:stop]
    return np.array([_text(value) for value in np.asarray(values).tolist()], dtype=str)


def _named(categories: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Return the category of each code; -1 is a missing value."""
    if codes.size and not -1 <= int(codes.min()) <= int(codes.max()) < len(categories):
        raise ValueError(f"codes of a categorical column outside 0..{len(categories) - 1}")
    missing = codes < 0
    if not len(categories):
        return np.full(len(codes), "", dtype=str)
    return _without(categories[np.where(missing, 0, codes)], missing)


def _without(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    return np.where(missing, "" if values.dtype.kind == "U" else np.nan, values)


def _check_whole(stored: Any) -> None:
    """Refuse an array without some of its chunks, which would read as zeros or empty strings."""
    if not _is_hdf5(stored):
        found, wanted, name = stored.nchunks_initialized, stored.nchunks, stored.path
    elif stored.chunks:
        sizes = zip(stored.shape, stored.chunks, strict=True)
        wanted = math.prod(-(-n // chunk) for n, chunk in sizes)
        found, name = stored.id.get_num_chunks(), stored.name
    else:
        wanted = stored.size * stored.id.get_type().get_size()
        found, name = stored.id.get_storage_size(), stored.name
    if found < wanted:
        raise ValueError(f"{wanted - found} of {wanted} chunks of {name} are missing")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
