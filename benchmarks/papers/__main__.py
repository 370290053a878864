"""The figures and tables of the five papers by name: ``python -m benchmarks.papers FIGURE... | all | list``.

    DISTLS_DATA=FOLDER python -m benchmarks.papers all --out FOLDER [--budget 3600] [--real DIR]

For each one FOLDER/FIGURE.json, with the numbers, the paper's where it prints them, seconds and the verdict of the last
full measurement, from docs/papers/figures.md; and FOLDER/FIGURE.png (needs matplotlib). With --budget each may take an
equal share of the seconds that are left and has fewer seeds; one that is not at its end by then says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Numbers = dict[str, Any]
# What makes a module quicker where the budget is small.
_QUICK = {
    "least_squares": "--seeds 1 --no-tuning --limit 60", "mcid": "--seeds 2", "constrained_sgd": "--seeds 2",
    "digit_picture": "--seeds 1", "sgd_qn": "--seeds 1 --repeats 3", "bcd": "--seeds 1 --limit 8",
}  # fmt: skip
_IN_A_FILE = ("least_squares", "bcd_extensions", "digit_picture")  # modules whose --out is a file
_PAGE = Path(__file__).parents[2] / "docs" / "papers" / "figures.md"


class Figure(NamedTuple):
    """A figure or a table: a row of the page."""

    name: str
    paper: str
    place: str
    verdict: str
    why: str
    script: str  # module of this folder, and its arguments

    @property
    def module(self) -> str:
        """The module alone."""
        return self.script.split()[0]


def figures() -> dict[str, Figure]:
    """Return the figures of the page that there is something to measure of, by name."""
    found, paper = {}, ""
    for line in _PAGE.read_text().splitlines():
        paper = line.removeprefix("## ") if line.startswith("## ") else paper
        cells = [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 5 and cells[3] and "benchmarks" not in cells[3]:
            place, verdict, why, name, script = cells
            found[name] = Figure(name, paper, place, verdict, why, script)
    return {name: figure for name, figure in found.items() if not set(name) <= {"-"}}


class Outcome(NamedTuple):
    """What a figure's script has left."""

    ended: bool
    seconds: float
    numbers: Any
    pictures: list[Path]


def run(figure: Figure, place: Path, limit: float | None, more: Sequence[str]) -> Outcome:
    """Run the script of a figure in a process of its own, for at most `limit` seconds."""
    quick = _QUICK.get(figure.module, "").split() if limit else []
    out = place / ("picture.png" if figure.module == "digit_picture" else "numbers.json")
    target = out if figure.module in _IN_A_FILE else place
    command = [sys.executable, "-m", f"benchmarks.papers.{figure.module}", *figure.script.split()[1:]]
    command += [*quick, *more, "--out", str(target)]
    began = time.perf_counter()
    # A session of its own, so that its workers end with it.
    with subprocess.Popen(command, start_new_session=True) as child:
        try:
            ended = child.wait(limit) == 0
        except subprocess.TimeoutExpired:
            ended = False
            os.killpg(child.pid, signal.SIGTERM)
    written = next(
        (path for path in (out, place / "results.json") if path.suffix == ".json" and path.exists()), None
    )
    numbers = json.loads(written.read_text()) if written else None
    return Outcome(ended, time.perf_counter() - began, numbers, sorted(place.glob("**/*.png")))


def keep(figure: Figure, found: Outcome, folder: Path) -> Numbers:
    """Write FIGURE.json and FIGURE.png; return the former."""
    report = {
        **figure._asdict(), "ended": found.ended, "seconds": found.seconds, "cpus": os.cpu_count(),
        "numbers": found.numbers,
    }  # fmt: skip
    (folder / f"{figure.name}.json").write_text(json.dumps(report, indent=1))
    picture = folder / f"{figure.name}.png"
    if len(found.pictures) == 1:
        shutil.copy(found.pictures[0], picture)
    else:
        draw(figure, found.numbers, picture)
        for path in found.pictures:
            shutil.copy(path, folder / f"{figure.name}-{path.stem}.png")
    return report


