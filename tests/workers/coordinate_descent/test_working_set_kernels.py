"""What working sets compute of all rows and columns: vectors, threads and partial orders change no result."""

import numpy as np
import pytest
import scipy.sparse as sp

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.coordinate_descent import all_rows, working_columns
from distls.workers.coordinate_descent.violation_task import ViolationTask
from distls.workers.coordinate_descent.working_columns import products_of
from distls.workers.coordinate_descent.working_set_kernels import row_derivatives
from distls.workers.losses.loss_registry import loss_named


@pytest.mark.fast_cases(
    "binary_log-3-True", "binary_squared-3-True", "binary_squared-517-False", "binary_squared_hinge-517-False"
)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n", [3, 517])
@pytest.mark.parametrize("name", ["binary_log", "binary_squared", "binary_squared_hinge"])
def test_derivatives_of_one_output_are_those_of_numpy(name, n, weighted):
    rng, loss, scale = np.random.default_rng(0), loss_named(name), 0.25
    z, y = 3.0 * rng.standard_normal((n, 1)), (rng.random(n) < 0.5).astype(np.int32)
    weight = rng.random(n) if weighted else np.empty(0)
    g, h = np.empty_like(z), np.empty((n, 1), np.float32)
    total = row_derivatives(z, y, weight, loss, scale, g, h)
    factor = scale * (weight if weighted else np.ones(n))
    assert total == pytest.approx(factor @ loss.values(z, y))
    assert g[:, 0] == pytest.approx(factor * loss.gradient(z, y)[:, 0], rel=1e-12, abs=1e-15)
    step = 1e-5
    bent = (loss.gradient(z + step, y) - loss.gradient(z - step, y))[:, 0] / (2.0 * step)
    assert h[:, 0] == pytest.approx(factor * bent, rel=1e-4, abs=1e-6)


@pytest.mark.fast_cases("dense")
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_products_do_not_depend_on_threads(monkeypatch, layout):
    rng = np.random.default_rng(0)
    x = sp.random(40, 300, 0.2, "csr", dtype=np.float32, rng=rng) if layout == "csr" else None
    values = x.toarray() if layout == "csr" else rng.standard_normal((40, 300)).astype(np.float32)
    columns = DenseRows(values)
    if layout == "csr":
        columns = CsrRows(x.indptr.astype(np.int64), x.indices.astype(np.uint32), x.data)
    slopes = rng.standard_normal((300, 2))
    monkeypatch.setattr(working_columns, "_LEAST_VALUES", 100)
    monkeypatch.setattr(all_rows, "THREADS", 3)
    found = products_of(columns, slopes, alone=True)
    np.testing.assert_array_equal(found, products_of(columns, slopes))
    np.testing.assert_allclose(found, values @ slopes, rtol=1e-6, atol=1e-6)
    places = np.array([31, 2, 3, 17])
    np.testing.assert_array_equal(found[places], products_of(columns, slopes, places, alone=True))


@pytest.mark.parametrize("room", [1, 5, 30, 90])
def test_the_best_columns_are_those_of_an_order_of_all(room):
    """Of equal ranks the first; those with weights, whose ranks are infinite, are beside the room."""
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, 12, 80).astype(float)
    ranks[rng.permutation(80)[:7]] = np.inf
    task = ViolationTask.__new__(ViolationTask)
    task.room = room
    np.testing.assert_array_equal(task._best(ranks), np.argsort(-ranks, kind="stable")[: 7 + room])
