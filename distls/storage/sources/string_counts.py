"""Check what chunks of strings of a zarr array promise, before zarr makes room for it.

The codecs of strings, vlen-utf8 and vlen-bytes, begin with the number of strings and allocate 8 bytes for each: up to
32 GiB for the four bytes of a damaged or forged chunk. zarr compares it with the shape of the chunk only afterwards.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_STRINGS = ("vlen-utf8", "vlen-bytes")
# their default settings read what was written with any
_COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
_NUMBER, _CHECKSUM = 4, 4  # bytes
_EMPTY = 2**64 - 1  # offset and length of a chunk that its shard does not have
_INDEX_CODECS = ["bytes", "crc32c"]


def check_counts(array: Any, start: int, stop: int | None) -> None:
    """Raise ValueError if a chunk with some of the rows start, ..., stop - 1 promises more strings than it has.

    An array without strings of their own lengths is left alone.
    """
    codecs, sharding = _codecs(array.metadata.to_dict()), None
    if codecs and codecs[0].get("name") == "sharding_indexed":
        sharding = codecs[0]["configuration"]
        codecs = sharding["codecs"]
    names = [str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.") for codec in codecs]
    if not set(names) & set(_STRINGS):
        return
    packed = names[max(names.index(name) for name in names if name in _STRINGS) + 1 :]
    if unknown := sorted(set(packed) - _COMPRESSORS - {"crc32c"}):
        raise ValueError(f"{array.path} has strings stored with {', '.join(unknown)}, which is not read")
    most = math.prod(array.chunks)
    for content in _files(array, start, stop):
        for chunk in _inner(content, array, sharding) if sharding else [content]:
            count = int.from_bytes(_unpacked(chunk, packed)[:_NUMBER], "little")
            if count > most:
                raise ValueError(f"a chunk of {array.path} promises {count} strings and has {most}; damaged")


def _codecs(described: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the codecs in the order of writing; in zarr 2 filters come first."""
    compressor = described.get("compressor")
    return [*(described.get("codecs") or described.get("filters") or []), *([compressor] if compressor else [])]


def _files(array: Any, start: int, stop: int | None) -> Iterator[bytes]:
    """Yield the stored chunks, or shards, of a range of rows."""
    size = (array.shards or array.chunks)[0]
    last = array.shape[0] if stop is None else min(stop, array.shape[0])
    folder = Path(array.store.root) / array.path
    for number in range(start // size, -(-last // size)):
        yield (folder / array.metadata.encode_chunk_key((number,))).read_bytes()


def _inner(content: bytes, array: Any, sharding: dict[str, Any]) -> Iterator[bytes]:
    """Yield the chunks of a shard, whose index has the offset and the length of each."""
    if [str(codec["name"]) for codec in sharding.get("index_codecs", [])] != _INDEX_CODECS:
        raise ValueError(f"{array.path} has an index of shards that is not read")
    size = array.shards[0] // array.chunks[0] * 16
    at_end = str(sharding.get("index_location", "end")).endswith("end")
    index = content[-size - _CHECKSUM : -_CHECKSUM] if at_end else content[:size]
    for offset, length in np.frombuffer(index, "<u8").reshape(-1, 2).tolist():
        if offset != _EMPTY:
            yield content[offset : offset + length]


def _unpacked(content: bytes, packed: list[str]) -> bytes:
    import numcodecs

    for name in reversed(packed):
        is_sum = name == "crc32c"
        content = content[:-_CHECKSUM] if is_sum else numcodecs.get_codec({"id": name}).decode(content)
    return bytes(content)
