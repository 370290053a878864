"""A cycle of coordinate descent on a quadratic model is that of plain NumPy, from dense and from sparse columns."""

import numpy as np
import pytest
import scipy.sparse as sp

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.coordinate_descent.cycle_kernels import newton_cycle
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.penalties.row_kernels import kernel_argument

M, N, ALPHA = 17, 53, 1.5


def cycle_in_numpy(x, order, w, s, h, intercept):
    """Minimise the model in each weight, with the best intercept for it; the slopes include its moves."""
    largest = 0.0
    for j in order:
        # a column less its mean, by the second derivatives, is one without an intercept
        column = x[j] - (h @ x[j] / h.sum() if intercept else 0.0)
        curvature = h @ np.square(column)
        if curvature <= 0.0:
            continue
        target = w[j] - x[j] @ s / curvature
        new = np.sign(target) * max(abs(target) - ALPHA / curvature, 0.0)
        largest = max(largest, curvature * abs(new - w[j]))
        s += h * column * (new - w[j])
        w[j] = new
    return largest


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_cycle_is_that_of_numpy(layout, intercept):
    rng = np.random.default_rng(0)
    x = ((rng.random((M, N)) < 0.5) * rng.standard_normal((M, N))).astype(np.float32)
    x[3] = 0.0
    h = rng.random(N).astype(np.float32)
    s, w, order = rng.standard_normal(N), 0.1 * rng.standard_normal(M), rng.permutation(M)
    if intercept:
        s -= h.astype(float) * (s.sum() / h.sum(dtype=float))
    own_w, own_t = w[:, None].copy(), s / h
    rows = sp.csr_array(x)
    sparse = CsrRows(rows.indptr.astype(np.int64), rows.indices.astype(np.uint32), rows.data)
    total = float(h.sum(dtype=float)) if intercept else np.inf
    curvatures = np.ones(M)
    largest, shift = newton_cycle(
        DenseRows(x) if layout == "dense" else sparse, order, own_w, own_t, h, total,
        kernel_argument(penalty_named("l1")), ALPHA, 0.0, curvatures,
    )  # fmt: skip
    expected = cycle_in_numpy(x.astype(float), order, w, s, h.astype(float), intercept)
    assert largest == pytest.approx(expected, rel=1e-9)
    assert own_w[:, 0] == pytest.approx(w, rel=1e-9, abs=1e-12)
    assert h * (own_t + shift) == pytest.approx(s, rel=1e-9, abs=1e-9)
    assert np.count_nonzero(w) not in (0, M)
    centred = x - (x @ h / h.sum() if intercept else np.zeros(M))[:, None]
    assert curvatures == pytest.approx(np.square(centred) @ h, rel=1e-4, abs=1e-6)
