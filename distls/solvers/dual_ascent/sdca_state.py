"""The state of dual coordinate ascent: the image of the duals, where these are stored, and which are still needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.solvers.solver import State
from distls.storage.errors import CorruptDataError
from distls.storage.temporary.row_state import RowState
from distls.workers.duals.stored_duals import DualFile, dual_files

Array = NDArray[np.float64]

_CHECKPOINTS = 2  # as many as a run keeps


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
