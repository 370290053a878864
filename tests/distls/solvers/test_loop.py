"""The loop alone, on a solver that does nothing: limits, evaluation, early stop, divergence, interruption."""

import json
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distls.execution.batch
from distls.clock import PARTS, loaded, parts_of
from distls.execution.batch import run_alone
from distls.execution.serial import SerialExecutor
from distls.request import Request
from distls.solvers.loop import Progress, Standing, _add_round, solve
from distls.solvers.solver import Fitted, RoundReport, Solver, State
from distls.solvers.status import Status
from distls.training.callbacks import History
from distls.workers.prediction.predictor import LinearPredictor


@dataclass
class Counting(State):
    """The number of rounds, as an array."""

    value: np.ndarray = field(default_factory=lambda: np.zeros((1, 1)))


class Fake:
    """Does rounds of a given share of a pass; its weights are the number of rounds."""

    state_type = Counting
    round = Solver.round

    def __init__(self, share=1.0, at_round=lambda round: 1.0):
        self.share, self.at_round = share, at_round
        self.bad_state_at = self.ended_at = -1

    def step(self, state, executor):
        done = state.round + 1
        report = RoundReport(
            running_loss=self.at_round(done), running_error=0.5, n_rows=10, bytes_read=7, cached_bytes=0,
            kernel_seconds=0.0, wait_seconds=0.0, averaging={"penalty": math.nan}, worker_peaks={"a": 1},
        )  # fmt: skip
        return Counting(done, state.passes + self.share, np.full((1, 1), float(done))), report

    def status(self, state):
        if state.round == self.bad_state_at:
            return Status.DIVERGED
        return Status.CONVERGED if state.round == self.ended_at else Status.RUNNING

    def weights(self, state):
        return Fitted(LinearPredictor(state.value, np.zeros(1)))


class Watching:
    """Notes every call in a shared diary; may interrupt."""

    def __init__(self, name, diary, stop_at=0):
        self.name, self.diary, self.stop_at = name, diary, stop_at

    def on_start(self, start):
        raise AssertionError("the loop is not what starts a fit")

    def on_round(self, event):
        self.diary.append((self.name, event.record["round"]))
        if event.record["round"] == self.stop_at:
            raise KeyboardInterrupt

    def on_end(self, status, state):
        self.diary.append((self.name, status, state.round))


class Scripted:
    """Evaluates round r as `values[r]`, and notes which weights it was given."""

    def __init__(self, **fields):
        self.fields, self.rounds, self.searched = fields, [], []

    async def __call__(self, fitted: Fitted, *, whole: bool = True) -> dict[str, Any]:
        done = int(fitted.predictor.coefficients[0, 0])
        self.rounds.append(done)
        self.searched.append((fitted.improved_weights is not None, fitted.search_passes))
        return {name: value(done) for name, value in self.fields.items()}


def run(solver, evaluate=None, state=None, *callbacks, **limits):
    stood = {name: limits.pop(name) for name in ("progress", "record", "best") if name in limits}
    searches = limits.pop("searches", False)
    work = solve(
        solver, Standing(state or Counting(), **stood), limits=Request(**limits), evaluate=evaluate or Scripted(),
        searches=searches, callbacks=callbacks,
    )  # fmt: skip
    return run_alone(work, SerialExecutor())


@pytest.mark.fast_cases(r"1\.0", r"2\.5")
@pytest.mark.parametrize(
    ("share", "limit", "rounds"),
    [(1.0, 3, 3), (0.25, 0.6, 3), (1 / 3, 1, 3), (0.1, 0.3, 3), (0.1, 0.31, 4), (2.5, 1, 1)],
)
def test_a_fit_ends_with_the_round_that_reaches_the_passes(share, limit, rounds):
    solution = run(Fake(share), passes=limit)
    assert (solution.status, solution.state.round) == (Status.MAX_PASSES, rounds)
    assert solution.record["passes"] == solution.state.passes


