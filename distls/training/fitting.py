"""`fit` and `resume`: from a method's name and a dataset to a published model."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distls.evaluation.evaluate import Evaluator
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.memory_plan import check_workers
from distls.solvers.checkpoint_check import check_state
from distls.solvers.events import Callback, FitStart
from distls.solvers.loop import Progress, Solution, progress_of, solve
from distls.solvers.solver import Fitted, S, Solver, Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import DistlsError
from distls.storage.filesystem.atomic import describe_os_error
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import refuse_links
from distls.storage.model.model import LinearModel, load_model, save_model, used_rows
from distls.training.callbacks import Checkpointer, EventLog
from distls.training.configuration import FitRequest, Setting
from distls.training.regularization_path import has_path, settings_of_path, warm_started
from distls.training.run_folder import Run
from distls.workers.prediction.predictor import LinearPredictor

__all__ = ["FitResult", "fit", "proceed", "resumable", "resume", "train"]


@dataclass(frozen=True)
class FitResult:
    """What a fit returns.

    Attributes
    ----------
    status : Status
    model : LinearModel or None
        None when the fit was interrupted or diverged.
    run : Place or None
        None when no run folder was asked for.
    passes, seconds : float
    record : dict
        The last round's record.
    selected : dict or None
        With select: the parameters that won.
    """

    status: Status
    model: LinearModel | None
    run: Place | None
    passes: float
    seconds: float
    record: dict[str, Any]
    selected: dict[str, Any] | None = None


def fit(
    method: str,
    dataset: str | Place | Dataset,
    run: str | Place | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    passes: float | None = None,
    tol: float | None = None,
    max_seconds: float | None = None,
    eval_data: str | Place | Dataset | None = None,
    eval_every: float | None = None,
    patience: int | None = None,
    select: str | Place | Dataset | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    memory: MemoryBudget | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 30.0,
) -> FitResult:
    """Train a model.

    Parameters
    ----------
    method : str
        See ``distls methods``.
    dataset : path or Dataset
    run : path, optional
        Folder to keep configuration, events, checkpoints and model in; a temporary one by default.
    params : mapping, optional
        Parameters of the method. With `select`, lists of values are tried in all combinations.
    passes : float, optional
        Limit of reads of the data for updates; default 10 when no other limit is given.
    tol : float, optional
        Stop when the certificate (see docs/notation.md) is at most this.
    max_seconds : float, optional
        Of training, evaluation not counted.
    eval_data : path or Dataset, optional
        Scored every `eval_every` passes and at the end.
    eval_every : float, optional
        Passes between evaluations of the objective, the certificate and `eval_data`; 0 for none at all. Default:
        only at the end, or every pass when `tol` or `patience` need it.
    patience : int, optional
        Stop after so many evaluations without a lower error on `eval_data`, and publish the best.
    select : path or Dataset, optional
        Chooses among several settings by the error on this data.
    seed : int
    executor : Executor, optional
        Default: this process.
    memory : MemoryBudget, optional
        A worker's memory, refused when the job cannot fit, and the share kept for decoded partitions.
    callbacks : sequence of Callback
    checkpoint_seconds : float
        Seconds between checkpoints.

    Returns
    -------
    FitResult

    Raises
    ------
    ParameterError, MismatchError, FormatError, MemoryPlanError
        Before any partition is read.
    StorageError
        The run cannot be written any more; `resume` continues it.
    """
    request = FitRequest.of(
        method,
        dataset,
        params=params,
        passes=passes,
        tol=tol,
        max_seconds=max_seconds,
        eval_data=eval_data,
        eval_every=eval_every,
        patience=patience,
        select=select,
        seed=seed,
    )
    return train(
        request,
        run,
        executor=executor,
        memory=memory,
        callbacks=callbacks,
        checkpoint_seconds=checkpoint_seconds,
    )


def train(
    request: FitRequest,
    run: str | Place | None = None,
    *,
    executor: Executor | None = None,
    memory: MemoryBudget | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 30.0,
) -> FitResult:
    """Train what was asked for and checked; parameters, result and errors as those of `fit`."""
    runner = executor or SerialExecutor()
    request.check(slots=runner.slots, memory=memory)
    with _RunFolder(run, request.config) as folder:
        return _execute(folder, request, _Options(runner, memory, tuple(callbacks), checkpoint_seconds))


def resume(
    run: str | Place,
    *,
    executor: Executor | None = None,
    memory: MemoryBudget | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 30.0,
) -> FitResult:
    """Continue a run that was interrupted or killed; the weights are those of an undisturbed run.

    Raises
    ------
    FormatError
        `run` is not a run.
    MismatchError
        The dataset is not the one the run was started with.
    """
    return proceed(
        *resumable(run),
        executor=executor,
        memory=memory,
        callbacks=callbacks,
        checkpoint_seconds=checkpoint_seconds,
    )


def resumable(run: str | Place) -> tuple[Run, FitRequest]:
    """Open a run that `proceed` can go on with, and its data sets.

    Raises
    ------
    FormatError, MismatchError, StorageError
    """
    folder = Run.open(place_of(run))
    refuse_links(folder.path)
    with folder.held():  # another process may be writing it
        return folder, FitRequest.of_run(folder)


def proceed(
    folder: Run,
    request: FitRequest,
    *,
    executor: Executor | None = None,
    memory: MemoryBudget | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 30.0,
) -> FitResult:
    """Continue a run that is open; parameters, result and errors as those of `resume`."""
    options = _Options(executor or SerialExecutor(), memory, tuple(callbacks), checkpoint_seconds)
    return _execute(folder, request, options)


class _RunFolder:
    """The run folder asked for, or a temporary one that is removed at the end."""

    def __init__(self, path: str | Place | None, config: dict[str, Any]) -> None:
        self._temporary = None if path is not None else tempfile.mkdtemp(prefix="distls-run-")
        self._path = place_of(path if path is not None else f"{self._temporary}/run")
        self._config = config

    def __enter__(self) -> Run:
        return Run.create(self._path, self._config)

    def __exit__(self, *error: object) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


@dataclass(frozen=True)
class _Options:
    executor: Executor
    memory: MemoryBudget | None
    callbacks: tuple[Callback, ...]
    checkpoint_seconds: float


def _execute(run: Run, request: FitRequest, options: _Options) -> FitResult:
    try:
        with run.held():
            for dataset in (request.data, request.eval_data, request.select):
                if dataset is not None:
                    check_workers(options.executor, dataset, run.path)
            return _train_all(run, request, options)
    except OSError as error:
        if isinstance(error, DistlsError):
            raise
        remedy = f"when that is mended, `distls resume {run.path}` continues"
        raise describe_os_error(error, f"{run.path}: the fit stopped", remedy) from None


def _train_all(run: Run, request: FitRequest, options: _Options) -> FitResult:
    """Train what was asked for: one setting, a path of them, or several to choose among."""
    if has_path(request.method, request.grid):
        (setting,) = request.settings
        points = settings_of_path(setting.params, setting.problem, options.executor)
        return _train_children(run, request, points, options, chained=True)
    if request.select is None and len(request.settings) == 1:
        return _train(run, request, options)
    return _train_children(run, request, request.grid, options)


def _train_children(
    run: Run,
    request: FitRequest,
    settings: Sequence[dict[str, Any]],
    options: _Options,
    *,
    chained: bool = False,
) -> FitResult:
    """One child run a setting, in order; the best on the selection data, or the last, is published in the parent.

    Where they are chained, each starts from the model of the one before.
    """
    seconds, passes = 0.0, 0.0
    results: list[dict[str, Any]] = []
    best: tuple[float, FitResult, dict[str, Any]] | None = None
    before: Place | None = None
    for number, planned in enumerate(settings):
        path = run.path / "children" / f"{number:03d}"
        params = warm_started(planned, before) if chained else planned
        child_request = _child_request(request, params)
        child = Run.open(path) if (path / "config.json").exists() else Run.create(path, child_request.config)
        with child.held():
            result = _train(child, child_request, options)
        seconds, passes = seconds + result.seconds, passes + result.passes
        if result.status == Status.INTERRUPTED:
            run.write_status({**result.record, "status": result.status, "passes": passes, "seconds": seconds})
            return replace(result, run=run.path, passes=passes, seconds=seconds)
        results.append(_child_summary(params, result))
        judged = result.record.get("select_error")
        error = math.inf if judged is None else judged
        if result.model is not None:
            before = path
            if best is None or error < best[0] or request.select is None:
                best = (error, result, params)
    return _publish_best(run, best, results, passes, seconds)


def _child_request(request: FitRequest, params: dict[str, Any]) -> FitRequest:
    """Return the request of one setting, which the parent run judges by its selection data."""
    known = [setting for setting in request.settings if setting.params == params]
    # a point of a path is a new setting
    setting = known[0] if known else Setting.of(request.method, params, request.data, request.seed)
    return replace(request, settings=[setting], select=None, selected_on=request.select)


def _publish_best(
    run: Run,
    best: tuple[float, FitResult, dict[str, Any]] | None,
    results: list[dict[str, Any]],
    passes: float,
    seconds: float,
) -> FitResult:
    if best is None:
        run.write_status(
            {"status": Status.DIVERGED, "passes": passes, "seconds": seconds, "children": results}
        )
        return FitResult(Status.DIVERGED, None, run.path, passes, seconds, {})
    _, won, params = best
    assert won.model is not None
    save_model(run.path / "model", won.model)
    final = {**won.record, "status": won.status, "passes": passes, "seconds": seconds}
    final |= {"selected": params, "children": results, "weights_sha256": won.model.sha256}
    run.write_status(final)
    run.clear()
    return replace(won, run=run.path, passes=passes, seconds=seconds, selected=params)


def _child_summary(params: dict[str, Any], result: FitResult) -> dict[str, Any]:
    """Return the entry of a child in its parent's ``status.json``."""
    record = result.record
    summary: dict[str, Any] = {"params": params, "status": result.status}
    summary["error"] = record.get("select_error")
    if "select_mse" in record:
        summary["mse"] = record["select_mse"]
    if params.get("penalty", "l2") != "l2" and result.model is not None:
        summary["non_zero_rows"] = len(used_rows(result.model.weights))
    shown = {name: record[name] for name in ("objective", "eval_error") if record.get(name) is not None}
    return {**summary, "passes": result.passes, **shown}


