"""AdaGrad's steps (Duchi, Hazan, Singer 2011): state, lanes and sizes of steps (kernels: `adagrad_kernels`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distls.workers.losses.loss_registry import loss_named
from distls.workers.simd.adaptive_steps import MODELS_PER_LINE
from distls.workers.stochastic.adagrad_kernels import AdagradSettings, adagrad_block, new_decay, settle
from distls.workers.stochastic.adagrad_together import MOST_OUTPUTS, AdagradLines, lines_bytes
from distls.workers.stochastic.step_choice import ProblemStats, StepChoice
from distls.workers.stochastic.update import LEAST_JOINT, Arrays, KernelLearner, Update


@dataclass(frozen=True)
class AdagradUpdate(Update):
    """AdaGrad steps with one accumulator for each feature."""

    eta0: float = 1.0  # of the weights
    eta_b: float = 1.0  # of the intercept

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the accumulators of features and intercept."""
        return np.zeros(shape[0], dtype), np.zeros(1)

    def joint_bytes(self, shape: tuple[int, int], dtype: Any, learners: int) -> int:
        # With many outputs a model fills the vectors alone, and a few learners are as fast one after the other.
        if not self.alpha or shape[1] > MOST_OUTPUTS or learners < LEAST_JOINT:
            return 0
        return lines_bytes(*shape, learners, dtype.itemsize)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner of a lane that has taken `time` steps."""
        # Copies: the averaged arrays are read by other lanes of this process.
        own = tuple(array.copy() for array in arrays)
        settings = AdagradSettings(self.row_loss, self.eta0, self.eta_b, self.alpha, self.fit_intercept)
        decay, clock = new_decay(len(own[0]), self.alpha, time, own[0].dtype), np.array([float(time)])
        return _AdagradLearner(settings, (*own, decay, clock), clock, len(own))


class _AdagradLearner(KernelLearner):
    kernel = staticmethod(adagrad_block)
    most_joint = MODELS_PER_LINE

    @property
    def batch_key(self) -> tuple[Any, ...] | None:
        settings, weights = self.settings, self.state[0]
        if not settings.alpha or weights.shape[1] > MOST_OUTPUTS:
            return None
        return settings.fit_intercept, type(settings.loss), weights.shape, weights.dtype, self.time

    def joint(self, learners: Sequence[Any]) -> AdagradLines:
        return AdagradLines([each.state for each in learners], [each.settings for each in learners])

    def arrays(self) -> Arrays:
        """Return weights, intercept and accumulators, all decay applied."""
        # Pending decay is applied before averaging: factors and times belong to one lane, and have no mean.
        weights, _, squares, _, decay, _ = self.state
        settle(weights, squares, decay, self.time, self.settings)
        return super().arrays()


def adagrad_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return AdaGrad's steps; their size in the scores is known in advance, so none are tried."""
    objective, size = stats.objective(), math.sqrt(stats.mean_square_norm) or 1.0
    # With P lanes the average moves by the mean of P steps, so longer ones are safe.
    score_step = loss_named(stats.loss).score_step(stats.n_outputs, stats.n_rows) * n_lanes ** (1 / 3)
    eta0 = params["eta0"] or score_step / size
    return StepChoice(AdagradUpdate(**objective, eta0=eta0, eta_b=params["eta0"] or score_step))
