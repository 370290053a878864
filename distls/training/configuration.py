"""A fit as it was asked for, checked once, from metadata and first rows of dense numbers, before any worker starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from distls.evaluation.calibrate import check_calibrable, check_held_out
from distls.evaluation.certificates import BOUNDS, balances_for, certificate_kind
from distls.evaluation.compatibility import check_evaluable
from distls.evaluation.thresholds import check_threshold
from distls.execution.memory_budget import MemoryBudget
from distls.execution.row_reads import MOST_LANES, default_parallelism
from distls.methods.data_defaults import alpha_by_rows, can_be_standardized, loss_for, suited
from distls.methods.method import Method, Params
from distls.methods.method_registry import METHODS, expand_grid, method_named
from distls.methods.recommendation import AUTO, Recommendation, recommended
from distls.problem import Problem
from distls.request import Options, Request, plain
from distls.solvers.solver import Solver, State, solver_factory
from distls.solvers.warm_start import in_form, with_further_classes
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import FormatError, MismatchError, ParameterError
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.filesystem.safe_read import as_format_error
from distls.storage.model.model import load_model, weights_digest
from distls.training.refit import check_joinable
from distls.training.regularization_path import has_path, needs_intercept, path_start, typical_alpha
from distls.training.run_config import RunConfig, moved_along
from distls.training.run_folder import Run

if TYPE_CHECKING:
    from distls.request import Source


@dataclass(frozen=True)
class Setting:
    """One value for each parameter of a method, validated for its data."""

    method: Method
    params: Params  # Validated and complete
    problem: Problem
    _solvers: dict[tuple[object, ...], Solver[State]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        method: Method,
        given: Mapping[str, Any],
        data: Dataset,
        seed: int,
        parallelism: int | None = None,  # by default what suits the data
    ) -> Setting:
        """Validate and complete parameters for a data set; raise ParameterError or MismatchError."""
        threads = min(parallelism or default_parallelism(data), MOST_LANES)
        others = {"continuous": method.continuous, "multilabel": method.multilabel}.get(data.meta.target, {})
        if others and given.get(next(iter(others))) is None:
            # Defaults for the kind of target come last: what the user gives wins.
            given = {**others, **{name: value for name, value in given.items() if value is not None}}
        params = method.resolve(given)
        if params.get("loss", "") is None:
            params["loss"] = loss_for(method, params, data)
        chosen = any(given.get(name) is not None for name in ("alpha", "standardize"))
        if not chosen and can_be_standardized(method, params) and suited(data) is not data:
            params["standardize"] = True
        if data.meta.target in method.alpha_by_rows and given.get("alpha") is None:
            own = data.standardized if params.get("standardize") else data
            params["alpha"] = max(params["alpha"], alpha_by_rows(own))
        return cls(method, params, Problem.of(data, params, seed, method.targets, threads))

    def solver(self, *, slots: int, memory: MemoryBudget | None, state: str | None = None) -> Solver[State]:
        """Return the solver with its memory planned; made once for the same workers.

        `slots` is the number of threads of all workers. A method that keeps state for every row does so in the folder
        `state`, that of its run; without one it can be planned only. Raises ParameterError, MismatchError, FormatError
        or MemoryPlanError: lanes, memory, or a model to start from that does not fit.
        """
        # with the folder in the key: a solver that was made for the plan alone cannot train
        rows = {"state": state} if self.method.keeps_rows else {}
        key = slots, memory, *rows.values()
        if key not in self._solvers:
            problem, params = self.problem, self.params
            initial = None
            if params.get("init") is not None:
                initial = in_form(load_model(params["init"]), problem.shape[1])
                initial = with_further_classes(initial, problem)
                if (own := problem.dataset.standardization) is not None and not initial.recipe:
                    weights, intercept = own.of_seen_rows(initial.weights, initial.intercept)
                    initial = replace(initial, weights=weights, intercept=intercept)
            if self.method.side_by_side and params["alpha"] == "path":
                # a solver of one strength, which says what all cost; none fits a path as a whole
                params = {**params, "alpha": typical_alpha(params, problem)}
                problem = replace(problem, alpha=params["alpha"])
            if self.method.path and params.get("folds"):
                # its fits are without a fold, whose rows get a weight of zero
                meta = msgspec.structs.replace(problem.dataset.meta, weighted=True)
                problem = replace(problem, dataset=replace(problem.dataset, meta=meta))
            self._solvers[key] = solver_factory(self.method)(
                problem, params, slots=slots, memory=memory, initial=initial, **rows
            )
        return self._solvers[key]


class FitRequest(Request[Dataset], frozen=True, kw_only=True):
    """The request of a run, validated, with its data sets open."""

    method: Method
    data: Dataset
    settings: list[Setting]  # More than one where `select` is to choose

    @classmethod
    def of(
        cls,
        method: str,
        dataset: Source,
        *,
        params: Mapping[str, Any] | None = None,
        choose: Callable[..., Recommendation] = recommended,
        **asked: Unpack[Options],
    ) -> FitRequest:
        """Validate a fit by metadata, and the first rows of dense numbers; parameters and errors as of `distls.fit`.

        `choose` takes what `recommended` takes, and returns the method where none is named.
        """
        _check_names(asked)
        given: Request[Source] = Request(**{name: plain(value) for name, value in asked.items()})
        given.check_bounds()
        data = _opened(dataset)
        # Everything is checked before any worker starts or file is written.
        found = None
        check_published(method, given.as_published)
        if method == AUTO:
            limited = any(option.is_limit for option in given.asked)
            found = choose(data, params, judged=given.select is not None, limited=limited)
            method, params = found.method, found.params
        chosen = method_named(method)
        departures = None
        if given.as_published:
            params, departures = chosen.as_published(params or {})
        own = chosen if found is None or found.passes is None else found
        # a limit of steps is a parameter of the methods that have it
        passes = own.passes if (params or {}).get("steps") is None else None
        given = given.or_else(passes, own.rtol)
        settings = [Setting.of(chosen, each, data, given.seed, given.parallelism) for each in expand_grid(params or {})]
        _check_parallelism(given.parallelism, [own.params.get("lanes", 1) for own in settings])
        fields = given.with_data(_opened) | {"reason": None if found is None else found.reason}
        # As they are now: a run goes on with its lanes, whatever a later version has by default.
        threads = settings[0].problem.parallelism
        fields["parallelism"] = threads if threads > 1 else None
        fields["departures"] = departures
        request = cls(method=chosen, data=data, settings=settings, **fields)
        request._check()
        return request

    @classmethod
    def of_run(cls, run: Run, data: str | Place | None = None) -> FitRequest:
        """Read the request of a run, and open its data sets; `data` is where the training data are now.

        Raises FormatError for a request that no fit can have written, MismatchError if the data set has changed.
        """
        config, where = run.config, str(run.path / "config.json")
        # Its rows are not those of the data set, and the view is not stored.
        if config.fold is not None:
            raise MismatchError(f"{run.path}: a fit of a cross-validation, without one fold; resume the whole run")
        try:
            with as_format_error(where):
                chosen = method_named(config.method)
                grid = [_completed(chosen, params) for params in config.grid]
        except ParameterError as error:
            raise FormatError(f"{where}: not written by distls ({error})") from None
        rows = _expected(config, moved_along(config.dataset, run.path) if data is None else data)
        fields = config.with_data(lambda path: open_dataset(moved_along(path, run.path)))
        settings = [Setting.of(chosen, params, rows, config.seed, config.parallelism or 1) for params in grid]
        return cls(method=chosen, data=rows, settings=settings, **fields)

    def check_same(self, run: Run, *, prolonged: bool = False) -> None:
        """Raise MismatchError if a run is not one of this fit, or anything that it depends on is another one now.

        One that is `prolonged` goes on though it has ended.
        """
        config, ended = run.config, run.has_ended and not prolonged
        then = config.method, config.dataset_fingerprint, config.seed, config.fold, config.parallelism
        fold = None if self.data.fold is None else self.data.fold.number
        same = then == (self.method.name, self.data.fingerprint, self.seed, fold, self.parallelism)
        begun = run.status.get("request", run.request)
        if begun != run.request:
            raise MismatchError(
                f"{run.path}: config.json was changed, or status.json is of another run (digest {begun}, now "
                f"{run.request}); put back its own, or start a new run"
            )
        if not same or [_completed(self.method, params) for params in config.grid] != self.grid:
            raise MismatchError(f"{run.path}: a run of another fit; put back its own, or start a new run")
        # What has ended needs neither the solver's version nor a model to start from, which may be gone.
        for name, digest in self._digests(ended=ended).items():
            # early ones name no solver
            expected = config.digests.get(name, "" if name == self._solver else digest)
            if expected == digest:
                continue
            if name == self._solver:
                raise MismatchError(
                    f"{run.path}: begun by an earlier version, whose {self.method.name} takes other steps; start a new "
                    "run, or finish it with that version"
                )
            raise MismatchError(
                f"{run.path}: {name} is not what this run was started with (digest {digest[:12]}, expected "
                f"{expected[:12]}); put it back, or start a new run"
            )

    @property
    def _solver(self) -> str:
        return f"the solver of {self.method.name}"

    def _digests(self, *, ended: bool = False) -> dict[str, str]:
        """Return the digests of what the fit depends on beside its training data and settings, or the `ended` one."""
        beside = {"eval": self.eval_data, "select": self.select, "calibrate": self.calibrate}
        named = {**beside, "selected_on": self.selected_on}
        data = {f"the data of --{name}": each.fingerprint for name, each in named.items() if each is not None}
        paths = {params["init"] for params in self.grid if not ended and params.get("init") is not None}
        starts = {f"the model {path}": weights_digest(path) for path in sorted(paths)}
        solver = {} if ended else {self._solver: str(self.method.version)}
        return {**solver, **data, **starts}

    @property
    def notices(self) -> list[str]:
        """Lines about the models that the fit starts from: classes of the data that they do not have."""
        classes, found = self.data.meta.classes, []
        for path in sorted({params["init"] for params in self.grid if params.get("init") is not None}):
            known = set(load_model(path).classes)
            new = [f'"{label}"' for label in classes if label not in known] if known < set(classes) else []
            shown = ", ".join(new[:3]) + (f" and {len(new) - 3} more" if len(new) > 3 else "")
            found += [f"{path} has no class {shown}: its weights begin at zero"] if new else []
        return found

    @property
    def grid(self) -> list[Params]:
        """The parameters of each setting."""
        return [setting.params for setting in self.settings]

    @property
    def decoded_bytes(self) -> float:
        """Decoded bytes of the training data, for each setting once."""
        return float(self.data.decoded_bytes.sum()) * len(self.settings)

    @property
    def config(self) -> RunConfig:
        """The run's ``config.json``."""
        return RunConfig(
            method=self.method.name,
            dataset=_path_of(self.data),
            dataset_fingerprint=self.data.fingerprint,
            grid=self.grid,
            fold=None if self.data.fold is None else self.data.fold.number,
            digests=self._digests(),
            **self.with_data(_path_of),
        )

    def check(self, *, slots: int, memory: MemoryBudget | None) -> None:
        """Make the solver and first state of every setting, to raise the errors that they would raise."""
        for setting in self.settings:
            # Solvers refuse in their constructor what they cannot fit.
            solver = setting.solver(slots=slots, memory=memory)
            solver.init()
            if setting.params["alpha"] == "path" and needs_intercept(setting.params, setting.problem):
                path_start(self.method, solver)

    def _check(self) -> None:
        """Refuse by metadata what cannot be fitted, or not as it is asked for."""
        self._check_options()
        # Every setting with every data set: a mismatch must show before the first fit.
        for setting in self.settings:
            for other in (self.eval_data, self.select):
                if other is not None:
                    check_evaluable(setting.problem, other)
        if self.refit and self.select is not None:
            check_joinable(self.data, self.select)
        if self.calibrate is not None:
            meta, name = self.data.meta, str(self.data.path)
            kind = check_calibrable(meta.target, len(meta.classes), self.calibration, f"a model of {name}")
            check_threshold(self.threshold_for, meta.target, len(meta.classes), kind, f"a model of {name}")
            codes = check_evaluable(self.settings[0].problem, self.calibrate)
            check_held_out(self.calibrate, codes, meta.classes, self.data.fingerprint, kind, "the model")
        has_path(self.method, self.grid)  # raises for parameters that contradict a path

    def _check_options(self) -> None:
        self.check_needs()
        if self.patience is not None and any(params.get("debias") is not None for params in self.grid):
            raise ParameterError("patience: not with debias, which fits the weights again at the end; drop one of them")
        if self.method.by_classes and (limits := [option.name for option in self.asked if option.is_limit]):
            # they would leave classes untrained, where one is trained after the other
            raise ParameterError(
                f"{limits[0]}: {self.method.name} trains each class to its end; limit it by -p class_tol or -p sweeps"
            )
        judged = self.grid if self.is_judged else []
        kinds = {certificate_kind(params, self.method) for params in judged}
        unbounded = [params for params in judged if certificate_kind(params, self.method) not in BOUNDS]
        if self.rtol is not None and not all(balances_for(params, self.method) for params in unbounded):
            raise ParameterError(
                "rtol: the certificate of this setting bounds no distance from the optimum; with alpha above 0 it "
                "does without an intercept, or with a smooth loss and another penalty than l2; that of sdca does always"
            )
        if self.tol is not None and "none" in kinds:
            raise ParameterError("tol: this loss has no certificate to compare it with; limit passes or seconds")
        if self.select is not None and self.method.path and any(params.get("folds") for params in self.grid):
            raise ParameterError(
                "folds: rows of the training data choose the alpha; drop select, or score by eval_data"
            )
        crossed = self.method.path and all(params.get("folds") for params in self.grid)
        if len(self.settings) > 1 and self.select is None and not crossed:
            raise ParameterError(f"{len(self.settings)} settings are given; fit --select DATASET chooses among them")


