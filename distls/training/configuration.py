"""Everything that can be refused before a fit starts, from metadata alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distls.evaluation.evaluate import certificate_kind, check_evaluable
from distls.execution import ClusterOptions
from distls.execution.memory_budget import MemoryBudget
from distls.methods.parameters import BLOCK_SIZE
from distls.methods.registry import Method, expand_grid, method_named
from distls.problem import Problem
from distls.solvers.solver import Solver, SolverFactory, State
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import FormatError, MismatchError, ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import making_sense, refuse_links
from distls.storage.model.model import load_model
from distls.training.regularization_path import is_path
from distls.training.run_folder import Run

__all__ = [
    "check_fit",
    "check_resume",
    "check_setting",
    "complete",
    "configure",
    "make_solver",
    "open_expected",
    "settled",
    "solver_type",
]


def configure(
    method: str,
    dataset: str | Place | Dataset,
    *,
    params: Mapping[str, Any] | None,
    passes: float | None,
    tol: float | None,
    max_seconds: float | None,
    eval_data: str | Place | Dataset | None,
    eval_every: float | None,
    patience: int | None,
    select: str | Place | Dataset | None,
    seed: int,
) -> dict[str, Any]:
    """Check everything that metadata can tell and return the run's ``config.json``."""
    _check_numbers(passes=passes, max_seconds=max_seconds, tol=tol, patience=patience)
    if eval_every != 0:
        _check_numbers(eval_every=eval_every)
    if seed < 0:
        raise ParameterError(f"seed={seed}: must not be negative")
    data = _as_dataset(dataset)
    chosen = method_named(method)
    settings = [complete(chosen, setting, data) for setting in expand_grid(params or {})]
    _check_options(tol, patience, eval_every, eval_data, select, settings)
    for setting in settings:
        problem = Problem.of(data, setting, seed, chosen.targets)
        for other in (eval_data, select):
            if other is not None:
                check_evaluable(problem, _as_dataset(other))
    config = {
        "format_version": 1,
        "method": method,
        "dataset": str(data.path.resolve()),
        "dataset_fingerprint": data.fingerprint,
        "seed": seed,
        "passes": chosen.passes if passes is None and tol is None and max_seconds is None else passes,
        "tol": tol,
        "max_seconds": max_seconds,
        "eval": None if eval_data is None else str(_as_dataset(eval_data).path.resolve()),
        "eval_every": eval_every,
        "patience": patience,
        "select": None if select is None else str(_as_dataset(select).path.resolve()),
        "grid": settings,
    }
    is_path(config)  # refuses what contradicts a path
    return config


def complete(method: Method, given: Mapping[str, Any], data: Dataset) -> dict[str, Any]:
    """Check and complete the parameters of a fit; where no loss is given the data may decide it.

    It is that of the model to start from, or the one that errs least on data of such a shape as a rule
    (docs/decisions/0018).

    Raises
    ------
    ParameterError
    """
    params = method.resolve(given)
    if params.get("loss", "") is None:
        params["loss"] = _loss_for(method, params, data)
    return params


def _loss_for(method: Method, params: Mapping[str, Any], data: Dataset) -> str:
    if data.meta.target == "continuous":
        raise ParameterError(
            f"{method.name}: {data.path} has continuous targets: give loss=squared, with an intercept and a schedule "
            "whose steps are tried (fit_intercept=true schedule=sqrt); csgd and gls are made for them"
        )
    if params["init"] is not None:
        initial = load_model(params["init"]).loss
        with suppress(ParameterError):  # a loss that the method does not have
            return str(method.resolve({"loss": initial})["loss"])
    generated = params["features"] != "none"
    width = (params["block_size"] or BLOCK_SIZE) if generated else data.meta.n_features
    return "crammer_singer" if width > data.meta.n_rows else "softmax"


def check_fit(
    method: str,
    dataset: str | Place,
    run: str | Place,
    *,
    cluster: ClusterOptions,
    checkpoint_seconds: float = 30.0,
    **options: Any,
) -> None:
    """Refuse what `fit` would refuse, before workers are started; parameters as there.

    Raises
    ------
    ParameterError, MismatchError, FormatError, MemoryPlanError
    """
    config = configure(method, dataset, **options)
    Run.check_new(place_of(run))
    if cluster.scheduler is not None:
        return
    budget = cluster.budget()
    for setting in config["grid"]:
        check_setting(config, setting, slots=budget.workers * budget.threads, memory=budget)


