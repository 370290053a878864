"""Models and checkpoints on disk: named arrays as .npy files and one JSON file. Never pickle.

A bundle is a folder that appears under its name at once, whole. ``bundle.json`` lists every array with its
shape, dtype and crc32c; nothing else in the folder is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distls.storage.atomic import atomic_directory, read_json, write_json
from distls.storage.errors import CorruptDataError, FormatError

__all__ = ["read_bundle", "write_bundle"]

_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


def write_bundle(folder: Path, kind: str, attributes: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write `arrays` and `attributes` as the bundle `folder`, replacing it.

    Parameters
    ----------
    kind : str
        What it is, checked by the reader: "model" or "checkpoint".
    attributes : dict
        JSON values.
    arrays : dict of name -> array of numbers
    """
    with atomic_directory(folder) as temporary:
        described = {}
        for name, array in arrays.items():
            array = np.ascontiguousarray(array)
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
            described[name] = {
                "shape": list(array.shape),
                "dtype": array.dtype.str,
                "crc32c": google_crc32c.value(array.reshape(-1).view(np.uint8)) if array.size else 0,
            }
        content = {"kind": kind, "version": _VERSION, "attributes": attributes, "arrays": described}
        write_json(temporary / "bundle.json", content)


def read_bundle(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a bundle and verify every array.

    Returns
    -------
    attributes : dict
    arrays : dict of name -> array

    Raises
    ------
    FormatError
        No bundle of this kind and version is there.
    CorruptDataError
        An array is missing or does not match its description.
    """
    try:
        content = read_json(folder / "bundle.json")
        found, version = content["kind"], content["version"]
        described, attributes = dict(content["arrays"]), dict(content["attributes"])
    except FileNotFoundError:
        raise FormatError(f"{folder}: no {kind} there (no bundle.json)") from None
    except (KeyError, TypeError, ValueError):
        raise FormatError(f"{folder}: bundle.json is not a {kind} written by distls") from None
    if (found, version) != (kind, _VERSION):
        raise FormatError(f"{folder}: a {found} of version {version}, expected a {kind} of version {_VERSION}")
    return attributes, {name: _read_array(folder, name, item) for name, item in described.items()}


def _read_array(folder: Path, name: str, described: dict[str, Any]) -> NDArray[Any]:
    if not _NAME.fullmatch(name):
        raise FormatError(f"{folder}: illegal array name {name!r}")
    path = folder / f"{name}.npy"
    try:
        # the size on disk bounds what a lying header could make us allocate
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        sound = list(array.shape) == described["shape"] and array.dtype.str == described["dtype"]
        array = np.array(array) if sound else array
        sound = sound and (not array.size or google_crc32c.value(array.reshape(-1).view(np.uint8)) == described["crc32c"])
    except FileNotFoundError:
        raise CorruptDataError(f"{path}: missing") from None
    except (ValueError, KeyError, TypeError, EOFError):
        sound = False
    if not sound:
        raise CorruptDataError(f"{path}: its bytes do not match bundle.json")
    return array
