"""Truncated Newton through the driver: the optimum, its certificate, same bits, and passes that lanes do not change."""

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract, StoredContract
from helpers import labelled_rows, refuses, rows_with_mistakes, write_dataset
from sklearn.linear_model import LogisticRegression, Ridge
from target_helpers import write_targets

from distls.solvers.status import Status
from distls.storage.errors import ParameterError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.callbacks import History
from distls.training.fitting import fit, resume
from distls.workers.losses.loss_registry import loss_named, losses_with
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.truncated_newton.newton_task import NewtonTask, Points
from reference.dual_ascent import Primal

EXACT = {"alpha": 0.1, "dtype": "float64"}
LOSSES = losses_with(dual=True, smooth=True, second_order=True)


class TestSgdStart(StoredContract):
    """From a pass of stochastic gradients, with an intercept that is balanced."""

    method = "newton"
    params = {"alpha": 1e-3, "start": "sgd", "fit_intercept": True}
    passes = 6


class TestElasticNet(SolverContract):
    """Within orthants, on partitions enough for products of a quarter of them."""

    method = "newton"
    params = {"alpha": 3e-3, "penalty": "elasticnet", "l1_ratio": 0.3}
    passes = 6
    random = False

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        x, y = labelled_rows(1050, 60, 5)
        return write_dataset(tmp_path_factory.mktemp("data") / "train", x, y, partition_rows=24)

    def test_products_far_from_the_optimum_are_of_a_quarter_of_the_rows(self, dataset):
        history = History()
        self.fit(dataset, callbacks=[history])
        rows = [record["n_rows"] for record in history.records]
        passes = np.diff([0.0, *(record["passes"] for record in history.records)])
        # a gradient at zero weights, two products, the next gradient, and products near the optimum
        quarter = sum(dataset.table.rows[[block for block in range(len(dataset)) if block // 8 % 4 == 1]])
        assert rows[:5] == [1050, quarter, quarter, 1050, 1050]
        assert passes[:5] == pytest.approx([rows_read / 1050 for rows_read in rows[:5]], rel=0.1)


@pytest.mark.slow
class TestZeroStart(SolverContract):
    """From zero weights in float64, with class weights; nothing of it is random."""

    method = "newton"
    params = {"loss": "squared_hinge", "alpha": 1e-2, "class_weight": "balanced", "dtype": "float64"}
    passes = 5
    random = False


def objective_of(primal, model):
    return float(primal.value(model.weights.astype(float), model.intercept.astype(float)))


@pytest.mark.fast_cases(r"csr-False-softmax-4-0\.0")
@pytest.mark.parametrize("l1", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_the_optimum_and_its_proof(tmp_path, layout, intercept, loss, k, l1):
    """Against a quasi-Newton method of the whole problem; dense rows have blocks for a preconditioner."""
    alpha, penalty = (0.1, {}) if not l1 else (0.03, {"penalty": "elasticnet", "l1_ratio": l1})
    x, y, s = rows_with_mistakes(k)
    given = x if layout == "dense" else sp.csr_matrix(x)
    data = write_dataset(tmp_path / "d", given, y, partition_rows=20, n_classes=k, sample_weight=s)
    params = {**EXACT, "alpha": alpha, "loss": loss, "fit_intercept": intercept, **penalty}
    result = fit("newton", data, params=params, rtol=1e-9)
    primal = Primal(loss, x.astype(float), y, k, alpha=alpha, s=s.astype(float), l1=l1, intercept=intercept)
    found, best = objective_of(primal, result.model), primal.optimum()
    assert found == pytest.approx(result.record["objective"], rel=1e-12)
    assert result.status == Status.CONVERGED
    assert found - best <= result.record["certificate"]["value"] <= 1e-9 * found
    assert found - best >= -1e-9 * best  # the oracle's own tolerance
    assert (np.count_nonzero(result.model.weights) < result.model.weights.size) == bool(l1)


@pytest.mark.slow
def test_no_problem_lacks_more_than_is_certified(tmp_path):
    """Random problems, every evaluation of a fit from the first: what is certified is no less than what is lacking."""
    for seed in range(64):
        rng = np.random.default_rng([78, seed])
        k, loss = int(rng.choice([2, 4])), str(rng.choice(LOSSES))
        alpha, intercept = float(10.0 ** rng.uniform(-3, 0.5)), bool(rng.random() < 0.5)
        l1 = float(rng.choice([0.0, 0.2, 0.8]))
        x, y, s = rows_with_mistakes(k, seed, n=30, d=4)
        x *= np.float32(10.0 ** rng.uniform(-1, 1))
        data = write_dataset(tmp_path / f"{seed}", sp.csr_matrix(x), y, partition_rows=8, n_classes=k, sample_weight=s)
        params = {"alpha": alpha, "loss": loss, "fit_intercept": intercept, "dtype": "float64"}
        if l1:
            params |= {"penalty": "elasticnet", "l1_ratio": l1}
        history = History()
        fit("newton", data, params=params, passes=12, eval_every=1, callbacks=[history])
        primal = Primal(loss, x.astype(float), y, k, alpha=alpha, s=s.astype(float), l1=l1, intercept=intercept)
        best, judged = primal.optimum(), [each for each in history.records if "objective" in each]
        assert judged
        for record in judged:
            assert record["objective"] - best <= record["certificate"]["value"] + 1e-10 * best, (seed, params)


def test_weights_of_scikit_learn(tmp_path):
    """C of scikit-learn is 1 / (alpha n), of a binary problem that of one output."""
    x, y, _ = rows_with_mistakes(2)
    data = write_dataset(tmp_path / "d", sp.csr_matrix(x), y, partition_rows=20)
    plain = LogisticRegression(C=1.0 / (0.1 * len(x)), tol=1e-12, max_iter=10000).fit(x.astype(float), y)
    ours = fit("newton", data, params={**EXACT, "loss": "ovr_log", "fit_intercept": True}, rtol=1e-13).model
    np.testing.assert_allclose(ours.weights[:, 0], plain.coef_[0], atol=1e-6)
    assert ours.intercept[0] == pytest.approx(plain.intercept_[0], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["continuous", "multilabel"])
def test_numbers_and_sets_of_labels(tmp_path, target):
    x, _, s = rows_with_mistakes(4)
    if target == "multilabel":
        y = (x[:, :3] + 0.2 > 0).astype(float)
    else:
        y = x[:, :2].astype(float) @ np.array([[1.0, -2.0], [0.5, 1.0]]) + [30.0, -4.0] + s[:, None]
    data = write_targets(tmp_path / "d", sp.csr_matrix(x), y, target, partition_rows=20, sample_weight=s)
    result = fit("newton", data, params={**EXACT, "fit_intercept": True}, rtol=1e-10)
    if target == "continuous":
        ridge = Ridge(alpha=0.1 * s.sum(), tol=1e-14).fit(x.astype(float), y, sample_weight=s.astype(float))
        np.testing.assert_allclose(result.model.weights, ridge.coef_.T, atol=1e-5)
    primal = Primal(
        "squared" if target == "continuous" else "ovr_log", x.astype(float), y, y.shape[1], alpha=0.1,
        s=s.astype(float), intercept=True,
    )  # fmt: skip
    found = objective_of(primal, result.model)
    assert found - primal.optimum() <= result.record["certificate"]["value"] <= 1e-10 * found


@pytest.mark.slow
def test_a_penalised_intercept_is_the_weight_of_a_feature(tmp_path):
    x, y, _ = rows_with_mistakes(4)
    data = write_dataset(tmp_path / "d", sp.csr_matrix(x), y, partition_rows=20)
    wide = np.hstack([x, np.full((len(x), 1), 2.0, np.float32)])
    with_feature = write_dataset(tmp_path / "w", sp.csr_matrix(wide), y, partition_rows=20)
    scaled = fit("newton", data, params={**EXACT, "fit_intercept": True, "intercept_scaling": 2.0}, rtol=1e-12)
    plain = fit("newton", with_feature, params={**EXACT, "fit_intercept": False}, rtol=1e-12)
    assert scaled.record["objective"] == pytest.approx(plain.record["objective"], rel=1e-11)
    np.testing.assert_allclose(scaled.model.intercept, 2.0 * plain.model.weights[-1], atol=1e-6)


@pytest.mark.fast_cases("softmax$")
@pytest.mark.parametrize("loss", LOSSES)
def test_curvature_is_the_derivative_of_the_gradient(loss):
    """By central differences, away from the kinks of hinges."""
    rng = np.random.default_rng(3)
    z, y, v = (rng.standard_normal((40, 4)), rng.integers(0, 4, 40).astype(np.int32), rng.standard_normal((40, 4)))
    for form in (loss_named(loss), loss_named(loss).binary):
        if form is None:
            continue
        k = 4 if form is loss_named(loss) else 1
        own_z, own_v, own_y = z[:, :k], v[:, :k], np.minimum(y, 1) if k == 1 else y
        gradient = form.gradient(own_z, own_y)
        product = form.curvature_product(gradient, own_v)
        step = 1e-6
        slope = (form.gradient(own_z + step * own_v, own_y) - form.gradient(own_z - step * own_v, own_y)) / (2 * step)
        np.testing.assert_allclose(product, slope, atol=1e-6)
        # the diagonal, one output after the other
        unit = np.eye(k)
        diagonal = np.stack(
            [form.curvature_product(gradient, np.tile(unit[c], (40, 1)))[:, c] for c in range(k)], axis=1
        )
        np.testing.assert_allclose(form.curvature(gradient), diagonal, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rtol", [1e-3, 1e-6])
@pytest.mark.parametrize("start", ["sgd", "zero"])
def test_passes_do_not_depend_on_lanes(tmp_path, start, rtol):
    x, y = labelled_rows(1280, 50, 3)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=10)
    found = [
        fit("newton", data, params={"alpha": 1e-4, "start": start, "lanes": lanes}, rtol=rtol) for lanes in (1, 8, 128)
    ]
    assert len({result.passes for result in found}) == 1
    assert found[0].passes % 1.0, "products of a quarter of the rows"
    assert all(result.status == Status.CONVERGED for result in found)


@pytest.mark.slow
def test_a_bold_start_is_left_for_zero_weights(tmp_path):
    """One pass over large rows ends above the objective of zero weights: the fit is that from zero."""
    x, y = labelled_rows(300, 40, 3)
    data = write_dataset(tmp_path / "d", x * np.float32(1e4), y, partition_rows=50)
    history = History()
    params = {"alpha": 1e8, "start": "sgd", "dtype": "float64"}
    result = fit("newton", data, params=params, rtol=1e-6, callbacks=[history])
    plain = fit("newton", data, params={**params, "start": "zero"}, rtol=1e-6)
    assert result.status == Status.CONVERGED
    assert result.record["objective"] == pytest.approx(plain.record["objective"], rel=1e-6)


@pytest.mark.slow
def test_a_start_that_is_not_finite_is_left_for_zero_weights(tmp_path):
    x, y = labelled_rows(300, 40, 3)
    data = write_dataset(tmp_path / "d", x * np.float32(1e19), y, partition_rows=50)
    params = {"alpha": 1e36, "start": "sgd", "loss": "squared_hinge"}
    assert fit("newton", data, params=params, rtol=1e-3).status == Status.CONVERGED


def test_a_path_from_stochastic_gradients_is_planned_before_its_strengths_are_known(tmp_path):
    x, y = labelled_rows(300, 40, 3)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=50)
    params = {"alpha": "path", "alphas": "1e-1:1e-2", "start": "sgd"}
    assert fit("newton", data, params=params, select=data).status == Status.CONVERGED


def test_steps_take_one_read_where_the_blocks_of_dense_columns_are_the_hessian(tmp_path):
    x, y = labelled_rows(600, 40, 2)
    reads = {}
    for name, rows in (("dense", x.toarray()), ("csr", x)):
        data, history = write_dataset(tmp_path / name, rows, y, partition_rows=50), History()
        result = fit("newton", data, params={"alpha": 1e-4}, rtol=1e-6, callbacks=[history])
        assert result.status == Status.CONVERGED
        reads[name] = [record["details"]["stage"] for record in history.records]
    assert "product" in reads["csr"]
    assert len(reads["dense"]) < len(reads["csr"]) / 2
    assert set(reads["dense"][:-1]) <= {"gradient", "search"}


def test_it_ends_where_no_step_helps(tmp_path):
    """Without a tolerance that can be met it stops at rounding, well before its passes are over."""
    x, y = labelled_rows(200, 20, 3)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=50)
    result = fit("newton", data, params={"alpha": 1e-2, "dtype": "float64"}, passes=500, rtol=1e-300)
    assert result.status == Status.MAX_PASSES  # which is the end above a tolerance that was asked for
    assert result.passes < 100


@pytest.mark.slow
def test_folds_of_a_path_are_those_of_other_methods(tmp_path):
    x, y = labelled_rows(400, 50, 3)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=50)
    params = {"alpha": "path", "alphas": "1e-1:1e-2", "folds": 3, "dtype": "float64"}
    found = {method: fit(method, data, tmp_path / method, params=params, rtol=1e-8) for method in ("newton", "sdca")}
    assert all(result.status == Status.CONVERGED for result in found.values())
    # rows of a fold are not seen by its fits: the errors are those of another solver of the same problems
    mine, theirs = ([point["cv_error"] for point in result.record["details"]["path"]] for result in found.values())
    # in memory they end near the optimum
    assert mine == pytest.approx(theirs, abs=0.01)
    assert min(theirs) > 0.0


@pytest.mark.fast_cases("hinge")
@pytest.mark.parametrize("loss", ["hinge", "crammer_singer", "multiclass_squared_hinge"])
def test_other_losses_are_refused(tmp_path, loss):
    x, y = labelled_rows(60, 10, 3)
    data = write_dataset(tmp_path / "d", x, y)
    refuses(ParameterError, "expected one of", fit, "newton", data, params={"loss": loss})


def test_the_best_round_is_certified_alike_by_a_resumed_fit(tmp_path):
    """What the best round's reads had proven is no part of a checkpoint."""
    x, y = labelled_rows(90, 12, 3)
    data = write_dataset(tmp_path / "d", x, y)
    held = write_dataset(tmp_path / "h", x, (y + 1) % 3)  # no round is better than the first
    options = {
        "params": {"alpha": 1e-2}, "passes": 5, "eval_data": held, "patience": 1, "eval_every": 1
    }  # fmt: skip
    whole = fit("newton", data, tmp_path / "whole", **options).record
    with interrupted():
        fit("newton", data, tmp_path / "run", callbacks=[StopAfter(2)], **options)
    again = resume(tmp_path / "run").record
    assert (again["objective"], again["certificate"]) == (whole["objective"], whole["certificate"])
    assert whole["best"]["misses"] > 0


def test_rows_predicted_wrong_have_the_curvature_of_the_parabola_above_their_loss():
    """It touches the loss at m and -m, and is nowhere below it; rows that are right keep theirs."""
    m, at = np.array([-60.0, -9.0, -1.0, -1e-9, 0.0]), np.linspace(-70, 70, 2001)
    form = loss_named("ovr_log").binary
    g = form.gradient(m[:, None], np.ones(5, np.int32))
    h = form.secant_curvature(g, m[:, None])
    above = np.logaddexp(0.0, -m) + g[:, 0] * (at[:, None] - m) + 0.5 * h[:, 0] * (at[:, None] - m) ** 2
    assert np.all(above >= np.logaddexp(0.0, -at)[:, None] - 1e-9)
    mirrored = np.logaddexp(0.0, -m) - 2 * g[:, 0] * m + 2 * h[:, 0] * m**2
    np.testing.assert_allclose(mirrored, np.logaddexp(0.0, m), rtol=1e-9, atol=1e-11)
    right = form.gradient(-m[:3, None], np.ones(3, np.int32))
    np.testing.assert_array_equal(form.secant_curvature(right, -m[:3, None]), form.curvature(right))


@pytest.mark.parametrize("k", [2, 3])
def test_a_step_that_is_too_long_is_searched_along_in_one_read(tmp_path, k):
    """One column, weights started far from zero, their optimum: Newton's step goes past it to a higher objective.

    With two classes it does not: rows predicted wrong have a curvature that tells how far they are.
    """
    far = write_dataset(tmp_path / "far", np.ones((42, 1), np.float32), np.array([0, k - 1] + [1] * 40, np.int32))
    data = write_dataset(tmp_path / "d", np.ones((30, 1), np.float32), np.tile(np.arange(k, dtype=np.int32), 30 // k))
    params, history = {**EXACT, "alpha": 1e-6, "loss": "softmax", "fit_intercept": False}, History()
    begun = fit("newton", far, tmp_path / "run", params=params, rtol=1e-9).model
    result = fit("newton", data, params={**params, "init": str(tmp_path / "run")}, rtol=1e-12, callbacks=[history])
    stages = [record["details"]["stage"] for record in history.records]
    assert np.abs(begun.weights).max() > 2
    np.testing.assert_allclose(result.model.weights, 0.0, atol=1e-5)
    if k == 2:
        assert "search" not in stages
        return
    first = stages.index("search")
    values = [record["objective_estimate"] for record in history.records]
    assert values[first] == values[first + 1] > values[first + 2]  # the search, and the point that it found


def test_a_search_has_the_losses_of_every_length(tmp_path):
    x, y, s = rows_with_mistakes(3)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=20, n_classes=3, sample_weight=s)
    rng = np.random.default_rng(5)
    point, step = rng.standard_normal((2, x.shape[1], 3))
    task = NewtonTask(DatasetRef.of(data), "softmax", 3, None, "search")
    sums = task(Points(np.hstack([point, step]), False, np.array([1.0, 0.25])), Lane(0, tuple(range(len(data)))))
    for length, found in zip((1.0, 0.25), sums.along, strict=True):
        z = x.astype(float) @ (point + length * step)
        assert found == pytest.approx(s @ loss_named("softmax").values(z, y), rel=1e-12)
