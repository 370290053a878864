import json
import subprocess
import sys

import numpy as np
import pytest

from distls.testing.losses import LossContract, of_row, scores_and_classes
from distls.workers.losses.links import LogOfProbability
from distls.workers.losses.loss import GRADIENT_IN_G
from distls.workers.losses.loss_registry import LOSSES, has_probabilities, losses_with, probabilities
from distls.workers.losses.ovr_log import NormalizedSigmoids
from distls.workers.losses.row_functions import has_row_function, row_gradient
from reference import mcid

NAMES = sorted(name for name, loss in LOSSES.items() if has_row_function(loss, "row_gradient"))
FORMS = [name for name in NAMES if LOSSES[name].binary is not None]


class TestContract(LossContract):
    @pytest.fixture(params=NAMES)
    def loss(self, request):
        return LOSSES[request.param]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_agree_with_the_paper(name):
    """Rows agree with the arrays by the contract."""
    for k in (2, 3, 4, 5, 53):
        z, y = scores_and_classes(k)
        expected = [mcid.LOSSES[name](z[i], y[i]) for i in range(len(z))]
        values, slopes = LOSSES[name].values(z, y), LOSSES[name].gradient(z, y)
        np.testing.assert_allclose(values, [e[0] for e in expected], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(slopes, [e[1] for e in expected], rtol=1e-13, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_go_to_the_lowest_class(name, dtype):
    z, g = np.array([1.0, 2.0, 2.0, 2.0], dtype), np.empty(4, dtype)
    for y in range(4):
        value, rival, predicted = row_gradient(LOSSES[name], z, 1.0, y, g)
        assert predicted == 1
        expected_value, slopes = mcid.LOSSES[name](z.astype(float), y)
        assert value == pytest.approx(expected_value, rel=1e-6)
        if name == "crammer_singer":
            assert rival == (2 if y == 1 else 1)
        if name == "perceptron":
            assert rival == 1
        np.testing.assert_allclose(LOSSES[name].gradient(z[None], np.array([y]))[0], slopes, atol=1e-6)


@pytest.mark.fast_cases("float64-(softmax|ovr_squared)")
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_form_of_two_classes(name, dtype):
    loss, form, (z, y) = LOSSES[name], LOSSES[name].binary, scores_and_classes(1, spread=2.0)
    y = np.arange(len(z), dtype=np.int32) % 2
    # the two outputs of a sum each have the whole margin; else both together have it
    share, times = (1.0, 1.0 if name == "ovr_squared_hinge" else 2.0) if loss.separable else (0.5, 1.0)
    if name != "squared":  # of targets -1 and 1, not 0 and 1
        both = share * np.hstack([-z, z])
        np.testing.assert_allclose(times * form.values(z, y), loss.values(both, y), rtol=1e-12, atol=1e-15)
    numeric = (form.values(z + 1e-6, y) - form.values(z - 1e-6, y)) / 2e-6
    np.testing.assert_allclose(form.gradient(z, y)[:, 0], numeric, atol=1e-8)
    for i in range(len(z)):
        row, g = (z[i] / 0.25).astype(dtype), np.full(1, np.nan, dtype)
        value, rival, predicted = row_gradient(form, row, 0.25, int(y[i]), g)
        slope = g[0] if rival == GRADIENT_IN_G else 0.0
        expected = form.values(z, y)[i], form.gradient(z, y)[i, 0]
        np.testing.assert_allclose([value, slope], expected, rtol=3e-6, atol=1e-7)
        assert predicted == (z[i, 0] > 0)
    assert row_gradient(form, np.zeros(1, dtype), 1.0, 1, np.empty(1, dtype))[2] == 0


def test_zero_scores_teach_the_perceptron_unless_the_class_is_the_first():
    z = np.zeros(3)
    assert row_gradient(LOSSES["perceptron"], z, 0.0, 2, np.empty(3))[1] == 0
    assert row_gradient(LOSSES["perceptron"], z, 0.0, 0, np.empty(3))[1] == 0  # rival == y: no update


def test_hinge_exactly_on_the_margin_has_no_slope():
    z = np.array([[2.0, 1.0, 0.0]])
    y = np.array([0])
    assert row_gradient(LOSSES["crammer_singer"], z[0], 1.0, 0, np.empty(3))[:2] == (0.0, 0)
    assert not LOSSES["crammer_singer"].gradient(z, y).any()


@pytest.mark.slow_cases(".*-float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 5, 53])
def test_softmax_is_stable_and_accurate(dtype, k):
    z, y = scores_and_classes(k, spread=30.0)
    z[:5] *= 1e3
    z = z.astype(dtype)
    exact = LOSSES["softmax"].gradient(z.astype(np.longdouble), y)
    values = LOSSES["softmax"].values(z.astype(np.longdouble), y)
    tolerance = 2e-7 if dtype == np.float32 else 1e-15
    for i in range(len(z)):
        value, g, _ = of_row(LOSSES["softmax"], z[i], 1.0, y[i])
        np.testing.assert_allclose(g, exact[i].astype(float), rtol=0, atol=tolerance)
        np.testing.assert_allclose(value, float(values[i]), rtol=4 * tolerance, atol=4 * tolerance)


def test_ovr_hinge_exactly_on_the_margin_has_no_slope():
    z, g = np.array([1.0, -1.0, -1.0]), np.empty(3)
    assert row_gradient(LOSSES["ovr_hinge"], z, 1.0, 0, g) == (0.0, 0, 0)  # rival == y: no update
    assert not LOSSES["ovr_hinge"].gradient(z[None], np.array([0])).any()
    assert row_gradient(LOSSES["ovr_hinge"], z, 0.999, 0, g)[1] == GRADIENT_IN_G
    assert g.tolist() == [-1.0, 1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 5, 53, 1139])
@pytest.mark.parametrize("scale", [0.1, 30.0, 3e4])
def test_one_versus_rest_in_float32_is_stable_and_accurate(k, scale):
    z, y = scores_and_classes(k, spread=1.0)
    z = z.astype(np.float32)
    exact = scale * z.astype(np.longdouble)
    for name in ("ovr_log", "ovr_hinge"):
        values, slopes = LOSSES[name].values(exact, y), LOSSES[name].gradient(exact, y)
        for i in range(len(z)):
            value, g, _ = of_row(LOSSES[name], z[i], scale, y[i])
            np.testing.assert_allclose(value, float(values[i]), rtol=3e-6, atol=1e-6)
            if name == "ovr_log":  # the scores themselves are rounded by 1e-7 of their size
                np.testing.assert_allclose(g, slopes[i].astype(float), rtol=0, atol=2e-6)


@pytest.mark.slow_cases(".*-float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 700.0, -700.0, -1e4])
def test_normalized_sigmoids_are_scored_even_where_all_of_them_vanish(dtype, shift):
    z, y = scores_and_classes(6)
    z = (z + shift).astype(dtype)
    p = probabilities("ovr_log", z.copy())
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    assert np.array_equal(p.argmax(axis=1), z.argmax(axis=1)) or shift == 700.0  # all sigmoids are 1
    if shift == 0.0:
        sigmoids = 1 / (1 + np.exp(-z))
        np.testing.assert_allclose(p, sigmoids / sigmoids.sum(axis=1, keepdims=True), rtol=1e-5)
    losses = NormalizedSigmoids().values(z.astype(float), y)
    rows = [row_gradient(NormalizedSigmoids(), row, 1.0, int(c), row)[0] for row, c in zip(z, y, strict=True)]
    np.testing.assert_allclose(rows, losses, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(np.exp(-losses), p[np.arange(len(y)), y], rtol=1e-2 if shift else 1e-5)
    with pytest.raises(ValueError, match="perceptron has no probabilities"):
        probabilities("perceptron", z)


@pytest.mark.slow_cases("float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_that_are_probabilities(dtype):
    p, y = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype), np.array([0, 0, 0, 1])
    expected = [np.log(4.0), 0.0, np.inf, 0.0]
    np.testing.assert_allclose(LogOfProbability().values(p, y), expected, rtol=1e-6)
    rows = [row_gradient(LogOfProbability(), row, 1.0, c, row) for row, c in zip(p, y, strict=True)]
    np.testing.assert_allclose([value for value, _, _ in rows], expected, rtol=1e-6)
    assert [(rival == c, best) for (_, rival, best), c in zip(rows, y, strict=True)] == [
        (True, 1), (True, 0), (True, 1), (True, 1)
    ]  # fmt: skip
    again = probabilities("simplex", p.copy())
    assert np.array_equal(again, p)


def test_losses_are_named_once():
    for name, loss in ((name, LOSSES[name]) for name in NAMES):
        assert type(loss).__name__.lower() == name.replace("_", "")
        assert loss.name == name
        assert has_row_function(loss, "row_gradient")
    assert set(mcid.LOSSES) == set(NAMES)
    assert losses_with(probabilities=True) == ("softmax", "ovr_log", "probit", "cauchit")
    assert [name for name in (*NAMES, "simplex") if has_probabilities(name)] == ["ovr_log", "softmax", "simplex"]


@pytest.mark.slow
def test_kernels_with_a_loss_come_from_the_disk_cache_in_a_new_process(tmp_path):
    program = """
import json, numpy as np
from distls.storage.rows import DenseRows
from distls.workers.evaluation.loss_sums import evaluate_rows
from distls.workers.losses import targets
from distls.workers.losses.loss_registry import LOSSES
x = DenseRows(np.ones((2, 2), np.float32))
none = np.empty(0)
y, w, b, predicted = np.zeros(2, np.int32), np.zeros((2, 2)), np.zeros(2), np.empty(0, np.int32)
evaluate_rows(x, y, none, LOSSES["perceptron"], w, b, predicted)
stats = targets._class_losses.stats
print(json.dumps([sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]))
"""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    runs = [
        json.loads(
            subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
        )
        for _ in range(2)
    ]
    assert runs == [[0, 1], [1, 0]]
