"""What a run keeps of its rows, exchanged for that of another run with the same partitions, rounds and shapes."""

import shutil

import numpy as np
import pytest

import distls
from distls.storage.errors import CorruptDataError, FormatError
from distls.testing.solvers import StopAfter, interrupted

METHODS = {
    "sdca": ("sdca", {"alpha": 0.01, "lanes": 2}, {"passes": 9}),
    "classes": ("ovr-sdca", {"alpha": 0.01, "class_block": 1}, {}),
    "sweeps": ("bcd", {"alpha": 0.01, "algorithm": "sweeps"}, {"passes": 9}),
    # one process keeps a working set in its memory alone
    "working sets": ("bcd", {"alpha": 0.003, "tau": 1e-9}, {"passes": 9, "executor": None, "workers": 2}),
    "cls": ("cls", {"rounds": 6}, {}),
    "stagewise": ("stagewise", {"stages": 4, "block_size": 5}, {}),
}


def halves(name, folder):
    """Make a run that was stopped, the like of it on other labels, and return the first with its digest at its end."""
    method, params, limits = METHODS[name]
    x = np.random.default_rng(0).normal(size=(120, 20))
    for twin, run in enumerate(("own", "other")):
        data = folder / f"data-{run}"
        k = 40 if name == "classes" else 3
        y = (x @ np.random.default_rng(twin + 1).normal(size=(20, k))).argmax(axis=1)
        y[:k] = np.arange(k)
        distls.ingest(x, data, y=y, partition_size=2000, columns=True, executor="serial")
        given = {"executor": "serial", "params": params, **limits}
        stop = {"callbacks": [StopAfter(2)], "checkpoint_seconds": 0}
        with interrupted():
            distls.fit(method, data, folder / run, **given, **stop)
        if run == "own":
            whole = distls.fit(method, data, **given).model
    return folder / "own", whole.sha256


def exchange(folder):
    """Replace each file of what a run keeps by its namesake of the other; return how many there were."""
    other = folder / "other" / "state"
    files = [path for path in other.rglob("*") if path.is_file()]
    for path in files:
        shutil.copy(path, folder / "own" / "state" / path.relative_to(other))
    return len(files)


@pytest.mark.parametrize("name", ["sdca", pytest.param("classes", marks=pytest.mark.slow)])
def test_refused(name, tmp_path):
    """Fault: What `sdca`, `ovr-sdca` keep of rows and classes exchanged for that of another run with the same
    partitions | before `resume`, all of it | one line; with its own files `resume` finishes | bits"""
    run, digest = halves(name, tmp_path)
    shutil.copytree(run, tmp_path / "kept")
    assert exchange(tmp_path) >= 1
    with pytest.raises((CorruptDataError, FormatError), match=r"of another run|expected a classes-"):
        distls.resume(run, executor="serial")
    shutil.rmtree(run)
    (tmp_path / "kept").rename(run)
    assert distls.resume(run, executor="serial").record["weights_sha256"] == digest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweeps", "working sets", "cls", "stagewise"])
def test_made_anew(name, tmp_path):
    """Fault: What `bcd`, `cls`, `stagewise` keep of rows exchanged for that of another run with the same partitions |
    before `resume`, all of it | nothing: it is recomputed | bits"""
    run, digest = halves(name, tmp_path)
    assert exchange(tmp_path) >= 1
    assert distls.resume(run, executor="serial").record["weights_sha256"] == digest
