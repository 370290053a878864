"""Every method: SIGKILL of the driver after some rounds, resumed on a cluster, with the bits of an undisturbed fit."""

import os
import signal

import pytest
from fault_helpers import KILLED, digest_of, faulty, left_behind, options_of, rounds_of
from helpers import labelled_rows, write_dataset

from distls import add_columns, fit, resume
from distls.execution.dask.local_cluster import start_local
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import METHODS
from distls.solvers.events import Callback
from distls.storage.model.model import load_model
from distls.testing.solvers import opened
from distls.training.run_folder import Run

__all__ = ["faulty"]

PASSES = 5
ALPHA = 1e-2
# What a method needs to have more rounds than are waited for; the others have `ALPHA` and `PASSES`.
PARAMS = {
    "adaline": {},
    "c-adaline": {},
    "csgd": {},
    "ncsgd": {},
    "bcd": {"alpha": ALPHA, "lanes": 3, "tau": 0.0, "active_sweeps": 0},
    "fista": {"alpha": ALPHA, "tau": 0.0},
    "sparsa": {"alpha": ALPHA, "tau": 0.0},
    "ovr-sdca": {"alpha": ALPHA, "class_block": 1},
    "cls": {"rounds": 4},
    "stagewise": {"block_size": 13, "stages": 6, "alpha": ALPHA},
}
OWN_END = {"cls", "stagewise"}


def limits_of(method):
    """Return when a fit ends, without evaluations if it has any."""
    if METHODS[method].by_classes:
        return {}
    return {"eval_every": 0} | ({} if method in OWN_END else {"passes": PASSES})


def kept_by(method):
    """Return what a run that has ended keeps besides its model: the duals that prove it."""
    return ["state"] if method == "sdca" else []


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    x, y = labelled_rows(500, 60, 8)
    path = write_dataset(tmp_path_factory.mktemp("data") / "train", x, y, partition_rows=60).path
    add_columns(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_killed_and_resumed(faulty, train, tmp_path, method):
    """Fault: SIGKILL of the driver, each method | after the second checkpoint; resumed on two workers without cache
    | `resume` finishes | bits"""
    params = PARAMS.get(method, {"alpha": ALPHA})
    limits = limits_of(method)
    undisturbed = faulty.fit(method, train, params=params, **limits)
    run = tmp_path / "run"
    given = options_of(params, **limits, checkpoint_seconds=0, executor="serial")
    ended = faulty("fit", method, train, run, *given, "--quiet", saves={"number": 2})
    assert (ended.code, ended.out, ended.err) == (KILLED, "", "")
    assert [path.name for path in Run(run).checkpoints()] == ["round-000001", "round-000002"]
    assert rounds_of(run) == [1, 2]
    budget = MemoryBudget(2048 * MIB, 2, cache_limit=0)
    result = resume(run, executor=opened("two processes"), memory=budget)
    assert result.model.sha256 == digest_of(run) == load_model(run).sha256 == undisturbed
    assert len(rounds_of(run)) >= 3, "it had ended before it was killed"
    assert rounds_of(run) == list(range(1, len(rounds_of(run)) + 1))
    assert left_behind(run) == kept_by(method)


KILLED_IN = ["gls", "cls", "stagewise", "sdca"]


@pytest.fixture(scope="module")
def mortal():
    """Worker processes, one of which is killed in each test: more than there are tests."""
    executor = start_local(len(KILLED_IN) + 2, 1, 2**31)
    yield executor
    executor.close()


class KillAfter(Callback):
    """Kills a worker after a round, and so between what the next round needs of it."""

    def __init__(self, executor, number):
        self._number, self.victims = number, list(executor.each_worker(_pid, None).values())[:1]

    def on_round(self, event):
        if event.record["round"] == self._number:
            os.kill(self.victims[0], signal.SIGKILL)
            self.victims.clear()


def _pid(_):
    return os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize("method", KILLED_IN)
def test_a_worker_is_killed_between_rounds(mortal, train, tmp_path, method):
    """What it kept of rows is in RUN/state; what it cached is read again.

    Fault: SIGKILL of a worker, `gls`, `cls`, `stagewise`, `sdca` | between rounds, of five workers | nothing |
    bits
    """
    params = PARAMS.get(method, {"alpha": ALPHA})
    limits = limits_of(method)
    undisturbed = fit(method, train, params=params, **limits).model
    killing = KillAfter(mortal, 2)
    run = tmp_path / "run"
    result = fit(method, train, run, params=params, executor=mortal, callbacks=[killing], **limits)
    assert not killing.victims, "it had ended before"
    assert digest_of(run) == result.model.sha256 == undisturbed.sha256
    assert rounds_of(run) == list(range(1, len(rounds_of(run)) + 1))
    assert left_behind(run) == kept_by(method)
