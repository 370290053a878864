"""Feature names as arrays of ``features/``: the UTF-8 bytes of all, and where each ends. No pickle, no string type."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import CorruptDataError

NAME_ARRAYS = ("name_bytes", "name_ends")


def target_names(source: Mapping[str, Any], n_outputs: int) -> list[str]:
    """Return the columns of several targets, by the `source` of data or of a model; empty without names."""
    names = source.get("recipe", {}).get("labels") or []
    return [str(name) for name in names] if len(names) == n_outputs > 1 else []


def prediction_names(source: Mapping[str, Any], n_outputs: int, prefix: str = "") -> list[str]:
    """Return the names of the numbers that a model predicts: of its targets, or ``prediction``, ``prediction_2``, ...

    Behind a `prefix` names that are numbers would be taken for places.
    """
    numbered = ["prediction", *(f"prediction_{place}" for place in range(2, n_outputs + 1))]
    names = target_names(source, n_outputs)
    if prefix and any(name.isdecimal() for name in names):
        return numbered
    return [prefix + name for name in names] or numbered


def pack_names(names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return names as ``name_bytes``, uint8 of shape (n_bytes,), and ``name_ends``, int64 of shape (n_names,)."""
    # name k is name_bytes[name_ends[k - 1]:name_ends[k]]; the first starts at 0
    encoded = [name.encode() for name in names]
    return {
        # Lengths of bytes, not of characters.
        "name_bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "name_ends": np.cumsum([len(name) for name in encoded], dtype=np.int64),
    }


def unpack_names(arrays: Mapping[str, NDArray[Any]], where: str) -> list[str] | None:
    """Return the names among the arrays of ``features/``, None if there are none, or raise CorruptDataError."""
    if "name_ends" not in arrays:
        return None
    try:
        joined, ends = arrays["name_bytes"].tobytes(), arrays["name_ends"].ravel().tolist()
        # decreasing ends would make long names of few bytes
        if any(end < start for start, end in zip([0, *ends], ends, strict=False)):
            raise ValueError("their ends decrease")
        return [joined[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where}: the names of the features cannot be read ({error})") from None
