"""The scikit-learn face: the same bits as `fit`, weights, warm starts, refusals."""

import inspect
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, raised, refuses, write_dataset
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from distls import (
    DualLogisticRegression,
    GeneralizedLeastSquaresRegressor,
    MCIDClassifier,
    SGDQNClassifier,
    StochasticClassifier,
    fit,
    ingest,
    open_dataset,
)
from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier
from distls.execution.serial import SerialExecutor
from distls.methods.method import Method, Parameter
from distls.methods.method_registry import METHODS, method_named
from distls.methods.parameters import integer
from distls.storage.errors import BadInputError, MismatchError, ParameterError, WorkerError


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(400, 30, 4)


NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.mark.fast_cases("False-csr$")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_as_fit_on_an_equal_dataset(tmp_path, rows, layout, weighted):
    x, y = rows
    x = x if layout == "csr" else x.toarray()
    weight = np.arange(len(y)) % 3 + 0.5 if weighted else None
    ingest(x, tmp_path / "d", y=y, sample_weight=weight, seed=3)
    params = {"loss": "log", "alpha": 1e-3, "class_weight": "balanced"}
    model = fit("mcid", tmp_path / "d", params=params, passes=3, seed=3).model
    options = {**params, "passes": 3, "random_state": 3}
    in_memory = MCIDClassifier(**options).fit(x, NAMES[y], sample_weight=weight)
    for fitted in (in_memory, MCIDClassifier(**options).fit(tmp_path / "d")):
        assert fitted.model_.sha256 == model.sha256
        assert np.array_equal(fitted.coef_, model.weights.T)
        assert np.array_equal(fitted.intercept_, model.intercept)
        assert (fitted.n_features_in_, fitted.n_iter_, fitted.status_) == (30, 3.0, "MAX_PASSES")
    assert in_memory.classes_.tolist() == NAMES.tolist()


def test_dataset_path_and_object_in_and_out(tmp_path, rows):
    x, y = rows
    data = write_dataset(tmp_path / "d", x, y, classes=NAMES.tolist())
    fitted = MCIDClassifier(passes=2).fit(data)
    assert fitted.classes_.tolist() == NAMES.tolist()
    assert MCIDClassifier(passes=2).fit(str(data.path)).model_.sha256 == fitted.model_.sha256
    predicted = fitted.predict(x)
    for source in (data, data.path, str(data.path)):
        assert np.array_equal(fitted.predict(source), predicted)
    assert fitted.score(x, NAMES[y]) > 0.6


def test_a_dataset_that_does_not_fit_is_refused(tmp_path, rows):
    fitted = MCIDClassifier(passes=1).fit(*rows)
    wide = write_dataset(tmp_path / "w", *labelled_rows(20, 31, 4))
    refuses(MismatchError, "has 31 features, the model 30", fitted.predict, wide)
    ingest(rows[0], tmp_path / "l", y=rows[1], transform="l2norm")
    refuses(MismatchError, "has transforms l2norm, the model none", fitted.predict, tmp_path / "l")


def test_scores_and_probabilities(rows):
    x, y = rows
    fitted = MCIDClassifier(passes=2).fit(x, y)
    scores = x @ fitted.coef_.T + fitted.intercept_
    np.testing.assert_allclose(fitted.decision_function(x), scores, rtol=1e-4, atol=1e-3)
    proba = fitted.predict_proba(x)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    assert np.array_equal(fitted.classes_[proba.argmax(axis=1)], fitted.predict(x))
    two = StochasticClassifier(passes=2).fit(x, y > 1)
    assert two.decision_function(x).shape == (400,)
    assert np.array_equal(two.decision_function(x) > 0, two.predict(x))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "perceptron"])
def test_no_probabilities_for_other_losses(rows, loss):
    fitted = MCIDClassifier(loss=loss, passes=1).fit(*rows)
    assert not hasattr(fitted, "predict_proba")
    with pytest.raises(AttributeError, match="has no attribute 'predict_proba'") as caught:
        fitted.predict_proba(rows[0])
    assert isinstance(caught.value.__cause__, ParameterError)
    reason = f"loss={loss!r} has no probabilities; use loss='log'"
    assert str(caught.value.__cause__) == reason
    # the message that a user sees names both ways out
    assert str(caught.value) == (
        f"This 'MCIDClassifier' has no attribute 'predict_proba': {reason}, or calibrate its scores: "
        "sklearn.calibration.CalibratedClassifierCV(MCIDClassifier(...))"
    )


