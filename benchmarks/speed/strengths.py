"""CPU seconds of ten strengths at one read beside those of one strength, all from the store.

    python -m benchmarks.speed.strengths [--rows N] [--repeats N] [--methods sgd,mcid,sgdqn] [--sets rcv1-53,ccat]
        [--out FILE.json]

Generated data with nothing in the cache (``cache_limit=0``), everything in one process. One strength and ten take
turns, and the least CPU seconds of each are shown, as a busy machine distorts these less: of the training and the
evaluation of the objective, with imports and kernels loaded before. `ten apart` is ten times one strength.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import distls
from distls.execution.memory_budget import MemoryBudget
from distls.storage.dataset.dataset import Dataset
from distls.synthetic.generation import generate
from distls.training.fitting import fit

_FROM_THE_STORE = MemoryBudget(cache_limit=0)
_TEN = {"alpha": "path", "alphas": 10}


def _seconds(method: str, data: Dataset, judge: Dataset, params: dict[str, Any], passes: float) -> float:
    began = time.process_time()
    fit(method, data, params=params, passes=passes, select=judge, memory=_FROM_THE_STORE, executor="serial")
    return time.process_time() - began


def measured(method: str, data: Dataset, judge: Dataset, passes: float, repeats: int) -> dict[str, Any]:
    """Return the CPU seconds of one strength and of ten."""
    one = {"alpha": 1e-4 * data.meta.mean_square_norm}  # the middle of the ten
    for params in (one, _TEN):
        _seconds(method, data, judge, params, passes)  # loads kernels and files
    found: dict[str, list[float]] = {"one": [], "ten": []}
    for _ in range(repeats):
        for name, params in (("one", one), ("ten", _TEN)):
            found[name].append(_seconds(method, data, judge, params, passes))
    least = {name: min(seconds) for name, seconds in found.items()}
    return {"method": method, **least, "ratio": least["ten"] / least["one"]}


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--passes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", default="sgd,mcid,sgdqn")
    parser.add_argument("--sets", default="rcv1-4,rcv1-53")
    parser.add_argument("--out")
    asked = parser.parse_args()
    lines = []
    print(f"{'set':<10} {'method':<8} {'one, s':>8} {'ten, s':>8} {'ten apart':>10} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.sets.split(","):
            data, _ = generate(name, Path(folder) / name, rows=asked.rows)
            judge, _ = generate(name, Path(folder) / f"{name}-judge", rows=1000, seed=1)
            for method in asked.methods.split(","):
                line = {"set": name, **measured(method, data, judge, asked.passes, asked.repeats)}
                lines.append(line)
                print(
                    f"{name:<10} {method:<8} {line['one']:>8.2f} {line['ten']:>8.2f} {10 * line['one']:>10.2f} "
                    f"{line['ratio']:>6.2f}",
                    flush=True,
                )
    if asked.out:
        setting = {"rows": asked.rows, "passes": asked.passes, "distls": distls.__version__}
        Path(asked.out).write_text(json.dumps({**setting, "results": lines}, indent=1))


if __name__ == "__main__":
    _main()
