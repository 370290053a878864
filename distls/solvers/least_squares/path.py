"""A path of alphas for links without a closed form: Algorithm 1 for each alpha and fold, all of them at each read.

A fold's objective is the mean over the rows of the other folds. Its Hessian is at most S / (S - S_f) times L Sigma +
alpha P, with S the weight of all rows and S_f that of the fold, so the Sigma of all rows serves every fold; and one
reduction of the covariances to a band serves every L and alpha. When all fits have ended, the alpha of lowest loss on
the rows left out is fitted to everything, as `Accelerated` does it alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.solvers.least_squares.accelerated import Accelerated, points_of
from distls.solvers.least_squares.alpha_grid import Grid, alpha_grid, check_folds, choice_note
from distls.solvers.least_squares.iterate import GlsState, Iterate, propose
from distls.solvers.least_squares.metric import PathMetric
from distls.solvers.solver import RoundReport
from distls.workers.least_squares.block_task import Moments
from distls.workers.least_squares.multi_point_task import PointMoments
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# A fit of the search ends when its step is sure to lower the objective by no more than this share of it.
_SETTLED = 1e-6
_UNFINISHED = "the fits of the path have not converged: double --passes, or take newton, which needs fewer"


class Path(Accelerated):
    """The solver of `gls` with link=softmax or logit and alpha=path."""

    _path_metric: tuple[Array, PathMetric] | None = None

    def step(self, state: GlsState, executor: Executor) -> tuple[GlsState, RoundReport]:
        """Do one read, and a step of Algorithm 1 of every fit; once an alpha is chosen, of that one alone."""
        # The alpha is chosen, and what remains is one ordinary fit.
        if len(state.alphas) and not _searches(state):
            return super().step(state, executor)
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        details: dict[str, Any] = {}
        if not len(state.alphas):
            # "Define": Sigma, from which the alphas come too
            sums = self._read_start(state, executor)
            with single_threaded_blas():
                following = self._start_search(following, sums.folds[0])
        else:
            held_out = self._grid(state).fold_of(state.running).tolist()
            points = points_of(state.iterates)
            # Candidates come first, then the points ahead: both of the same fits, in the same order.
            folds = held_out * (len(points) // len(held_out))
            sums = self._read_points(executor, points, folds)
            with single_threaded_blas():
                following, details = self._search(following, sums.folds[0])
        details = {"lipschitz": max(iterate.lipschitz for iterate in following.iterates), **details}
        report = self._report(sums, details, following.path, following.notes)
        return following, self._preliminary(report, state, following)

    def _grid(self, state: GlsState) -> Grid:
        return Grid(state.alphas, self._folds)

    def _start_search(self, state: GlsState, sums: Moments) -> GlsState:
        alphas = alpha_grid(self.params["alphas"], sums)
        start = Iterate.start(state.iterates[0].best.theta, self._start, self._safe)
        first = float(alphas[0])
        return replace(
            state,
            # All fits start at the same point, so the first read serves them all.
            iterates=[start] * Grid(alphas, self._folds).size,
            alphas=alphas,
            alpha=first,
            gram=self._sigma(sums),
            notes=[f"alpha={first:.6g} is the first of {len(alphas)}, none of which is judged yet"],
        )

    def _search(self, state: GlsState, sums: Moments) -> tuple[GlsState, dict[str, Any]]:
        """Judge the candidates of all fits and what they make of the alphas, then take the next steps."""
        assert isinstance(sums, PointMoments)
        check_folds(sums.fold_weights.tolist())
        grid, running = self._grid(state), state.running
        # The weight of the rows that a fit is made of.
        weights = sums.weight_sum - sums.fold_weights[grid.fold_of(range(grid.size))]
        # S / (S - S_f) times the bound of Theorem 1: safe for the rows of the other folds
        safe = (self._safe * sums.weight_sum / weights).tolist()
        iterates = [replace(each, safe=bound) for each, bound in zip(state.iterates, safe, strict=True)]
        found = self._candidates(iterates, sums, weights[running].tolist(), grid.alpha_of(running).tolist())
        for number, (candidate, ahead) in zip(running, found, strict=True):
            iterates[number], _ = iterates[number].judge(candidate, ahead, accelerated=self._accelerated)
        state = self._choose(state, iterates, sums.weight_sum)
        state = replace(state, iterates=self._steps_from(state, iterates))
        details = {"fits": len(state.running)}
        return (state if state.running else self._fit_chosen(state)), details

    def _choose(self, state: GlsState, iterates: Sequence[Iterate], weight_sum: float) -> GlsState:
        """Note which alpha is best as the fits now stand."""
        held_out = np.array([iterate.best.held_out for iterate in iterates])
        n_rows = self.problem.dataset.meta.n_rows
        verdict = self._grid(state).verdict(held_out, weight_sum, n_rows)
        # The first minimum: alphas decrease, so a tie goes to the stronger penalty.
        alpha = float(state.alphas[np.argmin(verdict.losses)])
        note = choice_note(alpha, state.alphas, self._folds, "loss", float(verdict.losses.min()))
        return replace(state, alpha=alpha, path=verdict.to_json(state.alphas), notes=[note])

    def _steps_from(self, state: GlsState, iterates: list[Iterate]) -> list[Iterate]:
        """Return all fits after the update of Eq. 14, each with an L and an alpha of its own."""
        running = [number for number, iterate in enumerate(iterates) if iterate.running]
        if not running or not all(np.isfinite(iterate.base.value) for iterate in iterates):
            return iterates
        # Gradients stand side by side, so one reduction serves all running fits.
        moving = [iterates[number] for number in running]
        steps = self._metric_of_path(state).steps(
            np.stack([iterate.base.gradient for iterate in moving], axis=1),
            np.array([iterate.lipschitz for iterate in moving]),
            self._grid(state).alpha_of(running),
        )
        following = list(iterates)
        proposed = propose(moving, [steps[:, place] for place in range(len(moving))], _SETTLED)
        for number, iterate in zip(running, proposed, strict=True):
            following[number] = iterate
        return following

    def _metric_of_path(self, state: GlsState) -> PathMetric:
        # Identity, not equality: a resumed state has another array, and reduces it anew.
        if self._path_metric is None or self._path_metric[0] is not state.gram:
            metric = PathMetric(state.gram, intercept=bool(self._first), eps=self._eps)
            self._path_metric = state.gram, metric
        return self._path_metric[1]

    def _fit_chosen(self, state: GlsState) -> GlsState:
        """Start the fit to everything at the alpha chosen, from the mean of its folds' weights."""
        fits = [state.iterates[number] for number in self._grid(state).fits_of(state.alpha)]
        # L of the folds is a good start, though their rows are fewer; more than the bound is never needed.
        lipschitz = min(max(fit.lipschitz for fit in fits), max(self._start, self._safe))
        whole = Iterate.start(_mean(fits), lipschitz, self._safe)
        # A copy, since scaling the metric overwrites it.
        return self._enter(replace(state, iterates=[whole]), state.gram.copy())

    def _preliminary(self, report: RoundReport, state: GlsState, following: GlsState) -> RoundReport:
        """Return the report of the best alpha, of rows that its fits have not seen, while alphas are compared."""
        if _searches(state):
            best = min(following.path, key=lambda line: line["cv_loss"])
            report.running_loss = best["cv_loss"]
            if report.running_error is not None:
                report.running_error = best["cv_error"]
        if _searches(following):
            report.preliminary, report.notes = True, [*following.notes, _UNFINISHED]
        return report

    def _published(self, state: GlsState) -> Array:
        """Return the mean of the chosen alpha's folds, until that is fitted to everything."""
        if not _searches(state):
            return super()._published(state)
        return _mean([state.iterates[number] for number in self._grid(state).fits_of(state.alpha)])


def _searches(state: GlsState) -> bool:
    """Whether the alphas are still compared: there are two folds at the least."""
    return len(state.iterates) > 1


def _mean(fits: Sequence[Iterate]) -> Array:
    return np.asarray(np.stack([fit.best.theta for fit in fits]).mean(axis=0))
