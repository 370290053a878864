"""The `ProblemStats` of a data set, and of the first block of a stream."""

from typing import Any

import numpy as np

from distls.problem import Problem
from distls.storage.rows import CsrRows, Rows, n_rows_of
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY
from distls.workers.stochastic.step_choice import ProblemStats


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
