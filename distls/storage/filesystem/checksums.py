"""What is on disk: arrays as bytes, and their checksum, crc32c, of JSON documents and of files read by ranges too."""

from collections.abc import Callable
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError
from distls.storage.filesystem.atomic import canonical_json, write_bytes
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import read_json

BLOCK = 2**16  # bytes with a checksum of their own: less than what most reads ask for
_SUM, _LITTLE = 4, np.dtype("<u4")  # bytes of a checksum, and its type on disk


def little_endian(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in C order and of little-endian numbers: the same bytes on any machine."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def crc32c(*parts: bytes | NDArray[Any], after: int = 0) -> int:
    """Return the checksum of the parts, one after the other, behind bytes whose checksum is `after`."""
    for part in parts:
        # the library refuses an empty array
        after = google_crc32c.extend(after, part) if len(part) else after
    return after


# -- documents -------------------------------------------------------------------------------------------


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of its canonical text as its last member."""
    return {**content, "crc32c": crc32c(canonical_json(content).encode())}


def is_sealed(content: dict[str, Any]) -> bool | None:
    """Remove the checksum of a JSON object; return whether it is right, or None where there was none."""
    # files of earlier versions have none
    checksum = content.pop("crc32c", None)
    return None if checksum is None else bool(checksum == sealed(content)["crc32c"])


def is_one_bit_off(content: dict[str, Any], checksum: int) -> bool:
    """Return whether an object had this checksum before one bit of it was flipped: no edit, but damage."""
    # some five thousand checksums of half a kilobyte: milliseconds, for a file that is suspect
    text = np.frombuffer(canonical_json(content).encode(), np.uint8).copy()
    for at in range(8 * len(text)):
        text[at // 8] ^= 1 << at % 8
        if crc32c(text) == checksum:
            return True
        text[at // 8] ^= 1 << at % 8
    return False


def write_sealed(path: Place, content: dict[str, Any], *, sync: bool = False) -> None:
    """Write a JSON object with its checksum, atomically."""
    write_bytes(path, canonical_json(sealed(content)).encode(), sync=sync)


def read_sealed(path: Place, within: Place) -> dict[str, Any] | None:
    """Read what `write_sealed` wrote; None if it is missing, torn or changed, so that its work must be done again."""
    try:
        content = read_json(path, dict[str, Any], within)
    except FormatError:  # a ValueError too, but not one of a torn file
        raise
    except (FileNotFoundError, ValueError):
        return None
    return content if is_sealed(content) else None


# -- files that are read by ranges -----------------------------------------------------------------------


def block_sums(name: str, *parts: NDArray[np.uint8], first: int = 0) -> NDArray[np.uint32]:
    """Return the checksums of the blocks of a file of these parts, from block `first` on; they follow its content.

    Name and number are part of each, so that no block is taken for one of another file or place.
    """
    sums, done, base = list[int](), 0, crc32c(name.encode())
    for part in filter(len, parts):
        # The first piece may be the rest of a block that the part before has begun.
        for at in range(-(done % BLOCK), len(part), BLOCK):
            # from any other start the same bytes have another checksum
            after = sums.pop() if at < 0 else base ^ (first + len(sums))
            sums.append(google_crc32c.extend(after, part[max(at, 0) : at + BLOCK]))
        done += len(part)
    return np.array(sums, dtype=_LITTLE)


def content_bytes(n_bytes: int) -> int:
    """Return the bytes of content in a file of `n_bytes` that ends with the checksums of its blocks."""
    return n_bytes - _SUM * -(-n_bytes // (BLOCK + _SUM))


def checked_range(read: Callable[..., int], name: str, size: int, at: int, into: NDArray[np.uint8]) -> bool:
    """Fill `into` from an offset in `size` bytes of content; return whether the blocks that it is of are right."""
    first, last, end = at // BLOCK, -(-(at + len(into)) // BLOCK), at + len(into)
    # The rest of the first and of the last block is read to be checked with them.
    before, behind = np.empty(at % BLOCK, np.uint8), np.empty(max(min(last * BLOCK, size) - end, 0), np.uint8)
    parts, sums = (before, into, behind), bytearray(_SUM * (last - first))
    whole = read(first * BLOCK, *(part.data for part in parts)) == sum(map(len, parts))
    whole = whole and read(size + _SUM * first, memoryview(sums)) == len(sums)
    return whole and block_sums(name, *parts, first=first).tobytes() == sums
