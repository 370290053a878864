"""Stochastic gradients: MCID and its one-versus-rest variants, SGD, ASGD and Adaline (`sgd_kernels`), and AdaGrad.

MCID is Algorithm 1 of its paper; SGD, ASGD and Adaline are the comparators of the constrained SGD paper, section 5.
AdaGrad's steps (Duchi, Hazan, Singer 2011) are those of `adagrad_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.storage.rows import Rows
from distls.workers.losses.loss_registry import loss_named
from distls.workers.simd.adaptive_steps import MODELS_PER_LINE
from distls.workers.stochastic.adagrad_kernels import AdagradSettings, adagrad_block, new_decay, settle
from distls.workers.stochastic.adagrad_together import MOST_OUTPUTS, AdagradLines, lines_bytes
from distls.workers.stochastic.constrained_sgd import centred_steps
from distls.workers.stochastic.sgd_kernels import (
    PEGASOS,
    SIGMA,
    H,
    SgdSettings,
    T,
    fold,
    new_clock,
    scaled,
    sgd_block,
    window_sum,
)
from distls.workers.stochastic.sgd_together import MOST_MODELS, SgdSideBySide, fits_side_by_side, side_by_side_bytes
from distls.workers.stochastic.step_choice import (
    ProblemStats,
    StepChoice,
    choose_by_schedule,
    refuse_params,
    refuse_spectrum,
)
from distls.workers.stochastic.step_sizes import schedule_code
from distls.workers.stochastic.update import LEAST_JOINT, Arrays, KernelLearner, Learner, ScheduleUpdate, Update

# t0 of several lanes, in units of mean|x|^2 / alpha (measurements: docs/decisions/0003)
_SAFE_START = 0.3


@dataclass(frozen=True)
class SgdUpdate(ScheduleUpdate):
    """Plain stochastic gradients on lazily scaled weights."""

    schedule: str = "pegasos"  # "pegasos" (MCID's 1/(alpha (t + t0))) or one of `SCHEDULES`
    t0: float = 0.0
    batch_size: int = 1
    averaging: bool = False  # whether the mean of the iterates in a window is kept
    ball: bool = False  # whether every step ends on the ball of radius 1/sqrt(alpha)

    def joint_bytes(self, shape: tuple[int, int], dtype: Any, learners: int) -> int:
        # Others would not have the bits of `sgd_block` side by side.
        if self.ball or not fits_side_by_side(shape[1], dtype, self.batch_size):
            return 0
        return side_by_side_bytes(*shape, learners, dtype.itemsize, averaging=self.averaging)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> SgdLearner:
        """Return the learner of a lane that has taken `time` steps."""
        return SgdLearner.of(self, arrays, time, tail_from)

    def settings(self, tail_from: float) -> SgdSettings:
        """Return the settings of the kernel."""
        schedule = PEGASOS if self.schedule == "pegasos" else schedule_code(self.schedule)
        steps = self.t0, self.eta0, self.switch, self.batch_size, self.fit_intercept
        return SgdSettings(self.row_loss, self.alpha, schedule, *steps, tail_from if self.averaging else math.inf)

    def scale(self, clock: NDArray[np.float64]) -> float:
        """Return sigma of ``W = sigma U``."""
        if self.schedule != "pegasos":
            return float(clock[SIGMA])
        # Not stored but a function of time, so it needs no digits of its own and no folding.
        time = clock[T] + self.t0
        return 1.0 / (self.alpha * time) if time > 0 else 0.0


@dataclass
class SgdLearner(Learner):
    """A lane of `SgdUpdate`; its arrays are those of `sgd_block`."""

    most_joint: ClassVar[int] = MOST_MODELS
    update: SgdUpdate
    u: NDArray[Any]  # (n_features, n_columns)
    q: NDArray[Any]  # as `u`; without rows if nothing is averaged
    b: NDArray[np.float64]  # (n_columns,)
    qb: NDArray[np.float64]  # (n_columns,)
    clock: NDArray[np.float64]
    tail_from: float  # time at which the averaging window starts

    @classmethod
    def of(cls, update: SgdUpdate, arrays: Arrays, time: float, tail_from: float) -> Self:
        """Start from plain arrays."""
        clock = new_clock()
        clock[T] = time
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is the loop's to report
            # U = alpha (t + t0) W, so W(0) is multiplied by it.
            scale = update.alpha * (time + update.t0) if update.schedule == "pegasos" else 1.0
            u = arrays[0] * arrays[0].dtype.type(scale)
        q = np.zeros(u.shape if update.averaging else (0, u.shape[1]), u.dtype)
        b = arrays[1].astype(np.float64)
        return cls(update, u, q, b, np.zeros(len(b)), clock, tail_from)

    def learn(
        self, x: Rows, y: NDArray[Any], weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        settings, size, ball = self.update.settings(self.tail_from), self.update.batch_size, self.update.ball
        loss, errors = 0.0, 0
        for rows in np.split(order, range(size, len(order), size)) if ball else [order]:
            found = sgd_block(x, y, weight, rows, self.u, self.q, self.b, self.qb, self.clock, settings)
            loss, errors = loss + found[0], errors + int(found[1])
            if ball:
                self.project()
        return loss, errors

    def project(self) -> None:
        """Put W back onto the ball of Pegasos; of one-versus-rest losses each class onto one of its own."""
        sigma, h = self.update.scale(self.clock), self.clock[H]
        norms = sigma * np.sqrt(np.einsum("jc,jc->c", self.u, self.u, dtype=np.float64))
        if not self.update.row_loss.separable:
            norms[:] = np.linalg.norm(norms)
        shares = 1.0 / np.maximum(norms * math.sqrt(self.update.alpha), 1.0)
        if shares.min() < 1.0:
            # the window's sum has this step's W already, which is replaced: all but that goes into Q
            self.clock[H] = min(h, sigma)
            for c, share in enumerate(shares):
                fold(self.u, self.q, h - self.clock[H], share, c, c + 1)

    @property
    def batch_key(self) -> tuple[Any, ...] | None:
        own = self.update
        if own.ball or not fits_side_by_side(self.u.shape[1], self.u.dtype, own.batch_size):
            return None
        settings = own.schedule, own.fit_intercept, type(own.row_loss), self.tail_from
        return *settings, self.u.shape, self.q.shape, self.u.dtype, self.time

    def joint(self, learners: Sequence[Any]) -> SgdSideBySide:
        return SgdSideBySide(learners, [each.update.settings(each.tail_from) for each in learners])

    def arrays(self) -> Arrays:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled(self.u, self.update.scale(self.clock), out=self.u)
        return self.u, self.b

    def snapshot(self) -> Arrays:
        with np.errstate(over="ignore", invalid="ignore"):
            return scaled(self.u, self.update.scale(self.clock)), self.b.copy()

    @property
    def window_steps(self) -> float:
        """Iterates in the averaging window so far."""
        return max(self.time - self.tail_from, 0.0) if self.update.averaging else 0.0

    def window(self, *, consume: bool = False) -> Arrays:
        """Return the mean (weights, intercept) of the window's iterates, at least one; `consume` spares a copy."""
        # Q is overwritten by the mean, which a learner at its end can afford.
        q = self.q if consume else self.q.copy()
        window_sum(self.u, q, self.clock)
        q *= q.dtype.type(1.0 / self.window_steps)
        return q, self.qb / self.window_steps

    def new_window(self) -> None:
        """Start a window here."""
        self.tail_from = self.time
        # The sums restart; U and the clock go on.
        self.clock[H] = 0.0
        self.q[...], self.qb[...] = 0.0, 0.0


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
        if self.settings.alpha:
            settle(weights, squares, decay, self.time, self.settings)
        return super().arrays()


