"""Which stored duals are still needed: those of the current state and of the newest checkpoints."""

from __future__ import annotations

from distls.solvers.dual_ascent.sdca_state import SdcaState
from distls.storage.errors import CorruptDataError
from distls.storage.temporary.row_state import RowState
from distls.workers.duals.stored_duals import DualFile, dual_files

_CHECKPOINTS = 2  # as many as a run keeps


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
