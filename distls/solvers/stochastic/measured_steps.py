"""What a stochastic fit finds out before its first step: statistics, steps by the moments of all rows, or by trial.

The constrained SGD paper takes eta0 from the Hessian's spectrum and the first phase's length from a tolerance as known
(sections 4.2 and 5.1); here some reads find them. Other steps are candidates, tried on some rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.batch import mapped
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.largest_eigenvalue import COLUMNS, NORM_READS, RESIDUAL, general_basis, leading_eigenvalue
from distls.storage.errors import DistlsError
from distls.storage.rows import CsrRows, Rows, n_rows_of
from distls.workers.least_squares.block_task import Moments
from distls.workers.least_squares.multi_point_task import OfPoints, PointTask, SigmaTask, StackedWeights
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY
from distls.workers.rounds.task import Needs
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.lane_task import MeanSums, Trial, TrialTask
from distls.workers.stochastic.step_choice import SPECTRUM, ProblemStats, StepChoice, trial_rows
from distls.workers.stochastic.update import Arrays, Update


def stats_of_problem(problem: Problem, generated: int | None = None) -> ProblemStats:
    """Return the statistics of a problem; `generated` features are dense, of mean square one."""
    meta = problem.dataset.meta
    plain = generated is None
    return ProblemStats(
        loss=problem.loss,
        target=problem.target,
        alpha=problem.alpha,
        fit_intercept=problem.fit_intercept,
        n_outputs=problem.shape[1],
        n_features=meta.n_features if generated is None else generated,
        n_rows=meta.n_rows,
        nnz=meta.nnz if generated is None else meta.n_rows * generated,
        mean_square_norm=meta.mean_square_norm if generated is None else float(generated),
        penalty=problem.penalty if plain else PLAIN_PENALTY,
        l1_ratio=problem.l1_ratio if plain else 0.0,
    )


def stats_of_rows(
    first: Rows, loss: str, target: str, params: dict[str, Any], n_features: int, n_outputs: int
) -> ProblemStats:
    """Return the statistics of a stream, from its first block."""
    values = first.data if isinstance(first, CsrRows) else first.values
    n_rows = n_rows_of(first)
    return ProblemStats(
        loss=loss,
        target=target,
        alpha=params["alpha"],
        fit_intercept=params["fit_intercept"],
        n_outputs=n_outputs,
        n_features=n_features,
        n_rows=n_rows,
        nnz=max(int(np.count_nonzero(values)), 1),
        mean_square_norm=float(np.square(values, dtype=np.float64).sum()) / max(n_rows, 1),
    )


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
        (d, k), work = (problem.shape, PointTask.work_bytes(problem.dataset, problem.dtype, 2 * problem.shape[1]))
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
        longest = 0.5 / self._problem.alpha if self._problem.alpha else np.inf  # a longer one erases the weights
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


def measured_steps(found: Measurement, update: Update, params: dict[str, Any], n_lanes: int) -> dict[str, float]:
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


async def try_candidates(
    steps: StepChoice, task: TrialTask, start: Arrays, problem: Problem
) -> tuple[int, dict[str, Any]]:
    """Return the candidate with the lowest objective on some rows after a pass over others in one lane, and details.

    The details, JSON values, are the objectives, the chosen setting and the number of rows. Raises DistlsError if no
    candidate stays finite.
    """
    candidates, table = steps.candidates, problem.dataset.table
    wanted = trial_rows(problem.dataset.meta.n_rows, same=steps.same_rows)
    # The order of partitions is drawn from the seed, so the same trial comes out on any number of workers.
    order = rng(problem.seed, Purpose.TRIAL).permutation(len(table))
    # partitions with rows enough to learn from, and as many to judge by
    enough = int(np.searchsorted(np.cumsum(table.rows[order]), 2 * wanted)) + 1
    blocks = tuple(int(block) for block in order[:enough])
    trials = [Trial(candidate.on_trial, blocks, wanted, steps.same_rows) for candidate in candidates]
    # Trials are independent, and each is one lane: their objectives do not depend on the executor.
    objectives = await mapped(task, trials, shared=start)
    # The first of equal ones, so candidates are ordered with care.
    best = int(np.argmin([value * each.handicap for value, each in zip(objectives, candidates, strict=True)]))
    if not np.isfinite(objectives[best]):
        tried = "; ".join(str(candidate) for candidate in candidates)
        raise DistlsError(f"none of {tried} keeps the weights finite; give one, or scale the data")
    table_of = {str(candidate): value for candidate, value in zip(candidates, objectives, strict=True)}
    return best, {"objectives": table_of, "chosen": candidates[best].setting, "n_rows": wanted}
