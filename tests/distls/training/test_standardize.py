"""Rows that a fit sees standardized: r2 with nothing chosen, weights of raw rows, starts, what is refused."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import distls
from benchmarks.quality.regression import SETS, closed_form, made, r2
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method_registry import METHODS
from distls.methods.recommendation import recommended
from distls.planning.fit_plan import Asked
from distls.storage.dataset import dataset
from distls.storage.errors import ParameterError
from distls.training.configuration import FitRequest
from distls.training.run_folder import Run

NUMERIC = [name for name, method in METHODS.items() if "continuous" in method.targets]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the folder of the data set of each name, made on demand, and the rows that judge."""
    root, found = tmp_path_factory.mktemp("data"), {}

    def of(name, n_rows=4000):
        if name not in found:
            (x, test), (y, test_y) = (np.split(each, 2) for each in made(name, n_rows))
            distls.ingest(x, root / name, y=y, target="continuous", columns=True, partition_size=2**17)
            found[name] = root / name, test, test_y, r2(test_y, closed_form(x, y, test))
        return found[name]

    return of


@pytest.mark.fast_cases("newton")
@pytest.mark.parametrize("method", NUMERIC)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_is_within_a_percent_of_the_closed_form(method, data, tmp_path):
    for name in SETS:
        folder, test, test_y, best = data(name)
        model = distls.fit(method, folder, tmp_path / name).model
        assert r2(test_y, model.predict(test)) > 0.99 * best, name


def test_nothing_chosen_at_all_is_as_good(data, tmp_path):
    folder, test, test_y, best = data("unscaled")
    result = distls.fit(folder, run=tmp_path / "run")
    assert result.model.params["standardize"] is True
    assert r2(test_y, result.model.predict(test)) > 0.999 * best


def test_a_plan_has_the_strengths_of_the_fit_and_reads_the_first_rows_once(data, monkeypatch):
    folder = data("unscaled")[0]
    found = recommended(distls.open_dataset(folder))
    assert found.params["standardize"] is True
    planned = Asked.of("auto", {}, distls.open_dataset(folder), workers=MemoryBudget)
    assert planned.params == found.params
    assert found.params.items() <= FitRequest.of("auto", folder).settings[0].params.items()
    read, kept = [], dataset.Dataset.read
    monkeypatch.setattr(dataset.Dataset, "read", lambda self, *given: read.append(given) or kept(self, *given))
    dataset._of_first_rows.cache_clear()
    opened = distls.open_dataset(folder)
    views = [dataset.replace(opened, fold=dataset.Fold(number, 5, alone=False)).standardized for number in range(5)]
    np.testing.assert_array_equal(views[4].standardization.scale, opened.standardized.standardization.scale)
    assert read == [(0,)]


def test_the_optimum_is_that_of_ridge_on_standardized_rows(data, tmp_path):
    folder, test, _, _ = data("unscaled")
    params = {"standardize": True, "alpha": 0.1, "dtype": "float64"}
    model = distls.fit("newton", folder, tmp_path / "run", params=params, rtol=1e-12).model
    first = distls.open_dataset(folder).read(0)
    mean, scale = first.x.values.mean(axis=0), first.x.values.std(axis=0)
    parts = [distls.open_dataset(folder).read(index) for index in range(len(distls.open_dataset(folder)))]
    x, y = (np.concatenate([part.x.values for part in parts]), np.concatenate([part.y for part in parts]))
    known = Ridge(alpha=0.1 * len(x)).fit((x - mean) / scale, y[:, 0])
    assert model.predict(test) == pytest.approx(known.predict((test - mean) / scale), abs=0.02)


def test_scores_of_other_rows_are_those_of_the_model(data, tmp_path):
    folder, *_ = data("unscaled")
    result = distls.fit("newton", folder, tmp_path / "run", eval_data=folder)
    assert result.record["eval_mse"] == pytest.approx(distls.evaluate(tmp_path / "run", folder).mse, rel=1e-4)


@pytest.mark.slow
def test_a_run_goes_on_as_it_began(data, tmp_path):
    folder, *_ = data("unscaled")
    whole = distls.fit("csgd", folder, tmp_path / "whole", passes=4).model
    distls.fit("csgd", folder, tmp_path / "parts", passes=2)
    assert distls.resume(tmp_path / "parts", passes=4).model.weights.tobytes() == whole.weights.tobytes()
    assert Run.open(tmp_path / "parts").config.grid[0]["standardize"] is True


@pytest.mark.slow
def test_a_model_is_a_start_for_standardized_rows(data, tmp_path):
    folder, *_ = data("unscaled")
    best = distls.fit("newton", folder, tmp_path / "first", rtol=1e-9)
    again = distls.fit("newton", folder, tmp_path / "again", params={"init": str(tmp_path / "first")})
    assert again.passes < best.passes
    assert again.record["objective"] == pytest.approx(best.record["objective"], rel=1e-5)


@pytest.mark.parametrize("method", ["newton", pytest.param("sdca", marks=pytest.mark.slow)])
def test_folds_choose_a_strength_for_the_rows_as_they_are_seen(method, data, tmp_path):
    folder, test, test_y, best = data("unscaled")
    params = {"alpha": "path", "alphas": "1:1e-2:1e-4", "folds": 3, "standardize": True}
    result = distls.fit(method, folder, tmp_path / "run", params=params)
    assert result.model.params["alpha"] <= 1e-2
    assert r2(test_y, result.model.predict(test)) > 0.99 * best


@pytest.mark.slow
def test_a_proof_is_of_the_rows_as_they_were_seen(data, tmp_path):
    folder, *_ = data("unscaled")
    result = distls.fit("sdca", folder, tmp_path / "run")
    proven = distls.evaluate(tmp_path / "run", folder).certificate
    assert proven["value"] == pytest.approx(result.record["certificate"]["value"], rel=0.05)


def test_a_strength_of_ones_own_is_for_the_rows_as_they_are(data, tmp_path):
    folder, *_ = data("unscaled")
    model = distls.fit("newton", folder, tmp_path / "run", params={"alpha": 1.0}).model
    assert "standardize" not in model.params


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("sgd", {"fit_intercept": False}, "fit_intercept=false"),
        ("sgd", {"features": "fourier"}, "generated features"),
        ("newton", {"intercept_scaling": 1.0}, "intercept_scaling"),
        ("gls", {"link": "poisson"}, "numbers without the squared loss"),
    ],
)
def test_what_has_no_meaning_is_refused(method, params, why, data):
    folder, *_ = data("unscaled")
    with pytest.raises(ParameterError, match=f"standardize=true: not with {why}; leave it out"):
        distls.fit(method, folder, params={**params, "standardize": True})
