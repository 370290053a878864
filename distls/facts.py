"""What a reader is told about a result: facts, each once, which text, JSON and pages render."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

_SHORT = 200  # characters of a field


class Fact(NamedTuple):
    """One thing to know: a value with its label and unit."""

    label: str
    value: Any
    form: str | Callable[[Any], str] = (
        ""  # how a reader sees the value, with its unit: a format or a function
    )
    about: str = ""  # what a page says beneath it
    key: str = ""  # its name in JSON

    @property
    def text(self) -> str:
        """The value for a reader."""
        return self.form(self.value) if callable(self.form) else format(self.value, self.form)

    @property
    def said(self) -> str:
        """Label and value."""
        return f"{self.label} {self.text}" if self.label else self.text


def percent(share: float) -> str:
    """Return a share for a reader."""
    return f"{100 * share:.2f} %"


def counted(n: int, what: str) -> str:
    """Return a number of things."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def as_json(facts: Sequence[Fact]) -> dict[str, Any]:
    """Return the values of facts that have a name in JSON."""
    # JSON has no infinity
    return {fact.key: None if fact.value == math.inf else fact.value for fact in facts if fact.key}


# Renders facts as HTML; the face of the package sets it, since markup is the business of the reports above.
as_card: Callable[[str, Sequence[Fact]], str] = lambda title, facts: ""  # noqa: E731


def warn_caller(text: str) -> None:
    """Issue a UserWarning of the code that called distls."""
    level = 0
    frame: FrameType | None = sys._getframe()
    # Frames of distls do not count: a warning should point at the caller's line.
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "distls":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level + 1)


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


class Shown:
    """A result that shows itself by its facts: in one line, and as a table in a notebook."""

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first: the fields that have a value, unless a class knows better."""
        shown = {name: value for name, value in vars(self).items() if value not in (None, (), {}, [], "")}
        return [Fact(name.replace("_", " "), value, _short) for name, value in shown.items()]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(fact.said for fact in self.facts())}>"

    def _repr_html_(self) -> str:
        return as_card(type(self).__name__, self.facts())
