"""What every solver promises, tested once: inherit `SolverContract` and say which method and parameters."""

from __future__ import annotations

import atexit
import functools
from pathlib import Path
from typing import Any, ClassVar

import pytest
from helpers import labelled_rows, write_dataset

from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.local_cluster import start_local
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.solvers.events import RoundEvent, SilentCallback
from distls.solvers.solver import Status
from distls.storage.dataset.dataset import Dataset
from distls.training.fitting import fit, resume
from distls.training.run_folder import Run

CLUSTERS = {
    "one process": (1, 1, True),
    "two processes": (2, 1, True),
    "five processes": (5, 1, True),
    "two processes of two threads": (2, 2, True),
    "three threads": (1, 3, False),
}


@functools.cache
def opened(name: str) -> DaskExecutor:
    """Return the named cluster, started once for all tests."""
    executor = start_local(*CLUSTERS[name][:2], processes=CLUSTERS[name][2])
    atexit.register(executor.close)
    return executor


class StopAfter(SilentCallback):
    """Interrupts as Ctrl-C does, after so many rounds of this process."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def on_round(self, event: RoundEvent) -> None:
        """Count down."""
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def interrupted() -> Any:
    """Return a context in which a fit must end with the interrupt that `StopAfter` sends."""
    return pytest.raises(KeyboardInterrupt, match=r"interrupted after .* passes; distls\.resume")


class SolverContract:
    """The same bits with any executor, any number of workers, any cache, and after stop and resume."""

    method: ClassVar[str]
    params: ClassVar[dict[str, Any]] = {}
    passes: ClassVar[float] = 4

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
        """Eleven partitions of unequal use to eight lanes."""
        x, y = labelled_rows(1050, 60, 5)
        return write_dataset(tmp_path_factory.mktemp("data") / "train", x, y)

    def fit(self, dataset: Dataset, run: Path | None = None, **options: Any) -> Any:
        """Fit with the contract's method, parameters and passes."""
        return fit(self.method, dataset, run, params=self.params, passes=self.passes, **options)

    @pytest.fixture(scope="class")
    def undisturbed(self, dataset: Dataset) -> str:
        """Digest of the weights of a serial, uninterrupted fit."""
        return self.fit(dataset).model.sha256

    @pytest.mark.fast_cases("two processes$", "three threads")
    @pytest.mark.parametrize("cluster", list(CLUSTERS))
    def test_same_bits_on_every_cluster(self, dataset: Dataset, undisturbed: str, cluster: str) -> None:
        workers, threads, _ = CLUSTERS[cluster]
        budget = MemoryBudget(2048 * MIB, workers, threads)
        assert self.fit(dataset, executor=opened(cluster), memory=budget).model.sha256 == undisturbed

    @pytest.mark.slow
    def test_same_bits_without_a_cache(self, dataset: Dataset, undisturbed: str) -> None:
        budget = MemoryBudget(2048 * MIB, cache_limit=0)
        assert self.fit(dataset, memory=budget).model.sha256 == undisturbed

    @pytest.mark.fast_cases("0.0-1", "1000000000.0-2")
    @pytest.mark.parametrize("rounds", [1, 2, 3])
    @pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
    def test_interrupted_and_resumed(
        self, dataset: Dataset, undisturbed: str, tmp_path: Path, rounds: int, checkpoint_seconds: float
    ) -> None:
        run = tmp_path / "run"
        with interrupted():
            self.fit(dataset, run, callbacks=[StopAfter(rounds)], checkpoint_seconds=checkpoint_seconds)
        assert Run.open(run).status["status"] == Status.INTERRUPTED
        ended = resume(run)
        assert ended.model.sha256 == undisturbed

    def test_other_seed_other_bits(self, dataset: Dataset, undisturbed: str) -> None:
        assert self.fit(dataset, seed=1).model.sha256 != undisturbed

    def test_finished_run_is_not_trained_again(
        self, dataset: Dataset, undisturbed: str, tmp_path: Path
    ) -> None:
        run = tmp_path / "run"
        self.fit(dataset, run)
        before = (run / "events.jsonl").read_bytes()
        assert resume(run).model.sha256 == undisturbed
        assert (run / "events.jsonl").read_bytes() == before
