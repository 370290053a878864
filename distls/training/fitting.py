"""`fit` and `resume`: from a method's name and a dataset to a published model."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from distls.execution import executor_of, memory_of
from distls.execution.batch import run_alone
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.facts import warn_caller
from distls.long_calls import Workers, long_call, watchers
from distls.memory_plan import check_workers
from distls.methods.method import Params
from distls.methods.method_registry import METHODS
from distls.methods.recommendation import AUTO
from distls.request import Options, takes_request
from distls.solvers.events import Callback
from distls.solvers.status import Status
from distls.storage.dataset.dataset import Dataset, is_dataset
from distls.storage.errors import CorruptDataError, MismatchError, ParameterError, StateLostError, StorageError
from distls.storage.filesystem.atomic import os_errors_described, remove_tree
from distls.storage.filesystem.memory_folder import temporary_place
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import refuse_links
from distls.storage.model.sparse_blocks import ClassBlocks
from distls.training.child_runs import budget_of, fits_at_once
from distls.training.configuration import FitRequest, Setting
from distls.training.exact_method import choosing
from distls.training.regularization_path import has_path, number_of_fits, path_start, settings_of_path
from distls.training.run_folder import Run
from distls.training.selection import train_children, train_folds
from distls.training.setting_fit import FitOptions, FitResult, finished, train_setting


class CallOptions(Options, Workers, total=False):
    """The keywords of `fit` that others have too, for type checkers."""


@long_call
@takes_request()
def fit(
    method: str | Place | Dataset = AUTO,
    dataset: str | Place | Dataset | None = None,
    run: str | Place | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    executor: Any = None,
    client: Any = None,
    memory: MemoryBudget | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 30.0,
    progress: Any = None,
    **asked: Unpack[CallOptions],
) -> FitResult:
    """Train a model.

    Parameters
    ----------
    method : str, optional
        See ``distls methods``. Default: the one that suits the data; ``fit("train", "run")`` is then enough.
    dataset : path or Dataset
    run : path, optional
        Folder to keep configuration, events, checkpoints and model in; a temporary one by default.
    params : mapping, optional
        Parameters of the method. With `select`, lists of values are tried in all combinations.
    %(request)s
    executor : Executor, Client or {"auto", "serial", "dask"}, optional
        Where to run; the result does not depend on it, of a method that is named. auto, the default: on the Dask client
        that is open, if there is one, else in this process.
    client : dask.distributed.Client, optional
        The same as a client for `executor`.
    memory : MemoryBudget, optional
        A worker's memory, refused when the job cannot fit, and the share kept for decoded partitions.
    checkpoint_seconds : float
        Seconds between checkpoints.
    progress : bool, optional
        Show a bar. Default: in notebooks.

    Returns
    -------
    FitResult
        Its `warnings` say where the model is far from the optimum or no better than the most frequent class; each is
        also a UserWarning.

    Raises
    ------
    ParameterError, MismatchError, FormatError, MemoryPlanError
        Before any partition is read.
    StorageError
        The run cannot be written any more; `resume` continues it.
    KeyboardInterrupt
        Ctrl-C, once the state is saved: `resume` continues, if `run` was given.
    """
    options = FitOptions(executor_of(executor, client), memory, watchers(callbacks, progress), checkpoint_seconds)
    method, dataset, run = _asked_for(method, dataset, run)
    choose = choosing(partial(memory_of, options.executor), asked)
    request = FitRequest.of(method, dataset, params=params, choose=choose, **cast("Options", asked))
    for text in request.notices:
        warn_caller(text)
    return _warned(_whole(train(request, run, options), run))


def _asked_for(method: Any, dataset: Any, run: Any) -> tuple[str, Any, Any]:
    """Return method, data set and run; a data set in place of the method leaves it to be chosen, as in the command."""
    if not isinstance(method, str) or (method not in (AUTO, *METHODS) and is_dataset(place_of(method))):
        if dataset is not None and run is not None:
            raise ParameterError(f"{method}: a data set, where the name of a method should be")
        method, dataset, run = AUTO, method, run if dataset is None else dataset
    if dataset is None:
        raise ParameterError(f"fit({method!r}): name a data set, as in fit({method!r}, 'train')")
    return method, dataset, run


def _whole(result: FitResult, run: str | Place | None) -> FitResult:
    """Return the result; of a fit that was interrupted, raise the interrupt again: it is meant for the caller too."""
    # Only of an interrupt is the caller's own code to know.
    if result.status != Status.INTERRUPTED:
        return result
    continues = "" if run is None else f"; distls.resume({str(run)!r}) continues"
    raise KeyboardInterrupt(f"interrupted after {result.passes:g} passes{continues}")


def train(request: FitRequest, run: str | Place | None, options: FitOptions) -> FitResult:
    """Train what was asked for and checked; result and errors as those of `fit`."""
    slots, memory = options.executor.slots, options.memory
    # How many fits go on at once decides the memory of each.
    at_once = 1 if len(request.settings) == 1 else fits_at_once(request.settings, slots, memory)
    # with the memory that they will have, so that their solvers are made once
    request.check(slots=slots, memory=memory if at_once == 1 else budget_of(memory, slots, at_once))
    options = replace(options, keep_final=run is not None)
    with _place_of_run(run, options.executor, _run_bytes(request) if run is None else 0.0) as place:
        result = proceed(Run.create(place, request.config), request, options)
        if run is not None:
            return result
        # a temporary run ends here, and with it the blocks on disk
        result = replace(result, run=None)
        if result.model is None or not isinstance(result.model.weights, ClassBlocks):
            return result
        # Read before the folder is removed.
        held = cast("NDArray[Any]", result.model.weights.in_memory())
        return replace(result, model=replace(result.model, weights=held))


@long_call
def resume(
    run: str | Place,
    *,
    passes: float | None = None,
    data: str | Place | None = None,
    executor: Any = None,
    client: Any = None,
    memory: MemoryBudget | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_seconds: float = 30.0,
    progress: Any = None,
    **workers: Unpack[Workers],
) -> FitResult:
    """Continue a run that was interrupted or killed; the weights are those of an undisturbed run.

    With `passes`, the new limit in place of the run's passes and seconds, a run that has ended goes on too: its weights
    are then those of a fit of that many passes.

    `data` is where the training data are now; those that were moved along with the run are found beside it. `executor`,
    `client`, `memory`, `callbacks`, `progress`, `workers`, `threads` and `memory_limit` are those of `fit`.

    Raises
    ------
    FormatError
        `run` is not a run, or its data are gone.
    MismatchError
        The dataset is not the one the run was started with; or, with `passes`, the run has ended by itself, or has
        several settings.
    KeyboardInterrupt
        Ctrl-C, once the state is saved.
    """
    options = FitOptions(executor_of(executor, client), memory, watchers(callbacks, progress), checkpoint_seconds)
    return _warned(_whole(proceed(*resumable(run, passes, data), options), run))


def _warned(result: FitResult) -> FitResult:
    """Issue the result's warnings as UserWarnings of the code that called distls, also through an estimator."""
    for text in result.warnings:
        warn_caller(text)
    return result


