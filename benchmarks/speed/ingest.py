"""Seconds of whole `distls ingest` commands on large files of text, beside other versions of distls, in turns.

    python -m benchmarks.speed.ingest [--megabytes N] [--kinds A,B] [--rounds N] [--workers N] [--against FOLDER ...]
        [--directory FOLDER] [--out FILE.json]

Each kind of file is made up once. ``wall`` is the median of a command's seconds, ``cpu`` that of its own process: with
``--workers 0`` of all that it does, which tells something beside other work too. A first, uncounted command on a small
file compiles the kernels. FOLDER of --against is a checkout of another version, which runs with this Python.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[2]
_BLOCK_ROWS, _WARM_BYTES = 2**17, 2**24
_COLOURS = np.array(["black", "blue", "green", "red", "white"])
_TABLE = ("--label-column", "y", "--na", "0")


def _numbers(rng: np.random.Generator, n_rows: int, n_columns: int) -> list[list[str]]:
    return [[f"{value:.5g}" for value in rng.standard_normal(n_rows).tolist()] for _ in range(n_columns)]


def _table(columns: Sequence[Sequence[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))


def _mixed(rng: np.random.Generator, n_rows: int, dates: str) -> str:
    """Return rows of three numbers, of which some are missing, two categories, maybe a date, and a label."""
    numbers = _numbers(rng, n_rows, 3)
    for row in rng.integers(0, n_rows, n_rows // 10).tolist():
        numbers[2][row] = ""
    words = [_COLOURS[rng.integers(0, 5, n_rows)].tolist() for _ in range(2)]
    unit = {"days": "D", "seconds": "s"}.get(dates, "")
    span = 400 if unit == "D" else 4 * 365 * 86_400  # some versions take days for categories, of which they have a most
    first = np.datetime64("2020-01-01", unit or "D")
    times = [np.datetime_as_string(first + rng.integers(0, span, n_rows)).tolist()] if unit else []
    return _table([*numbers, *words, *times, list(map(str, rng.integers(0, 2, n_rows)))])


def _svmlight(rng: np.random.Generator, n_rows: int) -> str:
    columns = np.sort(rng.integers(1, 40_000, (n_rows, 12)) + 40_000 * np.arange(12), axis=1)
    values = rng.random((n_rows, 12))
    pairs = zip(columns.tolist(), values.tolist(), strict=True)
    rows = (" ".join(f"{c}:{v:.4g}" for c, v in zip(*pair, strict=True)) for pair in pairs)
    return "".join(f"{label} {row}\n" for label, row in zip(rng.integers(0, 2, n_rows), rows, strict=True))


# header, rows from a generator and their number, ending of the file's name, further words of the command
Kind = tuple[str, Callable[[np.random.Generator, int], str], str, tuple[str, ...]]
KINDS: dict[str, Kind] = {
    "numbers": (
        ",".join([*(f"n{k}" for k in range(12)), "y"]) + "\n",
        lambda rng, n: _table([*_numbers(rng, n, 12), list(map(str, rng.integers(0, 2, n)))]),
        "csv",
        _TABLE,
    ),
    "categories": ("a,b,c,d,e,y\n", lambda rng, n: _mixed(rng, n, ""), "csv", _TABLE),
    "dates": ("a,b,c,d,e,when,y\n", lambda rng, n: _mixed(rng, n, "days"), "csv", _TABLE),
    "times": ("a,b,c,d,e,when,y\n", lambda rng, n: _mixed(rng, n, "seconds"), "csv", _TABLE),
    "svmlight": ("", _svmlight, "svm", ()),
}


def _write(path: Path, kind: Kind, n_bytes: int) -> None:
    """Write about `n_bytes` of rows, the same again and again."""
    header, rows, *_ = kind
    block = rows(np.random.default_rng(0), min(_BLOCK_ROWS, max(n_bytes // 40, 1))).encode()
    with path.open("wb") as file:
        file.write(header.encode())
        for _ in range(max(1, n_bytes // len(block))):
            file.write(block)


def _seconds(tree: Path, words: Sequence[str], output: Path) -> tuple[float, float]:
    """Return the seconds of an ingest by the version in `tree`, and the CPU seconds of its process."""
    shutil.rmtree(output, ignore_errors=True)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "distls", "ingest", *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr.strip()}")
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(output)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the seconds of each version on a kind of file."""
    kind = KINDS[name]
    source, small, output = folder / f"large.{kind[2]}", folder / f"small.{kind[2]}", folder / "data"
    n_bytes = int(options.megabytes * 1e6)
    _write(source, kind, n_bytes)
    _write(small, kind, min(n_bytes, _WARM_BYTES))
    where = ["--workers", str(options.workers)] if options.workers else ["--executor", "serial"]
    more = [*kind[3], *where]
    trees = [_ROOT, *options.against]
    for tree in trees:
        _seconds(tree, [str(small), str(output), *more], output)
    turns = [
        [_seconds(tree, [str(source), str(output), *more], output) for tree in trees] for _ in range(options.rounds)
    ]
    rows = []
    for tree, own in zip(trees, zip(*turns, strict=True), strict=True):
        walls, cpus = zip(*own, strict=True)
        medians = {"wall": statistics.median(walls), "cpu": statistics.median(cpus)}
        version = "here" if tree == _ROOT else str(tree)
        rows.append({"kind": name, "version": version, **medians, "walls": walls, "cpus": cpus})
    source.unlink()
    return rows


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the table, write it as JSON where asked, and return it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="0: in the process of the command")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="checkouts of other versions")
    parser.add_argument("--directory", type=Path, help="for the files; default: that of temporary ones")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
    options.against = [tree.resolve() for tree in options.against]
    results = []
    with tempfile.TemporaryDirectory(prefix="distls-ingest-", dir=options.directory) as folder:
        print(f"{'kind':12}{'wall':>8}{'cpu':>8}  version")
        for name in options.kinds.split(","):
            for row in measure(name, Path(folder), options):
                results.append(row)
                print(f"{name:12}{row['wall']:8.1f}{row['cpu']:8.1f}  {row['version']}", flush=True)
    asked = {name: getattr(options, name) for name in ("megabytes", "rounds", "workers")}
    report = {**asked, "results": results}
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return report


if __name__ == "__main__":
    main()
