"""The best of very many classes, of whose scores the others are not kept, are those of all scores."""

import numpy as np
import pytest
import scipy.sparse as sp

from distls.storage.model.sparse_blocks import ClassBlock, ClassBlocks
from distls.storage.rows import CsrRows, DenseRows
from distls.workers.prediction import class_block_scores
from distls.workers.prediction.class_block_scores import best_of_blocks, block_score_pieces
from distls.workers.prediction.predict_task import top_classes

N, D, K = 70, 40, 33


def block(first, weights):
    columns = sp.csc_array(weights)
    return ClassBlock(first, columns.indptr.astype(np.int64), columns.indices.astype(np.uint32), columns.data)


def problem(dtype):
    """Return rows, weights whose classes 14 to 19 and 30 to 32 are in no block, and intercepts, with equal scores."""
    rng = np.random.default_rng(0)
    weights = (rng.random((D, K)) < 0.1) * rng.integers(-2, 3, (D, K))
    weights[:, 14:20] = weights[:, 30:] = 0
    weights[:5, :14] = 1  # of features that many classes have
    weights = weights.astype(dtype)
    x = ((rng.random((N, D)) < 0.3) * rng.integers(-2, 3, (N, D))).astype(dtype)
    blocks = tuple(block(first, weights[:, first:stop]) for first, stop in ((0, 8), (8, 14), (20, 30)))
    return x, ClassBlocks((D, K), np.dtype(dtype), blocks), weights, rng.integers(0, 2, K).astype(float)


def rows_of(x, layout):
    csr = sp.csr_array(x)
    sparse = CsrRows(csr.indptr.astype(np.int64), csr.indices.astype(np.uint32), csr.data)
    return DenseRows(x) if layout == "dense" else sparse


@pytest.mark.fast_cases("1-float32-dense", "3-float64-dense", "33-float64-csr")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("top", [1, 3, K])
def test_the_best_are_those_of_all_scores(monkeypatch, layout, dtype, top):
    x, blocks, weights, intercept = problem(dtype)
    rows = rows_of(x, layout)
    pieces = [scores for _, scores in block_score_pieces(rows, blocks, intercept)]
    assert np.array_equal(np.concatenate(pieces), x @ weights + intercept.astype(dtype))
    expected = top_classes(np.concatenate(pieces), top)
    for entries in (2**20, 100):
        monkeypatch.setattr(class_block_scores, "_BATCH_ENTRIES", entries)
        codes, best = best_of_blocks(rows, blocks, intercept, top)
        assert np.array_equal(codes, expected[0])
        assert np.array_equal(best, expected[1])
        assert best.dtype == dtype


@pytest.mark.parametrize(("wrong", "top"), [(np.inf, 2), (np.nan, 2), (-np.inf, K)])
def test_scores_that_are_not_finite_are_left_to_who_has_all(wrong, top):
    x, blocks, _, intercept = problem("float64")
    if wrong < 0:
        intercept[17] = wrong  # of a class in no block
    else:
        x[3, 0] = wrong
    assert best_of_blocks(rows_of(x, "csr"), blocks, intercept, top) is None
