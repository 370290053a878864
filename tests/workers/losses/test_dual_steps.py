"""The duals of one row: each loss's step against the oracle, its conjugate, its domain, and balanced dual points.

Steps are seen through the kernel that makes them: row i has a single feature of value one, its own, so that its scores
are row i of the weights and its curvature is its weight.
"""

import subprocess
import sys

import numpy as np
import pytest

from distls.storage.rows import CsrRows, index_dtype
from distls.workers.dual_ascent.ascent_kernels import AscentSettings, Totals, ascend_rows
from distls.workers.duals.dual_domains import Balance, feasible
from distls.workers.losses.loss_registry import LOSSES, losses_with
from reference import dual_ascent

DUAL = sorted(losses_with(dual=True))
BINARY = [name for name in DUAL if LOSSES[name].separable]
# loss, outputs, targets
CASES = [
    *((name, 4, "class") for name in DUAL),
    *((name, 1, "class") for name in BINARY),
    ("ovr_log", 3, "numbers"),
    ("squared", 3, "numbers"),
]
IDS = [f"{name}-{k}-{target}" for name, k, target in CASES]
N_ROWS = 240


def form_of(name, k):
    return LOSSES[name].binary if k == 1 else LOSSES[name]


def targets_of(rng, name, k, target, n=N_ROWS):
    if target == "class":
        return rng.integers(0, max(k, 2), n).astype(np.int32)
    return rng.integers(0, 2, (n, k)).astype(float) if name == "ovr_log" else rng.normal(0.0, 5.0, (n, k))


def duals_of(rng, name, k, y):
    """Duals in the domain: a third of the rows at zero, some at the domain's border."""
    n, domain = len(y), dual_ascent.DOMAINS[name]
    t = np.array([dual_ascent.signs(own, k) for own in y])
    size = rng.random((n, k)) * np.array([1e-9, 0.1, 1.0])[rng.integers(0, 3, n)][:, None]
    size[rng.random((n, k)) < 0.2] = 1.0
    size[rng.random(n) < 0.33] = 0.0
    if domain == "line":
        return 10.0 * t * size
    if domain != "simplex":
        return t * size
    others = size * (np.arange(k) != y[:, None])
    others /= np.maximum(others.sum(axis=1), 1.0)[:, None]
    return np.eye(k)[y] * others.sum(axis=1)[:, None] - others


def scores_of(rng, k):
    """Scores of all sizes, some of them equal."""
    z = rng.standard_normal((N_ROWS, k)) * 10.0 ** rng.integers(-3, 5, N_ROWS)[:, None]
    z[::17] = 0.0
    z[5::17] = z[5::17, :1]
    return z


def step_of(name, k, target, dtype):
    """Return what a step was given, and what came of it: all duals, the changed scores, the sums."""
    rng = np.random.default_rng([N_ROWS, DUAL.index(name), k])
    y = targets_of(rng, name, k, target)
    q = 10.0 ** rng.uniform(-3, 6, N_ROWS)
    z, a = scores_of(rng, k).astype(dtype), duals_of(rng, name, k, y).astype(dtype)
    x = CsrRows(np.arange(N_ROWS + 1), np.arange(N_ROWS).astype(index_dtype(N_ROWS)), np.ones(N_ROWS, dtype))
    w, duals, none, totals = z.copy(), a.copy(), np.zeros(k), np.zeros(len(Totals()))
    up, down = np.zeros(k), np.zeros(k)
    settings = AscentSettings(1.0, 0.0, 0.0, form_of(name, k))
    ascend_rows(x, y, q, np.arange(N_ROWS), w, w[:0].copy(), none, duals, up, down, totals, settings)
    return (y, q, z.astype(float), a.astype(float)), (duals.astype(float), w.astype(float), up - down, totals)


