"""SVMSGD2 and SGD-QN: steps in a diagonal metric, with dense updates every `skip` rows (kernel: `sgdqn_kernels`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distls.workers.losses.registry import loss_named
from distls.workers.stochastic.sgdqn_kernels import sgdqn_block, sgdqn_settings
from distls.workers.stochastic.step_choice import Candidate, ProblemStats, StepChoice
from distls.workers.stochastic.update import Arrays, KernelLearner, Update

__all__ = ["SgdqnUpdate", "sgdqn_steps"]

# c of the SGD-QN paper's section 3: a dense update costs about as much as c rows of full density
_SKIP = 16.0
_LEAST_T0 = 1e-200  # of data that are not all zero


@dataclass(frozen=True)
class SgdqnUpdate(Update):
    """Steps in a diagonal metric, with dense updates every `skip` rows."""

    t0: float = 1.0
    skip: int = 16
    metric: str = "none"  # one of `METRICS`

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the diagonal, without rows if the metric has none."""
        if self.metric == "none":
            return (np.zeros((0, shape[1]), dtype),)
        return (np.full(shape, 1.0 / self.alpha if self.metric == "paper" else 0.0, dtype),)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner of a lane that has taken `time` steps."""
        own = tuple(array.copy() for array in arrays)
        settings = sgdqn_settings(
            self.row_loss, self.alpha, self.t0, self.skip, metric=self.metric, fit_intercept=self.fit_intercept
        )  # fmt: skip
        previous = own[0].copy() if self.metric == "secant" else own[0][:0]
        clock = np.array([float(time)])
        return _SgdqnLearner(settings, (*own, previous, clock), clock, len(own))


class _SgdqnLearner(KernelLearner):
    kernel = staticmethod(sgdqn_block)


def sgdqn_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return the steps of SVMSGD2 and SGD-QN, with the given t0 or with candidates to be tried."""
    density = stats.nnz / (stats.n_rows * stats.n_features)
    skip = params["skip"] or max(1, round(_SKIP / max(density, 1e-12)))
    least = stats.mean_square_norm / stats.alpha
    if least < _LEAST_T0:  # without features, or with all of them zero, any start serves
        least = 1.0
    metric, given = _metric(stats, params), params["t0"]
    update = SgdqnUpdate(**stats.objective(), t0=given or least, skip=skip, metric=metric)
    if given:
        return StepChoice(update)
    if metric == "gauss-newton":
        # the accumulated curvature makes later steps safe: t0 only has to bound the first ones
        starts = {factor * least: factor * least for factor in (1e-3, 1e-2, 3e-2, 1e-1, 1.0)}
    else:
        # a grid of half decades; with P lanes t0 / P, where that is safe (docs/decisions/0003, SGD-QN notes)
        alone = (least * 10 ** (half / 2) for half in range(-1, 5))
        starts = {t0: max(t0 / n_lanes, min(t0, least)) for t0 in alone}
    candidates = (
        Candidate({"t0": t0}, replace(update, t0=t0), replace(update, t0=shared))
        for t0, shared in starts.items()
    )
    return StepChoice(update, tuple(candidates))


def _metric(stats: ProblemStats, params: dict[str, Any]) -> str:
    """Return the metric asked for, by default the one that suits the loss."""
    if "diagonal" not in params:
        return "none"
    # second derivatives of a hinge are zero: with them steps would be those of SVMSGD2
    default = "gauss-newton" if loss_named(stats.loss).smooth else "secant"
    return str(params["diagonal"] or default)