def resumable(run: str | Place, passes: float | None = None, data: str | Place | None = None) -> tuple[Run, FitRequest]:
    """Open a run that can be continued by `proceed`, up to `passes` if given, and its data sets."""
    folder = Run.open(place_of(run))
    # A run from elsewhere is untrusted: links in it could make us write anywhere.
    refuse_links(folder.path)
    with folder.held():  # another process may be writing it
        request = FitRequest.of_run(folder, data)
        request.check_same(folder, prolonged=passes is not None)
        if passes is not None:
            request = _prolonged(folder, request, passes)
        return folder, request


def _prolonged(run: Run, request: FitRequest, passes: float) -> FitRequest:
    """Return the request with a new limit of passes, once the run is ready to go on with it."""
    status = run.status
    # A run that is going on may still end by itself.
    done, ended = status["passes"], Status(status["status"])
    if len(request.settings) > 1 or has_path(request.method, request.grid):
        raise MismatchError(
            f"{run.path}: a fit of several settings ends with their passes; start from its model with more: "
            f"-p init={run.path}"
        )
    if ended in (Status.CONVERGED, Status.EARLY_STOPPED, Status.DIVERGED):
        raise MismatchError(
            f"{run.path}: {ended.value} after {done:g} passes, which more passes do not change; fit again with "
            "another tolerance, patience or alpha"
        )
    going = ended in (Status.RUNNING, Status.INTERRUPTED)
    # the same command once more, of a run that was stopped between its last round and its end
    again = going and passes == request.passes
    if not again and not (math.isfinite(passes) and passes > done):
        raise ParameterError(f"passes={passes:g}: the run has done {done:g}; give more, the sum of all")
    longer = request.until(passes)
    # Interrupted or ended by the old limit: either way the new one takes its place.
    if going:
        run.write_config(run.config.until(passes))
    else:
        run.reopen(run.config.until(passes))
    return longer


