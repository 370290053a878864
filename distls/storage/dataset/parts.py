"""Groups of a data set that are written part by part: partitions, column shards, origins of rows.

A part is a zarr group of arrays of one chunk. Its writer reports the encoded bytes and the checksum of each array, and
a table collects them. A group of parts that is not in the data set's fingerprint describes itself, with a digest of the
description and of the table.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool, read_array, read_arrays, write_array, write_arrays, write_group
from distls.storage.dataset.metadata import digest_of
from distls.storage.errors import CorruptDataError, FormatError, MismatchError, StorageError
from distls.storage.filesystem.atomic import atomic_directory, write_json
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import read_json

Layout = Mapping[str, tuple[tuple[Any, ...], np.dtype[Any]]]  # array name -> (shape, dtype)
Reported = tuple[dict[str, int], dict[str, int]]  # encoded bytes, and crc32c of the payloads, by array name


class _Group(msgspec.Struct):
    attributes: dict[str, dict[str, Any]]


def write_part(
    folder: Place,
    arrays: Mapping[str, NDArray[Any]],
    codecs: Mapping[str, str],
    attributes: dict[str, Any],
    inner: Mapping[str, dict[str, Any]],
) -> Reported:
    """Write a part atomically, replacing an earlier attempt; `inner` are groups in it, with their attributes."""
    # No sync: the table of all parts is written after them, and until then the work can be repeated.
    with atomic_directory(folder, sync=False) as group:
        write_group(group, attributes)
        for name, own in inner.items():
            write_group(group / name, own)
        written = {n: write_array(group / n, array, codecs.get(n, "none")) for n, array in arrays.items()}
    return {n: size for n, (size, _) in written.items()}, {n: checksum for n, (_, checksum) in written.items()}


def read_part(
    folder: Place,
    layout: Layout,
    codecs: Mapping[str, str],
    reported: Reported,
    pool: BufferPool,
    where: str,
    remedy: str,
    within: Place,
) -> dict[str, NDArray[Any]]:
    """Read and verify the arrays of a part into the pool's buffers; parameters and errors are those of `read_array`."""
    sizes, checksums = reported
    return {
        name: read_array(
            folder, name, tuple(map(int, shape)), dtype, codecs.get(name, "none"), (sizes[name], checksums[name]),
            pool, where, remedy, within,
        )
        for name, (shape, dtype) in layout.items()
    }  # fmt: skip


# -- groups that describe themselves ---------------------------------------------------------------------


def write_described(
    folder: Place, key: str, described: dict[str, Any], name: str, table: dict[str, NDArray[Any]]
) -> None:
    """Write the table `name` of the parts in `folder`, then what makes it a group: its description, in `key`."""
    write_arrays(folder / name, table)
    # the digest is added last, since it cannot be of itself
    attributes = {key: {**described, "digest": digest_of(described, table)}}
    write_json(folder / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": attributes})


def read_description(folder: Place, key: str, root: Place, version: int, what: str) -> dict[str, Any]:
    """Return the description of a group of the data set `root`; raise FormatError if it is of another version."""
    found = read_json(folder / "zarr.json", _Group, root).attributes[key]
    if found.get("format_version") != version:
        raise FormatError(
            f"{root}: {what} of format version {found.get('format_version')}, this distls reads version {version}"
        )
    return found


def read_table(folder: Place, root: Place, described: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Read the table of the parts of a group; raise ValueError if it is not the one that was described."""
    table = dict(sorted(read_arrays(folder, root).items()))
    # the digest is of the other attributes
    if described["digest"] != digest_of({k: v for k, v in described.items() if k != "digest"}, table):
        raise ValueError("their table and its digest do not match")
    return table


@contextlib.contextmanager
def as_damage(root: Place, what: str, remedy: str) -> Iterator[None]:
    """Turn errors of what is there, and is not as it was written, into a CorruptDataError of one line."""
    try:
        yield
    except (FormatError, MismatchError, StorageError):
        raise
    except (KeyError, OSError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise CorruptDataError(f"{root}: {what} cannot be read ({why}); {remedy}") from None
