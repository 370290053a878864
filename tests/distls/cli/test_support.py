"""What commands say about where they run."""

import pytest

from distls.cli import support
from distls.execution import ClusterOptions


@pytest.mark.parametrize(
    ("workers", "begun"), [(1, "1 worker process on this machine"), (2, "2 worker processes on this machine")]
)
def test_worker_processes_are_said_to_be_within_reach_of_other_users(workers, begun):
    """A Dask cluster on loopback has no passwords: whoever reaches it runs programs as its user."""
    said = support._chosen_executor(ClusterOptions(executor="dask", workers=workers))
    assert said.startswith(f"{begun}, whose other users can reach ")
    assert said.endswith("run programs as you (--executor serial starts none)")


def test_without_workers_there_is_nothing_to_reach():
    assert "users" not in support._chosen_executor(ClusterOptions(executor="serial"))
