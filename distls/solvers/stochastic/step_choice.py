"""From a method's parameters to what its lanes do: the steps, their defaults, and those that are to be tried."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from distls.problem import Problem
from distls.storage.errors import ParameterError
from distls.workers.losses.registry import loss_named
from distls.workers.stochastic.updates import (
    AdaptiveUpdate,
    MeanUpdate,
    OlbfgsUpdate,
    RlsUpdate,
    ScheduledUpdate,
    SgdUpdate,
    SplittingUpdate,
    Update,
)

__all__ = [
    "Candidate",
    "Facts",
    "Recipe",
    "adaline_recipe",
    "constrained_recipe",
    "fobos_recipe",
    "mcid_recipe",
    "olbfgs_recipe",
    "rls_recipe",
    "safe_start",
    "scheduled_recipe",
    "sgd_recipe",
    "trial_rows",
]

# t0 of several lanes, in units of mean|x|^2 / alpha: docs/decisions/0003 has the measurements.
_SAFE_START = 0.3
# c of the SGD-QN paper's section 3: a dense part costs about as much as so many rows.
_SKIP = 16.0
# Steps are tried on a tenth of the rows (SGD-QN paper, section 6), within these bounds.
_TRIAL_SHARE = 10
_LEAST_TRIAL_ROWS, _MOST_TRIAL_ROWS = 4096, 65_536
# Of adaptive steps: docs/decisions/0011 and 0018.
_ADAPTIVE, _ADAPTIVE_HINGE = 0.5, 0.25
# Of forward-backward splitting: powers of 4 that are tried, over mean|x|^2.
_SPLITTING_POWERS = range(-2, 5)


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
    penalty : str
    l1_ratio : float
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
    penalty: str = "l2"
    l1_ratio: float = 0.0

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
            meta.n_features, meta.n_rows, meta.nnz, meta.mean_square_norm, problem.penalty, problem.l1_ratio,
        )  # fmt: skip


class Candidate(NamedTuple):
    """A setting of steps that is tried before the first round.

    Attributes
    ----------
    setting : dict
        The parameters that are tried, as one may give them with one lane.
    alone : Update
        Of the trial: one lane over `trial_rows` rows.
    shared : Update
        Of all lanes.
    """

    setting: dict[str, Any]
    alone: Update
    shared: Update

    def __str__(self) -> str:
        """Tell the setting."""
        values = (f"{value:.6g}" if isinstance(value, float) else value for value in self.setting.values())
        return ", ".join(f"{name}={value}" for name, value in zip(self.setting, values, strict=True))


class Recipe(NamedTuple):
    """What lanes do: one update, which does without trial, or one of some candidates."""

    first: Update
    candidates: tuple[Candidate, ...] = ()


def trial_rows(n_rows: int) -> int:
    """Return how many rows steps are tried on, a tenth as a rule; as many more judge them."""
    return min(max(n_rows // _TRIAL_SHARE, _LEAST_TRIAL_ROWS), _MOST_TRIAL_ROWS, max(n_rows // 2, 1))


def _common(facts: Facts) -> dict[str, Any]:
    """Return what every update is told."""
    return {
        "loss": facts.loss,
        "single": loss_named(facts.loss).single_output is not None
        and facts.target == "class"
        and facts.n_outputs == 2,
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
    least = facts.mean_square_norm / facts.alpha
    metric, given = params.get("diagonal", "none"), params["t0"]
    update = ScheduledUpdate(**_common(facts), t0=given or least, skip=skip, metric=metric)
    if given:
        return Recipe(update)
    if metric == "gauss-newton":
        # the accumulated curvature makes steps safe: t0 has only to keep the first rows from too large a one
        starts = {factor * least: factor * least for factor in (1e-3, 1e-2, 3e-2, 1e-1, 1.0)}
    else:
        # half a decade apart; of P lanes t0 / P, where that is safe (docs/decisions/0003, SGD-QN notes)
        alone = (least * 10 ** (half / 2) for half in range(-1, 5))
        starts = {t0: max(t0 / n_lanes, min(t0, least)) for t0 in alone}
    return Recipe(
        update,
        tuple(
            Candidate({"t0": t0}, replace(update, t0=t0), replace(update, t0=shared))
            for t0, shared in starts.items()
        ),
    )


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


def fobos_recipe(facts: Facts, params: dict[str, Any], n_lanes: int, *, warm: bool) -> Recipe:
    """Return steps of forward-backward splitting, of the size that is given or of sizes to be tried."""
    update = SplittingUpdate(**_common(facts), penalty=facts.penalty, l1_ratio=facts.l1_ratio)
    curvature, given = facts.mean_square_norm or 1.0, params["eta0"]
    if given:
        return Recipe(replace(update, eta0=given))
    if facts.loss == "multiclass_squared_hinge":
        curvature *= facts.n_outputs  # the slope of a row's own class is a sum over all others
    updates = [replace(update, eta0=4.0**power / curvature) for power in _SPLITTING_POWERS]
    candidates = tuple(Candidate({"eta0": each.eta0}, each, each) for each in updates)
    return Recipe(updates[len(updates) // 2], candidates)


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
    size = math.sqrt(facts.mean_square_norm) or 1.0
    if facts.loss == "crammer_singer":  # has slopes of two outputs, however many there are
        scale = _ADAPTIVE_HINGE * max(facts.n_rows / 1e4, 1.0) ** 0.25
    else:
        scale = _ADAPTIVE * math.sqrt(1 if common["single"] else facts.n_outputs)
    score_step = scale * n_lanes ** (1 / 3)
    eta0 = params["eta0"] or score_step / size
    return AdaptiveUpdate(**common, eta0=eta0, eta_b=params["eta0"] or score_step)


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
    finest = 64.0 if schedule == "constant" else 1.0
    sizes = [4.0**power / square / finest for power in range(-2, 5) if facts.alpha * 4.0**power < square]
    if given or not sizes:
        sizes = [given or 0.5 / facts.alpha]
    switch = params["switch"] or max(facts.n_rows / n_lanes / 2, 1.0)
    update = replace(update, schedule=schedule, eta0=sizes[0], switch=switch)
    candidates = [
        Candidate({"eta0": eta0}, _on_trial(update, facts, params, eta0), replace(update, eta0=eta0))
        for eta0 in sizes
    ]
    first = candidates[min(1, len(sizes) - 1)].shared
    return Recipe(first, tuple(candidates) if len(sizes) > 1 else ())


def _on_trial(
    update: SgdUpdate | MeanUpdate, facts: Facts, params: dict[str, Any], eta0: float
) -> SgdUpdate | MeanUpdate:
    """Return the update of one lane over fewer rows; the second phase starts half-way there too."""
    switch = params["switch"] or max(trial_rows(facts.n_rows) / 2, 1.0)
    trial = replace(update, eta0=eta0, switch=switch)
    return replace(trial, lanes=1) if isinstance(trial, MeanUpdate) else trial