@contextlib.contextmanager
def _place_of_run(path: str | Place | None, executor: Executor, n_bytes: float) -> Iterator[Place]:
    """Return the place asked for, or a temporary one of so many bytes that is removed at the end."""
    if path is not None:
        yield place_of(path)
        return
    here = isinstance(executor, SerialExecutor)
    # Workers on other machines need a place that they can reach.
    with temporary_place("distls-run-", n_bytes, shared=not here) as folder:
        yield folder / "run"


def _run_bytes(request: FitRequest) -> float:
    """Return about the bytes of a run, for each setting: what is kept of rows, the model, two checkpoints, the best."""
    meta, (n_features, outputs) = request.data.meta, request.settings[0].problem.shape
    one = 8.0 * outputs * (meta.n_rows + 4 * n_features)
    if not has_path(request.method, request.grid):
        return one * len(request.settings)
    count = sum(map(number_of_fits, request.grid))
    # of fits one after the other only models are left
    return one * count if request.method.side_by_side else one + 8.0 * outputs * n_features * count


def proceed(run: Run, request: FitRequest, options: FitOptions) -> FitResult:
    """Continue a run that is open, to one setting, paths of them, or several to choose among; see `resume`."""
    with _held(run, request):
        if run.has_ended:
            return finished(run)
        # Before the first read: a worker that sees other files must not take part.
        for dataset in (request.data, request.eval_data, request.select, request.calibrate):
            if dataset is not None:
                check_workers(options.executor, dataset, run.path)
        if has_path(request.method, request.grid):
            paths = [_path_of(run, setting, options) for setting in request.settings]
            of_folds = request.grid[0].get("folds") is not None
            return (train_folds if of_folds else train_children)(run, request, paths, options)
        if request.select is None and len(request.settings) == 1:
            return run_alone(train_setting(run, request, options), options.executor)
        return train_children(run, request, [[params] for params in request.grid], options)


@contextlib.contextmanager
def _held(run: Run, request: FitRequest) -> Iterator[None]:
    """Hold a run while it is trained; say what to do about a disk that fails, and what is lost and why."""
    again, stopped = f"`distls resume {run.path}` continues", f"{run.path}: the fit stopped"
    remedy = f"once that is fixed, {again}"
    with os_errors_described(stopped, remedy):
        try:
            with run.removal_described(), run.held():
                yield
        except StateLostError as error:
            # recomputed by the solver, and lost again
            why = "what it keeps for each row was lost again after it had been recomputed"
            raise StateLostError(f"{stopped}: {why} ({error}); check the disk or store; {remedy}") from error
        except CorruptDataError as error:
            for data in (request.data, request.eval_data, request.select, request.calibrate):
                if data is not None and not data.path.exists():
                    why = f"{data.path} was removed or renamed meanwhile; put it back, and {again}"
                    raise StorageError(f"{stopped}: {why}") from error
            raise


def _intercept_alone(run: Run, setting: Setting, options: FitOptions) -> NDArray[np.float64]:
    """Return the intercept at zero weights; the solvers of methods with a path have it."""
    solver = setting.solver(slots=options.executor.slots, memory=options.memory, state=run.state)
    found = path_start(setting.method, solver).intercept_alone(options.executor)
    # It may hold rows' state of the intercept's fit alone.
    remove_tree(run.path / "state")
    return found


def _path_of(run: Run, setting: Setting, options: FitOptions) -> list[Params]:
    """Return the parameters of a path's points."""
    alone = partial(_intercept_alone, run, setting, options)
    return settings_of_path(setting.params, setting.problem, options.executor, alone)
