"""One zarr array of one chunk, read and written directly: the hot path of the store.

Writing bypasses zarr's API because it costs milliseconds of CPU per array, reading because it allocates new buffers
(page faults cost more than decoding). `tests/storage` holds both equal to zarr's own.
"""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import CorruptDataError, StorageError
from distls.storage.filesystem.atomic import describe_os_error, remove_tree, subfolders
from distls.storage.filesystem.checksums import crc32c, little_endian
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import open_regular, read_bytes, read_json, read_with_retries

Codec = Literal["none", "zstd", "lz4"]

_CHECKSUM_BYTES = 4
_AT_ONCE = 8
# members of an array's metadata that determine how its chunk is read
_READ = ("zarr_format", "chunk_grid", "chunk_key_encoding", "codecs", "storage_transformers")


@cache
def encoder_of(codec: str, *, shuffles: bool = True) -> Any:
    """Return what encodes and decodes a codec, None for "none"; of either shuffle: a buffer says which it has."""
    if codec == "none":
        return None
    # where something is compressed: it looks through all installed packages for codecs of theirs
    from numcodecs.blosc import Blosc
    from numcodecs.zstd import Zstd

    shuffle = Blosc.SHUFFLE if shuffles else Blosc.NOSHUFFLE
    return {"zstd": Zstd(level=1), "lz4": Blosc(cname="lz4", clevel=5, shuffle=shuffle)}[codec]


def _codec_metadata(codec: str, itemsize: int, *, shuffles: bool) -> list[dict[str, Any]]:
    chain: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if codec == "zstd":
        chain.append({"name": "zstd", "configuration": {"level": 1, "checksum": False}})
    elif codec == "lz4":
        shuffle = "shuffle" if shuffles else "noshuffle"
        options = {"typesize": itemsize, "cname": "lz4", "clevel": 5, "shuffle": shuffle, "blocksize": 0}
        chain.append({"name": "blosc", "configuration": options})
    chain.append({"name": "crc32c"})
    return chain


def _array_metadata(shape: tuple[int, ...], dtype: np.dtype[Any], codec: str) -> dict[str, Any]:
    """Return the zarr v3 metadata of an array stored as one chunk."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype.name,
        # a chunk may not be empty, an array may
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(n, 1) for n in shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": _codec_metadata(codec, dtype.itemsize, shuffles=len(shape) > 1),
        "attributes": {"encoding-type": "array", "encoding-version": "0.2.0"},
        "storage_transformers": [],
    }


def write_group(folder: Place, attributes: dict[str, Any]) -> None:
    """Write the metadata of a zarr group, making its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes})
    (folder / "zarr.json").write_text(text, encoding="utf-8")


def chunk_path(folder: Place, n_dimensions: int) -> Place:
    """Return the file of an array's only chunk."""
    return folder.joinpath("c", *["0"] * n_dimensions)


def write_array(folder: Place, array: NDArray[Any], codec: str) -> tuple[int, int]:
    """Write `array` as a zarr array of one chunk.

    Return its encoded bytes, checksum included (0 when it is empty and has no chunk), and the crc32c of the payload.
    """
    array = little_endian(array)
    folder.mkdir(parents=True, exist_ok=True)
    metadata = _array_metadata(array.shape, array.dtype, codec)
    (folder / "zarr.json").write_text(json.dumps(metadata), encoding="utf-8")
    if not array.size:
        return 0, 0
    # Of values in one dimension, those of sparse rows, equal ones are found sooner as they are (docs/decisions/0046).
    encoder = encoder_of(codec, shuffles=array.ndim > 1)
    flat = array.reshape(-1)
    payload = flat.view(np.uint8) if encoder is None else np.frombuffer(encoder.encode(flat), np.uint8)
    # Of the encoded bytes: damage is found before anything is decoded.
    checksum = crc32c(payload)
    path = chunk_path(folder, array.ndim)
    path.parent.mkdir(parents=True, exist_ok=True)
    tail = memoryview(checksum.to_bytes(4, "little"))
    if isinstance(path, StorePath):
        path.write_parts(payload.data, tail)
    else:
        with path.open("wb", buffering=0) as file:
            _write_all(file.fileno(), payload.data)
            _write_all(file.fileno(), tail)
    return len(payload) + _CHECKSUM_BYTES, checksum


