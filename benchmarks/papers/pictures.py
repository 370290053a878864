"""Pictures of figures as SVG files of a few kB: curves on axes, and the paper's own numbers as diamonds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from docs.drawings import Drawing

Point = tuple[float, float]

# Of nearly the same contrast on a light and on a dark ground; the next names have them again, dashed.
_COLOURS = ("#3b82d6", "#d6453d", "#2e9a5b", "#c98a1b", "#8b62c9", "#3a9fa5", "#b8559e", "#808080")
_WIDTH, _HEIGHT = 320, 250  # of a panel, and what is left of it around its axes
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 46, 48
_NAMES = 150  # in the place of _LEFT where a panel has names at its left
_MOST = 40  # points of a curve


class Panel(NamedTuple):
    """Curves on two axes.

    Attributes
    ----------
    title, x, y : str
    curves : dict of str to list of (float, float)
    paper : dict of str to list of (float, float)
        What the paper prints: a diamond each, in the colour of the curve of that name.
    log : str
        The logarithmic axes: x, y, xy or neither.
    rows : sequence of str
        What y = 0, 1, ... are, from above: points without lines, for tables.
    """

    title: str
    x: str
    y: str
    curves: dict[str, list[Point]]
    paper: Mapping[str, list[Point]] = MappingProxyType({})
    log: str = ""
    rows: Sequence[str] = ()


class Axis:
    """A scale from values to pixels, with its ticks."""

    def __init__(self, values: Iterable[float], log: bool, start: float, stop: float) -> None:
        self.log, self.start, self.stop = log, start, stop
        shown = [self._of(value) for value in values] or [0.0, 1.0]
        low, high = min(shown), max(shown)
        room = 0.05 * (high - low) or 0.5
        self.low, self.high = low - room, high + room

    def _of(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        """Return where a value is."""
        return self.start + (self._of(value) - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Return some round values."""
        if self.log and self.high - self.low >= 1.0:
            step = max(round((self.high - self.low) / 4), 1)
            powers = [10.0**power for power in range(math.floor(self.low), math.floor(self.high) + 1, step)]
            parts = (1, 2, 5) if self.high - self.low < 2.0 else (1,)
            values = [part * power for power in powers for part in parts]
            return [value for value in values if self.low <= math.log10(value) <= self.high]
        low, high = (10.0**self.low, 10.0**self.high) if self.log else (self.low, self.high)
        raw = (high - low) / 4
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw)
        return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def picture(panels: Sequence[Panel]) -> str:
    """Return a picture of panels side by side, with one legend below."""
    across = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    down = -(-len(panels) // across)
    names = list(dict.fromkeys(name for p in panels for name in (*p.curves, *p.paper)))
    diamond = ["the paper"] if any(p.paper for p in panels) else []
    beside = max(across * _WIDTH // 210, 1)  # names of the legend in a line
    legend = 20 * -(-len(names + diamond) // beside)
    drawing = Drawing(across * _WIDTH, down * _HEIGHT + legend + 10)
    for number, panel in enumerate(panels):
        _draw(drawing, panel, names, number % across * _WIDTH, number // across * _HEIGHT)
    for number, name in enumerate(names + diamond):
        x, y = 20 + number % beside * 210, down * _HEIGHT + 8 + number // beside * 20
        if name in names:
            _line(drawing, [(x, y), (x + 22, y)], names.index(name))
        else:
            _diamond(drawing, x + 11, y, "#808080")
        drawing.text(x + 28, y + 5, name, kind="small left")
    return drawing.svg()


def _draw(drawing: Drawing, panel: Panel, names: list[str], left: float, top: float) -> None:
    curves = {name: _shown(points, panel.log) for name, points in panel.curves.items()}
    paper = {name: _shown(points, panel.log) for name, points in panel.paper.items()}
    every = [point for points in (*curves.values(), *paper.values()) for point in points]
    room = _NAMES if panel.rows else _LEFT
    x = Axis((point[0] for point in every), "x" in panel.log, left + room, left + _WIDTH - _RIGHT)
    bottom, above = top + _HEIGHT - _BOTTOM, top + _TOP
    ends = (above, bottom) if panel.rows else (bottom, above)
    heights = range(len(panel.rows)) if panel.rows else (point[1] for point in every)
    y = Axis(heights, "y" in panel.log, *ends)
    _axes(drawing, panel, x, y)
    for name, points in curves.items():
        places, number = [(x(a), y(b)) for a, b in points], names.index(name)
        if len(places) > 1 and not panel.rows:
            _line(drawing, places, number)
        else:
            drawing.parts += [f'<circle cx="{a:.0f}" cy="{b:.0f}" r="4" fill="{_colour(number)}"/>' for a, b in places]
    for name, points in paper.items():
        for a, b in points:
            _diamond(drawing, x(a), y(b), _colour(names.index(name)))


def _shown(points: Sequence[Point], log: str) -> list[Point]:
    """Return what the scales have a place for, thinned out."""
    good = [
        (a, b)
        for a, b in points
        if a is not None and b is not None and (a > 0 or "x" not in log) and (b > 0 or "y" not in log)
    ]
    step = -(-len(good) // _MOST) or 1
    return good[::step] + ([good[-1]] if good and (len(good) - 1) % step else [])


def _axes(drawing: Drawing, panel: Panel, x: Axis, y: Axis) -> None:
    top, bottom = min(y.start, y.stop), max(y.start, y.stop)
    drawing.line("line", (x.start, top), (x.start, bottom), (x.stop, bottom))
    drawing.text((x.start + x.stop) / 2, top - 28, panel.title, kind="small")
    drawing.text((x.start + x.stop) / 2, bottom + 38, panel.x, kind="small")
    drawing.text(x.start - 52, top - 9, panel.y, kind="small left")
    for value in x.ticks():
        drawing.line("line", (x(value), bottom), (x(value), bottom + 4))
        drawing.text(x(value), bottom + 19, _short(value), kind="small")
    for place, value in enumerate(range(len(panel.rows)) if panel.rows else y.ticks()):
        drawing.line("line", (x.start - 4, y(value)), (x.start, y(value)))
        shown = panel.rows[place] if panel.rows else _short(value)
        middle = x.start - (_NAMES / 2 if panel.rows else 26)
        drawing.text(middle, y(value) + 4, shown, kind="small")


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _line(drawing: Drawing, places: Sequence[Point], number: int) -> None:
    path = " ".join(f"{a:.0f},{b:.0f}" for a, b in places)
    dashed = ' stroke-dasharray="5 3"' if number >= len(_COLOURS) else ""
    drawing.parts.append(
        f'<polyline fill="none" stroke="{_colour(number)}" stroke-width="1.8"{dashed} points="{path}"/>'
    )


def _diamond(drawing: Drawing, x: float, y: float, colour: str) -> None:
    corners = f"{x:.0f},{y - 5:.0f} {x + 5:.0f},{y:.0f} {x:.0f},{y + 5:.0f} {x - 5:.0f},{y:.0f}"
    drawing.parts.append(f'<polygon points="{corners}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
