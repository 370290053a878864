"""Scores of models with recipes: the same in pieces of any size, and few rows' columns at a time."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows

from distls.storage.rows import DenseRows
from distls.workers.features.design import Design
from distls.workers.features.design_recipe import design_of, recipe_of
from distls.workers.prediction import predictor as predictor_module
from distls.workers.prediction.calibration import project
from distls.workers.prediction.predictor import LinearPredictor, linear_view, score_pieces
from reference import calibrated as reference

N, D, K, ROUNDS = 57, 8, 3, 4


def rows_of(layout):
    x = sp.random(N, D, density=0.5, random_state=0, format="csr")
    return x.toarray(), as_rows(x.toarray() if layout == "dense" else x)


def calibrated():
    rng = np.random.default_rng(1)
    arrays = {"calibration": rng.standard_normal((ROUNDS, 2 * K, K))}
    recipe = {"n_features": D, "calibration": {"powers": [1, 2], "onto": "simplex"}}
    weights = rng.standard_normal((D, ROUNDS * K))
    return LinearPredictor(weights, rng.standard_normal(ROUNDS * K), recipe, arrays)


def expected_of_calibrated(model, x):
    values = np.zeros((len(x), K))
    for t in range(ROUNDS):
        columns = slice(t * K, (t + 1) * K)
        values = values + x @ model.coefficients[:, columns] + model.intercept[columns]
        basis = np.hstack([values, values**2])
        values = reference.project(basis @ model.arrays["calibration"][t], "simplex")
    return values


def stagewise(kind):
    rng = np.random.default_rng(2)
    features, arrays = recipe_of(Design(kind, size=5, seed=3, bandwidth=2.0), 3)
    recipe = {"n_features": D, "features": features}
    return LinearPredictor(rng.standard_normal((15, K)), rng.standard_normal(K), recipe, arrays)


def viewed(model, x):
    rows, weights, intercept = linear_view(model, x)
    assert isinstance(rows, DenseRows)
    assert np.array_equal(weights, np.eye(K))
    assert not intercept.any()
    return rows.values


def in_pieces(model, x):
    found = list(score_pieces(model, x))
    assert [rows.start for rows, _ in found] == [0, *(rows.stop for rows, _ in found[:-1])]
    assert found[-1][0].stop == N
    return np.concatenate([values for _, values in found])


@pytest.mark.fast_cases("8388608-dense", "1-csr")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("piece_bytes", [8 * 2**20, 1000, 1])
def test_calibrated_scores(layout, piece_bytes, monkeypatch):
    monkeypatch.setattr(predictor_module, "PIECE_BYTES", piece_bytes)
    (x, rows), model = rows_of(layout), calibrated()
    expected = expected_of_calibrated(model, x)
    np.testing.assert_allclose(viewed(model, rows), expected, atol=1e-12)
    np.testing.assert_allclose(in_pieces(model, rows), expected, atol=1e-12)


@pytest.mark.fast_cases("fourier")
@pytest.mark.parametrize("kind", ["fourier", "logits"])
def test_scores_of_random_features(kind, monkeypatch):
    (x, rows), model = rows_of("dense"), stagewise(kind)
    expected = np.tile(model.intercept, (N, 1))
    for stage, design in enumerate(design_of(model.recipe["features"], model.arrays)):
        ((_, block),) = predictor_module.blocks(design, DenseRows(x), np.dtype("float64"))
        assert isinstance(block, DenseRows)
        expected = expected + block.values @ model.coefficients[5 * stage : 5 * stage + 5]
    np.testing.assert_allclose(viewed(model, rows), expected, atol=1e-12)
    monkeypatch.setattr(predictor_module, "PIECE_BYTES", 100)
    np.testing.assert_allclose(in_pieces(model, rows), expected, atol=1e-12)


@pytest.mark.fast_cases("cls")
@pytest.mark.parametrize("make", [calibrated, lambda: stagewise("fourier")], ids=["cls", "stagewise"])
def test_few_rows_at_a_time(make, monkeypatch):
    """No array of rows x columns of the weights is larger than a piece."""
    (_, rows), model, sizes, original = rows_of("dense"), make(), [], np.tile

    def tile(values, repeats):
        out = original(values, repeats)
        sizes.append(out.nbytes)
        return out

    monkeypatch.setattr(predictor_module, "PIECE_BYTES", 960)
    monkeypatch.setattr(predictor_module.np, "tile", tile)
    viewed(model, rows)
    assert max(sizes) <= 960
    assert len(sizes) >= N * K * 8 // 960


def test_scores_of_a_plain_model_in_pieces(monkeypatch):
    rng = np.random.default_rng(4)
    model = LinearPredictor(rng.standard_normal((D, K)), rng.standard_normal(K))
    monkeypatch.setattr(predictor_module, "PIECE_BYTES", 200)
    for layout in ("dense", "csr"):
        x, rows = rows_of(layout)
        np.testing.assert_allclose(in_pieces(model, rows), x @ model.coefficients + model.intercept, atol=1e-12)
        assert linear_view(model, rows)[0] is rows


def test_a_model_without_rounds_predicts_nothing():
    empty = LinearPredictor(
        np.empty((D, 0)), np.empty(0), calibrated().recipe, {"calibration": np.empty((0, 2 * K, K))}
    )
    assert not viewed(empty, rows_of("dense")[1]).any()


def test_no_rows():
    assert viewed(calibrated(), DenseRows(np.empty((0, D)))).shape == (0, K)
    assert viewed(stagewise("fourier"), DenseRows(np.empty((0, D)))).shape == (0, K)


def test_single_precision_fits_are_calibrated_in_double():
    model = calibrated()
    single = LinearPredictor(model.coefficients.astype(np.float32), model.intercept, model.recipe, model.arrays)
    x, rows = rows_of("dense")
    found = viewed(single, DenseRows(x.astype(np.float32)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, project(found, "simplex"), atol=1e-15)
    np.testing.assert_allclose(found, viewed(model, rows), atol=1e-3)


@pytest.mark.fast_cases("columns0-dense", "columns2-csr")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("columns", [[], [0], [1, D - 1]])
def test_features_without_weights_are_left_out(layout, columns):
    (x, given), rng = rows_of(layout), np.random.default_rng(5)
    weights, intercept = rng.standard_normal((len(columns), K)), rng.standard_normal(K)
    few = LinearPredictor(weights, intercept, columns=np.array(columns, np.int64))
    full = np.zeros((D, K))
    full[columns] = weights
    np.testing.assert_allclose(in_pieces(few, given), x @ full + intercept, rtol=1e-12)
    rows, own, _ = linear_view(few, given)
    assert own is weights
    assert isinstance(rows, type(given))
    np.testing.assert_allclose(in_pieces(LinearPredictor(own, intercept), rows), x @ full + intercept, rtol=1e-12)
