"""Estimators take frames of any columns, through the recipe by which `train` reads them."""

import pickle

import numpy as np
import pytest
from helpers import refuses
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import distls
from distls import facts
from distls.storage.errors import ParameterError

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

N = 120
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, N).round(1), "job": RNG.choice(["baker", "smith", "clerk"], N),
        "grade": pd.Categorical(RNG.choice([1, 2, 3], N)), "when": pd.date_range("2024-01-01", periods=N, freq="7h"),
        "long": pd.to_timedelta(RNG.integers(0, 9000, N), unit="s"), "ok": RNG.random(N) > 0.5,
    }
)  # fmt: skip
FRAME.loc[::17, "age"] = np.nan
Y = np.where((FRAME["job"] == "baker") | (FRAME["grade"] == 2), "yes", "no")
CLASSIFIER = distls.GeneralizedLeastSquaresClassifier(alpha=1e-3)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def fitted():
    return clone(CLASSIFIER).fit(FRAME, Y)


def test_the_recipe_is_that_of_a_data_set(fitted, tmp_path):
    distls.ingest(FRAME, tmp_path / "d", y=np.unique(Y, return_inverse=True)[1], transform="auto")
    on_data = clone(CLASSIFIER).fit(tmp_path / "d")
    assert fitted.coef_.tobytes() == on_data.coef_.tobytes()
    assert fitted.model_.source["recipe"] == on_data.model_.source["recipe"]
    # rows of a frame go through it, whatever the estimator was fitted on
    assert np.array_equal(on_data.decision_function(FRAME), fitted.decision_function(FRAME))
    assert fitted.n_features_in_ == len(FRAME.columns)
    assert list(fitted.feature_names_in_) == list(FRAME.columns)
    assert fitted.score(FRAME, Y) == 1.0


def test_columns_are_found_by_name_in_frames_of_any_library(fitted):
    import pyarrow

    expected = fitted.predict_proba(FRAME)
    shuffled = FRAME[FRAME.columns[::-1]]
    arrow = pyarrow.Table.from_pandas(shuffled, preserve_index=False)
    for frame in (shuffled, arrow, FRAME.assign(grade=FRAME["grade"].astype(int))):
        assert np.array_equal(fitted.predict_proba(frame), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(FRAME), expected)
    assert np.array_equal(fitted.predict(FRAME[:1]), fitted.predict(FRAME)[:1])


@pytest.mark.fast_cases("rows0", "rows3")
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (FRAME.assign(other=1), '"other" is none of'),
        (FRAME.drop(columns="job"), 'no column "job"'),
        (np.ones((2, 6)), "a frame of the source's columns"),
        (FRAME.to_numpy(), "takes a frame with the columns"),
    ],
)
def test_other_rows_are_refused_in_one_line(fitted, rows, message):
    refuses(ValueError, message, fitted.predict, rows)


def test_what_needs_all_rows_at_once_is_refused(fitted):
    made = distls.StochasticClassifier(loss="log")
    for estimator in (made, clone(made).fit(FRAME, Y)):
        with pytest.raises(ParameterError, match="partial_fit takes columns of numbers"):
            estimator.partial_fit(FRAME, Y, classes=["no", "yes"])
    with pytest.raises(ParameterError, match="label_column="):
        distls.GeneralizedLeastSquaresRegressor().fit(FRAME, RNG.normal(size=(N, 2)))
    for wrong in (FRAME[:0], pd.concat([FRAME, FRAME[["job"]]], axis=1)):
        refuses(ValueError, r"no rows|one name", clone(CLASSIFIER).fit, wrong, Y[: len(wrong)])


def test_a_warm_start_on_other_categories_is_refused_without_a_folder():
    warm = distls.StochasticClassifier(loss="log", warm_start=True).fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"^warm_start: a model of \d+ features and 1 output, .*warm_start=False$"):
        warm.fit(FRAME.assign(job="baker"), Y)
    # as many categories, but others
    with pytest.raises(ValueError, match=r'^feature \d+ of X is "job=\w+", but "job=\w+" in warm_start, .*=False$'):
        warm.fit(FRAME.assign(job=FRAME["job"].replace("clerk", "miller")), Y)


def test_what_is_found_is_said_with_keywords(monkeypatch):
    monkeypatch.setattr(facts, "as_keywords", True)
    with pytest.warns(UserWarning, match="columns by their values") as said:
        clone(CLASSIFIER).fit(FRAME, Y)
    texts = [str(warning.message) for warning in said]
    assert any('"when" is dates; "long" is lengths of time' in text for text in texts)
    assert any('"age" (8 rows: median' in text for text in texts)
    assert not any("--" in text for text in texts)
    assert any(text.endswith('; kind="NAME=KIND" says otherwise') for text in texts)


KIND = {"age": "number:log1p", "grade": "category", "note": "text:tfidf"}
# the kind alone makes a category of grades
NUMBERS = FRAME[["age", "grade"]].astype({"grade": int}).fillna(30.0)


def test_kinds_of_columns_are_those_of_train(tmp_path):
    frame = NUMBERS.assign(note=[f"a bill of {job}s in town {k % 5}" for k, job in enumerate(FRAME["job"])])
    fitted = clone(CLASSIFIER).set_params(kind=KIND).fit(frame, Y)
    distls.ingest(frame, tmp_path / "d", y=np.unique(Y, return_inverse=True)[1], transform="auto", kind=KIND)
    recipe = distls.open_dataset(tmp_path / "d").meta.source["recipe"]
    assert fitted.model_.source["recipe"] == recipe
    assert [f["name"] for f in recipe["features"] if "transform" in f] == ["age", "note"]
    assert fitted.model_.feature_names_in_.tolist() == list(frame.columns)
    assert clone(fitted).get_params()["kind"] == KIND
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(frame[["note", "grade", "age"]]), fitted.predict_proba(frame))
    refuses(ParameterError, 'no column "job"', clone(fitted).set_params(kind={"job": "category"}).fit, frame, Y)


