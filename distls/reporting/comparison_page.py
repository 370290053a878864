"""The HTML page of a comparison of runs."""

from __future__ import annotations

from typing import Any

from distls.reporting.comparison import Comparison
from distls.reporting.comparison_text import RUN_COLUMNS, run_cells, said
from distls.reporting.page import Page
from distls.reporting.page_tables import sortable, tiles
from distls.reporting.plots import Drawn, curve_of, line_plot
from distls.storage.markup import joined, tag


def render_comparison(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    names = comparison.names
    page = Page(f"{', '.join(names)}: distls comparison")
    page.add_section("Runs", sortable(RUN_COLUMNS, run_cells(comparison), words=(0, 1), stacked=True))
    drawn = page.plots(_curves(comparison))
    if drawn:
        page.add_section("Curves", drawn)
    page.add_section("What differs", *_differing(comparison))
    if comparison.weights:
        page.add_section("Weights", tag("p", _WEIGHTS_SAID), _weights(comparison))
    if comparison.agreement is not None:
        page.add_section("Predictions", *_agreement(comparison, comparison.agreement))
    head = [tag("p", "distls comparison", class_="kind"), tag("h1", " and ".join(names))]
    return page.render(joined(head))


_WEIGHTS_SAID = (
    "Cosine of the angle between the weights of two runs, intercept included, and the norm of their difference as a "
    "part of the norm of the first one's."
)


_OBJECTIVE_SAID = "Comparable where loss, penalty and alpha are the same."


def _curves(comparison: Comparison) -> list[Drawn | None]:
    """Return the curves of all runs over each other."""
    numbers = any("eval_mse" in event for record in comparison.records for event in record.events)
    error, scale, unit = ("eval_mse", 1.0, "mse") if numbers else ("eval_error", 100.0, "error %")

    def plot(
        title: str, axes: tuple[str, str], x: str, y: str, factor: float = 1.0, caption: str = ""
    ) -> Drawn | None:
        pairs = zip(comparison.names, comparison.records, strict=True)
        curves = [curve_of(name, record.events, x, y, factor) for name, record in pairs]
        return line_plot(title, axes, curves, caption=caption)

    return [
        plot("Evaluation error by passes", ("passes", unit), "passes", error, scale),
        plot("Evaluation error by seconds", ("seconds of training", unit), "seconds", error, scale),
        plot("Loss of the rows just read", ("passes", "loss"), "passes", "running_loss"),
        plot("Objective", ("passes", "objective"), "passes", "objective", caption=_OBJECTIVE_SAID),
    ]


def _differing(comparison: Comparison) -> list[object]:
    if not comparison.differing:
        return [tag("p", "All were asked for the same: method, data, parameters, limits and seed.")]
    rows = [[name, *map(said, values)] for name, values in comparison.differing.items()]
    every = range(len(comparison.names) + 1)
    return [sortable(["", *comparison.names], rows, words=tuple(every), stacked=True)]


def _weights(comparison: Comparison) -> object:
    rows = [
        [" and ".join(line["runs"]), _number(line["cosine"]), _number(line["distance"])]
        for line in comparison.weights
    ]
    return sortable(["runs", "cosine", "distance"], rows, stacked=True)


def _number(value: float | None) -> tuple[float | None, str]:
    return value, "–" if value is None else f"{value:.4f}"


def _agreement(comparison: Comparison, found: dict[str, Any]) -> list[object]:
    part = 100 * found["disputed"] / found["n_rows"]
    name = found["dataset"].rstrip("/").rpartition("/")[2]
    shown = [
        (f"error of {run}", f"{100 * error:.2f} %", f"{found['n_rows']:,} rows of {name}")
        for run, error in zip(comparison.names, found["errors"], strict=True)
    ]
    disputed = ("in dispute", f"{found['disputed']:,}", f"rows, {part:.2f} %: not all predict the same")
    pairs = [
        [
            " and ".join(p["runs"]),
            (p["rows"], f"{p['rows']:,}"),
            (p["fraction"], f"{100 * p['fraction']:.2f}"),
        ]
        for p in found["pairs"]
    ]
    rows = [
        [(row["row"], f"{row['row']:,}"), said(row["class"]), *map(str, row["predicted"])]
        for row in found["rows"]
    ]
    table = sortable(["runs", "rows they disagree on", "%"], pairs, stacked=True)
    parts: list[object] = [tiles([*shown, disputed]), table]
    if rows:
        words = tuple(range(1, len(comparison.names) + 2))
        title = f"The first {len(rows)} rows in dispute"
        parts += [
            tag("h3", title),
            sortable(["row", "class", *comparison.names], rows, words=words, stacked=True),
        ]
    return parts