def check_setting(
    config: dict[str, Any], setting: dict[str, Any], *, slots: int, memory: MemoryBudget | None
) -> None:
    """Refuse what the solver of one setting would refuse: lanes, memory, a model to start from that does not fit.

    Raises
    ------
    ParameterError, MismatchError, FormatError, MemoryPlanError
    """
    chosen = method_named(config["method"])
    problem = Problem.of(open_dataset(config["dataset"]), setting, config["seed"], chosen.targets)
    make_solver(chosen, problem, setting, slots=slots, memory=memory).init()


def check_resume(run: str | Place) -> None:
    """Refuse what `resume` would refuse, before workers are started.

    Raises
    ------
    FormatError, MismatchError, StorageError
    """
    folder = Run.open(place_of(run))
    refuse_links(folder.path)
    with folder.held():
        open_expected(settled(folder))


def settled(run: Run) -> dict[str, Any]:
    """Return the configuration of a run whose settings are ones that a fit can have been started with.

    Raises
    ------
    FormatError
    """
    config, where = run.config, str(run.path / "config.json")
    try:
        with making_sense(where):
            chosen = method_named(config["method"])
            for setting in config["grid"]:
                if chosen.resolve(setting) != setting or setting.get("loss", "") is None:
                    raise ValueError("a setting that is not complete")
    except ParameterError as error:
        raise FormatError(f"{where}: not written by distls ({error})") from None
    return config


def _check_numbers(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ParameterError(f"{name}={value}: must be greater than 0 and finite")


def _check_options(
    tol: float | None,
    patience: int | None,
    eval_every: float | None,
    eval_data: Any,
    select: Any,
    grid: list[dict[str, Any]],
) -> None:
    if patience is not None and eval_data is None:
        raise ParameterError("patience needs evaluation data: give --eval DATASET")
    if eval_every == 0 and (tol is not None or patience is not None):
        raise ParameterError("eval_every=0 evaluates nothing, which tol and patience need; drop one of them")
    if patience is not None and any(setting.get("debias") is not None for setting in grid):
        raise ParameterError(
            "patience: not with debias, which fits the weights anew at the end; drop one of them"
        )
    if tol is not None and any(certificate_kind(setting) == "none" for setting in grid):
        raise ParameterError("tol: this loss has no certificate to compare it with; limit passes or seconds")
    if len(grid) > 1 and select is None:
        raise ParameterError(f"{len(grid)} settings are given; --select DATASET chooses among them")


def _as_dataset(source: str | Place | Dataset) -> Dataset:
    return source if isinstance(source, Dataset) else open_dataset(source)


def open_expected(config: dict[str, Any]) -> Dataset:
    """Open a run's dataset and check that it is the one the run was started with."""
    data = open_dataset(config["dataset"])
    if data.fingerprint != config["dataset_fingerprint"]:
        raise MismatchError(
            f"{data.path} is not the data set this run was started with (fingerprint {data.fingerprint[:12]}, "
            f"expected {config['dataset_fingerprint'][:12]}); start a new run"
        )
    return data


def solver_type(method: Method) -> SolverFactory:
    """Return what makes a method's solver."""
    factory: SolverFactory = method.load_solver()
    return factory


def make_solver(
    method: Method,
    problem: Problem,
    params: dict[str, Any],
    *,
    slots: int,
    memory: MemoryBudget | None,
    run: Place | None = None,
) -> Solver[State]:
    """Build the method's solver, which plans its memory and refuses what cannot fit.

    A method that keeps predictions does so in the folder ``state`` of `run`; without one it can be asked for its
    plan, but not run.
    """
    initial = None if params.get("init") is None else load_model(params["init"])
    rows = {"state": None if run is None else str(run.resolve() / "state")} if method.keeps_rows else {}
    return solver_type(method)(problem, params, slots=slots, memory=memory, initial=initial, **rows)