@pytest.mark.fast_cases("predict$")
@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_not_fitted(rows, method):
    with pytest.raises(NotFittedError):
        getattr(MCIDClassifier(), method)(rows[0])


@pytest.mark.slow
def test_a_warm_start_goes_on(rows):
    x, y = rows
    options = {"passes": 1, "alpha": 1e-3, "average": "none"}
    warm = MCIDClassifier(**options, warm_start=True).fit(x, y)
    first = warm.model_.sha256
    assert first == MCIDClassifier(**options).fit(x, y).model_.sha256
    warm.fit(x, y)
    assert warm.model_.sha256 != first
    cold = MCIDClassifier(**options).fit(x, y)
    assert cold.fit(x, y).model_.sha256 == first
    refuses(MismatchError, "a model of 30 features and 4 outputs", warm.fit, x, y % 3)


def test_parameters_are_kept_cloned_and_searched(rows):
    made = MCIDClassifier("hinge", alpha=1e-3, class_weight={1: 2.0}, lanes=2)
    assert clone(made).get_params() == made.get_params()
    assert made.set_params(alpha=0.5).alpha == 0.5
    search = GridSearchCV(
        make_pipeline(MaxAbsScaler(), MCIDClassifier(passes=1)), {"mcidclassifier__alpha": [10.0, 1e-3]}, cv=2
    ).fit(*rows)
    assert search.best_params_ == {"mcidclassifier__alpha": 1e-3}


def test_pickled_and_back(rows):
    fitted = MCIDClassifier(passes=1).fit(*rows)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(rows[0]), fitted.predict(rows[0]))


@pytest.mark.fast_cases("options0", "options5")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "mcid: alpha=0: must be greater than 0, or path"),
        ({"loss": "huber"}, "mcid: loss=huber: expected one of softmax, crammer_singer, perceptron, log, hinge"),
        ({"passes": -1}, "passes=-1: must be greater than 0 and finite"),
        ({"passes": float("nan")}, "passes=nan: must be greater than 0 and finite"),
        ({"tol": 0.0}, "tol=0.0: must be greater than 0 and finite"),
        ({"random_state": -1}, "seed must not be negative, -1 was given"),
    ],
)  # fmt: skip
def test_parameters_out_of_range(rows, options, message):
    assert raised(ParameterError, MCIDClassifier(**options).fit, *rows) == message


def test_a_class_has_the_parameters_that_its_method_declares(monkeypatch):
    depth = Parameter("depth", 3, integer(1), "how deep")
    own = Parameter("width", 2, integer(1), "how wide")
    toy = Method("toy", "", "", (depth, *method_named("gls").parameters[:2]), "no:solver", ("class",))
    monkeypatch.setitem(METHODS, "toy", toy)

    @estimator("toy", "depth", own, without=("link",), alpha=0.5)
    class Toy(DatasetClassifier):
        """A toy."""

    limits = "passes=10.0, tol=None, warm_start=False, kind=None, random_state=0, executor=None"
    assert str(inspect.signature(Toy)) == f"(depth=3, *, alpha=0.5, width=2, {limits})"
    assert Toy.__doc__.startswith(
        "A toy.\n\nParameters\n----------\ndepth : default 3\n    how deep\nalpha : default 0.5\n"
    )
    assert clone(Toy(5, alpha=1.0)).get_params()["depth"] == 5
    refuses(TypeError, "did you mean 'depth'", Toy, deep=3)


def test_divergence_is_an_error_and_publishes_nothing(rows):
    x, y = rows
    diverging = MCIDClassifier(alpha=1e-30, average="none", passes=2)
    refuses(ParameterError, "the weights are no longer finite", diverging.fit, x * np.float32(1e15), y)
    assert not hasattr(diverging, "model_")


@pytest.mark.slow
def test_tol_converges(rows):
    fitted = MCIDClassifier(alpha=1.0, tol=1e-2, passes=500).fit(*rows)
    assert fitted.status_ == "CONVERGED"
    assert fitted.n_iter_ < 500


def test_open_dataset_is_what_fit_takes(tmp_path, rows):
    write_dataset(tmp_path / "d", *rows)
    fitted = MCIDClassifier(passes=1, lanes=2).fit(open_dataset(tmp_path / "d"))
    assert fitted.model_.params["lanes"] == 2


class _Stopping(SerialExecutor):
    """Interrupts a fit in its second round, as Ctrl-C does."""

    rounds = 0

    def reduce(self, *given, **options):
        """Count, and interrupt."""
        self.rounds += 1
        if self.rounds > 1:
            raise KeyboardInterrupt
        return super().reduce(*given, **options)


