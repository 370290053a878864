"""Objects that wrap an array: of xarray, and AnnData."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from distls.storage.errors import BadInputError

__all__ = ["unwrapped"]

_EXPECTED = "expected an array, a sparse matrix, a DataFrame or a dask array of numbers"


def unwrapped(name: str, value: Any) -> Any:
    """Return the array in an xarray DataArray or an AnnData object, any other value as it is.

    Raises BadInputError if the value, which messages call `name`, holds several arrays or is nothing like an array.
    """
    kind, home = type(value).__name__, type(value).__module__.partition(".")[0]
    if home == "xarray":
        if kind != "DataArray":
            raise BadInputError(
                f"{name}: an xarray {kind} of several arrays; give one of them, as in {name}['name']"
            )
        return value.data
    if home == "anndata":
        if getattr(value, "X", None) is None:
            raise BadInputError(
                f"{name}: an AnnData object without X; give a layer, as in {name}.layers['raw']"
            )
        return value.X
    if value is None or isinstance(value, (Mapping, Set, Iterator, bytes)):
        raise BadInputError(f"{name}: {_EXPECTED}, not {'None' if value is None else f'a {kind}'}")
    return value
