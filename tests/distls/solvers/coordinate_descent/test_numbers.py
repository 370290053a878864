"""Block coordinate descent and proximal steps on numbers: the lasso, its kin of several numbers, and their contract."""

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract
from sklearn import linear_model
from target_helpers import write_targets

from distls import add_columns, fit, ingest

N_FEATURES = 40
PENALTIES = {
    "Lasso": {"penalty": "l1"},
    "MultiTaskLasso": {"penalty": "l1l2"},
    "ElasticNet": {"penalty": "elasticnet", "l1_ratio": 0.3},
}


def rows(n_rows):
    """Rows with means and zeros, and three numbers that four of the features make."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((n_rows, N_FEATURES)) + 0.3) * (rng.random((n_rows, N_FEATURES)) < 0.7)
    return x, x[:, :4] @ rng.standard_normal((4, 3)) + 0.1 * rng.standard_normal((n_rows, 3)) + 2.0


def stored(path, x, y, **options):
    """Write a dataset with several partitions and column shards."""
    given = {"target": "continuous", "dtype": "float64", "partition_size": 8000, **options}
    ingest(x, path, y=y, executor="serial", **given)
    return add_columns(path, shard_size=8000, executor="serial")


@pytest.mark.slow
class TestContract(SolverContract):
    method = "bcd"
    params = {"alpha": 1e-2, "lanes": 3, "tau": 0.0}
    passes = 4
    random = False

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        return stored(tmp_path_factory.mktemp("data") / "train", *rows(700))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PENALTIES)
@pytest.mark.parametrize(
    ("method", "own"), [("bcd", {}), ("bcd", {"algorithm": "sweeps"}), ("fista", {}), ("sparsa", {})]
)
@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_the_optimum_is_that_of_scikit_learn(tmp_path, storage, method, own, kind):
    x, y = rows(300)
    y = y if kind == "MultiTaskLasso" else y[:, 0]
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    dataset = stored(tmp_path / "d", x if storage == "dense" else sp.csr_matrix(x), y, sample_weight=weight)
    given = {"alpha": 0.05, "tau": 1e-10, "fit_intercept": True, **PENALTIES[kind], **own}
    rtol = {"rtol": 1e-9} if method == "bcd" and not own else {}
    found = fit(method, dataset, tmp_path / "run", params=given, passes=2000, **rtol)
    # a row of weight s is s rows, for models that take no weights too
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    mixed = {"l1_ratio": 0.3} if kind == "ElasticNet" else {}
    reference = getattr(linear_model, kind)(0.05, tol=1e-13, max_iter=10**5, **mixed).fit(x[again], y[again])
    coef = np.atleast_2d(reference.coef_)
    np.testing.assert_allclose(found.model.weights.T, coef, atol=1e-5)
    np.testing.assert_allclose(found.model.intercept, reference.intercept_, atol=1e-5)
    assert np.array_equal(found.model.weights.any(axis=1), coef.any(axis=0))
    residual = np.asarray(x @ found.model.weights + found.model.intercept) - y.reshape(len(y), -1)
    loss = 0.5 * float(weight @ np.square(residual).sum(axis=1)) / weight.sum()
    w = found.model.weights
    penalties = {
        "Lasso": np.abs(w).sum(),
        "MultiTaskLasso": np.sqrt(np.square(w).sum(axis=1)).sum(),
        "ElasticNet": 0.3 * np.abs(w).sum() + 0.35 * np.square(w).sum(),
    }
    assert found.record["objective"] == pytest.approx(loss + 0.05 * penalties[kind], rel=1e-12)
    assert found.record["certificate"]["value"] < 1e-6


@pytest.mark.slow
def test_a_path_of_the_lasso_begins_at_zero(tmp_path):
    x, y = rows(300)
    dataset = stored(tmp_path / "d", x, y[:, 0])
    fit("bcd", dataset, tmp_path / "run", params={"alpha": "path", "alphas": 4, "penalty": "l1"})
    centred = x - x.mean(axis=0)
    largest = np.abs(centred.T @ (y[:, 0] - y[:, 0].mean())).max() / len(y)
    children = sorted((tmp_path / "run" / "children").iterdir())
    first = fit("bcd", dataset, params={"alpha": largest * (1 + 1e-6), "penalty": "l1"})
    assert len(children) == 4
    assert not first.model.weights.any()
    assert first.model.intercept[0] == pytest.approx(y[:, 0].mean(), rel=1e-9)


@pytest.mark.fast_cases("own0")
@pytest.mark.parametrize("own", [{}, {"algorithm": "sweeps"}, {"algorithm": "row-blocks"}])
def test_sets_of_labels_are_their_indicators(tmp_path, own):
    x, y = rows(200)
    sets = y > np.median(y, axis=0)
    given = {"params": {"loss": "squared", "penalty": "l1l2", "alpha": 0.02, "dtype": "float64", **own}, "rtol": 1e-9}
    found = []
    for target in ("multilabel", "continuous"):
        data = write_targets(tmp_path / target, x, sets if target == "multilabel" else sets * 1.0, target)
        found.append(fit("bcd", add_columns(data.path, executor="serial").path, passes=500, **given))
    assert {str(each.status) for each in found} == {"CONVERGED"}
    np.testing.assert_allclose(found[0].model.weights, found[1].model.weights, atol=1e-7)
    assert found[0].record["objective"] == pytest.approx(found[1].record["objective"], rel=1e-8)
