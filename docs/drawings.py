"""The drawings of `how-it-works.md`: ``python docs/drawings.py docs/images``.

Each has a ground of its own, light or dark as the system is, so that it is read on any page.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

STYLE = """
  .ground { fill: #f7f8fa; } text { fill: #1f2933; font: 15px sans-serif; text-anchor: middle; }
  .small { font-size: 13px; } .left { text-anchor: start; }
  .box { fill: #dbe7f8; stroke: #3b6fb5; stroke-width: 1.5; }
  .disk { fill: #e6e8ec; stroke: #7b8794; stroke-width: 1.5; }
  .work { fill: #d9efdf; stroke: #3c8d5a; stroke-width: 1.5; }
  .lost { fill: #f8dedb; stroke: #c0453b; stroke-width: 1.5; }
  .line { fill: none; stroke: #55606e; stroke-width: 1.5; } .head { fill: #55606e; }
  .curve { fill: none; stroke: #3b6fb5; stroke-width: 2.5; } .bound { fill: none; stroke: #c0453b; stroke-width: 2.5; }
  .band { fill: #8a7bc8; opacity: 0.22; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1d232b; } text { fill: #e4e7eb; } .box { fill: #1f3a5f; } .disk { fill: #333c47; }
    .work { fill: #1f4a30; } .lost { fill: #57251f; } .line { stroke: #a5b0bd; } .head { fill: #a5b0bd; }
  }
"""


class Drawing:
    """Shapes on a ground, in pixels from the upper left."""

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """Draw a rectangle with centred lines of text."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>')
        first = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 18 * number, line, kind="small" if number else "")

    def text(self, x: float, y: float, line: str, kind: str = "") -> None:
        """Write a line."""
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(line)}</text>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line along points, with a head at the last."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline class="line" points="{path}" marker-end="url(#head)"/>')

    def line(self, kind: str, *points: tuple[float, float]) -> None:
        """Draw a line along points."""
        self.parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in points)}"/>')

    def svg(self) -> str:
        """Return the file."""
        width, height = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
                f"<style>{STYLE}</style>",
                '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
                '<path class="head" d="M0,0 L9,4 L0,8 z"/></marker></defs>',
                f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def path() -> Drawing:
    """From files to a model."""
    d = Drawing(760, 300)
    for number, name in enumerate(("text", "tables", "arrays")):
        d.box(20, 40 + 55 * number, 90, 40, name, kind="disk")
        d.arrow((110, 60 + 55 * number), (160, 115))
    d.box(165, 80, 105, 70, "ingest", "parse, shuffle")
    for number in range(4):
        d.box(330, 30 + 45 * number, 120, 34, f"partition {number + 1}", kind="disk")
        d.arrow((270, 115), (326, 47 + 45 * number))
        d.arrow((450, 47 + 45 * number), (506, 115))
    d.box(511, 80, 90, 70, "fit", "in rounds", kind="work")
    d.arrow((601, 115), (646, 115))
    d.box(650, 80, 90, 70, "model")
    d.box(510, 225, 230, 46, "predict, evaluate, report, export", kind="work")
    d.arrow((695, 150), (695, 221))
    d.box(165, 225, 285, 46, "rows that come later, by the same recipe", kind="disk")
    d.arrow((450, 248), (506, 248))
    d.text(390, 212, "on disk, checksummed", kind="small")
    return d


def round_() -> Drawing:
    """A round: weights out, lanes, results in by a tree."""
    d = Drawing(760, 380)
    d.box(290, 20, 180, 46, "driver", "weights of round t")
    lanes = (95, 285, 475, 665)
    for number, x in enumerate(lanes):
        d.arrow((380, 66), (x, 108))
        d.box(x - 86, 112, 172, 96, kind="work")
        d.text(x, 134, f"lane {number + 1}")
        for column, name in enumerate(("read", "decode", "learn")):
            d.box(x - 81 + 55 * column, 150, 52, 44, kind="disk" if column < 2 else "box")
            d.text(x - 55 + 55 * column, 177, name, kind="small")
    for left, right in ((0, 1), (2, 3)):
        middle = (lanes[left] + lanes[right]) / 2
        for x in (lanes[left], lanes[right]):
            d.arrow((x, 208), (middle, 252))
        d.box(middle - 45, 256, 90, 34, "merge")
        d.arrow((middle, 290), (380 + (-40 if left == 0 else 40), 322))
    d.box(290, 326, 180, 40, "weights of round t + 1")
    return d


def bits() -> Drawing:
    """Three ways to run the same lanes."""
    d = Drawing(760, 300)
    ways = (
        ("one process", [("work", 8)]),
        ("two workers", [("work", 4), ("box", 4)]),
        ("one is lost", [("work", 4), ("lost", 2), ("disk", 2)]),
    )
    for row, (name, workers) in enumerate(ways):
        y = 50 + 75 * row
        d.text(20, y + 23, name, kind="left")
        lane = 0
        for kind, count in workers:
            for _ in range(count):
                d.box(140 + 44 * lane, y, 38, 36, str(lane + 1), kind=kind)
                lane += 1
        d.arrow((496, y + 18), (560, 143))
    d.text(311, 30, "lanes, coloured by the worker that runs them", kind="small")
    d.text(382, 258, "lost (red): lanes 5 and 6 are done again by another worker", kind="small")
    d.box(565, 108, 80, 70, "the", "fixed tree")
    d.arrow((645, 143), (672, 143))
    d.box(676, 118, 70, 50, "9783…", "digest", kind="work")
    return d


def gap() -> Drawing:
    """Objective, lower bound, and the band between them."""
    d = Drawing(760, 300)
    passes = [step / 4 for step in range(33)]
    objective = [(70 + 75 * p, 140 - 95 * 0.55**p) for p in passes]
    lower = [(x, 300 - y) for x, y in objective]
    points = " ".join(f"{x:.0f},{y:.0f}" for x, y in [*objective, *reversed(lower)])
    d.parts.append(f'<polygon class="band" points="{points}"/>')
    d.line("curve", *objective)
    d.line("bound", *lower)
    d.arrow((60, 270), (60, 20))
    d.arrow((60, 270), (735, 270))
    d.text(700, 290, "passes", kind="small")
    d.text(170, 40, "objective of the weights", kind="left")
    d.text(170, 258, "lower bound, from the duals", kind="left")
    d.text(150, 155, "the optimum", kind="left")
    d.text(640, 110, "proven: at most", kind="small")
    d.text(640, 128, "0.1 % above it", kind="small")
    return d


def main(folder: Path) -> None:
    """Write the files."""
    for name, drawing in (("path", path()), ("round", round_()), ("bits", bits()), ("gap", gap())):
        (folder / f"how-{name}.svg").write_text(drawing.svg(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
