"""The stochastic methods as a lane sees them: one `Update` a method, whose `Learner` goes through rows.

What lanes average between rounds is a tuple of plain arrays: the weights (n_features, n_columns), the intercept
(n_columns,), and what else the method averages. A learner starts from them, at its lane's own time, and gives them
back; in between it may hold them in any form. Data of two classes need one column in one-versus-rest losses: see
`distls.workers.losses.loss.Loss.single_output`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.losses.registry import row_loss_for
from distls.workers.penalties.registry import penalty_value
from distls.workers.stochastic.adagrad_kernels import adaptive_block, adaptive_settings, new_decay, settle
from distls.workers.stochastic.constrained_sgd_kernels import (
    MASS,
    MODES,
    MeanLane,
    MeanModel,
    mean_block,
    mean_settings,
    new_mean_lane,
    weights_from_mean_lane,
)
from distls.workers.stochastic.fobos_kernels import (
    Shrinkage,
    SplittingSettings,
    new_shrinkage,
    shrink_all,
    splitting_block,
    splitting_settings,
)
from distls.workers.stochastic.second_order_kernels import (
    new_olbfgs,
    new_rls,
    olbfgs_block,
    olbfgs_settings,
    rls_block,
    rls_settings,
)
from distls.workers.stochastic.sgd_kernels import (
    PEGASOS,
    SIGMA,
    H,
    T,
    new_clock,
    scaled,
    sgd_block,
    sgd_settings,
    window_mean,
)
from distls.workers.stochastic.sgdqn_kernels import scheduled_block, scheduled_settings
from distls.workers.stochastic.step_sizes import SCHEDULES

__all__ = [
    "AdaptiveUpdate",
    "Arrays",
    "Learner",
    "MeanUpdate",
    "OlbfgsUpdate",
    "RlsUpdate",
    "ScheduledUpdate",
    "SgdLearner",
    "SgdUpdate",
    "SplittingUpdate",
    "Update",
    "one_row",
]

Arrays = tuple[NDArray[Any], ...]
Model = tuple[NDArray[Any], NDArray[np.float64]]


class Learner(Protocol):
    """A lane's arrays on their way through its rows."""

    @property
    def time(self) -> float:
        """Steps the lane has taken, in earlier rounds too."""
        ...

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`; return (sum of s_i * loss_i before each row's own step, errors)."""
        ...

    def arrays(self) -> Arrays:
        """Return the arrays to be averaged; the learner is of no use afterwards."""
        ...

    def peek(self) -> Arrays:
        """Return copies of the arrays; the learner goes on."""
        ...


@dataclass(frozen=True)
class Update:
    """What all lanes share of a method; small, and sent with every task.

    Attributes
    ----------
    loss : str
        Full loss name.
    single : bool
        Whether two classes have one column.
    alpha : float
    fit_intercept : bool
    """

    loss: str
    single: bool
    alpha: float
    fit_intercept: bool

    @property
    def row_loss(self) -> Any:
        """What kernels are given."""
        return row_loss_for(self.loss, single=self.single)

    def zeros(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the arrays of zero weights; `shape` is that of the model's weights."""
        columns = 1 if self.single else shape[1]
        return (
            np.zeros((shape[0], columns), dtype),
            np.zeros(columns),
            *self.others((shape[0], columns), dtype),
        )

    def others(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return what the method averages beside weights and intercept, before the first row."""
        return ()

    def bytes_of(self, shape: tuple[int, int], dtype: Any) -> int:
        """Return the size of `zeros`, without making them: in all methods but one proportional to the features."""
        one = sum(array.nbytes for array in self.zeros((1, shape[1]), dtype))
        return shape[0] * one

    def sent_bytes(self, shape: tuple[int, int], dtype: Any) -> int:
        """Return the exact size of `zeros`, without making them: of second degree in the features at most."""
        one, two, three = (sum(a.nbytes for a in self.zeros((n, shape[1]), dtype)) for n in (1, 2, 3))
        more = shape[0] - 1
        return one + more * (two - one) + more * (more - 1) // 2 * (three - 2 * two + one)

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner of a lane that has taken `time` steps; `arrays` are only read."""
        raise NotImplementedError

    def model(self, arrays: Arrays) -> Model:
        """Return the weights (n_features, n_outputs) and the intercept of the model."""
        weights, intercept = arrays[:2]
        if self.single:
            weights, intercept = np.hstack([-weights, weights]), np.hstack([-intercept, intercept])
        return weights, intercept if self.fit_intercept else np.zeros_like(intercept)

    def penalty_of(self, weights: NDArray[Any]) -> float:
        """Return R of the model's weights."""
        return penalty_value("l2", weights, 0.0)

    def start_from(self, weights: NDArray[Any], intercept: NDArray[Any], arrays: Arrays) -> None:
        """Write a model's weights into the arrays."""
        if self.single:
            weights, intercept = (weights[:, 1:] - weights[:, :1]) / 2, (intercept[1:] - intercept[:1]) / 2
        arrays[0][...] = weights
        if self.fit_intercept:
            arrays[1][...] = intercept


@dataclass(frozen=True)
class SgdUpdate(Update):
    """Plain stochastic gradients on lazily scaled weights: `distls.workers.stochastic.sgd_kernels`.

    Attributes
    ----------
    schedule : str
        "pegasos" (MCID's 1/(alpha (t + t0))) or one of `SCHEDULES`.
    t0, eta0, switch : float
    batch_size : int
    averaging : bool
        Whether the mean of the iterates in a window is kept.
    """

    schedule: str = "pegasos"
    t0: float = 0.0
    eta0: float = 1.0
    switch: float = math.inf
    batch_size: int = 1
    averaging: bool = False

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> SgdLearner:
        """Return the learner of a lane that has taken `time` steps."""
        return SgdLearner.of(self, arrays, time, tail_from)

    def settings(self, tail_from: float) -> Any:
        """Return what the kernel is told."""
        return sgd_settings(
            self.row_loss,
            self.alpha,
            schedule=PEGASOS if self.schedule == "pegasos" else SCHEDULES[self.schedule],
            t0=self.t0,
            eta0=self.eta0,
            switch=self.switch,
            batch_size=self.batch_size,
            fit_intercept=self.fit_intercept,
            tail_from=tail_from if self.averaging else math.inf,
        )

    def scale(self, clock: NDArray[np.float64]) -> float:
        """Return sigma, by which W is more than U."""
        if self.schedule != "pegasos":
            return float(clock[SIGMA])
        time = clock[T] + self.t0
        return 1.0 / (self.alpha * time) if time > 0 else 0.0


@dataclass
class SgdLearner:
    """A lane of `SgdUpdate`.

    Attributes
    ----------
    update : SgdUpdate
    u, q : arrays of shape (n_features, n_columns)
        As `sgd_block` has them; q without rows where nothing is averaged.
    b, qb : float64 arrays of shape (n_columns,)
    clock : float64 array
    tail_from : float
        The time at which the averaging window starts.
    """

    update: SgdUpdate
    u: NDArray[Any]
    q: NDArray[Any]
    b: NDArray[np.float64]
    qb: NDArray[np.float64]
    clock: NDArray[np.float64]
    tail_from: float

    @classmethod
    def of(cls, update: SgdUpdate, arrays: Arrays, time: float, tail_from: float) -> Self:
        """Start from plain arrays."""
        clock = new_clock()
        clock[T] = time
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is the loop's to report
            scale = update.alpha * (time + update.t0) if update.schedule == "pegasos" else 1.0
            u = arrays[0] * arrays[0].dtype.type(scale)
        q = np.zeros(u.shape if update.averaging else (0, u.shape[1]), u.dtype)
        b = arrays[1].astype(np.float64)
        return cls(update, u, q, b, np.zeros(len(b)), clock, tail_from)

    @property
    def time(self) -> float:
        """Steps the lane has taken."""
        return float(self.clock[T])

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`."""
        settings = self.update.settings(self.tail_from)
        loss, errors = sgd_block(x, y, weight, order, self.u, self.q, self.b, self.qb, self.clock, settings)
        return loss, int(errors)

    def arrays(self) -> Arrays:
        """Return weights and intercept."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled(self.u, self.update.scale(self.clock), out=self.u)
        return self.u, self.b

    def peek(self) -> Arrays:
        """Return copies of weights and intercept."""
        with np.errstate(over="ignore", invalid="ignore"):
            return scaled(self.u, self.update.scale(self.clock)), self.b.copy()

    @property
    def window_steps(self) -> float:
        """Iterates in the averaging window so far."""
        return max(self.time - self.tail_from, 0.0) if self.update.averaging else 0.0

    def window(self, *, consume: bool = False) -> Arrays:
        """Return the mean (weights, intercept) of the window's iterates, at least one; `consume` spares a copy."""
        q = self.q if consume else self.q.copy()
        return window_mean(self.u, q, self.clock, self.window_steps), self.qb / self.window_steps

    def new_window(self) -> None:
        """Start a window here."""
        self.tail_from = self.time
        self.clock[H] = 0.0
        self.q[...], self.qb[...] = 0.0, 0.0


