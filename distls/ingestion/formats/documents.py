"""Raw text format: hashing, and the JSON fields of document, label and weight."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import LabelColumn, OptionInfo, option
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options, text_plan
from distls.ingestion.request.source_start import start_of
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats.documents import (
    DOCUMENT_READER,
    MAX_COLUMNS,
    DocumentReadOptions,
    Hashing,
)
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.records.row_block import ArrayHeader

__all__ = ["DocumentFormat", "DocumentOptions", "known_hashing"]

_JSON_NAMES = (".jsonl", ".ndjson")
# Field names tried, in this order.
_TEXT_NAMES = ("text", "document", "sentence", "content", "body")
_LABEL_NAMES = ("label", "class", "category", "intent", "target", "y")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HASHING = ("ngrams", "analyzer", "lowercase", "alternate_sign", "binary")
_COLUMNS = ("text_column", "label_column", "weight_column")
_REFUSES = {
    "labels": "labels is for array sources; raw text has its own",
    "zero_based": "zero_based is for svmlight text; the columns of hashed text have no numbers",
}


def _ngram_range(given: str | int | Sequence[int]) -> tuple[int, int]:
    """Turn ``"1,2"``, ``(1, 2)`` or ``2`` (as ``(2, 2)``) into shortest and longest."""
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else given
    try:
        shortest, longest = int(parts[0]), int(parts[-1])
    except (IndexError, TypeError, ValueError):
        shortest = longest = 0
    if not 1 <= shortest <= longest or len(parts) > 2:
        raise ParameterError(f"ngrams are the shortest and the longest, as in 1,2; {given!r} was given")
    return shortest, longest


@dataclass(frozen=True)
class DocumentOptions(LabelColumn):
    """Options of raw text, which is hashed as scikit-learn's HashingVectorizer does it, without a norm.

    Attributes
    ----------
    text_column, label_column, weight_column : str, optional
        Fields of JSON lines. By default the document is the first of ``text``, ``document``, ``sentence``,
        ``content``, ``body`` that the first record has, its label the first of ``label``, ``class``, ``category``,
        ``intent``, ``target``, ``y``; there is no weight.
    ngrams : (int, int) or str, optional
        Shortest and longest run of words or characters. Default: (1, 1).
    analyzer : {"word", "char", "char_wb"}, optional
        What is counted. Default: "word".
    lowercase : bool, optional
        Default: true.
    alternate_sign : bool, optional
        Alternate the sign of hashed features. Default: false, as log1p and idf need counts.
    binary : bool, optional
        Ones instead of counts. Default: false.
    """

    text_column: str | None = option(None, OptionInfo("Of JSON lines; default text, document, ...", "FIELD"))
    ngrams: str | Sequence[int] | None = option(
        None,
        OptionInfo("Raw text: runs of words or characters; default 1,1.", "MIN,MAX", parse=_ngram_range),
    )
    analyzer: str | None = option(
        None, OptionInfo("Raw text; default word.", choices=("word", "char", "char_wb"))
    )
    lowercase: bool | None = option(
        None, OptionInfo("Raw text; default yes.", flag="--lowercase/--no-lowercase")
    )
    alternate_sign: bool | None = option(
        None, OptionInfo("Half of the columns count downwards.", flag="--alternate-sign")
    )
    binary: bool | None = option(None, OptionInfo("Raw text: ones instead of counts.", flag="--binary"))


class DocumentFormat(Format[DocumentOptions]):
    """One document a line: ``LABEL<TAB>DOCUMENT``, a document alone, or a JSON object."""

    name = "text"
    options = DocumentOptions
    # asked first: data like hashed text are hashed text, whatever they look like
    rank = 0
    refuses = _REFUSES

    def recognises(self, start: SourceStart) -> bool:
        """Return whether `like` is hashed text, or the file is JSON by its name or its first character."""
        hashed = start.like is not None and _is_hashed_text(start.like)
        return hashed or start.name.endswith(_JSON_NAMES) or _looks_like_json_lines(start.content)

    def plan(
        self, files: Sequence[SourceFile], read: DocumentOptions, options: IngestOptions, like: Like | None
    ) -> SourcePlan:
        """Choose fields and hashing, which must be the hashing of `like`."""
        path = files[0].path
        if like is not None and not _is_hashed_text(like):
            kind = like.meta.source.get("format", "other")
            raise MismatchError(f"{path} is raw text, but {like.path} has features of {kind} sources")
        known = description_of(like)
        columns = _columns(start_of(files[0]), path, read, options.unlabelled, known)
        hashing = _hashing(read, options.n_features, known, like)
        reading = DocumentReadOptions(hashing=hashing, **columns, **shared_options(options))
        return text_plan(
            self.name,
            DOCUMENT_READER,
            files,
            reading,
            headers=(ArrayHeader(-1, hashing.n_features, sparse=True),),
            weighted=bool(reading.weight_column),
            description={**asdict(hashing), "ngrams": list(hashing.ngrams), **columns},
        )


def _looks_like_json_lines(start: bytes) -> bool:
    return start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _is_hashed_text(like: Like) -> bool:
    """Return whether the columns of `like` are hashes of raw text."""
    return like.meta.source.get("format") == "text"


def _hashing(
    read: DocumentOptions, n_features: int | None, description: Mapping[str, Any], like: Like | None
) -> Hashing:
    """Return the requested hashing, which must be that of `like`."""
    given: dict[str, Any] = {name: value for name, value in read.given().items() if name in _HASHING}
    if n_features is not None:
        given["n_features"] = n_features
    if like is None:
        hashing = Hashing(**given)
    else:
        hashing = known_hashing(description)
        for name, value in given.items():
            if value != getattr(hashing, name):
                raise MismatchError(f"{name}={value}, but {like.path} has {name}={getattr(hashing, name)}")
    if hashing.n_features > MAX_COLUMNS:
        raise ParameterError(
            f"n_features={hashing.n_features}: text is hashed into {MAX_COLUMNS} columns at most"
        )
    return hashing


def known_hashing(description: Mapping[str, Any]) -> Hashing:
    """Return the hashing of a recorded description of raw text."""
    known = {name: description[name] for name in (*_HASHING, "n_features")}
    return Hashing(**{**known, "ngrams": tuple(known["ngrams"])})


def _columns(
    start: bytes, path: str, read: DocumentOptions, unlabelled: bool, description: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the field names, all empty for plain text."""
    asked = {name: read.given().get(name) for name in _COLUMNS}
    if not _looks_like_json_lines(start):
        given = next((name for name, value in asked.items() if value is not None), None)
        if given:
            raise ParameterError(
                f"{given} is for JSON lines; the lines of {path} are LABEL<TAB>DOCUMENT, or documents with unlabelled"
            )
        return dict.fromkeys(_COLUMNS, "")
    record = _first_record(start)
    # a field of `like` is taken over only if it is a field here too
    known = {name: description.get(name, "") for name in asked}
    names = {name: value or (known[name] if known[name] in record else "") for name, value in asked.items()}
    # label and text are required, a weight is not
    if unlabelled:
        names["label_column"] = ""
    else:
        names["label_column"] = names["label_column"] or _found(record, path, "label", _LABEL_NAMES)
    names["text_column"] = names["text_column"] or _found(record, path, "text", _TEXT_NAMES)
    return names


def _first_record(start: bytes) -> dict[str, Any]:
    try:
        record = json.loads(start.removeprefix(_BYTE_ORDER_MARK).lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _found(record: dict[str, Any], path: str, what: str, names: tuple[str, ...]) -> str:
    """Return the first of `names` that is a field of the first record."""
    found = next((name for name in names if name in record), None)
    if found is None:
        fields = ", ".join(f'"{name}"' for name in list(record)[:10]) or "none that can be read"
        remedy = " or --unlabelled" if what == "label" else ""
        raise BadInputError(
            f"{path}: no field named {', '.join(names)}; the first record has {fields}: "
            f"name one with --{what}-column{remedy}"
        )
    return found
