"""The plots of a report, drawn with Bokeh; legends and captions are HTML around them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.reporting.costs import SHARES, memory_of, round_seconds, seconds_of
from distls.reporting.run_report import thinned
from distls.storage.errors import BadInputError, needing, printable

Record = dict[str, Any]

# Of nearly the same contrast, 3:1 and more, on white and on black.
COLOURS = ("#2f7ed8", "#d9730d", "#2e9e5b", "#a05cc9", "#c2457a", "#1f97a8", "#8d7a22", "#7c8694")
_SHARE_COLOURS = (*COLOURS[:4], COLOURS[7])
_MOST_POINTS = 400
_MOST_BARS = 60
_HEIGHT = 250
_MIB = 2**20


@dataclass(frozen=True)
class Drawn:
    """A plot with its words."""

    title: str
    figure: Any  # of Bokeh
    legend: list[tuple[str, str]] = field(default_factory=list)  # (colour, text)
    caption: str = ""


@dataclass(frozen=True)
class Curve:
    """One line of a plot."""

    name: str
    points: list[tuple[float, float]]
    below: list[float] | None = None  # the lower end of a band under the line, of the same length


def check_bokeh() -> None:
    """Raise BadInputError, with the remedy, where Bokeh is not installed."""
    with needing("HTML reports are drawn with Bokeh; pip install 'distls[report]'", BadInputError):
        import bokeh  # noqa: F401


def _figure(x: str, y: str, **options: Any) -> Any:
    from bokeh.plotting import figure

    made = figure(
        height=_HEIGHT,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        x_axis_label=x,
        y_axis_label=y,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **options,
    )
    for axis in (*made.xaxis, *made.yaxis):
        axis.update(
            axis_label_text_font="system-ui",
            axis_label_text_font_size="12px",
            minor_tick_line_color=None,
            axis_label_text_font_style="normal",
            major_label_text_font="system-ui",
            major_label_text_font_size="12px",
        )
    made.xgrid.visible = False
    return made


def _hover(made: Any, renderer: Any, tooltips: list[tuple[str, str]]) -> None:
    from bokeh.models import HoverTool

    made.add_tools(HoverTool(renderers=[renderer], tooltips=tooltips, mode="vline"))


def curve_of(name: str, events: Sequence[Record], x: str, y: str, scale: float = 1.0) -> Curve:
    """Return the curve of a field of the rounds, where both are finite; at most some hundred points."""
    had = [event for event in events if _finite(event.get(x)) and _finite(event.get(y))]
    return Curve(printable(name), [(event[x], scale * event[y]) for event in thinned(had, _MOST_POINTS)])


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def line_plot(
    title: str,
    axes: tuple[str, str],
    curves: Sequence[Curve],
    *,
    caption: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> Drawn | None:
    """Return a plot of lines, None without a point; logarithmic axes show positive values only."""
    given = [_positive(curve, log_x, log_y) for curve in curves]
    shown = [(COLOURS[i % len(COLOURS)], curve) for i, curve in enumerate(given) if curve.points]
    if not shown:
        return None
    kinds = {name: "log" for name, log in (("x_axis_type", log_x), ("y_axis_type", log_y)) if log}
    made = _figure(*axes, **kinds)
    for colour, curve in shown:
        x, y = ([point[i] for point in curve.points] for i in (0, 1))
        if curve.below is not None:
            made.varea(x=x, y1=curve.below, y2=y, fill_color=colour, fill_alpha=0.25)
        made.line(x, y, line_color=colour, line_width=2)
        marks = made.scatter(x, y, size=7 if len(x) < 40 else 4, fill_color=colour, line_color=colour)
        _hover(made, marks, [(axes[0], "@x{0.[0000]}"), (curve.name, "@y{0.[00000]}")])
    legend = [(colour, curve.name) for colour, curve in shown]
    return Drawn(title, made, legend if len(legend) > 1 else [], caption)


def _positive(curve: Curve, log_x: bool, log_y: bool) -> Curve:
    kept = [i for i, (x, y) in enumerate(curve.points) if (x > 0 or not log_x) and (y > 0 or not log_y)]
    below = None if curve.below is None else [curve.below[i] for i in kept]
    return Curve(curve.name, [curve.points[i] for i in kept], below)


def seconds_plot(events: Sequence[Record]) -> Drawn | None:
    """Return the process-seconds of the rounds, stacked; of many rounds several in one bar."""
    if not events:
        return None
    size = -(-len(events) // _MOST_BARS)
    groups = [events[first : first + size] for first in range(0, len(events), size)]
    ends = [0.0, *(round_seconds(group[-1]) for group in groups)]
    parts = [seconds_of(group, before) for group, before in zip(groups, ends, strict=False)]
    columns: dict[str, list[Any]] = {
        # Bokeh takes names of columns apart at blanks in tooltips
        **{f"s{number}": [part[name] for part in parts] for number, name in enumerate(SHARES)},
        "round": [(group[0]["round"] + group[-1]["round"]) / 2 for group in groups],
    }
    made = _figure("round", "process-seconds")
    stacks = made.vbar_stack(
        [f"s{number}" for number in range(len(SHARES))],
        x="round",
        width=0.8 * size,
        source=columns,
        color=list(_SHARE_COLOURS),
        line_color=None,
    )
    tips = [(name, f"@s{number}{{0.000}}") for number, name in enumerate(SHARES)]
    _hover(made, stacks[-1], [("round", "@round{0.[0]}"), *tips])
    made.y_range.start = 0
    return Drawn("Process-seconds of each round", made, list(zip(_SHARE_COLOURS, SHARES, strict=True)))


def memory_plot(events: Sequence[Record], plan: Record | None) -> Drawn | None:
    """Return the peak of each worker process, with what was planned and what it may use."""
    peaks = sorted(memory_of(events).values(), reverse=True)[:_MOST_BARS]
    if not peaks:
        return None
    from bokeh.models import FixedTicker, Span

    made = _figure("MiB", "worker")
    sizes, places = [size / _MIB for size in peaks], list(range(1, len(peaks) + 1))
    bars = made.hbar(y=places, right=sizes, left=0, height=0.6, color=COLOURS[0], line_color=None)
    from bokeh.models import HoverTool

    made.add_tools(HoverTool(renderers=[bars], tooltips=[("peak, MiB", "@right{0,0}")]))
    made.yaxis.ticker = FixedTicker(ticks=places if len(places) <= 12 else places[:: len(places) // 8])
    legend = [(COLOURS[0], "peak resident memory")]
    lines = [] if plan is None else [("plan", plan["worker_bytes"]), ("limit", plan["worker_limit"])]
    for colour, dash, (name, n_bytes) in zip(COLOURS[1:3], ("solid", "dashed"), lines, strict=False):
        span = Span(location=n_bytes / _MIB, dimension="height", line_color=colour, line_width=2, line_dash=dash)
        made.add_layout(span)
        legend.append((colour, name))
    made.x_range.start, made.x_range.end = 0, 1.08 * max([*sizes, *(n / _MIB for _, n in lines)])
    made.height = min(_HEIGHT + 12 * len(places), 3 * _HEIGHT)
    return Drawn("Memory of each worker", made, legend)


def ranking_plots(rates: NDArray[np.float64], name: str) -> list[Drawn | None]:
    """Return the ROC curve of a class, and its precision by recall, from the rates at all cuts between scores."""
    name = printable(name)
    # evenly spaced by recall, where the curves bend
    places = np.searchsorted(rates[:, 1], np.linspace(0.0, 1.0, _MOST_POINTS))
    wrong, recall, precision = rates[np.unique(places)].T.tolist() if len(rates) else ([], [], [])
    return [
        line_plot(
            "ROC curve", (f"rate of others taken for {name}", f"{name} found (recall)"),
            [Curve(name, list(zip(wrong, recall, strict=True)))],
        ),
        line_plot(
            "Precision and recall", (f"{name} found (recall)", "precision"),
            [Curve(name, list(zip(recall, precision, strict=True)))],
        ),
    ]  # fmt: skip


def reliability_plot(curve: Sequence[Record]) -> Drawn | None:
    """Return accuracy against probability, with the number of rows behind each point as its size."""
    if not curve:
        return None
    made = _figure("probability given", "fraction right", x_range=(0, 1.02), y_range=(0, 1.02))
    made.line([0, 1], [0, 1], line_color=COLOURS[7], line_dash="dashed", line_width=1.5)
    most = max(line["n_rows"] for line in curve)
    columns = {
        "x": [line["probability"] for line in curve],
        "y": [line["accuracy"] for line in curve],
        "rows": [line["n_rows"] for line in curve],
        "size": [6 + 14 * math.sqrt(line["n_rows"] / most) for line in curve],
    }
    made.line("x", "y", source=columns, line_color=COLOURS[0], line_width=2)
    marks = made.scatter("x", "y", size="size", source=columns, color=COLOURS[0], fill_alpha=0.7)
    _hover(made, marks, [("given", "@x{0.000}"), ("right", "@y{0.000}"), ("rows", "@rows{0,0}")])
    legend = [(COLOURS[0], "predicted class"), (COLOURS[7], "exactly as sure as right")]
    return Drawn("Reliability of probabilities", made, legend)
