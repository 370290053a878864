"""A comparison as lines of text, and the cells of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distls.reporting.comparison import Comparison
from distls.solvers.loop import relative_bound

RUN_COLUMNS = ("run", "status", "passes", "seconds", "objective", "above optimum", "evaluation")
_SHOWN_ROWS = 10  # --json and the page have more


def run_cells(comparison: Comparison) -> list[list[str]]:
    """Return a line of text for each run, by `RUN_COLUMNS`."""
    rows = []
    for name, record in zip(comparison.names, comparison.records, strict=True):
        status = record.status
        bound, objective = relative_bound(status), status.get("objective")
        rows.append([
            name, str(status["status"]), f"{status['passes']:.4g}", f"{status['seconds']:.1f}",
            "-" if objective is None else f"{objective:.6g}", "-" if bound is None else f"{100 * bound:.2g} %",
            _judged(status),
        ])  # fmt: skip
    return rows


def _judged(status: dict[str, Any]) -> str:
    for name in ("eval", "select"):
        if status.get(f"{name}_mse") is not None:
            return f"mse {status[f'{name}_mse']:.5g}"
        if status.get(f"{name}_error") is not None:
            return f"{100 * status[f'{name}_error']:.2f} %"
    return "-"


def said(value: Any) -> str:
    """Return a value of a parameter, short."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the comparison as lines of text."""
    lines = _aligned([RUN_COLUMNS, *run_cells(comparison)])
    if comparison.differing:
        rows = [[name, *map(said, values)] for name, values in comparison.differing.items()]
        lines += ["", *_aligned([["differ in", *comparison.names], *rows])]
    else:
        lines += ["", "asked for the same: method, data, parameters, limits and seed"]
    if comparison.weights:
        rows = [[" and ".join(line["runs"]), *_distances(line)] for line in comparison.weights]
        lines += ["", *_aligned([["weights of", "cosine", "distance"], *rows])]
    return lines + _agreement_lines(comparison)


def _distances(line: dict[str, Any]) -> list[str]:
    return ["-" if line[name] is None else f"{line[name]:.4f}" for name in ("cosine", "distance")]


def _agreement_lines(comparison: Comparison) -> list[str]:
    found = comparison.agreement
    if found is None:
        return []
    part = 100 * found["disputed"] / found["n_rows"]
    lines = [
        "",
        f"{found['dataset']}: {found['n_rows']:,} rows, {found['disputed']:,} in dispute ({part:.2f} %)",
    ]
    errors = zip(comparison.names, found["errors"], strict=True)
    lines += _aligned([["run", "error %"], *([name, f"{100 * error:.2f}"] for name, error in errors)])
    rows = [[" and ".join(p["runs"]), f"{p['rows']:,}", f"{100 * p['fraction']:.2f}"] for p in found["pairs"]]
    lines += ["", *_aligned([["disagree", "rows", "%"], *rows])]
    if found["rows"]:
        shown = [[f"{row['row']}", said(row["class"]), *map(str, row["predicted"])] for row in found["rows"]]
        lines += ["", *_aligned([["row", "class", *comparison.names], *shown[:_SHOWN_ROWS]])]
        left = found["disputed"] - min(_SHOWN_ROWS, len(shown))
        lines += [f"and {left:,} more rows; --json has the first {len(shown)}"] if left else []
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, the first column to the left and the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
