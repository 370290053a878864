"""The options of an ingest, checked before any source is opened."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distls.storage.errors import ParameterError
from distls.workers.transforms import parse_transforms

__all__ = ["FORMATS", "IngestOptions"]

FORMATS = ("auto", "svmlight", "npz", "npy", "idx")


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

    def __post_init__(self) -> None:
        choices = {
            "format": FORMATS,
            "zero_based": ("auto", "yes", "no"),
            "target": ("auto", "class", "continuous"),
            "compress": ("auto", "none", "zstd", "lz4"),
            "dtype": ("float32", "float64"),
            "on_error": ("stop", "skip"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ParameterError(
                    f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
                )
        if self.partition_size < 1:
            raise ParameterError(f"partition_size must be positive, not {self.partition_size}")
        if self.n_features is not None and not 1 <= self.n_features <= 2**32:
            raise ParameterError(f"n_features must be from 1 to {2**32}, not {self.n_features}")
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
                "like takes the transforms of a data set; give no others",
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
        like: str | Path | None,
        labels: str | Path | None,
        split: Any,
        partition_size: int,
        **others: Any,
    ) -> IngestOptions:
        """Build options from what users may write: ``"name=fraction"``, paths, booleans."""
        return cls(
            zero_based={True: "yes", False: "no"}[zero_based] if isinstance(zero_based, bool) else zero_based,
            transform=parse_transforms(transform),
            like=None if like is None else str(Path(like).absolute()),
            labels=None if labels is None else str(Path(labels).absolute()),
            split=_parse_splits(split),
            partition_size=int(partition_size),
            **others,
        )


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
