"""The loop that drives every solver: limits, checks for non-finite values, evaluation, callbacks, interrupts."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Generic

import numpy as np

from distls.clock import PARTS, loading
from distls.execution.batch import OwnSeconds
from distls.request import Request
from distls.solvers.events import Callback, RoundEvent
from distls.solvers.solver import Fitted, RoundReport, S, Solver, State
from distls.solvers.status import Status
from distls.storage.filesystem.atomic import finite_json

# Statuses with which a method ends by itself.
_OWN_ENDS = (Status.CONVERGED, Status.MAX_PASSES)
# Passes are sums of fractions, so a limit is compared with a tolerance.
_ROUNDING = 1e-9
# Halves of a pass are about halves: what waits for an estimate does not wait for one more on that account.
_ABOUT = 0.01
# An estimate of the certificate is near a tolerance below this multiple of it.
_NEAR = 2.0
_TRIAL_PASSES = 10.0  # of fits that are compared only: which is better is seen long before the optimum
# Of passes, what evaluations that nobody has asked for may cost: with these a fifth of the whole.
_SHARE = 0.25
# What a read of all rows costs, in passes: scores and gradients of all outputs, of which some methods need few; where
# a dual point is judged, scores alone, beside passes that change duals and weights.
_READ, _READ_OF_DUALS = 2.0, 0.5
# Kinds of certificates that are upper bounds of F(W) - F*.
_BOUNDS = ("duality_gap", "strong_convexity")


def largest_certificate(limits: Request[Any], objective: float) -> float:
    """Return the largest certificate of weights with this objective that meets a tolerance."""
    # An absolute and a relative tolerance: meeting either one is enough.
    return max(limits.tol or 0.0, (limits.rtol or 0.0) * objective)


def _is_within(limits: Request[Any], certificate: dict[str, Any]) -> bool:
    """Return whether a certificate meets a tolerance."""
    value, relative = certificate.get("value"), certificate.get("relative")
    return (limits.tol is not None and value is not None and value <= limits.tol) or (
        limits.rtol is not None and relative is not None and relative <= limits.rtol
    )


def _ends_by_estimate(limits: Request[Any]) -> bool:
    """Return whether a fit is ended by its solver's own estimates of `rtol`, and never evaluated."""
    return limits.trial and limits.tol is None


def _seems_within(limits: Request[Any], record: Mapping[str, Any]) -> bool:
    """Return whether the estimate in a round's record meets `rtol`, where that is enough."""
    gap, objective = record.get("gap_estimate"), record.get("objective_estimate")
    if not _ends_by_estimate(limits) or gap is None or objective is None:
        return False
    return bool(gap <= (limits.rtol or 0.0) * objective)


def _most_passes(limits: Request[Any]) -> float:
    passes = math.inf if limits.passes is None else limits.passes
    return min(passes, _TRIAL_PASSES) if _ends_by_estimate(limits) else passes


def _passes_between(limits: Request[Any]) -> float:
    """Return the passes between evaluations: infinity for one at the end alone, 0 for none."""
    if _ends_by_estimate(limits):
        return 0.0
    default = 1.0 if limits.is_judged or limits.patience is not None else math.inf
    return default if limits.eval_every is None else limits.eval_every


def _waits_for_estimate(limits: Request[Any]) -> bool:
    """Return whether evaluations are for the tolerances alone, so of no use while estimates are far from them."""
    return limits.is_judged and limits.eval_every is limits.patience is limits.eval_data is None


@dataclass
class Progress:
    """State of the loop itself, kept in checkpoints."""

    # Of the user: all commands that have worked on the fit, each up to its last checkpoint; their parts are named
    # in `distls.clock`
    seconds: float = 0.0
    start_seconds: float = 0.0
    ingest_seconds: float = 0.0
    cv_seconds: float = 0.0
    startup_seconds: float = 0.0
    read_seconds: float = 0.0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    evaluated_at: float = 0.0  # Passes at the last evaluation
    # What certificates have cost, the last one with a search, and all, counted in passes
    certified: float = 0.0
    certified_all: float = 0.0
    # With patience: {"error", "round", "misses"} of the best evaluation so far
    best: dict[str, Any] | None = None
    bound: float | None = None  # The highest lower bound of the optimum that any certificate has given
    # The lowest objective of other weights, where a search for a bound has had some
    reached: float | None = None