def test_a_limit_already_met_does_no_round():
    evaluate = Scripted()
    solution = run(Fake(), evaluate, Counting(5, 5.0, np.full((1, 1), 5.0)), passes=5)
    assert (solution.status, solution.state.round, solution.record) == (Status.MAX_PASSES, 5, {})
    assert solution.fitted.predictor.coefficients[0, 0] == 5
    assert evaluate.rounds == []


class Estimating(Fake):
    """Estimates a gap of 8, 4, 2, ... of an objective of 10, and may expect a share of that."""

    expected = None

    def step(self, state, executor):
        state, report = super().step(state, executor)
        report.gap_estimate, report.objective_estimate = 16.0 / 2**state.round, 10.0
        report.gap_expected = None if self.expected is None else self.expected * report.gap_estimate
        return state, report


def test_a_trial_ends_by_its_estimate_and_is_never_evaluated():
    evaluate = Scripted()
    limits = {"passes": 9, "rtol": 0.1, "eval_every": 0.0}
    solution = run(Estimating(), evaluate, trial=True, **limits)
    assert (solution.status, solution.state.round, evaluate.rounds) == (Status.CONVERGED, 4, [])
    assert run(Estimating(), evaluate, **limits).state.round == 9
    assert run(Fake(), evaluate, trial=True, **limits).state.round == 9  # it estimates nothing


@pytest.mark.parametrize(("expected", "first"), [(None, 4), (0.5, 3), (0.25, 2)])
def test_a_certificate_waits_until_the_expected_gap_is_near(expected, first):
    evaluate, solver = Scripted(), Estimating()
    solver.expected = expected
    run(solver, evaluate, passes=6, rtol=0.05)
    assert evaluate.rounds == list(range(first, 7))


class Halves(Estimating):
    """Rounds are about half a pass each."""

    def step(self, state, executor):
        state, report = super().step(state, executor)
        state.passes = state.round / 2 + (state.round % 2) * 1e-4 / state.round
        return state, report


def test_a_certificate_does_not_wait_for_half_a_pass_more():
    evaluate = Scripted()
    run(Halves(), evaluate, passes=4, rtol=0.1)
    assert evaluate.rounds == [3, 5, 7, 8]


KNOWN = {"objective": 1.0, "certificate": {"kind": "duality_gap", "value": 0.5}}


@pytest.mark.fast_cases("given0", "given5")
@pytest.mark.parametrize(
    ("given", "rounds"),
    [
        ({}, [8, 16, 24, 30]),  # two passes of work each: a quarter of the passes
        (
            {"further": 18.0, "passes": 130},
            [40, 130],
        ),  # a search for other weights: eight beside the read at first, then as much as the last one
        ({"duals": object()}, list(range(2, 31, 2))),
        ({"known": KNOWN}, list(range(1, 31))),
        ({"known": KNOWN, "further": 1.5}, list(range(1, 31))),
        ({"eval_every": 1}, list(range(1, 31))),
    ],
)
def test_certificates_take_a_fifth_unless_they_are_asked_for(given, rounds):
    further = given.get("further", 0.0)
    evaluate = Scripted(objective=lambda r: 1.0, certificate_passes=lambda r: further)
    solver = Fake()
    own = {name: given[name] for name in ("duals", "known") if name in given}
    own |= {"improved_weights": lambda most, executor: None} if further else {}
    solver.weights = lambda state: Fitted(LinearPredictor(state.value, np.zeros(1)), **own)
    limits = {"passes": given.get("passes", 30), "eval_every": given.get("eval_every")}
    solution = run(solver, evaluate, rtol=0.1, **limits)
    assert evaluate.rounds == rounds
    assert "certificate_passes" not in solution.record
    # Where the gap is known, further weights are looked for within the share alone, and at the end.
    if "known" in given and further:
        assert [searched for searched, _ in evaluate.searched] == [False] * 29 + [True]
        assert evaluate.searched[-1][1] == 0.0  # nothing is left


