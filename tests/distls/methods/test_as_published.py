"""Every method of a paper as its box prints it, by one option: three passes agree with plain NumPy to twelve digits.

oLBFGS to six, as its first pair is a difference of nearly equal slopes; `cls` to nine.
"""

import json
import math

import numpy as np
import pytest
from helpers import distls, labelled_rows, refuses, write_dataset
from paper_boxes import ALPHA, BOXES, DIFFERENCE, DIGITS, DRAWN, PASSES, READS, SECOND, A, D, N, drawn, of_gls

from distls import GeneralizedLeastSquaresClassifier, MCIDClassifier, evaluate, fit, resume
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import METHODS
from distls.reporting.describe import describe
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.calibration import replay
from distls.workers.stochastic.lane_task import draws_of
from distls.workers.stochastic.step_choice import ProblemStats
from reference import constrained, mcid, printed

K = 3
EYE, ZERO = np.eye(K), np.zeros((D, K))


def written(form, path, *, two=False):
    """Rows in four partitions, with column shards; and the same as arrays."""
    x, y = labelled_rows(N, D, K, seed=3)
    y = (y == 2).astype(np.int32) if two else y
    rows = np.asarray(x.todense(), np.float64)
    given = {"sparse": x.astype(np.float64), "single": x, "dense": rows}[form]
    return write_dataset(path, given, y, partition_rows=25, shard_size=2000), rows, y


@pytest.fixture(scope="module", params=["sparse", "dense"])
def data(request, tmp_path_factory):
    return written(request.param, tmp_path_factory.mktemp(request.param) / "d")


@pytest.fixture(scope="module", params=["sparse", "dense"])
def two_classes(request, tmp_path_factory):
    return written(request.param, tmp_path_factory.mktemp(request.param) / "two", two=True)


@pytest.mark.fast_cases("sparse-mcid-log$", "sparse-stagewise-logistic$")
@pytest.mark.parametrize("box", BOXES)
def test_three_passes_are_those_of_the_box(data, box):
    dataset, x, y = data
    method, given, transcribed = BOXES[box]
    limit = None if box == "gls-identity" else READS.get(method, PASSES)
    params = {**given, "dtype": "float64"}
    model = fit(method, dataset, params=params, passes=limit, as_published=True, eval_every=0).model
    expected = transcribed(x, y)
    least = DIGITS.get(box, 1e-12) * np.abs(expected).max()
    np.testing.assert_allclose(model.weights, expected, rtol=0, atol=least)


@pytest.mark.fast_cases("sparse-gls-logit$")
@pytest.mark.parametrize("box", BOXES)
def test_one_column_of_two_classes_moves_as_the_boxes_two(two_classes, box):
    """With the strengths and steps that the box leaves to the user translated as docs/papers.md says, and no other."""
    dataset, x, y = two_classes
    method, given, transcribed = BOXES[box]
    factors = {**DIFFERENCE, **SECOND}[box]
    stated = {**METHODS[method].published, **given}
    params = {**given, **{name: by * stated[name] for name, by in factors.items()}, "dtype": "float64"}
    limit = None if box == "gls-identity" else READS.get(method, PASSES)
    model = fit(method, dataset, params=params, passes=limit, as_published=True, eval_every=0).model
    w = transcribed(x, y)
    expected = w[:, 1:] - w[:, :1] if box in DIFFERENCE else w[:, -1:]
    assert expected.any()
    least = DIGITS.get(box, 1e-12) * np.abs(expected).max()
    np.testing.assert_allclose(model.weights, expected, rtol=0, atol=least)


