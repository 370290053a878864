"""Cross-validation of a path: fits without a fold, their errors on it, and the fit that is published."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from contract import Rounds
from helpers import labelled_rows, refuses, write_dataset
from target_helpers import write_targets

from distls.cli.report import result_lines
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import method_named
from distls.planning.fit_plan import plan_fit
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import load_model
from distls.testing.solvers import StopAfter, interrupted
from distls.training.configuration import FitRequest, Setting
from distls.training.fitting import fit, resume, train
from distls.training.selection import Race, fold_views
from distls.training.setting_fit import FitOptions

PARTITION, FOLDS = 30, 3
ALPHAS = (1.0, 1e-1, 1e-2)
PATH = {"alpha": "path", "alphas": "1:0.1:0.01", "folds": FOLDS, "dtype": "float64"}


@pytest.fixture(scope="module")
def rows():
    x, y = labelled_rows(100, 12, 3)
    return (sp.csr_matrix(x.astype(np.float64)), y, np.random.default_rng(0).integers(1, 4, 100).astype(np.float32))


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    x, y, s = rows
    path = tmp_path_factory.mktemp("d") / "d"
    return write_dataset(path, x, y, partition_rows=PARTITION, sample_weight=s, shard_size=800)


def folds_of(n_rows):
    """The fold of each row: equal slices of each partition."""
    found = []
    for first in range(0, n_rows, PARTITION):
        n = min(PARTITION, n_rows - first)
        found += [next(f for f in range(FOLDS) if i < n * (f + 1) // FOLDS) for i in range(n)]
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "loss"),
    [
        *(("sdca", loss) for loss in ("softmax", "hinge", "ovr_squared_hinge")),
        *(("bcd", loss) for loss in ("softmax", "multiclass_squared_hinge")),
        ("fista", "softmax"),
    ],
)
def test_a_fit_without_a_fold_is_one_to_the_other_rows(data, rows, tmp_path, method, loss):
    x, y, s = rows
    fold = folds_of(len(y))
    params = {
        "alpha": 0.1 if method == "sdca" else 0.02, "dtype": "float64", "fit_intercept": True, "loss": loss,
        "class_weight": "balanced",
    }  # fmt: skip
    rtol = 1e-4 if loss == "hinge" else 1e-9
    for number, view in enumerate(fold_views(data, SerialExecutor(), FOLDS)):
        kept = fold != number
        own = write_dataset(
            tmp_path / f"{number}", x[kept], y[kept], partition_rows=PARTITION, sample_weight=s[kept],
            shard_size=800,
        )  # fmt: skip
        theirs = fit(method, own, params=params, rtol=rtol, passes=2000).record
        named = method_named(method)
        setting = Setting.of(named, params, view.rest, 0)
        request = FitRequest(
            method=named, data=view.rest, settings=[setting], passes=2000, rtol=rtol, selected_on=view.alone
        )
        mine = train(request, None, FitOptions(SerialExecutor(), None, (), 30.0))
        assert mine.record["objective"] == pytest.approx(theirs["objective"], rel=2 * rtol)
        wrong = (x[~kept] @ mine.model.weights + mine.model.intercept).argmax(axis=1) != y[~kept]
        assert mine.record["select_error"] == np.mean(wrong)


def status_of(run):
    return json.loads((run / "status.json").read_text())


def test_the_alpha_of_least_error_is_fitted_to_all_rows(data, rows, tmp_path):
    x, y, _ = rows
    fold, run = folds_of(len(y)), tmp_path / "run"
    result = fit("sdca", data, run, params=PATH, rtol=1e-6, passes=500)
    wrong = np.zeros((len(ALPHAS), len(y)), bool)
    for number in range(FOLDS):
        for place in range(len(ALPHAS)):
            model = load_model(run / "children" / f"{number * len(ALPHAS) + place:03d}")
            assert model.params["alpha"] == ALPHAS[place]
            scores = x @ model.weights + model.intercept
            wrong[place] |= (fold == number) & (scores.argmax(axis=1) != y)
    errors = [line["cv_error"] for line in status_of(run)["details"]["path"]]
    np.testing.assert_allclose(errors, wrong.mean(axis=1))
    best = ALPHAS[int(np.argmin(errors))]
    assert result.selected["alpha"] == result.model.params["alpha"] == best
    alone = fit("sdca", data, params={"alpha": best, "dtype": "float64"}, rtol=1e-6)
    assert result.record["objective"] == pytest.approx(alone.record["objective"], rel=2e-6)
    assert result.record["certificate"]["relative"] <= 1e-6
    assert f"alpha={best:g} has the lowest mean error of 3 in 3-fold" in status_of(run)["notes"][-1]
    assert plan_fit("sdca", data.path, PATH, probe=False).fits == 10
    assert result_lines(result)[1].endswith(", by cross-validation")


@pytest.mark.slow
def test_a_point_starts_from_the_one_before(data, tmp_path):
    starts, records = [], []
    watch = Rounds(lambda event: records.append((len(starts), event.record)))
    watch.on_start = lambda start: starts.append(start.what)
    fit("sdca", data, tmp_path / "run", params={**PATH, "fit_intercept": False}, callbacks=[watch])
    assert starts[0] == "without fold 1, alpha=1 (1 of 10)"
    assert starts[3] == "without fold 2, alpha=1 (4 of 10)"
    assert starts[-1].endswith("all rows (10 of 10)")
    children = status_of(tmp_path / "run")["children"]
    folder = tmp_path / "run" / "children"
    inits = [child["params"]["init"] for child in children]
    assert inits[:4] == [None, str(folder / "000"), str(folder / "001"), None]
    # the duals of a fold's fit lack only those of the fold
    cold = fit("sdca", data, params={**children[-1]["params"], "init": None})
    assert children[-1]["passes"] <= cold.passes
    assert all(child["params"]["folds"] is None for child in children)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multilabel", "continuous"])
def test_other_targets(rows, tmp_path, kind):
    x, y, _ = rows
    targets = np.eye(3, dtype=int)[y] if kind == "multilabel" else x[:, :2].toarray().astype(float)
    data = write_targets(tmp_path / "d", x, targets, kind, partition_rows=PARTITION)
    fit("sdca", data, tmp_path / "run", params=PATH)
    errors = [line["cv_error"] for line in status_of(tmp_path / "run")["details"]["path"]]
    if kind == "continuous":
        assert errors == sorted(errors, reverse=True)
    assert load_model(tmp_path / "run").params["alpha"] == ALPHAS[int(np.argmin(errors))]


@pytest.mark.slow
def test_paths_of_several_losses_are_judged_together(data, tmp_path):
    losses = ["softmax", "ovr_squared_hinge"]
    result = fit("sdca", data, tmp_path / "run", params={**PATH, "loss": losses})
    path = status_of(tmp_path / "run")["details"]["path"]
    assert [(line["loss"], line["alpha"]) for line in path] == [(loss, a) for loss in losses for a in ALPHAS]
    errors = [line["cv_error"] for line in path]
    best = path[int(np.argmin(errors))]
    assert (result.selected["loss"], result.selected["alpha"]) == (best["loss"], best["alpha"])
    assert status_of(tmp_path / "run")["notes"][-1].startswith(f"loss={best['loss']} alpha={best['alpha']:g} has the")
    inits = [child["params"]["init"] for child in status_of(tmp_path / "run")["children"]]
    assert [each is None for each in inits[:7]] == [True, False, False] * 2 + [True]
    for loss in losses:
        fit("sdca", data, tmp_path / loss, params={**PATH, "loss": loss})
        alone = [line["cv_error"] for line in status_of(tmp_path / loss)["details"]["path"]]
        assert alone == [line["cv_error"] for line in path if line["loss"] == loss]
    with pytest.raises(ParameterError, match="folds: of several values only one can choose"):
        fit("sdca", data, params={**PATH, "folds": [2, 3]})


PRUNED = {**PATH, "alphas": "30:1:0.1:0.01", "loss": ["softmax", "ovr_squared_hinge"], "prune": True}


@pytest.mark.slow
def test_pruned_fits_are_fewer_and_start_from_the_first_fold(data, tmp_path):
    result = fit("sdca", data, tmp_path / "run", params=PRUNED)
    status, folder = status_of(tmp_path / "run"), tmp_path / "run" / "children"
    children, path = status["children"], status["details"]["path"]
    assert len(children) < FOLDS * 8 + 1
    assert all("objective" not in child for child in children[:-1])  # trials are not evaluated
    assert children[-1]["objective"] == result.record["objective"]
    assert result.record["certificate"]["relative"] <= 1e-3
    chosen = {"loss": result.selected["loss"], "alpha": result.selected["alpha"]}
    (own,) = [line for line in path if (line["loss"], line["alpha"]) == (chosen["loss"], chosen["alpha"])]
    assert f"{own['cv_error']:.6g}" in status["notes"][-1]
    of_point = [
        child["params"]["init"]
        for child in children
        if all(child["params"][name] == value for name, value in chosen.items())
    ]
    first = next(
        number
        for number, child in enumerate(children)
        if all(child["params"][name] == value for name, value in chosen.items())
    )
    assert len(of_point) > 1
    assert set(of_point[1:]) == {str(folder / f"{first:03d}")}
    with pytest.raises(ParameterError, match="prune: the rows of folds tell what is worse; give folds"):
        fit("sdca", data, params={**PRUNED, "folds": None, "loss": "log"})
    refuses(ParameterError, "prune=True: of alpha=path only; leave it out", fit, "sdca", data, params={"prune": True})


@pytest.mark.slow
@pytest.mark.parametrize("params", [PATH, PRUNED], ids=["all", "pruned"])
def test_an_interrupted_cross_validation_is_resumed(data, tmp_path, params):
    whole = fit("sdca", data, tmp_path / "whole", params=params)
    with interrupted():
        fit("sdca", data, tmp_path / "run", params=params, callbacks=[StopAfter(7)])
    folder = tmp_path / "run" / "children"
    with pytest.raises(MismatchError, match="without one fold; resume the whole run"):
        resume(max(folder.iterdir()))
    assert resume(tmp_path / "run").model.sha256 == whole.model.sha256


@pytest.mark.fast_cases("params0", "params4")
@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ({"alpha": 0.1, "alphas": None}, {}, "folds=3: of alpha=path only; leave it out"),
        ({"folds": 40}, {}, "folds=40: a fold has no rows"),
        (
            {"penalty": "elasticnet", "fit_intercept": True, "alphas": 4},
            {},
            "alpha=path: sdca with an intercept does not find the first alpha; list them",
        ),
        ({"folds": 1}, {}, "folds=1: expected a whole number of at least 2"),
        ({}, {"select": True}, "folds: rows of the training data choose the alpha; drop select"),
    ],
)
def test_refusals(data, params, options, message):
    given = {"select": data} if options else {}
    refuses(ParameterError, message, fit, "sdca", data, params={**PATH, **params}, **given)


# -- which points of paths are left out, and when another fold changes nothing ---------------------------


PATHS = [[{"alpha": a} for a in (1.0, 0.1, 0.01)], [{"alpha": a, "loss": "other"} for a in (1.0, 0.1, 0.01)]]


def judged(errors, rows=1000, **options):
    race = Race(PATHS, **{"counts": True, "prune": True, **options})
    for place, error in enumerate(errors):
        if place in race.left:
            race.judge(place, error, rows)
    return race


def test_what_is_clearly_worse_is_left_out_and_what_may_be_chance_is_not():
    race = judged([0.30, 0.11, 0.10, 0.30, 0.20, 0.09])
    assert race.fold_ended()
    # of 1000: 100 wrong is less than sqrt(190) above 90, 110 is more than sqrt(200) above it
    assert (race.left, race.best) == ([2, 5], 5)


def test_a_path_ends_where_its_error_rises():
    race = judged([0.10, 0.20, 0.01, 0.30, 0.10, 0.09])
    assert [place for place, _ in race.errors()] == [0, 1, 3, 4, 5]
    assert race.best == 5  # the third, which was never fitted, is not chosen


def test_without_prune_every_point_stays():
    race = judged([0.10, 0.90, 0.20, 0.90, 0.9, None], prune=False)
    assert race.fold_ended()
    assert race.left == list(range(6))
    assert race.errors()[5] == (5, float("inf"))


@pytest.mark.parametrize(("rows", "another"), [(1000, True), (100_000, False)])
def test_many_rows_need_no_other_fold(rows, another):
    race = judged([0.101, 0.1, 0.1, 0.2, 0.2, 0.2], rows)
    assert race.fold_ended() is another
    assert race.best == 1


def test_one_that_is_left_ends_the_race():
    race = judged([0.5, 0.01, 0.3, 0.5, 0.3, 0.2])
    assert not race.fold_ended()
    assert race.left == [1]


def test_errors_of_numbers_are_no_counts():
    race = judged([250.0, 100.0, 101.0, 300.0, 105.0, 90.0], 10_000, counts=False)
    race.fold_ended()
    assert race.left == [5]
    few = judged([250.0, 100.0, 101.0, 300.0, 105.0, 90.0], 100, counts=False)
    few.fold_ended()
    assert few.left == [1, 2, 4, 5]


def test_a_fit_that_diverged_is_not_chosen():
    race = judged([None, 0.2, None, 0.3, 0.3, 0.3])
    race.fold_ended()
    assert race.best == 1


def test_the_first_path_is_left_only_for_one_that_is_better_by_more_than_chance():
    for wrong, best in ((95, 0), (80, 1)):
        race = Race([[{"alpha": 1.0}], [{"alpha": 1.0}]], counts=True, prune=False)
        for place, count in enumerate((100, wrong)):
            race.judge(place, count / 1000, 1000)
        race.keep_first()
        assert race.best == best
