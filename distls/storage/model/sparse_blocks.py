"""Weights of very many classes: the non-zero ones only, by blocks of classes, which need not be in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError, MemoryPlanError
from distls.storage.filesystem.checksums import little_endian
from distls.storage.filesystem.paths import place_of
from distls.storage.machine import available_memory
from distls.storage.model.bundle import array_reader

ARRAYS = ("indptr", "indices", "values")

_MOST_HELD = 64 * 2**20  # bytes of weights that are held once they are read; with their indices twice as many

Reader = Callable[[set[str]], dict[str, NDArray[Any]]]  # of arrays by their names


@dataclass(frozen=True, eq=False)
class ClassBlock:
    """The non-zero weights of consecutive classes, class after class; `first` is the code of the first class.

    Features of class ``first + c`` are the uint32 ``indices[indptr[c]:indptr[c + 1]]``, increasing, with `values`.
    """

    first: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[Any]

    @property
    def stop(self) -> int:
        """The code after that of the last class."""
        return self.first + len(self.indptr) - 1

    def check(self, stop: int, n_features: int, dtype: np.dtype[Any], where: str) -> None:
        """Raise FormatError unless kernels may rely on the arrays."""
        sound = (
            self.indptr.dtype == np.int64
            and self.indptr.shape == (stop - self.first + 1,)
            and self.indices.dtype == np.uint32
            and self.values.dtype == dtype
            and self.indices.ndim == self.values.ndim == 1
            and self.indptr[0] == 0
            and self.indptr[-1] == len(self.indices) == len(self.values)
            and bool((np.diff(self.indptr) >= 0).all())
        )
        if sound and len(self.indices):
            rising = np.ones(len(self.indices) + 1, bool)
            rising[1:-1] = self.indices[1:] > self.indices[:-1]
            rising[self.indptr] = True  # the first of a class follows the last of another
            # Kernels index by them without checks.
            sound = bool(rising.all()) and int(self.indices.max()) < n_features
        if not sound:
            raise FormatError(
                f"{where}: its weights of classes {self.first} to {stop - 1} are not those of {n_features} features"
            )


@dataclass(frozen=True)
class BlockPlace:
    """Where the block of classes ``first`` to ``stop - 1`` is stored."""

    folder: str  # a bundle
    kind: str  # of the bundle
    first: int
    stop: int
    prefix: str = ""  # of the names of its arrays

    def reader(self) -> Reader:
        """Return what reads the arrays of the bundle, in which other blocks may be too."""
        return array_reader(place_of(self.folder), self.kind)

    def load(self, read: Reader | None = None) -> ClassBlock:
        """Read the block; its arrays match their checksums, and nothing else is known of them."""
        arrays = (read or self.reader())({f"{self.prefix}{name}" for name in ARRAYS})
        return ClassBlock(self.first, *(arrays[f"{self.prefix}{name}"] for name in ARRAYS))


class ClassBlocks:
    """Weights of shape (n_features, n_outputs), of which blocks of classes are held, or read and held up to a limit.

    It stands for an array where only shape, type, columns (``weights[:, k]``) or all of it are needed; all of it, as
    NumPy's functions take it, must fit into memory. Weights of classes in no block are zero.
    """

    ndim = 2

    def __init__(
        self, shape: tuple[int, int], dtype: np.dtype[Any], blocks: tuple[ClassBlock | BlockPlace, ...]
    ) -> None:
        self.shape, self.dtype, self.blocks = shape, np.dtype(dtype), blocks
        self._held: dict[int, ClassBlock] = {}  # by their first classes: what _MOST_HELD bytes hold
        self._last: ClassBlock | None = None  # of the others
        self._open: tuple[str, Reader] | None = None  # the bundle that was read last

    def __getstate__(self) -> dict[str, Any]:
        # The cached blocks are not sent to workers, which read their own.
        return {**self.__dict__, "_held": {}, "_last": None, "_open": None}

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def itemsize(self) -> int:
        """Bytes of a weight."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all weights, the zero ones included."""
        return self.shape[0] * self.shape[1] * self.itemsize

    @property
    def size(self) -> int:
        """Number of all weights."""
        return self.shape[0] * self.shape[1]

    def read(self) -> Iterator[ClassBlock]:
        """Yield the blocks in the order of classes, few in memory at a time; raises FormatError, CorruptDataError."""
        for block in self.blocks:
            yield self._loaded(block)

    def _loaded(self, block: ClassBlock | BlockPlace) -> ClassBlock:
        if isinstance(block, ClassBlock):
            return block
        # All together may not fit into memory; threads of a worker may read side by side.
        last = self._last
        found = self._held.get(block.first) or (last if last and last.first == block.first else None)
        if found is None:
            opened = self._open
            # The classes of a model are many: its description takes longer to read than a block.
            if opened is None or opened[0] != block.folder:
                opened = self._open = block.folder, block.reader()
            found = block.load(opened[1])
            found.check(block.stop, self.shape[0], self.dtype, block.folder)
            held = sum(each.values.nbytes for each in list(self._held.values()))
            if held + found.values.nbytes <= _MOST_HELD:
                self._held[block.first] = found
            else:
                self._last = found
        return found

    def in_memory(self) -> ClassBlocks:
        """Return the same weights with all blocks read."""
        return ClassBlocks(self.shape, self.dtype, tuple(self.read()))

    def column(self, k: int) -> NDArray[Any]:
        """Return the weights of a class, shape (n_features,)."""
        # Negative numbers count from the end, as of an array.
        k = range(self.shape[1])[k]
        made = np.zeros(self.shape[0], self.dtype)
        for block in self.blocks:
            if block.first <= k < block.stop:
                found = self._loaded(block)
                own = slice(found.indptr[k - found.first], found.indptr[k - found.first + 1])
                made[found.indices[own]] = found.values[own]
        return made

    def dense(self) -> NDArray[Any]:
        """Return all weights as an array; raise MemoryPlanError if it would not fit."""
        # Checked before it is allocated: the kernel would kill the process instead of raising.
        free = available_memory()
        if self.nbytes > free:
            raise MemoryPlanError(
                f"weights of {self.shape[0]} features for {self.shape[1]} classes take {self.nbytes} bytes with their "
                f"zeros, more than the {free} that are free; predict and evaluate do not need them so"
            )
        made = np.zeros(self.shape, self.dtype)
        for block in self.read():
            classes = np.repeat(np.arange(block.first, block.stop), np.diff(block.indptr))
            made[block.indices, classes] = block.values
        return made

    def used_rows(self) -> NDArray[np.int64]:
        """Return the features with a weight that is not zero, increasing."""
        used = np.zeros(self.shape[0], bool)
        # Features of different classes overlap, so a mask and not a count.
        for block in self.read():
            used[block.indices] = True
        return np.flatnonzero(used)

    def nnz(self) -> int:
        """Return the number of stored weights."""
        return sum(len(block.indices) for block in self.read())

    def sha256(self, *others: NDArray[Any]) -> str:
        """Return the digest of what is stored, which no cut into blocks changes, followed by other arrays.

        Of each class: the number of its weights (int64), their features (uint32), and the weights themselves.
        """
        digest, done = hashlib.sha256(), 0
        for block in self.read():
            digest.update(bytes(8 * (block.first - done)))  # classes in no block have no weights
            for a, b in zip(block.indptr[:-1].tolist(), block.indptr[1:].tolist(), strict=True):
                digest.update((b - a).to_bytes(8, "little"))
                digest.update(little_endian(block.indices[a:b]).data)
                digest.update(little_endian(block.values[a:b]).data)
            done = block.stop
        digest.update(bytes(8 * (self.shape[1] - done)))
        for array in others:
            digest.update(little_endian(array).data)
        return digest.hexdigest()

    # ---- as an array of NumPy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.dense() if dtype is None else self.astype(dtype)

    def astype(self, dtype: Any, copy: bool = True) -> NDArray[Any]:
        """Return all weights as an array of another type."""
        return self.dense().astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], (int, np.integer)):
            return np.asarray(self.column(int(key[1]))[key[0]])
        return np.asarray(self.dense()[key])

    @property
    def T(self) -> NDArray[Any]:
        """All weights, class by class."""
        return self.dense().T
