"""A stochastic method of another package: its kernel, its update, its steps and its entry are all in this file.

The driver registers the entry. Workers import this module by its name when they are sent the update, so it has to be
importable there too: as a package that is installed on every worker, or, as here, from a folder on the path of this
process, which a local cluster hands on.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from helpers import labelled_rows, printed, refuses, write_dataset

from distls import fit
from distls.methods.method import Method, Parameter
from distls.methods.method_registry import METHODS, method_named, register_method
from distls.methods.parameters import fit_intercept, number
from distls.methods.requirements import loss_with
from distls.methods.stochastic import STOCHASTIC_SOLVER
from distls.methods.stochastic_parameters import LANES_AND_ROWS
from distls.storage.errors import ParameterError
from distls.testing.solvers import SolverContract
from distls.workers.compilation.jit import kernel
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_scores, row_span, row_weight
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import add_row_gradient, code_of, row_update, target_gradient
from distls.workers.stochastic.step_choice import StepChoice
from distls.workers.stochastic.update import KernelLearner, Update


class MomentumSettings(NamedTuple):
    eta0: float
    momentum: float
    alpha: float
    fit_intercept: bool
    loss: Loss


@kernel
def momentum_block(rows, y, weight, order, w, b, velocity, clock, settings):
    """Take ``V <- momentum V - eta0 (s x (x) g + alpha W), W <- W + V`` for each of the rows `order`."""
    check_widths(w, b)
    z, g = np.empty(len(b), w.dtype), np.empty(len(b), w.dtype)
    indices, data = row_arrays(rows)
    loss_sum, errors = 0.0, 0
    for at in range(len(order)):
        i = np.intp(order[at])
        start, stop = row_span(rows, i, indices, data)
        row_scores(indices, data, start, stop, w, z)
        if settings.fit_intercept:
            for c in range(len(b)):
                z[c] += z.dtype.type(b[c])
        value, rival, best = target_gradient(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        loss_sum += s * value
        errors += best != label
        for j in range(len(w)):
            for c in range(w.shape[1]):
                velocity[j, c] = settings.momentum * velocity[j, c] - settings.eta0 * settings.alpha * w[j, c]
        row_update(indices, data, start, stop, -settings.eta0 * s, rival, label, g, velocity)
        for j in range(len(w)):
            for c in range(w.shape[1]):
                w[j, c] += velocity[j, c]
        if settings.fit_intercept:  # plain steps
            add_row_gradient(-settings.eta0 * s, rival, label, g, b)
        clock[0] += 1.0
    return loss_sum, errors


@dataclass(frozen=True)
class MomentumUpdate(Update):
    eta0: float = 0.1
    momentum: float = 0.9

    def extra_arrays(self, shape, dtype):
        return (np.zeros(shape, dtype),)

    def start_lane(self, arrays, time, tail_from=math.inf):
        own = tuple(array.copy() for array in arrays)
        clock = np.array([float(time)])
        settings = MomentumSettings(self.eta0, self.momentum, self.alpha, self.fit_intercept, self.row_loss)
        return MomentumLearner(settings, (*own, clock), clock, averaged=len(own))


class MomentumLearner(KernelLearner):
    kernel = staticmethod(momentum_block)


def momentum_steps(stats, params, n_lanes, *, warm):
    eta0 = params["eta0"] or 1.0 / stats.mean_square_norm
    update = MomentumUpdate(**stats.objective(), eta0=eta0 * (1 - params["momentum"]), momentum=params["momentum"])
    return StepChoice(update)


MOMENTUM = Method(
    name="momentum",
    summary="stochastic gradients with heavy-ball momentum",
    paper="Polyak 1964, Some methods of speeding up the convergence of iteration methods",
    parameters=(
        Parameter("loss", "softmax", loss_with("softmax"), "softmax (log), the only one"),
        Parameter("eta0", None, number(above=0.0), "size of steps; default: one over the mean |x|^2"),
        Parameter("momentum", 0.9, number(0.0, 1.0), "share of the last step that is taken again"),
        Parameter("alpha", 0.0, number(0.0), "L2 strength, 0 or more"),
        fit_intercept(False),
        *LANES_AND_ROWS,
    ),
    solver=STOCHASTIC_SOLVER,
    steps=f"{__name__}:momentum_steps",
    targets=("class",),
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """Register the method for the tests of this file alone: others list all methods."""
    register_method(MOMENTUM)
    yield
    del METHODS[MOMENTUM.name]


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(420, 30, 3)


@pytest.fixture(scope="module")
def dataset(rows, tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "train", *rows)


def _trained_by_numpy(x, y, size, alpha):
    """Two passes; `size` is that of a single step."""
    k = y.max() + 1
    w, v, b = np.zeros((x.shape[1], k)), np.zeros((x.shape[1], k)), np.zeros(k)
    for row, label in zip(np.tile(x, (2, 1)), np.tile(y, 2), strict=True):
        p = np.exp(row @ w + b)
        p /= p.sum()
        p[label] -= 1
        v = 0.9 * v - size * (np.outer(row, p) + alpha * w)
        w += v
        b -= size * p
    return w, b


def test_it_takes_the_steps_of_plain_numpy(dataset, rows):
    params = {
        "lanes": 1, "shuffle": False, "eta0": 0.5, "alpha": 0.01, "fit_intercept": True, "dtype": "float64",
    }  # fmt: skip
    model = fit("momentum", dataset, params=params, passes=2).model
    w, b = _trained_by_numpy(rows[0].toarray().astype(np.float64), rows[1], 0.5 * (1 - 0.9), 0.01)
    np.testing.assert_allclose(model.weights, w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
class TestContract(SolverContract):
    method = "momentum"
    params = {"lanes": 3}
    passes = 3


def test_the_command_line_shows_it():
    shown = printed("methods")
    assert "momentum     stochastic gradients with heavy-ball momentum\n" in shown
    shown = printed("methods", "momentum")
    assert "  momentum       share of the last step that is taken again [0.9]\n" in shown
    assert "short loss names: log = softmax" in shown


def test_its_parameters_are_checked(dataset):
    with pytest.raises(ParameterError, match="momentum: momentum=2: expected a number from 0 to 1"):
        fit("momentum", dataset, params={"momentum": 2})
    refuses(ParameterError, "momentum has no parameter 'momentun'", fit, "momentum", dataset, params={"momentun": 0.5})


def test_a_name_is_registered_once():
    register_method(MOMENTUM)  # the same entry, as when its module is imported by two others
    with pytest.raises(ValueError, match="'sgd' is registered already"):
        register_method(Method("sgd", "", "", (), STOCHASTIC_SOLVER, ("class",)))


def test_a_method_that_is_not_stochastic_has_no_steps():
    assert method_named("momentum").load_steps() is momentum_steps
    with pytest.raises(ParameterError, match="gls is not a stochastic method"):
        method_named("gls").load_steps()