@dataclass(frozen=True)
class Standing(Generic[S]):
    """Where a fit stands after a round: all that it goes on from, or ends with."""

    state: S
    progress: Progress = field(default_factory=Progress)
    record: dict[str, Any] = field(default_factory=dict)  # of the round, as evaluated; empty before the first
    best: Fitted | None = None  # with patience: the predictor of the round in ``progress.best``


@dataclass(frozen=True)
class Solution:
    """How a fit ended."""

    status: Status
    done: Standing[Any]  # after the last round
    fitted: Fitted  # To publish: the best under patience, else the last
    progress: Progress
    record: dict[str, Any]  # The last round's record, empty when no round was done, as evaluated for `fitted`

    @property
    def state(self) -> State:
        """The state after the last round."""
        return self.done.state


# Of what is fitted; without its certificate if `whole` is False
Evaluate = Callable[..., Awaitable[dict[str, Any]]]


async def solve(
    solver: Solver[S],
    start: Standing[S],
    *,
    limits: Request[Any],
    evaluate: Evaluate,
    searches: float = 0.0,
    callbacks: Sequence[Callback] = (),
    what: str = "",  # of several settings which this is, for the callbacks
) -> Solution:
    """Run rounds until a limit is met, as a fit of a batch; a fit that had met one when it was stopped does none.

    `evaluate` returns the fields that an evaluation adds to a record: ``objective``, ``certificate``,
    ``eval_error``...; `searches`: passes that it may take at first to look for a bound, whatever the method.
    """
    earlier = start.progress.seconds  # until this fit was begun or resumed
    solver.enough = partial(largest_certificate, limits)
    done, status = start, _status(solver, limits, start)
    try:
        # A round whose callbacks fail is not done: `done` moves only after all of them.
        while status == Status.RUNNING:
            following = await _round(solver, done, limits, evaluate, earlier, searches=searches)
            following.record["seconds"] = following.progress.seconds
            status = _status(solver, limits, following)
            for callback in callbacks:
                callback.on_round(_event(following, what))
            done = following
        fitted, record, progress = solver.weights(done.state), done.record, done.progress
        # Patience publishes the best model, which is not always the last.
        best_round = progress.best["round"] if progress.best else done.state.round
        if done.best is not None and best_round != done.state.round:
            # copies: what the callbacks saw, and an interrupt falls back on, stays as it is
            fitted, record, progress = done.best, dict(record), replace(progress)
            await _evaluate(evaluate, fitted, record, progress)
    except KeyboardInterrupt:
        # the last round whose callbacks all ran is the one that a checkpoint and the events agree on
        status = Status.INTERRUPTED
        fitted, record, progress = solver.weights(done.state), done.record, done.progress
    except BaseException:
        # Observers learn of the end whatever caused it, and the error goes on.
        _notify_end(callbacks, Status.RUNNING, done.state)
        raise
    _notify_end(callbacks, status, done.state)
    return Solution(status, done, fitted, progress, record)


async def _round(
    solver: Solver[S], done: Standing[S], limits: Request[Any], evaluate: Evaluate, earlier: float, *, searches: float
) -> Standing[S]:
    """Do a round, and evaluate if that is due."""
    progress = replace(done.progress)
    started = await OwnSeconds(done.state.passes)
    with np.errstate(over="ignore", invalid="ignore"):  # what diverges is judged by `_status`
        state, report = await solver.round(done.state)
    ended = await OwnSeconds(state.passes)
    _add_round(progress, report, ended - started, earlier + ended)
    following = Standing(state, progress, _record(state, report, progress), done.best)
    if not _is_due(solver, following, limits):
        return following
    # Evaluated at the same predictor that would be published.
    fitted = solver.weights(state)
    fitted = replace(fitted, first_search=max(fitted.first_search, searches))
    whole = _is_worth(solver, following, limits, fitted, searches=searches)
    ends = _status(solver, limits, following) != Status.RUNNING
    fitted = _within_share(fitted, following, limits, ends=ends)
    # Patience needs the error of every pass, and no certificate.
    if not whole and limits.patience is None:
        return following
    progress.evaluated_at = state.passes
    await _evaluate(evaluate, fitted, following.record, progress, whole=whole)
    if limits.patience is None or not _is_best(following.record, progress):
        return following
    # later rounds replace what these need, and checkpoints do not have them
    return replace(
        following, best=replace(fitted, duals=None, improved_weights=None, known=None, search_passes=math.inf)
    )


def _event(done: Standing[Any], what: str) -> RoundEvent:
    return RoundEvent(done.record, done.state, asdict(done.progress), what, done.best)


def _notify_end(callbacks: Sequence[Callback], status: Status, state: State) -> None:
    for callback in callbacks:
        callback.on_end(status, state)


