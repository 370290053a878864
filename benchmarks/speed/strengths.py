"""CPU seconds of ten strengths at one read beside those of one strength, all from the store.

    python -m benchmarks.speed.strengths [--rows N] [--repeats N] [--methods sgd,mcid,sgdqn] [--sets rcv1-53,ccat]
        [--out FILE.json]
    python -m benchmarks.speed.strengths --kernels [--rows N] [--repeats N]

Generated data with nothing in the cache (``cache_limit=0``), everything in one process. One strength and ten take
turns, and the least CPU seconds of each are shown, as a busy machine distorts these less: of the training and the
evaluation of the objective, with imports and kernels loaded before. `ten apart` is ten times one strength.

With --kernels: a pass of the kernel of one model beside that of several models, given one
(docs/decisions/0035-batches-of-fits.md), on rows of 75 Zipf columns, with the same bits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import distls
from distls.execution.memory_budget import MemoryBudget
from distls.storage.dataset.dataset import Dataset
from distls.storage.rows import CsrRows
from distls.synthetic.generation import generate
from distls.training.fitting import fit
from distls.workers.losses.loss_registry import loss_named
from distls.workers.stochastic.sgd_kernels import PEGASOS, SgdSettings, new_clock, sgd_block
from distls.workers.stochastic.sgd_together import SideSettings, sgd_side_by_side_block

_FROM_THE_STORE = MemoryBudget(cache_limit=0)
_TEN = {"alpha": "path", "alphas": 10, "fit_intercept": False}


def _seconds(method: str, data: Dataset, judge: Dataset, params: dict[str, Any], passes: float) -> float:
    began = time.process_time()
    fit(method, data, params=params, passes=passes, select=judge, memory=_FROM_THE_STORE, executor="serial")
    return time.process_time() - began


def measured(method: str, data: Dataset, judge: Dataset, passes: float, repeats: int) -> dict[str, Any]:
    """Return the CPU seconds of one strength and of ten."""
    one = {"alpha": 1e-4 * data.meta.mean_square_norm, "fit_intercept": False}  # the middle of the ten
    for params in (one, _TEN):
        _seconds(method, data, judge, params, passes)  # loads kernels and files
    found: dict[str, list[float]] = {"one": [], "ten": []}
    for _ in range(repeats):
        for name, params in (("one", one), ("ten", _TEN)):
            found[name].append(_seconds(method, data, judge, params, passes))
    least = {name: min(seconds) for name, seconds in found.items()}
    return {"method": method, **least, "ratio": least["ten"] / least["one"]}


def one_model(loss: str, k: int, n_rows: int, repeats: int) -> dict[str, Any]:
    """Return the least CPU seconds of a pass of either kernel; raise ValueError if their weights differ."""
    rng, n_features, width = np.random.default_rng(k), 47_000, 75
    columns = np.sort(rng.zipf(1.3, (n_rows, width)) % n_features, axis=1).astype(np.uint32).ravel()
    indptr = np.arange(0, n_rows * width + 1, width, dtype=np.int64)
    rows = CsrRows(indptr, columns, rng.random(len(columns)).astype(np.float32) / 8)
    y, order = rng.integers(0, k, n_rows).astype(np.int32), rng.permutation(n_rows)
    alone = SgdSettings(loss_named(loss), 1e-4, schedule=PEGASOS, t0=100.0, fit_intercept=True)
    own = (np.array([getattr(alone, name)], float) for name in SideSettings._fields[:4])
    several = SideSettings(*own, *(getattr(alone, name) for name in SideSettings._fields[4:]))
    kernels = {
        "one": (sgd_block, np.zeros(k), new_clock(), alone),
        "several": (sgd_side_by_side_block, np.zeros((1, k)), new_clock()[None], several),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(repeats + 1):
        weights = []
        for name, (block, zero, clock, settings) in kernels.items():
            u, b, qb, at = np.zeros((n_features, k), np.float32), zero.copy(), zero.copy(), clock.copy()
            began = time.process_time()
            block(rows, y, np.empty(0), order, u, u[:0], b, qb, at, settings)
            seconds[name].append(time.process_time() - began)
            weights.append(u)
        if not np.array_equal(*weights):
            raise ValueError(f"{loss}, {k} outputs: the kernels differ")
    least = {name: min(each[1:]) for name, each in seconds.items()}  # the first compiles
    return {"loss": loss, "k": k, **least, "ratio": least["several"] / least["one"]}


def _kernels(rows: int, repeats: int) -> list[dict[str, Any]]:
    lines = [one_model(loss, k, rows, repeats) for loss in ("softmax", "crammer_singer") for k in (2, 4, 8, 16)]
    print(f"{'loss':<15} {'outputs':>7} {'one, s':>8} {'several, s':>10} {'ratio':>6}")
    for line in lines:
        print(f"{line['loss']:<15} {line['k']:>7} {line['one']:>8.4f} {line['several']:>10.4f} {line['ratio']:>6.2f}")
    return lines


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--passes", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", default="sgd,mcid,sgdqn")
    parser.add_argument("--sets", default="rcv1-4,rcv1-53")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--out")
    asked = parser.parse_args()
    lines = _kernels(asked.rows, asked.repeats) if asked.kernels else _strengths(asked)
    if asked.out:
        setting = {"rows": asked.rows, "passes": asked.passes, "distls": distls.__version__}
        Path(asked.out).write_text(json.dumps({**setting, "results": lines}, indent=1))


def _strengths(asked: argparse.Namespace) -> list[dict[str, Any]]:
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
    return lines


if __name__ == "__main__":
    _main()
