"""The figures and tables of the five papers by name: ``python -m benchmarks.papers FIGURE... | all | list``.

    DISTLS_DATA=FOLDER python -m benchmarks.papers all --out FOLDER [--budget 3600] [--real DIR] [--directory FOLDER]

For each one FOLDER/FIGURE.json, with the numbers, seconds, the verdict that these numbers give (`verdicts`), and that
of the last full measurement, from docs/papers/figures.md; and FOLDER/FIGURE.svg, with the axes and curves of the paper
and its own numbers as diamonds. With --budget each is measured on less (fewer seeds, rows or strengths), and has the
seconds that the others are known to leave; one that is not at its end by then is cut, one that would not fit any more
is left out, and both are said and have no verdict.
Sets are made once in --directory. Exit code 1: a script failed, or no figure came to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.papers.panels import draw
from benchmarks.papers.verdicts import verdict_of

Numbers = dict[str, Any]
# Of a figure with a budget: about its seconds on two idle cores, and the arguments that make it as quick.
_QUICK = {
    "lsr-table-1": (60, "--seeds 1 --no-tuning --share 0.25"),
    "lsr-table-2": (140, "--rows 20000"),
    "lsr-figure-1": (85, "--share 0.25"),
    "lsr-spectrum": (45, "--share 0.3"),
    "lsr-figure-2": (750, "--share 0.25 --limit 240"),
    "lsr-figure-3": (700, "--share 0.05"),
    "mcid-figure-1": (30, "--seeds 1 --rows 131072 --iterations 65536"),
    "mcid-figure-2": (170, "--seeds 1 --rows 131072 --iterations 65536"),
    "mcid-figure-3": (100, "--seeds 1 --rows 131072 --iterations 131072"),
    "mcid-figure-4": (110, "--seeds 1 --rows 131072 --limit 20"),
    "bcd-figures": (80, "--sets 20news-hashed --alphas 1e-3 --limit 5"),
    "bcd-losses": (45, "--sets 20news --alphas 1e-3,3e-4,1e-4 --seeds 1 --limit 5"),
    "bcd-passes": (470, "--sets 20news --limit 10"),
    "bcd-extensions": (55, "--alphas 1e-2 --sets 20news"),
    "csgd-figure-2": (35, "--seeds 1"),
    "csgd-figure-3": (20, "--seeds 1"),
    "csgd-figure-4": (20, "--seeds 1"),
    "qn-table-5": (70, "--rows 100000 --repeats 3"),
    "qn-figure-3": (130, "--seeds 1 --rows 50000 --one-lane"),
    "qn-figure-4": (200, "--seeds 1 --rows 50000 --one-lane"),
}
_IN_A_FILE = ("least_squares", "bcd_extensions", "digit_picture")  # modules whose --out is a file
_OF_OWNERS = ("mcid", "sgd_qn", "bcd", "least_squares")  # those with --real
_WITHOUT_DATA = ("mcid", "sgd_qn")  # those that generate all they need
_PAGE = Path(__file__).parents[2] / "docs" / "papers" / "figures.md"


class Figure(NamedTuple):
    """A figure or a table: a row of the page."""

    name: str
    paper: str
    place: str
    verdict: str  # of the last full measurement
    why: str
    script: str  # module of this folder, and its arguments

    @property
    def module(self) -> str:
        """The module alone."""
        return self.script.split()[0]

    @property
    def needs_data(self) -> bool:
        """Whether public sets are measured."""
        return self.module not in _WITHOUT_DATA and "simulations" not in self.script


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

    status: str  # whole, cut, failed, or left out and why
    seconds: float = 0.0
    cpu: float = 0.0  # of its processes but the workers of a local cluster, whom nobody waits for
    numbers: Any = None


def run(figure: Figure, made: Path, limit: float | None, more: Sequence[str]) -> Outcome:
    """Run the script of a figure in a process of its own, for at most `limit` seconds, with its sets in `made`."""
    quick = _QUICK[figure.name][1].split() if limit is not None else []
    with tempfile.TemporaryDirectory(prefix="distls-figure-") as folder:
        target = Path(folder) / ("results.json" if figure.module in _IN_A_FILE else "")
        command = [sys.executable, "-m", f"benchmarks.papers.{figure.module}", *figure.script.split()[1:]]
        command += [*quick, *more, "--directory", str(made), "--out", str(target)]
        began, cpu = time.perf_counter(), _cpu_of_children()
        # a session of its own, so that its workers end with it
        with subprocess.Popen(command, start_new_session=True) as child:
            try:
                status = "whole" if child.wait(limit) == 0 else "failed"
            except subprocess.TimeoutExpired:
                status = "cut"
            finally:
                _end(child)
        written = Path(folder) / "results.json"
        numbers = json.loads(written.read_text()) if written.exists() else None
    if status != "whole":
        shutil.rmtree(made, ignore_errors=True)  # a set may be half made
    return Outcome(status, time.perf_counter() - began, _cpu_of_children() - cpu, numbers)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Stop a script that has not ended, and its workers, politely first."""
    for asked in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            os.killpg(child.pid, asked)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10.0)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def keep(figure: Figure, found: Outcome, folder: Path) -> Numbers:
    """Write FIGURE.json, and FIGURE.svg where all numbers are there; return the former."""
    report = {**figure._asdict(), **found._asdict(), "cpus": os.cpu_count(), "measured": "none", "claims": []}
    if found.status == "whole":
        try:
            draw(figure.name, found.numbers, folder / f"{figure.name}.svg")
            report["measured"], report["claims"] = verdict_of(figure.name, found.numbers)
        except (LookupError, TypeError, ValueError) as problem:  # the others are still to be measured
            report["status"] = f"failed: {problem!r} in its numbers"
    (folder / f"{figure.name}.json").write_text(json.dumps(report, indent=1))
    return report


