"""What an ingest of Vowpal Wabbit text will do: take names as column numbers or hash them, and to how many columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distls.ingestion.like import Like
from distls.ingestion.options import IngestOptions
from distls.storage.errors import MismatchError, ParameterError
from distls.workers.ingestion.formats.vw import VwOptions, only_namespace

__all__ = ["looks_like_vw", "vw_notice", "vw_options", "vw_recipe"]

# Vowpal Wabbit's own default
_DEFAULT_BITS = 18


def looks_like_vw(start: bytes) -> bool:
    """Tell whether the first line with content has a bar."""
    return b"|" in next(filter(None, map(bytes.strip, start.split(b"\n"))), b"")


def vw_options(
    start: bytes, path: str, options: IngestOptions, like: Like | None, common: Mapping[str, Any]
) -> VwOptions:
    """Decide how names become columns, from the options, from `like`, or else from the start of the first file.

    Parameters
    ----------
    start : bytes
        Of the first file.
    path : str
        Its name, for errors.
    common : mapping
        Fields of TextOptions.

    Raises
    ------
    ParameterError
        An option is for another format, or `n_features` does not go with hashing.
    MismatchError
        Names do not become the columns of `like`.
    """
    if options.zero_based != "auto":
        raise ParameterError("zero_based is for svmlight text; columns of Vowpal Wabbit text count from 0")
    read = VwOptions(**_columns(start, path, options, like), **common)
    if read.hash_bits is not None and options.n_features not in (None, 2**read.hash_bits):
        raise ParameterError(
            f"n_features={options.n_features}, but names are hashed to 2**{read.hash_bits} = {2**read.hash_bits} "
            "columns; choose their number with hash_bits"
        )
    return read


def _columns(start: bytes, path: str, options: IngestOptions, like: Like | None) -> dict[str, Any]:
    """Return the fields of VwOptions that say how names become columns."""
    recipe = like.meta.source.get("recipe", {}) if like is not None else {}
    if like is not None and like.meta.source.get("format") == "vw":
        if options.hash_bits not in (None, recipe["hash_bits"]):
            raise MismatchError(f"hash_bits={options.hash_bits}, but {like.path} has {_described(recipe)}")
        return {**recipe, "namespace": recipe["namespace"].encode("utf-8", "surrogateescape")}
    if options.hash_bits is not None:
        return {"hash_bits": options.hash_bits}
    namespace = only_namespace(start)
    if namespace is not None:
        return {"namespace": namespace}
    if like is not None:
        raise MismatchError(
            f"{path}: names that are no column numbers, but {like.path} is of numbered columns"
        )
    return {"hash_bits": _DEFAULT_BITS}


def _described(recipe: Mapping[str, Any]) -> str:
    bits = recipe["hash_bits"]
    return "column numbers as names" if bits is None else f"hash_bits={bits}"


def vw_recipe(read: VwOptions) -> dict[str, Any]:
    """Return what a later ``like`` takes over."""
    namespace = read.namespace.decode("utf-8", "surrogateescape")
    return {"hash_bits": read.hash_bits, "namespace": namespace}


def vw_notice(read: VwOptions, options: IngestOptions) -> tuple[str, ...]:
    """Say what was decided about names where the user did not."""
    if options.hash_bits is not None or options.like is not None:
        return ()
    if read.hash_bits is None:
        return ("the names of features are numbers of columns; --hash-bits 18 hashes them as vw does",)
    return (f"the names of features are hashed to 2**{read.hash_bits} columns; --hash-bits chooses how many",)
