"""The state of dual coordinate ascent: the image of the duals, where these are stored, and what it starts from.

It starts from a model, from the duals of another run, or after a loss from its weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import DualProblem
from distls.execution.executor import Executor
from distls.execution.row_reads import reading_lanes, reduce_rows
from distls.problem import Problem
from distls.solvers.solver import State
from distls.storage.errors import CorruptDataError, StateLostError
from distls.storage.model.model import LinearModel
from distls.storage.temporary.row_state import RowState
from distls.workers.duals.stored_duals import DualFile, DualPoint, dual_files, published_duals
from distls.workers.evaluation.dual_task import DualStart, DualSum, DualTask
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger

Array = NDArray[np.float64]

_CHECKPOINTS = 2  # as many as a run keeps
# Multiples of a run's duals at which the dual is known exactly: of log losses the best is well below 1.
_SHARES = (0.25, 0.5, 0.75)
_CAUTION = 0.6  # power of the best multiple that is taken (docs/decisions/0021)


@dataclass
class SdcaState(State):
    """Everything a round starts from, but for the duals; see `DualProblem` and `DualPoint`."""

    u: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))  # shape (n_features, k)
    center: Array = field(default_factory=lambda: np.empty(0))  # shape (k,), and the next two
    up: Array = field(default_factory=lambda: np.empty(0))
    down: Array = field(default_factory=lambda: np.empty(0))
    versions: NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # shape (n_partitions,), and the next two
    before: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    mix: Array = field(default_factory=lambda: np.empty(0))
    conjugate: float = 0.0  # mean over rows, an upper bound where duals are mixed
    dual: float | None = None  # D; None before the first round, or where it has to be compared anew
    part: int = 0  # Rounds done of the current pass
    # shape (rounds_per_pass,), of the newest rounds: |sum of the lanes' changes|^2 over the sum of their squares, and
    # the sums of the gaps of rows when they were visited
    ratios: Array = field(default_factory=lambda: np.empty(0))
    gaps: Array = field(default_factory=lambda: np.empty(0))
    # the sum of `gaps` when the last pass ended, and its ratio to the sum of the pass before, at most 1
    last_gap: float | None = None
    decline: float = 1.0
    renewed: int = 0  # Partitions whose duals were lost and recomputed


class KeptDuals:
    """The files in RUN/state of a fit; without a folder there are none."""

    def __init__(self, folder: str | None) -> None:
        self._files = None if folder is None else RowState(folder)
        self._resumed = True  # until the first round of this process
        self._pinned: list[set[DualFile]] = []

    def pin(self, state: SdcaState) -> None:
        """Keep the duals of a checkpoint until two newer ones are saved."""
        self._pinned = [*self._pinned, _files_of(state)][-_CHECKPOINTS:]

    def sweep(self, state: SdcaState) -> None:
        """Delete what neither the state nor a checkpoint needs."""
        if self._files is None:
            return
        if self._resumed:  # a resumed fit starts from its newest checkpoint
            # Its duals may be read again if this process stops before the next checkpoint.
            self._resumed = False
            self._check(self._files, state)
            self.pin(state)
        # listed anew: a round may have stored duals that the next state does without
        # A killed task may have written files of a version that no state knows.
        for index, version in self._files.stored() - _files_of(state).union(*self._pinned):
            self._files.drop(index, version)

    def _check(self, files: RowState, state: SdcaState) -> None:
        """Raise CorruptDataError for duals to resume from that were changed; missing ones are made from the weights."""
        for index, version in sorted(files.stored() & _files_of(state)):
            if not files.holds(index, version):
                raise CorruptDataError(
                    f"{files.folder}: the duals of partition {index} were changed, or are those of another run; put "
                    "back its own, or remove the folder: the fit goes on from its weights then, with other last bits"
                )


def _files_of(state: SdcaState) -> set[DualFile]:
    return dual_files(state.versions, state.before, state.mix)


class DualStarter:
    """Makes duals, and the image that follows from them, in one read of the data."""

    def __init__(
        self,
        problem: Problem,
        form: DualProblem,
        data: DatasetRef,
        point_of: Callable[[SdcaState], DualPoint],
        executor: Executor,
    ) -> None:
        self._problem, self._form, self._data = problem, form, data
        self._point_of, self._executor = point_of, executor
        self.ledger = Ledger()  # of the last read

    def started(self, state: SdcaState, initial: LinearModel, run: str) -> SdcaState:
        """Return the state at the duals of the run that the initial model is of, or at its negative gradients.

        They are scaled: far from the optimum gradients are too large, and the optimal duals of a larger alpha too.
        """
        source = published_duals(run, initial.dataset_fingerprint)
        if source is not None and not self._suits(source, initial):
            source = None
        return self.started_at(state, LinearPredictor(initial.weights, initial.intercept), source)

    def started_at(self, state: SdcaState, weights: LinearPredictor, source: DualPoint | None = None) -> SdcaState:
        """Return the state at the given duals, or at the negative gradients of the weights; scaled."""
        every = np.arange(len(self._problem.dataset))
        center = state.center.copy()
        predictor = LinearPredictor(
            weights.coefficients.astype(self._problem.dtype), weights.intercept.astype(np.float64)
        )
        if self._form.free_intercept:
            center[:] = predictor.intercept
        started, sums = self._made(replace(state, center=center), every, predictor, source, _SHARES)
        # Any multiple in [0, 1] stays in the domain: it is convex and holds zero.
        share, conjugate = self._best_share(started, sums)
        if share == 1.0:
            return started
        return replace(
            started,
            # Duals on disk stay unscaled, and `mix` scales them on reading, which saves a read and a write of
            # all rows.
            u=started.u * started.u.dtype.type(share),
            up=share * started.up,
            down=share * started.down,
            conjugate=conjugate,
            mix=np.full(len(every), share),
        )

    def renewed(self, state: SdcaState, predictor: LinearPredictor) -> SdcaState:
        """Return the state with the duals of partitions that were lost made from the gradients at its weights."""
        # Only what is lost is recomputed: the duals of other partitions are still those of the state.
        lost = lost_duals(self._point_of(state), self._problem.dataset.table.rows)
        made, _ = self._made(state, np.array(lost, np.int64), predictor, None)
        return replace(made, renewed=state.renewed + len(lost))

    def _suits(self, source: DualPoint, initial: LinearModel) -> bool:
        """Return whether the duals of another run are of this problem's rows, loss and type."""
        own = self._problem.dataset.fingerprint, self._problem.loss, self._form.n_outputs
        theirs = initial.dataset_fingerprint, source.loss, source.n_outputs
        # Duals of other rows, of another loss or type could lie outside the domain, and prove nothing.
        return own == theirs and source.dtype == self._problem.dtype.name

    def _made(
        self,
        state: SdcaState,
        blocks: np.ndarray[tuple[int], np.dtype[np.int64]],
        at: LinearPredictor,
        source: DualPoint | None,
        shares: tuple[float, ...] = (),
    ) -> tuple[SdcaState, NDArray[np.float64]]:
        """Return the state with new duals of some partitions, all sums from what is stored, and those at `shares`."""
        versions, before, mix = state.versions.copy(), state.before.copy(), state.mix.copy()
        # Three versions a round: before it, recomputed, mixed. Resumes never find an older file under a new name.
        versions[blocks], before[blocks], mix[blocks] = 3 * state.round + 1, 0, 1.0
        state = replace(state, versions=versions, before=before, mix=mix)
        task = DualTask(
            self._data,
            self._problem.row_weights,
            self._point_of(state),
            renewed=frozenset(blocks.tolist()),
            source=source,
            shares=shares,
        )
        dataset = self._problem.dataset
        lanes = reading_lanes(dataset, self._problem.parallelism)
        total: DualSum = reduce_rows(self._executor, dataset, DualStart(at=at), task, lanes)
        self.ledger = total.ledger
        n = self._problem.dataset.meta.n_rows
        made = replace(
            # The image belongs to all duals at once, so it is summed anew rather than corrected.
            state,
            u=(total.image / (self._form.alpha * n)).astype(state.u.dtype),
            up=total.up,
            down=total.down,
            conjugate=total.conjugate_sum / n,
            dual=None,
        )
        return made, total.shared_sums

    def _best_share(self, state: SdcaState, sums: NDArray[np.float64]) -> tuple[float, float]:
        """Return the c in [0, 1] by which to multiply the duals, and a bound of the mean conjugate there.

        Between that of the largest dual and 1: a pass mends row by row what is too large; what is too small for all
        rows alike takes longer.
        """
        n = self._problem.dataset.meta.n_rows
        # The dual along a ray is piecewise: linear bounds of the conjugates minus a quadratic term.
        t = (state.up - state.down) / (self._form.alpha * n)
        pull = self._form.alpha * float(state.center @ t) * (self._form.intercept_square > 0.0)
        own = self._form.conjugate_penalty(state.u) + 0.5 * self._form.intercept_square * float(t @ t)
        curvature = 2.0 * self._form.alpha * own
        if curvature <= 0.0:
            return 1.0, state.conjugate
        # conjugates are convex, so at most linear in between; R* grows at least as fast as its square from any point
        shares = np.array([0.0, *_SHARES, 1.0])
        conjugates = np.array([0.0, *(sums / n), state.conjugate])
        slopes = np.diff(conjugates) / np.diff(shares)
        # Each piece is a concave quadratic, maximised in closed form within its interval.
        best = np.clip((-slopes - pull) / curvature, shares[:-1], shares[1:])
        dual = -np.interp(best, shares, conjugates) - pull * best - 0.5 * curvature * best**2
        share = float(best[np.argmax(dual)]) ** _CAUTION
        return share, float(np.interp(share, shares, conjugates))


def lost_duals(point: DualPoint, rows: NDArray[np.int64]) -> list[int]:
    """Return the partitions, of so many rows each, whose duals are missing or damaged."""
    lost = []
    for index, n_rows in enumerate(rows.tolist()):
        try:
            point.read(index, n_rows)
        except StateLostError:
            lost.append(index)
    return lost
