"""What a reader is told about a result: facts, each once, which text, JSON and pages render."""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_SHORT = 200  # characters of a field
as_keywords = True  # messages are for callers in Python, until the command line says otherwise
# Options that messages name, as Python has them; it has none of those for workers, networks and output.
_NAMES = (
    "calibrate categorical costs data decimal drop dtype encoding executor format hash-bits header id-column "
    "ignore-columns impute kind label-column labels like list-columns n-features na na-values parallelism "
    "partition-size passes patience rows rtol seed select separator shard-size split target text-column threshold-for "
    "to tol top transform unknown-features unknown-labels weight-column weights zero-based"
)
_FLAGS = "again as-published keep-words labelled multilabel overwrite unlabelled weighted"
_KEYWORDS = {
    **{name: name.replace("-", "_") for name in _NAMES.split()},
    **{name: f"{name.replace('-', '_')}=True" for name in _FLAGS.split()},
    **{"eval": "eval_data", "from": "source", "no-shuffle": "shuffle=False"},
}
_QUOTED = r'(?<![\w"])".*?"(?=[\s:;,.)]|\Z)'  # a cell may have quotes of its own
_WORDS = (  # what is a value behind an option; other words are verbs
    "class|continuous|count|csv|dask|f1|float64|ignore|label|liblinear|no|npz|onnx|serial|several|sklearn|space|"
    "standardize|text|unknown|vw|weights|yes|the training data"
)
# The user's data are passed over: the path that a message begins with, and what is quoted.
_OPTION = re.compile(
    rf"(?s:\A(?!--[a-z-]+ )[^:;,(\"`']+|{_QUOTED}|`.*?`|(?<!\w)'.*?'(?!\w))"
    r"|(?<![^\s(])--(?P<name>[a-z]+(?:-[a-z]+)*)(?![\w=/-]|[.:]\w)"
    rf"(?: (?P<value>{_QUOTED}|[A-Z](?:[A-Z][\w=,]*)?(?<![=,])(?!\w)|\d+|[,.](?!\S)|(?:{_WORDS})(?!\w)"
    r"|[a-z\d]+[=,]\S*[^\s:;,.)]))?"
    r"|(?<![^\s(])-p (?P<parameter>[a-z_\d]+)=(?P<given>[^\s:;,)`](?:[^\s;,)`]*[^\s:;,.)`])?)"
)


class Fact(NamedTuple):
    """One thing to know: a value with its label and unit."""

    label: str
    value: Any
    form: str | Callable[[Any], str] = ""  # how a reader sees the value, with its unit: a format or a function
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


def said(text: str) -> str:
    """Return a message, written with options of the command line, with those that its reader has."""
    return _OPTION.sub(_keyword, text) if as_keywords else text


def _keyword(found: re.Match[str]) -> str:
    if found["parameter"]:
        given = found["given"] if re.fullmatch(r"[\d.e-]+", found["given"]) else f'"{found["given"]}"'
        return f'params={{"{found["parameter"]}": {given}}}'
    if found["name"] not in _KEYWORDS:
        return found[0]
    keyword, value = _KEYWORDS[found["name"]], found["value"]
    if not value:
        return keyword
    plain = value.isdecimal() or value[0] == '"' or " " in value or (value.isupper() and value.isidentifier())
    return f"{keyword}={value}" if plain else f'{keyword}="{value}"'


def warn_caller(text: str) -> None:
    """Issue a UserWarning of the code that called distls."""
    import inspect  # which the import of distls alone has no use for

    level, frame = 0, inspect.currentframe()
    # Frames of distls do not count: a warning should point at the caller's line.
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "distls":
        level, frame = level + 1, frame.f_back
    warnings.warn(said(text), UserWarning, stacklevel=level + 1)


def _short(value: Any) -> str:
    text = ", ".join(map(str, value[:20])) if isinstance(value, (tuple, list)) else str(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


class Shown:
    """A result that shows itself by its facts: in one line, and as a table in a notebook."""

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first: the fields that have a value, unless a class knows better."""
        shown = {name: value for name, value in vars(self).items() if value not in (None, (), {}, [], "")}
        return [Fact(name.replace("_", " "), value, _short) for name, value in shown.items()]

    def further_facts(self) -> list[Fact]:
        """Return what a notebook says beneath them."""
        return []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(fact.said for fact in self.facts())}>"

    def _repr_html_(self) -> str:
        return as_card(type(self).__name__, [*self.facts(), *self.further_facts()])


class ShownDict(dict[str, Any]):
    """A dict that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return as_card(str(self.get("kind", "")), [Fact(name, value, _short) for name, value in self.items()])
