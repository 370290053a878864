"""The fit of one setting into its run folder, from its newest checkpoint if it has one."""

from __future__ import annotations

import functools
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from types import MappingProxyType

from distls.clock import began
from distls.evaluation.evaluator import Evaluator
from distls.evaluation.metrics import Evaluation, LabelEvaluation
from distls.execution import memory_of
from distls.execution.batch import OwnSeconds, Wanted
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.facts import Fact, Shown
from distls.methods.method import Params
from distls.serving.fitted_model import FittedModel, fitted_model
from distls.solvers.dual_ascent.dual_search import DualSearch
from distls.solvers.events import Callback, FitStart
from distls.solvers.loop import Progress, Solution, progress_of, solve
from distls.solvers.solver import Fitted, Record, S, Solver, Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import CorruptDataError, FormatError
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import LinearModel, load_model, save_model
from distls.storage.model.sparse_blocks import ClassBlocks
from distls.training.callbacks import Checkpointer, EventLog
from distls.training.configuration import FitRequest, Setting
from distls.training.fit_facts import fit_facts
from distls.training.fit_warnings import fit_warnings
from distls.training.run_folder import Run
from distls.workers.duals.stored_duals import publish_duals, published_duals
from distls.workers.prediction.predictor import LinearPredictor


@dataclass(frozen=True, repr=False)
class FitResult(Shown):
    """The result of a fit.

    Attributes
    ----------
    model : FittedModel or None
        None when the fit was interrupted or diverged.
    run : Place or None
        None when no run folder was asked for.
    record : dict
        The last round's record.
    selected : dict or None
        With select: the parameters that won.
    calibrated : Evaluation, LabelEvaluation or None
        With calibrate: of the calibrated model on these rows.
    """

    status: Status
    model: FittedModel | None
    run: Place | None
    passes: float
    seconds: float
    record: Record
    selected: Params | None = None
    calibrated: Evaluation | LabelEvaluation | None = None
    made: float = field(
        default_factory=time.perf_counter, compare=False
    )  # when, for those who go on counting

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        # of the settings of a fit only the best has a whole record
        clock = {"status": self.status, "passes": self.passes, "seconds": self.seconds}
        found, model = fit_facts({**self.record, **clock}), self.model
        if model is not None:
            found.insert(3, Fact("model", f"{model.method} ({model.loss})"))
        return found if self.run is None else [*found, Fact("run", self.run, str)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines about a model that is not what it seems: far from the optimum, or no better than guessing."""
        return tuple(self.record.get("warnings", ()))


@dataclass(frozen=True)
class FitOptions:
    """How a fit is run; the result does not depend on it."""

    executor: Executor
    memory: MemoryBudget | None  # None: what the executor says of its workers
    callbacks: tuple[Callback, ...]
    checkpoint_seconds: float
    what: str = ""  # of several settings which this is, for those who watch
    keep_final: bool = True  # the last round, so that the fit may go on
    began: float = field(default_factory=began)  # when the command began, by `time.perf_counter`
    ingest_seconds: float = 0.0  # of it spent on the data set

    def __post_init__(self) -> None:
        """Ask the executor for the memory of its workers, if it was not given."""
        if self.memory is None:
            object.__setattr__(self, "memory", memory_of(self.executor))

    @property
    def keeps_final(self) -> bool:
        """Whether the last round is kept; the fits of several settings are many."""
        return self.keep_final and not self.what

    def started(self, progress: Progress) -> None:
        """Add the seconds of the command before its fit; those of several settings are the parent's."""
        if not self.what:
            start = time.perf_counter() - self.began
            progress.seconds += start
            progress.ingest_seconds += self.ingest_seconds
            progress.start_seconds += start - self.ingest_seconds


async def train_setting(run: Run, request: FitRequest, options: FitOptions) -> FitResult:
    """Train the one setting of a request into `run`, from its newest checkpoint if it has one, as a fit of a batch."""
    status = run.status
    # A run that has ended is not trained again.
    if status["status"] not in (Status.RUNNING, Status.INTERRUPTED):
        return _finished(run, status)
    (setting,) = request.settings
    solver = setting.solver(slots=options.executor.slots, memory=options.memory, run=run.path)
    state, progress, best = _start(run, solver)
    options.started(progress)
    earlier = progress.seconds
    made = {"plan": solver.plan.to_json(), "versions": dict(_versions())}
    # Written before the first round: a run that is killed there can be resumed.
    run.write_status({"status": Status.RUNNING, "passes": state.passes, "seconds": progress.seconds, **made})
    # the other methods have bounds of their own, which converge
    sought = request.is_judged and setting.method.steps is not None
    evaluator = Evaluator(
        setting.problem, solver.data, eval_data=request.eval_data, select_data=request.selected_on,
        search=_search(run, request, options, progress) if sought else None,
    )  # fmt: skip
    meta, slots = request.data.meta, options.executor.slots
    start = FitStart(
        request.method.name, setting.problem.loss, request.data.path.name, meta.n_rows, len(solver.lanes), slots,
        request.passes, state.passes, options.what,
    )  # fmt: skip
    saver = Checkpointer(run, options.checkpoint_seconds, solver.saved)
    watchers = [*options.callbacks, EventLog(run), saver]
    for callback in watchers:
        callback.on_start(start)
    prepared = await OwnSeconds()
    await Wanted(solver.prepare)  # workers compile and load their kernels
    progress.startup_seconds += await OwnSeconds() - prepared
    solution = await solve(
        solver,
        state,
        limits=request,
        evaluate=evaluator,
        callbacks=watchers,
        progress=progress,
        best=best,
        keep_best=lambda fitted: save_model(run.path / "best", _model(fitted, setting)),
        what=options.what,
    )
    # Only a fit that a limit has ended can go on from its last state.
    keep = options.keeps_final and solver.status(solution.state) == Status.RUNNING
    return await _conclude(run, solution, setting, evaluator, request.eval_data, made, keep, earlier)


def _search(run: Run, request: FitRequest, options: FitOptions, progress: Progress) -> DualSearch:
    """Return what looks for a bound of the optimum."""
    folder, slots = run.path.absolute() / "state", options.executor.slots
    return DualSearch(
        request.settings[0].problem, request, progress, folder, slots=slots, memory=options.memory
    )


@functools.cache  # looking for the metadata takes as long as a round of a small fit
def _versions() -> Mapping[str, str]:
    """Return the versions that decide the bits of a fit."""
    libraries = {name: metadata.version(name) for name in ("distls", "numpy", "numba")}
    return MappingProxyType({**libraries, "python": platform.python_version()})


def _start(run: Run, solver: Solver[S]) -> tuple[S, Progress, Fitted | None]:
    """Return state, progress and the best weights: of the newest checkpoint, or of a fresh start."""
    found = run.load_checkpoint(solver.state_type, solver.holds)
    if found is None:
        # Events of an attempt without a checkpoint are not part of this fit.
        run.truncate_events(0)
        return solver.init(), Progress(), None
    state, extra, checkpoint = found
    # Events after the checkpoint will be written again.
    run.truncate_events(state.round)
    progress, best = progress_of(extra, str(checkpoint)), None
    if progress.best is not None and (run.path / "best").exists():
        model = load_model(run.path / "best")
        # The published alpha of a path, which the problem does not know.
        alpha = model.params.get("alpha") if math.isnan(solver.problem.alpha) else None
        best = Fitted(LinearPredictor.of(model), alpha)
    return state, progress, best


def _model(fitted: Fitted, setting: Setting) -> LinearModel:
    problem, params = setting.problem, setting.params
    meta = problem.dataset.meta
    return LinearModel(
        **fitted.predictor.stored(),
        classes=meta.classes,
        method=setting.method.name,
        loss=problem.loss,
        params=params if fitted.alpha is None else {**params, "alpha": fitted.alpha},
        transforms=meta.transforms,
        transforms_digest=meta.transforms_digest,
        dataset_fingerprint=problem.dataset.fingerprint,
        zero_based=meta.zero_based,
        source=meta.source,
        features=problem.dataset.features(),
        target=problem.target,
    )


async def _conclude(
    run: Run,
    solution: Solution,
    setting: Setting,
    evaluator: Evaluator,
    eval_data: Dataset | None,
    made: Record,
    keep_final: bool,
    earlier: float,  # seconds until the fit was begun or resumed
) -> FitResult:
    record = dict(solution.record)
    model = None
    if solution.status not in (Status.INTERRUPTED, Status.DIVERGED):
        predictor = await evaluator.published(solution.fitted.predictor)
        model = _model(replace(solution.fitted, predictor=predictor), setting)
        record |= await evaluator.selection(predictor)
        # status.json has them only where there are some
        proves, ordered = setting.method.proves, "shuffle" in setting.params
        slope = evaluator.slope
        found = fit_warnings(setting.problem, solution.status, record, slope, eval_data, proves, ordered)
        record |= {"warnings": found} if found else {}
        # The run may have been removed meanwhile, and must not come back as half a run.
        run.check_there()
        if keep_final:  # first: a run in which it fails has no model
            run.keep_final(solution.state, {"progress": asdict(solution.progress)})
        save_model(run.path / "model", model)
        if isinstance(model.weights, ClassBlocks):
            model = load_model(run.path)  # its blocks are those of the model from now on
        record["weights_sha256"] = model.sha256
    solution.progress.seconds = earlier + await OwnSeconds()
    record |= asdict(solution.progress)
    clock = {"passes": solution.state.passes, **made}
    # After the model, since a status of success promises one.
    run.write_status({**record, **clock, "status": solution.status})
    if model is not None:
        duals = solution.fitted.duals
        if duals is not None:
            publish_duals(duals, setting.problem.dataset.fingerprint)
        # last: a run killed before its status is written resumes from its checkpoint
        run.clear(keep_rows=duals is not None)
    fitted = None if model is None else fitted_model(model)
    return FitResult(
        solution.status, fitted, run.path, solution.state.passes, solution.progress.seconds, record
    )


def _finished(run: Run, status: Record) -> FitResult:
    """Return the result of a run that has ended already; resuming it changes nothing."""
    ended = Status(status["status"])
    model = fitted_model(_published(run)) if ended != Status.DIVERGED else None
    if model is not None:
        # what a process that was killed just then has left
        run.clear(keep_rows=published_duals(str(run.path), model.dataset_fingerprint) is not None)
    return FitResult(
        ended, model, run.path, status["passes"], status["seconds"], status, status.get("selected")
    )


def _published(run: Run) -> LinearModel:
    """Return the model of a run that has ended; raise CorruptDataError if it was removed or damaged since."""
    if not (run.path / "model").is_dir():
        raise CorruptDataError(f"{run.path}: it has ended, and its model was removed; {run.again}")
    try:
        return load_model(run.path)
    except (CorruptDataError, FormatError) as error:
        raise CorruptDataError(f"{error}; {run.again}") from None
