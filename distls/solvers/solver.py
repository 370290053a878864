"""What a solver is: a few methods over an explicit state; the loop in `loop.py` owns everything else."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.storage.model.model import used_rows
from distls.workers.prediction.predictor import Readout
from distls.workers.rounds.ledger import Ledger

__all__ = ["Refit", "RoundReport", "Solver", "State", "Status", "Weights"]


class Status(StrEnum):
    """How a fit stands or ended. Only DIVERGED is a failure."""

    RUNNING = "RUNNING"
    CONVERGED = "CONVERGED"
    MAX_PASSES = "MAX_PASSES"
    MAX_SECONDS = "MAX_SECONDS"
    EARLY_STOPPED = "EARLY_STOPPED"
    DIVERGED = "DIVERGED"
    INTERRUPTED = "INTERRUPTED"


@dataclass(frozen=True, eq=False)
class Refit:
    """What weights are fitted to once features are selected: the loss, l2, and weights of these features alone.

    Attributes
    ----------
    alpha : float
        Strength of l2.
    used : bool array of shape (n_features,)
    """

    alpha: float
    used: NDArray[np.bool_]


@dataclass
class Weights:
    """What a model is made of.

    Attributes
    ----------
    coefficients : float32 or float64 array of shape (n_features, n_outputs), C-ordered
        Another shape where `recipe` says so.
    intercept : float64 array of shape (n_outputs,)
    recipe, arrays : dicts
        How scores come from them, where not by ``x @ W + b``: see `distls.workers.prediction.predictor.Readout`.
    alpha : float or None
        The strength they were fitted with, where the method has chosen it itself.
    refit : Refit or None
        The problem that they minimise, where that is no longer the one the method was given.
    """

    coefficients: NDArray[Any]
    intercept: NDArray[np.float64]
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    alpha: float | None = None
    refit: Refit | None = None

    def readout(self, *, every_feature: bool = False) -> Readout:
        """Return what workers score rows with: where weights are mostly zero, only the features that have some."""
        intercept = self.intercept.astype(np.float64)
        if not (self.recipe or every_feature):
            rows = used_rows(self.coefficients)
            if len(rows) <= len(self.coefficients) // 2:
                return Readout(self.coefficients[rows], intercept, columns=rows)
        return Readout(self.coefficients, intercept, self.recipe, self.arrays)


@dataclass
class State:
    """Base of solver states: arrays and JSON scalars only, so that checkpoints need no code of the solver.

    Attributes
    ----------
    round : int
        Rounds done.
    passes : float
        Block bytes read for updates divided by stored bytes.
    """

    round: int = 0
    passes: float = 0.0

    def split(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (scalars, arrays) by field name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in values.items() if name not in arrays}, arrays

    @classmethod
    def join(cls, scalars: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the state that `split` took apart."""
        fields: dict[str, Any] = {**scalars, **arrays}
        return cls(**fields)


@dataclass
class RoundReport:
    """What a round tells for free; one line of ``events.jsonl``.

    Attributes
    ----------
    running_loss : float
        Mean loss over the rows just read, each scored before it was learned from.
    running_error : float or None
        Fraction of them that were predicted wrong; None for numbers, which are not right or wrong.
    n_rows : int
        Rows read.
    bytes_read, cached_bytes : int
        Stored bytes read from disk, and stored bytes found in worker caches.
    kernel_seconds, wait_seconds : float
        Sums over lanes: time in kernels, time waiting for data.
    averaging : dict or None
        Loss on the fixed sample before (mean over lanes) and after averaging, and the lanes' relative spread.
    worker_seconds : dict of worker -> seconds
        Each process's time in tasks; the driver's own merging is under its name.
    worker_peaks : dict of worker -> bytes
        Highest resident size of each worker process so far.
    details : dict or None
        What the method alone can tell of the round: JSON values.
    notes : list of str or None
        What whoever reads the report should know, a line each; every later round has them too.
    preliminary : bool or None
        True where the model is one of several that are not compared yet: no certificate ends such a fit.
    """

    running_loss: float
    running_error: float | None
    n_rows: int
    bytes_read: int
    cached_bytes: int
    kernel_seconds: float
    wait_seconds: float
    averaging: dict[str, float] | None = None
    worker_seconds: dict[str, float] = field(default_factory=dict)
    worker_peaks: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] | None = None
    notes: list[str] | None = None
    preliminary: bool | None = None

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        loss_sum: float,
        errors: int | None,
        *,
        averaging: dict[str, float] | None = None,
        details: dict[str, Any] | None = None,
        preliminary: bool | None = None,
    ) -> Self:
        """Return the report of a round from its ledger.

        Parameters
        ----------
        loss_sum : float
            Over the ledger's rows.
        errors : int or None
            Rows predicted wrong.
        """
        return cls(
            running_loss=loss_sum / ledger.n_rows,
            running_error=None if errors is None else errors / ledger.n_rows,
            n_rows=ledger.n_rows,
            bytes_read=ledger.bytes_read,
            cached_bytes=ledger.cached_bytes,
            kernel_seconds=ledger.kernel_seconds,
            wait_seconds=ledger.wait_seconds,
            averaging=averaging,
            worker_seconds=ledger.worker_seconds,
            worker_peaks=ledger.worker_peaks,
            details=details,
            preliminary=preliminary,
        )


S = TypeVar("S", bound=State)


class Solver(Protocol[S]):
    """One method on one problem."""

    state_type: type[S]

    def prepare(self, executor: Executor) -> None:
        """Do what must precede the first round and is no part of training: compile, load."""
        ...

    def init(self) -> S:
        """Return the state before the first round."""
        ...

    def step(self, state: S, executor: Executor) -> tuple[S, RoundReport]:
        """Do one round; a pure function of the state, the data and the settings."""
        ...

    def status(self, state: S) -> Status:
        """Tell whether there is more to do: RUNNING, DIVERGED, or CONVERGED or MAX_PASSES at the method's own end."""
        ...

    def weights(self, state: S) -> Weights:
        """Return what a model made of the state now would hold."""
        ...