def draw(figure: Figure, numbers: Any, path: Path) -> None:
    """Draw curves over seconds where numbers have points, else bars of errors or accuracies beside the paper's."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = list(_rows(numbers))
    shape, axis = plt.subplots(figsize=(9, 5))
    lines = [row for row in rows if isinstance(row.get("points"), list)]
    for row in lines:
        pairs = [_pair(point) for point in row["points"]]
        axis.plot(*zip(*filter(None, pairs), strict=True), marker=".", label=_label(row)) if any(
            pairs
        ) else None
    bars = [] if lines else [row for row in rows if _height(row) is not None]
    axis.barh([_label(row) for row in bars], [_height(row) for row in bars])
    for place, row in enumerate(bars):  # the paper's number as a point
        if isinstance(row.get("published"), int | float):
            axis.plot(row["published"], place, "kx")
    axis.set(
        title=f"{figure.paper}, {figure.place}", xlabel="seconds" if lines else "%; crosses: the paper's"
    )
    if lines:
        axis.set(xscale="log", yscale="log")
        axis.legend(fontsize="x-small")
    shape.tight_layout()
    shape.savefig(path, dpi=110)
    plt.close(shape)


def _rows(numbers: Any) -> Iterator[Numbers]:
    if isinstance(numbers, dict):
        yield numbers
    for each in (
        numbers.values() if isinstance(numbers, dict) else numbers if isinstance(numbers, list) else ()
    ):
        yield from _rows(each)


def _height(row: Numbers) -> float | None:
    value = row.get("error", row.get("accuracy"))
    return value if isinstance(value, int | float) else None


def _pair(point: Any) -> tuple[float, float] | None:
    """Return seconds and the excess or error of a point of a curve."""
    if isinstance(point, list) and len(point) == 2:
        return point[0], point[1]
    if isinstance(point, dict) and "seconds" in point:
        value = next((point[name] for name in ("excess", "objective", "error") if point.get(name)), None)
        return None if value is None or value <= 0 else (point["seconds"], value)
    return None


def _label(row: Numbers) -> str:
    shown = [value for value in row.values() if isinstance(value, str)]
    sizes = [
        f"{name} {row[name]}" for name in ("block", "alpha", "lanes", "stages") if row.get(name) is not None
    ]
    return ", ".join([*shown, *sizes])[:60]


def main(argv: Sequence[str] | None = None) -> list[Numbers]:
    """Run the figures asked for and return their reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = figures()
    parser.add_argument("figures", nargs="*", help=f"all, list, or some of {', '.join(known)}")
    parser.add_argument("--budget", type=float, help="seconds for all of them")
    parser.add_argument("--real", type=Path, help="folder of the owners' files, for those that take it")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    options = parser.parse_args(argv)
    if options.figures in ([], ["list"]):
        print("\n".join(f"{f.name:15} {f.verdict:15} {f.paper}, {f.place}" for f in known.values()))
        return []
    asked = list(known) if options.figures == ["all"] else options.figures
    if unknown := set(asked) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    options.out.mkdir(parents=True, exist_ok=True)
    reports, left = [], options.budget
    for number, name in enumerate(asked):
        real = (
            ["--real", str(options.real)]
            if options.real and known[name].module in ("mcid", "sgd_qn", "bcd")
            else []
        )
        with tempfile.TemporaryDirectory(prefix="distls-figure-") as folder:
            limit = None if left is None else max(left, 1.0) / (len(asked) - number)
            found = run(known[name], Path(folder), limit, real)
            reports.append(keep(known[name], found, options.out))
        left = None if left is None else left - found.seconds
        state = "" if found.ended else ", not at its end"
        print(
            f"-- {name}: {known[name].verdict} (last full measurement); {found.seconds:.0f} s{state}",
            flush=True,
        )
    return reports


if __name__ == "__main__":
    main()
