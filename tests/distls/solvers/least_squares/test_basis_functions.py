"""Calibration by functions of the predictions: ready ones, one from outside, the oracle's rounds, what is refused."""

import numpy as np
import pytest
from contract import SolverContract
from helpers import refuses, write_dataset

from distls import fit, load_model
from distls.storage.errors import FormatError, ParameterError
from distls.workers.losses.links import Cauchit, Probit
from distls.workers.prediction import basis_functions
from distls.workers.prediction.basis_functions import Basis, register_basis_function
from reference import calibrated as reference


def _rows(n=300, k=3):
    """Return rows of overlapping classes, their codes and weights."""
    rng = np.random.default_rng(4)
    codes = rng.integers(0, k, n).astype(np.int32)
    x = rng.standard_normal((n, 5)) + 1.2 * rng.standard_normal((k, 5))[codes]
    return x, codes, np.arange(n) % 3 + 0.5


def _products(values):
    """Return the products of neighbouring outputs, one fewer than there are, bounded."""
    return np.asarray(np.tanh(values[:, 1:] * values[:, :-1]))


@pytest.fixture
def products():
    register_basis_function("products", _products)
    yield
    basis_functions._functions.pop("products", None)


@pytest.mark.slow
class TestContract(SolverContract):
    method = "cls"
    passes = 6
    params = {"basis": "1+3+log+probit"}
    random = False


def test_ready_functions_are_the_inverses_of_links():
    inside = np.linspace(0.001, 0.999, 200)[:, None]
    means = {
        "log": np.exp,
        "logit": lambda z: 1.0 / (1.0 + np.exp(-z)),
        "probit": Probit().mean,
        "cauchit": Cauchit().mean,
    }
    for name, mean in means.items():
        found = Basis((1,), (name,)).columns(inside)[:, 1:]
        np.testing.assert_allclose(mean(found), inside, atol=1e-12)
        # what is outside is taken as the nearest inside
        ends = Basis((1,), (name,)).columns(np.array([[-7.0], [0.001]]))[:, 1:]
        np.testing.assert_array_equal(ends[0], ends[1])


@pytest.mark.usefixtures("products")
def test_every_round_is_the_oracles(tmp_path):
    x, codes, weight = _rows()
    dataset = write_dataset(tmp_path / "d", x, codes, sample_weight=weight)
    logarithms = lambda values: np.log(np.maximum(values, 1e-3))  # noqa: E731
    expected = reference.calibrated(
        x, np.eye(3)[codes], rounds=4, powers=(1, 2), functions=(logarithms, _products), alpha=1e-3, weight=weight
    )  # fmt: skip
    params = {"basis": "1+2+log+products", "rounds": 4, "alpha": 1e-3}
    result = fit("cls", dataset, tmp_path / "run", params=params)
    # three outputs: two powers, the logarithm, and two products
    assert result.model.arrays["calibration"].shape == (4, 3 * 3 + 2, 3)
    np.testing.assert_allclose(result.model.weights, np.hstack([r.W for r in expected]), atol=1e-9)
    found = load_model(tmp_path / "run").predict_proba(x)
    np.testing.assert_allclose(found, expected[-1].predictions, atol=1e-6)
    mean = reference.mean_loss(np.eye(3)[codes], expected[-1].predictions, weight)
    assert result.record["objective"] == pytest.approx(mean, abs=1e-10)


@pytest.mark.slow
def test_the_inverse_of_the_link_makes_the_error_vanish(tmp_path):
    """Theorem 2 on rows whose probabilities are a softmax: its inverse, the logarithm, is in G or is not.

    Probabilities as targets are rows of every class, weighted by them.
    """
    rng, k = np.random.default_rng(0), 3
    p = 0.94 * rng.dirichlet(np.ones(k), 80) + 0.02
    x = np.log(p) @ rng.standard_normal((k, k))
    copies, codes = np.repeat(x, k, axis=0), np.tile(np.arange(k), len(x)).astype(np.int32)
    dataset = write_dataset(tmp_path / "d", copies, codes, sample_weight=p.reshape(-1))
    errors = {}
    for basis in ("1", "1+log"):
        params = {"alpha": 0.0, "fit_intercept": False, "rounds": 100, "basis": basis}
        fit("cls", dataset, tmp_path / basis, params=params)
        found = load_model(tmp_path / basis).predict_proba(x)
        errors[basis] = np.square(found - p).sum(axis=1).mean()
    assert errors["1+log"] < 0.05 * errors["1"]


@pytest.mark.usefixtures("products")
def test_a_function_from_outside_is_stored_by_its_name_and_asked_for(tmp_path):
    x, codes, _ = _rows()
    dataset = write_dataset(tmp_path / "d", x, codes)
    params = {"basis": "1+products", "rounds": 2}
    model = fit("cls", dataset, tmp_path / "run", params=params).model
    assert model.recipe["calibration"] == {"powers": [1], "functions": ["products"], "onto": "simplex"}
    assert load_model(tmp_path / "run").predict(x).shape == (300,)
    basis_functions._functions.pop("products")
    with pytest.raises(FormatError, match=r"no function 'products' of a basis is known.*register_basis_function"):
        load_model(tmp_path / "run").predict(x)
    refuses(ParameterError, r"basis=1\+products: expected powers such as", fit, "cls", dataset, params=params)


def test_functions_that_are_refused():
    refused = {
        "x+y": (np.tanh, "a name has lower-case letters"),
        "log": (np.tanh, "there is a basis function log already"),
        "flat": (lambda values: values[:, 0], "a float64 array with a row for each row"),
        "small": (lambda values: values.astype(np.float32), "a float64 array with a row for each row"),
        "root": (np.emath.sqrt, "a float64 array with a row for each row"),
        "first": (lambda values: values[:1], "not one row for each row"),
        "inverse": (lambda values: values / (values > 0), "not finite"),
        "ranks": (lambda values: values - values.mean(axis=0), "a row of it depends on other rows"),
        "doubled": (lambda values: np.multiply(values, 2.0, out=values), "it changes the predictions"),
    }
    for name, (function, rule) in refused.items():
        with np.errstate(all="ignore"), pytest.raises(ValueError, match=rule):
            register_basis_function(name, function)
        assert name == "log" or name not in basis_functions.basis_function_names()


def test_values_that_are_not_finite_end_the_fit(tmp_path):
    x, codes, _ = _rows()
    dataset = write_dataset(tmp_path / "d", x, codes)
    factor = 1.0
    register_basis_function("scaled", lambda values: factor * values)
    factor = np.inf
    try:
        with pytest.raises(ParameterError, match="basis=scaled: the function is not finite at all predictions"):
            fit("cls", dataset, params={"basis": "1+scaled", "rounds": 1})
    finally:
        basis_functions._functions.pop("scaled")