def _status(solver: Solver[S], limits: Request[Any], done: Standing[S]) -> Status:
    """Return how a fit stands after a round: a function of what its checkpoint holds."""
    own, met = solver.status(done.state), _limit_met(limits, done)
    if own == Status.DIVERGED or met == Status.DIVERGED:
        return Status.DIVERGED
    if own != Status.CONVERGED or not limits.is_judged:
        return own if own in _OWN_ENDS else met
    # A tolerance that is asked for counts alone as long as the method goes on; at its end it is met, or missed.
    missed = own if relative_bound(done.record) is None else Status.MAX_PASSES
    return met if solver.certifies(done.state) or met == Status.CONVERGED else missed


def _limit_met(limits: Request[Any], done: Standing[Any]) -> Status:
    record, progress, passes = done.record, done.progress, done.state.passes
    if record.get("objective", 0.0) is None or record.get("running_loss", 0.0) is None:
        return Status.DIVERGED
    if _is_within(limits, record.get("certificate", {})) and not record.get("preliminary"):
        # Tolerances come first: a fit that converges in its last allowed pass has converged.
        return Status.CONVERGED
    if _seems_within(limits, record):
        return Status.CONVERGED
    if limits.patience is not None and progress.best and progress.best["misses"] >= limits.patience:
        return Status.EARLY_STOPPED
    if passes >= _most_passes(limits) - _ROUNDING:
        return Status.MAX_PASSES
    if limits.max_seconds is not None and progress.seconds >= limits.max_seconds:
        return Status.MAX_SECONDS
    return Status.RUNNING


def _is_due(solver: Solver[S], done: Standing[S], limits: Request[Any]) -> bool:
    """Return whether a round is to be evaluated: when its turn has come, and at an end whatever the interval says."""
    record, between, status = done.record, _passes_between(limits), _status(solver, limits, done)
    if not between or status == Status.DIVERGED:
        return False
    estimated = _waits_for_estimate(limits) and record.get("gap_estimate") is not None
    since = done.state.passes - done.progress.evaluated_at
    due = since >= between - (_ABOUT if estimated else _ROUNDING)
    if due and estimated:
        expected = record.get("gap_expected") or record["gap_estimate"]
        due = expected <= _NEAR * largest_certificate(limits, record.get("objective_estimate") or 0.0)
    return due or status != Status.RUNNING


def _is_worth(solver: Solver[S], done: Standing[S], limits: Request[Any], fitted: Fitted, *, searches: float) -> bool:
    """Return whether certificates stay within their share with one more, or it is due whatever it costs."""
    # Those that wait for an estimate are few, and what the method knows costs nothing.
    estimated = _waits_for_estimate(limits) and done.record.get("gap_estimate") is not None
    if estimated or isinstance(fitted.known, dict):
        return True
    # The bound of the weights' own gradient may do: one read tells, before anything is searched.
    may = fitted.improved_weights is not None or (searches and done.progress.certified_all)
    cost = _search_cost(fitted, done.progress, limits) if may else _read_cost(fitted)
    return cost <= _left(done, limits) + _ROUNDING or _status(solver, limits, done) != Status.RUNNING


def _left(done: Standing[Any], limits: Request[Any]) -> float:
    """Return what certificates may cost now, by counts alone: all where they were asked for."""
    spent = done.progress.certified_all
    return _SHARE * done.state.passes - spent if limits.eval_every is None else math.inf


def _within_share(fitted: Fitted, done: Standing[Any], limits: Request[Any], *, ends: bool) -> Fitted:
    """Return what is to be evaluated, with the most passes that a search may take."""
    known, progress = fitted.known, done.progress
    if isinstance(known, dict):
        value, objective = known["certificate"]["value"], known["objective"]
        met = limits.is_judged and value <= largest_certificate(limits, objective)
        # What is left of the share brings the bound nearer at an end; before that a search has to be worth its cost.
        final = ends or (met and not progress.certified)
        if not final and _search_cost(fitted, progress, limits) > _left(done, limits) + _ROUNDING:
            return replace(fitted, improved_weights=None)
    elif ends and progress.bound is None:
        return fitted  # without any bound so far one is looked for whatever it costs
    return replace(fitted, search_passes=max(_left(done, limits) - _read_cost(fitted), 0.0))


def _read_cost(fitted: Fitted) -> float:
    return 0.0 if isinstance(fitted.known, dict) else _READ if fitted.duals is None else _READ_OF_DUALS