def check_published(method: str, as_published: bool) -> None:
    """Raise ParameterError where what a paper prints is asked for, and no method is named."""
    if as_published and method == AUTO:
        raise ParameterError("as_published: of a method that is named; name one of `distls methods`")


def _check_parallelism(asked: int | None, lanes: Sequence[int | None]) -> None:
    """Raise ParameterError where the number of threads that was asked for would change nothing."""
    if asked is not None and None not in lanes:
        raise ParameterError(f"parallelism={asked}: lanes are given, or the method has one; drop it")
    if asked is not None and asked > MOST_LANES:
        raise ParameterError(f"parallelism={asked}: there are {MOST_LANES} lanes at most")


def _completed(method: Method, params: Params) -> Params:
    """Return a stored setting with the defaults of parameters that the method has gained since."""
    complete = method.resolve(params)
    # it was complete when it was written: resolving it again changes nothing
    if any(complete[name] != value for name, value in params.items()) or complete.get("loss", "") is None:
        raise ValueError("a setting that is not complete")
    return complete


def _check_names(asked: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that no fit has."""
    unknown = next((name for name in asked if name not in Request.__struct_fields__), None)
    if unknown is None:
        return
    meant, close = "", get_close_matches(unknown, Request.__struct_fields__, 1)
    if any(unknown == own.name for method in METHODS.values() for own in method.parameters):
        meant = f"; parameters of a method are one argument, params={{{unknown!r}: ...}}"
    elif close:
        meant = f"; did you mean {close[0]!r}?"
    raise TypeError(f"a fit got an unexpected keyword argument {unknown!r}{meant}")


def _opened(source: str | Place | Dataset) -> Dataset:
    if not isinstance(source, (str, Path, StorePath, Dataset)):
        raise ParameterError(
            f"a {type(source).__name__} is no data set: give a path or a Dataset; arrays are for the estimators, or "
            "for distls.ingest"
        )
    return source if isinstance(source, Dataset) else open_dataset(source)


def _path_of(dataset: Dataset) -> str:
    return str(dataset.path.absolute())


def _expected(config: RunConfig, place: str | Place) -> Dataset:
    """Open a run's dataset and check that it is the one the run was started with."""
    try:
        data = open_dataset(place)
    except FormatError as error:
        if place_of(place).exists():
            raise
        raise FormatError(f"{error}; if it was moved, --data DATASET of resume says where it is") from None
    # Another data set under the same path would give other weights without a word.
    if data.fingerprint != config.dataset_fingerprint:
        raise MismatchError(
            f"{data.path} is not the data set this run was started with (fingerprint {data.fingerprint[:12]}, "
            f"expected {config.dataset_fingerprint[:12]}); start a new run"
        )
    return data