def test_searches_for_a_bound_take_a_fifth_and_get_further_each_time():
    def evaluating(bound):
        return Scripted(
            objective=lambda r: 10.0,
            certificate=lambda r: {"kind": "duality_gap", "value": 9.0},
            certificate_passes=lambda r: {8: 0.0, 48: 8.0}.get(r, 18.0),
            reached=lambda r: None if r == 8 else 9.5,
            bound=lambda r: bound,
        )

    evaluate = evaluating(1.0)
    run(Fake(), evaluate, passes=200, rtol=0.01, searches=True)
    # A read alone, then 10 passes are spent, then twice as many; at the end what is left.
    assert evaluate.rounds == [8, 48, 128, 200]
    assert [most for _, most in evaluate.searched] == [0.0, 8.0, 18.0, 16.0]
    # Once the bound is as near as the tolerance asks, what follows are reads.
    near = evaluating(9.46)
    run(Fake(), near, passes=58, rtol=0.01, searches=True)
    assert near.rounds == [8, 48, 56, 58]


@pytest.mark.parametrize(("gap", "certified", "most"), [(0.5, 0.0, None), (0.1, 0.0, 2.0), (0.1, 3.0, None)])
def test_what_is_left_of_the_share_brings_a_known_gap_nearer_once_it_meets_the_tolerance(gap, certified, most):
    known = {"objective": 1.0, "certificate": {"kind": "duality_gap", "value": gap}}
    evaluate, solver = Scripted(), Fake()
    solver.weights = lambda state: Fitted(
        LinearPredictor(state.value, np.zeros(1)), known=known, improved_weights=lambda most, executor: None
    )
    progress = Progress(certified=certified, certified_all=certified)
    run(solver, evaluate, Counting(7, 7.0, np.full((1, 1), 7.0)), passes=9, rtol=0.2, progress=progress)
    searched, budget = evaluate.searched[0]
    assert (budget if searched else None) == most


def test_without_any_bound_an_end_is_searched_whatever_it_costs():
    for bound, most in ((None, math.inf), (0.5, 0.0)):
        evaluate = Scripted(objective=lambda r: 1.0)
        run(Fake(), evaluate, passes=3, rtol=0.1, searches=True, progress=Progress(bound=bound))
        assert evaluate.searched == [(False, most)]


def test_patience_evaluates_every_pass_and_certifies_within_the_share():
    certified = []

    class Evaluate(Scripted):
        async def __call__(self, fitted: Fitted, *, whole: bool = True) -> dict[str, Any]:
            found = await super().__call__(fitted)
            if whole:
                certified.append(self.rounds[-1])
            return found

    evaluate = Evaluate(eval_error=lambda r: 1.0 / min(r, 12))
    solution = run(Fake(), evaluate, passes=30, patience=3)
    assert (solution.status, solution.state.round) == (Status.EARLY_STOPPED, 15)
    # The round that is published is certified once more.
    assert (evaluate.rounds, certified) == ([*range(1, 16), 12], [8, 12])


class Clock:
    """A clock that only moves when told."""

    now = 0.0

    def __call__(self):
        return self.now