@pytest.mark.fast_cases("softmax-4-class-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "k", "target"), CASES, ids=IDS)
def test_steps_are_the_oracle_s(name, k, target, dtype):
    (y, q, z, a), (duals, _, _, _) = step_of(name, k, target, dtype)
    best = np.array([dual_ascent.best_duals(name, *row) for row in zip(z, y, q, a, strict=True)])
    eps = np.finfo(dtype).eps
    # scores of a large curvature are known to their last digit only
    slack = 4 * eps * (np.abs(best) + np.abs(a)) + 4 * eps * np.abs(z).max(axis=1)[:, None] / (1.0 + q[:, None])
    assert (np.abs(duals - best) <= slack + 1e-7).all()

    def lack(new):
        """What a row's step has to make as small as can be."""
        values = np.array([dual_ascent.conjugate(name, *row) for row in zip(new, y, strict=True)])
        return values + (z * (new - a)).sum(axis=1) + 0.5 * q * np.square(new - a).sum(axis=1)

    size = 1.0 + np.abs(lack(best)) + q * np.square(best - a).sum(axis=1)
    if dtype == "float64":
        assert (lack(duals) - lack(best) <= 1e-8 * size).all()
        assert (lack(duals) <= lack(a) + 1e-8 * size).all()


@pytest.mark.slow
def test_no_log_step_is_lost_between_the_sides_of_the_sigmoid():
    """Margins on one side, the best dual's on the other: plain Newton steps go back and forth between them."""
    rng, n = np.random.default_rng(9), 20_000
    q, m = 10.0 ** rng.uniform(-3, 6, n), rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 2, n)
    b = np.choose(np.arange(n) % 4, [np.zeros(n), np.ones(n), rng.random(n), rng.random(n) ** 8])
    q[0], m[0], b[0] = 12.909905493874724, -4.393983877854996, 3.261387867586941e-06
    x = CsrRows(np.arange(n + 1), np.arange(n).astype(index_dtype(n)), np.ones(n, np.float32))
    z, duals, none, totals = m[:, None].copy(), b[:, None].copy(), np.zeros(1), np.zeros(len(Totals()))
    y, settings = np.ones(n, np.int32), AscentSettings(1.0, 0.0, 0.0, form_of("ovr_log", 1))
    ascend_rows(x, y, q, np.arange(n), z, z[:0].copy(), none, duals, none.copy(), none.copy(), totals, settings)
    new = duals[:, 0]
    # the derivative of the row's dual, in units of the dual: its second derivative is q + 1 / (new (1 - new))
    inside = (new > 1e-12) & (new < 1.0 - 1e-12)
    new, margins = new[inside], m[inside] + q[inside] * (new[inside] - b[inside])
    assert inside.sum() > n / 3
    off = (margins + np.log(new) - np.log1p(-new)) / (q[inside] + 1.0 / (new * (1.0 - new)))
    assert np.abs(off).max() < 1e-7


@pytest.mark.fast_cases("softmax-4-class-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "k", "target"), CASES, ids=IDS)
def test_weights_and_sums_follow_the_duals(name, k, target, dtype):
    (y, q, z, a), (duals, w, mean, totals) = step_of(name, k, target, dtype)
    near = {"rtol": 1e-12, "atol": 1e-12} if dtype == "float64" else {"rtol": 2e-6, "atol": 1e-5}
    change = q[:, None] * (duals - a)
    np.testing.assert_allclose(w, z + change, rtol=near["rtol"], atol=near["rtol"] * np.abs(change).max())
    np.testing.assert_allclose(mean, change.sum(axis=0), rtol=1e-6, atol=near["atol"] * q.sum())
    losses, before, after = (
        np.array([of(name, *row) for row in zip(points, y, strict=True)])
        for of, points in (
            (dual_ascent.loss, z), (dual_ascent.conjugate, a), (dual_ascent.conjugate, duals),
        )
    )  # fmt: skip
    gaps = losses + before + (z * a).sum(axis=1)
    expected = q @ losses, q @ before, q @ after
    sizes = np.abs(q) @ np.abs(losses), q.sum(), q.sum()
    for got, wanted, size in zip(totals[:3], expected, sizes, strict=True):
        assert abs(got - wanted) <= near["atol"] * size
    assert abs(totals[5] - q @ gaps) <= near["atol"] * (q @ np.abs(losses) + q.sum())
    assert totals[4] == (duals != a).any(axis=1).sum()
    if target == "class":
        predicted = (z[:, 0] > 0).astype(int) if k == 1 else z.argmax(axis=1)
        assert totals[3] == (predicted != y).sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DUAL if name != "squared"])
