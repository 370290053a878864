"""HTML in which every text is escaped unless it was made here: names in it may come from untrusted data."""

import html
from collections.abc import Iterable, Sequence

from distls.facts import Fact
from distls.storage.errors import printable

_VOID = frozenset({"br", "meta"})


class Markup(str):
    """Text that is HTML already; any other text is escaped by `tag`."""

    __slots__ = ()


def plain(value: object) -> Markup:
    """Return a value as text in HTML: escaped, control characters and line breaks visible."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(printable(str(value)), quote=True))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Return several pieces of text or HTML one after the other."""
    return Markup(between.join(plain(part) for part in parts))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element. An attribute that is None is left out; ``class_`` is ``class``, ``data_v`` is ``data-v``."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{plain(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{said}>" if name in _VOID else f"<{name}{said}>{joined(children)}</{name}>")


def card(title: str, facts: Sequence[Fact]) -> str:
    """Return a small table for a notebook; it takes the notebook's colours, light or dark."""
    left = "text-align:left;font-weight:normal;opacity:.7;padding:.1em 1.2em .1em 0;vertical-align:top"
    right = "text-align:left;padding:.1em 0"
    lines = [
        tag("tr", tag("th", fact.label, scope="row", style=left), tag("td", fact.text, style=right)) for fact in facts
    ]
    return str(tag("div", tag("strong", title), tag("table", *lines)))