def _write_all(descriptor: int, payload: memoryview) -> None:
    # one write() moves at most 2 GiB
    while len(payload):
        payload = payload[os.write(descriptor, payload) :]


def decoded_by(codec: str, array: NDArray[Any]) -> float:
    """Return the ratio by which `codec` shrinks `array` (1.0 for an empty one)."""
    if not array.size:
        return 1.0
    return array.nbytes / max(len(encoder_of(codec).encode(np.ascontiguousarray(array))), 1)


class BufferPool:
    """Named buffers that grow and are reused; a view is valid until the same name is taken again."""

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, n_bytes: int) -> NDArray[np.uint8]:
        """Return `n_bytes` of the buffer `name`, 64-byte aligned."""
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < n_bytes:
            # 2 % of slack: partitions differ slightly in size, and growing costs page faults
            raw = np.empty(int(n_bytes * 1.02) + 64, dtype=np.uint8)
            # Aligned to a cache line, which vector loads of kernels are fastest with.
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
        """Return a buffer of the caller's own, or scratch space for encoded bytes."""
        return self._scratch.take(name, n_bytes) if name.endswith(".encoded") else np.empty(n_bytes, np.uint8)


def read_array(
    folder: Place,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    codec: str,
    expected: tuple[int, int],
    pool: BufferPool,
    where: str,
    remedy: str = "ingest the data set again",
    within: Place | None = None,
) -> NDArray[Any]:
    """Read one array of known shape into the pool's buffer `name`, checking presence, size and checksum.

    `expected` are the encoded size and the crc32c from the table of partitions or shards; `where` and `remedy` are
    for errors; no link may lead out of `within` (default: `folder`). Raises CorruptDataError if the chunk is missing,
    truncated, changed, or does not decode to `shape`, FormatError if it is no regular file within the dataset.
    """
    size, _ = expected
    corrupt = partial(_corrupt, f"{where}, array {name}", remedy)
    n_bytes = math.prod(shape) * dtype.itemsize
    encoder = encoder_of(codec)
    raw_size = n_bytes + _CHECKSUM_BYTES if n_bytes else 0
    # encoded data have any size, except those of an empty array
    if (size <= _CHECKSUM_BYTES) if encoder and n_bytes else (size != raw_size):
        raise corrupt(f"{size} bytes recorded, {raw_size} expected for its shape")
    if not n_bytes:
        return np.empty(shape, dtype)
    into = pool, name if encoder is None else f"{name}.encoded"
    path = chunk_path(folder / name, len(shape))
    payload = _read_payload(path, within or folder, expected, into, corrupt)
    if encoder is None:
        return payload.view(dtype).reshape(shape)
    # checked before decoding, which would leave the rest of a larger buffer unchanged
    found = _DECODED_SIZES[codec](payload)
    if found != n_bytes:
        raise corrupt(f"it decodes to {found} bytes, {n_bytes} expected for its shape")
    decoded = pool.take(name, n_bytes)
    try:
        encoder.decode(payload, out=decoded)
    except (RuntimeError, ValueError) as error:
        raise corrupt(f"it does not decode ({error})") from None
    return decoded.view(dtype).reshape(shape)


def read_described_array(folder: Place, within: Place) -> NDArray[Any]:
    """Read an uncompressed array in `within` whose type and shape only its own ``zarr.json`` knows.

    Raises ValueError if it is not one that `write_array` writes, or its chunk is missing, truncated or changed.
    """
    described = read_json(folder / "zarr.json", dict[str, Any], within)
    shape, dtype = tuple(described["shape"]), np.dtype(str(described["data_type"]))
    if not all(type(n) is int and n >= 0 for n in shape) or dtype.kind not in "biuf":
        # An object array or a string would execute or allocate what it likes.
        raise ValueError(f"{folder.name}: shape {str(shape)[:80]}, type {dtype}")
    expected = _array_metadata(shape, dtype, "none")
    if any(described[key] != expected[key] for key in _READ):
        raise ValueError(f"{folder.name}: not an uncompressed array of one chunk")
    n_bytes = math.prod(shape) * dtype.itemsize
    if not n_bytes:
        return np.empty(shape, dtype)
    path = chunk_path(folder, len(shape))
    # checked before memory is allocated
    if path.stat().st_size != n_bytes + _CHECKSUM_BYTES:
        raise ValueError(f"{folder.name}: its chunk has {path.stat().st_size} bytes, not {n_bytes + _CHECKSUM_BYTES}")
    # twice, since a torn read looks like damage
    for content in (read_bytes(path, within) for _ in range(2)):
        if crc32c(content[:n_bytes]) == int.from_bytes(content[n_bytes:], "little"):
            stored = np.frombuffer(content, dtype.newbyteorder("<"), math.prod(shape))
            return stored.astype(dtype).reshape(shape)
    raise ValueError(f"{folder.name}: its checksum does not match")


