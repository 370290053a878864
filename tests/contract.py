"""The contract of solvers, with further cases of it: more clusters and interrupts, no cache; what rounds have seen.

Also the documented order of the rows of a lane.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls.execution.memory_budget import MIB, MemoryBudget
from distls.solvers.events import RoundEvent
from distls.storage.dataset.dataset import Dataset
from distls.testing import solvers
from distls.training.callbacks import History
from distls.workers.runtime.rng import Purpose, rng


@pytest.mark.slow_cases("three threads", "2-1000000000.0")
class SolverContract(solvers.SolverContract):
    """What `distls.testing` has for every method, and what takes longer."""

    @pytest.mark.slow
    @pytest.mark.parametrize("cluster", ["one process", "five processes", "two processes of two threads"])
    def test_same_bits_on_further_clusters(self, dataset, undisturbed, cluster):
        assert self.fit_on(cluster, dataset) == undisturbed

    @pytest.mark.slow
    def test_same_bits_without_a_cache(self, dataset, undisturbed):
        budget = MemoryBudget(2048 * MIB, cache_limit=0)
        assert self.fit(dataset, memory=budget).model.sha256 == undisturbed

    @pytest.mark.slow
    @pytest.mark.parametrize(("rounds", "checkpoint_seconds"), [(2, 0.0), (3, 0.0), (1, 1e9), (3, 1e9)])
    def test_interrupted_at_other_moments_and_resumed(self, dataset, undisturbed, tmp_path, rounds, checkpoint_seconds):
        assert self.stop_and_resume(dataset, tmp_path / "run", rounds, checkpoint_seconds) == undisturbed


class StoredContract(SolverContract):
    """The contract on unit rows in partitions of a hundred, which may be dense and have column shards."""

    dense: ClassVar[bool] = False
    shard_size: ClassVar[int] = 0

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        x, y = labelled_rows(1050, 60, 5)
        rows = x.toarray() if self.dense else x
        return write_dataset(tmp_path_factory.mktemp("data") / "train", rows, y, shard_size=self.shard_size)


class Rounds(History):
    """Keeps the record and the state of every round, and does something after each."""

    def __init__(self, after: Callable[[RoundEvent], object] = lambda event: None) -> None:
        super().__init__()
        self.states: list[Any] = []
        self._after = after

    def on_round(self, event: RoundEvent) -> None:
        super().on_round(event)
        self.states.append(event.state)
        self._after(event)

    def each(self, name: str) -> list[Any]:
        """Return a detail of each round."""
        return [record["details"][name] for record in self.records]


def visits(dataset: Dataset, passes: int, seed: int = 0) -> list[np.ndarray]:
    """Return the rows of each partition that a single lane visits, numbered in the whole data set."""
    sizes = dataset.table.rows
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return [
        starts[block] + rng(seed, Purpose.ROWS, turn, int(block)).permutation(sizes[block])
        for turn in range(passes)
        for block in rng(seed, Purpose.ORDER, turn, 0).permutation(len(dataset))
    ]