def _train(run: Run, request: FitRequest, options: _Options) -> FitResult:
    """Train the one setting of a request into `run`, from its newest checkpoint if it has one."""
    status = run.status
    if status["status"] not in (Status.RUNNING, Status.INTERRUPTED):
        return _finished(run, status)
    (setting,) = request.settings
    solver = setting.solver(slots=options.executor.slots, memory=options.memory, run=run.path)
    state, progress, best = _start(run, solver)
    run.write_status({"status": Status.RUNNING, "passes": state.passes, "seconds": progress.seconds})
    evaluator = Evaluator(
        setting.problem,
        options.executor,
        solver.data,
        eval_data=request.eval_data,
        select_data=request.selected_on,
    )
    start = FitStart(
        request.method.name, setting.problem.loss, request.data.path.name, request.data.meta.n_rows,
        len(solver.lanes), options.executor.slots, request.passes, state.passes,
    )  # fmt: skip
    watchers = [*options.callbacks, EventLog(run), Checkpointer(run, options.checkpoint_seconds)]
    for callback in watchers:
        callback.on_start(start)
    began = time.perf_counter()
    solver.prepare(options.executor)
    startup = time.perf_counter() - began
    solution = solve(
        solver,
        state,
        options.executor,
        limits=request.limits,
        evaluate=evaluator,
        callbacks=watchers,
        progress=progress,
        best=best,
        keep_best=lambda fitted: save_model(run.path / "best", _model(fitted, setting)),
    )
    return _conclude(run, solution, setting, evaluator, startup)