@pytest.mark.slow
def test_an_interrupt_ends_the_caller_too(tmp_path):
    x, y = labelled_rows(200, 10, 2)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after 1 passes$"):
        MCIDClassifier(passes=5, executor=_Stopping()).fit(x, y)
    with pytest.raises(KeyboardInterrupt, match="interrupted after"):
        GridSearchCV(MCIDClassifier(executor=_Stopping()), {"alpha": [1e-3, 1e-4]}, cv=2).fit(x, y)


def test_small_arrays_are_fitted_in_memory_with_the_same_bits(tmp_path, monkeypatch):
    """The folders for temporary files are not touched, and hold nothing afterwards where they are used."""
    x, y = labelled_rows(200, 10, 3)
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    for folder in (memory, disk):
        folder.mkdir()
    monkeypatch.setattr("distls.storage.filesystem.memory_folder._MEMORY", memory)
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    before = disk.stat().st_mtime_ns, memory.stat().st_mtime_ns
    small = MCIDClassifier(passes=2, warm_start=True).fit(x, y).fit(x, y).model_.sha256
    assert disk.stat().st_mtime_ns == before[0]
    assert memory.stat().st_mtime_ns != before[1]
    monkeypatch.setattr("distls.storage.filesystem.memory_folder.LARGEST_IN_MEMORY", -1)
    assert MCIDClassifier(passes=2, warm_start=True).fit(x, y).fit(x, y).model_.sha256 == small
    assert disk.stat().st_mtime_ns != before[0]
    assert not [*memory.iterdir(), *disk.iterdir()]


class _Elsewhere(SerialExecutor):
    """Has a worker on a machine that does not see this one's temporary files."""

    def each_worker(self, function, item):
        """Answer for the worker."""
        return {"far": f"{item[0].path}: no such data set" if isinstance(item, tuple) else None}


def test_workers_that_do_not_see_temporary_files_are_told_how_to(tmp_path):
    rows = labelled_rows(50, 5, 2)
    with pytest.raises(WorkerError, match=r"worker far: .*/data: no such data set; .* set DISTLS_TEMPORARY to"):
        MCIDClassifier(executor=_Elsewhere()).fit(*rows)
    with pytest.raises(WorkerError, match=r"no such data set$"):
        MCIDClassifier(executor=_Elsewhere()).fit(write_dataset(tmp_path / "d", *rows).path)


class _Workers:
    """An executor that is not of this process, as far as anyone asks; notes what of a folder its tasks see."""

    def __init__(self, folder):
        self.folder, self.own = folder, SerialExecutor()
        self.seen: set[str] = set()

    def __getattr__(self, name):
        return getattr(self.own, name)

    def map(self, *arguments, **options):
        self.look()
        return self.own.map(*arguments, **options)

    def reduce(self, *arguments, **options):
        """Run tasks here, and merge."""
        self.look()
        return self.own.reduce(*arguments, **options)

    def look(self):
        """Note what is there."""
        self.seen |= {path.name.split("-")[4] for path in self.folder.iterdir()}


@pytest.mark.slow
def test_files_of_workers_are_in_the_folder_that_is_named(tmp_path, monkeypatch):
    x, y = labelled_rows(50, 5, 2)
    alone = MCIDClassifier(passes=2).fit(x, y).model_.sha256
    shared = tmp_path / "shared"
    shared.mkdir()
    workers = _Workers(shared)
    monkeypatch.setenv("DISTLS_TEMPORARY", str(shared))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    model = MCIDClassifier(passes=2, warm_start=True, executor=workers).fit(x, y)
    assert model.model_.sha256 == alone
    model.fit(x, y)  # from weights that are there too
    assert workers.seen == {"fit", "run"}
    assert not [*shared.iterdir()]
    monkeypatch.setenv("DISTLS_TEMPORARY", str(tmp_path / "none"))
    with pytest.raises(ParameterError, match=r"^DISTLS_TEMPORARY=.*/none: no such folder$"):
        MCIDClassifier(passes=2, executor=workers).fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("made", [StochasticClassifier(), SGDQNClassifier("log")])
