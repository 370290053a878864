"""Processor time of a pass over rows that are not cached, beside that of decoding them alone, by codec.

    python -m benchmarks.speed.beyond [--rows 150000] [--codecs zstd,lz4,none] [--passes 5] [--directory FOLDER]

rcv1-4 in one process, file cache warm, nothing kept: processor seconds, which what else the machine does hardly
changes. Where every core has a worker that decodes and computes, a pass takes as many times as long as decoding does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distls
from distls.execution.memory_budget import MemoryBudget
from distls.solvers.events import Callback
from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.dataset import Dataset
from distls.training.fitting import fit

# Reads of all rows for one update each, four outputs.
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"loss": "log"},
    "mcid": {"loss": "hinge"},
    "sdca": {"loss": "ovr_log", "alpha": 1e-6},
    "newton": {"loss": "log", "start": "zero"},
}
_REPEATS = 5


class _Times(Callback):
    """Passes and processor seconds at the end of each round."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []

    def on_round(self, event: Any) -> None:
        self.found.append((event.record["passes"], time.process_time()))


def decode_seconds(data: Dataset) -> float:
    """Return the least processor time of reading all partitions."""
    pool, found = BufferPool(), []
    for _ in range(_REPEATS + 1):
        begun = time.process_time()
        for index in range(len(data)):
            data.read(index, pool)
        found.append(time.process_time() - begun)
    return min(found[1:])


def pass_seconds(data: Dataset, method: str, passes: float) -> float:
    """Return the least processor time of a later pass of a fit that keeps no partition."""
    times, params = _Times(), {**SETTINGS[method], "fit_intercept": False}
    alone = MemoryBudget(cache_limit=0)
    fit(method, data, params=params, passes=passes, callbacks=[times], memory=alone, eval_every=1000)
    pairs = list(zip(times.found, times.found[1:], strict=False))
    return min((b - a) / (q - p) for (p, a), (q, b) in pairs if q > p)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print; return milliseconds by codec and method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--codecs", default="zstd,lz4,none")
    parser.add_argument("--passes", type=float, default=5.0)
    parser.add_argument("--directory", type=Path)
    options, results = parser.parse_args(argv), {}
    with tempfile.TemporaryDirectory(prefix="distls-beyond-") as folder:
        for codec in options.codecs.split(","):
            path = (options.directory or Path(folder)) / codec
            if not path.exists():
                distls.generate("rcv1-4", path, rows=options.rows, compress=codec)
            data = distls.open_dataset(path)
            own = {"stored MB": float(data.stored_bytes.sum()) / 1e6, "decode ms": 1e3 * decode_seconds(data)}
            print(f"{codec}: {own['stored MB']:.0f} MB, decoding {own['decode ms']:.0f} ms", flush=True)
            for method in SETTINGS:
                own[method] = 1e3 * pass_seconds(data, method, options.passes)
                times = own[method] / own["decode ms"]
                print(f"  {method:7} {own[method]:6.0f} ms a pass, {times:.2f} times decoding", flush=True)
            results[codec] = own
    return results


if __name__ == "__main__":
    main()
