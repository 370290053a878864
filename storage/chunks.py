"""One zarr array of one chunk, read and written directly: the hot path of the store.

Writing goes around zarr's API because that costs milliseconds of CPU an array, reading because it allocates
every buffer anew (page faults cost more than decoding). `tests/storage` holds both equal to zarr's own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import google_crc32c
import numpy as np
from numcodecs.blosc import Blosc
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from distls.storage.errors import CorruptDataError

__all__ = ["BufferPool", "Codec", "KeptBuffers", "decoded_by", "read_array", "write_array"]

Codec = Literal["none", "zstd", "lz4"]

_CHECKSUM_BYTES = 4
_CODECS: dict[str, Any] = {
    "none": None,
    "zstd": Zstd(level=1),
    "lz4": Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE),
}


def _codec_metadata(codec: str, itemsize: int) -> list[dict[str, Any]]:
    chain: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if codec == "zstd":
        chain.append({"name": "zstd", "configuration": {"level": 1, "checksum": False}})
    elif codec == "lz4":
        options = {"typesize": itemsize, "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}
        chain.append({"name": "blosc", "configuration": options})
    chain.append({"name": "crc32c"})
    return chain


def array_metadata(array: NDArray[Any], codec: str) -> dict[str, Any]:
    """Return the zarr v3 metadata of `array` stored as one chunk."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "chunk_grid": {
            "name": "regular",
            # a chunk may not be empty, an array may
            "configuration": {"chunk_shape": [max(n, 1) for n in array.shape]},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": _codec_metadata(codec, array.dtype.itemsize),
        "attributes": {"encoding-type": "array", "encoding-version": "0.2.0"},
        "storage_transformers": [],
    }


def chunk_path(folder: Path, n_dimensions: int) -> Path:
    """Return the file of an array's only chunk."""
    return folder.joinpath("c", *["0"] * n_dimensions)


def write_array(folder: Path, array: NDArray[Any], codec: str) -> tuple[int, int]:
    """Write `array` as a zarr array of one chunk.

    Returns
    -------
    size : int
        Encoded bytes, checksum included; 0 when the array is empty and has no chunk.
    checksum : int
        crc32c of the encoded payload.
    """
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zarr.json").write_text(json.dumps(array_metadata(array, codec)), encoding="utf-8")
    if not array.size:
        return 0, 0
    encoder = _CODECS[codec]
    flat = array.reshape(-1)
    payload = flat.view(np.uint8) if encoder is None else np.frombuffer(encoder.encode(flat), np.uint8)
    checksum = google_crc32c.value(payload)
    path = chunk_path(folder, array.ndim)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        _write_all(file.fileno(), memoryview(payload))
        _write_all(file.fileno(), memoryview(checksum.to_bytes(4, "little")))
    return len(payload) + _CHECKSUM_BYTES, checksum


def _write_all(descriptor: int, payload: memoryview) -> None:
    # one write() moves at most 2 GiB
    while len(payload):
        payload = payload[os.write(descriptor, payload) :]


def decoded_by(codec: str, array: NDArray[Any]) -> float:
    """Return the ratio by which `codec` shrinks `array` (1.0 for an empty one)."""
    return array.nbytes / max(len(_CODECS[codec].encode(np.ascontiguousarray(array))), 1) if array.size else 1.0


class BufferPool:
    """Buffers that are grown once and reused for every partition, by name.

    A view handed out is valid until the same name is asked for again.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, n_bytes: int) -> NDArray[np.uint8]:
        """Return `n_bytes` of the buffer `name`, 64-byte aligned."""
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < n_bytes:
            # 2 % of slack: partitions differ slightly in size, and growing costs page faults
            raw = np.empty(int(n_bytes * 1.02) + 64, dtype=np.uint8)
            buffer = self._buffers[name] = raw[-raw.ctypes.data % 64 :]
        return buffer[:n_bytes]

    @property
    def n_bytes(self) -> int:
        """Bytes held."""
        return sum(len(buffer) for buffer in self._buffers.values())


class KeptBuffers(BufferPool):
    """Exact, fresh buffers for arrays that will be kept; encoded bytes pass through the `scratch` pool."""

    def __init__(self, scratch: BufferPool) -> None:
        super().__init__()
        self._scratch = scratch

    def take(self, name: str, n_bytes: int) -> NDArray[np.uint8]:
        """Return a buffer that nobody else will be given, or scratch space for encoded bytes."""
        return self._scratch.take(name, n_bytes) if name.endswith(".encoded") else np.empty(n_bytes, np.uint8)


def read_array(
    folder: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    codec: str,
    expected: tuple[int, int],
    pool: BufferPool,
    where: str,
) -> NDArray[Any]:
    """Read one array of known shape into the pool's buffer `name`, checking presence, size and checksum.

    Parameters
    ----------
    expected : (int, int)
        Encoded size and crc32c from the partition table.
    where : str
        Names the dataset and partition in errors.

    Raises
    ------
    CorruptDataError
        The chunk is missing, truncated, changed, or does not decode to `shape`.
    """
    size, checksum = expected
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not n_bytes:
        return np.empty(shape, dtype)
    encoder = _CODECS[codec]
    raw_size = n_bytes + _CHECKSUM_BYTES
    if encoder is None and size != raw_size:
        raise _corrupt(where, name, f"{size} bytes recorded, {raw_size} expected for its shape")
    encoded = pool.take(name if encoder is None else f"{name}.encoded", size)
    _read_file(chunk_path(folder / name, len(shape)), encoded, name, where)
    payload, tail = encoded[:-_CHECKSUM_BYTES], encoded[-_CHECKSUM_BYTES:]
    if google_crc32c.value(payload) != checksum or int(tail.view("<u4")[0]) != checksum:
        raise _corrupt(where, name, "its checksum does not match, bytes were changed")
    if encoder is None:
        return payload.view(dtype).reshape(shape)
    decoded = pool.take(name, n_bytes)
    try:
        encoder.decode(payload, out=decoded)
    except (RuntimeError, ValueError) as error:
        raise _corrupt(where, name, f"it does not decode ({error})") from None
    return decoded.view(dtype).reshape(shape)


def _read_file(path: Path, into: NDArray[np.uint8], name: str, where: str) -> None:
    try:
        with path.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno()).st_size
            if found != len(into):
                raise _corrupt(where, name, f"{found} bytes on disk, {len(into)} recorded")
            view, done = memoryview(into), 0
            while done < len(into):
                got = file.readinto(view[done:])
                if not got:
                    raise _corrupt(where, name, f"it ends after {done} of {len(into)} bytes")
                done += got
    except FileNotFoundError:
        raise _corrupt(where, name, "its chunk is missing") from None


def _corrupt(where: str, name: str, why: str) -> CorruptDataError:
    return CorruptDataError(f"{where}, array {name}: {why}; ingest the data set again")
