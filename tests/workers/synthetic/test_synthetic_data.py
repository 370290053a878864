"""Synthetic data: the reproducibility promises, the stored form, and that the papers' shapes are met."""

import hashlib
import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, concatenate_rows
from distls.workers.synthetic import kinds as synthetic
from distls.workers.synthetic.kinds import KINDS, block, generate_rows
from distls.workers.synthetic.topic_documents import BLOCK_ROWS, alias_cells

DOCUMENTS = ["rcv1-4", "rcv1-53", "odp"]
LABELLED = [*DOCUMENTS, "dense"]
FACTORS = ["alpha", "axis", "delta"]
REGRESSION = ["csgd", "csgd-wide"]
ALL = [*LABELLED, *FACTORS, *REGRESSION, "lshtc1"]


def arrays(made):
    """All arrays of a block in one list."""
    x, y = made
    return [*x, y]


def same(a, b):
    return all(np.array_equal(p, q) and p.dtype == q.dtype for p, q in zip(arrays(a), arrays(b), strict=True))


def matrix(x, n_features):
    if isinstance(x, DenseRows):
        return x.values
    return sp.csr_matrix((x.data, x.indices.astype(np.int32), x.indptr), (len(x.indptr) - 1, n_features))


@pytest.mark.fast_cases("rcv1-4", "alpha")
@pytest.mark.parametrize("kind", ALL)
def test_one_seed_gives_the_same_bits_in_a_fresh_model(kind):
    before = block(kind, 3, "train", 1)
    synthetic._model.cache_clear()
    assert same(before, block(kind, 3, "train", 1))


@pytest.mark.fast_cases("rcv1-4$", "csgd$")
@pytest.mark.parametrize("kind", ALL)
def test_seed_part_and_index_each_change_the_rows(kind):
    blocks = [
        block(kind, seed, part, index) for seed, part, index in [(0, "train", 0), (1, "train", 0), (0, "test", 0)]
    ]
    blocks.append(block(kind, 0, "train", 1))
    for i, a in enumerate(blocks):
        for b in blocks[:i]:
            assert not any(np.array_equal(p, q) for p, q in zip(arrays(a), arrays(b), strict=True))


