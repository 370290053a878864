"""The steps of SVMSGD2 and SGD-QN: which metric, from which t0, and where sums of curvatures end.

What they do to a row is in `distls.workers.stochastic.second_order.sgdqn_kernels`.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distls.workers.losses.loss_registry import loss_named
from distls.workers.stochastic.second_order.sgdqn_kernels import METRICS, SgdqnSettings, sgdqn_block
from distls.workers.stochastic.step_choice import Candidate, ProblemStats, StepChoice, boldness
from distls.workers.stochastic.update import Arrays, KernelLearner, Update

# Of CAPPED, in passes: C / alpha is the number of rows by which a feature's steps are behind those of SVMSGD2.
_PASSES_LATE = 10.0
# How much higher the objective of CAPPED may be in a trial for it to be taken before plain steps: its own pay later.
_TIE = 1.03
# c of the SGD-QN paper's section 3: a dense update costs about as much as c rows of full density
_SKIP = 16.0
_LEAST_T0 = 1e-200  # of data that are not all zero


@dataclass(frozen=True)
class SgdqnUpdate(Update):
    """Steps in a diagonal metric, with dense updates every `skip` rows."""

    t0: float = 1.0
    skip: int = 16
    metric: str = "none"  # one of `METRICS`
    most: float = math.inf  # that C may grow to
    spread: float = 0.0  # or as many times what a row adds

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the diagonal, without rows if the metric has none."""
        if self.metric == "none":
            return (np.zeros((0, shape[1]), dtype),)
        return (np.full(shape, 1.0 / self.alpha if self.metric == "paper" else 0.0, dtype),)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner of a lane that has taken `time` steps."""
        own = tuple(array.copy() for array in arrays)
        steps = self.alpha, self.t0, self.skip, METRICS[self.metric], self.fit_intercept
        settings = SgdqnSettings(self.row_loss, *steps, self.most, self.spread)
        previous = own[0].copy() if self.metric == "secant" else own[0][:0]
        clock = np.array([float(time)])
        return _SgdqnLearner(settings, (*own, previous, clock), clock, len(own))


class _SgdqnLearner(KernelLearner):
    kernel = staticmethod(sgdqn_block)


def sgdqn_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return the steps of SVMSGD2 and SGD-QN, with the given t0 or with candidates to be tried."""
    # The share of non-zeros decides how many rows cost as much as a dense update.
    density = stats.nnz / (stats.n_rows * stats.n_features)
    skip = params["skip"] or max(1, round(_SKIP / max(density, 1e-12)))
    # 1 / (alpha t0) times the mean squared norm is then 1: a first step moves a score by about its gradient.
    steep = loss_named(stats.loss).slope_growth(stats.n_outputs)
    least = steep * stats.mean_square_norm / stats.alpha
    if least < _LEAST_T0:  # without features, or with all of them zero, any start serves
        least = 1.0
    metric, given = _metric(stats, params), params["t0"]
    update = SgdqnUpdate(**stats.objective(), t0=given or least, skip=skip, metric=metric)
    if metric == "capped":
        late = _PASSES_LATE * stats.alpha * stats.n_rows
        update = replace(update, most=late, spread=stats.nnz / stats.n_rows)
    if given:
        return StepChoice(update)
    # with P lanes t0 / P, where that is safe (docs/decisions/0003, SGD-QN notes): each sees a P-th of the rows, so its
    # steps may start larger, down to the limit of stability
    plain = {t0: max(t0 / n_lanes, min(t0, least)) for t0 in (least * 10 ** (half / 2) for half in range(-1, 5))}
    # the accumulated curvature makes later steps safe: t0 only has to bound the first ones
    bounding = {factor * least: factor * least for factor in (1e-3, 1e-2, 3e-2, 1e-1, 1.0)}
    starts = bounding if METRICS[metric] == METRICS["gauss-newton"] else plain
    # of few rows plain steps hardly get shorter, and must suit the others too
    bold = 1.0 if params.get("trial") == "same-rows" else boldness(stats.n_rows)
    shorter = bold if starts is plain else 1.0
    candidates = [
        Candidate({"t0": t0}, replace(update, t0=t0 / shorter), replace(update, t0=shared))
        for t0, shared in starts.items()
    ]
    # In fewer rows plain steps hardly get shorter, which pays where weights have far to go: classes told apart.
    if metric == "capped" and not params["diagonal"] and stats.n_rows < least:
        none = replace(update, metric="none")
        candidates += [
            Candidate({"t0": t0, "diagonal": "none"}, replace(none, t0=t0 / bold), replace(none, t0=shared), _TIE)
            for t0, shared in plain.items()
        ]
    # streams, which try nothing and end nobody knows when, have no cap
    default = update if params.get("diagonal") else replace(update, most=math.inf, spread=0.0)
    return StepChoice(default, tuple(candidates), params.get("trial") == "same-rows")


def _metric(stats: ProblemStats, params: dict[str, Any]) -> str:
    """Return the metric asked for, by default the one that suits the loss."""
    if "diagonal" not in params:
        return "none"
    # second derivatives of a hinge are zero: with them steps would be those of SVMSGD2
    default = "secant"
    if loss_named(stats.loss).smooth:
        default = "gauss-newton" if params["t0"] else "capped"
    return str(params["diagonal"] or default)
