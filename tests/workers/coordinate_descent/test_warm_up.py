"""The kernels of a fit are compiled by the driver: workers, whose plan has no room for it, load them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import labelled_rows, write_dataset

from distls.columns.sharding import add_columns

# Prints the variants of kernels that a fit adds to those of `prepare`.
PROGRAM = """
import sys
from distls import fit
from distls.solvers.coordinate_descent.bcd import BlockCoordinateDescent as Solver
from distls.workers.compilation.kernel_cache import KernelCache

found, prepare, load = [], Solver.prepare, KernelCache.load_overload

def warm(self, executor):
    prepare(self, executor)
    found.clear()

def seen(self, signature, context):
    found.append(f"{self._name} {signature}")
    return load(self, signature, context)

Solver.prepare, KernelCache.load_overload = warm, seen
fit("bcd", sys.argv[1], params={"alpha": 1e-3, "dtype": "float32", "tau": 0}, passes=2, executor="serial")
print(found)
"""


@pytest.mark.skipif(os.environ.get("DISTLS_NUMBA_CACHE") == "0", reason="kernels are not cached")
def test_sweeps_and_certificates_need_no_other_kernels(tmp_path: Path) -> None:
    x, y = labelled_rows(60, 40, 3)
    dataset = add_columns(write_dataset(tmp_path / "d", x, y, partition_rows=20).path, shard_size=1000)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(dataset.path)], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]", ended.stdout
