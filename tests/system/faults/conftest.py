"""One small job for each way of distributing work: lanes, statistics, shards."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers import labelled_rows, write_dataset

from distls import add_columns, fit


class Job(NamedTuple):
    """A method on data of its own, and what it gives undisturbed.

    Attributes
    ----------
    kernel : str
        The function that works on one block, as the workers look it up.
    digest : str
        Of the weights of an undisturbed run in one process.
    """

    method: str
    data: Path
    params: dict[str, Any]
    passes: int
    kernel: str
    digest: str

    def arguments(self, run: Path, *more: object) -> list[object]:
        """Return the command line that fits it."""
        given = [text for name, value in self.params.items() for text in ("-p", f"{name}={value}")]
        limits = ("--passes", self.passes, "--eval-every", 0)
        return ["fit", self.method, self.data, run, *given, *limits, *more]


_JOBS: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "lanes": ("mcid", {"loss": "hinge", "alpha": 1e-4}, 12, "distls.workers.stochastic.lane_task:StochasticTask.learn"),
    "statistics": (
        "gls",
        {"link": "softmax", "alpha": 1e-4},
        8,
        "distls.workers.least_squares.multi_point_task:PointTask.add_rows",
    ),
    "shards": (
        "bcd",
        {"alpha": 1e-3, "lanes": 4, "tau": 0.0, "active_sweeps": 0},
        8,
        "distls.workers.coordinate_descent.sweep_task:ColumnTask.sweep",
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """Return the job of a way of distributing work, made when it is first asked for."""
    made: dict[str, Job] = {}

    def named(way: str) -> Job:
        if way not in made:
            method, params, passes, kernel = _JOBS[way]
            # weights of more than 64 KiB, which are sent to one worker and fetched from there
            wide = 1000 if way == "statistics" else 20_000
            x, y = labelled_rows(4000, wide, 10)
            data = write_dataset(tmp_path_factory.mktemp(way) / "train", x, y).path
            if way == "shards":
                add_columns(data, shard_size=2**15)
            model = fit(method, data, params=params, passes=passes, eval_every=0).model
            made[way] = Job(method, data, params, passes, kernel, model.sha256)
        return made[way]

    return named
