"""CSGD, NCSGD, C-Adaline and centred SGD: least squares that uses the mean (kernel: `constrained_sgd_kernels`).

The first three are Algorithms 1 and 2 of the constrained SGD paper.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from distls.storage.errors import ParameterError
from distls.workers.losses.loss_registry import loss_named, losses_with
from distls.workers.stochastic.constrained_sgd_kernels import (
    MASS,
    MODES,
    OUTPUT_SIZE,
    PRODUCTS,
    PROJECT,
    SCALE,
    SQUARE,
    TARGETS,
    B,
    ConstrainedSettings,
    T,
    constrained_block,
    fold,
)
from distls.workers.stochastic.step_choice import ProblemStats, StepChoice, choose_by_schedule, refuse_spectrum
from distls.workers.stochastic.step_sizes import schedule_code
from distls.workers.stochastic.update import Arrays, KernelLearner, Model, ScheduleUpdate

Floats = NDArray[np.floating[Any]]


class MeanLane(NamedTuple):
    """The arrays of a lane, in the order in which `constrained_block` takes them."""

    v: Floats  # (d, k), float32 or float64, C-ordered
    outputs: NDArray[np.float64]  # (k, 4): the columns a, b, Y, S.W
    s: NDArray[np.float64]  # (d,)
    clock: NDArray[np.float64]  # (4,): rows seen, N, |S|^2, sigma


class MeanModel(NamedTuple):
    """A model in plain form, from which lanes start and which is averaged over them."""

    w: Floats  # (d, k), of V's type
    b: NDArray[np.float64]  # (k,)
    mean_x: NDArray[np.float64]  # (d,), the running mean or the fixed one
    mean_y: NDArray[np.float64]  # (k,)
    t: float = 0.0  # rows seen: the time of the schedule
    mass: float = 0.0  # N, the weight of the running mean; 1 for a fixed mean


def new_mean_lane(model: MeanModel, settings: ConstrainedSettings, dtype: DTypeLike | None = None) -> MeanLane:
    """Return the lane that starts from a model, which is copied; with V of another type if one is given.

    The weights are not projected before the first step. ``model.b`` is read by mode `PROJECT` with an intercept only:
    in mode `CENTRE` the means have it.
    """
    # A fixed mean does not grow, and its mass cancels.
    mass = float(model.mass) if settings.running else 1.0
    # V starts as W: sigma is 1 and a is 0.
    v = np.array(model.w, dtype or model.w.dtype, order="C")
    # S and Y are sums, so a mean is multiplied by its mass.
    outputs, s = np.zeros((len(model.b), OUTPUT_SIZE)), mass * np.asarray(model.mean_x, np.float64)
    outputs[:, B] = model.b if settings.fit_intercept else 0.0
    outputs[:, TARGETS] = mass * np.asarray(model.mean_y, np.float64)
    square = fold(v, outputs, s, 1.0)
    # Whole rows seen: the schedule of folds counts them exactly.
    return MeanLane(v, outputs, s, np.array([math.floor(model.t), mass, square, 1.0]))


def weights_from_mean_lane(lane: MeanLane, settings: ConstrainedSettings) -> MeanModel:
    """Fold a lane, which may go on from there, and return its model, which shares V with it."""
    v, outputs, s, clock = lane
    clock[SQUARE], clock[SCALE] = fold(v, outputs, s, clock[SCALE]), 1.0
    t, mass = float(clock[T]), float(clock[MASS])
    # Without any mass there is no mean yet.
    share = 1.0 / mass if mass > 0 else 0.0
    mean_y = share * outputs[:, TARGETS]
    # in mode CENTRE the intercept is mean_y - w^T mean_x, and PRODUCTS is S.W
    b = outputs[:, B].copy() if settings.mode == PROJECT else mean_y - share * outputs[:, PRODUCTS]
    return MeanModel(v, b, share * s, mean_y, t, mass)


@dataclass(frozen=True)
class ConstrainedUpdate(ScheduleUpdate):
    """Least squares that uses the mean of the data.

    Lanes average the means of rows and of targets, and the mass of a lane's own mean: the mass of the common mean is
    that average times the number of lanes.
    """

    mode: str = "project"  # "project" or "centre"
    running: bool = True  # use the mean of the rows so far; else that of all rows, given with the arrays
    lanes: int = 1

    @property
    def needs_mean(self) -> bool:
        """Whether the mean is fixed, that of all rows."""
        return not self.running

    @property
    def meets_mean(self) -> bool:
        return self.mode == "project"

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the mean row, the mean target, and their mass."""
        return np.zeros(shape[0]), np.zeros(shape[1]), np.zeros(1)

    def with_mean(self, arrays: Arrays, mean_x: NDArray[np.float64], mean_y: NDArray[np.float64]) -> Arrays:
        """Return the arrays with the mean of all rows and of their targets."""
        return (*arrays[:2], mean_x, mean_y, arrays[4])

    def for_one_lane(self) -> Self:
        """Return the update of a lane whose mean is that of its own rows."""
        return replace(self, lanes=1)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner of a lane that has taken `time` steps."""
        steps = schedule_code(self.schedule), self.switch, self.alpha, self.fit_intercept
        mode = MODES[self.mode]
        settings = ConstrainedSettings(mode, self.eta0, self.row_loss, self.running, *steps)
        weights, intercept, mean_x, mean_y, mass = arrays
        # The mean continues with the mass of all lanes, not of one: else it would move P times too fast.
        total_mass = float(mass[0]) * self.lanes if self.running else 1.0
        # A lane's own contribution is what exceeds the others' mass when it ends.
        lane = new_mean_lane(MeanModel(weights, intercept, mean_x, mean_y, time, total_mass), settings)
        others_mass = float(mass[0]) * (self.lanes - 1) if self.running else 0.0
        return _ConstrainedLearner(settings, lane, lane.clock, len(arrays), others_mass)

    def model(self, arrays: Arrays) -> Model:
        weights, intercept = arrays[:2]
        # the mean of the lanes' intercepts is not the intercept of their mean weights at the mean row
        if self.mode == "centre":
            intercept = arrays[3] - np.add.reduce(arrays[2][:, None] * weights.astype(np.float64), axis=0)
        return weights, intercept if self.fit_intercept else np.zeros_like(intercept)


@dataclass
class _ConstrainedLearner(KernelLearner):
    kernel = staticmethod(constrained_block)
    others_mass: float  # the part of the mean's mass that comes from rows of other lanes

    def arrays(self) -> Arrays:
        """Return weights, intercept, the mean and its mass due to this lane."""
        # Only the rows of this lane count, so that the mass of the average, times the lanes, is the mass of all rows.
        own_mass = float(self.clock[MASS]) - self.others_mass
        model = weights_from_mean_lane(MeanLane(*self.state), self.settings)
        return model.w, model.b, model.mean_x, model.mean_y, np.array([own_mass])


def constrained_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return steps that are projected onto the models through the mean point."""
    return _steps("project", stats, params, n_lanes)


def centred_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int) -> StepChoice:
    """Return steps of `sgd` on centred rows; raise ParameterError without the squared loss or an intercept."""
    center = params["center"]
    refuse_spectrum(params, f"center={center}")
    if not loss_named(stats.loss).quadratic:
        suitable = " or ".join(f"loss={name}" for name in losses_with(quadratic=True))
        raise ParameterError(f"center={center}: for {suitable} only, here it is {stats.loss}")
    if not stats.fit_intercept:
        raise ParameterError(f"center={center}: centred data have an intercept; set fit_intercept=true")
    return _steps("centre", stats, params, n_lanes)


def _steps(mode: str, stats: ProblemStats, params: dict[str, Any], n_lanes: int) -> StepChoice:
    running = params["center"] == "running"
    update = ConstrainedUpdate(**stats.objective(), mode=mode, running=running, lanes=n_lanes)
    return choose_by_schedule(update, stats, params, n_lanes)
