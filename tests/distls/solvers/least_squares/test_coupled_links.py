"""Links of all outputs together, registered from outside: Algorithm 1 with them, predictions, and what is refused."""

import numpy as np
import pytest
from helpers import labelled_rows, refuses, write_dataset
from scipy.special import logsumexp

from distls import evaluate, fit, ingest, load_model
from distls.workers.losses import loss_registry
from distls.workers.losses.links import CoupledLink


class Doubtful(CoupledLink):
    """A softmax with a class that no row has, ``exp(z_c) / (1 + sum_j exp(z_j))``, the gradient of log(1 + sum)."""

    __slots__ = ()

    name = "doubtful"
    targets = ("class",)
    steepest = 0.5

    def mean(self, scores):
        """Return the shares."""
        return np.exp(scores - self.potential(scores))

    def potential(self, scores):
        """Return Phi."""
        return np.asarray(np.logaddexp(0.0, logsumexp(scores, axis=1, keepdims=True)))


class Round(CoupledLink):
    """Numbers within the unit ball: ``z / sqrt(1 + |z|^2)``, the gradient of ``sqrt(1 + |z|^2)``; Phi is integrated."""

    __slots__ = ()

    name = "round"
    targets = ("continuous",)
    steepest = 1.0

    def mean(self, scores):
        return np.asarray(scores / np.sqrt(1.0 + np.square(scores).sum(axis=1, keepdims=True)))


@pytest.fixture(autouse=True)
def registered():
    for link in (Doubtful(), Round()):
        loss_registry.register_loss(link)
    yield
    for name in ("doubtful", "round"):
        loss_registry._losses.pop(name, None)


def _algorithm_1(x, y, link, steps):
    """W - (1/L) Sigma^-1 E[x (g(W'x) - y)'], from zero."""
    w = np.zeros((x.shape[1], y.shape[1]))
    for _ in range(steps):
        w -= np.linalg.solve(x.T @ x, x.T @ (link.mean(x @ w) - y)) / link.steepest
    return w


def test_equation_12_steps_are_algorithm_1_and_models_are_loaded_by_name(tmp_path):
    sparse, y = labelled_rows(330, 12, 3)
    x = sparse.toarray().astype(float)
    dataset = write_dataset(tmp_path / "d", sparse, y)
    given = {"link": "doubtful", "alpha": 0.0, "accelerate": "none", "lipschitz": "sharp"}
    model = fit("gls", dataset, params={**given, "fit_intercept": False}, passes=4, eval_every=0).model
    np.testing.assert_allclose(model.weights, _algorithm_1(x, np.eye(3)[y], Doubtful(), 4), rtol=1e-9)
    # an intercept would grow without end: it leaves less and less to the class without rows
    params = {"link": "doubtful", "alpha": 1e-2, "fit_intercept": False}
    done = fit("gls", dataset, tmp_path / "run", params=params, passes=200)
    means = Doubtful().mean(x @ done.model.weights)
    slope = x.T @ (means - np.eye(3)[y]) / len(x) + 1e-2 * done.model.weights
    assert np.abs(slope).max() < 1e-7
    loaded = load_model(tmp_path / "run")
    np.testing.assert_allclose(loaded.predict_proba(x), means / means.sum(axis=1, keepdims=True), rtol=1e-6)
    assert evaluate(done.model, dataset).error == np.mean(means.argmax(axis=1) != y)


@pytest.mark.slow
def test_numbers_are_predicted_together(tmp_path):
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((300, 5)), rng.standard_normal((5, 2))
    y = Round().mean(x @ w) + 0.1 * rng.standard_normal((300, 2))
    ingest(x, tmp_path / "d", y=y, target="continuous", dtype="float64")
    given = {"link": "round", "alpha": 0.0, "fit_intercept": False}
    box = {**given, "accelerate": "none", "lipschitz": "paper"}
    model = fit("gls", tmp_path / "d", params=box, passes=3, eval_every=0).model
    np.testing.assert_allclose(model.weights, _algorithm_1(x, y, Round(), 3), rtol=1e-9)
    fit("gls", tmp_path / "d", tmp_path / "run", params=given, passes=200)
    found = load_model(tmp_path / "run", dtype="float64").predict(x)
    assert np.abs(x.T @ (found - y)).max() / len(x) < 1e-6
    staged = {"inner": "round", "block_size": 5, "stages": 1, "alpha": 0.0, "fit_intercept": False}
    fit("stagewise", tmp_path / "d", tmp_path / "staged", params=staged)
    # the one block has all columns, and 50 steps
    expected = Round().mean(x @ _algorithm_1(x, y, Round(), 50))
    np.testing.assert_allclose(load_model(tmp_path / "staged", dtype="float64").predict(x), expected, atol=1e-6)


def _changed(mean, **facts):
    """Return a link whose mean is ``z @ mean``."""
    own = {"__slots__": (), "name": "changed", "targets": ("continuous",), "mean": lambda self, z: z @ mean}
    return type("Changed", (CoupledLink,), {**own, **facts})()


@pytest.mark.fast_cases("link0", "link5")
@pytest.mark.parametrize(
    ("link", "message"),
    [
        (_changed(np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])), "not the gradient"),
        (_changed(-np.eye(3)), "not convex"),
        (_changed(2.0 * np.eye(3), steepest=1.9), "steeper than"),
        (_changed(np.eye(3), targets=("class",)), "not probabilities"),
        (_changed(np.ones((3, 1))), "one for each score"),
        (_changed(np.eye(3), potential=lambda self, z: np.square(z).sum(axis=1)[:, None]), "not the gradient"),
    ],
)  # fmt: skip
def test_what_is_no_gradient_of_a_convex_function_is_refused(link, message):
    refuses(ValueError, message, loss_registry.register_loss, link)
    assert "changed" not in loss_registry.LOSSES
