"""The kernels of this version and of another checkout in turns, on one core: speed of this one over the other.

    python -m benchmarks.speed.kernel_turns FOLDER [--kernels sdca] [--k 2] [--rows 30000]
        [--repeats 50] [--out FILE.json]

Each repetition of one follows one of the other, so that a busy machine slows down both: the median of the quotients of
their CPU times tells a few percent apart where the table of `benchmarks.speed.kernels`, of one version after the
other, has differences of a third. Cases and kernels are that table's, on sparse rows; FOLDER runs with this Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed import kernels

_ROOT = Path(__file__).parents[2]


def serve(numbers: Sequence[str], rows: int) -> None:
    """Run each of these cases once, and then as often as a line is read; print the CPU seconds of each run."""
    for case in (kernels.cases(tiny=False)[int(number)] for number in numbers):
        run = kernels.runner(case, kernels.text_block(rows, case.k))
        run()
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "next\n":
                break
            start = time.thread_time()
            run()
            print(time.thread_time() - start, flush=True)


def _started(tree: Path, numbers: Sequence[str], rows: int) -> subprocess.Popen[str]:
    """Start `serve` with the package of a tree, and this file."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "--serve", *numbers, "--rows", str(rows)]
    return subprocess.Popen(
        command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _asked(child: Any, line: str) -> str:
    """Send a line to a child, and return what it prints next."""
    child.stdin.write(line)
    child.stdin.flush()
    while (said := child.stdout.readline()) and not (said[0].isdigit() or said == "ready\n"):
        pass  # a kernel that is compiled says so
    if not said:
        raise SystemExit("a version has ended: see above")
    return said


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Print and return, for each case, the speed of this version over the other's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=_ROOT, help="a checkout of another version")
    parser.add_argument("--kernels", default="", help="only those whose names begin so, as in sdca")
    parser.add_argument("--k", type=int, help="only with so many classes")
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    parser.add_argument("--serve", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve is not None:
        serve(options.serve, options.rows)
        return {}
    chosen = {
        str(number): case
        for number, case in enumerate(kernels.cases(tiny=False))
        if case.layout == "csr" and case.kernel.startswith(options.kernels) and options.k in (None, case.k)
    }
    trees = options.folder.resolve(), _ROOT
    children = [_started(tree, list(chosen), options.rows) for tree in trees]
    print(f"{'kernel':10} {'k':>5} {'dtype':8} {'loss':15} {'speed':>6}")
    report = {}
    for place, case in enumerate(chosen.values()):
        for child in children:
            _asked(child, "next\n" if place else "")
        quotients = []
        for turn in range(options.repeats):
            order = children if turn % 2 else children[::-1]
            seconds = {id(child): float(_asked(child, "go\n")) for child in order}
            quotients.append(seconds[id(children[0])] / seconds[id(children[1])])
        name = f"{case.kernel:10} {case.k:5} {case.dtype:8} {case.loss:15}"
        report[name] = median(quotients)
        print(f"{name} {report[name]:6.2f}", flush=True)
    for child in children:
        child.communicate()
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return report


if __name__ == "__main__":
    main()
