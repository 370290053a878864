"""Steps that follow from all rows: eta0 from the Hessian's spectrum, the first phase's length from a tolerance.

The constrained SGD paper takes both as known (sections 4.2 and 5.1); here some reads before the first step find them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.largest_eigenvalue import COLUMNS, NORM_READS, RESIDUAL, general_basis, leading_eigenvalue
from distls.workers.least_squares.block_task import Moments
from distls.workers.least_squares.multi_point_task import OfPoints, PointTask, SigmaTask, StackedWeights
from distls.workers.rounds.task import Needs
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.stochastic.lane_task import MeanSums
from distls.workers.stochastic.step_choice import SPECTRUM
from distls.workers.stochastic.update import Update

Array = NDArray[np.float64]

# Of the longest step that is stable: constant steps are shorter, those that decay soon are.
_CONSTANT, _DECAYING = 0.5, 4.0


class Measurement:
    """Reads all rows for what steps need to know of them."""

    def __init__(
        self, problem: Problem, sums: MeanSums, executor: Executor, *, lanes: int, memory: MemoryBudget
    ) -> None:
        self._problem, self._executor = problem, executor
        self._mean_x, self._mean_y = sums.x / sums.weight, sums.y / sums.weight
        self._square = sums.x_square / sums.weight
        variance = sums.y_square / sums.weight - np.square(self._mean_y)
        self._deviation = np.sqrt(np.maximum(variance, 0.0))
        (d, k), work = (
            problem.shape,
            PointTask.work_bytes(problem.dataset, problem.dtype, 2 * problem.shape[1]),
        )
        points = 8 * (d + 1) * (k + max(k, COLUMNS + 1))
        self._reader = BlockReader(
            problem, lanes=lanes, needs=Needs(points, points, work), memory=memory, driver_bytes=4 * points
        )

    def spectrum(self, *, on_hyperplane: bool) -> tuple[float, float]:
        """Return trace and largest eigenvalue of the Hessian: of models through the mean point, or of all."""
        first, d = int(self._problem.fit_intercept), len(self._mean_x)
        normal = np.concatenate([np.ones(first), self._mean_x]) * on_hyperplane
        normal /= np.linalg.norm(normal) or 1.0
        vectors = general_basis(d + first)
        for _ in range(NORM_READS):
            inside = vectors - np.outer(normal, normal @ vectors)
            stacked = np.column_stack([normal, inside])
            constants = stacked[0] if first else np.zeros(stacked.shape[1])
            product = self._product(stacked[first:], constants)[1 - first :]
            across = float(normal @ product[:, 0])
            with single_threaded_blas():
                product = product[:, 1:] - np.outer(normal, normal @ product[:, 1:])
                largest, residual = leading_eigenvalue(vectors, product)
                if residual <= RESIDUAL * largest:
                    break
                vectors = np.linalg.qr(product)[0]
        alpha = self._problem.alpha
        return self._square + first - across + alpha * d, largest + alpha

    def eta0(self, trace: float, largest: float, *, constant: bool) -> float:
        """Return the step: a multiple of the one below which LMS is stable in the mean square (Feuer, Weinstein)."""
        limit = 2.0 / ((trace + 2.0 * largest) or 1.0)
        longest = (
            0.5 / self._problem.alpha if self._problem.alpha else np.inf
        )  # a longer one erases the weights
        return min((_CONSTANT if constant else _DECAYING) * limit, longest)

    def rows_within(self, tolerance: float) -> float:
        """Return the rows m whose mean is expected to meet Proposition 2.2, at most all.

        The expected squares of |mean_m(x) - mean(x)| and |mean_m(y) - mean(y)| are their variances over m. In the place
        of |w*| is the norm of the first iterate of conjugate gradients, whose norms rise to it, so that m is not too
        small.
        """
        d, k = self._problem.shape
        zero = np.zeros((d, k))
        covariance = -self._read(PointTask, StackedWeights(zero, self._mean_y))[1:]  # of x and y
        product = self._product(covariance, -self._mean_x @ covariance)[1:]
        spread = max(float(self._square - self._mean_x @ self._mean_x), 0.0) ** 0.5
        with np.errstate(divide="ignore", invalid="ignore"):
            norm = np.linalg.norm(covariance, axis=0) ** 3 / (covariance * product).sum(axis=0)
            shares = np.where(self._deviation > 0.0, self._deviation / np.nan_to_num(norm), 0.0)
            wanted = ((spread + shares.max()) / tolerance) ** 2
        return float(np.clip(np.ceil(wanted), 1.0, self._problem.dataset.meta.n_rows))

    def _product(self, weights: Array, constants: Array) -> Array:
        """Return the means of (1, x) times the columns' scores."""
        d, k = self._problem.shape
        points = np.concatenate([np.zeros((d, k)), weights], axis=1)
        return self._read(SigmaTask, StackedWeights(points, np.concatenate([np.zeros(k), constants])))

    def _read(self, kind: type[OfPoints], points: StackedWeights) -> Array:
        sums = self._reader.reduce(self._executor, self._reader.task(kind), points)
        moments: Moments = sums.folds[0]
        return np.asarray(np.concatenate([moments.slopes[None], moments.cross]) / moments.weight_sum)


def measured_steps(
    found: Measurement, update: Update, params: dict[str, Any], n_lanes: int
) -> dict[str, float]:
    """Return values of `eta0` and `switch` where they follow from the rows, with what they were made from."""
    measured: dict[str, float] = {}
    if params.get("tolerance"):
        # the mean is of the rows that all lanes have seen
        rows = found.rows_within(params["tolerance"])
        measured |= {"switch": max(rows / n_lanes, 1.0), "rows": rows}
    if params["eta0"] == SPECTRUM:
        trace, largest = found.spectrum(on_hyperplane=update.meets_mean)
        eta0 = found.eta0(trace, largest, constant=params["schedule"] == "constant")
        measured |= {"eta0": eta0, "largest_eigenvalue": largest, "trace": trace}
    return measured


def given_by(measured: dict[str, float]) -> dict[str, float]:
    """Return the parameters among what was measured."""
    return {name: measured[name] for name in ("eta0", "switch") if name in measured}


def told(measured: dict[str, float]) -> str:
    """Return a note of what was measured."""
    texts = []
    if "rows" in measured:
        texts.append(
            f"switch={measured['switch']:.6g}, as the mean of {measured['rows']:,.0f} rows is within tolerance"
        )
    if "eta0" in measured:
        eigenvalue, trace = measured["largest_eigenvalue"], measured["trace"]
        texts.append(
            f"eta0={measured['eta0']:.6g} by the Hessian's largest eigenvalue, {eigenvalue:.6g}, and trace, {trace:.6g}"
        )
    return "; ".join(texts)
