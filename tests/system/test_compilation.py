"""The same bits in the process that compiles the kernels and in one that loads them from the disk cache."""

import os
import subprocess
import sys

import pytest
from helpers import labelled_rows, write_dataset

from distls.storage.model.model import load_model
from distls.workers.ingestion import compile_beside

PROGRAM = """
import hashlib, sys
import numpy as np
from distls.storage.rows import CsrRows
from distls.workers.stochastic.sgd import AdagradUpdate
from distls.workers.stochastic.second_order.rls import RlsUpdate
from distls.workers.stochastic.sgd import SgdUpdate
from distls.workers.stochastic.second_order.sgdqn import SgdqnUpdate

rng = np.random.default_rng(0)
n, d, k = 400, 40, 3
x = np.round(rng.standard_normal((n, d)), 2) * (rng.random((n, d)) < 0.4)
indptr = np.concatenate([[0], np.cumsum((x != 0).sum(axis=1))]).astype(np.int64)
rows = CsrRows(indptr, np.nonzero(x)[1].astype(np.uint16), x[x != 0].astype(np.float32))
y = rng.integers(0, k, n).astype(np.int32)
update = {update}
learner = update.start_lane(update.zeros((d, k), "float32"), 0.0, 100.0)
loss, _ = learner.learn(rows, y, np.empty(0), np.arange(n))
digest = hashlib.sha256(b"".join(array.tobytes() for array in learner.arrays())).hexdigest()
print(type(update).__name__, repr(loss), digest)
print(sum(len(files) for _, _, files in __import__("os").walk(sys.argv[1])))
"""

UPDATES = {
    "sgdqn": 'SgdqnUpdate("ovr_squared_hinge", 0.02, True, t0=60.0, skip=7, metric="paper")',
    "sgd": 'SgdUpdate("softmax", 0.01, True, t0=5.0, averaging=True)',
    "adagrad": 'AdagradUpdate("softmax", 0.01, True, eta0=0.7)',
    "rls": 'RlsUpdate("ovr_log", 1e-3, True, n_rows=n)',
}


def _run(update, cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(update=update), str(cache)], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_who_compiles_has_the_bits_of_who_loads(tmp_path, update):
    cache = tmp_path / "cache"
    cache.mkdir()
    *compiled, made = _run(update, cache)
    *loaded, kept = _run(update, cache)
    assert len(compiled) == 1
    assert int(made) > 0
    assert kept == made, "the second process has compiled too"
    assert loaded == compiled


@pytest.mark.slow
def test_a_fit_whose_kernels_are_damaged_compiles_them_anew(tmp_path):
    """Fault: Damaged kernels of every process | before a fit with two workers | one note of each process; they are
    compiled again | bits"""
    write_dataset(tmp_path / "data", *labelled_rows(300, 20, 3))
    cache = tmp_path / "cache"

    def fitted(run, *options):
        command = [
            "fit", "mcid", tmp_path / "data", tmp_path / run, "-p", "alpha=0.01", "--passes", 2, *options,
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "distls", *map(str, command), "--quiet"],
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return load_model(tmp_path / run).sha256, done.stderr

    digest, told = fitted("first", "--executor", "serial")
    assert told == ""
    # the process that workers are forked from loads it too
    objects = list(cache.rglob("rounds.averaging.merge_mean*.nbc"))
    assert objects
    for path in objects:
        path.write_bytes(path.read_bytes()[:-200] + bytes(200))
    again, told = fitted("second", "--workers", 2)
    assert again == digest
    assert all(
        line.endswith("damaged file among compiled kernels; they are compiled again") for line in told.splitlines()
    )
    assert told
    assert fitted("third", "--workers", 2) == (digest, "")


INGESTS = """
import sys, numpy as np, scipy.sparse
import distls
from distls.workers.ingestion import compile_beside
dense = np.random.default_rng(0).random((60, 3))
for name, rows in (("dense", dense), ("sparse", scipy.sparse.csr_matrix(dense))):
    distls.ingest(rows, f"{sys.argv[1]}/{name}", y=np.arange(60) % 2, transform=("auto",),)
for kernel in (*compile_beside._KERNELS, compile_beside.gather_pairs):
    print(kernel.__name__, sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_an_ingest_compiles_nothing_of_what_was_compiled_beside_it(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", compile_beside._PROGRAM], env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-c", INGESTS, str(tmp_path)], env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for line in done.stdout.splitlines()[-6:]:
        name, loaded, compiled = line.split()
        assert int(loaded) > 0, name
        assert compiled == "0", name


@pytest.mark.parametrize(("here", "cores"), [(False, 8), (True, 1)])
def test_no_second_process_where_workers_ingest_or_no_core_is_free(monkeypatch, here, cores):
    monkeypatch.setattr(compile_beside, "available_cores", lambda: cores)
    monkeypatch.setattr(compile_beside, "is_stored", lambda kernel: False)
    monkeypatch.setattr(compile_beside.subprocess, "Popen", None)
    with compile_beside.compiled_beside(here):
        pass


@pytest.mark.slow
def test_a_second_process_compiles_once(monkeypatch, tmp_path):
    # it ends with the block, and is not started where all is stored
    monkeypatch.setattr(compile_beside, "available_cores", lambda: 2)
    monkeypatch.setattr(compile_beside, "is_stored", lambda kernel: False)
    monkeypatch.setattr(compile_beside, "_PROGRAM", "import time; time.sleep(600)")
    started, start = [], subprocess.Popen
    monkeypatch.setattr(
        compile_beside.subprocess, "Popen", lambda *a, **b: started.append(start(*a, **b)) or started[-1]
    )
    with compile_beside.compiled_beside(True):
        assert started[0].poll() is None
    assert started[0].returncode is not None
    monkeypatch.setattr(compile_beside, "is_stored", lambda kernel: True)
    with compile_beside.compiled_beside(True):
        assert len(started) == 1
