"""Parsers of the names of losses and penalties, including those registered from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["link", "loss_with", "penalty_with"]


def loss_with(aliases: dict[str, str], **capabilities: Any) -> Callable[[Any], str]:
    """Return a parser of the full or short name of a loss; capabilities as in `losses_with`."""

    def parse(value: Any) -> str:
        # imported here: the registry loads numba, which `distls --help` must not wait for
        from distls.workers.losses.loss_registry import losses_with

        return _chosen(value, losses_with(**capabilities), aliases)

    return parse


def link(value: Any) -> str:
    """Parse the name of a link of `gls`."""
    from distls.workers.losses.loss_registry import link_names

    return _chosen(value, ("identity", "logit", "softmax", *link_names()), {})


def penalty_with(**capabilities: Any) -> Callable[[Any], str]:
    """Return a parser of the name of a penalty; capabilities as in `penalties_with`."""

    def parse(value: Any) -> str:
        from distls.workers.penalties.penalty_registry import penalties_with

        return _chosen(value, penalties_with(**capabilities), {})

    return parse


def _chosen(value: Any, names: tuple[str, ...], aliases: dict[str, str]) -> str:
    text = aliases.get(str(value), str(value))
    if text not in names:
        raise ValueError(f"expected one of {', '.join([*names, *aliases])}")
    return text
