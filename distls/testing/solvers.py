"""What every method promises: the same bits with any executor and cache, and after stop and resume."""

import atexit
import functools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.local_cluster import start_local
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.ingestion.ingest import ingest
from distls.solvers.events import Callback, RoundEvent
from distls.solvers.status import Status
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import ParameterError
from distls.training.fitting import fit, resume
from distls.training.run_folder import Run

# name -> processes, threads of each, whether they are processes of their own
CLUSTERS = {
    "one process": (1, 1, True),
    "two processes": (2, 1, True),
    "five processes": (5, 1, True),
    "two processes of two threads": (2, 2, True),
    "three threads": (1, 3, False),
}


@functools.cache
def opened(name: str) -> DaskExecutor:
    """Return the cluster of `CLUSTERS` with that name, started once for all tests."""
    executor = start_local(*CLUSTERS[name][:2], processes=CLUSTERS[name][2])
    atexit.register(executor.close)
    return executor


class StopAfter(Callback):
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


def _digest(result: Any) -> str:
    return str(result.model.sha256)


class SolverContract:
    """Inherit, and set `method`, `params` and how many passes it makes; it has to make two rounds at least."""

    method: ClassVar[str]
    params: ClassVar[dict[str, Any]] = {}
    passes: ClassVar[float] = 4
    random: ClassVar[bool] = True  # whether the seed matters

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
        """Rows of five classes in partitions that eight lanes cannot share equally."""
        rng = np.random.default_rng(5)
        y = rng.integers(0, 5, 1050)
        x = rng.standard_normal((1050, 60)) * (rng.random((1050, 60)) < 0.2)
        x[np.arange(1050), 12 * y + rng.integers(0, 6, 1050)] += 2.0
        path = tmp_path_factory.mktemp("data") / "train"
        ingest(x.astype(np.float32), path, y=y, partition_size=24_000, shuffle=False)
        return open_dataset(path)

    def fit(self, dataset: Dataset, run: Path | None = None, **options: Any) -> Any:
        """Fit with the contract's method, parameters and passes."""
        return fit(self.method, dataset, run, params=self.params, passes=self.passes, **options)

    def fit_on(self, cluster: str, dataset: Dataset) -> str:
        """Return the digest of the weights of a fit on one of `CLUSTERS`."""
        budget = MemoryBudget(2048 * MIB, *CLUSTERS[cluster][:2])
        return _digest(self.fit(dataset, executor=opened(cluster), memory=budget))

    def stop_and_resume(self, dataset: Dataset, run: Path, rounds: int, checkpoint_seconds: float) -> str:
        """Return the digest of the weights of a fit that was interrupted after so many rounds."""
        with interrupted():
            self.fit(dataset, run, callbacks=[StopAfter(rounds)], checkpoint_seconds=checkpoint_seconds)
        assert Run.open(run).status["status"] == Status.INTERRUPTED
        return _digest(resume(run))

    @pytest.fixture(scope="class")
    def undisturbed(self, dataset: Dataset) -> str:
        """Digest of the weights of a serial, uninterrupted fit."""
        return _digest(self.fit(dataset))

    @pytest.mark.parametrize("cluster", ["two processes", "three threads"])
    def test_same_bits_on_every_cluster(self, dataset: Dataset, undisturbed: str, cluster: str) -> None:
        assert self.fit_on(cluster, dataset) == undisturbed

    @pytest.mark.parametrize(("rounds", "checkpoint_seconds"), [(1, 0.0), (2, 1e9)])
    def test_interrupted_and_resumed(
        self, dataset: Dataset, undisturbed: str, tmp_path: Path, rounds: int, checkpoint_seconds: float
    ) -> None:
        assert self.stop_and_resume(dataset, tmp_path / "run", rounds, checkpoint_seconds) == undisturbed

    def test_another_seed_has_other_bits_where_anything_is_random(self, dataset: Dataset, undisturbed: str) -> None:
        assert (_digest(self.fit(dataset, seed=1)) != undisturbed) == self.random

    def test_finished_run_is_not_trained_again(self, dataset: Dataset, undisturbed: str, tmp_path: Path) -> None:
        run = tmp_path / "run"
        self.fit(dataset, run)
        before = (run / "events.jsonl").read_bytes()
        assert _digest(resume(run)) == undisturbed
        assert (run / "events.jsonl").read_bytes() == before

    def test_a_parameter_that_it_does_not_have_is_refused(self, dataset: Dataset) -> None:
        with pytest.raises(ParameterError, match="no parameter 'alphabet'"):
            fit(self.method, dataset, params={**self.params, "alphabet": 1}, passes=1)