def test_columns_of_other_scales_are_warned_of(made, recwarn):
    x, y = load_breast_cancer(return_X_y=True)
    made.fit((x - x.mean(axis=0)) / x.std(axis=0), y)
    assert len(recwarn) == 0
    with pytest.warns(UserWarning, match="not converged: .*-fold: standardize them") as found:
        made.fit(x, y)
    assert found[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "hint"), [("max_iter", "--passes N"), ("n_jobs", "Dask client"), ("alhpa", "did you mean 'alpha'")]
)
def test_parameters_of_others_are_answered_with_ours(name, hint):
    refuses(TypeError, f"StochasticClassifier has no parameter '{name}'; .*{hint}", StochasticClassifier, **{name: 1})


SECONDS = 1_700_000_000 + np.arange(60)[:, None]
ROWS_OF_INTEGERS = {
    "int64": lambda x: x,
    "uint64": lambda x: x.astype(np.uint64),
    "list": lambda x: x.tolist(),
    "object": lambda x: x.astype(object),
    "csr": sp.csr_matrix,
    "float64": lambda x: x.astype(float),
}


@pytest.mark.fast_cases("int64$")
@pytest.mark.parametrize("rows", ROWS_OF_INTEGERS.values(), ids=ROWS_OF_INTEGERS)
def test_rows_of_integers_are_those_of_floats(rows):
    """Fits and predictions keep the digits of every type, one row at a time too."""
    y, plain = np.arange(60.0), SECONDS.astype(float)
    regressor = GeneralizedLeastSquaresRegressor(alpha=0).fit(rows(SECONDS), y)
    assert np.allclose(regressor.predict(plain), y, atol=1e-3)
    plain = sp.csr_matrix(plain) if sp.issparse(rows(SECONDS)) else plain
    assert np.array_equal(regressor.predict(rows(SECONDS)), regressor.predict(plain))
    assert np.array_equal(regressor.predict(rows(SECONDS[30:31])), regressor.predict(plain[30:31]))
    x = np.column_stack([SECONDS, np.ones_like(SECONDS), SECONDS % 7])
    classes, wide = np.arange(60) % 3, x.astype(float)
    wide = sp.csr_matrix(wide) if sp.issparse(plain) else wide
    fitted = StochasticClassifier(loss="log", passes=1).fit(rows(x), classes)
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        assert np.array_equal(getattr(fitted, method)(rows(x)), getattr(fitted, method)(wide))
    streamed, reference = (
        StochasticClassifier(loss="log").partial_fit(given, classes, classes=[0, 1, 2]) for given in (rows(x), wide)
    )
    assert np.array_equal(streamed.coef_, reference.coef_)


@pytest.mark.slow
def test_small_integers_are_stored_as_before():
    x, y = np.arange(40).reshape(20, 2) % 9, np.arange(20) % 3
    fits = [StochasticClassifier(passes=1).fit(rows, y).coef_ for rows in (x, x.astype(np.float32))]
    assert np.array_equal(*fits)


@pytest.mark.fast_cases("passes$")
@pytest.mark.parametrize(
    "given",
    [
        {"passes": np.int64(3)},
        {"passes": np.float32(3)},
        {"tol": np.float64(1e-3)},
        {"random_state": np.int64(3)},
        {"random_state": None},
        {"random_state": np.random.RandomState(3)},
        {"random_state": np.random.default_rng(3)},
    ],
    ids=["passes", "half", "tol", "seed", "none", "state", "generator"],
)
def test_numbers_and_generators_of_numpy_are_taken(given):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    assert StochasticClassifier(loss="log", **given).fit(X, y).score(X, y) > 0.9
    if given.get("random_state") is not None:
        refuses(ParameterError, "random_state", StochasticClassifier(random_state="three").fit, X, y)


def test_grids_of_numpy_and_one_weight_for_all():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    grid = {"passes": np.arange(2, 4), "random_state": np.arange(2)}
    assert GridSearchCV(StochasticClassifier(loss="log"), grid, cv=2).fit(X, y).best_score_ > 0.9
    one, each = (DualLogisticRegression().fit(X, y, sample_weight=w).coef_ for w in (2.0, np.full(60, 2.0)))
    assert np.array_equal(one, each)


def test_refusals_speak_of_rows_and_numbers_in_memory():
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(BadInputError, match=r"^X: values up to .* divide them$"):
        StochasticClassifier().fit(X * 1e300, np.arange(30) % 2)
    with pytest.raises(ParameterError, match=r"try a larger alpha, or scale y$"):
        GeneralizedLeastSquaresRegressor(alpha=0).fit(X, X[:, 0] * 1e200)
    with pytest.warns(UserWarning, match="null directions"):
        GeneralizedLeastSquaresRegressor(alpha=0).fit(X[:2], [0.0, 1.0])
