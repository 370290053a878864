"""The step in the weights that are not zero is Newton's, of the weights and the intercept together."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.coordinate_descent import quadratic_model
from distls.workers.coordinate_descent.quadratic_model import SupportStep

M, N, ALPHA, RHO = 9, 60, 0.3, 0.6


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_step_is_that_of_numpy(monkeypatch, intercept, penalty, layout):
    monkeypatch.setattr(quadratic_model, "_RESIDUAL", 1e-12)
    rng = np.random.default_rng(0)
    x = ((rng.random((M, N)) < 0.7) * rng.standard_normal((M, N))).astype(np.float32)
    h, slopes, w = rng.random((N, 1)).astype(np.float32), rng.standard_normal((N, 1)), np.zeros((M, 1))
    w[[1, 4, 6, 7], 0] = 50.0, -40.0, 30.0, 1e-6
    slopes += 2.0 * x[7, :, None]  # the last of these falls
    rows = sp.csr_array(x)
    sparse = CsrRows(rows.indptr.astype(np.int64), rows.indices.astype(np.uint32), rows.data)
    columns = SimpleNamespace(
        w=w.copy(), x=DenseRows(x) if layout == "dense" else sparse, slopes=slopes,
        step=SimpleNamespace(alpha=ALPHA, rho=RHO), task=SimpleNamespace(penalty=penalty),
    )  # fmt: skip
    total = float(h.sum(dtype=float)) if intercept else np.inf
    found, shift, moved, slope = SupportStep(columns, h, np.square(x) @ h[:, 0], total).found()
    # weights, and ones where there is an intercept
    free = np.flatnonzero(w[:, 0])
    design = np.vstack([x[free], np.ones((int(intercept), N))]).astype(float)
    l1, l2 = (ALPHA, 0.0) if penalty == "l1" else (ALPHA * RHO, ALPHA * (1.0 - RHO))
    own = np.append(w[free, 0], np.zeros(int(intercept)))
    gradient = design @ slopes[:, 0] + l1 * np.sign(own) + l2 * own
    curvature = (design * h[:, 0]) @ design.T + l2 * np.diag(own != 0.0)
    change = np.linalg.solve(curvature, -gradient)
    wanted = own + change
    # the one that would change its sign stops at zero
    crossing = (wanted * own < 0.0)[: len(free)]
    assert crossing.tolist() == [False, False, False, True]
    assert found[free[:3], 0] == pytest.approx(wanted[:3], rel=1e-6)
    assert found[7, 0] == 0.0
    assert not np.delete(found[:, 0], free).any()
    at = x.T.astype(float) @ (found - w)
    best = -(slopes[:, 0].sum() + h[:, 0] @ at[:, 0]) / total
    assert shift[0] == pytest.approx(best, rel=1e-6, abs=1e-12)
    assert moved == pytest.approx(at + shift, rel=1e-6, abs=1e-9)
    assert slope == pytest.approx(float(slopes[:, 0] @ moved[:, 0]))
