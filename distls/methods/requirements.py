"""What methods require of the losses and penalties that they train with; the registries answer."""

import importlib
from dataclasses import dataclass
from typing import Any

# The registries are named, not imported, where methods are declared: they load numba, for which `distls --help` must
# not wait.
_REGISTRIES = {
    "losses": "distls.workers.losses.loss_registry",
    "penalties": "distls.workers.penalties.penalty_registry",
}


@dataclass(frozen=True, eq=False)
class Requirement:
    """Which losses, or penalties, a method can train with: the parser of the parameter that chooses one of them."""

    kind: str  # "losses" or "penalties"
    only: tuple[str, ...]  # names, where the method is defined with these alone
    required: dict[str, Any]  # arguments of `losses_with` or `penalties_with`
    separable_first: bool = False  # losses that are sums over the outputs are before the others

    def names(self) -> tuple[str, ...]:
        """Return the names of those that have what is required, also of registered ones."""
        names: tuple[str, ...] = self.only or self._ask(f"{self.kind}_with", **self.required)
        if self.separable_first:
            separable = self._ask("losses_with", separable=True)
            names = tuple(sorted(names, key=lambda name: name not in separable))
        return names

    def short_names(self) -> dict[str, str]:
        """Return the short names, each with the first of the names that has it."""
        return dict(self._ask("short_names", self.names())) if self.kind == "losses" else {}

    def __call__(self, value: Any) -> str:
        """Return the full name; raise ValueError with what a refused one lacks, and those that are suitable."""
        names, short = self.names(), self.short_names()
        text = short.get(str(value), str(value))
        if text in names:
            return text
        lacks = "" if self.only else self._ask("lacks", text, **self.required)
        raise ValueError(f"{lacks and f'{lacks}; '}expected one of {', '.join([*names, *short])}")

    def _ask(self, question: str, *args: Any, **required: Any) -> Any:
        return getattr(importlib.import_module(_REGISTRIES[self.kind]), question)(*args, **required)


def loss_with(*only: str, separable_first: bool = False, **required: Any) -> Requirement:
    """Return the requirement of a loss: properties as in `losses_with`, or those names alone."""
    return Requirement("losses", only, required, separable_first)


def penalty_with(**required: bool) -> Requirement:
    """Return the requirement of a penalty: properties as in `penalties_with`."""
    return Requirement("penalties", (), required)
