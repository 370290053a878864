"""A loss and a penalty of this module: registered, trained, evaluated and certified without an edit in the package."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import labelled_rows, printed, refuses, write_dataset

from distls import evaluate, fit, predict
from distls.columns.sharding import add_columns
from distls.methods.method_registry import METHODS
from distls.storage.errors import ParameterError
from distls.workers.losses import loss_registry as losses
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import row_gradient_of
from distls.workers.losses.shared_parts import MarginLoss
from distls.workers.penalties import penalty_registry as penalties
from distls.workers.penalties.penalty import Penalty
from distls.workers.penalties.penalty_rows import row_penalty_of, row_prox_of, scale, shorten, sum_of_squares
from distls.workers.simd.class_sums import first_max


class OvrHuberHinge(MarginLoss):
    """One-versus-rest hinge with a rounded kink, of m = t_c z_c: (1 - m)^2 / 2 for 0 < m < 1, 1/2 - m below."""

    __slots__ = ()

    name = "ovr_huber_hinge"
    aliases = ("huber",)

    def of_margins(self, m):
        short = np.maximum(0.0, 1.0 - m)
        return np.where(short < 1.0, 0.5 * short**2, short - 0.5), -np.minimum(short, 1.0)

    def lipschitz(self, k):
        return 1.0


@row_gradient_of(OvrHuberHinge)
def _row(z, scale, y, g):
    value = 0.0
    for c in range(len(g)):
        sign = 1.0 if c == y else -1.0
        short = 1.0 - sign * scale * np.float64(z[c])
        short = 0.0 if short <= 0.0 else short
        value += 0.5 * short * short if short < 1.0 else short - 0.5
        g[c] = -sign * (short if short < 1.0 else 1.0)
    return value, GRADIENT_IN_G, first_max(z)


class GroupNet(Penalty):
    """``sum_j |W_j| + 1/2 |W_j|^2``: rows become zero as a whole, the others shrink more than under l1l2."""

    __slots__ = ()

    name = "group-net"

    def value(self, w, rho):
        squares = np.square(w).sum(axis=1)
        return float((np.sqrt(squares) + 0.5 * squares).sum())

    def conjugate(self, v, alpha, rho):
        over = np.maximum(np.sqrt(np.square(v).sum(axis=1)) - alpha, 0.0)
        return 1.0, float(np.square(over).sum()) / (2.0 * alpha)

    def zero_from(self, gradient, rho):
        return float(np.sqrt(np.square(gradient).sum(axis=1)).max())


@row_penalty_of(GroupNet)
def _value(w, rho):
    return np.sqrt(sum_of_squares(w)) + 0.5 * sum_of_squares(w)


@row_prox_of(GroupNet)
def _prox(v, mu, rho, out):
    shorten(v, mu, out)
    scale(out, 1.0 / (1.0 + mu), out)


@pytest.fixture(autouse=True)
def registered():
    losses.register_loss(OvrHuberHinge())
    penalties.register_penalty(GroupNet())
    yield
    del losses._losses["ovr_huber_hinge"]
    del penalties._penalties["group-net"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """300 rows, 20 features, 3 classes; the same as arrays."""
    x, y = labelled_rows(300, 20, 3)
    path = tmp_path_factory.mktemp("small") / "train"
    write_dataset(path, x, y)
    add_columns(path, shard_size=2000)
    return path, np.asarray(x.todense(), float), y


def test_the_loss_is_known_and_found():
    assert losses.losses_with(smooth=True, separable=True, stochastic=True)[-1] == "ovr_huber_hinge"
    assert "ovr_huber_hinge" not in losses.losses_with(coordinate_descent=True)
    losses.register_loss(OvrHuberHinge())  # once more is no harm


def test_its_short_name_is_one_of_every_method_that_can_train_with_it():
    trained_by = {name for name, method in METHODS.items() if "huber" in method.aliases}
    assert trained_by == {"sgd", "asgd", "fobos"}
    for name in trained_by:
        assert METHODS[name].resolve({"loss": "huber"})["loss"] == "ovr_huber_hinge"
    assert "huber = ovr_huber_hinge" in printed("methods", "sgd")
    with pytest.raises(ParameterError, match=r"sdca: loss=ovr_huber_hinge: it has no dual step; expected one of"):
        METHODS["sdca"].resolve({"loss": "ovr_huber_hinge"})


def test_sgd_trains_with_it_and_its_model_is_evaluated_certified_and_predicted(small, tmp_path):
    path, x, y = small
    params = {"loss": "huber", "alpha": 1e-2}
    result = fit("sgd", path, tmp_path / "run", params=params, passes=30)
    model = result.model
    w = model.weights.astype(float)
    scores = x @ w + model.intercept
    objective = OvrHuberHinge().values(scores, y).mean() + 0.5 * 1e-2 * np.square(w).sum()
    assert objective < OvrHuberHinge().values(np.zeros_like(scores), y).mean()
    final = result.record
    assert final["objective"] == pytest.approx(objective, rel=1e-5)
    gradient = x.T @ OvrHuberHinge().gradient(scores, y) / len(y) + 1e-2 * w
    assert final["certificate"]["kind"] in ("gradient_norm", "strong_convexity")
    assert final["certificate"]["value"] is not None
    assert np.linalg.norm(gradient) < 0.1
    assert evaluate(model, path).error == pytest.approx(np.mean(scores.argmax(axis=1) != y), abs=1e-12)
    predict(model, path, tmp_path / "predicted.csv")
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == len(y) + 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bcd", "fista"])
def test_sparse_methods_train_with_the_penalty(method, small):
    path, x, y = small
    params = {"loss": "softmax", "penalty": "group-net", "alpha": 5e-3, "fit_intercept": False}
    result = fit(method, path, params=params, passes=400, tol=1e-9)
    w = result.model.weights.astype(float)
    gradient = x.T @ losses.LOSSES["softmax"].gradient(x @ w, y) / len(y)
    sizes = np.linalg.norm(w, axis=1)
    used = sizes > 0.0
    assert 0 < used.sum() < len(w)
    # the gradient is minus alpha times the penalty's, or less than alpha long where the row is zero
    wanted = -5e-3 * (w[used] / sizes[used, None] + w[used])
    np.testing.assert_allclose(gradient[used], wanted, atol=2e-5)
    assert (np.linalg.norm(gradient[~used], axis=1) <= 5e-3).all()
    assert result.record["certificate"]["kind"] == "duality_gap"
    assert 0.0 <= result.record["certificate"]["value"] <= 1e-6


def test_names_and_row_functions_are_checked():
    class Second(Loss):
        name = "ovr_huber_hinge"

    class Incomplete(Loss):
        name = "incomplete"

    class NoProx(Penalty):
        name = "no-prox"

    refuses(ValueError, "there is a loss ovr_huber_hinge already", losses.register_loss, Second())
    refuses(ValueError, "Incomplete needs a function under @row_gradient_of", losses.register_loss, Incomplete())
    refuses(ValueError, "NoProx needs a function under @row_penalty_of", penalties.register_penalty, NoProx())
    with pytest.raises(ParameterError, match="loss=incomplete: expected one of multiclass_squared_hinge, "):
        losses.loss_named("incomplete")


@pytest.mark.slow
def test_what_is_compiled_for_it_is_not_in_the_way_of_programs_without_it(tmp_path):
    # numba unpickles the index of a kernel whole, with the classes of all variants in it
    call = """
import numpy as np
from distls.workers.losses.targets import LossSums, _class_losses, class_losses
from distls.workers.losses.loss_registry import LOSSES
sums = LossSums()
class_losses({loss}, np.zeros((2, 2)), np.zeros(2, np.int32), np.empty(0), sums)
print(sum(_class_losses.stats.cache_hits.values()))
"""
    module = Path(__file__)
    outside = f"import sys; sys.path[:0] = [{str(module.parent)!r}, {str(module.parents[2])!r}]\n"
    outside += f"from {module.stem} import OvrHuberHinge\n" + call.format(loss="OvrHuberHinge()")
    inside = call.format(loss='LOSSES["perceptron"]')
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    hits = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
        ).stdout
        for program in (outside, inside, outside, inside)
    ]
    assert hits == ["0\n", "0\n", "1\n", "1\n"]
