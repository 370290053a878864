"""The text of `distls info`: the fields of its JSON, whole where they are short, else with a word about the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SHOWN_CLASSES", "info_lines"]

SHOWN_CLASSES = 20  # whose strongest features are text, unless all are asked for
_SHOWN = 20  # values of a list, and fields of a long table
_WIDTH = 20  # of names
_SHORT = 100  # characters of a table that is shown on the line of its name


def info_lines(described: Mapping[str, Any]) -> list[str]:
    """Return the fields as lines: a table has a line for each of its fields, below its name."""
    lines = []
    for name, value in described.items():
        if name == "top_features" and value:
            # the caller has said of how many classes
            lines += _classes(name, value, described.get("n_classes", len(value)))
        else:
            lines += _field(name, value, "")
    return lines


def _classes(name: str, features: Mapping[str, Any], count: int) -> list[str]:
    lines = [line for label, value in features.items() for line in _field(str(label), value, "  ")]
    left_out = count - len(features)
    more = [f"  and {left_out:,} more of {count:,} classes; --all shows them"] if left_out > 0 else []
    return [name, *lines, *more]


def _field(name: str, value: Any, indent: str) -> list[str]:
    title = f"{indent}{_text(name):{max(_WIDTH - len(indent), 1)}}"
    if isinstance(value, Mapping) and value:
        flat = ", ".join(f"{_text(key)}={_value(each)}" for key, each in value.items())
        if all(_is_plain(each) for each in value.values()) and len(flat) <= _SHORT:
            return [f"{title} {flat}"]
        return [title.rstrip(), *_table(value, indent + "  ")]
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value[:_SHOWN]):
        lines = [f"{indent}  {_value(_own(each, value))}" for each in value[:_SHOWN]]
        return [title.rstrip(), *lines, *_rest(len(value), indent + "  ")]
    return [f"{title} {_value(value)}".rstrip()]


def _own(each: Any, others: Sequence[Any]) -> Any:
    """Return a setting among others without the parameters that all of them have."""
    if not isinstance(each, Mapping) or not isinstance(each.get("params"), Mapping):
        return each
    every = [other.get("params", {}) for other in others if isinstance(other, Mapping)]
    params = each["params"]
    own = {name: value for name, value in params.items() if any(other.get(name) != value for other in every)}
    rest = {name: value for name, value in each.items() if name != "params" and value is not None}
    return {**own, **rest}


def _table(table: Mapping[str, Any], indent: str) -> list[str]:
    shown = list(table.items())[:_SHOWN]
    lines = [line for name, value in shown for line in _field(str(name), value, indent)]
    return [*lines, *_rest(len(table), indent)]


def _rest(count: int, indent: str) -> list[str]:
    return [f"{indent}and {count - _SHOWN:,} more; --json has all"] if count > _SHOWN else []


def _is_plain(value: Any) -> bool:
    return not isinstance(value, (Mapping, list))


def _value(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(str(key))}={_value(each)}" for key, each in value.items()) or "none"
    if isinstance(value, Sequence):
        return _listed(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _listed(values: Sequence[Any]) -> str:
    if not values:
        return "none"
    # the pairs of top features: a name or a number, and its weight
    if len(values) == 2 and isinstance(values[1], float) and not isinstance(values[0], float):
        return f"{_text(str(values[0]))} {values[1]:.3g}"
    shown = ", ".join(_value(each) if not isinstance(each, int) else str(each) for each in values[:_SHOWN])
    more = f", and {len(values) - _SHOWN:,} more; --json has all" if len(values) > _SHOWN else ""
    return shown + more


def _text(text: str) -> str:
    """Return text on one line: a line break in a name would look like another field."""
    return text.replace("\n", "\\n").replace("\r", "\\r")
