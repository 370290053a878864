"""The pictures of `benchmarks.quality.choose`: SVG files that are read on white and on black."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw"]

# Of nearly the same contrast on white and on black; a method has one colour in all pictures.
_GREY = "#808080"
_COLOURS = {"sgd": "#3b82d6", "mcid": "#c98a1b", "sdca": "#d6453d", "fista": "#8b62c9", "gls": "#2e9a5b"}


def draw(report: dict[str, Any], folder: Path) -> None:
    """Write choose-documents.svg, choose-correlated.svg and choose-features.svg."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # no date and no random names: the same numbers give the same file
    style = {"svg.hashsalt": "distls", "font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    grey = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _GREY)
    with pyplot.rc_context({**style, **grey}):
        for name in ("documents", "correlated"):
            figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
            for curve in report[name]:
                shown = {"color": _COLOURS[curve["method"]], "marker": "o", "markersize": 3}
                left.plot(curve["passes"], [100 * error for error in curve["error"]], **shown)
                right.plot(curve["passes"], curve["distance"], label=curve["method"], **shown)
            # a method that needs many passes would flatten the others
            lowest = 100 * min(min(curve["error"]) for curve in report[name])
            left.set(xlabel="passes", ylabel="test error, %", ylim=(0.95 * lowest, 1.6 * lowest))
            right.set(xlabel="passes", ylabel="above the optimum, relative", yscale="log")
            right.legend(frameon=False)
            _save(figure, folder / f"choose-{name}.svg")
        figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
        rows = [row for row in report["features"] if row["features"]]
        axes.plot([row["features"] for row in rows], [100 * row["error"] for row in rows], "o-", color="#3b82d6")
        axes.set(xlabel="features used, of 47,236", ylabel="error, %", xscale="log")
        _save(figure, folder / "choose-features.svg")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, transparent=True, metadata={"Date": None})
    print(path)
