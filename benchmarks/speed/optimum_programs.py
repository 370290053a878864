"""From svmlight text to a model as one program: `distls train` with `sdca` beside LIBLINEAR's `train`.

    apt-get install liblinear-tools
    python -m benchmarks.speed.optimum_programs [--directory FOLDER] [--rows N] [--alpha A] [--liblinear PROGRAM]

Class 1 against the rest of generated `rcv1-4`, log loss, no intercept. distls proves a relative gap of 1e-3 and
writes its data set and run; LIBLINEAR has its dual solver and default tolerance. Wall seconds of whole processes, in
turns, with the kernels of distls compiled before.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sklearn.datasets import dump_svmlight_file

from benchmarks.quality.real import arrays_of
from benchmarks.speed.optimum import ROWS, prepared


def text_of(folder: Path, rows: int) -> Path:
    """Write the rows of class 1 against the rest as svmlight text, once."""
    file = folder / f"class-1-{rows}.svm"
    if not file.exists():
        _, binary, _ = prepared(folder, rows)
        x, y = arrays_of(binary)
        partial = file.with_suffix(".partial")
        dump_svmlight_file(x, 2 * y.astype(int) - 1, str(partial), zero_based=False)
        partial.rename(file)
    return file


def seconds_of(command: list[str]) -> float:
    """Return the wall seconds of a process that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Run both programs in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=f"{tempfile.gettempdir()}/distls-optimum")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--alpha", type=float, default=1e-6)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--liblinear", default="liblinear-train")
    given = parser.parse_args()
    folder = Path(given.directory)
    folder.mkdir(parents=True, exist_ok=True)
    text, run = text_of(folder, given.rows), folder / "program-run"
    ours = [
        sys.executable, "-m", "distls", "train", str(text), str(run), "--method", "sdca", "--transform", "",
        "-p", "loss=log", "-p", "fit_intercept=false", "-p", f"alpha={given.alpha}", "--rtol", "1e-3", "--workers", "2",
    ]  # fmt: skip
    theirs = [given.liblinear, "-s", "7", "-c", str(1.0 / (given.alpha * given.rows)), "-q", str(text)]
    theirs.append(str(folder / "program.model"))
    for repeat in range(given.repeats + 1):
        for name, command in (("distls train", ours), ("LIBLINEAR train -s 7", theirs)):
            for made in (run, Path(f"{run}-data")):
                shutil.rmtree(made, ignore_errors=True)
            if repeat or command is ours:  # the first compiles
                print(f"{name}: {seconds_of(command):.2f} s", flush=True)


if __name__ == "__main__":
    main()
