"""Fits that look done and are not: lines for the user, and silence where all is well."""

import json
import warnings

import numpy as np
import pytest
from helpers import distls as command
from helpers import printed
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import distls
from distls.cli.report import run_lines
from distls.storage.errors import StorageError
from distls.training import fit_warnings


def fitted(tmp_path, x, y, method="sgd", transform=(), **options):
    distls.ingest(np.asarray(x, dtype=np.float32), tmp_path / "d", y=y, transform=transform, target="class")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = distls.fit(method, tmp_path / "d", tmp_path / "r", **options)
    # each is a Python warning, of the line that called
    own = [each for each in caught if each.category is UserWarning]
    assert [str(each.message) for each in own] == list(result.warnings)
    assert {each.filename for each in own} <= {__file__}
    return result


def test_columns_of_very_different_scales(tmp_path):
    found = fitted(tmp_path, *load_wine(return_X_y=True))
    (text,) = found.warnings
    assert text.startswith("not converged: a step could still lower the objective by about ")
    assert text.endswith(
        "-fold: standardize them (--transform standardize of ingest, before an estimator StandardScaler), "
        "or take gls, which does not depend on scales"
    )
    assert run_lines(tmp_path / "r")[-1] == f"warning: {text}"
    assert json.loads((tmp_path / "r" / "status.json").read_text())["warnings"] == [text]


