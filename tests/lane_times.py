"""Seconds and compiled kernels by test: what to leave in the fast lane, and what it costs on a fresh machine.

    NUMBA_CACHE_DIR=$(mktemp -d) LANE_TIMES=times pytest -p lane_times    # a run with an empty cache of kernels
    python tests/lane_times.py times                                     # the dearest tests and files of it

A record for each test is appended to ``times/PROCESS.jsonl``: wall and CPU seconds of this process and of children that
have ended, and the kernels that this process compiled for it. Workers of clusters compile too; what they take is in the
wall seconds alone.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_compiled: list[tuple[str, float, str]] = []  # kernel, seconds, types of its arguments
_begun: list[float] = []


def _listen() -> None:
    """Note each kernel that numba compiles from now on; helpers compiled within one belong to it."""
    from numba.core.event import Listener, register

    class Compilations(Listener):
        def on_start(self, event: Any) -> None:
            _begun.append(time.thread_time())

        def on_end(self, event: Any) -> None:
            seconds = time.thread_time() - _begun.pop()
            if not _begun:
                function = event.data["dispatcher"].py_func
                name = f"{function.__module__}.{function.__qualname__}"
                _compiled.append((name, round(seconds, 3), str(event.data["args"])))

    register("numba:compile", Compilations())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Listen, in the processes that run tests."""
    if "LANE_TIMES" in os.environ:
        Path(os.environ["LANE_TIMES"]).mkdir(parents=True, exist_ok=True)
        _listen()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write the record of a test."""
    _compiled.clear()
    wall, before = time.perf_counter(), os.times()
    result = yield
    if "LANE_TIMES" in os.environ:
        after, process = os.times(), os.environ.get("PYTEST_XDIST_WORKER", "main")
        record = {
            "test": item.nodeid,
            "wall": round(time.perf_counter() - wall, 3),
            "cpu": round(sum(after[:4]) - sum(before[:4]), 3),
            "compiled": _compiled.copy(),
        }
        with (Path(os.environ["LANE_TIMES"]) / f"{process}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    return result


def _sums(records: list[dict[str, Any]], *, files: bool) -> list[tuple[str, float, float, float, int]]:
    """Return rows of (name, wall, cpu, seconds of compilation, kernels), the dearest first."""
    rows: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0])
    for record in records:
        row = rows[record["test"].split("::")[0] if files else record["test"]]
        compiled = record["compiled"]
        for column, value in enumerate((record["wall"], record["cpu"], sum(s for _, s, _ in compiled), len(compiled))):
            row[column] += value
    return sorted(((name, *row) for name, row in rows.items()), key=lambda row: -row[2])


def main(folder: str) -> None:
    """Print the sums of a run, its dearest files and tests."""
    lines = [line for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    kernels = [(s, name, types, r["test"]) for r in records for name, s, types in r["compiled"]]
    print(f"{len(records)} tests, {sum(r['wall'] for r in records):.0f} s, CPU {sum(r['cpu'] for r in records):.0f} s")
    print(f"{len(kernels)} kernels compiled in {sum(kernel[0] for kernel in kernels):.0f} s of these")
    for title, rows in (("files", _sums(records, files=True)), ("tests", _sums(records, files=False))):
        print(f"\n{title}: wall, CPU, compiling [s], kernels")
        for name, wall, cpu, compiling, count in rows[:60]:
            print(f"{wall:8.1f} {cpu:8.1f} {compiling:8.1f} {count:4.0f}  {name}")
    print("\nkernels: seconds, the first test that needs it, types")
    for seconds, name, types, test in sorted(kernels, reverse=True)[:60]:
        print(f"{seconds:8.1f}  {name}  {test}\n          {types}")


if __name__ == "__main__":
    main(sys.argv[1])
