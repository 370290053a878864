"""The interface of solvers: a few methods over an explicit state; `loop.py` owns everything else."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from distls.clock import loaded
from distls.execution.batch import Wanted
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.memory_plan import Plan
from distls.methods.method import Method, Params, import_object
from distls.problem import Problem
from distls.solvers.status import Record, Status
from distls.storage.model.model import LinearModel
from distls.storage.rows import index_dtype
from distls.workers.duals.stored_duals import DualPoint
from distls.workers.evaluation.score_task import GradientTask
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import prox_rows
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.task import Call, ReadTogether, rehearse
from distls.workers.runtime.process import task_settings

# Given the most passes that it may take, returns weights nearer to the optimum than those of a fit, or a bound of the
# optimum itself, or None, the bytes read for them, and the work in passes.
ImproveFn = Callable[[float, Executor], tuple[LinearPredictor | float | None, int, float]]
# Returns the gap that is small enough for a fit to end with, at an objective.
Enough = Callable[[float], float]


def no_gap(objective: float) -> float:
    """Return the gap that is small enough where no tolerance was asked for."""
    return 0.0


@dataclass(frozen=True, eq=False)
class DebiasProblem:
    """The problem of a refit after feature selection: the same loss with l2, over the selected features alone."""

    alpha: float  # Strength of l2
    used: NDArray[np.bool_]  # shape (n_features,)


@dataclass(frozen=True, eq=False)
class Fitted:
    """The predictor at a state, and the problem that it minimises if the method has chosen that itself."""

    predictor: LinearPredictor
    alpha: float | None = None  # The strength it was fitted with, where the method has chosen it
    # The problem that it minimises, where that is no longer the one the method was given
    debias: DebiasProblem | None = None
    duals: DualPoint | None = None  # A dual point that proves how good it is, where the method keeps one
    # Objective and certificate as a record has them, where the method computes them itself, perhaps by a read
    known: Record | Callable[[Executor], Record] | None = None
    # Where the method can look for weights that have a better dual point
    improved_weights: ImproveFn | None = None
    # What a first search for them, or for a dual point, is expected to take, in passes, and the most that one may
    first_search: float = 8.0
    search_passes: float = math.inf


def known_gap(problem: Problem, objective: float, gap: float, kind: str = "duality_gap") -> Record:
    """Return what a method knows of its weights without a read: their objective, and a certificate."""
    rounding = float(np.finfo(problem.dtype).eps) * abs(objective)
    return {
        "objective": objective,
        "certificate": {"kind": kind, "value": min(gap, objective - loss_named(problem.loss).floor)},
        "eval_bytes_read": 0,
        "certificate_rounding": rounding,
    }


@dataclass
class State:
    """Base of solver states: arrays and JSON scalars only, so that checkpoints need no code of the solver."""

    round: int = 0  # Rounds done
    passes: float = 0.0  # Block bytes read for updates divided by stored bytes

    def split(self) -> tuple[Record, dict[str, NDArray[Any]]]:
        """Return (scalars, arrays) by field name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in values.items() if name not in arrays}, arrays

    @classmethod
    def join(cls, scalars: Record, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a state from the output of `split`."""
        fields: Record = {**scalars, **arrays}
        return cls(**fields)


@dataclass
class RoundReport:
    """Statistics of one round, collected at no extra cost; one line of ``events.jsonl``."""

    running_loss: float  # Mean loss over the rows of the last read, each scored before it was learned from
    # Fraction of them that were predicted wrong; None for numbers, which are not right or wrong
    running_error: float | None
    n_rows: int  # Rows read
    bytes_read: int  # Stored bytes read from disk, and stored bytes found in worker caches
    cached_bytes: int
    kernel_seconds: float  # Sums over lanes: time in kernels, time waiting for data
    wait_seconds: float
    compile_seconds: float | None = None  # and compiling kernels, where the warm-up has left some
    # Loss on the fixed sample before (mean over lanes) and after averaging, and the lanes' relative spread
    averaging: dict[str, float] | None = None
    # seconds by worker: Each process's time in tasks; the driver's own merging is under its name
    worker_seconds: dict[str, float] = field(default_factory=dict)
    # bytes by worker: Highest resident size of each worker process so far
    worker_peaks: dict[str, int] = field(default_factory=dict)
    details: Record | None = None  # Method-specific statistics: JSON values
    # Notes for the reader of the report, one line each; every later round repeats them
    notes: list[str] | None = None
    # True where the model is one of several that are not compared yet: no certificate ends such a fit
    preliminary: bool | None = None
    # What the certificate would be, as far as a round can tell: it need not be computed before this is small
    gap_estimate: float | None = None
    objective_estimate: float | None = None  # and what the objective would be
    # The estimate at the end of the rounds that it is summed over: near a tolerance it is time to evaluate
    gap_expected: float | None = None

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        loss_sum: float,  # over the ledger's rows
        errors: int | None,  # rows predicted wrong
        *,
        averaging: dict[str, float] | None = None,
        details: Record | None = None,
        preliminary: bool | None = None,
    ) -> Self:
        """Return the report of a round from its ledger."""
        return cls(
            running_loss=loss_sum / ledger.n_rows,
            running_error=None if errors is None else errors / ledger.n_rows,
            n_rows=ledger.n_rows,
            bytes_read=ledger.bytes_read,
            cached_bytes=ledger.cached_bytes,
            kernel_seconds=ledger.kernel_seconds,
            wait_seconds=ledger.wait_seconds,
            compile_seconds=ledger.compile_seconds or None,
            averaging=averaging,
            worker_seconds=ledger.worker_seconds,
            worker_peaks=ledger.worker_peaks,
            details=details,
            preliminary=preliminary,
        )

    @property
    def ledger(self) -> Ledger:
        """The costs of the round; which blocks it read is not told."""
        own = {name: value for name, value in vars(self).items() if name in Ledger.__dataclass_fields__}
        return Ledger(**{**own, "compile_seconds": self.compile_seconds or 0.0})

    def with_costs(self, ledger: Ledger) -> Self:
        """Return the report with the rows and the costs of another read of the same round."""
        both = vars(self.ledger.merge(ledger))
        costs = {name: value for name, value in both.items() if name in vars(self)}
        return replace(self, **{**costs, "compile_seconds": both["compile_seconds"] or None})


def predictor_of(theta: NDArray[np.float64], problem: Problem) -> LinearPredictor:
    """Return the model of weights (m, k), of which the first row is the intercept's where there is one."""
    first = int(problem.fit_intercept)
    intercept = theta[0].copy() if first else np.zeros(theta.shape[1])
    return LinearPredictor(np.ascontiguousarray(theta[first:], problem.dtype), intercept)


S = TypeVar("S", bound=State)


class Solver(ABC, Generic[S]):
    """One method on one problem: everything that the driver asks of it.

    It is made, by the class or a function that takes the same, from metadata alone; that raises ParameterError,
    MismatchError or MemoryPlanError for what cannot be fitted. `params` are all of the method, resolved; `slots` are
    worker threads, for the plan only; `initial` is the model to start from. `state` is the folder of what is kept for
    each row, given to methods with ``keeps_rows`` only; without it a fit can be planned but not run.
    """

    state_type: type[S]
    problem: Problem
    params: Params
    generates = False  # whether rows are mapped to generated features, by arrays of their own width
    plan: Plan  # Memory, traffic and, where the method has an end of its own, passes
    data: DatasetRef  # The training data with the plan's cache budget: what workers open
    lanes: list[tuple[int, ...]]  # The partitions or column shards of each lane
    sgd: "Solver[State] | None" = None  # whose pass comes before the first round
    enough: Enough = staticmethod(no_gap)  # By the tolerances of the fit: a round need not lead much further

    def __init__(
        self,
        problem: Problem,
        params: Params,
        *,
        slots: int = 1,
        memory: MemoryBudget | None = None,
        initial: LinearModel | None = None,
        state: str | None = None,
    ) -> None:
        self.problem, self.params, self._initial, self._folder = problem, params, initial, state
        self._slots, self._memory = slots, memory or MemoryBudget(workers=slots)

    def prepare(self, executor: Executor) -> None:
        """Have kernels compiled by the driver, then loaded by every worker; not timed as training."""
        width = self.problem.shape[0] if self.generates else 1
        prepare(executor, self.problem, self.kernels, self.tasks(self.data.like(width)))
        if self.sgd is not None:  # its pass has kernels of its own
            self.sgd.prepare(executor)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """What decides which kernels a fit of a problem needs: about, as others are compiled in its first round."""
        # Each strength of a path starts from another model, and needs no other kernels.
        told = [value for name, value in self.params.items() if name != "init" and not isinstance(value, float)]
        return type(self).__name__, *map(str, told)

    @abstractmethod
    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """Return the tasks of a fit on one partition at about zero weights: first the one of most rounds.

        On one row (`DatasetRef.like`) they compile all kernels that the fit needs. They keep nothing.
        """

    @abstractmethod
    def init(self) -> S:
        """Return the state before the first round."""

    @abstractmethod
    def step(self, state: S, executor: Executor) -> tuple[S, RoundReport]:
        """Do one round; a pure function of the state, the data and the settings."""

    async def round(self, state: S) -> tuple[S, RoundReport]:
        """Do one round as a fit of a batch; solvers whose fits share reads await each of them."""
        return await Wanted(partial(self.step, state))

    @abstractmethod
    def status(self, state: S) -> Status:
        """Return RUNNING, DIVERGED, or CONVERGED or MAX_PASSES at the method's own end."""

    @abstractmethod
    def weights(self, state: S) -> Fitted:
        """Return the predictor that a model made of the state now would hold."""

    def certifies(self, state: S) -> bool:
        """Whether rounds go on until a tolerance is met that is asked for, whatever CONVERGED says."""
        return False

    def saved(self, state: S) -> None:
        """Take note that a checkpoint of `state` was saved, so that what it needs in RUN/state stays."""
        return  # most solvers keep nothing but the state

    def probe(self, block: int) -> None:
        """Do what a round does to one partition in this process, and keep nothing: `plan` times it."""
        with task_settings():
            task, shared, item, _ = self.tasks(self.data.uncached(), block)[0]
            task(shared, item)

    def holds(self, state: S) -> bool:
        """Whether what RUN/state has of rows for this state is whole; True where it can be recomputed to the bit."""
        return True


@runtime_checkable
class StartsPath(Protocol):
    """A solver whose method has regularization paths."""

    def intercept_alone(self, executor: Executor) -> NDArray[np.float64]:
        """Return the optimal intercept at zero weights, shape (k,), where a path begins."""


def prepare(executor: Executor, problem: Problem, kernels: tuple[Any, ...], calls: list[Call]) -> None:
    """Do tasks in this process, which writes the cache on disk that local workers load from, then in every worker."""
    meta = problem.dataset.meta
    numbers = index_dtype(meta.n_features).name, index_dtype(meta.n_rows).name
    of_data = meta.layout, meta.dtype, meta.target, meta.weighted, *numbers
    kind = *of_data, problem.loss, problem.penalty, problem.dtype.name, problem.shape[1], *kernels
    if not problem.penalty_is_quadratic:  # certificates, and proximal steps, are made in the driver
        prox_rows(problem.penalty, np.zeros((1, problem.shape[1])), 1.0, 0.0)
    # workers would spend seconds on compiling, and memory that they do not give back
    began = time.perf_counter()
    rehearse((kind, calls))
    executor.each_worker(rehearse, (kind, calls))
    loaded(time.perf_counter() - began)


def evaluation_tasks(
    problem: Problem, data: DatasetRef, models: int = 1, predictor: LinearPredictor | None = None
) -> list[Call]:
    """Return the tasks of an evaluation on one row: of linear `models` side by side, or of another predictor."""
    k, loss = problem.shape[1], loss_named(problem.loss)
    slopes, number = loss.certificate != "none" and predictor is None, min(models, 2)
    calls = []
    # the gradients of several have a kernel for as many values as features and one for fewer
    for width in range(1, number + 1):
        task = GradientTask(data.like(width), problem.loss, problem.row_weights, slopes, problem.is_ridge)
        judged = predictor or LinearPredictor(np.zeros((width, k), problem.dtype), np.zeros(k))
        calls.append(Call(ReadTogether((task,)), (judged,), ((0, Lane(0, (0,))),) * number))
    return calls


def solver_factory(method: Method) -> Callable[..., Solver[State]]:
    """Return what makes a method's solvers: the class, of a stochastic method with the method's steps bound."""
    factory: Callable[..., Solver[State]] = import_object(method.solver)
    return factory if method.steps is None else partial(factory, steps=method.load_steps())
