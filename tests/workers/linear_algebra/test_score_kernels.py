import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows, refuses

from distls.storage.rows import CsrRows, index_dtype, take_rows
from distls.workers.compilation.jit import kernel
from distls.workers.evaluation import loss_sums
from distls.workers.evaluation.loss_sums import add_gradient, evaluate_rows
from distls.workers.linear_algebra import score_kernels as linear
from distls.workers.linear_algebra.column_selection import columns_of_csr, places_of
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.losses.row_functions import has_row_function
from reference import mcid

NAMES = sorted(name for name, loss in LOSSES.items() if has_row_function(loss, "row_gradient"))
NO_WEIGHT = np.empty(0)
NO_CLASSES = np.empty(0, np.int32)


def problem(k, n=50, d=23, seed=1):
    rng = np.random.default_rng([seed, k])
    x = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.35)
    x[[0, n // 2]] = 0
    s = rng.random(n) + 0.1
    w, b = rng.standard_normal((d, k)), rng.standard_normal(k)
    return x, rng.integers(0, k, n).astype(np.int32), s, w, b


@pytest.mark.fast_cases(".*-csr")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_scores(layout, dtype, rtol):
    for k in (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 53, 64, 65, 129, 1139):
        x, _, _, w, b = problem(k)
        out = np.full((len(x), k), np.nan, dtype)
        assert linear.scores(as_rows(x, layout, dtype), w.astype(dtype), b.astype(dtype), out) is out
        np.testing.assert_allclose(out, x @ w + b, rtol=rtol, atol=10 * rtol)
        chunk = np.empty((7, k), dtype)
        linear.scores(as_rows(x, layout, dtype), w.astype(dtype), b.astype(dtype), chunk, 29)
        assert np.array_equal(chunk, out[29:36])


@kernel
def _of_row(rows, i, w):
    return linear.single_score(rows, i, w), linear.square_norm(rows, i)


def _in_order(x, w):
    """Return the sum of products in eight sums, added by halves; fewer products are added one by one."""
    n, sums = len(x), [0.0] * 8
    for p in range(n):
        # the last eight places have those that are left, in the lanes that they have there
        lane = 0 if n < 8 else p % 8 if p < n // 8 * 8 else (p - n) % 8
        sums[lane] = float(Fraction(x[p]) * Fraction(w[p]) + Fraction(sums[lane]))
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [sums[lane] + sums[lane + half] for lane in range(half)]
    return sums[0]


def test_a_row_of_one_output_has_one_order_of_sums():
    rng = np.random.default_rng(0)
    w = rng.standard_normal(30)
    for n in range(31):
        x = rng.random((1, n)) + 0.5
        expected, out = (_in_order(x[0], w[:n]), _in_order(x[0], x[0])), np.empty((1, 1))
        assert [_of_row(as_rows(x, layout), 0, w[:n]) for layout in ("csr", "dense")] == [expected, expected]
        linear.scores(as_rows(x, "csr"), w[:n, None].copy(), np.zeros(1), out)
        assert out[0, 0] == expected[0]


def test_scores_beyond_the_block_are_refused():
    x, _, _, w, b = problem(4)
    refuses(ValueError, "rows 45 to 55 of a block of 50", linear.scores, as_rows(x, "csr"), w, b, np.empty((10, 4)), 45)


def test_arrays_that_do_not_fit_are_refused():
    x, y, s, w, b = problem(4)
    rows = as_rows(x, "csr")
    for out in (np.empty((50, 3)), np.empty((50, 4), np.float32)):
        refuses(ValueError, "do not fit", linear.scores, rows, w, b, out)
    with pytest.raises(ValueError, match="different numbers of classes"):
        evaluate_rows(rows, y, s, LOSSES["softmax"], w, b[:3], NO_CLASSES)
    with pytest.raises(ValueError, match="different numbers of classes"):
        add_gradient(rows, y, s, LOSSES["softmax"], w, b, np.zeros((23, 3)), np.zeros(4))


def test_scores_write_nothing_beyond_their_row():
    # the masks of the last vector: neighbours of `out` must survive
    for k in (3, 5, 53):
        x, _, _, w, b = problem(k, n=6)
        guarded = np.full(6 * k + 64, 7.0)
        linear.scores(as_rows(x, "csr"), w, b, guarded[32:-32].reshape(6, k))
        assert (guarded[:32] == 7).all()
        assert (guarded[-32:] == 7).all()


@pytest.mark.fast_cases("(softmax|crammer_singer)-csr")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_evaluate_rows(layout, name):
    for k in (2, 4, 5, 53):
        x, y, s, w, b = problem(k)
        predicted = np.full(len(x), -7, np.int32)
        loss_sum, weight_sum, errors = evaluate_rows(as_rows(x, layout), y, s, LOSSES[name], w, b, predicted)
        values = [mcid.LOSSES[name](x[i] @ w + b, y[i])[0] for i in range(len(x))]
        assert loss_sum == pytest.approx(np.dot(s, values), rel=1e-12)
        assert weight_sum == pytest.approx(s.sum(), rel=1e-14)
        assert np.array_equal(predicted, (x @ w + b).argmax(axis=1))
        assert errors == (predicted != y).sum() > 0
        alone = evaluate_rows(as_rows(x, layout), y, NO_WEIGHT, LOSSES[name], w, b, NO_CLASSES)
        assert alone == (pytest.approx(sum(values), rel=1e-12), len(x), errors)


def test_objective_of_the_oracle_is_the_evaluated_one():
    x, y, s, w, b = problem(5)
    loss_sum, weight_sum, _ = evaluate_rows(as_rows(x, "csr"), y, s, LOSSES["softmax"], w, b, NO_CLASSES)
    got = loss_sum / weight_sum + 0.3 / 2 * (w**2).sum()
    assert got == pytest.approx(mcid.objective(x, y, "softmax", 0.3, w, b, s), rel=1e-12)


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("name", NAMES)
def test_unknown_classes_are_errors_without_a_loss(name):
    x, y, s, w, b = problem(5)
    known = np.arange(len(x)) % 3 != 0
    masked = np.where(known, y, -1).astype(np.int32)
    rows = as_rows(x, "csr")
    predicted = np.empty(len(x), np.int32)
    loss_sum, weight_sum, errors = evaluate_rows(rows, masked, s, LOSSES[name], w, b, predicted)
    part = take_rows(rows, np.flatnonzero(known))
    wanted = evaluate_rows(part, y[known], s[known], LOSSES[name], w, b, NO_CLASSES)
    assert (loss_sum, weight_sum) == (pytest.approx(wanted[0]), pytest.approx(wanted[1]))
    assert errors == wanted[2] + (~known).sum()
    assert np.array_equal(predicted, (x @ w + b).argmax(axis=1))


def test_the_loss_of_softmax_is_the_log_loss():
    x, y, s, w, b = problem(6)
    p = np.exp(x @ w + b)
    p /= p.sum(axis=1, keepdims=True)
    got = evaluate_rows(as_rows(x, "csr"), y, s, LOSSES["softmax"], w, b, NO_CLASSES)[:2]
    assert got == (pytest.approx(-(s * np.log(p[np.arange(len(y)), y])).sum(), rel=1e-12), pytest.approx(s.sum()))


@pytest.mark.fast_cases("(softmax|crammer_singer)-csr")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_add_gradient(layout, name):
    for k in (2, 3, 4, 5, 16, 53, 130):
        x, y, s, w, b = problem(k)
        rng = np.random.default_rng(0)
        start, start_b = rng.standard_normal(w.shape), rng.standard_normal(k)
        grad, grad_b = start.copy(), start_b.copy()
        result = add_gradient(as_rows(x, layout), y, s, LOSSES[name], w, b, grad, grad_b)
        expected, expected_b = mcid.loss_gradient(x, y, name, w, b, s)
        np.testing.assert_allclose(grad, start + expected, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(grad_b, start_b + expected_b, rtol=1e-11, atol=1e-12)
        alone = evaluate_rows(as_rows(x, layout), y, s, LOSSES[name], w, b, NO_CLASSES)
        assert result == (pytest.approx(alone[0], rel=1e-13), pytest.approx(alone[1]), alone[2])


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_the_derivative_of_the_loss_sum(name):
    x, y, s, w, b = problem(3, n=20, d=4)
    rows, grad, grad_b, h = as_rows(x, "csr"), np.zeros((4, 3)), np.zeros(3), 1e-6
    add_gradient(rows, y, s, LOSSES[name], w, b, grad, grad_b)

    def total(w, b):
        return float(s @ LOSSES[name].values(x @ w + b, y))

    for position in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[position] = h
        assert grad[position] == pytest.approx((total(w + step, b) - total(w - step, b)) / (2 * h), abs=1e-6)
    for c in range(3):
        step = h * np.eye(3)[c]
        assert grad_b[c] == pytest.approx((total(w, b + step) - total(w, b - step)) / (2 * h), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_float32_weights_give_a_float64_gradient(name):
    x, y, s, w, b = problem(5)
    # a margin far from its kink, so that rounding changes no branch
    exact, exact_b = mcid.loss_gradient(x, y, name, w, b, s)
    grad, grad_b = np.zeros_like(w), np.zeros_like(b)
    rows = as_rows(x, "csr", np.float32, np.uint32)
    add_gradient(rows, y, s, LOSSES[name], w.astype(np.float32), b.astype(np.float32), grad, grad_b)
    np.testing.assert_allclose(grad, exact, atol=3e-5)
    np.testing.assert_allclose(grad_b, exact_b, atol=3e-5)


@pytest.mark.fast_cases("softmax-csr")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("name", ["softmax", "crammer_singer"])
def test_no_bit_depends_on_where_pieces_end(layout, name, monkeypatch):
    x, y, s, w, b = problem(5, n=200)
    rows, results = as_rows(x, layout), []
    for n_bytes in (2**19, 1):  # all rows at once, and 16 at a time
        monkeypatch.setattr(loss_sums, "_BATCH_BYTES", n_bytes)
        grad, grad_b, predicted = np.zeros_like(w), np.zeros_like(b), np.empty(200, np.int32)
        sums = (
            evaluate_rows(rows, y, s, LOSSES[name], w, b, predicted),
            add_gradient(rows, y, s, LOSSES[name], w, b, grad, grad_b),
        )
        results.append((sums, grad.tobytes(), grad_b.tobytes(), predicted.tobytes()))
    assert results[0] == results[1]


def test_an_empty_block():
    _, _, _, w, b = problem(4)
    rows, none = as_rows(np.zeros((0, 23)), "csr"), np.empty(0, np.int32)
    assert evaluate_rows(rows, none, NO_WEIGHT, LOSSES["softmax"], w, b, none) == (0.0, 0.0, 0)
    grad, grad_b = np.zeros_like(w), np.zeros_like(b)
    add_gradient(rows, none, NO_WEIGHT, LOSSES["softmax"], w, b, grad, grad_b)
    assert not grad.any()
    assert not grad_b.any()


OVERREAD = """
import ctypes, mmap, numpy as np
from distls.storage.rows import CsrRows
from distls.workers.evaluation import loss_sums
from distls.workers.evaluation.loss_sums import add_gradient, evaluate_rows
from distls.workers.linear_algebra import score_kernels as linear

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
protect = ctypes.CDLL(None, use_errno=True).mprotect
protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
assert protect(address + page, page, 0) == 0
indices = np.frombuffer(memory, np.uint16, page // 2)[-23:]
indices = indices.reshape(23)
indices[:] = np.arange(23)
w = np.arange(23.0 * 40).reshape(23, 40)
out = linear.scores(CsrRows(np.array([0, 23]), indices, np.ones(23)), w, np.zeros(40), np.empty((1, 40)))
assert np.array_equal(out[0], w.sum(axis=0))
print("done")
"""


@pytest.mark.slow
def test_rows_at_the_end_of_their_arrays_read_no_further():
    # prefetching looks ahead in `indices`; here an unreadable page follows their last element
    result = subprocess.run([sys.executable, "-c", OVERREAD], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_log_loss_of_equal_scores_is_log_k():
    rows = as_rows(np.zeros((3, 2)), "csr")
    y, w = np.zeros(3, np.int32), np.zeros((2, 7))
    got = evaluate_rows(rows, y, NO_WEIGHT, LOSSES["softmax"], w, np.zeros(7), NO_CLASSES)[0]
    assert got == pytest.approx(3 * math.log(7), rel=1e-14)


# -- columns of sparse rows, by a table of all columns and, for few rows, one value after the other ------


@pytest.mark.slow_cases("1-70000")
@pytest.mark.parametrize("width", [400, 70_000])
@pytest.mark.parametrize("n_rows", [1, 3, 2000])
def test_columns(width, n_rows):
    rng = np.random.default_rng(0)
    x = sp.random_array((n_rows, width), density=20 / width, format="csr", rng=rng, dtype=np.float32)
    x.sort_indices()
    columns = np.sort(rng.choice(width, width // 3, replace=False))
    found = columns_of_csr(as_rows(x), columns)
    expected = x[:, columns]
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.data, expected.data)
    assert found.indices.dtype == index_dtype(len(columns))


def test_no_columns():
    rows = CsrRows(np.array([0, 2]), np.array([1, 3], np.uint16), np.ones(2, np.float32))
    assert columns_of_csr(rows, np.empty(0, np.int64)).indptr.tolist() == [0, 0]
    assert places_of(rows.indices, np.empty(0, np.int64)).tolist() == [-1, -1]
    assert places_of(rows.indices, np.array([0, 3])).tolist() == [-1, 1]
