"""Losses given by a link: derivatives, integrals, log losses, and links that contradict themselves."""

import numpy as np
import pytest
from helpers import refuses

from distls.workers.losses import loss_registry
from distls.workers.losses.links import Cauchit, Link, Poisson, Probit
from distls.workers.losses.loss import GRADIENT_IN_G
from distls.workers.losses.targets import LossSums, class_losses

LINKS = [Probit(), Cauchit(), Poisson()]


@pytest.mark.parametrize("link", LINKS)
def test_the_mean_is_the_derivative_of_the_potential(link):
    z, h = np.linspace(-6.0, 6.0, 61), 1e-5
    slope = (link.potential(z + h) - link.potential(z - h)) / (2 * h)
    np.testing.assert_allclose(link.mean(z), slope, rtol=1e-8, atol=1e-9)
    link.check()
    own = {type(each) for each in loss_registry.LOSSES.values() if type(each).__module__ == Link.__module__}
    assert {type(each) for each in LINKS} == own  # which are not checked as they are registered
    if link.symmetric is not None:  # as it is computed of links that do not say so
        np.testing.assert_allclose(link.mean(z) + link.mean(-z), float(link.symmetric), atol=1e-12)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("reach", [1.0, 30.0])
def test_the_integral_of_the_mean_is_the_potential(link, reach):
    z = np.linspace(-reach, reach, 41)
    own = Link.potential(link, z)
    known = link.potential(z) - link.potential(np.zeros(1))
    np.testing.assert_allclose(own, known, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("link", [Probit(), Cauchit()])
def test_the_largest_derivative_is_at_zero(link):
    h = 1e-4
    assert (link.mean(np.array(h)) - link.mean(np.array(-h))) / (2 * h) == pytest.approx(link.steepest, rel=1e-7)


@pytest.mark.parametrize("link", [Probit(), Cauchit()])
def test_rows_of_classes_are_summed_and_their_gradients_are_differences(link):
    rng = np.random.default_rng(2)
    z, y, s = (2.0 * rng.standard_normal((40, 3)), rng.integers(0, 3, 40).astype(np.int32), rng.uniform(1, 2, 40))
    y[3] = -1  # a label that the model does not know
    sums, predicted, runner_ups, g = (LossSums(), np.empty(40, np.int32), np.empty(40, np.int32), np.empty((40, 3)))
    class_losses(link, z, y, s, sums, predicted=predicted, runner_ups=runner_ups, gradients=g)
    known = y >= 0
    values = link.values(z, np.maximum(y, 0))
    assert sums.totals() == (
        pytest.approx(s[known] @ values[known]),
        pytest.approx(s[known].sum()),
        np.count_nonzero(z.argmax(axis=1) != y),
    )
    np.testing.assert_array_equal(predicted, z.argmax(axis=1))
    assert (runner_ups == GRADIENT_IN_G).all()
    for c in range(3):
        step = 1e-5 * np.eye(3)[c]
        other = (link.values(z + step, y.clip(0)) - link.values(z - step, y.clip(0))) / 2e-5
        np.testing.assert_allclose(g[:, c], other, atol=1e-8)


@pytest.mark.parametrize("name", ["probit", "cauchit"])
def test_log_losses_are_those_of_the_probabilities_also_far_out(name):
    z = np.array([[0.3, -1.0, 2.0], [-60.0, -50.0, -55.0]])
    p = loss_registry.probabilities(name, z.copy())
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    for c in range(3):
        y = np.full(2, c, np.int32)
        np.testing.assert_allclose(loss_registry.scorer(name).values(z, y), -np.log(p[:, c]), rtol=1e-9)


def _link(mean, **own):
    space = {"__slots__": (), "name": "odd", "mean": lambda self, scores: mean(scores), **own}
    made = type("Odd", (Link,), space)()
    return made


def _half(scores):
    return np.asarray(1.0 / (1.0 + np.exp(-scores)))


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (_link(lambda z: 0.5 - 0.1 * z), "decreases"),
        (_link(lambda z: 2.0 * _half(z)), "not a probability"),
        (_link(_half, potential=lambda self, z: z), "not the derivative"),
        (_link(_half, steepest=0.1), "steeper than"),
    ],
)
def test_links_that_contradict_themselves_are_not_registered(link, message):
    refuses(ValueError, f"link odd: .*{message}", loss_registry.register_loss, link)
    assert "odd" not in loss_registry.LOSSES


def test_a_name_that_is_taken():
    refuses(ValueError, "there is a loss softmax already", loss_registry.register_loss, _link(_half, name="softmax"))
