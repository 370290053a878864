"""Options of an ingest shared by all formats, checked before any source is opened."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from distls.request import plain
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.workers.ingestion.transforms import parse_transforms


@dataclass(frozen=True)
class IngestOptions:
    """Options of an ingest except those of its format; see `distls.ingest`."""

    format: str = "auto"
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
    unknown_features: str = "error"
    row_numbers: bool = True

    def __post_init__(self) -> None:
        choices = {
            "target": ("auto", "class", "continuous"),
            "compress": ("auto", "none", "zstd", "lz4"),
            "dtype": ("float32", "float64"),
            "on_error": ("stop", "skip"),
            "unknown_features": ("error", "ignore"),
        }
        for name, allowed in choices.items():
            if (value := vars(self)[name]) not in allowed:
                other = "; --label-column names the column of labels" if name == "target" else ""
                raise ParameterError(f"{name} must be one of {', '.join(allowed)}, not {value!r}{other}")
        if self.partition_size < 1:
            raise ParameterError(f"partition_size must be positive, not {self.partition_size}")
        if self.n_features is not None and not 1 <= self.n_features <= 2**32:
            raise ParameterError(f"n_features must be from 1 to {2**32}, not {self.n_features}")
        if self.seed < 0:
            raise ParameterError(f"seed must not be negative, {self.seed} was given")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.unknown_features == "ignore" and self.like is None:
            raise ParameterError("unknown_features are those that the data of like do not have; it needs like")
        if self.unlabelled and self.multilabel:
            raise ParameterError("unlabelled and multilabel exclude each other")
        if self.target != "auto" and self.unlabelled:
            raise ParameterError(f"unlabelled rows have no target; {self.target!r} was given")
        if self.target != "auto" and self.multilabel:
            remedy = f"{self.target!r} was given"
            raise ParameterError(f"multilabel rows have a target of their own kind; {remedy}")
        if self.like and self.transform:
            raise ParameterError("like takes min_count and transforms of other data; give none")
        if self.split and not sum(fraction for _, fraction in self.split) < 1:
            raise ParameterError("the fractions of all splits must add up to less than 1")
        if len({name for name, _ in self.split}) < len(self.split):
            raise ParameterError("two splits have the same name")

    @property
    def float64(self) -> bool:
        """Whether values are stored with 64 bits."""
        return self.dtype == "float64"

    @classmethod
    def checked(
        cls, *, transform: Any, min_count: int | None, like: str | Place | None, split: Any, **others: Any
    ) -> IngestOptions:
        """Build options from their spellings: ``"name=fraction"``, paths, booleans."""
        if min_count is not None and min_count < 1:
            raise ParameterError(f"min_count must be at least 1, not {min_count}")
        # it comes before all transforms
        rare = ({"name": "min_count", "count": int(min_count)},) if min_count is not None else ()
        return cls(
            transform=(*rare, *parse_transforms(transform)),
            like=None if like is None else str(place_of(like).absolute()),
            split=_parse_splits(split),
            partition_size=int(others.pop("partition_size")),
            **{name: plain(value) for name, value in others.items()},
        )


OPTIONS = (*(entry.name for entry in fields(IngestOptions)), "min_count")  # as `ingest` is given them


def _parse_splits(split: Any) -> tuple[tuple[str, float], ...]:
    given = split.items() if isinstance(split, Mapping) else split
    return tuple(map(_parse_split, [split] if isinstance(split, (str, float)) else given))


def _parse_split(entry: Any) -> tuple[str, float]:
    if isinstance(entry, str):
        name, _, value = entry.partition("=")
    else:
        is_pair = isinstance(entry, (tuple, list)) and len(entry) == 2
        name, value = entry if is_pair else (entry, "")
    try:
        fraction = float(value)
    except ValueError:
        fraction = math.nan
    if not re.fullmatch(r"[A-Za-z0-9_.]+", str(name)) or not 0 < fraction < 1:
        raise ParameterError(f"a split is NAME=FRACTION with a fraction between 0 and 1, not {entry!r}")
    return str(name), fraction
