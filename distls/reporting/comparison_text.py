"""A comparison as tables, and as lines of text."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from distls.facts import Fact, percent
from distls.reporting.comparison import Comparison
from distls.training.fit_facts import bound_fact, fit_facts

_SHOWN_ROWS = 10  # --json and the page have more
_NONE = Fact("", None, lambda _: "-")


class Table(NamedTuple):
    """Columns and rows; a cell is text or a fact."""

    columns: Sequence[str]
    rows: list[list[Any]]
    words: Sequence[int] = (0,)  # the columns that have text


def tables(comparison: Comparison) -> dict[str, Table]:
    """Return what there is to say of runs, of what differs, of weights, and of pairs and rows of predictions."""
    names, agreement = comparison.names, comparison.agreement or {"pairs": [], "rows": []}
    distances = [
        [_pair(line), *(Fact("", line[name], _distance) for name in ("cosine", "distance"))]
        for line in comparison.weights
    ]
    differing = [[name, *map(said, values)] for name, values in comparison.differing.items()]
    pairs = [[_pair(p), Fact("", p["rows"], ","), Fact("", 100 * p["fraction"], ".2f")] for p in agreement["pairs"]]
    rows = [[Fact("", row["row"], "d"), said(row["class"]), *map(str, row["predicted"])] for row in agreement["rows"]]
    runs = [_run_cells(name, record.status) for name, record in zip(names, comparison.records, strict=True)]
    columns = ("run", "status", "passes", "seconds", "objective", "above optimum", "evaluation")
    return {
        "runs": Table(columns, runs, (0, 1)),
        "differing": Table(["differ in", *names], differing, range(len(names) + 1)),
        "weights": Table(["weights of", "cosine", "distance"], distances),
        "pairs": Table(["disagree", "rows", "%"], pairs),
        "rows": Table(["row", "class", *names], rows, range(1, len(names) + 2)),
    }


def _run_cells(name: str, status: dict[str, Any]) -> list[Any]:
    facts = {fact.key: fact for fact in fit_facts(status)}
    judged = [fact for key, fact in facts.items() if key.startswith(("eval", "select"))]
    shown = [facts.get(key, _NONE) for key in ("passes", "seconds", "objective")]
    return [name, facts["status"].text, *shown, bound_fact(status), *(judged[:1] or [_NONE])]


def _pair(line: dict[str, Any]) -> str:
    return " and ".join(line["runs"])


def _distance(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def agreement_facts(comparison: Comparison, found: dict[str, Any]) -> list[Fact]:
    """Return the error of each run, and the rows on which not all agree."""
    name = found["dataset"].rstrip("/").rpartition("/")[2]
    errors = zip(comparison.names, found["errors"], strict=True)
    part = percent(found["disputed"] / found["n_rows"])
    return [
        *(Fact(f"error of {run}", error, percent, f"{found['n_rows']:,} rows of {name}") for run, error in errors),
        Fact("in dispute", found["disputed"], ",", f"rows, {part}: not all predict the same"),
    ]


def said(value: Any) -> str:
    """Return a value of a parameter, short."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the comparison as lines of text."""
    told, found = tables(comparison), comparison.agreement
    lines = [*_aligned(told["runs"]), ""]
    if comparison.differing:
        lines += _aligned(told["differing"])
    else:
        lines.append("asked for the same: method, data, parameters, limits and seed")
    if comparison.weights:
        lines += ["", *_aligned(told["weights"])]
    if found is None:
        return lines
    *errors, disputed = agreement_facts(comparison, found)
    share = percent(found["disputed"] / found["n_rows"])
    lines += ["", f"{found['dataset']}: {found['n_rows']:,} rows, {disputed.text} in dispute ({share})"]
    lines += [*(fact.said for fact in errors), "", *_aligned(told["pairs"])]
    if found["rows"]:
        shown = told["rows"].rows
        lines += ["", *_aligned(told["rows"]._replace(rows=shown[:_SHOWN_ROWS]))]
        left = found["disputed"] - min(_SHOWN_ROWS, len(shown))
        lines += [f"and {left:,} more rows; --json has the first {len(shown)}"] if left else []
    return lines


def _aligned(table: Table) -> list[str]:
    """Return a table as lines, the first column to the left and the others to the right."""
    rows = [table.columns, *([c.text if isinstance(c, Fact) else c for c in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
