"""Milliseconds of reading all partitions: this package's reader, and zarr's codec pipeline, of the same files.

    python -m benchmarks.speed.chunk_readers DATASET       # one that is there, with any zarr that is installed
    python -m benchmarks.speed.chunk_readers --make DATASET --compress zstd

Of each reader the smallest of some repeats: wall time with the threads that it takes by itself, and processor time,
which is what counts where every core has a worker. File cache warm.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.dataset import Dataset, open_dataset

_ROWS, _WIDTH, _VALUES = 400_000, 47_236, 80
_REPEATS = 9


def make(path: Path, compress: str) -> None:
    """Write sparse rows of the shape of documents: a decoded value takes 4 bytes, and its column 2."""
    import scipy.sparse as sp

    from distls.ingestion.ingest import ingest

    rng = np.random.default_rng(0)
    columns = np.sort((rng.pareto(1.0, (_ROWS, _VALUES)) * 20 % _WIDTH).astype(np.int32), axis=1)
    values = np.log1p(rng.integers(1, 9, columns.size)).astype(np.float32)
    x = sp.csr_matrix((values, columns.ravel(), np.arange(0, columns.size + 1, _VALUES)), shape=(_ROWS, _WIDTH))
    ingest(x, path, y=rng.integers(0, 4, _ROWS), compress=compress, shuffle=False, executor="serial")


def readers(data: Dataset) -> dict[str, Callable[[], None]]:
    """Return the ways to read all features of a data set once."""
    pool = BufferPool()
    group = zarr.open_group(str(data.path), mode="r")
    names = ("data", "indices", "indptr") if data.meta.layout == "csr" else ("X",)
    arrays = [group[f"rows/{index:08d}/{name}"] for index in range(len(data)) for name in names]

    def ours() -> None:
        for index in range(len(data)):
            data.read(index, pool)

    def theirs() -> None:
        for array in arrays:
            array[...]

    return {"distls, kept buffers": ours, "zarr, new arrays": theirs}


def smallest(read: Callable[[], None]) -> tuple[float, float]:
    """Return the smallest wall and processor time of a read, in milliseconds."""
    read()
    wall, own = [], []
    for _ in range(_REPEATS):
        begun, used = time.perf_counter(), time.process_time()
        read()
        wall.append(time.perf_counter() - begun)
        own.append(time.process_time() - used)
    return 1e3 * min(wall), 1e3 * min(own)


def main() -> None:
    """Print a line for each reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--compress", default="zstd")
    asked = parser.parse_args()
    if asked.make:
        make(asked.dataset, asked.compress)
    data = open_dataset(asked.dataset)
    stored, decoded = (int(each.sum()) / 2**20 for each in (data.stored_bytes, data.decoded_bytes))
    print(f"zarr {zarr.__version__}, {len(data)} partitions, {stored:.0f} MiB stored, {decoded:.0f} decoded")
    for name, read in readers(data).items():
        wall, own = smallest(read)
        print(f"{name:22} {wall:7.0f} ms, processor {own:7.0f} ms")


if __name__ == "__main__":
    main()