# The frame's own claim, compared with what the metadata asks for.
def _zstd_decoded_size(payload: NDArray[np.uint8]) -> int:
    """Return the size that a zstd frame declares (RFC 8878, 3.1.1.1), -1 without one."""
    header = payload[:18].tobytes().ljust(18, b"\0")
    if header[:4] != b"\x28\xb5\x2f\xfd":
        return -1
    descriptor, single = header[4], header[4] >> 5 & 1
    width = (single, 2, 4, 8)[descriptor >> 6]
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(header[start : start + width], "little")
    return size + 256 * (width == 2) if width else -1


def _blosc_decoded_size(payload: NDArray[np.uint8]) -> int:
    """Return the size that a Blosc header declares, -1 when it does not describe all of `payload`."""
    header = payload[:16].tobytes()
    whole = len(header) == 16 and int.from_bytes(header[12:16], "little") == len(payload)
    return int.from_bytes(header[4:8], "little") if whole else -1


_DECODED_SIZES = {"zstd": _zstd_decoded_size, "lz4": _blosc_decoded_size}


def _read_payload(
    path: Place,
    within: Place,
    expected: tuple[int, int],
    into: tuple[BufferPool, str],
    corrupt: partial[CorruptDataError],
) -> NDArray[np.uint8]:
    """Read and verify a chunk, retried if storage fails; return it without its checksum."""
    size, checksum = expected

    def read() -> NDArray[np.uint8]:
        encoded = _read_file(path, within, size, into, corrupt)
        payload, tail = encoded[:-_CHECKSUM_BYTES], encoded[-_CHECKSUM_BYTES:]
        if crc32c(payload) != checksum or tail.tobytes() != checksum.to_bytes(4, "little"):
            raise corrupt("its checksum does not match, bytes were changed")
        return payload

    try:
        return read_with_retries(read, path)
    except (FileNotFoundError, NotADirectoryError):
        raise corrupt("its chunk is missing") from None
    except StorageError:
        raise
    except OSError as error:
        what, _ = corrupt.args
        error.filename = error.filename or str(path)
        raise describe_os_error(error, f"{what}: it cannot be read", "check the disk") from None


def _read_file(
    path: Place, within: Place, size: int, into: tuple[BufferPool, str], corrupt: partial[CorruptDataError]
) -> NDArray[np.uint8]:
    """Read a file that must have `size` bytes."""
    pool, buffer = into

    def room(found: int) -> NDArray[np.uint8]:
        if found != size:  # before memory is allocated
            raise corrupt(f"{found} bytes on disk, {size} recorded")
        return pool.take(buffer, size)

    if isinstance(path, StorePath):
        return path.read_whole(room)
    with open(open_regular(path, within), "rb", buffering=0) as file:
        encoded = room(os.fstat(file.fileno()).st_size)
        # A read may return less than asked for.
        view, done = encoded.data, 0
        while done < size:
            got = file.readinto(view[done:])
            if not got:
                raise corrupt(f"it ends after {done} of {size} bytes")
            done += got
        return encoded


def _corrupt(what: str, remedy: str, why: str) -> CorruptDataError:
    return CorruptDataError(f"{what}: {why}; {remedy}")


def read_arrays(folder: Place, within: Place) -> dict[str, NDArray[Any]]:
    """Read all arrays of a group of small ones, which `write_arrays` wrote, in the dataset `within`, by name."""
    members, read = subfolders(folder), partial(read_described_array, within=within)
    if not isinstance(folder, StorePath):
        return {path.name: read(path) for path in members}
    # of small arrays nearly all of the time is latency
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip((path.name for path in members), pool.map(read, members), strict=True))


def write_arrays(folder: Place, arrays: dict[str, NDArray[Any]]) -> None:
    """Write a group of small arrays, uncompressed, in place of what is there."""
    # What an earlier attempt left must not mix with the new arrays.
    remove_tree(folder)
    write_group(folder, {})
    for name, array in arrays.items():
        write_array(folder / name, array, "none")