def test_duals_stay_in_the_domain(name):
    (y, *_), (duals, _, _, _) = step_of(name, 4, "class", "float32")
    t = np.array([dual_ascent.signs(own, 4) for own in y])
    if dual_ascent.DOMAINS[name] == "simplex":
        others = duals * (np.arange(4) != y[:, None])
        assert (others <= 0).all()
        assert (others.sum(axis=1) >= -1.0 - 1e-6).all()
        np.testing.assert_allclose(duals.sum(axis=1), 0.0, atol=1e-7)
    else:
        assert (t * duals >= 0).all()
        assert dual_ascent.DOMAINS[name] == "ray" or (t * duals <= 1).all()


@pytest.mark.fast_cases("softmax-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DUAL)
def test_rows_without_features_have_best_duals_too(name, dtype):
    """The sums stay those of the duals, however often such a row is visited."""
    k, n = 4, 6
    x = CsrRows(np.zeros(n + 1, np.int64), np.empty(0, index_dtype(n)), np.empty(0, dtype))
    y = (np.arange(n) % k).astype(np.int32)
    w, duals, totals = np.zeros((n, k), dtype), np.zeros((n, k), dtype), np.zeros(len(Totals()))
    none = np.zeros(k)
    for _ in range(3):
        settings = AscentSettings(10.0, 0.0, 0.0, LOSSES[name])
        ascend_rows(
            x, y, np.empty(0), np.arange(n), w, w[:0].copy(), none, duals, none.copy(), none.copy(), totals, settings,
        )  # fmt: skip
    values = LOSSES[name].conjugate(feasible(LOSSES[name].dual_domain, duals, y), y)
    np.testing.assert_allclose(totals[2] - totals[1], values.sum(), rtol=1e-5)
    # at a minimiser of the conjugate
    smallest = {
        "softmax": -np.log(k), "crammer_singer": -1.0, "ovr_log": -k * np.log(2), "ovr_hinge": -float(k),
    }  # fmt: skip
    np.testing.assert_allclose(values, smallest.get(name, values[0]), rtol=1e-6)


# ---------------------------------------------------------------- conjugates


@pytest.mark.fast_cases("crammer_singer", "softmax", "ovr_log-1", "squared-3")
@pytest.mark.parametrize(("name", "k", "target"), CASES, ids=IDS)
def test_conjugates_obey_fenchel_s_inequality(name, k, target):
    rng = np.random.default_rng(3)
    y = targets_of(rng, name, k, target)
    z, a = scores_of(rng, k), duals_of(rng, name, k, y)
    form = form_of(name, k)
    losses = np.array([dual_ascent.loss(name, *row) for row in zip(z, y, strict=True)])
    if target == "class":
        np.testing.assert_allclose(form.values(z, y), losses, rtol=1e-9, atol=1e-12)
    rest = losses + form.conjugate(a, y) + (z * a).sum(axis=1)
    size = 1.0 + np.abs(z).sum(axis=1) * (1.0 + np.abs(a).sum(axis=1)) + losses
    assert (rest >= -1e-12 * size).all()
    expected = [dual_ascent.conjugate(name, *row) for row in zip(a, y, strict=True)]
    np.testing.assert_allclose(form.conjugate(a, y), expected, rtol=1e-9, atol=1e-12)
    at = -np.array([dual_ascent.gradient(name, *row) for row in zip(z, y, strict=True)])
    rest = losses + form.conjugate(feasible(form.dual_domain, at, y), y) + (z * at).sum(axis=1)
    size = 1.0 + np.abs(z).sum(axis=1) * (1.0 + np.abs(at).sum(axis=1)) + losses
    assert (np.abs(rest) <= 1e-12 * size).all()


@pytest.mark.parametrize("name", ["softmax", "crammer_singer"])
def test_conjugates_are_finite_where_rounding_has_left_the_simplex(name):
    """A row whose own class has lost all its mass: the others' sum to one but for the last digit."""
    rng = np.random.default_rng(1)
    y = np.zeros(2000, np.int32)
    others = rng.random((2000, 6))
    others[:, 0] = 0.0
    others /= others.sum(axis=1)[:, None]
    duals = (np.eye(7)[y][:, :6] - others).astype("float32")
    for stored in (duals, np.nextafter(duals, -np.float32(np.inf)), np.nextafter(duals, np.float32(np.inf))):
        values = LOSSES[name].conjugate(feasible("simplex", stored, y), y)
        assert np.isfinite(values).all()


# ---------------------------------------------------------------- domains and balance


@pytest.mark.fast_cases("crammer_singer", "softmax", "ovr_log-1", "squared-3")
@pytest.mark.parametrize(("name", "k", "target"), CASES, ids=IDS)
def test_feasible_duals_are_the_nearest_in_the_domain(name, k, target):
    rng = np.random.default_rng(4)
    y = targets_of(rng, name, k, target)
    exact = duals_of(rng, name, k, y)
    domain = form_of(name, k).dual_domain
    assert domain == dual_ascent.DOMAINS[name]
    np.testing.assert_allclose(feasible(domain, exact, y), exact, atol=1e-15)
    a = feasible(domain, (exact + rng.normal(0, 1e-6, exact.shape)).astype("float32"), y)
    assert a.dtype == np.float64
    np.testing.assert_allclose(a, exact, atol=3e-5, rtol=1e-6)
    check_domain(domain, a, y, k)


def check_domain(domain, a, y, k):
    t = np.array([dual_ascent.signs(own, k) for own in y])
    if domain in ("ray", "box"):
        assert (t * a >= 0.0).all()
    if domain == "box":
        assert (t * a <= 1.0).all()
    if domain == "simplex":
        masses = np.eye(k)[y] - a
        assert (masses >= -1e-15).all()
        np.testing.assert_allclose(masses.sum(axis=1), 1.0, atol=1e-14)


@pytest.mark.fast_cases(
    "crammer_singer-4-class-all", "ovr_log-4-class-some", "softmax-4-class-none", "ovr_log-1-class-all",
    "squared-1-class-some", "squared-3-numbers-none",
)  # fmt: skip
@pytest.mark.parametrize("spread", ["all", "some", "none"])
@pytest.mark.parametrize(("name", "k", "target"), CASES, ids=IDS)
def test_balanced_duals_sum_to_zero_in_the_domain(name, k, target, spread):
    rng = np.random.default_rng(5)
    y = targets_of(rng, name, k, target)
    a, s, domain = duals_of(rng, name, k, y), rng.random(N_ROWS) * 2, form_of(name, k).dual_domain
    if spread == "some":  # a class without duals
        a[y == 1 if target == "class" else y[:, 0] > 0] = 0.0
    elif spread == "none":
        a[:] = 0.0
    sums = np.bincount(y, s, minlength=k) if target == "class" else np.zeros(k)
    up, down = s @ np.maximum(a, 0.0), s @ np.maximum(-a, 0.0)
    balanced = Balance(domain, up, down, sums[:k], s.sum())(a.copy(), y)
    np.testing.assert_allclose(s @ balanced, 0.0, atol=1e-10)
    check_domain(domain, balanced, y, k)
    again = Balance(domain, s @ np.maximum(balanced, 0.0), s @ np.maximum(-balanced, 0.0), sums[:k], s.sum())(
        balanced.copy(), y
    )
    np.testing.assert_allclose(again, balanced, atol=1e-10)


# -- the projection within the Crammer-Singer dual step ends, also where rounding moves its threshold back ---


# a mass so near the threshold that it is above that of two masses, and not above that of three
_MASSES = [0.8755234310144959, 0.48895628664335555, 0.8022845542794598, 0.3889214239791038]

_PROGRAM = f"""
import numpy as np
from numba import njit
from distls.workers.losses.crammer_singer import _project
masses = np.array({_MASSES})
njit(lambda v: _project(v, len(v)))(masses)
assert abs(masses.sum() - 1.0) < 1e-12, masses
assert (masses >= 0.0).all(), masses
"""


def test_the_projection_ends():
    # a loop of compiled code cannot be interrupted from within its process
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=300)