def safe_start(mean_square_norm: float, alpha: float) -> float:
    """Return the start time t0 of several lanes, or of trained weights; `mean_square_norm` is mean_i |x_i|^2."""
    return _SAFE_START * mean_square_norm / alpha


def mcid_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return MCID's steps: from t0 = 0 (the paper) for a cold start in one lane, else from `safe_start`."""
    t0 = params["t0"]
    if t0 is None:
        # a step of 1/(alpha t) from t = 1 would erase a warm start; several lanes would each throw the weights to
        # 1/alpha before they are first averaged
        cold = not warm and n_lanes == 1
        t0 = 0.0 if cold else safe_start(stats.mean_square_norm, stats.alpha)
    averaging, ball = params["average"] != "none", bool(params.get("ball"))
    if ball and loss_named(stats.loss).smooth:
        raise ParameterError(
            "ball=true: of hinges and the perceptron, as other losses may have their optimum outside; leave it out"
        )
    update = SgdUpdate(**stats.objective(), t0=t0, batch_size=params["batch_size"], averaging=averaging, ball=ball)
    return StepChoice(update)


def sgd_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return the steps of `sgd`: plain, adaptive, or on centred rows."""
    schedule, center = params["schedule"], params["center"]
    plain = {"average": "none", "batch_size": 1}
    if schedule == "adaptive":
        # Options that AdaGrad's kernel does not have are refused, not ignored.
        refuse_params(params, {**plain, "switch": None, "center": "none"}, "schedule=adaptive")
        refuse_spectrum(params, "schedule=adaptive")
        return adagrad_steps(stats, params, n_lanes, warm=warm)
    if center != "none":
        refuse_params(params, plain, f"center={center}")
        if stats.target == "multilabel":
            raise ParameterError(f"center={center}: not with sets of labels; leave it out")
        return centred_steps(stats, params, n_lanes)
    update = SgdUpdate(**stats.objective(), batch_size=params["batch_size"], averaging=params["average"] != "none")
    return choose_by_schedule(update, stats, params, n_lanes)


def adagrad_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return AdaGrad's steps; their size in the scores is known in advance, so none are tried."""
    objective, size = stats.objective(), math.sqrt(stats.mean_square_norm) or 1.0
    # With P lanes the average moves by the mean of P steps, so longer ones are safe.
    score_step = loss_named(stats.loss).score_step(stats.n_outputs, stats.n_rows) * n_lanes ** (1 / 3)
    eta0 = params["eta0"] or score_step / size
    return StepChoice(AdagradUpdate(**objective, eta0=eta0, eta_b=params["eta0"] or score_step))


def adaline_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return plain steps of least squares."""
    return choose_by_schedule(SgdUpdate(**stats.objective()), stats, params, n_lanes)
