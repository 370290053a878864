"""Strengths that are compared in memory: the errors of fits without a fold, the choice, and the fit that follows."""

import warnings

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from target_helpers import write_targets

from distls.clock import parts_of
from distls.solvers.lbfgs import RowsInMemory, _Search, path_weights
from distls.training.fitting import fit, resume
from distls.training.run_folder import Run
from distls.workers.losses.loss_registry import loss_named

ALPHAS, FOLDS = (1.0, 1e-1, 1e-2, 1e-3), 3
PATH = {
    "alpha": "path", "alphas": ":".join(map(str, ALPHAS)), "folds": FOLDS, "fit_intercept": True, "start": "zero",
    "dtype": "float64",
}  # fmt: skip


def rows(kind):
    x, y = labelled_rows(90, 12, 3)
    flipped = np.where(np.random.default_rng(1).random(len(y)) < 0.3, (y + 1) % 3, y).astype(np.int32)
    return (x if kind == "csr" else x.toarray()), flipped


def expected(x, y, alpha):
    """The error and the loss of scikit-learn's fits without each fold, on its rows; folds are slices of the rows."""
    wrong = loss = 0.0
    for fold in range(FOLDS):
        out = np.zeros(len(y), bool)
        out[len(y) * fold // FOLDS : len(y) * (fold + 1) // FOLDS] = True
        model = LogisticRegression(C=1.0 / (alpha * (~out).sum()), tol=1e-8, max_iter=1000).fit(x[~out], y[~out])
        wrong += (model.predict(x[out]) != y[out]).sum()
        loss -= model.predict_log_proba(x[out])[np.arange(out.sum()), y[out]].sum()
    return wrong / len(y), loss / len(y)


@pytest.fixture(scope="module", params=["csr", "dense"])
def found(request, tmp_path_factory):
    x, y = rows(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    data = write_dataset(folder / "d", x, y)
    fit("newton", data, folder / "run", params=PATH)
    return request.param, data, folder / "run"


@pytest.mark.fast_cases("csr")
def test_points_have_the_errors_of_fits_without_a_fold(found):
    kind, _, run = found
    path = Run.open(run).status["details"]["path"]
    assert [point["alpha"] for point in path] == list(ALPHAS)
    for point in path:
        error, loss = expected(*rows(kind), point["alpha"])
        assert point["cv_loss"] == pytest.approx(loss, rel=2e-2)  # trials end near the optimum
        assert point["cv_error"] == pytest.approx(error, abs=0.04)
    best = min(path, key=lambda point: point["cv_loss"])
    assert Run.open(run).status["selected"]["alpha"] == best["alpha"]


@pytest.mark.fast_cases("csr")
def test_the_model_is_the_optimum_of_the_chosen_strength(found):
    _, data, run = found
    status = Run.open(run).status
    alone = fit("newton", data, params={**PATH, "alpha": status["selected"]["alpha"], "alphas": None, "folds": None})
    assert status["status"] == "CONVERGED"
    assert alone.record["objective"] == pytest.approx(status["objective"], rel=2e-3)
    # one run, of all rows; what it started from is gone
    assert [child["status"] for child in status["children"]] == ["CONVERGED"]
    assert sorted(path.name for path in (run / "children").iterdir()) == ["000"]
    assert not (run / "search").exists()
    assert status["selected"].get("init") is None
    # the folds' fits are named for what they are, not as what was left of the seconds
    assert 0.0 < status["cv_seconds"] < status["seconds"]
    assert "cross-validation" in parts_of(status)


@pytest.mark.slow
def test_a_model_to_start_from_changes_no_choice(found, tmp_path):
    _, data, run = found
    cold, warm = Run.open(run).status, fit("newton", data, tmp_path / "w", params={**PATH, "init": str(run)})
    assert warm.record["details"]["path"] == cold["details"]["path"]
    # what the user gave is recorded, and the fit of all rows begins there
    assert warm.selected == {**cold["selected"], "init": str(run)}
    assert [child["params"]["init"] for child in warm.record["children"]] == [str(run)]


@pytest.mark.fast_cases("csr")
def test_a_search_that_was_stopped_is_made_again(found, tmp_path, monkeypatch):
    _, data, run = found
    with monkeypatch.context() as patched:
        patched.setattr("distls.training.child_runs.Children.train", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit("newton", data, tmp_path / "run", params=PATH)
    resumed = resume(tmp_path / "run")
    assert resumed.record["weights_sha256"] == Run.open(run).status["weights_sha256"]


def _interrupt(*_):
    raise KeyboardInterrupt


def test_numbers_are_judged_by_squares_and_columns_that_are_alike_do_no_harm(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 4))
    x = np.hstack([x, x[:, :1]]).astype(np.float32)
    y = (x @ np.arange(5.0) + 3.0)[:, None]
    data = write_targets(tmp_path / "d", x, y, "continuous")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = fit("newton", data, params={**PATH, "loss": "squared", "alphas": "1:1e-6"})
    assert result.selected["alpha"] == 1e-6
    assert [point["cv_loss"] for point in result.record["details"]["path"]][1] < 1e-3


@pytest.mark.slow
def test_scales_of_sparse_columns_cost_no_reads(monkeypatch):
    # numbers in thousands beside thousandths: without scaled coordinates four times as many
    x, y = labelled_rows(200, 12, 2)
    wide = sparse.csr_matrix(x.multiply(10.0 ** np.arange(-3, 3).repeat(2)[None]))
    given = RowsInMemory(wide, y, np.ones(len(y)), loss_named("binary_log"), 1, 1.0, True)
    products, counted = _Search._product, []

    def count(self, *of):
        counted.append(1)
        return products(self, *of)

    monkeypatch.setattr(_Search, "_product", count)
    *_, (weights, intercept) = path_weights(given, (1e-2, 1e-4, 1e-6), 1e-9)
    assert len(counted) < 200
    scores = wide @ weights + intercept
    slopes = given.loss.gradient(scores, y) / len(y)
    np.testing.assert_allclose(wide.T @ slopes + 1e-6 * weights, 0.0, atol=1e-6)
