"""Merging tables of what processes have spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["merge_by_key"]

N = TypeVar("N", int, float)


def merge_by_key(how: Callable[[list[N]], N], *tables: dict[str, N]) -> dict[str, N]:
    """Merge tables into one: under each key, `how` of the values that the tables have there."""
    keys = set().union(*tables)
    return {key: how([table[key] for table in tables if key in table]) for key in sorted(keys)}
