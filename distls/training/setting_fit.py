"""The fit of one setting into its run folder, from its newest checkpoint if it has one."""

import functools
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from types import MappingProxyType
from typing import Any, NamedTuple

from distls.clock import began
from distls.evaluation.calibrate import Calibrated, calibrate_model
from distls.evaluation.certificates import balances_for
from distls.evaluation.evaluator import Evaluator, of_raw_rows
from distls.evaluation.metrics import Evaluation, LabelEvaluation
from distls.execution import memory_of
from distls.execution.batch import OwnSeconds, Wanted
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.facts import Fact, Shown, said
from distls.methods.method import Params
from distls.methods.parameters import settings_text
from distls.serving.fitted_model import FittedModel, fitted_model
from distls.solvers.dual_ascent.dual_search import DualSearch
from distls.solvers.events import Callback, FitStart
from distls.solvers.loop import Progress, Solution, Standing, solve
from distls.solvers.solver import Fitted, S, Solver
from distls.solvers.status import Record, Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import CorruptDataError, FormatError
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import LinearModel, load_model, save_model
from distls.storage.model.sparse_blocks import ClassBlocks
from distls.training.callbacks import Checkpointer, EventLog
from distls.training.configuration import FitRequest, Setting
from distls.training.fit_facts import bound_text, fit_facts
from distls.training.fit_warnings import fit_warnings
from distls.training.run_folder import Run
from distls.workers.duals.stored_duals import DualPoint, drop_others, publish_duals, published_duals


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
        What ``status.json`` holds: the last round's record, scores, warnings, plan and costs.
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
    # when, for those who go on counting
    made: float = field(default_factory=time.perf_counter, compare=False)

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        # of the settings of a fit only the best has a whole record
        clock = {"status": self.status, "passes": self.passes, "seconds": self.seconds}
        found, model = fit_facts({**self.record, **clock}), self.model
        if model is not None:
            found.insert(3, Fact("model", f"{model.method} ({model.loss})"))
        return found if self.run is None else [*found, Fact("run", self.run, str)]

    def further_facts(self) -> list[Fact]:
        """Return what was selected, the bound of the objective, and notes, as the command line prints them."""
        found = [] if self.selected is None else [Fact("selected", self.selected, settings_text)]
        found += [Fact("bound", bound)] if (bound := bound_text(self.record)) else []
        return found + [Fact("note", said(text)) for text in self.record.get("notes", ())]

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
    """Train the one setting of a request into `run`, from where it stood if it was stopped, as a fit of a batch."""
    # A run that has ended is not trained again.
    if run.has_ended:
        return finished(run)
    (setting,) = request.settings
    solver = setting.solver(slots=options.executor.slots, memory=options.memory, state=run.state)
    begun = _start(run, solver)
    options.started(begun.progress)
    earlier = begun.progress.seconds
    made: Record = {"plan": solver.plan.to_json(), "versions": dict(_versions())}
    clock = {"passes": begun.state.passes, "seconds": earlier}
    # Written before the first round: a run that is killed there can be resumed.
    run.write_status({"status": Status.RUNNING, **clock, **made})
    evaluator = _evaluator(run, request, options, solver, begun.progress)
    meta, slots = request.data.meta, options.executor.slots
    start = FitStart(
        request.method.name, setting.problem.loss, request.data.path.name, meta.n_rows, len(solver.lanes), slots,
        request.passes, begun.state.passes, options.what,
    )  # fmt: skip
    saver = Checkpointer(run, options.checkpoint_seconds, solver.saved)
    watchers = [*options.callbacks, EventLog(run), saver]
    for callback in watchers:
        callback.on_start(start)
    prepared = await OwnSeconds()
    await Wanted(solver.prepare)  # workers compile and load their kernels
    begun.progress.startup_seconds += await OwnSeconds() - prepared
    solution = await solve(
        solver, begun, limits=request, evaluate=evaluator, searches=evaluator.searches, callbacks=watchers,
        what=options.what,
    )  # fmt: skip
    # Only a fit that a limit has ended can go on from its last state.
    keep = options.keeps_final and solver.status(solution.state) == Status.RUNNING
    again = solution.done is begun
    try:
        end = await _judged(run, request, solution, evaluator, keep=keep, again=again)
    except KeyboardInterrupt:  # as in a round: nothing that was learnt is lost
        saver.save(solution.done)
        end = End(Status.INTERRUPTED, solution.record)
    duals = solution.fitted.duals
    end = store(run, end, duals)
    solution.progress.seconds = earlier + await OwnSeconds()
    return close(run, end, {"passes": solution.state.passes, **asdict(solution.progress), **made}, duals)


def _evaluator(
    run: Run, request: FitRequest, options: FitOptions, solver: Solver[Any], progress: Progress
) -> Evaluator:
    """Return what evaluates the fit, with a search for a bound of the optimum where its method has none of its own."""
    (setting,), search = request.settings, None
    if request.is_judged and setting.method.steps is not None:
        folder, slots = run.path.absolute() / "state", options.executor.slots
        search = DualSearch(setting.problem, request, progress, folder, slots=slots, memory=options.memory)
    return Evaluator(
        setting.problem, solver.data, eval_data=request.eval_data, select_data=request.selected_on,
        search=search, balances=request.rtol is not None and balances_for(setting.params, setting.method),
    )  # fmt: skip


@functools.cache  # looking for the metadata takes as long as a round of a small fit
def _versions() -> Mapping[str, str]:
    """Return the versions that decide the bits of a fit."""
    libraries = {name: metadata.version(name) for name in ("distls", "numpy", "numba")}
    return MappingProxyType({**libraries, "python": platform.python_version()})


