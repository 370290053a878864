"""Models and checkpoints on disk: named arrays as .npy files and one JSON file. Never pickle.

A bundle is a folder that appears atomically. ``bundle.json`` lists every array with its shape, dtype and the crc32c of
its file, and ends with its own checksum; nothing else in the folder is read. The specification is docs/format.md.
"""

import io
import itertools
import math
import re
import threading
import tokenize
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from distls.storage.errors import CorruptDataError, FormatError
from distls.storage.filesystem.atomic import atomic_directory, remove_tree, subfolders, write_bytes, write_json
from distls.storage.filesystem.checksums import crc32c, is_sealed, little_endian, sealed
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import convert_json, read_array_file, read_json

_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_FOLDER = re.compile(r"arrays-[0-9a-f]{8}")
_NUMBERS = "biufc"
_SUM_BYTES = 4
# A header is a Python literal, and the parser of CPython 3.11 fails now and then when threads call it at once
# (SystemError: AST constructor recursion depth mismatch).
_ONE_PARSER = threading.Lock()


class _Description(msgspec.Struct):
    """Content of ``bundle.json`` except its checksum."""

    kind: str
    version: int
    attributes: dict[str, Any]
    arrays: dict[str, dict[str, Any]]
    folder: str = ""


def write_bundle(
    folder: Place,
    kind: str,
    attributes: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    further: Iterable[tuple[str, NDArray[Any]]] = (),
) -> None:
    """Write arrays of numbers and JSON `attributes` as the bundle `folder`, replacing it.

    `kind`, "model" or "checkpoint", is checked by the reader; `further` arrays are taken one at a time, so that they
    need not be in memory together.
    """
    content: dict[str, Any] = {"kind": kind, "version": _VERSION, "attributes": attributes}
    # an object store has no renames: bundle.json, written last, names the folder of the new arrays
    if isinstance(folder, StorePath):
        content["folder"] = f"arrays-{uuid.uuid4().hex[:8]}"
    with atomic_directory(folder) as temporary:
        inside = temporary / content["folder"] if "folder" in content else temporary
        every = itertools.chain(arrays.items(), further)
        content["arrays"] = {name: _write_array(inside, name, array) for name, array in every}
        # The description last: a bundle without it does not exist.
        write_json(temporary / "bundle.json", sealed(content))
    # folders of earlier bundles, which nothing refers to any more
    if isinstance(folder, StorePath):
        for earlier in subfolders(folder):
            if earlier.name != content["folder"]:
                remove_tree(earlier)


def _write_array(folder: Place, name: str, array: NDArray[Any]) -> dict[str, Any]:
    if not _NAME.fullmatch(name) or array.dtype.kind not in _NUMBERS:
        raise ValueError(f"{name!r}, {array.dtype}: a bundle holds arrays of numbers, named by letters and digits")
    array = little_endian(array)
    header, payload = _npy_parts(array)
    # No sync of its own: the folder is synced as a whole before it appears.
    write_bytes(folder / f"{name}.npy", header, payload.data, sync=False)
    return _describe(array, crc32c(header, payload))


def _npy_parts(array: NDArray[Any]) -> tuple[bytes, NDArray[np.uint8]]:
    header = io.BytesIO()
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(array))
    return header.getvalue(), array.reshape(-1).view(np.uint8)


def _describe(array: NDArray[Any], checksum: int | None) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.str, "crc32c": checksum}


