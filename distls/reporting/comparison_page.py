"""The HTML page of a comparison of runs."""

from distls.facts import Fact
from distls.reporting.comparison import Comparison
from distls.reporting.comparison_text import Table, agreement_facts, tables
from distls.reporting.markup import Markup, joined, tag
from distls.reporting.page import Page
from distls.reporting.page_tables import cell, sortable, tiles
from distls.reporting.plots import Drawn, curve_of, line_plot


def render_comparison(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    names = comparison.names
    page = Page(f"{', '.join(names)}: distls comparison")
    told = tables(comparison)
    page.add_section("Runs", _shown(told["runs"]))
    drawn = page.plots(_curves(comparison))
    if drawn:
        page.add_section("Curves", drawn)
    page.add_section("What differs", _shown(told["differing"]) if comparison.differing else tag("p", _PROBLEM_PARAMS))
    if comparison.weights:
        page.add_section("Weights", tag("p", _WEIGHTS_SAID), _shown(told["weights"]))
    if comparison.agreement is not None:
        parts: list[object] = [tiles(agreement_facts(comparison, comparison.agreement)), _shown(told["pairs"])]
        if told["rows"].rows:
            parts.append(tag("h3", f"The first {len(told['rows'].rows)} rows in dispute"))
            parts.append(_shown(told["rows"]))
        page.add_section("Predictions", *parts)
    head = [tag("p", "distls comparison", class_="kind"), tag("h1", " and ".join(names))]
    return page.render(joined(head))


_WEIGHTS_SAID = (
    "Cosine of the angle between the weights of two runs, intercept included, and the norm of their difference as a "
    "part of the norm of the first one's."
)


_PROBLEM_PARAMS = "All were asked for the same: method, data, parameters, limits and seed."
_OBJECTIVE_SAID = "Comparable where loss, penalty and alpha are the same."


def _curves(comparison: Comparison) -> list[Drawn | None]:
    """Return the curves of all runs over each other."""
    numbers = any("eval_mse" in event for record in comparison.records for event in record.events)
    error, scale, unit = ("eval_mse", 1.0, "mse") if numbers else ("eval_error", 100.0, "error %")

    def plot(title: str, axes: tuple[str, str], x: str, y: str, factor: float = 1.0, caption: str = "") -> Drawn | None:
        pairs = zip(comparison.names, comparison.records, strict=True)
        curves = [curve_of(name, record.events, x, y, factor) for name, record in pairs]
        return line_plot(title, axes, curves, caption=caption)

    return [
        plot("Evaluation error by passes", ("passes", unit), "passes", error, scale),
        plot("Evaluation error by seconds", ("seconds", unit), "seconds", error, scale),
        plot("Loss of the rows just read", ("passes", "loss"), "passes", "running_loss"),
        plot("Objective", ("passes", "objective"), "passes", "objective", caption=_OBJECTIVE_SAID),
    ]


def _shown(table: Table) -> Markup:
    rows = [[cell(each) if isinstance(each, Fact) else each for each in row] for row in table.rows]
    return sortable(table.columns, rows, words=table.words, stacked=True)
