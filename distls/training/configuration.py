"""A fit as it was asked for, checked once from metadata alone, before any worker is started."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distls.evaluation.calibrate import check_calibrable, check_held_out
from distls.evaluation.certificates import certificate_kind
from distls.evaluation.compatibility import check_evaluable
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method import Method, Params
from distls.methods.method_registry import expand_grid, method_named
from distls.methods.parameters import BLOCK_SIZE
from distls.methods.recommendation import AUTO, recommended
from distls.problem import Problem
from distls.solvers.loop import Limits
from distls.solvers.solver import Solver, State, solver_factory
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import FormatError, MismatchError, ParameterError
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import making_sense
from distls.storage.model.model import load_model
from distls.training.refit import check_joinable
from distls.training.regularization_path import has_path, needs_intercept, path_start, typical_alpha
from distls.training.run_folder import Run, RunConfig


@dataclass(frozen=True)
class Setting:
    """One value for each parameter of a method, validated for its data."""

    method: Method
    params: Params  # Validated and complete
    problem: Problem
    _solvers: dict[tuple[object, ...], Solver[State]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, method: Method, given: Mapping[str, Any], data: Dataset, seed: int) -> Setting:
        """Validate and complete parameters for a data set; raise ParameterError or MismatchError."""
        others = {"continuous": method.continuous, "multilabel": method.multilabel}.get(data.meta.target, {})
        if others and given.get(next(iter(others))) is None:
            given = {**others, **{name: value for name, value in given.items() if value is not None}}
        params = method.resolve(given)
        if params.get("loss", "") is None:
            params["loss"] = _loss_for(method, params, data)
        return cls(method, params, Problem.of(data, params, seed, method.targets))

    def solver(self, *, slots: int, memory: MemoryBudget | None, run: Place | None = None) -> Solver[State]:
        """Return the solver with its memory planned; made once for the same workers.

        `slots` is the number of threads of all workers. A method that keeps state for every row does so in the folder
        ``state`` of `run`; without a run it can be planned only. Raises ParameterError, MismatchError, FormatError or
        MemoryPlanError: lanes, memory, or a model to start from that does not fit.
        """
        # with the folder in the key: a solver that was made for the plan alone cannot train
        state = None if run is None else str(run.resolve() / "state")
        rows = {"state": state} if self.method.keeps_rows else {}
        key = slots, memory, *rows.values()
        if key not in self._solvers:
            initial = None if self.params.get("init") is None else load_model(self.params["init"])
            problem, params = self.problem, self.params
            if self.method.side_by_side and params["alpha"] == "path":
                # a solver of one strength, which says what all cost; none fits a path as a whole
                params = {**params, "alpha": typical_alpha(params, problem)}
                problem = replace(problem, alpha=params["alpha"])
            self._solvers[key] = solver_factory(self.method)(
                problem, params, slots=slots, memory=memory, initial=initial, **rows
            )
        return self._solvers[key]


_TRIAL_PASSES = 10.0  # of fits that are compared only: which is better is seen long before the optimum


@dataclass(frozen=True)
class FitRequest:
    """The request of a run, validated, with its data sets open."""

    method: Method
    data: Dataset
    settings: list[Setting]  # More than one where `select` is to choose
    seed: int = 0
    passes: float | None = None  # Limits as given, the method's own passes where there is no other limit
    tol: float | None = None
    max_seconds: float | None = None
    eval_every: float | None = None
    patience: int | None = None
    rtol: float | None = None
    # To score during the fit; to choose a setting by; to be scored for a parent run that chooses
    eval_data: Dataset | None = None
    select: Dataset | None = None
    selected_on: Dataset | None = None
    # Held-out rows to calibrate the published model on, and how, None for the default
    calibrate: Dataset | None = None
    calibration: str | None = None
    refit: bool = False  # the chosen setting once more, on the rows of `select` too
    reason: str | None = None  # why the method was chosen, where it was not asked for
    trial: bool = False  # one of many fits that are compared: ended by its estimates, not evaluated

    @classmethod
    def of(
        cls,
        method: str,
        dataset: str | Place | Dataset,
        *,
        params: Mapping[str, Any] | None = None,
        passes: float | None = None,
        tol: float | None = None,
        rtol: float | None = None,
        max_seconds: float | None = None,
        eval_data: str | Place | Dataset | None = None,
        eval_every: float | None = None,
        patience: int | None = None,
        select: str | Place | Dataset | None = None,
        refit: bool = False,
        seed: int = 0,
        calibrate: str | Place | Dataset | None = None,
        calibration: str | None = None,
    ) -> FitRequest:
        """Validate a fit by metadata alone; parameters and errors as of `distls.fit`."""
        _check_numbers(passes=passes, max_seconds=max_seconds, tol=tol, rtol=rtol, patience=patience)
        if eval_every != 0:
            _check_numbers(eval_every=eval_every)
        if seed < 0:
            raise ParameterError(f"seed={seed}: must not be negative")
        data = _opened(dataset)
        found = recommended(data, params, judged=select is not None) if method == AUTO else None
        if found is not None:
            method, params = found.method, found.params
        chosen = method_named(method)
        if passes is None and tol is None and rtol is None and max_seconds is None:
            own = chosen if found is None or found.passes is None else found
            passes, rtol = own.passes, None if eval_every == 0 else own.rtol
        request = cls(
            chosen, data, [Setting.of(chosen, given, data, seed) for given in expand_grid(params or {})], seed,
            passes, tol, max_seconds, eval_every, patience, rtol,
            None if eval_data is None else _opened(eval_data), None if select is None else _opened(select),
            refit=refit, reason=None if found is None else found.reason,
            calibrate=None if calibrate is None else _opened(calibrate), calibration=calibration,
        )  # fmt: skip
        request._check_options()
        for setting in request.settings:
            for other in (request.eval_data, request.select):
                if other is not None:
                    check_evaluable(setting.problem, other)
        if request.refit and request.select is not None:
            check_joinable(data, request.select)
        request._check_calibration()
        has_path(chosen, request.grid)  # raises for parameters that contradict a path
        return request

    @classmethod
    def of_run(cls, run: Run) -> FitRequest:
        """Read the request of a run, and open its data sets.

        Raises FormatError for a request that no fit can have written, MismatchError if the data set has changed.
        """
        config, where = run.config, str(run.path / "config.json")
        if config.fold is not None:
            raise MismatchError(
                f"{run.path}: a fit of a cross-validation, without one fold; resume the whole run"
            )
        try:
            with making_sense(where):
                chosen = method_named(config.method)
                for params in config.grid:
                    # a stored setting is complete: resolving it again changes nothing
                    if chosen.resolve(params) != params or params.get("loss", "") is None:
                        raise ValueError("a setting that is not complete")
        except ParameterError as error:
            raise FormatError(f"{where}: not written by distls ({error})") from None
        data = _expected(config)
        eval_data, select, selected_on, calibrate = (
            None if path is None else open_dataset(path)
            for path in (config.eval, config.select, config.selected_on, config.calibrate)
        )
        return cls(
            chosen, data, [Setting.of(chosen, params, data, config.seed) for params in config.grid], config.seed,
            config.passes, config.tol, config.max_seconds, config.eval_every, config.patience, config.rtol,
            eval_data, select, selected_on, calibrate, config.calibration, config.refit, config.reason,
        )  # fmt: skip

    @property
    def grid(self) -> list[Params]:
        """The parameters of each setting."""
        return [setting.params for setting in self.settings]

    @property
    def config(self) -> RunConfig:
        """The run's ``config.json``."""
        return RunConfig(
            method=self.method.name,
            dataset=str(self.data.path.resolve()),
            dataset_fingerprint=self.data.fingerprint,
            seed=self.seed,
            passes=self.passes,
            tol=self.tol,
            rtol=self.rtol,
            max_seconds=self.max_seconds,
            eval=_path_of(self.eval_data),
            eval_every=self.eval_every,
            patience=self.patience,
            select=_path_of(self.select),
            grid=self.grid,
            selected_on=_path_of(self.selected_on),
            calibrate=_path_of(self.calibrate),
            calibration=self.calibration,
            fold=None if self.data.fold is None else self.data.fold.number,
            reason=self.reason,
            refit=self.refit,
        )

    @property
    def limits(self) -> Limits:
        """When to stop and how often to evaluate."""
        if self.trial and self.tol is None:
            passes = min(self.passes or _TRIAL_PASSES, _TRIAL_PASSES)
            return Limits(passes, self.max_seconds, None, self.rtol, eval_every=0.0, by_estimate=True)
        every, judged = self.eval_every, self.tol is not None or self.rtol is not None
        if every is None:
            every = 1.0 if judged or self.patience is not None else math.inf
        lazy = judged and self.eval_every is None and self.patience is None and self.eval_data is None
        return Limits(self.passes, self.max_seconds, self.tol, self.rtol, every, self.patience, lazy)

    def check(self, *, slots: int, memory: MemoryBudget | None) -> None:
        """Make the solver and first state of every setting, to raise the errors that they would raise."""
        for setting in self.settings:
            solver = setting.solver(slots=slots, memory=memory)
            solver.init()
            if self.method.path and needs_intercept(setting.params, setting.problem):
                path_start(self.method, solver)

    def _check_calibration(self) -> None:
        """Refuse by metadata what could not be calibrated after the fit."""
        if self.calibrate is None:
            if self.calibration is not None:
                raise ParameterError("calibration needs held-out rows: give --calibrate DATASET")
            return
        meta, name = self.data.meta, str(self.data.path)
        kind = check_calibrable(meta.target, len(meta.classes), self.calibration, f"a model of {name}")
        codes = check_evaluable(self.settings[0].problem, self.calibrate)
        check_held_out(self.calibrate, codes, meta.classes, self.data.fingerprint, kind, "the model")

    def _check_options(self) -> None:
        if self.patience is not None and self.eval_data is None:
            raise ParameterError("patience needs evaluation data: give --eval DATASET")
        if self.eval_every == 0 and any(limit is not None for limit in (self.tol, self.rtol, self.patience)):
            raise ParameterError(
                "eval_every=0 evaluates nothing, which tol, rtol and patience need; drop one of them"
            )
        if self.patience is not None and any(params.get("debias") is not None for params in self.grid):
            raise ParameterError(
                "patience: not with debias, which fits the weights again at the end; drop one of them"
            )
        self._check_by_classes()
        if self.refit and self.select is None:
            raise ParameterError("refit needs held-out rows that choose a setting: give --select DATASET")
        kinds = {certificate_kind(params, self.method) for params in self.grid}
        if self.rtol is not None and not kinds <= {"duality_gap", "strong_convexity"}:
            raise ParameterError(
                "rtol: the certificate of this setting bounds no distance from the optimum; without an intercept and "
                "with alpha above 0 it does, and that of sdca always"
            )
        if self.tol is not None and "none" in kinds:
            raise ParameterError(
                "tol: this loss has no certificate to compare it with; limit passes or seconds"
            )
        if self.select is not None and self.method.path and any(params.get("folds") for params in self.grid):
            raise ParameterError(
                "folds: rows of the training data choose the alpha; drop select, or score by eval_data"
            )
        crossed = self.method.path and all(params.get("folds") for params in self.grid)
        if len(self.settings) > 1 and self.select is None and not crossed:
            raise ParameterError(
                f"{len(self.settings)} settings are given; --select DATASET chooses among them"
            )

    def _check_by_classes(self) -> None:
        """Refuse limits that would leave classes untrained, where one is trained after the other."""
        names = ("passes", "tol", "rtol", "max_seconds", "eval_every", "patience")
        given = [name for name in names if getattr(self, name) is not None]
        if self.method.by_classes and given:
            raise ParameterError(
                f"{given[0]}: {self.method.name} trains each class to its end; limit it by -p class_tol or -p sweeps"
            )


