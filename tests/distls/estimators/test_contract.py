"""What every estimator is: scikit-learn's checks, its method's parameters, weights of rows and classes, no remains."""

import inspect

import numpy as np
import pytest
from helpers import labelled_rows, raised, write_dataset
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

from distls import (
    AdalineClassifier,
    CalibratedLeastSquaresClassifier,
    CSGDRegressor,
    DualLinearSVC,
    DualLogisticRegression,
    DualRidge,
    GeneralizedLeastSquaresClassifier,
    GeneralizedLeastSquaresRegressor,
    Lasso,
    MCIDClassifier,
    SGDQNClassifier,
    SparseLinearSVC,
    SparseLogisticRegression,
    SparseMulticlassClassifier,
    StagewiseClassifier,
    StochasticClassifier,
)
from distls.methods.method_registry import METHODS
from distls.methods.parameters import ONE_BLOCK
from distls.storage.errors import ParameterError

EQUIVALENCES = {
    "dense": check_sample_weight_equivalence_on_dense_data,
    "sparse": check_sample_weight_equivalence_on_sparse_data,
}
NAMES = np.array(["ant", "bee", "cat", "dog"])

_ITERATES = "weight 2 is a duplicated row in the objective; a stochastic method takes one larger step for it, not two"
_TOLERANCE = "scores that agree to 1e-7 take a gap of 1e-15; checked below, with tol=None"
_AT_A_GAP = "working sets end at a gap, at which scores agree to six digits"
# Why repeated rows differ from weights by more than the checks' 1e-7.
_UNEQUAL = {
    MCIDClassifier: _ITERATES,
    StochasticClassifier: _ITERATES,
    SGDQNClassifier: _ITERATES,
    AdalineClassifier: _ITERATES,
    CSGDRegressor: _ITERATES,
    DualLogisticRegression: _TOLERANCE,
    DualLinearSVC: _TOLERANCE,
    DualRidge: _TOLERANCE,
    # 45 probabilities, one of them off by 2e-7 on some processors
    CalibratedLeastSquaresClassifier: (
        "five rounds of cubes magnify the rounding of a repeated row beyond 1e-7; another test has it to 1e-6"
    ),
    # The check's 15 rows can be separated, so that the optimal intercept puts some exactly on the margin. Rounding
    # (slacks of 0 and of -3e-16 were seen) then decides whether the curvature of Eq. 6 counts them, and the next step
    # differs.
    SparseMulticlassClassifier: (
        "rows exactly on the margin have a second derivative or none, by rounding; log is checked below"
    ),
    SparseLogisticRegression: _AT_A_GAP,
    SparseLinearSVC: _AT_A_GAP,
}
# Why the class of the largest weight need not win everywhere. The metric of SGD-QN is capped, and of so few rows it
# has none.
_FEW_ROWS = "fifty rows far apart and ten passes of first-order steps leave the weights away from the optimum"
_UNTILTED = {
    MCIDClassifier: "a class can win everywhere only by its intercept, which the papers do not have",
    SGDQNClassifier: _FEW_ROWS,
    AdalineClassifier: _FEW_ROWS,
    CalibratedLeastSquaresClassifier: (
        "weights of 1000 and 0.0001 leave rows of one class; elsewhere cubes of the predictions go anywhere"
    ),
}


def _expected_failures(estimator):
    kind = type(estimator)
    if kind is CalibratedLeastSquaresClassifier and estimator.basis != 3:
        return {}
    # of dense rows in memory these find the optimum far more exactly
    exact = {"dense"} if kind in (DualLogisticRegression, DualLinearSVC) else set()
    failing = [EQUIVALENCES[layout].__name__ for layout in EQUIVALENCES.keys() - exact]
    found = dict.fromkeys(failing, _UNEQUAL[kind]) if kind in _UNEQUAL else {}
    if kind in _UNTILTED and not (kind is MCIDClassifier and estimator.fit_intercept):
        found["check_class_weight_classifiers"] = _UNTILTED[kind]
    return found


