"""Parsers of the names of losses, penalties and basis functions, including those registered from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["basis", "link", "loss_with", "penalty_with"]


# Predictions may leave [0, 1] before they are calibrated; their higher powers show little else.
_MOST_POWERS = 12


def basis(value: Any) -> str:
    """Parse a number of powers, or a list of powers and functions such as 1+2+log; return the list in that form."""
    listed = value if isinstance(value, (list, tuple)) else str(value).split("+")
    terms = [str(term) for term in listed]
    names = _known_functions([term for term in terms if term[:1].isalpha()])
    try:
        powers = [int(term) for term in terms if term not in names]
    except ValueError:
        raise ValueError("expected a number of powers, or powers such as 1+2+3") from None
    if len(terms) == 1 and powers and not isinstance(value, (list, tuple)):
        # cut off just above the limit: a billion would fill the memory before it is refused
        powers = list(range(1, min(powers[0], _MOST_POWERS + 1) + 1))
    if not powers or powers != sorted(set(powers)) or powers[0] != 1 or powers[-1] > _MOST_POWERS:
        raise ValueError(f"expected increasing powers from 1 to at most {_MOST_POWERS}, 1 among them")
    return "+".join([*map(str, powers), *names])


def _known_functions(names: list[str]) -> list[str]:
    if not names:
        return names
    from distls.workers.prediction.basis_functions import basis_function_names

    known = basis_function_names()
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise ValueError(f"expected powers such as 1+2+3, and functions of {', '.join(known)}, each once")
    return names


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