def said(report: Numbers) -> str:
    """Return the line of a figure."""
    failing = "".join(f"; not: {claim}" for claim, holds in report["claims"] if not holds)
    return (
        f"-- {report['name']}: {report['measured']} ({report['verdict']} in the last full measurement); "
        f"{report['status']}, {report['seconds']:.0f} s, {report['cpu']:.0f} CPU s{failing}"
    )


def measured(asked: Sequence[Figure], options: argparse.Namespace, made: Path) -> list[Numbers]:
    """Run figures one after another and say of each how it ended."""
    reports, began = [], time.perf_counter()
    for number, figure in enumerate(asked):
        limit = None
        if options.budget is not None:
            left = options.budget - (time.perf_counter() - began)
            own, rest = _QUICK[figure.name][0], sum(_QUICK[each.name][0] for each in asked[number:])
            limit = min(max(left - (rest - own), own), left)
        if figure.needs_data and "DISTLS_DATA" not in os.environ:
            found = Outcome("left out: set DISTLS_DATA to the folder of the data sets")
        elif limit is not None and limit < own:
            found = Outcome(f"left out: it takes about {own} s, and {max(left, 0.0):.0f} s are left")
        else:
            real = ["--real", str(options.real)] if options.real and figure.module in _OF_OWNERS else []
            found = run(figure, made / figure.module, limit, real)
        reports.append(keep(figure, found, options.out))
        print(said(reports[-1]), flush=True)
    return reports


def main(argv: Sequence[str] | None = None) -> int:
    """Run the figures asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = figures()
    parser.add_argument("figures", nargs="*", help=f"all, list, or some of {', '.join(known)}")
    parser.add_argument("--budget", type=float, help="seconds for all of them")
    parser.add_argument("--real", type=Path, help="folder of the owners' files, for those that take it")
    parser.add_argument("--directory", type=Path, help="where sets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    options = parser.parse_args(argv)
    if options.figures in ([], ["list"]):
        print("\n".join(f"{f.name:15} {f.verdict:15} {f.paper}, {f.place}" for f in known.values()))
        return 0
    names = list(known) if options.figures == ["all"] else options.figures
    if unknown := set(names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # as Ctrl-C, so that the script at work ends too
    with tempfile.TemporaryDirectory(prefix="distls-sets-") as folder:
        made = (options.directory or Path(folder)).resolve()
        reports = measured([known[name] for name in names], options, made)
    states = [report["status"].split(":")[0] for report in reports]
    for each in (states, [report["measured"] for report in reports]):
        print(", ".join(f"{each.count(one)} {one}" for one in dict.fromkeys(each)), flush=True)
    return int("failed" in states or "whole" not in states)


if __name__ == "__main__":
    sys.exit(main())