@dataclass(frozen=True)
class AdaptiveUpdate(Update):
    """Steps that adapt to each feature: `distls.workers.stochastic.adagrad_kernels`.

    Attributes
    ----------
    eta0, eta_b : float
        Of weights, and of the intercept.
    """

    eta0: float = 1.0
    eta_b: float = 1.0

    def others(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the accumulators of features and intercept."""
        return np.zeros(shape[0], dtype), np.zeros(1)

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner of a lane that has taken `time` steps."""
        weights, intercept, squares, square_b = (array.copy() for array in arrays)
        settings = adaptive_settings(
            self.row_loss, self.eta0, eta_b=self.eta_b, alpha=self.alpha, fit_intercept=self.fit_intercept
        )
        decay = new_decay(len(weights), self.alpha, time, weights.dtype)
        return _Adaptive(settings, weights, intercept, squares, square_b, decay, np.array([float(time)]))


class _Kept:
    """A learner whose arrays are plain at any time."""

    clock: NDArray[np.float64]

    @property
    def time(self) -> float:
        """Steps the lane has taken."""
        return float(self.clock[0])

    def arrays(self) -> Arrays:
        """Return the arrays to be averaged."""
        raise NotImplementedError

    def peek(self) -> Arrays:
        """Return copies of them."""
        return copy.deepcopy(self).arrays()


@dataclass
class _Adaptive(_Kept):
    settings: Any
    weights: NDArray[Any]
    intercept: NDArray[np.float64]
    squares: NDArray[Any]
    square_b: NDArray[np.float64]
    decay: Any
    clock: NDArray[np.float64]

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`."""
        loss, errors = adaptive_block(
            x, y, weight, order, self.weights, self.intercept, self.squares, self.square_b, self.decay,
            self.clock, self.settings,
        )  # fmt: skip
        return loss, int(errors)

    def arrays(self) -> Arrays:
        """Return weights, intercept and accumulators, everything decayed up to now."""
        settle(self.weights, self.squares, self.decay, self.time, self.settings)
        return self.weights, self.intercept, self.squares, self.square_b


@dataclass(frozen=True)
class SplittingUpdate(Update):
    """Forward-backward splitting with steps eta0/sqrt(t): `distls.workers.stochastic.fobos_kernels`.

    Attributes
    ----------
    eta0 : float
    penalty : str
        One with a `split`.
    l1_ratio : float
    """

    eta0: float = 1.0
    penalty: str = "l1l2"
    l1_ratio: float = 0.0

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner of a lane that has taken `time` steps."""
        weights, intercept = (array.copy() for array in arrays)
        settings = splitting_settings(
            self.row_loss, self.eta0, alpha=self.alpha, penalty=self.penalty, rho=self.l1_ratio,
            fit_intercept=self.fit_intercept,
        )  # fmt: skip
        return _Splitting(settings, weights, intercept, new_shrinkage(len(weights), time))

    def penalty_of(self, weights: NDArray[Any]) -> float:
        """Return R of the model's weights."""
        return penalty_value(self.penalty, weights, self.l1_ratio)


@dataclass
class _Splitting(_Kept):
    settings: SplittingSettings
    weights: NDArray[Any]
    intercept: NDArray[np.float64]
    shrinkage: Shrinkage

    @property
    def clock(self) -> NDArray[np.float64]:  # type: ignore[override]
        """Steps taken, first."""
        return self.shrinkage.clock

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`."""
        loss, errors = splitting_block(
            x, y, weight, order, self.weights, self.intercept, self.shrinkage, self.settings
        )
        return loss, int(errors)

    def arrays(self) -> Arrays:
        """Return weights and intercept, everything shrunk up to now."""
        shrink_all(self.weights, self.shrinkage, self.settings)
        return self.weights, self.intercept


@dataclass(frozen=True)
class ScheduledUpdate(Update):
    """A diagonal metric, dense parts every `skip` rows: `distls.workers.stochastic.sgdqn_kernels`.

    Attributes
    ----------
    t0 : float
    skip : int
    metric : str
        One of `METRICS`.
    """

    t0: float = 1.0
    skip: int = 16
    metric: str = "none"

    def others(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the diagonal; without rows where there is none."""
        if self.metric == "none":
            return (np.zeros((0, shape[1]), dtype),)
        return (np.full(shape, 1.0 / self.alpha if self.metric == "paper" else 0.0, dtype),)

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner of a lane that has taken `time` steps."""
        weights, intercept, diagonal = (array.copy() for array in arrays)
        settings = scheduled_settings(
            self.row_loss, self.alpha, self.t0, self.skip, metric=self.metric, fit_intercept=self.fit_intercept
        )  # fmt: skip
        previous = weights.copy() if self.metric == "secant" else weights[:0]
        return _Scheduled(settings, weights, intercept, diagonal, previous, np.array([float(time)]))


@dataclass
class _Scheduled(_Kept):
    settings: Any
    weights: NDArray[Any]
    intercept: NDArray[np.float64]
    diagonal: NDArray[Any]
    previous: NDArray[Any]
    clock: NDArray[np.float64]

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`."""
        loss, errors = scheduled_block(
            x, y, weight, order, self.weights, self.intercept, self.diagonal, self.previous, self.clock,
            self.settings,
        )  # fmt: skip
        return loss, int(errors)

    def arrays(self) -> Arrays:
        """Return weights, intercept and diagonal."""
        return self.weights, self.intercept, self.diagonal


@dataclass(frozen=True)
class MeanUpdate(Update):
    """Least squares that uses the mean of the data: `distls.workers.stochastic.constrained_sgd_kernels`.

    Lanes average the mean of the rows and of the targets, and how many rows a lane's mean counts: their common mean
    counts as many times more as there are lanes.

    Attributes
    ----------
    mode : str
        "project" or "centre".
    running : bool
        The mean of the rows so far; else one over all rows, which the arrays bring.
    schedule : str
    eta0, switch : float
    lanes : int
    """

    mode: str = "project"
    running: bool = True
    schedule: str = "sqrt"
    eta0: float = 1.0
    switch: float = math.inf
    lanes: int = 1

    def others(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the mean row, the mean target, and the rows that they count."""
        return np.zeros(shape[0]), np.zeros(shape[1]), np.zeros(1)

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner of a lane that has taken `time` steps."""
        settings = mean_settings(
            MODES[self.mode],
            self.eta0,
            running=self.running,
            schedule=SCHEDULES[self.schedule],
            m=self.switch,
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
        )
        weights, intercept, mean_x, mean_y, mass = arrays
        counted = float(mass[0]) * self.lanes if self.running else 1.0
        lane = new_mean_lane(MeanModel(weights, intercept, mean_x, mean_y, time, counted), settings)
        return _Mean(settings, lane, float(mass[0]) * (self.lanes - 1) if self.running else 0.0)

    def model(self, arrays: Arrays) -> Model:
        """Return weights and intercept; that of centred data is of the mean weights and the mean row."""
        weights, intercept = arrays[:2]
        if self.mode == "centre":
            intercept = arrays[3] - arrays[2] @ weights.astype(np.float64)
        return weights, intercept if self.fit_intercept else np.zeros_like(intercept)


@dataclass
class _Mean:
    settings: Any
    lane: MeanLane
    others: float

    @property
    def time(self) -> float:
        """Steps the lane has taken."""
        return float(self.lane.clock[0])

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`."""
        loss, errors = mean_block(x, y, weight, order, *self.lane, self.settings)
        return loss, int(errors)

    def arrays(self) -> Arrays:
        """Return weights, intercept, the mean and what it counts of this lane."""
        counted = float(self.lane.clock[MASS]) - self.others
        model = weights_from_mean_lane(self.lane, self.settings)
        return model.w, model.b, model.mean_x, model.mean_y, np.array([counted])

    def peek(self) -> Arrays:
        """Return copies of them."""
        return copy.deepcopy(self).arrays()


@dataclass(frozen=True)
class RlsUpdate(Update):
    """Recursive least squares, for one lane: `distls.workers.stochastic.second_order_kernels`.

    Attributes
    ----------
    n_rows : int
        Rows of a pass, whose objective is minimised.
    """

    n_rows: int = 1

    def _settings(self) -> Any:
        prior = self.alpha * self.n_rows
        return rls_settings(self.row_loss, prior, pass_rows=self.n_rows, fit_intercept=self.fit_intercept)

    def bytes_of(self, shape: tuple[int, int], dtype: Any) -> int:
        """Return the size of `zeros`, P above all."""
        return super().bytes_of(shape, dtype) + 8 * shape[0] ** 2

    def others(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return P, the mean of rows and the clock."""
        return new_rls(*shape, self._settings())

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner; the clock among the arrays has the time."""
        return _OneLane(rls_block, self._settings(), tuple(array.copy() for array in arrays))


@dataclass(frozen=True)
class OlbfgsUpdate(Update):
    """Online L-BFGS, for one lane: `distls.workers.stochastic.second_order_kernels`.

    Attributes
    ----------
    eta0, tau, damping : float
    rank : int
    """

    eta0: float = 0.1
    tau: float = 1e4
    damping: float = 0.1
    rank: int = 10

    def others(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the parameters in float64, the pairs of the last steps, their products and the clock."""
        return new_olbfgs(*shape, self.rank)

    def begin(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner; the clock among the arrays has the time."""
        steps = {"eta0": self.eta0, "tau": self.tau, "damping": self.damping}
        settings = olbfgs_settings(self.row_loss, self.alpha, **steps, fit_intercept=self.fit_intercept)
        return _OneLane(olbfgs_block, settings, tuple(array.copy() for array in arrays))


@dataclass
class _OneLane:
    """A lane whose kernel keeps everything in the arrays, the clock last."""

    block: Any
    settings: Any
    kept: Arrays

    @property
    def time(self) -> float:
        """Steps the lane has taken."""
        return float(self.kept[-1][0])

    def learn(
        self, x: Rows, y: Any, weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`."""
        loss, errors = self.block(x, y, weight, order, *self.kept, self.settings)
        return loss, int(errors)

    def arrays(self) -> Arrays:
        """Return all of them."""
        return self.kept

    def peek(self) -> Arrays:
        """Return copies."""
        return tuple(array.copy() for array in self.kept)


def one_row(layout: str, data: str, indices: str) -> Rows:
    """Return a row of one feature, of the types that kernels are to be compiled for."""
    values = np.ones(1, data)
    if layout == "dense":
        return DenseRows(values[None])
    return CsrRows(np.array([0, 1], np.int64), np.zeros(1, indices), values)
