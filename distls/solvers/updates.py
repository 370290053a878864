"""From a method's parameters to what its lanes do: the steps, their defaults, and those that are to be tried."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from distls.problem import Problem
from distls.storage.errors import ParameterError
from distls.workers.losses import BINARY_LOSSES
from distls.workers.updates import (
    AdaptiveUpdate,
    MeanUpdate,
    OlbfgsUpdate,
    RlsUpdate,
    ScheduledUpdate,
    SgdUpdate,
    Update,
)

__all__ = [
    "Facts",
    "Recipe",
    "adaline_recipe",
    "constrained_recipe",
    "mcid_recipe",
    "olbfgs_recipe",
    "rls_recipe",
    "safe_start",
    "scheduled_recipe",
    "sgd_recipe",
]

# t0 of several lanes, in units of mean|x|^2 / alpha: docs/decisions/0003 has the measurements.
_SAFE_START = 0.3
# c of the SGD-QN paper's section 3: a dense part costs about as much as so many rows.
_SKIP = 16.0
# Of adaptive steps: docs/decisions/0011.
_ADAPTIVE = 0.5


def safe_start(mean_square_norm: float, alpha: float) -> float:
    """Return the start time t0 of several lanes, or of trained weights; `mean_square_norm` is mean_i |x_i|^2."""
    return _SAFE_START * mean_square_norm / alpha


@dataclass(frozen=True)
class Facts:
    """What steps depend on: the objective, and the rows in numbers.

    Attributes
    ----------
    loss, target : str
    alpha : float
    fit_intercept : bool
    n_outputs, n_features, n_rows, nnz : int
    mean_square_norm : float
        mean_i |x_i|^2.
    """

    loss: str
    target: str
    alpha: float
    fit_intercept: bool
    n_outputs: int
    n_features: int
    n_rows: int
    nnz: int
    mean_square_norm: float

    @classmethod
    def of(cls, problem: Problem, generated: int | None = None) -> Facts:
        """Return those of a problem; generated features, so many, are dense and of mean square one."""
        meta = problem.dataset.meta
        if generated is not None:
            return cls(
                problem.loss, problem.target, problem.alpha, problem.fit_intercept, problem.shape[1],
                generated, meta.n_rows, meta.n_rows * generated, float(generated),
            )  # fmt: skip
        return cls(
            problem.loss, problem.target, problem.alpha, problem.fit_intercept, problem.shape[1],
            meta.n_features, meta.n_rows, meta.nnz, meta.mean_square_norm,
        )  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """An update, and the values of its step that are to be tried before the first round.

    Attributes
    ----------
    first : Update
        With the first candidate, or with what was given.
    name : str
        Of the parameter that is tried: "t0" or "eta0".
    candidates : tuple of float
        Empty where nothing is tried.
    untried : float
        The one to take where nothing can be tried.
    spread : callable
        From the value that is best in one lane to that of all lanes.
    """

    first: Update
    name: str = ""
    candidates: tuple[float, ...] = ()
    untried: float = 0.0
    spread: Callable[[float], float] = float

    def alone(self, value: float) -> Update:
        """Return the update of a single lane with a candidate."""
        return self._with(value)

    def with_step(self, value: float) -> Update:
        """Return the update of all lanes with the chosen candidate."""
        return self._with(self.spread(value))

    def _with(self, value: float) -> Update:
        named: dict[str, Any] = {self.name: value}
        return replace(self.first, **named)


def _common(facts: Facts) -> dict[str, Any]:
    """Return what every update is told."""
    return {
        "loss": facts.loss,
        "single": facts.loss in BINARY_LOSSES and facts.target == "class" and facts.n_outputs == 2,
        "alpha": facts.alpha,
        "fit_intercept": facts.fit_intercept,
    }


# Each of the functions below takes the facts, all parameters of a method (resolved), the number of lanes, and whether
# weights are trained already.


def mcid_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return MCID's steps: from t0 = 0 (the paper) in one lane, and from where they are safe elsewhere.

    A step of 1/(alpha t) from t = 1 would erase a warm start; several lanes would each throw the weights to 1/alpha
    before they are first averaged.
    """
    t0 = params["t0"]
    if t0 is None:
        cold = not warm and n_lanes == 1
        t0 = 0.0 if cold else safe_start(facts.mean_square_norm, facts.alpha)
    update = SgdUpdate(
        **{**_common(facts), "single": False},  # the paper's weights: a column each, of two classes too
        t0=t0,
        batch_size=params["batch_size"],
        averaging=params["average"] != "none",
    )
    return Recipe(update)


def rls_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return the steps of recursive least squares, which are its own."""
    return Recipe(RlsUpdate(**_common(facts), n_rows=facts.n_rows))


def olbfgs_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return the steps of online L-BFGS, which are given."""
    steps = {name: params[name] for name in ("eta0", "tau", "damping", "rank")}
    return Recipe(OlbfgsUpdate(**_common(facts), **steps))


