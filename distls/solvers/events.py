"""Events of a fit and the protocol of those who watch it. Solvers never print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distls.solvers.status import Status

if TYPE_CHECKING:  # commands that only show progress load no solver
    from distls.solvers.solver import Fitted, State


@dataclass(frozen=True)
class FitStart:
    """A fit begins or resumes."""

    method: str
    loss: str
    dataset: str
    n_rows: int
    n_lanes: int
    n_slots: int
    max_passes: float | None
    passes: float  # Already done, when resuming
    what: str = ""  # Of several settings which this is, such as "alpha=0.01 (3 of 10)"


@dataclass(frozen=True)
class RoundEvent:
    """A round ended."""

    record: dict[str, Any]  # Its line in ``events.jsonl``
    state: State
    progress: dict[str, Any]  # What the loop must remember over a resume
    what: str = ""  # As in `FitStart`: the rounds of fits side by side alternate
    best: Fitted | None = None  # With patience: the predictor of the best round so far


class Callback:
    """Hooks of a fit, called on the driver, in order; those that a subclass leaves out do nothing."""

    def on_start(self, start: FitStart) -> None:
        """Before the first round."""

    def on_round(self, event: RoundEvent) -> None:
        """After each round."""

    def on_end(self, status: Status, state: State) -> None:
        """After the last round, however the fit ended; RUNNING when an error ended it."""
