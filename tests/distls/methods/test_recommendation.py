"""Which method is taken where none is asked for, and that the command line and Python take the same."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import labelled_rows, printed, raised, refuses, stored_rows, write_dataset
from target_helpers import write_targets

from distls.cli import cli
from distls.methods.method_registry import METHODS
from distls.methods.recommendation import recommended
from distls.solvers.lbfgs import are_few
from distls.storage.errors import ParameterError
from distls.training.configuration import FitRequest
from distls.training.fitting import fit
from distls.training.run_folder import Run
from distls.workers.losses.loss_registry import loss_named

narrow = stored_rows(120, 8, 3)


wide = stored_rows(60, 1200, 3)


def run_cli(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_few_rows_take_newton(narrow, wide):
    found = recommended(narrow)
    square = narrow.meta.mean_square_norm / 8
    alphas = ":".join(f"{square * 10.0**-power:.6g}" for power in range(7))
    own = {"start": "zero"}
    assert found.params == {
        "loss": "softmax", "alpha": "path", "alphas": alphas, "folds": 5, "dtype": "float64", **own,
    }  # fmt: skip
    assert (found.method, found.rtol) == ("newton", 1e-6)
    found = recommended(wide)
    losses = ["softmax", "ovr_squared_hinge"]
    assert (found.method, found.params) == (
        "newton", {"loss": losses, "alpha": "path", "alphas": 6, "folds": 3, **own},
    )  # fmt: skip
    assert found.reason == "60 rows fit in memory: the exact optimum, the strength found by 3-fold cross-validation"


def test_newton_is_not_taken_where_folds_are_not_compared_in_memory(wide):
    """What it would fit for each strength and fold, a dual method fits in a tenth of the seconds."""
    for n_classes, method in ((40, "newton"), (52, "sdca")):
        meta = msgspec.structs.replace(
            wide.meta, n_rows=6_500, n_features=24_000, nnz=450_000, classes=tuple(range(n_classes))
        )
        assert recommended(replace(wide, meta=meta)).method == method
        assert are_few(6_500, 24_000, n_classes, loss_named("softmax"), 450_000) == (method == "newton")


def grown(data, **fields):
    """The data set as if it had more rows than are compared in memory."""
    return replace(data, meta=msgspec.structs.replace(data.meta, n_rows=10**7, nnz=10**7, **fields))


def test_few_features_take_least_squares_and_many_the_dual(narrow, wide):
    narrow, wide = grown(narrow), grown(wide)
    assert recommended(narrow).method == "gls"
    square = narrow.meta.mean_square_norm / 8
    alphas = ":".join(f"{square * 10.0**-power:.6g}" for power in range(7))
    assert recommended(narrow).params == {"alpha": "path", "alphas": alphas, "folds": 5}
    found = recommended(wide)
    assert (found.method, found.params["loss"]) == ("sdca", ["softmax", "ovr_squared_hinge"])
    assert "1,200 features" in found.reason
    # what is given stays, and other data that judge take the place of folds
    assert recommended(wide, {"alpha": 1e-3}).params.keys() == {
        "loss", "alpha", "intercept_scaling", "lanes",
    }  # fmt: skip
    assert not {"folds", "prune"} & recommended(wide, judged=True).params.keys()
    assert (found.params["prune"], found.params["lanes"]) == (True, 1)  # small data: lanes would cost passes


def test_much_work_takes_the_method_that_needs_no_tuning(wide):
    many = msgspec.structs.replace(wide.meta, n_features=4_000_000)
    found = recommended(replace(wide, meta=many))
    assert (found.method, found.params["loss"], found.params["folds"]) == ("sdca", "ovr_squared_hinge", 2)
    square = wide.meta.mean_square_norm
    assert found.params["alphas"] == f"{1e-3 * square:.6g}:{1e-4 * square:.6g}:{1e-5 * square:.6g}"
    more = msgspec.structs.replace(wide.meta, n_features=400_000_000)
    found = recommended(replace(wide, meta=more))
    assert (found.method, found.params) == ("sgd", {})
    assert found.reason == "60 rows with 3 classes are much work: one setting that rarely needs tuning"
    long = msgspec.structs.replace(wide.meta, nnz=400_000_000)
    assert recommended(replace(wide, meta=long)).method == "sgd"


def test_very_many_classes_take_one_against_the_rest(wide):
    classes = tuple(range(2000))
    meta = msgspec.structs.replace(
        wide.meta, n_features=20_000, n_rows=10**4, nnz=10**6, classes=classes, mean_square_norm=4.0
    )
    found = recommended(replace(wide, meta=meta), {"class_tol": 0.2})
    assert (found.method, found.params) == (
        "ovr-sdca", {"alpha": 4e-5, "prune": 5e-3, "class_tol": 0.2},
    )  # fmt: skip
    assert recommended(replace(wide, meta=meta), {"prune": 0.1}, judged=True).params["prune"] == 0.1
    # they cannot be stopped half-way, and the duals of all rows are in memory
    assert recommended(replace(wide, meta=meta), limited=True).method == "sgd"
    long = msgspec.structs.replace(meta, n_rows=10**7)
    assert recommended(replace(wide, meta=long)).method == "sgd"
    # few classes have too few blocks for all threads
    few = msgspec.structs.replace(meta, n_features=400_000, classes=classes[:50])
    assert recommended(replace(wide, meta=few)).method == "sdca"


def test_a_limit_that_is_asked_for_takes_a_method_that_can_be_stopped(tmp_path):
    x = sp.random(300, 100_001, density=1e-4, format="csr", random_state=0, dtype=np.float32)
    data = write_dataset(tmp_path / "d", x, np.arange(300) % 100)
    assert FitRequest.of("auto", data).method.name == "ovr-sdca"
    for limit in ({"passes": 2}, {"max_seconds": 9.0}, {"rtol": 0.1}):
        assert FitRequest.of("auto", data, **limit).method.name == "sdca"


@pytest.mark.slow_cases("multilabel")
@pytest.mark.parametrize(("kind", "link"), [("continuous", "identity"), ("multilabel", "logit")])
def test_other_targets_have_links_of_their_own(tmp_path, kind, link):
    x, y = labelled_rows(80, 6, 2)
    targets = y[:, None].astype(np.float64) if kind == "continuous" else np.eye(2)[y]
    data = write_targets(tmp_path / "d", x, targets, kind)
    assert recommended(data).params["link"] == link
    result = fit("auto", data, tmp_path / "run")
    assert result.model.params["link"] == link


def test_a_fit_without_a_method_is_the_recommended_one(narrow, tmp_path):
    ended = run_cli("fit", narrow.path, tmp_path / "run", "--executor", "serial", "--passes", 5)
    assert ended.exit_code == 0, ended.output
    said = "note: newton: 120 rows fit in memory: the exact optimum, the strength found by 5-fold cross-validation"
    assert said in ended.output
    config = Run.open(tmp_path / "run").config
    assert (config.method, config.reason) == ("newton", recommended(narrow).reason)
    same = fit("auto", narrow, tmp_path / "same", passes=5)
    asked = fit("newton", narrow, passes=5, params=recommended(narrow).params)
    assert same.model.sha256 == asked.model.sha256
    assert Run.open(tmp_path / "same").config.reason == config.reason
    assert same.model.sha256 in run_cli("info", tmp_path / "run", "--json").output


@pytest.mark.slow
def test_losses_of_wide_rows_are_compared_by_folds(wide, tmp_path):
    result = fit("auto", wide, tmp_path / "run", params={"alphas": "1e-2:1e-4", "folds": 2})
    details = result.record["details"]
    assert len(details["path"]) == 4
    # of 60 rows, the first loss stays where another is better by no more than chance
    first = [line for line in details["path"] if line["loss"] == "softmax"]
    best = min(first, key=lambda line: line["cv_error"])
    assert best["cv_error"] - min(line["cv_error"] for line in details["path"]) < 0.1
    assert (result.selected["loss"], result.selected["alpha"]) == ("softmax", best["alpha"])


def test_a_plan_names_the_method_and_counts_all_fits(wide):
    ended = run_cli("plan", wide.path, "--no-probe")
    assert ended.exit_code == 0, ended.output
    assert ended.output.startswith("method             newton: 60 rows fit in memory: the exact optimum, ")
    assert "for each of" not in ended.output
    # a penalised intercept is not for the search in memory
    ended = run_cli("plan", wide.path, "--no-probe", "-p", "intercept_scaling=1")
    assert "for each of 37 fits" in ended.output


@pytest.mark.fast_cases("arguments0", "arguments4")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "sgd", "data"), "Missing argument 'RUN'"),
        (("fit", "data"), "Missing argument 'RUN'"),
        (("fit",), "Missing argument 'DATASET'"),
        (("plan", "sgd"), "Missing argument 'DATASET'"),
        (("fit", "sgd", "data", "run", "more"), "unexpected extra arguments (more)"),
    ],
)
def test_what_is_missing_is_named(arguments, message):
    ended = run_cli(*arguments)
    assert ended.exit_code == 2
    assert message in ended.output


def test_a_parameter_of_another_method_is_refused(narrow):
    refuses(ParameterError, "newton has no parameter 'rounds'", fit, "auto", narrow, params={"rounds": 4})


# -- short names of losses -------------------------------------------------------------------------------


HINGES = [name for name, method in METHODS.items() if "hinge" in method.aliases]
BOTH = ("sgd", "asgd", "sdca")  # methods that have both hinges


@pytest.mark.parametrize("name", HINGES)
def test_a_method_tells_which_hinge_it_means(name):
    full = METHODS[name].aliases["hinge"]
    assert full in ("crammer_singer", "ovr_hinge")
    assert f"hinge = {full}" in printed("methods", name)
    assert METHODS[name].resolve({"loss": "hinge"})["loss"] == full
    assert METHODS[name].resolve({"loss": full})["loss"] == full


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.aliases])
def test_every_short_name_that_is_told_is_accepted(name):
    for short, full in METHODS[name].aliases.items():
        assert METHODS[name].resolve({"loss": short})["loss"] == full


@pytest.mark.parametrize("name", BOTH)
def test_both_hinges_have_names_where_both_exist(name):
    shown = " ".join(printed("methods", name).split())
    for full in ("crammer_singer", "ovr_hinge"):
        assert METHODS[name].resolve({"loss": full})["loss"] == full
    assert "crammer_singer (hinge)" in shown


# -- parameters of a method ------------------------------------------------------------------------------


def test_every_method_has_an_intercept_by_default():
    for name, method in METHODS.items():
        defaults = {p.name: p.default for p in method.parameters}
        assert defaults["fit_intercept"] is True, name
        assert not {"fit_intercept"} & {*method.continuous, *method.multilabel}, name


def test_a_short_value_is_shown_whole():
    refuses(ParameterError, r"^sgd: alpha=few: ", METHODS["sgd"].resolve, {"alpha": "few"})


def test_a_long_value_is_cut():
    deep = "[" * 100_000
    message = raised(ParameterError, METHODS["sgd"].resolve, {"class_weight": deep})
    assert message.startswith(f"sgd: class_weight={'[' * 80}...: ")
    assert len(message) < 300
