"""The interface of solvers, whose errors are not taken for those of a checkpoint."""

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset
from target_helpers import write_targets

from distls.columns.sharding import add_columns
from distls.memory_plan import Plan
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.solvers.coordinate_descent.proximal import Fista
from distls.solvers.solver import Fitted, Solver, State
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import FormatError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.configuration import Setting
from distls.training.fitting import fit, resume
from distls.workers.rounds.block_stream import DatasetRef


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same rows with classes, and with numbers."""
    root = tmp_path_factory.mktemp("data")
    x, y = labelled_rows(90, 12, 3)
    classes = write_dataset(root / "classes", x, y, partition_rows=30).path
    add_columns(classes)
    write_targets(root / "numbers", x, np.eye(3)[y], "continuous", partition_rows=30)
    return {"class": open_dataset(classes), "continuous": open_dataset(root / "numbers")}


def solver_of(method, data):
    chosen = METHODS[method]
    dataset = data["class" if "class" in chosen.targets else "continuous"]
    return Setting.of(chosen, {}, dataset, 0).solver(slots=1, memory=None)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_solver_offers_what_the_driver_uses(method, data):
    solver = solver_of(method, data)
    assert all(callable(getattr(solver, name)) for name in Solver.__abstractmethods__)
    assert isinstance(solver.problem, Problem)
    assert isinstance(solver.plan, Plan)
    assert isinstance(solver.data, DatasetRef)
    assert isinstance(solver.state_type(), State)
    assert all(isinstance(block, int) for lane in solver.lanes for block in lane)
    first = solver.init()
    assert type(first) is solver.state_type
    assert isinstance(solver.weights(first), Fitted)


@pytest.mark.parametrize("error", [TypeError, KeyError, AttributeError, ZeroDivisionError, ValueError])
def test_an_error_of_a_solver_is_not_taken_for_a_damaged_checkpoint(error, data, tmp_path, monkeypatch):
    with interrupted():
        fit("fista", data["class"], tmp_path / "run", params={"tau": 0.0}, passes=4, callbacks=[StopAfter(2)])

    def slip(*_):
        raise error("a slip")

    monkeypatch.setattr(Fista, "step", slip)
    with pytest.raises(error, match="a slip") as caught:
        resume(tmp_path / "run")
    assert not isinstance(caught.value, FormatError)
    assert "slip" in [entry.name for entry in caught.traceback]
