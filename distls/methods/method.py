"""A training method and its parameters: how they are named, parsed, completed and refused."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distls.methods.requirements import Requirement
from distls.storage.errors import ParameterError

if TYPE_CHECKING:
    from distls.workers.stochastic.step_choice import ChooseSteps

# One value for each parameter of a method, as its parsers return them: JSON values
Params = dict[str, Any]


# Characters of a refused value in its message.
_SHOWN = 80


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method."""

    name: str
    default: Any  # JSON value; None where the method decides (the description says how)
    # Takes a JSON value or text, returns the typed value or raises ValueError with the rule
    parse: Callable[[Any], Any]
    description: str
    # Whether it is no part of a setting that does not give it, as of runs from before there was such a parameter
    optional: bool = False


@dataclass(frozen=True)
class Method:
    """One training method."""

    name: str
    summary: str
    paper: str
    parameters: tuple[Parameter, ...]
    solver: str  # "module:class" of the solver, imported when used
    targets: tuple[str, ...]
    version: int = 2  # of its solver: raised where the same request gives other bits, so that no run is mixed
    passes: float | None = 10.0  # Limit where none is given; None: the method ends by itself
    rtol: float | None = None  # Relative tolerance where no limit is given
    # Whether it keeps a dual point, so that its certificate is a duality gap in every setting
    proves: bool = False
    # or in which settings it proves that by itself
    proves_with: Callable[[Mapping[str, Any]], bool] | None = None
    columns: bool = False  # Whether it works on column shards, which `train` then adds
    keeps_rows: bool = False  # Whether it keeps predictions of every row in RUN/state
    # Whether ``alpha=path`` makes a child run of each alpha, which starts from the one before
    path: bool = False
    # Targets for which alpha, where none is given, is at least what suits so many rows of such a length
    alpha_by_rows: tuple[str, ...] = ()
    # Whether the folds of a path are compared in memory where all rows fit, as its fits end at the optimum
    in_memory: bool = False
    # Whether classes are trained to their ends one block after the other, so that limits of passes have no meaning
    by_classes: bool = False
    # Whether fits of several settings share each read; those of a path then start from zero, or from `init`
    side_by_side: bool = False
    # "module:function" of the `ChooseSteps` of a stochastic method, whose solver is `STOCHASTIC_SOLVER`
    steps: str | None = None
    # On continuous targets, other defaults where the first of them is not given
    continuous: Mapping[str, Any] = field(default_factory=dict)
    multilabel: Mapping[str, Any] = field(default_factory=dict)  # the same on sets of labels
    # The loss where the parameter has no default, by kind of targets; "wide": classes, more features than rows
    losses: Mapping[str, str] = field(default_factory=dict)
    # What the box of its paper prints, by parameter: the setting of ``as_published``; empty: it follows none
    published: Mapping[str, Any] = field(default_factory=dict)

    @property
    def aliases(self) -> Mapping[str, str]:
        """The short names of the losses it can train, each with the full name it stands for."""
        found = [each.parse for each in self.parameters if each.name == "loss"]
        return found[0].short_names() if found and isinstance(found[0], Requirement) else {}

    def resolve(self, given: Mapping[str, Any]) -> Params:
        """Return all parameters of the method but optional ones that are not given, typed, from texts or values.

        Raises ParameterError for an unknown name (naming the closest known one) or an invalid value.
        """
        known = {p.name: p for p in self.parameters}
        for name in given:
            if name not in known:
                raise ParameterError(unknown_parameter(name, self.name, list(known)))
        return {
            name: self._parse(p, given[name]) if name in given else p.default
            for name, p in known.items()
            if name in given or not p.optional
        }

    def as_published(self, given: Mapping[str, Any]) -> tuple[Params, str | None]:
        """Return the parameters of the paper's box with those given beside, and which of these it prints otherwise.

        Raises ParameterError for a method that follows no box.
        """
        if not self.published:
            raise ParameterError(
                f"as_published: {self.name} follows no printed algorithm; `distls methods` says which do, or drop it"
            )
        own = {name: value for name, value in given.items() if value is not None}
        typed = {p.name: p for p in self.parameters}
        # several values of one parameter are settings to choose from
        values = {
            name: [self._parse(typed[name], each) for each in (value if isinstance(value, (list, tuple)) else [value])]
            for name, value in own.items()
            if name in self.published
        }
        departs = [f"{n}={own[n]}" for n, found in values.items() if any(v != self.published[n] for v in found)]
        # a strength by the rows is ours, as are columns standardized where none is given
        plain = {"alpha": typed["alpha"].default}
        return {**plain, **self.published, **own}, ", ".join(departs) or None

    def load_steps(self) -> ChooseSteps:
        """Return the function that chooses a stochastic method's steps; raise ParameterError for other methods."""
        if self.steps is None:
            raise ParameterError(f"{self.name} is not a stochastic method")
        steps: ChooseSteps = import_object(self.steps)
        return steps

    def _parse(self, parameter: Parameter, value: Any) -> Any:
        # a default need not satisfy the parser: None leaves the choice to the method
        if value is None or value == parameter.default:
            return parameter.default
        try:
            return parameter.parse(value)
        except (TypeError, ValueError) as error:
            text = str(value)
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise ParameterError(f"{self.name}: {parameter.name}={shown}: {error}") from None


# Solvers are named, not imported, where methods are declared: importing one loads numba.
def import_object(place: str) -> Any:
    """Return what "module:name" stands for."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


# What people who come from scikit-learn, or from the papers, ask for. Their names are not taken: the same name for
# another thing misleads.
HINTS = {
    "lambda": "the papers' lambda is alpha",
    "T": "the papers' T are the steps of mcid, the stages of stagewise, else --passes N",
    "eta": "the size of the first step is eta0, of methods that have one",
    "max_iter": "the number of passes is --passes N",
    "n_iter": "the number of passes is --passes N",
    "tol": "the tolerance is --tol X or --rtol X of fit",
    "C": "C of n rows is alpha = 1/(C n)",
    "penalty": "alpha is the strength of the squared norm; sdca, newton, bcd, fista, sparsa and fobos have others",
    "l1_ratio": "sdca, newton, bcd, fista, sparsa and fobos have the penalty elasticnet",
    "early_stopping": "fit --patience N stops early on the data of --eval",
    "n_iter_no_change": "fit --patience N stops early on the data of --eval",
    "validation_fraction": "--split NAME=FRACTION of distls ingest holds out rows, for --eval of fit",
    "n_jobs": "--workers sets the number of processes (in Python: the Dask client)",
    "verbose": "progress of fit is shown unless --quiet is given (distls.fit: callbacks=)",
    "random_state": "the seed is --seed N of fit",
    "warm_start": "-p init=RUN starts from a model",
}


def diverged(known: Container[str], data: str = "the data") -> str:
    """Return what is said of weights that are not finite: what helps a method with these parameters."""
    larger = " or ".join(name for name in ("alpha", "t0") if name in known)
    step = ", a smaller eta0" if "eta0" in known and "t0" not in known else ""
    return f"the weights are no longer finite; try a larger {larger}{step}, or scale {data}"


def unknown_parameter(name: str, method: str, known: list[str]) -> str:
    """Return what is said of a parameter that a method or an estimator does not have."""
    close = difflib.get_close_matches(name, known, 1)
    other = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
    return f"{method} has no parameter {name!r}; {HINTS.get(name, other)}"