def _search_cost(fitted: Fitted, progress: Progress, limits: Request[Any]) -> float:
    """Return what a certificate with a search is expected to cost: as much as the last one, or a first one."""
    if fitted.improved_weights is not None:
        return progress.certified or _read_cost(fitted) + fitted.first_search
    if progress.reached is None:
        # What was certified by other reads, as of balanced gradients, is no search.
        return max(progress.certified, _read_cost(fitted) + fitted.first_search)
    # A search by dual ascent that has come to its end is the last, one that was cut off is to get further.
    lacks = 2.0 * (progress.reached - (progress.bound or 0.0)) > largest_certificate(limits, progress.reached)
    return 2.0 * progress.certified if lacks else _read_cost(fitted)


def _record(state: State, report: RoundReport, progress: Progress) -> dict[str, Any]:
    values = {name: finite_json(value) for name, value in asdict(report).items() if value is not None}
    clock = {name: getattr(progress, name) for name in ("seconds", *PARTS)}
    return {"round": state.round, "passes": state.passes, **clock, **values}


def _add_round(progress: Progress, report: RoundReport, spent: float, seconds: float) -> None:
    """Add the seconds of a round: those in which its workers waited for data, or for compiled kernels, are theirs."""
    progress.seconds = seconds
    waited, compiled = report.wait_seconds, report.compile_seconds or 0.0
    busy = max(sum((report.worker_seconds or {}).values()), report.kernel_seconds + waited + compiled)
    share = spent / busy if busy else 0.0
    progress.read_seconds += share * waited
    progress.startup_seconds += share * compiled
    progress.train_seconds += spent - share * (waited + compiled)


async def _evaluate(
    evaluate: Evaluate, fitted: Fitted, record: dict[str, Any], progress: Progress, *, whole: bool = True
) -> None:
    started, before = await OwnSeconds(), loading()
    record.update(finite_json(await (evaluate(fitted) if whole else evaluate(fitted, whole=False))))
    if whole:
        _count_cost(fitted, record, progress)
    rounding, searched = record.pop("certificate_rounding", 0.0), record.pop("bound", None)
    progress.reached = record.pop("reached", progress.reached)
    # A bound of the sparse problem says nothing about its refit.
    if not record.get("preliminary"):  # bounds of a preliminary problem do not hold for the final one
        _tighten(record, progress, rounding, searched)
    share = relative_bound(record)
    if share is not None:
        record["certificate"]["relative"] = share
    spent, loads = await OwnSeconds() - started, loading() - before
    progress.eval_seconds += spent - loads
    progress.startup_seconds += loads
    progress.seconds += spent
    record |= {name: getattr(progress, name) for name in ("eval_seconds", "startup_seconds")}


def _count_cost(fitted: Fitted, record: dict[str, Any], progress: Progress) -> None:
    """Enter the work of a certificate, in passes."""
    searched = record.pop("certificate_passes", 0.0)
    cost = _read_cost(fitted) + searched
    if searched:
        progress.certified = cost
    progress.certified_all += cost


def relative_bound(record: Mapping[str, Any]) -> float | None:
    """Return the certificate of a record as a part of its objective; None where it bounds no distance."""
    certificate, objective = record.get("certificate") or {}, record.get("objective")
    value = certificate.get("value")
    if certificate.get("kind") not in _BOUNDS or value is None or not objective or objective < 0.0:
        return None
    return float(value / objective)


def _tighten(record: dict[str, Any], progress: Progress, rounding: float, searched: float | None) -> None:
    """Tighten a certificate by the best bound of the optimum so far: dual points are not monotone."""
    objective, certificate = record.get("objective"), record.get("certificate", {})
    value = certificate.get("value")
    if objective is None or value is None or certificate["kind"] not in _BOUNDS:
        return
    # what a search knows to the bit: a resumed one starts from it
    lower = objective - value if searched is None else searched
    # Bounds of the optimum are valid for the whole fit, whichever weights they came from.
    progress.bound = lower if progress.bound is None else max(lower, progress.bound)
    certificate["value"] = min(value, max(objective - progress.bound, rounding))


def _is_best(record: dict[str, Any], progress: Progress) -> bool:
    # An error that is not finite is never the best.
    best, error = progress.best, math.inf if record["eval_error"] is None else record["eval_error"]
    if best is None or error < best["error"]:
        progress.best = {"error": error, "round": record["round"], "misses": 0}
    else:
        progress.best = {**best, "misses": best["misses"] + 1}
    record["best"] = progress.best
    return progress.best["misses"] == 0
