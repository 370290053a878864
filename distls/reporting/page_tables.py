"""Tables of a report, as HTML: facts, settings tried, classes, the confusion matrix, strongest features."""

from collections.abc import Mapping, Sequence
from typing import Any

from distls.evaluation.metrics import Evaluation
from distls.facts import Fact
from distls.reporting.markup import Markup, joined, tag

_MOST_ROWS = 100  # of a table in the page; --json has all
_MATRIX = 26  # classes of a matrix
_NAME = 22  # characters of a name in its heads


def tiles(values: Sequence[Fact]) -> Markup:
    """Return the most important numbers: what, value, and what to know about it."""
    return tag(
        "div",
        *(
            tag("div", tag("span", fact.label), tag("b", fact.text), tag("span", fact.about), class_="tile")
            for fact in values
        ),
        class_="tiles",
    )


def facts(rows: Sequence[tuple[str, object]]) -> Markup:
    """Return a table of names and values."""
    lines = (tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows)
    return tag("table", tag("tbody", *lines), class_="facts")


def note(text: str) -> Markup:
    """Return a remark that a reader should not miss."""
    return tag("p", text, class_="note")


def sortable(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    words: Sequence[int] = (0,),
    chosen: int = -1,
    stacked: bool = False,
) -> Markup:
    """Return a table that is sorted by a click on a heading; a cell is text, or a pair (number, text).

    The columns `words` have text, which is aligned left; the row `chosen` is marked, -1 for none. On a phone the cells
    of a row of a `stacked` table are below each other, each beside its heading.
    """
    kinds = ["word" if i in words else None for i in range(len(columns))]
    shown = columns if stacked else [None] * len(columns)
    heads = (
        tag("th", tag("button", name, type="button", class_="sort"), scope="col", class_=kind)
        for name, kind in zip(columns, kinds, strict=True)
    )
    lines = (
        tag("tr", *map(_cell, row, kinds, shown), class_="chosen" if number == chosen else None)
        for number, row in enumerate(rows)
    )
    kind = "full stacked" if stacked else "full"
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *lines), class_=kind)
    return _scrolled(table, f"table of {', '.join(columns)}")


def _scrolled(table: Markup, what: str) -> Markup:
    """Return a table that scrolls in itself, also by the keys, where it is wider than the page."""
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label=what)


def _cell(value: object, kind: str | None, head: str | None) -> Markup:
    if isinstance(value, tuple):
        number, text = value
        return tag("td", text, class_=kind, data_head=head, data_v=None if number is None else f"{number:.17g}")
    return tag("td", value, class_=kind, data_head=head)


def cell(fact: Fact) -> tuple[float | None, str]:
    """Return a number as a cell of a table."""
    return fact.value, fact.text


def share(value: float | None) -> tuple[float | None, str]:
    """Return a fraction as a cell of a table."""
    return (value, "–") if value is None else (value, f"{100 * value:.1f}")


def class_table(rows: Sequence[dict[str, Any]], what: str) -> Markup:
    """Return the table of classes or labels, the worst first; of very many the worst only."""
    confused = any(row["taken_for"] for row in rows)
    columns = [what, "rows", "errors", "precision %", "recall %", "F1 %"]
    lines = [
        [
            str(row["class"]), *((row[name], f"{row[name]:,}") for name in ("n_rows", "errors")),
            share(row["precision"]), share(row["recall"]), share(row["f1"]), *([_taken(row)] if confused else []),
        ]
        for row in worst_classes(rows, _MOST_ROWS)
    ]  # fmt: skip
    table = sortable([*columns, *(["most often taken for"] if confused else [])], lines, words=(0, 6))
    if len(rows) <= _MOST_ROWS:
        return table
    plural = "classes" if what == "class" else f"{what}s"
    left = f"The {_MOST_ROWS} {plural} with the most errors of {len(rows):,}; `distls report --json` has all."
    return joined([table, tag("p", left)])


def _taken(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in row["taken_for"])


def worst_classes(rows: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the classes with the most errors, decreasing."""
    return sorted(rows, key=lambda row: (-row["errors"], row["f1"]))[:most]


def matrix(found: Evaluation, rows: Sequence[dict[str, Any]]) -> Markup:
    """Return the confusion matrix; of many classes that of those with the most errors."""
    names = {str(row["class"]) for row in worst_classes(rows, _MATRIX)}
    shown = [code for code, label in enumerate(found.classes) if str(label) in names]
    known = {label: code for code, label in enumerate(found.predicted_classes)}
    columns = [known[found.classes[code]] for code in shown if found.classes[code] in known]
    counts = {(true, guessed): count for true, guessed, count in found.confusion.tolist()}
    total = {code: rows[code]["n_rows"] for code in shown}
    heads = (tag("th", tag("span", _short(found.predicted_classes[c])), scope="col") for c in columns)
    lines = (
        tag(
            "tr",
            tag("th", _short(found.classes[code]), scope="row", title=found.classes[code]),
            *(
                _matrix_cell(counts.get((code, c), 0), total[code], found.classes[code] == found.predicted_classes[c])
                for c in columns
            ),
        )
        for code in shown
    )
    table = tag("table", tag("thead", tag("tr", tag("td"), *heads)), tag("tbody", *lines), class_="matrix")
    said = "Rows are the classes of the data, columns what they are taken for; colours are shares of a row."
    if len(shown) < len(found.classes):
        said += f" The {len(shown)} classes with the most errors, of {len(found.classes):,}."
    return joined([tag("p", said), _scrolled(table, "confusion matrix")])


def _matrix_cell(count: int, n_rows: int, right: bool) -> Markup:
    if not count:
        return tag("td")
    part = 100 * count / max(n_rows, 1)
    # a single error among thousands must still be seen
    depth = 0.8 * part if right else 12 + 0.88 * part
    return tag("td", f"{count:,}", class_="right" if right else "wrong", style=f"--part:{depth:.0f}%")


def _short(label: object) -> str:
    text = str(label)
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"


def feature_lists(features: Mapping[str, Sequence[tuple[str, float]]]) -> Markup:
    """Return the strongest features of each class with bars of their weights."""
    return tag(
        "div", *(tag("div", tag("h3", name), _weights(lines)) for name, lines in features.items()), class_="features"
    )


def _weights(lines: Sequence[tuple[str, float]]) -> Markup:
    if not lines:
        return tag("p", "no feature has a weight")
    most = max(abs(weight) for _, weight in lines)
    cells: list[Any] = []
    for name, weight in lines:
        part = f"--part:{100 * abs(weight) / most:.0f}%"
        cells.append(tag("dt", name, title=name, style=part, class_=None if weight > 0 else "against"))
        cells.append(tag("dd", f"{weight:.3g}"))
    return tag("dl", *cells, class_="weights")