@pytest.mark.fast_cases("sparse-all")
@pytest.mark.parametrize("average", ["none", "all"])
def test_the_ball_of_pegasos_is_one_for_all_classes_of_mcid(data, average):
    """Also in batches, with a mean of the iterates; it is left at every other step, and alone changes the end."""
    dataset, x, y = data
    given = {**A, "loss": "hinge", "batch_size": 2, "ball": True, "average": average, "dtype": "float64"}
    model = fit("mcid", dataset, params=given, as_published=True, passes=PASSES, eval_every=0).model
    started = {"w0": ZERO, "tail_from": 0.0}
    free, held = (mcid.train(x, y, "crammer_singer", ALPHA, drawn(2), **started, ball=ball) for ball in (False, True))
    expected = held.w if average == "none" else held.w_sum / len(drawn(2))
    np.testing.assert_allclose(model.weights, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert np.abs(free.w_sum - held.w_sum).max() > 1e-3 * np.abs(held.w_sum).max()
    refuses(ParameterError, "ball", fit, "mcid", dataset, params={**A, "loss": "log", "ball": True})


@pytest.mark.fast_cases("sparse")
def test_calibrated_least_squares_starts_from_w_0(data, tmp_path):
    """Algorithm 2; with W_0, whose residuals are fitted first, so that it leaves no trace without a ridge."""
    dataset, x, y = data
    start = fit("gls", dataset, tmp_path / "w0", params={"alpha": 0.1, "fit_intercept": False}, passes=5, eval_every=0)
    given = {"dtype": "float64", "rounds": PASSES, "init": str(start.run)}
    model = fit("cls", dataset, params=given, as_published=True).model
    recipe, weights = model.recipe["calibration"], model.arrays["calibration"]
    found = replay(Basis.of_recipe(recipe), recipe["onto"], weights, x @ model.weights)
    np.testing.assert_allclose(found, printed.calibrated_from(x, EYE[y], start.model.weights, PASSES), atol=1e-9)


@pytest.mark.fast_cases("single")
@pytest.mark.parametrize("form", ["single", "sparse", "dense"])
def test_the_maximum_of_drawn_blocks_and_the_sum_of_all_are_compared_with_tau(form, tmp_path):
    """Equation 10 as printed, with the violation of Equation 9: |G_j| - lambda also where W_j is not zero."""
    dataset, x, y = written(form, tmp_path / "d")
    result = fit("bcd", dataset, tmp_path / "r", params=A, as_published=True, passes=PASSES)
    lines = (result.run / "events.jsonl").read_text().splitlines()
    details = [event["details"] for event in map(json.loads, lines) if event.get("details")]
    ratios = [each["violation_ratio"] for each in details]
    expected = printed.descent(x, y, K, ALPHA, lambda _: range(D), "line-search", PASSES)[1]
    np.testing.assert_allclose(ratios, expected, rtol=1e-9)


@pytest.mark.slow_cases("dense|sparse-(40|7|130)-")
@pytest.mark.parametrize(
    ("steps", "r", "shuffle"), [(80, 3, "draws"), (40, 2, False), (7, 1, "draws"), (130, 1, False)]
)
def test_t_steps_of_mcid_end_within_a_pass(data, steps, r, shuffle):
    """T of Algorithm 1: a limit of its own, also of lanes and with rows as stored, whose last batches are short."""
    dataset, x, y = data
    given = {**A, "loss": "hinge", "batch_size": r, "steps": steps, "shuffle": shuffle, "dtype": "float64"}
    result = fit("mcid", dataset, params=given, as_published=True, eval_every=0)
    stored = [part[i : i + r] for part in np.split(np.arange(N), [25, 50, 75]) for i in range(0, len(part), r)]
    batches = drawn(r) if shuffle == "draws" else stored * PASSES
    expected = mcid.train(x, y, "crammer_singer", ALPHA, batches[:steps], w0=ZERO).w
    np.testing.assert_allclose(result.model.weights, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert result.status == Status.MAX_PASSES
    assert result.passes == math.ceil(steps * r / N)
    # lanes count their own: the fit ends when that of the fewest rows, 40, is there
    several = fit("mcid", dataset, params={**given, "lanes": 2}, eval_every=0)
    assert several.passes == math.ceil(steps / (40 // r))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "schedule", "eta0"), [("adaline", "constant", 0.01), ("c-adaline", "sqrt", 0.1)])
def test_two_classes_have_targets_minus_one_and_one_and_the_sign_decides(data, tmp_path, method, schedule, eta0):
    """Section 5.2 of the constrained SGD paper; more classes have the indicators of its Algorithm 2."""
    _, x, y = data
    two = (y == 2).astype(np.int32)
    dataset = write_dataset(tmp_path / "two", x, two, partition_rows=25)
    given = {"eta0": eta0, "dtype": "float64"}
    model = fit(method, dataset, params=given, as_published=True, passes=PASSES, eval_every=0).model

    def step(t):
        return constrained.STEPS[schedule](eta0, N / 2, t)

    start = {"w0": np.zeros((D, 1)), "b0": np.zeros(1), "s": np.ones(N * PASSES)}
    signs, project = (2.0 * two - 1.0)[:, None], method == "c-adaline"
    found = constrained.csgd(x[DRAWN], signs[DRAWN], step, **start, project=project)
    np.testing.assert_allclose(model.weights, found.w, rtol=0, atol=1e-12 * np.abs(found.w).max())
    scores = (x @ model.weights + model.intercept)[:, 0]
    assert evaluate(model, dataset).error == np.mean((scores > 0.0) != two)


@pytest.mark.fast_cases("single")
@pytest.mark.parametrize("form", ["single", "sparse", "dense"])
def test_a_refit_after_the_box_keeps_to_the_selected_columns(form, tmp_path):
    dataset, *_ = written(form, tmp_path / "d")
    given = {"alpha": 0.12, "step": "constant", "tau": 0.05}
    sparse = fit("bcd", dataset, params=given, as_published=True, passes=300).model.weights.any(axis=1)
    refitted = fit("bcd", dataset, params={**given, "debias": 1e-3}, as_published=True, passes=400).model.weights
    assert 0 < sparse.sum() < D
    np.testing.assert_array_equal(refitted.any(axis=1), sparse)


def test_draws_are_uniform_and_batches_have_no_row_twice():
    generator = np.random.default_rng(0)
    counts = np.bincount(np.concatenate([draws_of(generator, 50, 1) for _ in range(400)]), minlength=50)
    assert np.abs(counts - 400).max() < 100  # five standard deviations
    assert all(len(set(batch)) == 7 for batch in draws_of(generator, 50, 7).reshape(-1, 7))
    assert len(draws_of(generator, 50, 7)) == 49


@pytest.mark.fast_cases("sparse")
def test_what_is_given_beside_wins_and_is_recorded(data, tmp_path):
    dataset, *_ = data
    run = tmp_path / "run"
    params = {"alpha": ALPHA, "average": "tail", "lanes": "1", "dtype": "float64"}
    fit("mcid", dataset, run, params=params, as_published=True, passes=1, eval_every=0)
    config = json.loads((run / "config.json").read_text())
    assert (config["as_published"], config["departures"]) == (True, "average=tail")
    described = describe(run)
    assert (described["as_published"], described["departures"]) == (True, "average=tail")
    assert config["grid"][0] | {"shuffle": "draws", "average": "tail", "t0": 0.0} == config["grid"][0]
    # a longer run draws as one that was never interrupted
    twice = fit("mcid", dataset, params=params, as_published=True, passes=2, eval_every=0).model
    assert resume(run, passes=2).model.weights.tobytes() == twice.weights.tobytes()


@pytest.mark.fast_cases("sparse-None")
@pytest.mark.parametrize("method", [None, "sdca"])
def test_a_method_without_a_box_is_refused(data, tmp_path, method):
    dataset, *_ = data
    names = [method] if method else []
    found = distls("fit", *names, dataset.path, tmp_path / "r", "--as-published")
    assert found.code == 2
    assert "as_published" in found.err


def test_every_box_can_be_found_and_parsed():
    for name in {method for method, *_ in BOXES.values()} | {"cls", "rls"}:
        method = METHODS[name]
        assert method.resolve(method.published) | method.published == method.resolve(method.published)
        assert "--as-published" in distls("methods", name).out


@pytest.mark.fast_cases("sparse")
def test_rows_that_are_drawn_have_to_fit_the_memory(data):
    dataset, *_ = data
    large = dataset.decoded_bytes.sum() / MIB  # of a few KiB: the limit is far above the fixed cost
    assert large < 1
    double = {**A, "dtype": "float64"}
    plain = fit("mcid", dataset, params=double, passes=1, eval_every=0, memory=MemoryBudget(workers=1))
    assert plain.model is not None
    with pytest.raises(MemoryPlanError):
        fit(
            "mcid", dataset, params={**double, "shuffle": "draws"}, passes=1,
            memory=MemoryBudget(limit=MIB, workers=1),
        )  # fmt: skip


@pytest.mark.fast_cases("sparse")
def test_an_estimator_has_the_box_too(data):
    _, x, y = data
    model = GeneralizedLeastSquaresClassifier(as_published=True, passes=PASSES).fit(x, y)
    np.testing.assert_allclose(model.coef_.T, of_gls("softmax")(x, y), atol=1e-12)
    kept = GeneralizedLeastSquaresClassifier(as_published=True, alpha=0.5, passes=PASSES).fit(x, y)
    assert np.abs(kept.coef_).max() < 0.5 * np.abs(model.coef_).max()  # the ridge that was given


def test_t0_is_judged_on_the_rows_it_was_tried_on():
    stats = ProblemStats("ovr_squared_hinge", "class", 0.02, False, 3, 19, 1000, 19_000, 4.0)
    given = {"diagonal": "paper", "t0": None, "skip": None}
    choices = [METHODS["sgdqn"].load_steps()(stats, given | own, 1, warm=False) for own in ({}, {"trial": "same-rows"})]
    assert [choice.same_rows for choice in choices] == [False, True]


def test_eta_0_of_fobos_is_one_of_seven_decades():
    stats = ProblemStats("multiclass_squared_hinge", "class", 0.02, False, 3, 19, 1000, 19_000, 4.0)
    fobos = METHODS["fobos"]
    choice = fobos.load_steps()(stats, {"eta0": None, **fobos.published}, 1, warm=False)
    sizes = [each.setting["eta0"] for each in choice.candidates]
    np.testing.assert_allclose(sizes, [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0], rtol=1e-15)


@pytest.mark.fast_cases("sparse")
def test_unknown_combinations_name_what_to_drop(data):
    dataset, *_ = data
    refuses(ParameterError, "rules=paper", fit, "bcd", dataset, params={"penalty": "l1", "rules": "paper"})
    refuses(ParameterError, "as_published", fit, "sgd", dataset, as_published=True)


@pytest.mark.slow
def test_losses_of_fits_side_by_side_are_those_of_their_steps(tmp_path):
    data = write_dataset(tmp_path / "d", *labelled_rows(300, 8, 3))
    given, alphas = {"steps": 40, "lanes": 1, "loss": "hinge"}, (0.3, 0.1, 0.03)
    fit("mcid", data, tmp_path / "path", params={**given, "alpha": "path", "alphas": "0.3:0.1:0.03"})
    for alpha in alphas:
        fit("mcid", data, tmp_path / "alone" / str(alpha), params={**given, "alpha": alpha})
    beside, alone = (
        sorted(
            json.loads(line)["running_loss"]
            for path in (tmp_path / name).rglob("events.jsonl")
            for line in path.read_text().splitlines()
            if "running_loss" in line
        )
        for name in ("path", "alone")
    )
    assert beside == alone
    assert len(alone) == len(alphas)


def test_an_estimators_limit_of_steps_is_no_limit_of_passes():
    x, y = labelled_rows(60, 5, 3)
    assert MCIDClassifier(steps=1500).fit(x, y).n_iter_ == 25
