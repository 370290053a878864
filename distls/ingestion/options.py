"""The options of an ingest, checked before any source is opened."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.workers.ingestion.formats.table_columns import is_number
from distls.workers.ingestion.transforms import parse_transforms

__all__ = ["FORMATS", "IngestOptions"]

FORMATS = ("auto", "svmlight", "vw", "text", "csv", "parquet", "anndata", "npz", "npy", "idx")


@dataclass(frozen=True)
class IngestOptions:
    """The options of an ingest, checked; see `distls.ingest`."""

    format: str = "auto"
    labels: str | None = None
    zero_based: str = "auto"
    n_features: int | None = None
    multilabel: bool = False
    unlabelled: bool = False
    target: str = "auto"
    transform: tuple[dict[str, Any], ...] = ()
    like: str | None = None
    split: tuple[tuple[str, float], ...] = ()
    partition_size: int = 16 * 2**20
    compress: str = "auto"
    dtype: str = "float32"
    shuffle: bool = True
    seed: int = 0
    on_error: str = "stop"
    hash_bits: int | None = None
    label_column: str | int | None = None
    text_column: str | None = None
    weight_column: str | int | None = None
    ignore_columns: tuple[str | int, ...] = ()
    categorical: tuple[str | int, ...] = ()
    na: str | None = None
    separator: str | None = None
    header: str | None = None
    list_columns: tuple[str, str] | None = None
    ngrams: tuple[int, int] | None = None
    analyzer: str | None = None
    lowercase: bool | None = None
    alternate_sign: bool | None = None
    binary: bool | None = None

    def __post_init__(self) -> None:
        choices = {
            "format": FORMATS,
            "zero_based": ("auto", "yes", "no"),
            "target": ("auto", "class", "continuous"),
            "compress": ("auto", "none", "zstd", "lz4"),
            "dtype": ("float32", "float64"),
            "on_error": ("stop", "skip"),
            "analyzer": (None, "word", "char", "char_wb"),
            "header": (None, "yes", "no"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ParameterError(
                    f"{name} must be one of {', '.join(filter(None, allowed))}, not {getattr(self, name)!r}"
                )
        if self.partition_size < 1:
            raise ParameterError(f"partition_size must be positive, not {self.partition_size}")
        if self.n_features is not None and not 1 <= self.n_features <= 2**32:
            raise ParameterError(f"n_features must be from 1 to {2**32}, not {self.n_features}")
        if self.hash_bits is not None and not 1 <= self.hash_bits <= 31:
            raise ParameterError(f"hash_bits must be from 1 to 31, not {self.hash_bits}")
        if self.seed < 0:
            raise ParameterError(f"seed must not be negative, {self.seed} was given")
        self._check_combinations()

    def _check_combinations(self) -> None:
        exclusive = [
            (self.unlabelled and self.multilabel, "unlabelled and multilabel exclude each other"),
            (self.unlabelled and self.labels is not None, "unlabelled and labels exclude each other"),
            (
                self.unlabelled and self.target != "auto",
                f"unlabelled rows have no target; {self.target!r} was given",
            ),
            (
                self.multilabel and self.target != "auto",
                f"multilabel rows have a target of their own kind; {self.target!r} was given",
            ),
            (
                bool(self.like) and bool(self.transform),
                "like takes min_count and transforms of other data; give none",
            ),
            (
                self.split and not sum(fraction for _, fraction in self.split) < 1,
                "the fractions of all splits must add up to less than 1",
            ),
            (
                len({name for name, _ in self.split}) < len(self.split),
                "two splits have the same name",
            ),
        ]
        for wrong, message in exclusive:
            if wrong:
                raise ParameterError(message)

    @property
    def float64(self) -> bool:
        """Whether values are stored with 64 bits."""
        return self.dtype == "float64"

    @classmethod
    def checked(
        cls,
        *,
        zero_based: str | bool,
        transform: str | Sequence[str],
        min_count: int | None,
        like: str | Place | None,
        labels: str | Path | None,
        split: Any,
        partition_size: int,
        ngrams: Any = None,
        ignore_columns: Any = (),
        categorical: Any = (),
        na: Any = None,
        header: str | bool | None = None,
        list_columns: Any = None,
        **others: Any,
    ) -> IngestOptions:
        """Build options from what users may write: ``"name=fraction"``, paths, booleans."""
        return cls(
            zero_based={True: "yes", False: "no"}[zero_based] if isinstance(zero_based, bool) else zero_based,
            transform=(*_parse_min_count(min_count), *parse_transforms(transform)),
            like=None if like is None else str(place_of(like).absolute()),
            labels=None if labels is None else str(Path(labels).absolute()),
            split=_parse_splits(split),
            partition_size=int(partition_size),
            ngrams=None if ngrams is None else _parse_ngrams(ngrams),
            ignore_columns=_parse_columns(ignore_columns),
            categorical=_parse_columns(categorical),
            na=None if na is None else _parse_na(na),
            header={True: "yes", False: "no"}[header] if isinstance(header, bool) else header,
            list_columns=None if list_columns is None else _parse_pair(list_columns),
            **others,
        )


def _parse_ngrams(ngrams: Any) -> tuple[int, int]:
    """Turn ``"1,2"``, ``(1, 2)`` or ``2`` (as ``(2, 2)``) into shortest and longest."""
    parts = ngrams.split(",") if isinstance(ngrams, str) else [ngrams] if isinstance(ngrams, int) else ngrams
    try:
        shortest, longest = int(parts[0]), int(parts[-1])
    except (IndexError, TypeError, ValueError):
        shortest = longest = 0
    if not 1 <= shortest <= longest or len(parts) > 2:
        raise ParameterError(f"ngrams are the shortest and the longest, as in 1,2; {ngrams!r} was given")
    return shortest, longest


def _parse_min_count(min_count: int | None) -> tuple[dict[str, Any], ...]:
    """Return the step that drops features of few rows: it comes before all transforms."""
    if min_count is None:
        return ()
    if min_count < 1:
        raise ParameterError(f"min_count must be at least 1, not {min_count}")
    return ({"name": "min_count", "count": int(min_count)},)


def _parse_columns(given: Any) -> tuple[str | int, ...]:
    """Turn ``"id,name"``, written as a line of CSV, or a sequence into names and positions of columns."""
    if isinstance(given, str):
        return tuple(name.strip() for name in next(csv.reader([given], skipinitialspace=True), []))
    return (given,) if isinstance(given, int) else tuple(given)


def _parse_pair(given: Any) -> tuple[str, str]:
    names = _parse_columns(given)
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ParameterError(f"list_columns are two names, of indices and of values, not {given!r}")
    return str(names[0]), str(names[1])


def _parse_na(given: Any) -> str:
    text = str(given).strip()
    if not is_number(text):
        raise ParameterError(f"na must be the number that missing values stand for, not {given!r}")
    return text


def _parse_splits(split: Any) -> tuple[tuple[str, float], ...]:
    given = [split] if isinstance(split, str) else split.items() if isinstance(split, Mapping) else split
    return tuple(_parse_split(entry) for entry in given)


def _parse_split(entry: Any) -> tuple[str, float]:
    name, value = (
        entry.split("=", 1)
        if isinstance(entry, str) and "=" in entry
        else entry
        if _is_pair(entry)
        else (
            entry,
            "",
        )
    )
    try:
        fraction = float(value)
    except ValueError:
        fraction = math.nan
    if not re.fullmatch(r"[A-Za-z0-9_.]+", str(name)) or not 0 < fraction < 1:
        raise ParameterError(f"a split is NAME=FRACTION with a fraction between 0 and 1, not {entry!r}")
    return str(name), fraction


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, (tuple, list)) and len(entry) == 2