def scheduled_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return the steps of SVMSGD2 and SGD-QN."""
    density = facts.nnz / (facts.n_rows * facts.n_features)
    skip = params["skip"] or max(1, round(_SKIP / max(density, 1e-12)))
    metric = params.get("diagonal", "none")
    least = facts.mean_square_norm / facts.alpha
    update = ScheduledUpdate(**_common(facts), t0=least, skip=skip, metric=metric)
    if metric == "gauss-newton":
        # the accumulated curvature makes steps safe: t0 has only to keep the first rows from too large a one
        candidates = tuple(least * factor for factor in (1e-3, 1e-2, 3e-2, 1e-1, 1.0))
        return _tried(params, update, candidates, least, float)

    # half a decade apart; of P lanes t0 / P, where that is safe (docs/decisions/0003, SGD-QN notes)
    def spread(value: float) -> float:
        return max(value / n_lanes, min(value, least))

    candidates = tuple(least * 10 ** (step / 2) for step in range(-1, 5))
    return _tried(params, update, candidates, least, spread)


def _tried(
    params: dict[str, Any],
    update: ScheduledUpdate,
    candidates: tuple[float, ...],
    untried: float,
    spread: Callable[[float], float],
) -> Recipe:
    """Return a recipe with the t0 that is given, or one that tries some."""
    if params["t0"]:
        return Recipe(replace(update, t0=params["t0"]))
    return Recipe(update, "t0", candidates, untried, spread)


def sgd_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return plain steps, adaptive ones, or those on centred rows."""
    schedule, center = params["schedule"], params["center"]
    plain = {"average": "none", "batch_size": 1}
    if schedule == "adaptive":
        _refuse(params, {**plain, "switch": None, "center": "none"}, "schedule=adaptive")
        return Recipe(_adaptive(facts, params, n_lanes))
    if center == "none":
        update = SgdUpdate(
            **_common(facts), batch_size=params["batch_size"], averaging=params["average"] != "none"
        )
        return _by_schedule(update, facts, params, n_lanes)
    _refuse(params, plain, f"center={center}")
    if facts.loss != "squared":
        raise ParameterError(f"center={center}: for loss=squared only, here it is {facts.loss}")
    if not facts.fit_intercept:
        raise ParameterError(f"center={center}: centred data have an intercept; set fit_intercept=true")
    return _by_schedule(_mean_update("centre", facts, center, n_lanes), facts, params, n_lanes)


def constrained_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return steps that are projected on the models through the mean point."""
    return _by_schedule(_mean_update("project", facts, params["center"], n_lanes), facts, params, n_lanes)


def adaline_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return plain steps of least squares."""
    return _by_schedule(SgdUpdate(**_common(facts)), facts, params, n_lanes)


def _mean_update(mode: str, facts: Facts, center: str, n_lanes: int) -> MeanUpdate:
    common = {**_common(facts), "single": False}
    return MeanUpdate(**common, mode=mode, running=center == "running", lanes=n_lanes)


def _refuse(params: dict[str, Any], plain: dict[str, Any], because: str) -> None:
    """Refuse parameters that have other values than these."""
    for name, value in plain.items():
        if params[name] != value:
            raise ParameterError(f"{name}={params[name]}: not with {because}; leave it out")


def _adaptive(facts: Facts, params: dict[str, Any], n_lanes: int) -> AdaptiveUpdate:
    common = _common(facts)
    columns = 1 if common["single"] else facts.n_outputs
    size = math.sqrt(facts.mean_square_norm) or 1.0
    eta0 = params["eta0"] or _ADAPTIVE * math.sqrt(columns) * n_lanes ** (1 / 3) / size
    return AdaptiveUpdate(**common, eta0=eta0)


def _by_schedule(
    update: SgdUpdate | MeanUpdate, facts: Facts, params: dict[str, Any], n_lanes: int
) -> Recipe:
    """Return an update with steps that follow a schedule, of the size that is given or of sizes to be tried."""
    schedule, given = params["schedule"], params["eta0"]
    if given and facts.alpha * given >= 1.0:
        raise ParameterError(
            f"eta0={given}: times alpha={facts.alpha} it is 1 or more, which would erase the weights"
        )
    square = facts.mean_square_norm or 1.0
    candidates = tuple(4.0**power / square for power in range(-2, 5) if facts.alpha * 4.0**power < square)
    if schedule == "constant":
        candidates = tuple(value / 64 for value in candidates)
    switch = params["switch"] or max(facts.n_rows / n_lanes / 2, 1.0)
    update = replace(update, schedule=schedule, eta0=given or candidates[0], switch=switch)
    return Recipe(update) if given else Recipe(update, "eta0", candidates, candidates[1])