# the others need other types, kernels and fits
@pytest.mark.fast_cases(
    r"(StochasticClassifier|DualLogisticRegression|GeneralizedLeastSquaresRegressor)\(.*-check_fit_score_takes_y",
    ".*-check_(no_attributes_set_in_init|parameters_default_constructible)",
)
@pytest.mark.slow_cases(
    r"MCIDClassifier\((?!alpha=0.1\)).+\)-",
    r"GeneralizedLeastSquaresClassifier\(alpha",
    r"CalibratedLeastSquaresClassifier\(basis",
    r"(SGDQNClassifier|CSGDRegressor)\(",
)
@parametrize_with_checks(
    [
        MCIDClassifier(alpha=0.1),
        MCIDClassifier(fit_intercept=False),
        MCIDClassifier("hinge", alpha=0.1, average="none"),
        MCIDClassifier("perceptron", alpha=1.0),
        StochasticClassifier(),
        SGDQNClassifier(alpha=1e-2),
        AdalineClassifier(),
        CSGDRegressor(passes=30),
        # Sparse features with means take hundreds of passes, whose number no check is about; 200 is the fewest with
        # which dense rows are trained in memory.
        DualLogisticRegression(passes=200),
        DualLinearSVC(passes=200),
        DualRidge(alpha=0.1, passes=100),
        GeneralizedLeastSquaresClassifier(alpha=1e-5, passes=20),
        GeneralizedLeastSquaresClassifier("identity", alpha=1e-2),
        GeneralizedLeastSquaresRegressor(),
        CalibratedLeastSquaresClassifier(rounds=5),
        CalibratedLeastSquaresClassifier(1, rounds=5),
        StagewiseClassifier(dtype="float64"),
        SparseMulticlassClassifier(alpha=1e-3, fit_intercept=True),
        Lasso(alpha=1e-2),
        SparseLogisticRegression(),
        SparseLinearSVC(),
    ],
    expected_failed_checks=_expected_failures,
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


EXACT = {"tol": None, "passes": 900}  # a fit goes on to the limit of rounding
# To nine digits, by sweeps: working sets end at a gap, at which weights agree to six.
SWEEPS = {"alpha": 1e-3, "algorithm": "sweeps"}


@pytest.mark.slow
@pytest.mark.parametrize("layout", EQUIVALENCES)
@pytest.mark.parametrize(
    "estimator",
    [
        DualLogisticRegression(C=0.1, **EXACT),
        DualLogisticRegression("ovr_log", C=0.1, **EXACT),
        DualLinearSVC(C=0.1, **EXACT),
        DualLinearSVC("hinge", C=0.1, **EXACT),
        DualLinearSVC("crammer_singer", C=0.1, **EXACT),
        DualRidge(alpha=1.0, **EXACT),
        SparseMulticlassClassifier("log", fit_intercept=True, **SWEEPS),
        SparseMulticlassClassifier("multiclass_squared_hinge", fit_intercept=False, **SWEEPS),
    ],
    ids=str,
)
def test_weights_are_repeated_rows(estimator, layout):
    EQUIVALENCES[layout](type(estimator).__name__, estimator)


OF_FIT = {"passes", "tol", "warm_start", "as_published", "kind", "random_state", "executor"}
BLOCK = {parameter.name for parameter in ONE_BLOCK}
# Of each estimator: parameters of its method that it has not, its own, and defaults that are others.
CONSTRUCTORS = {
    MCIDClassifier: (set(), set(), {}),
    StochasticClassifier: ({*BLOCK, "center"}, set(), {"loss": "softmax"}),
    SGDQNClassifier: (BLOCK, set(), {}),
    AdalineClassifier: ({*BLOCK, "loss"}, {"constrained"}, {}),
    CSGDRegressor: ({*BLOCK, "class_weight", "loss"}, set(), {"dtype": "float64"}),
    GeneralizedLeastSquaresClassifier: (set(), set(), {}),
    GeneralizedLeastSquaresRegressor: ({"class_weight"}, set(), {"link": "identity"}),
    CalibratedLeastSquaresClassifier: (set(), set(), {}),
    StagewiseClassifier: (set(), set(), {}),
    SparseMulticlassClassifier: (set(), set(), {}),
}


@pytest.mark.parametrize("estimator", CONSTRUCTORS)
def test_constructors_have_the_parameters_of_the_method(estimator):
    absent, own, defaults = CONSTRUCTORS[estimator]
    given = inspect.signature(estimator).parameters
    method = METHODS[estimator()._method]
    parameters = {p.name: p for p in method.parameters}
    # what standardizes stands before an estimator
    parameters.pop("standardize", None)
    assert set(parameters) - set(given) == {*absent, "init"}
    assert set(given) - OF_FIT - set(parameters) == own
    resolved = method.resolve({name: p.default for name, p in given.items() if name in parameters})
    assert resolved == {name: p.default for name, p in parameters.items()} | defaults


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(400, 30, 4)


WEIGHED = [MCIDClassifier(passes=3, alpha=1e-2), CalibratedLeastSquaresClassifier(rounds=2)]


@pytest.mark.parametrize("made", WEIGHED, ids=["steps", "rounds"])
def test_class_weights_are_of_the_callers_labels(made, rows):
    x, y = rows
    plain = clone(made).fit(x, NAMES[y])
    tilted = clone(made).set_params(class_weight={"bee": 50.0}).fit(x, NAMES[y])
    assert (tilted.predict(x) == "bee").mean() > 1.5 * (plain.predict(x) == "bee").mean()
    weighted = clone(made).fit(x, NAMES[y], sample_weight=np.where(y == 1, 50.0, 1.0))
    np.testing.assert_allclose(tilted.predict_proba(x), weighted.predict_proba(x), atol=1e-6)
    with pytest.raises(ParameterError, match="class_weight: 'wasp' is not a class of y"):
        clone(made).set_params(class_weight={"wasp": 2}).fit(x, NAMES[y])


@pytest.mark.parametrize("made", [*WEIGHED, GeneralizedLeastSquaresRegressor()], ids=lambda made: made._method)
def test_a_dataset_has_its_own_labels(made, tmp_path, rows):
    data = write_dataset(tmp_path / "d", *rows)
    said = raised(ParameterError, clone(made).fit, data, rows[1])
    assert said == "a data set has its own labels and weights; do not pass y or sample_weight"


@pytest.mark.parametrize(
    "made",
    [MCIDClassifier(passes=1, warm_start=True), CalibratedLeastSquaresClassifier(rounds=2)],
    ids=lambda made: made._method,
)
def test_nothing_is_left_in_the_temporary_folder(made, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    clone(made).fit(*rows).fit(*rows)
    assert list(tmp_path.iterdir()) == []
