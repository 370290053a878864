"""Sweeps over columns against Algorithms 1-3 in plain NumPy, and the oracle itself against differences."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import as_rows

from distls.storage.rows import DenseRows
from distls.workers.coordinate_descent.descent_kernels import N_TOTALS, Step, Totals, column_sweep, intercept_step
from distls.workers.coordinate_descent.working_set_kernels import loss_of_scores
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.penalties.row_kernels import kernel_argument
from reference import bcd

NAMES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group"]
STEPS = ["line-search", "constant"]
# losses of sets of labels by their names in the oracle
SETS_OF = {"ranking_squared_hinge": "multiclass_squared_hinge", "labels_apart": "multitask_squared_hinge"}
TOTALS = Totals()


def problem(m=4, n=60, d=12, *, weighted=False, seed=0, **changes):
    """Return rows in which a column is empty, another all ones, and a third too weak to be used."""
    rng = np.random.default_rng([seed, m])
    x = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    x[:, 3], x[:, 5] = 0.0, 1.0
    x[:, 7] *= 1e-3
    x = x.astype(np.float32).astype(float)  # rows in single precision, as most are: no kernels for these tests alone
    s = rng.random(n) + 0.1 if weighted else None
    return bcd.Problem(x, rng.integers(0, m, n).astype(np.int32), m, s=s, **{"alpha": 0.02, "rho": 0.4, **changes})


def columns_of(x, dense=False, dtype=np.float32):
    """Return the shard that holds all columns."""
    return as_rows(x.T, "dense" if dense else "csr", dtype)


def swept(p, w, z, order, *, step="line-search", dense=False, dtype=np.float32):
    """Sweep in place; return the totals."""
    totals = np.zeros(N_TOTALS)
    weight = np.empty(0) if p.s is None else p.s
    given = Step(p.alpha, p.rho, 1.0 / (len(p.x) if p.s is None else p.s.sum()), step == "constant")
    kind = kernel_argument(penalty_named(p.penalty))
    column_sweep(
        columns_of(p.x, dense, dtype), np.asarray(order), w, z, p.y, weight, LOSSES[p.loss], kind, given, totals,
        np.empty(0, np.bool_), 0.0,
    )  # fmt: skip
    return totals


@pytest.mark.fast_cases("multiclass_squared_hinge")
@pytest.mark.parametrize("loss", [*NAMES, "ranking_squared_hinge"])
def test_the_oracle_s_slopes_are_differences(loss):
    rng = np.random.default_rng(1)
    y = [0, 2] if loss == "ranking_squared_hinge" else 2
    for _ in range(20):
        z, e = rng.standard_normal(5), 1e-6
        _, g, h = bcd.LOSSES[loss](z, y)
        for r, unit in enumerate(np.eye(5) * e):
            up, down = bcd.LOSSES[loss](z + unit, y), bcd.LOSSES[loss](z - unit, y)
            assert g[r] == pytest.approx((up[0] - down[0]) / (2 * e), abs=1e-8)
            assert h[r] == pytest.approx((up[1][r] - down[1][r]) / (2 * e), abs=1e-6)


@pytest.mark.fast_cases("multiclass_squared_hinge")
@pytest.mark.parametrize("loss", NAMES)
def test_the_oracle_s_gradient_is_differences(loss):
    p, e = problem(loss=loss, weighted=True), 1e-6
    w = 0.3 * np.random.default_rng(2).standard_normal((12, 4))
    smooth = replace(p, alpha=0.0)
    gradient = bcd.gradient(p, w)
    for j, r in [(0, 0), (3, 1), (5, 2), (11, 3)]:
        apart = np.zeros_like(w)
        apart[j, r] = e
        change = bcd.objective(smooth, w + apart) - bcd.objective(smooth, w - apart)
        assert gradient[j, r] == pytest.approx(change / (2 * e), abs=1e-8)


@pytest.mark.fast_cases(
    "multiclass_squared_hinge-l1l2-line-search-False$", "multiclass_squared_hinge-l1-line-search-True$",
    "multiclass_squared_hinge-l2-line-search-True$", "multiclass_squared_hinge-elasticnet-constant-False$",
    "multiclass_squared_hinge-l1linf-constant-False$", "multiclass_squared_hinge-sparse-group-constant-True$",
)  # fmt: skip
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", NAMES)
def test_sweeps_are_the_paper_s(loss, penalty, step, weighted):
    p = problem(5, loss=loss, penalty=penalty, weighted=weighted)
    rng = np.random.default_rng(3)
    w, z, expected = np.zeros((12, 5)), np.zeros((60, 5)), np.zeros((12, 5))
    for _ in range(3):
        order = rng.permutation(12)
        before = bcd.objective(p, w)
        totals = swept(p, w, z, order, step=step)
        oracle = bcd.sweep(p, expected, order.tolist(), step)
        expected = oracle.w
        np.testing.assert_allclose(w, expected, atol=1e-11)
        np.testing.assert_allclose(z, p.x @ w, atol=1e-12)
        assert totals[TOTALS.violation] == pytest.approx(sum(oracle.violations), rel=1e-9)
        assert totals[TOTALS.largest] == pytest.approx(max(oracle.violations), rel=1e-9)
        assert totals[TOTALS.change] == pytest.approx(bcd.objective(p, w) - before, abs=1e-13)
    assert not w[3].any()


@pytest.mark.fast_cases("multiclass_squared_hinge-2$", "multiclass_squared_hinge-7$", "multiclass_squared_hinge-53$")
@pytest.mark.parametrize("m", [2, 3, 4, 7, 8, 9, 53])
@pytest.mark.parametrize("loss", NAMES)
def test_any_number_of_classes(loss, m):
    p = problem(m, loss=loss)
    w, z, expected = np.zeros((12, m)), np.zeros((60, m)), np.zeros((12, m))
    for _ in range(2):
        swept(p, w, z, range(12))
        expected = bcd.sweep(p, expected, range(12)).w
    np.testing.assert_allclose(w, expected, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("loss", NAMES)
def test_dense_shards_and_single_precision_scores(loss):
    """The second on rows in double precision."""
    p = problem(5, loss=loss)
    w, z = np.zeros((12, 5)), np.zeros((60, 5))
    same, scores = w.copy(), z.copy()
    near, single = w.copy(), z.astype(np.float32)
    for _ in range(3):
        swept(p, w, z, range(12))
        swept(p, same, scores, range(12), dense=True)
        swept(p, near, single, range(12), dtype=np.float64)
    np.testing.assert_array_equal(w, same)
    np.testing.assert_array_equal(z, scores)
    np.testing.assert_allclose(near, w, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", NAMES)
def test_no_sweep_makes_it_worse_and_many_end_at_the_optimum(loss):
    p = problem(4, loss=loss, alpha=0.03)
    w, z, rng = np.zeros((12, 4)), np.zeros((60, 4)), np.random.default_rng(0)
    values = [bcd.objective(p, w)]
    for _ in range(200):
        swept(p, w, z, rng.permutation(12))
        values.append(bcd.objective(p, w))
    assert (np.diff(values) <= 1e-14).all()
    assert bcd.gap(p, w) < 1e-9
    assert w.any(axis=1).sum() < 11


@pytest.mark.fast_cases("l1l2-multiclass_squared_hinge$", "sparse-group-multiclass_squared_hinge$")
@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_oracle_s_gap_bounds_how_much_is_left(loss, penalty):
    p = problem(3, n=25, loss=loss, penalty=penalty, alpha=0.05)
    w, z = np.zeros((12, 3)), np.zeros((25, 3))
    found = []
    for number in range(300):
        if number in (0, 1, 3, 299):
            found.append((bcd.gap(p, w), bcd.objective(p, w)))
        swept(p, w, z, range(12))
    best = bcd.objective(p, w)
    assert all(gap >= value - best - 1e-12 for gap, value in found)
    assert found[-1][0] < 1e-3 < found[0][0]


def test_the_constant_is_sharp():
    """It is the largest eigenvalue of the Hessian where all rivals of a row are within the margin."""
    m = 6
    apart = np.eye(m)[1:] - np.eye(m)[0]
    row = bcd.Problem(np.ones((1, 1)), np.zeros(1, int), m)
    largest = np.linalg.eigvalsh(2.0 * apart.T @ apart)[-1]
    assert bcd.constant(row, np.ones(1)) == pytest.approx(largest)


@pytest.mark.fast_cases("False-multiclass_squared_hinge$")
@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_of_scores(loss, weighted):
    p = problem(5, loss=loss, weighted=weighted)
    rng = np.random.default_rng(4)
    z, change = rng.standard_normal((2, 60, 5))
    weight = np.empty(0) if p.s is None else p.s
    value = loss_of_scores(z, change, 0.5, p.y, weight, LOSSES[loss])
    rows = bcd.rows_of(p, z + 0.5 * change)[0]
    assert value == pytest.approx(float((rows if p.s is None else p.s * rows).sum()), rel=1e-13)


def sets(rng, n, m):
    """Return random sets of labels, some empty and some of all labels: as lists, and as kernels take them."""
    own = rng.random((n, m)) < rng.choice([0.0, 0.3, 0.6, 1.0], n, p=[0.1, 0.5, 0.3, 0.1])[:, None]
    lists = [np.flatnonzero(row).tolist() for row in own]
    indptr = np.concatenate([[0], np.cumsum(own.sum(axis=1))]).astype(np.int64)
    return lists, LabelSets(indptr, np.nonzero(own)[1].astype(np.int32))


SETS = {"multiclass_squared_hinge": "ranking_squared_hinge", "multitask_squared_hinge": "labels_apart"}


def stepped(p, b, z, side):
    """Do a step of the intercept in place; return the totals and the longest part of the step."""
    totals, weight = np.zeros(N_TOTALS), np.empty(0) if p.s is None else p.s
    step = Step(0.0, 0.0, 1.0 / (len(z) if p.s is None else p.s.sum()), False)
    ones = DenseRows(np.ones((1, len(z)), np.float32))
    longest = intercept_step(ones, b, z, p.y, weight, LOSSES[p.loss], step, np.empty((side, side)), totals)
    return totals, longest


@pytest.mark.fast_cases("multiclass_squared_hinge-True")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [*NAMES, *SETS_OF])
def test_steps_of_the_intercept_are_newton_s(loss, weighted):
    """From scores at random, until it is optimal: many within the margin and many not."""
    rng = np.random.default_rng(6)
    p = oracle = problem(5, loss=loss, weighted=weighted)
    if loss in SETS_OF:
        lists, y = sets(rng, 60, 5)
        oracle = replace(p, y=lists)
        p = replace(p, y=y, loss=SETS_OF[loss])
    z = rng.standard_normal((60, 5))
    start, b, totals = z.copy(), np.zeros(5), np.zeros(N_TOTALS)
    for number in range(30):
        d, norm = bcd.intercept_step(oracle, z)
        before, given = bcd.rows_of(oracle, z)[0] @ oracle.weights, b.copy()
        totals, longest = stepped(p, b, z, 5)
        np.testing.assert_allclose(z, start + b, atol=1e-12)
        assert totals[TOTALS.violation] == totals[TOTALS.largest] == pytest.approx(norm, rel=1e-9, abs=1e-14)
        after = bcd.rows_of(oracle, z)[0] @ oracle.weights
        assert totals[TOTALS.change] == pytest.approx(after - before, abs=1e-13)
        if not number and totals[TOTALS.tries] == 1.0:  # up to a constant, which may have no curvature
            step = b - given
            free = step - d
            np.testing.assert_allclose(free - free.mean(), 0.0, atol=1e-5)
    assert norm < 1e-9
    assert longest < 1e-7
    best = bcd.best_intercept(oracle, start)
    assert after == pytest.approx(bcd.rows_of(oracle, start + best)[0] @ oracle.weights, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("loss", NAMES)
def test_steps_of_the_intercept_without_a_hessian(loss):
    """As of a loss that has none, or of very many classes: slower, to the same optimum."""
    p, z = problem(5, loss=loss), np.random.default_rng(6).standard_normal((60, 5))
    single, b = z.astype(np.float32), np.zeros(5)
    best = bcd.rows_of(p, z + bcd.best_intercept(p, z))[0].mean()
    for _ in range(200):
        stepped(p, b, z, 0)
        stepped(p, b.copy(), single, 5)
    assert bcd.rows_of(p, z)[0].mean() == pytest.approx(best, rel=1e-12)
    assert bcd.rows_of(p, single.astype(float))[0].mean() == pytest.approx(best, rel=1e-6)


def test_a_class_that_no_row_is_near_keeps_its_intercept():
    """It has neither a gradient nor a second derivative."""
    p, z = problem(4), np.random.default_rng(6).standard_normal((60, 4))
    p = replace(p, y=(p.y % 3).astype(np.int32))
    z[:, 3], b = -50.0, np.zeros(4)
    for _ in range(5):
        stepped(p, b, z, 4)
    assert b[3] == 0.0
    assert np.isfinite(b).all()
    assert np.abs(bcd.rows_of(p, z)[1].mean(axis=0)).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 4, 5, 9])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("loss", SETS)
def test_sweeps_on_sets_of_labels(loss, step, m):
    rng = np.random.default_rng(5)
    lists, y = sets(rng, 60, m)
    p = replace(problem(m, loss=SETS[loss], weighted=True), y=lists)
    given = replace(p, y=y, loss=loss)
    w, z, expected = np.zeros((12, m)), np.zeros((60, m)), np.zeros((12, m))
    for _ in range(2):
        order = rng.permutation(12)
        before = bcd.objective(p, w)
        totals = swept(given, w, z, order, step=step)
        expected = bcd.sweep(p, expected, order.tolist(), step).w
        np.testing.assert_allclose(w, expected, atol=1e-11)
        np.testing.assert_allclose(z, p.x @ w, atol=1e-12)
        assert totals[TOTALS.change] == pytest.approx(bcd.objective(p, w) - before, abs=1e-13)
    slopes, values = LOSSES[loss].label_gradient(z, y, np.empty(0))
    oracle_values, oracle_slopes, _ = bcd.rows_of(p, z)
    np.testing.assert_allclose(slopes, oracle_slopes, atol=1e-12)
    np.testing.assert_allclose(values, oracle_values, atol=1e-12)
    total = loss_of_scores(z, z, 0.0, y, p.s, LOSSES[loss])
    assert total == pytest.approx(p.s @ oracle_values, rel=1e-12)