def sparse_rows(scales=1.0, unit=False):
    """Return rows of columns that are rare and common, some of which tell the classes apart."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 3000)
    often = np.concatenate([np.full(20, 0.6), np.full(60, 5e-4)])
    x = (random.random((len(y), len(often))) < often * (1 + 0.4 * y[:, None] * (np.arange(len(often)) % 2))) * scales
    x[:, 0] += x.sum(axis=1) == 0
    return csr_matrix(x / np.linalg.norm(x, axis=1, keepdims=True) if unit else x, dtype=np.float32), y


def sparse_advice(tmp_path, x, y, method="sdca"):
    distls.ingest(x, tmp_path / "d", y=y, target="class", transform=())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = distls.fit(method, tmp_path / "d", tmp_path / "r", passes=1, params={"alpha": 1e-7})
    return next(text for text in found.warnings if text.startswith("not converged")).split("; ")[1]


@pytest.mark.slow
@pytest.mark.parametrize("unit", [True, False])
def test_that_sparse_columns_are_rare_is_no_matter_of_scales(tmp_path, unit):
    x, y = sparse_rows(unit=unit)
    squares = np.asarray(x.multiply(x).mean(axis=0)).ravel()
    assert np.sqrt(squares.max() / squares[squares > 0].min()) > 30
    assert sparse_advice(tmp_path, x, y) == "give it more passes, or another method (`distls methods`)"


@pytest.mark.slow
def test_sparse_rows_are_not_to_be_standardized(tmp_path):
    x, y = sparse_rows(np.tile(np.geomspace(0.01, 10, 20), 4))
    text = sparse_advice(tmp_path, x, y)
    assert text.startswith("the values of its columns differ ")
    assert text.endswith("-fold: ingest with --transform idf,l2norm, or take another alpha")


@pytest.mark.slow
def test_a_table_with_categories_is_to_be_standardized(tmp_path):
    x, y = load_wine(return_X_y=True)
    rows = [",".join([*map(str, row), "ab"[n % 2], str(y[n])]) for n, row in enumerate(x.tolist())]
    (tmp_path / "a.csv").write_text("\n".join([",".join([*map(chr, range(97, 110)), "kind", "y"]), *rows]))
    distls.ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    with pytest.warns(UserWarning, match="fold: standardize them .*, or take gls"):
        distls.fit("sgd", tmp_path / "d")


def test_other_methods_name_the_one_that_does_not_depend_on_a_step(tmp_path):
    x, y = sparse_rows(np.tile(np.geomspace(0.01, 10, 20), 4))
    found = sparse_advice(tmp_path, x, y, "sgd")
    assert found.endswith("-fold: ingest with --transform idf,l2norm, or take another alpha or sdca")


@pytest.mark.fast_cases("load_wine-options0")
@pytest.mark.parametrize(
    ("load", "options"),
    [
        (load_wine, {"transform": "standardize"}),
        (load_wine, {"method": "gls"}),
        (load_digits, {}),
        (load_digits, {"method": "mcid"}),
        # whose one round scores rows by no model, after a pass that prepares it
        (load_digits, {"method": "stagewise", "params": {"features": "fourier", "pca": 9, "stages": 1}}),
    ],
)
def test_good_fits_are_silent(tmp_path, load, options):
    found = fitted(tmp_path, *load(return_X_y=True), **options)
    assert found.warnings == ()
    assert "warnings" not in json.loads((tmp_path / "r" / "status.json").read_text())


@pytest.mark.slow
def test_weights_worse_than_none(tmp_path):
    found = fitted(tmp_path, *load_wine(return_X_y=True), method="mcid")
    assert "is above the 1.099 of zero weights; the scales of its columns differ" in found.warnings[-1]


@pytest.mark.slow
def test_a_bound_that_is_far_off(tmp_path):
    x, y = load_digits(return_X_y=True)
    early = fitted(tmp_path, x[:300], y[:300], method="sdca", passes=1, params={"alpha": 1e-6})
    assert early.warnings[-1].startswith("not converged: nothing proves that the objective is within 20 % ")


def rows_of_noise(n_rows=400, rare=40):
    random = np.random.default_rng(0)
    return random.normal(size=(n_rows, 3)), np.arange(n_rows) % (n_rows // rare) == 0


def test_no_better_than_the_most_frequent_class(tmp_path):
    x, y = rows_of_noise()
    found = fitted(tmp_path, x, y.astype(int))
    assert "on training rows is no better than that of always answering 0, 10.00 %" in found.warnings[0]
    # with weights that make it so on purpose it is no news
    balanced = distls.fit("sgd", tmp_path / "d", params={"class_weight": "balanced"})
    assert [text for text in balanced.warnings if "always answering" in text] == []


def test_the_evaluation_rows_are_judged_where_there_are_some(tmp_path):
    x, y = rows_of_noise()
    distls.ingest(x, tmp_path / "e", y=y.astype(int))
    found = fitted(tmp_path, x, y.astype(int), eval_data=tmp_path / "e")
    assert "on evaluation rows is no better than" in found.warnings[0]


def test_a_sample_that_cannot_be_read_is_no_error(tmp_path, monkeypatch):
    def torn(_dataset):
        raise StorageError("torn")

    monkeypatch.setattr(fit_warnings, "_LAST", [])
    monkeypatch.setattr(fit_warnings, "_sample", torn)
    assert fitted(tmp_path, *load_wine(return_X_y=True)).warnings == ()


@pytest.mark.slow
def test_fits_of_one_data_set_sample_it_once(tmp_path, monkeypatch):
    taken, sample = [], fit_warnings._sample
    monkeypatch.setattr(fit_warnings, "_LAST", [])
    monkeypatch.setattr(fit_warnings, "_sample", lambda data: taken.append(data.fingerprint) or sample(data))
    x, y = load_wine(return_X_y=True)
    path = {"alpha": "path", "alphas": "1e-3:1e-4:1e-5"}
    found = fitted(tmp_path, x, y, params=path)
    assert len(taken) == 1
    assert "not converged" in found.warnings[0]
    fitted(tmp_path / "other", 2 * x, y)  # of other rows a sample of its own
    assert len(set(taken)) == len(taken) == 2


def test_standardized_columns_are_judged_as_such_in_a_grid(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 1e4]
    distls.ingest(x, tmp_path / "data", y=x[:, 0], target="continuous")
    raw = distls.open_dataset(tmp_path / "data")
    ratios = [fit_warnings._remembered(each).ratio for each in (raw, raw.standardized, raw)]
    assert ratios[0] == ratios[2] > 1e3
    assert ratios[1] < 2.0


def test_the_command_says_so_in_one_line_unless_quiet(tmp_path):
    x, y = load_wine(return_X_y=True)
    distls.ingest(x, tmp_path / "d", y=y)
    for name, quiet in (("r", []), ("q", ["--quiet"])):
        done = command("fit", "sgd", tmp_path / "d", tmp_path / name, "--executor", "serial", *quiet)
        assert done.code == 0
        assert done.err.count("warning: not converged") == (not quiet)


def ordered_rows(tmp_path, order, **options):
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 3000)
    x = (np.eye(3)[y] + 0.3 * random.normal(size=(len(y), 3))).astype(np.float32)
    rows = np.argsort(y, kind="stable") if order == "sorted" else np.arange(len(y))
    distls.ingest(x[rows], tmp_path / "d", y=y[rows], partition_size=x.nbytes // 6, **options)
    return tmp_path / "d"


def warned(data, run, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [w for w in distls.fit(method, data, run, **options).warnings if "random order" in w]


def test_sorted_rows_are_said_where_their_order_matters(tmp_path):
    data = ordered_rows(tmp_path, "sorted", shuffle=False)
    (text,) = warned(data, tmp_path / "sgd", "sgd", passes=2)
    assert text.startswith("the rows are not in random order: the labels of partition ")
    assert text.endswith("and this method takes rows as they come; ingest without --no-shuffle")
    assert warned(data, tmp_path / "gls", "gls", passes=2) == []
    # the metadata are what was judged, whoever opens them
    found = json.loads(printed("info", data, "--json"))["exchangeability"]
    assert f"{found['labels']['times_chance']:.1f} times more" in text
    assert "exchangeability\n  labels             times_chance=" in printed("info", data)


@pytest.mark.fast_cases("sorted")
@pytest.mark.parametrize(("order", "options"), [("sorted", {}), ("as it comes", {"shuffle": False})])
def test_rows_in_random_order_are_not(tmp_path, order, options):
    data = ordered_rows(tmp_path, order, **options)
    assert warned(data, tmp_path / "run", "sgd", passes=2) == []


def made_rows():
    return make_classification(980, 20, n_informative=8, n_classes=3, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "method"),
    [
        (made_rows, "sdca"),
        *[pytest.param(made_rows, name, marks=pytest.mark.slow) for name in ("ovr-sdca", "newton", "gls", "mcid",
                                                                             "olbfgs")],
        *[pytest.param(lambda: load_digits(return_X_y=True), name, marks=pytest.mark.slow)
          for name in ("sdca", "ovr-sdca", "ovr-pegasos", "ovr-logistic", "adaline", "olbfgs", "sgdqn", "svmsgd2")],
    ],
)  # fmt: skip
def test_few_rows_are_told_apart_with_nothing_chosen(tmp_path, load, method):
    x, y = load()
    x = StandardScaler().fit_transform(x).astype(np.float32)
    found = fitted(tmp_path, x, y, method=method)
    assert found.status == "CONVERGED" or method not in ("sdca", "ovr-sdca", "newton")
    best = 1.0 - LogisticRegression(max_iter=1000).fit(x, y).score(x, y)
    assert distls.evaluate(found.model, tmp_path / "d").error < best + 0.06


def numbers_of(tmp_path, scales, first=0.0):
    """Return a data set of numbers whose columns have these scales, and all that can be explained of them."""
    random = np.random.default_rng(0)
    x = random.standard_normal((2000, 10))
    y = x @ random.standard_normal(10) + 30.0 + random.standard_normal(2000)
    columns = x * scales
    columns[:, 0] += first
    distls.ingest(columns.astype(np.float32), tmp_path / "d", y=y, target="continuous")
    rows = np.column_stack([np.ones(2000), x])
    rest = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    return tmp_path / "d", 1.0 - rest.var() / y.var()


@pytest.mark.fast_cases("newton")
@pytest.mark.parametrize(
    "method",
    [
        "sdca", "newton",
        *[pytest.param(name, marks=pytest.mark.slow)
          for name in ("sgd", "gls", "asgd", "csgd", "ncsgd", "rls", "olbfgs", "fista", "sparsa", "stagewise")],
    ],
)  # fmt: skip
def test_numbers_are_explained_with_nothing_chosen(tmp_path, method):
    data, best = numbers_of(tmp_path, np.ones(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = distls.evaluate(distls.fit(method, data).model, data)
    assert found.r2 > 0.99 * best


@pytest.mark.slow
def test_numbers_that_are_no_better_explained_than_by_their_mean(tmp_path):
    """The rule of `fista` ends it where columns of very different scales let it hardly move."""
    data, _ = numbers_of(tmp_path, np.repeat([100.0, 1.0], [1, 9]), 1000.0)
    with pytest.warns(UserWarning, match="no better than that of always answering the mean; the scales of its"):
        found = distls.fit("fista", data, params={"standardize": False})
    assert found.status == "CONVERGED"
    assert distls.evaluate(found.model, data).r2 < 0.0
    assert distls.evaluate(distls.fit("fista", data).model, data).r2 > 0.9


def test_the_weights_that_are_kept_are_judged_and_not_those_before_them(tmp_path):
    """Far from zero, weights before the last round have rounding errors larger than all numbers."""
    x, y = 1_700_000_000 + np.arange(60.0)[:, None], np.arange(60.0)
    distls.ingest(x, tmp_path / "d", y=y, dtype="float64", target="continuous")
    found = distls.fit("gls", tmp_path / "d", params={"alpha": 0})
    assert found.warnings == ()
    assert distls.evaluate(found.model, tmp_path / "d").r2 > 0.999