def read_bundle(
    folder: Place, kind: str, within: Place | None = None, *, leave: str | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a bundle, and return its attributes and verified arrays; no link may lead out of `within`, or `folder`.

    Arrays whose names start with `leave` are left where they are. Raises FormatError if no bundle of this kind and
    version is there; CorruptDataError if an array is missing or does not match its description, or the description
    its checksum.
    """
    within = within or folder
    found = _read_description(folder, kind, within)
    names = {name for name in found.arrays if not (leave and name.startswith(leave))}
    return found.attributes, _read_described(found, folder, within, names)


def read_arrays(folder: Place, kind: str, names: set[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a bundle as `read_bundle` does, but only these arrays of it."""
    found = _read_description(folder, kind, folder)
    return found.attributes, _read_described(found, folder, folder, names)


def array_reader(folder: Place, kind: str) -> Callable[[set[str]], dict[str, NDArray[Any]]]:
    """Return what reads arrays of a bundle by their names, as `read_arrays` does; its description is read now, once."""
    found = _read_description(folder, kind, folder)
    return lambda names: _read_described(found, folder, folder, names)


def _read_described(found: _Description, folder: Place, within: Place, names: set[str]) -> dict[str, NDArray[Any]]:
    # A name from a file must not lead out of the bundle.
    if found.folder and not _FOLDER.fullmatch(found.folder):
        raise FormatError(f"{folder}: illegal folder of arrays {found.folder!r}")
    inside = folder / found.folder if found.folder else folder
    missing = names - found.arrays.keys()
    if missing:
        raise FormatError(f"{folder}: no array {min(missing)}")
    return {name: _read_array(inside, name, item, within) for name, item in found.arrays.items() if name in names}


def _read_description(folder: Place, kind: str, within: Place) -> _Description:
    try:
        content = read_json(folder / "bundle.json", dict[str, Any], within)
        whole = is_sealed(content)
        found = convert_json(content, _Description)
    except FormatError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        said = f"a data set, not a {kind}" if (folder / "zarr.json").exists() else f"no {kind} there"
        raise FormatError(f"{folder}: {said} (no bundle.json)") from None
    except PermissionError:
        raise FormatError(f"{folder}: permission denied") from None
    except ValueError as error:
        raise FormatError(f"{folder}: bundle.json is not a {kind} written by distls ({error})") from None
    if (found.kind, found.version) != (kind, _VERSION):
        raise FormatError(
            f"{folder}: a {found.kind} of version {found.version}, expected a {kind} of version {_VERSION}"
        )
    if not whole:
        raise CorruptDataError(f"{folder}/bundle.json: its content does not match its checksum")
    return found


def _read_array(folder: Place, name: str, described: dict[str, Any], within: Place) -> NDArray[Any]:
    if not _NAME.fullmatch(name):
        raise FormatError(f"{folder}: illegal array name {name!r}")
    path = folder / f"{name}.npy"
    try:
        content = read_array_file(path, within)
    except FileNotFoundError:
        raise CorruptDataError(f"{path}: missing") from None
    # the header is parsed only if the whole file matches its checksum
    checksum = crc32c(content) if content.size else None
    array = parse_npy(content) if checksum == described.get("crc32c") else None
    if array is None or _describe(array, checksum) != described:
        raise CorruptDataError(f"{path}: its bytes do not match bundle.json")
    return array


def parse_npy(content: NDArray[np.uint8]) -> NDArray[Any] | None:
    """Return the array in the bytes of an .npy file, sharing their memory; None unless it is one of numbers."""
    header = io.BytesIO(content[: npy.MAGIC_LEN + 2 + 2**16].tobytes())
    try:
        # One version only, whose header is bounded in size.
        if npy.read_magic(header) != (1, 0):
            return None
        with _ONE_PARSER:
            shape, fortran, dtype = npy.read_array_header_1_0(header)
    except (ValueError, SyntaxError, tokenize.TokenError):  # all three come from headers that are no literals
        return None
    payload = content[header.tell() :]
    fits = dtype.kind in _NUMBERS and math.prod(shape) * dtype.itemsize == len(payload)
    return payload.view(dtype).reshape(shape) if fits and not fortran else None


# -- arrays with their checksum behind them ----------------------------------------------------------------


def write_npy(path: Place, name: str, array: NDArray[Any]) -> None:
    """Write an array as an .npy file and its crc32c; with its `name`, so that it is not taken for another one."""
    # a C-ordered array is not copied
    header, payload = _npy_parts(np.ascontiguousarray(array))
    # Over the header too: a changed shape is damage like any other.
    checksum = crc32c(name.encode(), header, payload).to_bytes(_SUM_BYTES, "little")
    write_bytes(path, header, payload.data, checksum, sync=False)


def read_npy(path: Place, name: str, within: Place) -> NDArray[Any] | None:
    """Return a writable array that `write_npy` has written, None if its bytes do not match its checksum."""
    content = read_array_file(path, within)
    payload, checksum = content[:-_SUM_BYTES], content[-_SUM_BYTES:]
    # Checked before the header is parsed, which is Python text.
    sound = crc32c(name.encode(), payload).to_bytes(_SUM_BYTES, "little") == checksum.tobytes()
    return parse_npy(payload) if sound else None