def _loss_for(method: Method, params: Mapping[str, Any], data: Dataset) -> str:
    """Return the default loss (docs/decisions/0018)."""
    if method.by_classes:
        return "ovr_squared_hinge" if data.meta.target == "class" else "ovr_log"
    # the initial model's loss if there is one, else that of the lowest error on data of this shape, as measured
    if params["init"] is not None:
        initial = load_model(params["init"]).loss
        with suppress(ParameterError):  # a loss that the method does not have
            return str(method.resolve({"loss": initial})["loss"])
    if method.proves:
        return "softmax" if data.meta.target == "class" else "squared"
    generated = params["features"] != "none"
    width = (params["block_size"] or BLOCK_SIZE) if generated else data.meta.n_features
    return "crammer_singer" if width > data.meta.n_rows else "softmax"


def _check_numbers(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ParameterError(f"{name}={value}: must be greater than 0 and finite")


def _opened(source: str | Place | Dataset) -> Dataset:
    if not isinstance(source, (str, Path, StorePath, Dataset)):
        raise ParameterError(
            f"a {type(source).__name__} is no data set: give a path or a Dataset; arrays are for the estimators, or "
            "for distls.ingest"
        )
    return source if isinstance(source, Dataset) else open_dataset(source)


def _path_of(dataset: Dataset | None) -> str | None:
    return None if dataset is None else str(dataset.path.resolve())


def _expected(config: RunConfig) -> Dataset:
    """Open a run's dataset and check that it is the one the run was started with."""
    data = open_dataset(config.dataset)
    if data.fingerprint != config.dataset_fingerprint:
        raise MismatchError(
            f"{data.path} is not the data set this run was started with (fingerprint {data.fingerprint[:12]}, "
            f"expected {config.dataset_fingerprint[:12]}); start a new run"
        )
    return data