def _start(run: Run, solver: Solver[S]) -> Standing[S]:
    """Return where the fit stood at its newest checkpoint, or a fresh start."""
    found = run.load_checkpoint(solver.state_type, solver.holds)
    # Events after the checkpoint will be written again.
    run.truncate_events(0 if found is None else found.state.round)
    return Standing(solver.init()) if found is None else found


def model_of(fitted: Fitted, setting: Setting) -> LinearModel:
    """Return the model that a fit of a setting would publish with these weights."""
    problem, params = setting.problem, setting.params
    return LinearModel(
        **of_raw_rows(fitted.predictor, problem).stored(), method=setting.method.name, loss=problem.loss,
        params=params if fitted.alpha is None else {**params, "alpha": fitted.alpha}, target=problem.target,
        **source_of(problem.dataset),
    )  # fmt: skip


def source_of(dataset: Dataset) -> dict[str, Any]:
    """Return what a model has of the data that it was trained on."""
    meta = dataset.meta
    return {
        "classes": meta.classes, "transforms": meta.transforms, "transforms_digest": meta.transforms_digest,
        "dataset_fingerprint": dataset.fingerprint, "zero_based": meta.zero_based, "source": meta.source,
        "features": dataset.features(),
    }  # fmt: skip


class End(NamedTuple):
    """How a fit ended: all that is published, but for its costs."""

    status: Status
    record: Record
    model: LinearModel | None = None
    calibrated: Any = None  # the evaluation of a calibrated model


async def _judged(
    run: Run, request: FitRequest, solution: Solution, evaluator: Evaluator, *, keep: bool, again: bool
) -> End:
    """Return the end of a fit: of one that has a model with scores, warnings and calibration.

    With `keep` its last round is kept, first of all; `again`: it had ended when it was stopped, and is resumed there.
    """
    (setting,), record, fitted = request.settings, dict(solution.record), solution.fitted
    if solution.status in (Status.INTERRUPTED, Status.DIVERGED):
        return End(solution.status, record)
    if keep:
        run.keep_final(solution.done)
    predictor = await evaluator.published(fitted.predictor)
    record |= await evaluator.selection(predictor)
    if again and fitted.duals is None and record.get("objective") is not None:
        await evaluator.objective(fitted)  # for the slope: the rest of the evaluation is in the record
    # status.json has them only where there are some
    proves, ordered, slope = setting.method.proves, "shuffle" in setting.params, evaluator.slope
    found = fit_warnings(setting.problem, solution.status, record, slope, request.eval_data, proves, ordered)
    record |= {"warnings": found} if found else {}
    end = End(solution.status, record, model_of(replace(fitted, predictor=predictor), setting))
    return await calibrated(run, request, end)


async def calibrated(run: Run, request: FitRequest, end: End) -> End:
    """Return an end with its model calibrated, if that was asked for."""
    if request.calibrate is None or end.model is None:
        return end
    data, model = request.calibrate, end.model

    def calibration(executor: Executor) -> Calibrated:
        asked = request.calibration, str(run.path), request.threshold_for
        return calibrate_model(executor, data, model, *asked)

    found = await Wanted(calibration)
    return end._replace(model=found.model, calibrated=found.evaluation)


def store(run: Run, end: End, duals: DualPoint | None = None) -> End:
    """Store the model of an end, and the duals that prove it: all that its status will promise."""
    # The run may have been removed meanwhile, and must not come back as half a run.
    run.check_there()
    model = end.model
    if model is None:
        return end
    save_model(run.path / "model", model)
    if isinstance(model.weights, ClassBlocks):
        model = load_model(run.path)  # its blocks are those of the model from now on
    if duals is not None:
        publish_duals(duals, model.dataset_fingerprint)
    return end._replace(model=model, record={**end.record, "weights_sha256": model.sha256})


def close(run: Run, end: End, costs: Record, duals: DualPoint | None = None) -> FitResult:
    """Write the status of an end that is stored, which makes it one, and remove what only a resume needs."""
    run.write_status({**end.record, **costs, "status": end.status})
    if end.model is not None:
        # last: a run killed before its status is written resumes from its checkpoint
        _clear(run, duals)
    return _result(run, end.model, end.calibrated)


def finished(run: Run) -> FitResult:
    """Return the result of a run that has ended already; resuming it changes nothing."""
    model = _published(run) if run.status["status"] != Status.DIVERGED else None
    if model is None:
        return _result(run, None)
    # what a process that was killed just then has left
    _clear(run, published_duals(str(run.path), model.dataset_fingerprint))
    return _result(run, model)


def _clear(run: Run, duals: DualPoint | None) -> None:
    run.clear()
    if duals is not None:
        drop_others(duals)


def _result(run: Run, model: LinearModel | None, judged: Any = None) -> FitResult:
    """Return what a run says about its end: the same, whether it has just come or was there already."""
    status = run.status
    return FitResult(
        Status(status["status"]), None if model is None else fitted_model(model), run.path, status["passes"],
        status["seconds"], status, status.get("selected"), judged,
    )  # fmt: skip


def _published(run: Run) -> LinearModel:
    """Return the model of a run that has ended; raise CorruptDataError if it was removed, changed or damaged since."""
    if not (run.path / "model").is_dir():
        raise CorruptDataError(f"{run.path}: it has ended, and its model was removed; {run.again}")
    try:
        model = load_model(run.path)
    except (CorruptDataError, FormatError) as error:
        raise CorruptDataError(f"{error}; {run.again}") from None
    if model.sha256 != run.status.get("weights_sha256", model.sha256):
        raise CorruptDataError(f"{run.path}: its model is another one than it had ended with; {run.again}")
    return model
