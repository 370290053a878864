"""The contract of solvers, and further cases of it: on more clusters, without a cache, and more interrupts."""

from __future__ import annotations

from pathlib import Path

import pytest

from distls.execution.memory_budget import MIB, MemoryBudget
from distls.storage.dataset.dataset import Dataset
from distls.testing import solvers


class SolverContract(solvers.SolverContract):
    """What `distls.testing` has for every method, and what takes longer."""

    @pytest.mark.slow
    @pytest.mark.parametrize("cluster", ["one process", "five processes", "two processes of two threads"])
    def test_same_bits_on_further_clusters(self, dataset: Dataset, undisturbed: str, cluster: str) -> None:
        assert self.fit_on(cluster, dataset) == undisturbed

    @pytest.mark.slow
    def test_same_bits_without_a_cache(self, dataset: Dataset, undisturbed: str) -> None:
        budget = MemoryBudget(2048 * MIB, cache_limit=0)
        assert self.fit(dataset, memory=budget).model.sha256 == undisturbed

    @pytest.mark.slow
    @pytest.mark.parametrize(("rounds", "checkpoint_seconds"), [(2, 0.0), (3, 0.0), (1, 1e9), (3, 1e9)])
    def test_interrupted_at_other_moments_and_resumed(
        self, dataset: Dataset, undisturbed: str, tmp_path: Path, rounds: int, checkpoint_seconds: float
    ) -> None:
        assert self.stop_and_resume(dataset, tmp_path / "run", rounds, checkpoint_seconds) == undisturbed
