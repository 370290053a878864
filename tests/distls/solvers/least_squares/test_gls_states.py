"""The solvers of gls one round at a time: which one a setting has, and the states that they hand on."""

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import METHODS
from distls.solvers.least_squares.accelerated import Accelerated
from distls.solvers.least_squares.gls import ClosedForm
from distls.solvers.least_squares.path import Path
from distls.training.configuration import Setting

SETTINGS = {
    "closed": {"link": "identity"},
    "closed-path": {"link": "identity", "alpha": "path", "folds": 2},
    "closed-singular": {"link": "identity", "alpha": 0},
    "one": {"alpha": 1e-3},
    "singular": {"alpha": 0},
    "path": {"alpha": "path", "folds": 2, "alphas": "0.3:0.1"},
}
SINGULAR = ("closed-singular", "singular")
ROUNDS = 12


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Rows with a column twice, so that Sigma is singular."""
    x, y = labelled_rows(240, 8, 3)
    dense = x.toarray()
    return write_dataset(tmp_path_factory.mktemp("data") / "d", np.hstack([dense, dense[:, :1]]), y)


def solver_of(dataset, setting):
    return Setting.of(METHODS["gls"], SETTINGS[setting], dataset, 0).solver(slots=1, memory=None)


def states_of(solver, rounds=ROUNDS):
    states = [solver.init()]
    for _ in range(rounds):
        if solver.status(states[-1]) != "RUNNING":
            break
        states.append(solver.step(states[-1], SerialExecutor())[0])
    return states


def bits(state):
    scalars, arrays = state.split()
    return scalars, {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.fast_cases("closed-ClosedForm", "path")
@pytest.mark.parametrize(
    ("setting", "solver"), [("closed", ClosedForm), ("closed-path", ClosedForm), ("one", Accelerated), ("path", Path)]
)
def test_a_setting_has_the_solver_of_its_link_and_alpha(dataset, setting, solver):
    assert type(solver_of(dataset, setting)) is solver


@pytest.mark.fast_cases("closed$", "path")
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_step_changes_nothing_of_the_state_before(dataset, setting):
    solver = solver_of(dataset, setting)
    state = solver.init()
    for _ in range(ROUNDS):
        before = repr(bits(state))
        following, _ = solver.step(state, SerialExecutor())
        assert repr(bits(state)) == before != repr(bits(following))
        # and it is a function of the state alone
        assert bits(solver_of(dataset, setting).step(state, SerialExecutor())[0]) == bits(following)
        state = following
        if solver.status(state) != "RUNNING":
            break


@pytest.mark.fast_cases("closed$", "path")
@pytest.mark.parametrize("setting", SETTINGS)
def test_states_are_taken_apart_and_rebuilt(dataset, setting):
    solver = solver_of(dataset, setting)
    states = states_of(solver)
    assert len(states) == (1 + (2 if setting in SINGULAR else 1) if "closed" in setting else 1 + ROUNDS)
    for state in states:
        rebuilt = type(state).join(*state.split())
        assert bits(rebuilt) == bits(state)