def test_seconds_are_those_of_rounds_and_evaluations(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(distls.execution.batch, "time", SimpleNamespace(perf_counter=clock))

    def later(seconds):
        def wait(_):
            clock.now += seconds
            return 1.0

        return wait

    solution = run(Fake(at_round=later(2.0)), Scripted(objective=later(100.0)), max_seconds=205.0, eval_every=1)
    # the limit is met by the evaluation, after which no round begins
    assert (solution.status, solution.state.round) == (Status.MAX_SECONDS, 3)
    record = solution.record
    assert record["seconds"] == solution.progress.seconds
    assert (record["seconds"], record["train_seconds"], record["eval_seconds"]) == (306.0, 6.0, 300.0)


def test_kernels_that_a_round_compiles_are_no_training():
    spent = RoundReport(
        0.5, 0.5, 10, 7, 0, kernel_seconds=1.0, wait_seconds=2.0, compile_seconds=5.0, worker_seconds={"a": 10.0}
    )  # fmt: skip
    progress = Progress()
    # two lanes side by side: their seconds are 10, those of the round 5
    _add_round(progress, spent, 5.0, 9.0)
    found = progress.read_seconds, progress.startup_seconds, progress.train_seconds
    assert found == (1.0, 2.5, 1.5)


def test_loading_kernels_is_no_part_of_a_certificate(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(distls.execution.batch, "time", SimpleNamespace(perf_counter=clock))

    class Evaluate(Scripted):
        async def __call__(self, fitted: Fitted, *, whole: bool = True) -> dict[str, Any]:
            clock.now += 5.0
            loaded(4.0)
            return await super().__call__(fitted)

    progress = run(Fake(), Evaluate(), passes=1, eval_every=1).progress
    assert (progress.eval_seconds, progress.startup_seconds, progress.seconds) == (1.0, 4.0, 5.0)


def bounded(kind, **fields):
    """Objectives 10 + 8/round, with the values 8, 2, 6, 1.5 of their certificates."""
    values = {1: 8.0, 2: 2.0, 3: 6.0, 4: 1.5}
    return Scripted(
        objective=lambda done: 10.0 + 8.0 / done,
        certificate=lambda done: {"kind": kind, "value": values[done]},
        **fields,
    )


def certificates(evaluate, state=None, **options):
    """Return the values that rounds report."""
    history = History()
    run(Fake(), evaluate, state, history, passes=4, eval_every=1, **options)
    return [record["certificate"]["value"] for record in history.records]


@pytest.mark.parametrize("kind", ["duality_gap", "strong_convexity"])
def test_a_certificate_remembers_the_best_bound_of_the_optimum(kind):
    # the optimum is at least 10, 12, 6.67, 10.5
    assert certificates(bounded(kind)) == [8.0, 2.0, 10.0 + 8.0 / 3 - 12.0, 0.0]


def test_the_bound_of_a_certificate_survives_a_resume():
    state = Counting(2, 2.0, np.full((1, 1), 2.0))
    progress = Progress(evaluated_at=2.0, bound=12.0)
    assert certificates(bounded("duality_gap"), state, progress=progress) == [10.0 + 8.0 / 3 - 12.0, 0.0]


@pytest.mark.parametrize(
    ("limits", "value"),
    [({"tol": 3.0}, 1.0), ({"patience": 1, "passes": 9}, 1.0), ({"passes": 3}, 1.0), ({"passes": 9}, math.nan)],
)
def test_a_fit_that_had_ended_does_no_round_when_it_is_resumed(limits, value):
    """Whatever ended it: after any round, what its checkpoint holds says whether it goes on."""
    seen = []
    watcher = Watching("a", [])
    watcher.on_round = seen.append

    def ended(*start, **stood):
        solver = Fake(at_round=lambda r: value if r == 3 else 1.0)
        evaluate = bounded("duality_gap", eval_error=lambda r: ERRORS[r])
        found = run(solver, evaluate, *start, eval_every=1, **limits, **stood)
        fitted, measured = found.fitted.predictor.coefficients[0, 0], dict(found.record)
        for name in ("seconds", *PARTS):
            measured.pop(name, None)
        return found.status, found.state.round, fitted, measured, found.progress.best, found.progress.bound

    whole = ended(None, watcher)
    for event in seen:
        stood = {"record": event.record, "progress": Progress(**event.progress), "best": event.best}
        assert ended(event.state, **stood) == whole


def test_norms_and_other_problems_bound_nothing():
    assert certificates(bounded("gradient_norm")) == [8.0, 2.0, 6.0, 1.5]
    other = bounded("duality_gap", preliminary=lambda done: done < 3)
    assert certificates(other) == [8.0, 2.0, 6.0, 1.5]


def test_seconds_before_a_resume_count(monkeypatch):
    monkeypatch.setattr(distls.execution.batch, "time", SimpleNamespace(perf_counter=Clock()))
    solution = run(Fake(), max_seconds=5.0, passes=3, progress=Progress(seconds=4.0))
    assert (solution.status, solution.progress.seconds) == (Status.MAX_PASSES, 4.0)
    assert run(Fake(), max_seconds=5.0, progress=Progress(seconds=5.0)).status == Status.MAX_SECONDS


def _certificate(value):
    return lambda round: {"kind": "strong_convexity", "value": value(round)}


def test_tolerance_is_met_at_equality():
    evaluate = Scripted(objective=lambda r: 1.0, certificate=_certificate(lambda r: 1 / r))
    solution = run(Fake(), evaluate, passes=100, tol=0.25, eval_every=1)
    assert (solution.status, solution.state.round) == (Status.CONVERGED, 4)
    assert solution.record["certificate"]["value"] == 0.25


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_no_certificate_never_converges(value):
    evaluate = Scripted(objective=lambda r: 1.0, certificate=_certificate(lambda r: value))
    assert run(Fake(), evaluate, passes=3, tol=0.25, eval_every=1).status == Status.MAX_PASSES


@pytest.mark.fast_cases(r"1\.0-0", r"0\.5")
@pytest.mark.parametrize(
    ("share", "every", "evaluated"),
    [
        (1.0, 0, []),
        (1.0, math.inf, [5]),
        (1.0, 1, [1, 2, 3, 4, 5]),
        (1.0, 2, [2, 4, 5]),
        (0.1, 2, [20, 40, 50]),
        (0.5, 0.75, [2, 4, 6, 8, 10]),
    ],
)
def test_evaluation_comes_every_so_many_passes_and_at_the_end(share, every, evaluated):
    evaluate = Scripted(objective=lambda r: 1.0)
    solution = run(Fake(share), evaluate, passes=5, eval_every=every)
    assert evaluate.rounds == evaluated
    assert ("objective" in solution.record) == bool(evaluated)


ERRORS = {1: 0.5, 2: 0.3, 3: 0.4, 4: 0.3, 5: 0.2}


@pytest.mark.fast_cases("1", "3-5")
@pytest.mark.parametrize(
    ("patience", "passes", "status", "ended", "best"),
    [
        (1, 9, Status.EARLY_STOPPED, 3, 2),
        (2, 9, Status.EARLY_STOPPED, 4, 2),  # an equal error is no better one
        (3, 4, Status.MAX_PASSES, 4, 2),
        (3, 5, Status.MAX_PASSES, 5, 5),
    ],
)
def test_patience_publishes_the_best(patience, passes, status, ended, best):
    seen = []
    watcher = Watching("a", [])
    watcher.on_round = seen.append
    evaluate = Scripted(objective=lambda r: 1.0, eval_error=lambda r: ERRORS[r])
    solution = run(Fake(), evaluate, None, watcher, passes=passes, patience=patience, eval_every=1)
    kept = [event.best.predictor.coefficients[0, 0] for event in seen if event.best is not None]
    assert (solution.status, solution.state.round) == (status, ended)
    assert solution.fitted.predictor.coefficients[0, 0] == best == kept[-1]
    assert kept == [event.progress["best"]["round"] for event in seen]
    assert solution.record["eval_error"] == ERRORS[best]
    assert solution.progress.best == {"error": ERRORS[best], "round": best, "misses": ended - best}


def test_what_the_callbacks_saw_does_not_change_when_the_best_is_evaluated_again():
    seen = []
    watcher = Watching("a", [])
    watcher.on_round = seen.append
    evaluate = Scripted(objective=lambda r: 1.0, eval_error=lambda r: ERRORS[r])
    run(Fake(), evaluate, None, watcher, passes=9, patience=1, eval_every=1)
    assert [event.record["eval_error"] for event in seen] == [0.5, 0.3, 0.4]


def test_patience_goes_on_after_a_resume():
    progress = Progress(evaluated_at=3.0, best={"error": 0.3, "round": 2, "misses": 1})
    kept = Fitted(LinearPredictor(np.full((1, 1), 2.0), np.zeros(1)))
    evaluate = Scripted(objective=lambda r: 1.0, eval_error=lambda r: ERRORS[r])
    solution = run(
        Fake(), evaluate, Counting(3, 3.0, np.full((1, 1), 3.0)),
        passes=9, patience=2, eval_every=1, progress=progress, best=kept,
    )  # fmt: skip
    assert (solution.status, solution.state.round) == (Status.EARLY_STOPPED, 4)
    assert solution.fitted is kept


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_divergence(value):
    diary = []
    evaluate = Scripted(objective=lambda r: 1.0)
    solver = Fake(at_round=lambda r: value if r == 2 else 1.0)
    solution = run(solver, evaluate, None, Watching("a", diary), passes=9)
    assert solution.status == Status.DIVERGED
    assert diary == [("a", 1), ("a", 2), ("a", Status.DIVERGED, 2)]
    assert evaluate.rounds == []
    assert solution.record["running_loss"] is None
    assert solution.record["averaging"] == {"penalty": None}
    json.dumps(solution.record, allow_nan=False)


def test_weights_that_are_not_finite_are_divergence():
    solver = Fake()
    solver.bad_state_at = 3
    solution = run(solver, passes=9)
    assert (solution.status, solution.state.round) == (Status.DIVERGED, 3)


def test_an_objective_that_is_not_finite_is_divergence():
    evaluate = Scripted(objective=lambda r: math.inf, certificate=_certificate(lambda r: math.nan))
    solution = run(Fake(), evaluate, passes=9, eval_every=1)
    assert (solution.status, solution.state.round) == (Status.DIVERGED, 1)
    json.dumps(solution.record, allow_nan=False)


def test_it_is_so_too_where_the_solver_has_come_to_its_end():
    solver = Fake()
    solver.ended_at = 2
    evaluate = Scripted(objective=lambda r: math.inf)
    assert run(solver, evaluate, passes=9).status == Status.DIVERGED


def test_callbacks_are_called_in_order():
    diary = []
    run(Fake(), None, None, Watching("a", diary), Watching("b", diary), passes=2)
    end = Status.MAX_PASSES, 2
    assert diary == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", *end), ("b", *end)]


@pytest.mark.parametrize("who", ["a", "b"])
def test_interrupted_in_a_callback_the_round_before_counts(who):
    diary = []
    watchers = [Watching(name, diary, 3 if name == who else 0) for name in "ab"]
    solution = run(Fake(), None, None, *watchers, passes=9)
    assert (solution.status, solution.state.round) == (Status.INTERRUPTED, 2)
    assert (solution.fitted.predictor.coefficients[0, 0], solution.record["round"]) == (2, 2)
    assert diary[-2:] == [("a", Status.INTERRUPTED, 2), ("b", Status.INTERRUPTED, 2)]
    assert (("b", 3) in diary) == (who == "b")


def test_interrupted_in_the_first_round_nothing_is_done():
    def stop(_):
        raise KeyboardInterrupt

    solution = run(Fake(at_round=stop), passes=9)
    assert (solution.status, solution.state.round, solution.record) == (Status.INTERRUPTED, 0, {})


def test_interrupted_in_an_evaluation_the_round_before_counts():
    def stop(done):
        if done == 2:
            raise KeyboardInterrupt
        return 1.0

    solution = run(Fake(), Scripted(objective=stop), passes=9, eval_every=1)
    assert (solution.status, solution.state.round) == (Status.INTERRUPTED, 1)
    assert solution.progress.evaluated_at == 1


def test_an_error_ends_the_callbacks_too_and_is_raised():
    def fail(done):
        if done == 3:
            raise OSError("gone")
        return 1.0

    diary = []
    with pytest.raises(OSError, match="gone"):
        run(Fake(at_round=fail), None, None, Watching("a", diary), passes=9)
    assert diary == [("a", 1), ("a", 2), ("a", Status.RUNNING, 2)]


def test_the_record_is_json():
    evaluate = Scripted(objective=lambda r: 0.5, certificate=_certificate(lambda r: math.inf))
    record = run(Fake(), evaluate, passes=1).record
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert list(record)[:3] == ["round", "passes", "seconds"]
    assert parts_of(record).keys() == {*PARTS.values(), "write"}
    assert record["certificate"] == {"kind": "strong_convexity", "value": None}