@pytest.mark.fast_cases("rcv1-4")
@pytest.mark.parametrize("kind", ALL)
def test_block_boundaries_do_not_show(kind):
    size = KINDS[kind].block_rows
    last = 3_000 if kind == "csgd-wide" else 20_000
    whole = generate_rows(kind, 0, "train", 0, last)
    cuts = [0, 1, size // 2, size - 1, size, size + 1, 2 * size, last]
    pieces = [generate_rows(kind, 0, "train", a, b) for a, b in itertools.pairwise(cuts)]
    joined = concatenate_rows([x for x, _ in pieces]), np.concatenate([y for _, y in pieces])
    assert same(whole, joined)


@pytest.mark.fast_cases("rcv1-4", "delta")
@pytest.mark.parametrize("kind", ALL)
def test_fewer_rows_are_a_prefix_and_rows_beyond_the_papers_count_exist(kind):
    x, y = generate_rows(kind, 0, "test", 0, KINDS[kind].block_rows + 800)
    few_x, few_y = generate_rows(kind, 0, "test", 0, 700)
    n = KINDS[kind].n_features
    assert (matrix(x, n)[:700] != matrix(few_x, n)).sum() == 0
    assert np.array_equal(y[:700], few_y)
    far = KINDS[kind].n_train * 10
    x, y = generate_rows(kind, 0, "train", far, far + 10)
    assert matrix(x, n).shape == (10, n)
    assert len(y) == 10


@pytest.mark.fast_cases("rcv1-4", "alpha", "lshtc1")
@pytest.mark.parametrize("kind", ALL)
def test_no_rows(kind):
    x, y = generate_rows(kind, 0, "train", 8_192, 8_192)
    assert matrix(x, KINDS[kind].n_features).shape == (0, KINDS[kind].n_features)
    assert y.shape == ((0, 1) if kind in REGRESSION else (0,))


@pytest.mark.fast_cases("rcv1-4")
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_are_canonical_csr_with_unit_rows(kind):
    x, y = block(kind, 0, "train", 0)
    assert isinstance(x, CsrRows)
    assert [a.dtype for a in (*x, y)] == [np.int64, np.uint16, np.float32, np.int32]
    assert x.indptr.shape == (BLOCK_ROWS + 1,)
    assert x.indptr[0] == 0
    assert x.indptr[-1] == len(x.indices) == len(x.data)
    assert np.diff(x.indptr).min() >= 1
    starts_a_row = np.isin(np.arange(len(x.indices)), x.indptr)
    assert ((np.diff(x.indices.astype(np.int64)) > 0) | starts_a_row[1:]).all()
    assert x.indices.max() < KINDS[kind].n_features
    assert (x.data > 0).all()
    norms = np.sqrt(np.add.reduceat(x.data.astype(np.float64) ** 2, x.indptr[:-1]))
    np.testing.assert_allclose(norms, 1, atol=1e-6)


def test_dense_block_shape_and_types():
    x, y = block("dense", 0, "train", 0)
    assert x.values.shape == (BLOCK_ROWS, 200)
    assert x.values.flags.c_contiguous
    assert (x.values.dtype, y.dtype) == (np.float32, np.int32)
    assert np.isfinite(x.values).all()


@pytest.mark.fast_cases("rcv1-4")
@pytest.mark.parametrize(("kind", "nnz"), [("rcv1-4", 90), ("rcv1-53", 90), ("odp", 190)])
def test_documents_have_the_papers_non_zeros_a_row(kind, nnz):
    x, _ = generate_rows(kind, 0, "train", 0, 5 * BLOCK_ROWS)
    assert x.indptr[-1] / (5 * BLOCK_ROWS) == pytest.approx(nnz, rel=0.03)
    assert KINDS[kind].row_nnz == nnz


@pytest.mark.fast_cases("rcv1-4")
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_term_values_are_log_term_frequencies(kind):
    x, _ = block(kind, 0, "train", 0)
    # a row's smallest value is that of a term seen once, but for a few short documents
    smallest = np.repeat(np.minimum.reduceat(x.data, x.indptr[:-1]), np.diff(x.indptr))
    frequency = np.exp(x.data / smallest - 1)
    assert np.mean(np.abs(frequency - np.rint(frequency)) < 1e-3) > 0.99
    assert 0.4 < np.mean(frequency < 1.5) < 0.75


@pytest.mark.fast_cases("rcv1-4")
@pytest.mark.parametrize("kind", LABELLED)
def test_labels_follow_the_priors_with_two_percent_noise(kind):
    labels = KINDS[kind].family.labels
    draws = [labels.draw(np.random.default_rng(i)) for i in range(5)]
    true, y = (np.concatenate(part) for part in zip(*draws, strict=True))
    priors = np.asarray(labels.priors) / np.sum(labels.priors)
    assert len(priors) == KINDS[kind].n_classes
    np.testing.assert_allclose(np.bincount(true) / len(true), priors, atol=0.01)
    assert np.mean(true != y) == pytest.approx(0.02, abs=0.003)
    wrong = (y - true)[true != y] % len(priors)
    counts = np.bincount(wrong, minlength=len(priors))[1:]
    assert counts.max() < 6 * counts.mean()  # uniform over the other classes


@pytest.mark.fast_cases("rcv1-4", "delta")
@pytest.mark.parametrize("kind", [*LABELLED, *FACTORS])
def test_blocks_contain_every_class(kind):
    _, y = block(kind, 0, "test", 0)
    assert np.array_equal(np.unique(y), np.arange(KINDS[kind].n_classes))


@pytest.mark.fast_cases(r"rcv1-4-0\.16$")
@pytest.mark.parametrize(
    ("kind", "bar"), [("rcv1-4", 0.16), ("rcv1-53", 0.75), ("dense", 0.12), ("odp", 0.36), ("alpha", 0.2)]
)
def test_a_linear_model_learns_it_but_not_perfectly(kind, bar):
    n = KINDS[kind].n_features
    x, y = generate_rows(kind, 0, "train", 0, 10_000)
    x_test, y_test = generate_rows(kind, 0, "test", 0, 4_000)
    C = 1e-3 if kind == "dense" else 0.3
    model = LinearSVC(C=C, dual="auto", max_iter=30, tol=1e-2).fit(matrix(x, n), y)
    error = np.mean(model.predict(matrix(x_test, n)) != y_test)
    prior_error = 1 - np.bincount(y_test).max() / len(y_test)
    assert 0.02 < error < min(bar, prior_error)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "condition"), [("alpha", 1e4), ("axis", 500.0**2), ("delta", 500.0**2)])
def test_factors_are_ill_conditioned(kind, condition):
    x, y = generate_rows(kind, 0, "train", 0, 5 * BLOCK_ROWS)
    assert x.values.dtype == np.float32
    assert x.values.flags.c_contiguous
    eigenvalues = np.linalg.eigvalsh(np.cov(x.values.T.astype(float)))
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(condition, rel=0.1)
    square_norm = 1.0 if kind == "alpha" else (1 / np.arange(1, 501) ** 2).sum()
    assert np.square(x.values, dtype=float).sum(axis=1).mean() == pytest.approx(square_norm, rel=0.02)
    assert y.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_axis_has_scales_one_over_i_along_the_axes_and_alpha_none():
    x, _ = generate_rows("axis", 0, "train", 0, 5 * BLOCK_ROWS)
    np.testing.assert_allclose(x.values.std(axis=0) * np.arange(1, 501), 1.0, rtol=0.02)
    x, _ = generate_rows("alpha", 0, "train", 0, 5 * BLOCK_ROWS)
    scales = x.values.std(axis=0)
    assert scales.max() / scales.min() < 2  # the rotation mixed them: they are 100 to 1