def test_kinds_are_for_frames_of_any_columns():
    plain, coded = (clone(CLASSIFIER).set_params(kind=kind).fit(NUMBERS, Y) for kind in (None, "grade=category"))
    assert plain.coef_.shape[1] == 2
    assert [*coded.model_.get_feature_names_out()] == ["age", "grade=1", "grade=2", "grade=3"]
    with pytest.raises(ParameterError, match="kind names columns of a data frame, and X is none"):
        clone(coded).fit(NUMBERS.to_numpy(), Y)
    stream = distls.MCIDClassifier(kind={"grade": "category"})
    with pytest.raises(ParameterError, match="partial_fit takes columns of numbers"):
        stream.partial_fit(NUMBERS, Y, classes=["no", "yes"])


@pytest.mark.parametrize("kind", [{"grade": "label"}, "age=weight", ["age=number", "grade=id"]])
def test_kinds_of_no_feature_are_refused(kind):
    with pytest.raises(ParameterError, match=r"^kind: '.*' is no feature; labels are given as y, .*=ignore$"):
        clone(CLASSIFIER).set_params(kind=kind).fit(NUMBERS, Y)


def test_kinds_of_dask_frames_are_refused():
    rows = pytest.importorskip("dask.dataframe").from_pandas(NUMBERS, npartitions=2)
    with pytest.raises(ParameterError, match=r"^kind: of a Dask frame; distls\.train reads it$"):
        clone(CLASSIFIER).set_params(kind={"grade": "category"}).fit(rows, Y)


@pytest.mark.slow
def test_a_fit_of_a_data_set_forgets_the_columns_of_a_frame(tmp_path):
    distls.ingest(np.arange(40.0).reshape(20, 2), tmp_path / "d", y=np.arange(20) % 2)
    again = clone(CLASSIFIER).fit(FRAME, Y).fit(tmp_path / "d")
    assert (again.n_features_in_, hasattr(again, "feature_names_in_")) == (2, False)
    assert again.predict(np.ones((3, 2))).shape == (3,)


def test_a_series_is_refused_as_rows():
    refuses(ValueError, "2-dimensional", clone(CLASSIFIER).fit, FRAME["age"], Y)


@pytest.mark.slow
def test_frames_of_numbers_are_taken_as_before(fitted):
    numbers = FRAME[["age", "ok"]].fillna(0.0)
    again = clone(fitted).fit(FRAME, Y).fit(numbers, Y)
    assert again.coef_.tobytes() == clone(CLASSIFIER).fit(numbers.to_numpy(float), Y).coef_.tobytes()
    refuses(ValueError, "same order", again.predict, numbers[["ok", "age"]])


@pytest.mark.slow
def test_a_run_on_a_table_is_an_estimator(tmp_path):
    FRAME.assign(y=Y).to_csv(tmp_path / "a.csv", index=False)
    distls.train(tmp_path / "a.csv", tmp_path / "run", method="gls", params={"alpha": 1e-3}, label_column="y")
    found = distls.load_estimator(tmp_path / "run")
    assert found.n_features_in_ == len(FRAME.columns)
    assert np.array_equal(found.predict(FRAME), distls.load_model(tmp_path / "run").predict(FRAME))
    own = {"job": "category", "when": "date", "long": "date:duration"}
    assert found.kind == own


def test_a_loaded_estimator_has_its_kinds(tmp_path):
    rows = NUMBERS.assign(tags=["a|b", "b"] * (N // 2), day="3/4/2024")
    kind = {"age": "number:log1p", "grade": "category", "tags": "set:|", "day": "date:dmy"}
    rows.assign(y=Y).to_csv(tmp_path / "a.csv", index=False)
    options = {"method": "gls", "params": {"alpha": 1e-3}, "label_column": "y", "kind": kind}
    distls.train(tmp_path / "a.csv", tmp_path / "run", **options)
    found = distls.load_estimator(tmp_path / "run")
    assert found.kind == kind
    features = found.model_.source["recipe"]["features"]
    assert clone(found).fit(rows, Y).model_.source["recipe"]["features"] == features


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        distls.StochasticClassifier(loss="log"),
        distls.DualLogisticRegression(),
        distls.SparseLogisticRegression(),
        distls.MCIDClassifier(),
        distls.DualRidge(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_family_and_searches(estimator):
    y = (Y == "yes").astype(float) if isinstance(estimator, distls.DualRidge) else Y
    name = "C" if hasattr(estimator, "C") else "alpha"
    search = GridSearchCV(estimator, {name: [0.1, 1.0]}, cv=2).fit(FRAME, y)
    assert search.best_score_ > 0.1  # of numbers the part of the variance


@pytest.mark.slow
def test_frames_of_dask(fitted):
    dask_frame = pytest.importorskip("dask.dataframe")
    rows = dask_frame.from_pandas(FRAME, npartitions=2)
    labels = dask_frame.from_pandas(pd.Series(Y, index=FRAME.index), npartitions=2)
    lazy = clone(CLASSIFIER).fit(rows, labels)
    assert list(lazy.classes_) == ["no", "yes"]
    assert np.array_equal(np.asarray(lazy.predict(rows)), lazy.predict(FRAME))
    assert (lazy.predict(FRAME) == Y).all()
