"""What least squares revisited proves: Fisher consistency, and both rates of Theorem 1. Theorem 2 is in test_cls.

A bound is tested together with its constant: a quarter of it is exceeded.
"""

import numpy as np
import pytest
from helpers import write_dataset

from distls import fit, ingest
from distls.workers.losses import loss_registry
from distls.workers.losses.links import Link

PRINTED = {"alpha": 0.0, "accelerate": "none", "fit_intercept": False}


def _model_rows(path, link, *, twice):
    """Return a data set in which E[y | x] is exactly g(W* x), by weighted rows of every class; x, and the means."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4)).astype(np.float32).astype(float)
    z = x @ rng.standard_normal((4, 3))
    # a logistic model of a class and of the rest; or of three classes
    means = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    if link == "logit":
        one = 1.0 / (1.0 + np.exp(-z[:, :1]))
        means = np.hstack([one, 1.0 - one])
    x, k = np.hstack([x, x[:, :1]]) if twice else x, means.shape[1]
    weight, codes = means.astype(np.float32), np.tile(np.arange(k), len(x)).astype(np.int32)
    data = write_dataset(path, np.repeat(x, k, axis=0), codes, sample_weight=weight.reshape(-1))
    return data, x, weight / weight.sum(axis=1, keepdims=True)


@pytest.mark.fast_cases("one-minimiser-logit")
@pytest.mark.parametrize("link", ["logit", "softmax"])
@pytest.mark.parametrize("twice", [False, True], ids=["one-minimiser", "many"])
def test_lemmas_1_and_2_a_minimiser_has_the_means_of_the_model(tmp_path, link, twice):
    """Also where minimisers are many, since a column is there twice."""
    dataset, x, means = _model_rows(tmp_path / "d", link, twice=twice)
    model = fit("gls", dataset, params={**PRINTED, "link": link, "lipschitz": "sharp"}, passes=3000).model
    z = x @ model.weights
    # of two classes there is the score of the second alone
    z = np.hstack([np.zeros_like(z), z]) if link == "logit" else z
    found = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, means, atol=1e-5)


class Bent(Link):
    """``g(z) = z + tanh z``: its slope is in (1, 2], so that it is strongly monotone with mu = 1, and L = 2."""

    __slots__ = ()

    name = "bent"
    steepest = 2.0
    targets = ("continuous",)

    def mean(self, scores):
        return np.asarray(scores + np.tanh(scores))

    def potential(self, scores):
        """Return the integral of the mean."""
        return np.asarray(0.5 * scores**2 + np.logaddexp(scores, -scores) - np.log(2.0))


@pytest.fixture
def bent():
    loss_registry.register_loss(Bent())
    yield
    loss_registry._losses.pop("bent", None)


@pytest.mark.usefixtures("bent")
def test_theorem_1_a_strongly_monotone_link_converges_linearly(tmp_path):
    """ell(W_t) - ell(W*) <= L/2 q^t |W*|^2 in the norm of Sigma, q = (kappa - 1) / (kappa + 1), kappa = 2."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((200, 5)) @ np.diag([1.0, 0.1, 1e-2, 1e-3, 1e-4])  # the rate knows no condition number
    best = np.linalg.solve(np.diag([1.0, 0.1, 1e-2, 1e-3, 1e-4]), rng.standard_normal((5, 1)))
    z = x @ best
    ingest(x, tmp_path / "d", y=Bent().mean(z), target="continuous", dtype="float64")

    def loss(w):
        return float((Bent().potential(x @ w) - (x @ w) * Bent().mean(z)).mean())

    size, excess = float(np.square(z).mean()), [loss(0 * best) - loss(best)]
    for t in range(1, 9):
        given = {**PRINTED, "link": "bent", "lipschitz": 2.0}
        model = fit("gls", tmp_path / "d", params=given, passes=t, eval_every=0).model
        excess.append(loss(model.weights) - loss(best))
    q = 1.0 / 3.0
    bounds = 2.0 / 2.0 * q ** np.arange(9) * size
    assert (excess <= bounds).all()
    assert excess[0] > bounds[0] / 4.0
    # the first bound, 2 L |W*|^2 / (t + 4), which knows nothing of mu
    assert (np.array(excess[1:]) <= 4.0 * size / (np.arange(1, 9) + 4.0)).all()
    falls = np.array(excess[1:]) / np.array(excess[:-1])
    assert q / 4.0 < falls.max() <= q


class Kinked(Link):
    """``g(z)`` has slope 1 about z = 1, and is nearly flat further than 1/3 from it: the slowest start there is."""

    __slots__ = ()

    name = "kinked"
    steepest = 1.0
    targets = ("continuous",)

    def mean(self, scores):
        return np.asarray(np.clip(scores - 1.0, -1.0 / 3.0, 1.0 / 3.0) * (1 - 1e-9) + 1e-9 * (scores - 1.0))

    def potential(self, scores):
        """Return the integral of the mean."""
        u = np.abs(scores - 1.0)
        bent = np.where(u < 1.0 / 3.0, 0.5 * u**2, u / 3.0 - 1.0 / 18.0)
        return np.asarray(bent * (1 - 1e-9) + 0.5e-9 * u**2)


@pytest.fixture
def kinked():
    loss_registry.register_loss(Kinked())
    yield
    loss_registry._losses.pop("kinked", None)


@pytest.mark.slow
@pytest.mark.usefixtures("kinked")
def test_theorem_1_the_first_bound_is_within_a_factor_of_three(tmp_path):
    """2 L |W*|^2 / (t + 4): steps of 1/L cannot do better than L |W*|^2 / (4 t + 2), which is attained at t = 1."""
    ingest(np.ones((20, 1)), tmp_path / "d", y=np.zeros(20), target="continuous", dtype="float64")
    given = {**PRINTED, "link": "kinked", "lipschitz": "paper"}
    w = fit("gls", tmp_path / "d", params=given, passes=1, eval_every=0).model.weights
    excess = float(Kinked().potential(w)[0, 0])  # zero at the optimum, W* = 1
    assert excess == pytest.approx(1.0 / 6.0, rel=1e-6)
    assert 2.0 / 5.0 / 4.0 < excess <= 2.0 / 5.0


def test_irls_diverges_where_algorithm_1_does_not(tmp_path):
    """One logistic weight, started three units from its optimum: Newton's steps overshoot further and further."""
    w, far = 3.0, []
    with np.errstate(over="ignore", divide="ignore"):
        for _ in range(3):
            p = 1.0 / (1.0 + np.exp(-w))
            w -= (p - 0.5) / (p * (1.0 - p))
            far.append(abs(w))
    assert np.isinf(far[-1])
    assert far[0] < far[1] < far[2]
    dataset = write_dataset(tmp_path / "d", np.ones((20, 1)), np.array([0, 1] * 10, np.int32))
    # the start: rows of the second class only but for one in 21, whose optimum is log 20, about 3
    start = write_dataset(tmp_path / "start", np.ones((21, 1)), np.array([0] + [1] * 20, np.int32))
    given = {**PRINTED, "link": "logit", "lipschitz": "paper"}
    begun = fit("gls", start, tmp_path / "run", params=given, passes=500)
    assert begun.model.weights[0, -1] == pytest.approx(np.log(20.0), abs=1e-3)
    found = [
        fit("gls", dataset, params={**given, "init": str(begun.run)}, passes=t, eval_every=0).model.weights[0, -1]
        for t in (1, 4, 16, 64)
    ]
    assert (np.diff(found) < 0.0).all()
    assert 0.0 <= found[-1] < 1e-3