def _start(run: Run, solver: Solver[S]) -> tuple[S, Progress, Fitted | None]:
    """Return state, progress and the best weights: of the newest checkpoint, or of a fresh start."""
    found = run.load_checkpoint(solver.state_type)
    if found is None:
        run.truncate_events(0)
        return solver.init(), Progress(), None
    state, extra = found
    state = check_state(solver, state, str(run.checkpoints()[-1]))
    run.truncate_events(state.round)
    progress, best = progress_of(extra, str(run.checkpoints()[-1])), None
    if progress.best is not None and (run.path / "best").exists():
        model = load_model(run.path / "best")
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


def _conclude(
    run: Run,
    solution: Solution,
    setting: Setting,
    evaluator: Evaluator,
    startup: float,
) -> FitResult:
    record = dict(solution.record)
    model = None
    if solution.status not in (Status.INTERRUPTED, Status.DIVERGED):
        predictor = evaluator.published(solution.fitted.predictor)
        model = _model(replace(solution.fitted, predictor=predictor), setting)
        record |= evaluator.selection(predictor)
        save_model(run.path / "model", model)
        record["weights_sha256"] = model.sha256
    clock = {"passes": solution.state.passes, **asdict(solution.progress), "startup_seconds": startup}
    run.write_status({**record, **clock, "status": solution.status})
    if model is not None:
        run.clear()  # only now: killed before it has a status, the run goes on from its checkpoint
    return FitResult(
        solution.status, model, run.path, solution.state.passes, solution.progress.seconds, record
    )


def _finished(run: Run, status: dict[str, Any]) -> FitResult:
    """Return the result of a run that has ended already; resuming it changes nothing."""
    ended = Status(status["status"])
    model = load_model(run.path) if ended != Status.DIVERGED else None
    if model is not None:
        run.clear()  # what a process that was killed just then has left
    return FitResult(
        ended, model, run.path, status["passes"], status["seconds"], status, status.get("selected")
    )
