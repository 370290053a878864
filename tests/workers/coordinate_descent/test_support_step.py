"""The step in the weights that are not zero is Newton's, of the weights and the intercept together."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.coordinate_descent import quadratic_model
from distls.workers.coordinate_descent.quadratic_model import SupportStep, expanded
from distls.workers.penalties.penalty_registry import penalty_named

M, N, ALPHA, RHO = 9, 60, 0.3, 0.6
FREE = np.array([1, 4, 6, 7])


def _rows(rng, layout):
    x = ((rng.random((M, N)) < 0.7) * rng.standard_normal((M, N))).astype(np.float32)
    rows = sp.csr_array(x)
    sparse = CsrRows(rows.indptr.astype(np.int64), rows.indices.astype(np.uint32), rows.data)
    return x, DenseRows(x) if layout == "dense" else sparse


def _columns(x, w, slopes, penalty, intercept):
    return SimpleNamespace(
        w=w.copy(), x=x, slopes=slopes, step=SimpleNamespace(alpha=ALPHA, rho=RHO),
        task=SimpleNamespace(penalty=penalty, fit_intercept=intercept),
    )  # fmt: skip


def _newton(x, w, slopes, blocks, penalty, intercept):
    """Return the changes of the free rows of weights and of the intercept (rows, k), of one linear system."""
    k = w.shape[1]
    design = np.vstack([x[FREE], np.ones((int(intercept), N))]).astype(float)
    gradient = design @ slopes
    curvature = np.einsum("ai,bi,irc->arbc", design, design, blocks)
    own, turning = penalty_named(penalty).tangent(w[FREE], RHO)
    gradient[: len(FREE)] += ALPHA * own
    for j in range(len(FREE)):
        curvature[j, :, j, :] += ALPHA * turning.blocks()[j]
    size = len(design) * k
    # a loss that ignores constants leaves the intercept's, the least change of which is taken
    change = np.linalg.lstsq(curvature.reshape(size, size), -gradient.ravel(), rcond=1e-10)[0]
    return change.reshape(-1, k)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_step_is_that_of_numpy(monkeypatch, intercept, penalty, layout):
    monkeypatch.setattr(quadratic_model, "_RESIDUAL", 1e-12)
    rng = np.random.default_rng(0)
    x, rows = _rows(rng, layout)
    h, slopes, w = rng.random((N, 1)).astype(np.float32), rng.standard_normal((N, 1)), np.zeros((M, 1))
    w[FREE, 0] = 50.0, -40.0, 30.0, 1e-6
    slopes += 2.0 * x[7, :, None]  # the last of these falls
    step = SupportStep(_columns(rows, w, slopes, penalty, intercept), h, np.square(x) @ h[:, 0])
    found, shift, moved, slope = step.found()
    change = _newton(x, w, slopes, h[:, :, None].astype(float), penalty, intercept)
    wanted = w[FREE, 0] + change[: len(FREE), 0]
    # the one that would change its sign stops at zero
    assert (wanted * w[FREE, 0] < 0.0).tolist() == [False, False, False, True]
    assert found[FREE[:3], 0] == pytest.approx(wanted[:3], rel=1e-6)
    assert found[7, 0] == 0.0
    assert not np.delete(found[:, 0], FREE).any()
    at = x.T.astype(float) @ (found - w)
    best = -(slopes[:, 0].sum() + h[:, 0] @ at[:, 0]) / float(h.sum(dtype=float)) if intercept else 0.0
    assert shift[0] == pytest.approx(best, rel=1e-6, abs=1e-12)
    assert moved == pytest.approx(at + shift, rel=1e-6, abs=1e-9)
    assert slope == pytest.approx(float(slopes[:, 0] @ moved[:, 0]))


@pytest.mark.parametrize(("k", "parts"), [(3, 6), (3, 3), (2, 1)], ids=["whole", "diagonal", "difference"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_step_of_several_outputs_is_that_of_numpy(monkeypatch, intercept, k, parts):
    monkeypatch.setattr(quadratic_model, "_RESIDUAL", 1e-12)
    monkeypatch.setattr(quadratic_model, "_ROW_PRODUCTS", 200)
    rng = np.random.default_rng(1)
    x, rows = _rows(rng, "csr")
    root = rng.standard_normal((N, k, k))
    some = {6: (root @ root.transpose(0, 2, 1))[:, *np.tril_indices(k)], 3: rng.random((N, 3)), 1: rng.random((N, 1))}
    h, slopes, w = some[parts].astype(np.float32), rng.standard_normal((N, k)), np.zeros((M, k))
    w[FREE] = rng.uniform(20.0, 40.0, (len(FREE), k))
    found, shift, moved, _ = SupportStep(_columns(rows, w, slopes, "l1l2", intercept), h).found()
    change = _newton(x, w, slopes, expanded(h.astype(float), k), "l1l2", intercept)
    assert found[FREE] == pytest.approx(w[FREE] + change[: len(FREE)], rel=1e-5)
    assert not np.delete(found, FREE, axis=0).any()
    assert moved == pytest.approx(x.T.astype(float) @ (found - w) + shift, rel=1e-6, abs=1e-9)
    if intercept:
        assert shift == pytest.approx(change[-1], rel=1e-4, abs=1e-8)
    else:
        assert not shift.any()
