"""What an ingest of raw text will do: the hashing recipe, and which fields hold document, label and weight."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from distls.ingestion.like import Like
from distls.ingestion.options import IngestOptions
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats.documents import MAX_COLUMNS, DocumentOptions, Hashing

__all__ = ["document_options", "document_recipe", "is_hashed_text", "looks_like_json_lines"]

# Names of fields to look for, in this order.
_TEXT_NAMES = ("text", "document", "sentence", "content", "body")
_LABEL_NAMES = ("label", "class", "category", "intent", "target", "y")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HASHING = ("ngrams", "analyzer", "lowercase", "alternate_sign", "binary")
_COLUMNS = ("text_column", "label_column", "weight_column")


def looks_like_json_lines(start: bytes) -> bool:
    """Tell whether text begins with a JSON object."""
    return start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{")


def document_options(
    start: bytes, path: str, options: IngestOptions, like: Like | None, common: Mapping[str, Any]
) -> DocumentOptions:
    """Decide how documents are read and hashed.

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
    BadInputError
        The first record has no field that looks like a document or a label.
    ParameterError
        An option is for another kind of text.
    MismatchError
        The hashing is not that of `like`.
    """
    recipe: dict[str, Any] = {}
    if like is not None:
        if not is_hashed_text(like):
            kind = like.meta.source.get("format", "other")
            raise MismatchError(f"{path} is raw text, but {like.path} has features of {kind} sources")
        recipe = like.meta.source["recipe"]
    columns = _columns(start, path, options, recipe)
    return DocumentOptions(hashing=_hashing(options, recipe, like), **columns, **common)


def is_hashed_text(like: Like) -> bool:
    """Tell whether the columns of `like` are hashes of raw text."""
    return like.meta.source.get("format") == "text"


def document_recipe(read: DocumentOptions) -> dict[str, Any]:
    """Return what a later ``like`` takes over."""
    columns = {name: getattr(read, name) for name in _COLUMNS}
    return {**asdict(read.hashing), "ngrams": list(read.hashing.ngrams), **columns}


def _hashing(options: IngestOptions, recipe: Mapping[str, Any], like: Like | None) -> Hashing:
    """Return the hashing that was asked for, which must be that of `like`."""
    given = {name: getattr(options, name) for name in _HASHING if getattr(options, name) is not None}
    if options.n_features is not None:
        given["n_features"] = options.n_features
    if like is None:
        hashing = Hashing(**given)
    else:
        known = {name: recipe[name] for name in (*_HASHING, "n_features")}
        hashing = Hashing(**{**known, "ngrams": tuple(known["ngrams"])})
        for name, value in given.items():
            if value != getattr(hashing, name):
                raise MismatchError(f"{name}={value}, but {like.path} has {name}={getattr(hashing, name)}")
    if hashing.n_features > MAX_COLUMNS:
        raise ParameterError(
            f"n_features={hashing.n_features}: text is hashed into {MAX_COLUMNS} columns at most"
        )
    return hashing


def _columns(start: bytes, path: str, options: IngestOptions, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of the fields, all empty for plain text."""
    asked = {name: getattr(options, name) for name in _COLUMNS}
    if not looks_like_json_lines(start):
        given = next((name for name, value in asked.items() if value is not None), None)
        if given:
            raise ParameterError(
                f"{given} is for JSON lines; the lines of {path} are LABEL<TAB>DOCUMENT, or documents with unlabelled"
            )
        return dict.fromkeys(_COLUMNS, "")
    record = _first_record(start)
    names = {name: value or _known(record, recipe.get(name, "")) for name, value in asked.items()}
    if options.unlabelled:
        names["label_column"] = ""
    else:
        names["label_column"] = names["label_column"] or _found(record, path, "label", _LABEL_NAMES)
    names["text_column"] = names["text_column"] or _found(record, path, "text", _TEXT_NAMES)
    return names


def _first_record(start: bytes) -> dict[str, Any]:
    try:
        record = json.loads(start.removeprefix(_BYTE_ORDER_MARK).lstrip().split(b"\n", 1)[0])
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _known(record: dict[str, Any], name: str) -> str:
    """Return the name that a field has in other data of the kind, if it is one here too."""
    return name if name in record else ""


def _found(record: dict[str, Any], path: str, what: str, names: tuple[str, ...]) -> str:
    """Return the first of `names` that the first record has a field of."""
    found = next((name for name in names if name in record), None)
    if found is None:
        fields = ", ".join(f'"{name}"' for name in list(record)[:10]) or "none that can be read"
        remedy = " or --unlabelled" if what == "label" else ""
        raise BadInputError(
            f"{path}: no field named {', '.join(names)}; the first record has {fields}: "
            f"name one with --{what}-column{remedy}"
        )
    return found