@pytest.mark.slow_cases("(alpha|delta)")
@pytest.mark.parametrize("kind", FACTORS)
def test_the_best_possible_error_of_factors_is_that_of_their_noise(kind):
    made = KINDS[kind]
    model = synthetic._model(kind, 0)
    assert math.fsum(model.signal**2) == pytest.approx(1.0, abs=1e-12)
    x, y = generate_rows(kind, 0, "test", 0, 2 * BLOCK_ROWS)
    columns = x.values.T.astype(float)
    for pairing in model.pairings[::-1]:  # undo the rotation: the transpose, in reverse
        left, right = columns[pairing[0::2]], columns[pairing[1::2]]
        columns[pairing[0::2]] = (left + right) * math.sqrt(0.5)
        columns[pairing[1::2]] = (right - left) * math.sqrt(0.5)
    margin = model.signal @ (columns / model.scale[:, None])
    assert np.mean((margin > 0) != y) == pytest.approx(math.atan(made.family.noise) / math.pi, abs=0.01)


def test_regression_is_the_papers_model():
    x, y = generate_rows("csgd", 0, "train", 0, 10_000)
    assert (y.dtype, y.shape) == (np.float64, (10_000, 1))
    assert (x.values[:, 0] == 1.0).all()
    inputs = x.values[:, 1:]
    assert (inputs.min(), inputs.max()) == (pytest.approx(0, abs=1e-4), pytest.approx(1, abs=1e-4))
    np.testing.assert_allclose(inputs.mean(axis=0), 0.5, atol=0.015)
    np.testing.assert_allclose(inputs.var(axis=0), 1 / 12, rtol=0.05)
    exact = synthetic._model("csgd", 0)
    noise = y[:, 0] - x.values.astype(float) @ exact
    assert noise.var() == pytest.approx(0.2, rel=0.05)
    fitted = np.linalg.lstsq(x.values.astype(float), y[:, 0], rcond=None)[0]
    np.testing.assert_allclose(fitted[1:], exact[1:], atol=0.08)


def test_wide_regression_has_as_many_inputs_as_rows():
    kind = KINDS["csgd-wide"]
    assert kind.n_train == kind.n_features == 5_000
    x, y = generate_rows("csgd-wide", 0, "train", 0, 600)
    noise = y[:, 0] - x.values.astype(float) @ synthetic._model("csgd-wide", 0)
    assert noise.var() == pytest.approx(0.2, rel=0.2)
    square_norms = np.square(x.values, dtype=float).sum(axis=1)
    assert square_norms.mean() == pytest.approx(5_000 / 3, rel=0.01)


def test_alias_table_holds_the_distribution_exactly():
    weights = np.array([0, 1, 2**20, 7, 0, 3 * 2**20, 12345], dtype=np.int64)
    cells = alias_cells(weights)
    kept = (cells >> np.uint64(32)).astype(np.float64) / 2**32
    other = (cells & np.uint64(2**32 - 1)).astype(np.int64)
    chance = kept / len(weights)
    np.add.at(chance, other, (1 - kept) / len(weights))
    np.testing.assert_allclose(chance, weights / weights.sum(), atol=1e-9)
    assert chance[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rcv14", 0, "train", 0, 1), "unknown kind 'rcv14': did you mean 'rcv1-4'?"),
        (("rcv1-4", 0, "valid", 0, 1), "part is 'valid': use one of train, test"),
        (("rcv1-4", 0, "train", 2, 1), "rows 2 to 1: need 0 <= start <= stop"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ParameterError, match=message.replace("?", r"\?")):
        generate_rows(*arguments)


@pytest.mark.fast_cases("rcv1-4", "odp", "alpha", "delta")
@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("rcv1-4", "a3e8b2133f1a5584"),
        ("rcv1-53", "b23b1ed98c8a4afe"),
        ("dense", "0b99d6de4811f6fb"),
        ("odp", "cd27a894a111915f"),
        ("csgd", "6f1ea6c21070b27c"),
        ("csgd-wide", "45a64539b7c3970c"),
        ("alpha", "bccd3bf183c1e3d9"),
        ("axis", "2072b145fe4de5ce"),
        ("lshtc1", "3019620ae2a76892"),
        ("delta", "01ffd107c8db44ba"),
    ],
)
def test_bits_are_those_of_every_earlier_version(kind, digest):
    """A changed digest is a broken promise, unless NumPy changed its generators (NEP 19 allows it to)."""
    sha = hashlib.sha256()
    for array in arrays(block(kind, 7, "test", 2)):
        sha.update(np.ascontiguousarray(array).tobytes())
    assert sha.hexdigest()[:16] == digest


def test_kinds_have_distinct_streams():
    assert len({kind.id for kind in KINDS.values()}) == len(KINDS)
    assert all(name == kind.name for name, kind in KINDS.items())
