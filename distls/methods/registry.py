"""The methods, their parameters and their validation: one vocabulary, described in docs/notation.md."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distls.methods.registered_names import loss_with, penalty_with
from distls.storage.errors import ParameterError

__all__ = ["BLOCK_SIZE", "METHODS", "Method", "Parameter", "expand_grid", "method_named", "parse_values"]

BLOCK_SIZE = 1024  # generated features, where no other number is asked for


@dataclass(frozen=True)
class Parameter:
    """One parameter of a method.

    Attributes
    ----------
    name : str
    default : object
        JSON value; None where the method decides (the description says how).
    parse : callable
        Takes a JSON value or text, returns the typed value or raises ValueError with the rule.
    description : str
    """

    name: str
    default: Any
    parse: Callable[[Any], Any]
    description: str


@dataclass(frozen=True)
class Method:
    """One training method.

    Attributes
    ----------
    name, summary, paper : str
    aliases : dict of loss alias -> full loss name
    parameters : tuple of Parameter
    solver : str
        "module:class" of the solver, imported when used.
    targets : tuple of target kinds it accepts
    passes : float or None
        Limit where none is given; None: the method has an end of its own.
    keeps_rows : bool
        Whether it keeps predictions of every row in RUN/state.
    path : bool
        Whether ``alpha=path`` makes a child run of each alpha, which starts from the one before.
    """

    name: str
    summary: str
    paper: str
    aliases: Mapping[str, str]
    parameters: tuple[Parameter, ...]
    solver: str
    targets: tuple[str, ...]
    passes: float | None = 10.0
    keeps_rows: bool = False
    path: bool = False

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check and complete parameters.

        Parameters
        ----------
        given : mapping of name -> text or value

        Returns
        -------
        params : dict
            Every parameter of the method, typed.

        Raises
        ------
        ParameterError
            A name is unknown (the closest known one is named) or a value is out of range.
        """
        known = {p.name: p for p in self.parameters}
        for name in given:
            if name not in known:
                raise ParameterError(_unknown(name, self.name, list(known)))
        return {
            name: self._parse(p, given[name]) if name in given else p.default for name, p in known.items()
        }

    def _parse(self, parameter: Parameter, value: Any) -> Any:
        if value is None or value == parameter.default:
            return parameter.default
        try:
            return parameter.parse(value)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"{self.name}: {parameter.name}={value}: {error}") from None


def _unknown(name: str, method: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
    return f"{method} has no parameter {name!r}; {hint}"


def number(low: float = float("-inf"), high: float = float("inf"), *, above: float | None = None) -> Any:
    """Return a parser of finite numbers within [low, high], and above `above`."""

    def parse(value: Any) -> float:
        try:
            result = float(value)
        except (TypeError, ValueError):
            raise ValueError("expected a number") from None
        if not low <= result <= high or result in (float("inf"), float("-inf")):
            raise ValueError(f"expected a number from {low:g} to {high:g}")
        if above is not None and result <= above:
            raise ValueError(f"must be greater than {above:g}")
        return result

    return parse


def integer(low: int, high: int = 2**63 - 1) -> Any:
    """Return a parser of integers within [low, high]."""

    def parse(value: Any) -> int:
        try:
            result = int(str(value))
        except ValueError:
            raise ValueError("expected a whole number") from None
        if not low <= result <= high:
            raise ValueError(f"expected a whole number of at least {low}")
        return result

    return parse


def one_of(*choices: str, **aliases: str) -> Any:
    """Return a parser of one of `choices`, or an alias of one."""

    def parse(value: Any) -> str:
        text = aliases.get(str(value), str(value))
        if text not in choices:
            raise ValueError(f"expected one of {', '.join([*choices, *aliases])}")
        return text

    return parse


def boolean(value: Any) -> bool:
    """Parse yes/no, true/false, 1/0."""
    table = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return table[str(value).lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def class_weight(value: Any) -> Any:
    """Parse 'balanced' or a mapping {label: weight}, as JSON text or a dict."""
    if value == "balanced":
        return value
    try:
        table = json.loads(value) if isinstance(value, str) else dict(value)
        weights = {str(label): float(weight) for label, weight in table.items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError('expected balanced, or weights such as {"1": 2.5}') from None
    if not weights or min(weights.values()) < 0 or not all(w < float("inf") for w in weights.values()):
        raise ValueError("class weights must be finite and not negative")
    return weights


def text(value: Any) -> str:
    """Accept any text."""
    return str(value)


_SYNC = Parameter(
    "sync_bytes",
    None,
    integer(1),
    "stored bytes a lane reads between averagings while lanes differ; default 64 MiB, or 16 times the weights",
)


def _lanes_and_rows(lanes: Parameter | None = None) -> tuple[Parameter, ...]:
    """Return the parameters of all stochastic methods."""
    return (
        Parameter("class_weight", None, class_weight, 'balanced, or JSON such as {"spam": 5}; default all 1'),
        lanes
        or Parameter(
            "lanes", None, integer(1, 4096), "chains worked in parallel; default min(8, partitions)"
        ),
        Parameter("shuffle", True, boolean, "visit partitions and rows in random order, else as stored"),
        Parameter("dtype", "float32", one_of("float32", "float64"), "of the weights"),
        Parameter(
            "round_bytes", 4 * 2**30, integer(1), "stored bytes a lane reads at most between averagings"
        ),
        *(() if lanes else (_SYNC,)),
        Parameter("init", None, text, "a run or model to start from"),
    )


def _stochastic(loss: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of MCID and its comparators."""
    return (
        loss,
        Parameter("alpha", 1e-5, number(above=0.0), "L2 strength, the paper's lambda; it divides the step"),
        Parameter("batch_size", 1, integer(1), "rows a step, the paper's r"),
        Parameter(
            "average", "tail", one_of("none", "all", "tail"), "which iterates the model is the mean of"
        ),
        Parameter("fit_intercept", False, boolean, "an unpenalised intercept; the paper has none"),
        Parameter("t0", None, number(0.0), "added to t in the step; default: see docs/notation.md"),
        *_lanes_and_rows(),
    )


_SGD_LOSSES = {"log": "softmax", "hinge": "crammer_singer"}
_OVR_LOSSES = {"log": "ovr_log", "hinge": "ovr_hinge", "squared_hinge": "ovr_squared_hinge"}
_QN_PAPER = "Bordes, Bottou, Gallinari 2009, SGD-QN: Careful Quasi-Newton Stochastic Gradient Descent"
_CSGD_PAPER = (
    "Mu, Ding, Zhou, Tao 2013, Constrained Stochastic Gradient Descent for Large-scale Least Squares"
)


def _sgd(schedule: str, average: str) -> tuple[Parameter, ...]:
    """Return the parameters of plain stochastic gradients."""
    adaptive = schedule == "adaptive"
    return (
        Parameter(
            "loss",
            None if adaptive else "softmax",
            loss_with(_SGD_LOSSES, target="class", stochastic=True),
            "softmax (log), crammer_singer (hinge), perceptron, one-versus-rest losses, or squared"
            + ("; default: hinge where features are more than rows, else log" if adaptive else ""),
        ),
        *_steps(schedule, adaptive=adaptive),
        Parameter("alpha", 0.0, number(0.0), "L2 strength, 0 or more"),
        Parameter("batch_size", 1, integer(1), "rows a step"),
        Parameter(
            "average", average, one_of("none", "all", "tail"), "which iterates the model is the mean of"
        ),
        Parameter(
            "center",
            "none",
            one_of("none", "running", "global"),
            "of loss=squared: subtract the mean of the rows so far, or of all rows (a read more)",
        ),
        Parameter("fit_intercept", False, boolean, "an unpenalised intercept"),
        *_lanes_and_rows(),
        *_ONE_BLOCK,
    )


def _steps(schedule: str, *, adaptive: bool) -> tuple[Parameter, ...]:
    """Return the parameters of the size of steps."""
    plain = "eta0/t, eta0, eta0/sqrt(t), or eta0/sqrt(t) and from switch on eta0 sqrt(switch)/t"
    return (
        Parameter(
            "schedule",
            schedule,
            one_of(*(("adaptive",) if adaptive else ()), "inverse", "constant", "sqrt", "two-phase"),
            f"of steps: {'adaptive to each feature (AdaGrad), ' if adaptive else ''}{plain}",
        ),
        Parameter(
            "eta0",
            None,
            number(above=0.0),
            "size of steps; default: "
            + (
                "adaptive: sqrt(outputs)/2 (hinge: max(1, rows/10000)^(1/4)/4) times the cube root of lanes, over the "
                "root of mean |x|^2; else "
                if adaptive
                else ""
            )
            + "tried on a tenth of the rows, at least 4096",
        ),
        Parameter("switch", None, number(1.0), "of two-phase, a lane's rows; default half of a pass"),
    )


def one(value: Any) -> int:
    """Parse the number of lanes of a method that has but one."""
    if str(value) != "1":
        raise ValueError("this method works in one lane: what it remembers of rows cannot be averaged")
    return 1


_ONE_LANE = Parameter("lanes", 1, one, "1: what the method remembers of rows cannot be averaged")


def _least_squares(schedule: str, center: str | None) -> tuple[Parameter, ...]:
    """Return the parameters of the constrained SGD paper's methods."""
    mean = (
        Parameter(
            "center",
            center,
            one_of("running", "global"),
            "the mean that the model passes through: of the rows so far (the paper), or of all rows (a read more)",
        ),
    )
    return (
        Parameter("loss", "squared", one_of("squared"), "squared, the only one"),
        *_steps(schedule, adaptive=False),
        Parameter("alpha", 0.0, number(0.0), "L2 strength, 0 or more; the paper has none"),
        *(mean if center else ()),
        Parameter("fit_intercept", True, boolean, "an unpenalised intercept: the paper's constant feature"),
        *_lanes_and_rows(),
    )


def _scheduled(*metric: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of SVMSGD2 and SGD-QN."""
    return (
        Parameter(
            "loss",
            "ovr_squared_hinge",
            one_of("ovr_squared_hinge", "ovr_hinge", "ovr_log", **_OVR_LOSSES),
            "one-versus-rest: ovr_squared_hinge (squared_hinge), ovr_hinge (hinge) or ovr_log (log); two classes are "
            "one binary problem",
        ),
        Parameter("alpha", 1e-5, number(above=0.0), "L2 strength, the paper's lambda; it divides the step"),
        *metric,
        Parameter(
            "skip", None, integer(1), "rows between dense parts; default 16 over the share of non-zeros"
        ),
        Parameter("t0", None, number(above=0.0), "added to t in the step; default: tried on some rows"),
        Parameter("fit_intercept", False, boolean, "an unpenalised intercept; the paper has none"),
        *_lanes_and_rows(),
    )


_MCID_LOSSES = {"log": "softmax", "hinge": "crammer_singer"}
_MCID_PAPER = "Chen, Chen, Yang 2011, Characterizing Inverse Time Dependency in Multi-class Learning"


def powers(value: Any) -> str:
    """Parse the number of powers, or a list of them such as 1+2+3; return the list in that form."""
    try:
        if isinstance(value, (list, tuple)):
            listed = [int(power) for power in value]
        elif isinstance(value, str) and "+" in value:
            listed = [int(power) for power in value.split("+")]
        else:
            listed = list(range(1, int(value) + 1))
    except (TypeError, ValueError):
        raise ValueError("expected a number of powers, or powers such as 1+2+3") from None
    if not listed or listed != sorted(set(listed)) or listed[0] != 1 or listed[-1] > _MOST_POWERS:
        raise ValueError(f"expected increasing powers from 1 to at most {_MOST_POWERS}, 1 among them")
    return "+".join(str(power) for power in listed)


# Predictions may leave [0, 1] before they are calibrated; their higher powers say nothing but that.
_MOST_POWERS = 12

_LEAST_SQUARES_PAPER = "Agarwal, Kakade, Karampatziakis, Song, Valiant 2014, Least Squares Revisited"


def _or(parse: Callable[[Any], Any], *words: str) -> Callable[[Any], Any]:
    """Return a parser of one of `words`, or of what `parse` takes."""

    def either(value: Any) -> Any:
        if value in words:
            return value
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, or one of {', '.join(words)}") from None

    return either


def _colon_list(value: Any) -> str:
    """Check numbers above 0 with colons between them."""
    try:
        for each in str(value).split(":"):
            number(above=0.0)(each)
    except ValueError:
        raise ValueError(
            "expected numbers greater than 0 with colons between them, such as 1:0.1:0.01"
        ) from None
    return str(value)


def _alphas(value: Any) -> Any:
    """Parse how many values, or a list of them with colons between."""
    return _colon_list(value) if ":" in str(value) else integer(2, 1000)(value)


_GENERATORS = (
    Parameter(
        "features",
        "original",
        one_of("original", "fourier", "logits", "polynomials", "random-masks", "kmeans-masks"),
        "of a block: original ones, random Fourier features, logits or low-degree polynomials, or images' "
        "convolutions with masks",
    ),
    Parameter(
        "order",
        None,
        one_of("random", "replacement", "frequency", "gradient"),
        "of original features: random (default), drawn with replacement, by rows that have them, or by the "
        "gradient's magnitude, anew in each pass over them",
    ),
    Parameter(
        "pca", None, integer(1), "project rows onto so many principal components before random features"
    ),
    Parameter(
        "bandwidth",
        None,
        _or(number(above=0.0), "median"),
        "s of the kernel exp(-|x - x'|^2 / s); median: the median squared distance of rows (default, but for "
        "polynomials, whose mean square is made 1)",
    ),
    Parameter("degree", None, integer(1, 9), "of random polynomials; default 2"),
    Parameter(
        "image", None, text, "of a row, HEIGHTxWIDTHxCHANNELS; default: square, 3 channels if that fits"
    ),
    Parameter("mask_side", None, integer(1), "pixels of a mask's side; default 6"),
    Parameter("pool", None, integer(1), "convolutions are averaged over pool x pool regions; default 2"),
    Parameter("rectify", None, one_of("two-sided", "absolute"), "of convolutions; default two-sided"),
    Parameter("threshold", None, number(0.0), "what a mask's response must exceed; default 0"),
    Parameter(
        "contrast", None, boolean, "normalise the contrast of patches before convolutions; default false"
    ),
    Parameter(
        "expand",
        None,
        integer(1),
        "with masks: so many of a block's features are random polynomials of the others; default none",
    ),
)


# Of a method that has one block of features.
_ONE_BLOCK = (
    Parameter(
        "features",
        "none",
        one_of("none", "fourier", "logits", "polynomials", "random-masks", "kmeans-masks"),
        "none: the row's own; else random Fourier features, logits or low-degree polynomials of it, or images' "
        "convolutions with masks",
    ),
    Parameter("block_size", None, integer(1), f"generated features; default {BLOCK_SIZE}"),
    *(parameter for parameter in _GENERATORS if parameter.name not in ("features", "order")),
)


def _one_versus_rest(name: str, summary: str, alias: str, loss: str) -> Method:
    """Return a comparator of MCID: a binary model a class, all of them trained in one pass."""
    parse = one_of(loss, **{alias: loss})
    return Method(
        name=name,
        summary=summary,
        paper=f"{_MCID_PAPER}, section V.C",
        aliases={alias: loss},
        parameters=_stochastic(Parameter("loss", loss, parse, f"{loss} ({alias}), the only one")),
        solver="distls.solvers.stochastic.stochastic:Mcid",
        targets=("class",),
    )


_BCD_PAPER = (
    "Blondel, Seki, Uehara 2013, Block Coordinate Descent Algorithms for Large-scale Sparse Multiclass "
    "Classification"
)
_BCD_LOSSES = {"squared_hinge": "multiclass_squared_hinge", "log": "softmax"}
_FOBOS_LOSSES = {"hinge": "crammer_singer"}


def _descent() -> tuple[Parameter, ...]:
    """Return the parameters of block coordinate descent."""
    return (
        Parameter(
            "loss",
            "multiclass_squared_hinge",
            one_of("multiclass_squared_hinge", "multitask_squared_hinge", "softmax", **_BCD_LOSSES),
            "multiclass_squared_hinge (squared_hinge), multitask_squared_hinge or softmax (log): Equations 2, 11, 12",
        ),
        Parameter(
            "penalty",
            "l1l2",
            penalty_with(),
            "l1l2: rows of weights become zero as a whole; or l1, l2, elasticnet, l1linf, sparse-group",
        ),
        Parameter("l1_ratio", None, number(0.0, 1.0), "of elasticnet and sparse-group; default 0.5"),
        Parameter(
            "alpha",
            1e-4,
            _or(number(0.0), "path"),
            "strength of the penalty, 0 or more: the paper's lambda; path: of many, a child run of each",
        ),
        Parameter(
            "alphas",
            None,
            _alphas,
            "of alpha=path: how many, from the smallest at which weights are zero to a thousandth of it (default 10), "
            "or a list such as 1e-2:1e-3",
        ),
        Parameter(
            "step",
            "line-search",
            one_of("line-search", "constant"),
            "line-search with curvatures as they are (Tseng-Yun), or constant with columns drawn (Richtarik-Takac)",
        ),
        Parameter(
            "active_sweeps",
            5,
            integer(0, 1000),
            "sweeps in each round over the columns that have weights alone; 0: the paper's algorithm",
        ),
        Parameter("active_mib", 128, integer(1), "MiB of such columns; more are not swept alone"),
        Parameter(
            "tau",
            1e-3,
            number(0.0),
            "ends the fit when violations of a round are so much of the first one's; 0: never",
        ),
        Parameter("violation", "sum", one_of("sum", "max"), "over the blocks of a round (Equation 10)"),
        Parameter(
            "debias",
            None,
            number(above=0.0),
            "strength of an l2 penalty with which the features that have weights are fitted anew at the end; default: "
            "they are not",
        ),
        Parameter("fit_intercept", False, boolean, "an unpenalised intercept; the paper has none"),
        Parameter("class_weight", None, class_weight, 'balanced, or JSON such as {"spam": 5}; default all 1'),
        Parameter(
            "lanes",
            None,
            integer(1, 4096),
            "chains of column shards worked in parallel; default min(2, shards)",
        ),
        Parameter(
            "dtype", "float64", one_of("float32", "float64"), "of weights and of the scores of all rows"
        ),
        Parameter("init", None, text, "a run or model to start from"),
    )


def _picked(names: str) -> tuple[Parameter, ...]:
    """Return parameters that mean the same as in block coordinate descent."""
    known = {parameter.name: parameter for parameter in _descent()}
    return tuple(known[name] for name in names.split())


def _proximal(*own: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of methods that step along the whole gradient."""
    return (
        *_picked("loss penalty l1_ratio alpha"),
        *own,
        *_picked("tau fit_intercept class_weight"),
        Parameter("lanes", None, integer(1, 4096), "chains read in parallel; default min(8, partitions)"),
        Parameter("dtype", "float64", one_of("float32", "float64"), "of products and weights"),
        *_picked("init"),
    )


def lazy_penalty(value: Any) -> str:
    """Parse a penalty whose shrinkages add up over the rows that lack a feature."""
    if value == "sparse-group":
        raise ValueError(
            "its shrinkages do not add up over the rows that lack a feature; bcd, fista and sparsa have it"
        )
    return str(one_of("l1l2", "l1", "l2", "elasticnet", "l1linf")(value))


def _splitting() -> tuple[Parameter, ...]:
    """Return the parameters of forward-backward splitting."""
    return (
        Parameter(
            "loss",
            "multiclass_squared_hinge",
            one_of(
                "multiclass_squared_hinge",
                "multitask_squared_hinge",
                "softmax",
                "crammer_singer",
                **_BCD_LOSSES,
                **_FOBOS_LOSSES,
            ),
            "multiclass_squared_hinge (squared_hinge), multitask_squared_hinge, softmax (log), or crammer_singer "
            "(hinge)",
        ),
        Parameter(
            "penalty",
            "l1l2",
            lazy_penalty,
            "l1l2: rows of weights become zero as a whole; or l1, l2, elasticnet, l1linf",
        ),
        Parameter("l1_ratio", None, number(0.0, 1.0), "of elasticnet; default 0.5"),
        *_picked("alpha"),
        Parameter(
            "eta0",
            None,
            number(above=0.0),
            "steps are eta0/sqrt(t); default: tried on some rows, judged on others",
        ),
        *_picked("fit_intercept"),
        *_lanes_and_rows(),
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="mcid",
            summary="stochastic multi-class logistic regression, SVM and perceptron, step 1/(alpha t)",
            paper=f"{_MCID_PAPER}, Algorithms 1-4",
            aliases=_MCID_LOSSES,
            parameters=_stochastic(
                Parameter(
                    "loss",
                    "softmax",
                    one_of("softmax", "crammer_singer", "perceptron", **_MCID_LOSSES),
                    "softmax (log), crammer_singer (hinge) or perceptron: Equations 6, 9, 11",
                )
            ),
            solver="distls.solvers.stochastic.stochastic:Mcid",
            targets=("class",),
        ),
        _one_versus_rest(
            "ovr-pegasos",
            "one-versus-rest SVM by stochastic subgradients, step 1/(alpha t)",
            "hinge",
            "ovr_hinge",
        ),
        _one_versus_rest(
            "ovr-logistic", "one-versus-rest logistic regression, step 1/(alpha t)", "log", "ovr_log"
        ),
        Method(
            name="sgd",
            summary="stochastic gradients for any loss; steps that adapt to each feature, or follow a schedule",
            paper="Duchi, Hazan, Singer 2011, Adaptive Subgradient Methods (adaptive); Robbins, Monro 1951",
            aliases=_SGD_LOSSES,
            parameters=_sgd("adaptive", "none"),
            solver="distls.solvers.stochastic.stochastic:Sgd",
            targets=("class", "continuous"),
        ),
        Method(
            name="asgd",
            summary="averaged stochastic gradients: the mean of all iterates (Polyak-Ruppert)",
            paper="Polyak, Juditsky 1992, Acceleration of Stochastic Approximation by Averaging",
            aliases=_SGD_LOSSES,
            parameters=_sgd("sqrt", "all"),
            solver="distls.solvers.stochastic.stochastic:Sgd",
            targets=("class", "continuous"),
        ),
        Method(
            name="svmsgd2",
            summary="stochastic gradients with step 1/(alpha (t + t0)), L2 every skip rows; binary or one-versus-rest",
            paper=f"{_QN_PAPER}, Figure 1",
            aliases=_OVR_LOSSES,
            parameters=_scheduled(),
            solver="distls.solvers.stochastic.stochastic:Scheduled",
            targets=("class",),
        ),
        Method(
            name="sgdqn",
            summary="stochastic gradients in a diagonal metric of second order; binary or one-versus-rest",
            paper=f"{_QN_PAPER}, Figure 2",
            aliases=_OVR_LOSSES,
            parameters=_scheduled(
                Parameter(
                    "diagonal",
                    "gauss-newton",
                    one_of("gauss-newton", "secant", "paper"),
                    "of the metric: second derivatives, secants seen by new rows, or the paper's as printed",
                )
            ),
            solver="distls.solvers.stochastic.stochastic:Scheduled",
            targets=("class",),
        ),
        Method(
            name="csgd",
            summary="least squares by stochastic gradients that pass through the mean point; steps of two phases",
            paper=f"{_CSGD_PAPER}, Algorithm 1 and section 4.2",
            aliases={},
            parameters=_least_squares("two-phase", "running"),
            solver="distls.solvers.stochastic.stochastic:Constrained",
            targets=("class", "continuous"),
        ),
        Method(
            name="ncsgd",
            summary="least squares by stochastic gradients that pass through the mean point; steps eta0/sqrt(t)",
            paper=f"{_CSGD_PAPER}, section 5.1",
            aliases={},
            parameters=_least_squares("sqrt", "running"),
            solver="distls.solvers.stochastic.stochastic:Constrained",
            targets=("class", "continuous"),
        ),
        Method(
            name="adaline",
            summary="least-squares classification by stochastic gradients with a constant step",
            paper=f"{_CSGD_PAPER}, section 5.2",
            aliases={},
            parameters=_least_squares("constant", None),
            solver="distls.solvers.stochastic.stochastic:Adaline",
            targets=("class",),
        ),
        Method(
            name="c-adaline",
            summary="least-squares classification by stochastic gradients that pass through the mean point",
            paper=f"{_CSGD_PAPER}, Algorithm 2",
            aliases={},
            parameters=_least_squares("sqrt", "running"),
            solver="distls.solvers.stochastic.stochastic:Constrained",
            targets=("class",),
        ),
        Method(
            name="rls",
            summary="second-order stochastic gradients: recursive least squares, and other losses; one lane",
            paper=f"{_CSGD_PAPER}, section 5.1 (2SGD); {_QN_PAPER}, Equation 4",
            aliases=_OVR_LOSSES,
            parameters=(
                Parameter(
                    "loss",
                    "squared",
                    one_of(
                        "squared",
                        "ovr_squared_hinge",
                        "ovr_log",
                        log="ovr_log",
                        squared_hinge="ovr_squared_hinge",
                    ),
                    "squared, or one-versus-rest: ovr_squared_hinge (squared_hinge), ovr_log (log)",
                ),
                Parameter("alpha", 1e-6, number(above=0.0), "L2 strength; P starts at 1/(alpha n_rows)"),
                Parameter("fit_intercept", True, boolean, "an unpenalised intercept"),
                *(each for each in _lanes_and_rows(_ONE_LANE) if each.name != "init"),
            ),
            solver="distls.solvers.stochastic.stochastic:Rls",
            targets=("class", "continuous"),
        ),
        Method(
            name="olbfgs",
            summary="online L-BFGS: stochastic gradients in a metric of low rank; one lane",
            paper=f"{_QN_PAPER}, section 5.2; Schraudolph, Yu, Guenter 2007",
            aliases=_OVR_LOSSES,
            parameters=(
                Parameter(
                    "loss",
                    "ovr_squared_hinge",
                    one_of(
                        "ovr_squared_hinge",
                        "ovr_log",
                        "softmax",
                        "squared",
                        log="ovr_log",
                        squared_hinge="ovr_squared_hinge",
                    ),
                    "a smooth one: ovr_squared_hinge (squared_hinge), ovr_log (log), softmax or squared",
                ),
                Parameter("alpha", 1e-5, number(0.0), "L2 strength, 0 or more"),
                Parameter("eta0", 0.1, number(above=0.0), "steps are eta0 tau/(tau + t)"),
                Parameter("tau", 1e4, number(above=0.0), "rows until steps are half as large"),
                Parameter("damping", 0.1, number(0.0), "times the step, added to the change of the gradient"),
                Parameter("rank", 10, integer(1, 1000), "steps that the metric is made of"),
                Parameter("fit_intercept", False, boolean, "an unpenalised intercept; the paper has none"),
                *_lanes_and_rows(_ONE_LANE),
            ),
            solver="distls.solvers.stochastic.stochastic:Olbfgs",
            targets=("class", "continuous"),
        ),
        Method(
            name="bcd",
            summary="sparse direct multi-class models by block coordinate descent over column shards",
            paper=f"{_BCD_PAPER}, Algorithms 1-3",
            aliases=_BCD_LOSSES,
            parameters=_descent(),
            solver="distls.solvers.coordinate_descent.bcd:BlockCoordinateDescent",
            targets=("class", "multilabel"),
            passes=200.0,
            keeps_rows=True,
            path=True,
        ),
        Method(
            name="fista",
            summary="sparse direct multi-class models by accelerated proximal steps on the whole gradient",
            paper="Beck, Teboulle 2009, A Fast Iterative Shrinkage-Thresholding Algorithm",
            aliases=_BCD_LOSSES,
            parameters=_proximal(
                Parameter(
                    "step",
                    "line-search",
                    one_of("line-search", "constant"),
                    "line-search: L follows the curvature that steps meet; constant: 1/L",
                ),
                Parameter(
                    "lipschitz",
                    None,
                    _or(number(above=0.0), "norm", "bound"),
                    "of constant steps, L: the loss's constant times the norm of Sigma, which costs some reads "
                    "(norm, default), or times its trace (bound), or a number; of line-search a number, where L starts",
                ),
            ),
            solver="distls.solvers.coordinate_descent.proximal:Fista",
            targets=("class", "multilabel"),
            passes=200.0,
        ),
        Method(
            name="sparsa",
            summary="sparse direct multi-class models by proximal steps of spectral length on the whole gradient",
            paper="Wright, Nowak, Figueiredo 2009, Sparse Reconstruction by Separable Approximation",
            aliases=_BCD_LOSSES,
            parameters=_proximal(
                Parameter(
                    "history",
                    5,
                    integer(1, 1000),
                    "a step must improve on the worst of so many objectives, the paper's M",
                ),
                Parameter(
                    "lipschitz", None, number(above=0.0), "where L starts; default: a 64th of its bound"
                ),
            ),
            solver="distls.solvers.coordinate_descent.proximal:Sparsa",
            targets=("class", "multilabel"),
            passes=200.0,
        ),
        Method(
            name="fobos",
            summary="sparse direct multi-class models by stochastic forward-backward splitting",
            paper="Duchi, Singer 2009, Efficient Online and Batch Learning Using Forward Backward Splitting",
            aliases={**_BCD_LOSSES, **_FOBOS_LOSSES},
            parameters=_splitting(),
            solver="distls.solvers.stochastic.stochastic:Fobos",
            targets=("class",),
        ),
        Method(
            name="gls",
            summary="generalized least squares: steps in the metric of the second moments; squared, logistic, softmax",
            paper=f"{_LEAST_SQUARES_PAPER}, Algorithm 1",
            aliases={},
            parameters=(
                Parameter(
                    "link",
                    "softmax",
                    one_of("identity", "logit", "softmax"),
                    "squared loss (solved in one read), one logistic loss an output, or multi-class logistic",
                ),
                Parameter(
                    "alpha",
                    1e-5,
                    _or(number(0.0), "path"),
                    "L2 strength, 0 or more; path: of many, the best in cross-validation, all of them at each read",
                ),
                Parameter("folds", None, integer(2, 1000), "of alpha=path; default 5"),
                Parameter(
                    "alphas",
                    None,
                    _colon_list,
                    "of alpha=path, such as 1:0.1:0.01; default 20, from 10 to 1e-6 times the mean square of a feature",
                ),
                Parameter(
                    "lipschitz",
                    None,
                    _or(number(above=0.0), "adaptive", "sharp", "paper"),
                    "L: sharp (1/2 softmax, 1/4 logit), paper (1), where to start, or adaptive (default): from sharp/8 "
                    "on; below sharp it is raised when needed",
                ),
                Parameter(
                    "accelerate", None, one_of("none", "nesterov"), "steps; default nesterov but for identity"
                ),
                Parameter("fit_intercept", True, boolean, "an unpenalised intercept"),
                Parameter(
                    "class_weight", None, class_weight, 'balanced, or JSON such as {"spam": 5}; default all 1'
                ),
                Parameter(
                    "lanes", None, integer(1, 4096), "chains read in parallel; default min(8, partitions)"
                ),
                Parameter("dtype", "float64", one_of("float32", "float64"), "of products and weights"),
                Parameter("init", None, text, "a run or model to start from; not with link=identity"),
            ),
            solver="distls.solvers.least_squares.gls:GeneralizedLeastSquares",
            targets=("class", "multilabel", "continuous"),
            passes=100.0,
        ),
        Method(
            name="cls",
            summary="calibrated least squares: residual fits and calibrations of the predictions in turns",
            paper=f"{_LEAST_SQUARES_PAPER}, Algorithm 2",
            aliases={},
            parameters=(
                Parameter(
                    "basis",
                    "1+2+3",
                    powers,
                    "powers of the predictions that calibrate them: how many, or a list such as 1+2+3 (no commas)",
                ),
                Parameter("rounds", 20, integer(1, 10_000), "of the algorithm, two reads of the data each"),
                *_ONE_BLOCK,
                Parameter("alpha", 1e-4, number(0.0), "ridge on each round's weights, in mean form"),
                Parameter("fit_intercept", True, boolean, "an unpenalised intercept in each round's fit"),
                Parameter(
                    "class_weight", None, class_weight, 'balanced, or JSON such as {"spam": 5}; default all 1'
                ),
                Parameter(
                    "lanes", None, integer(1, 4096), "chains read in parallel; default min(8, partitions)"
                ),
                Parameter(
                    "dtype", "float64", one_of("float32", "float64"), "of features, products and weights"
                ),
                Parameter(
                    "init", None, text, "a linear run or model, whose weights are the first round's fit"
                ),
            ),
            solver="distls.solvers.least_squares.cls:Cls",
            targets=("class", "multilabel"),
            passes=None,
            keeps_rows=True,
        ),
        Method(
            name="stagewise",
            summary="blocks of features fitted to residuals one after the other: linear, calibrated or logistic",
            paper=f"{_LEAST_SQUARES_PAPER}, Algorithm 3",
            aliases={},
            parameters=(
                Parameter(
                    "inner",
                    "linear",
                    one_of("linear", "calibrated", "logistic"),
                    "how a block is fitted: least squares, with the predictions so far as features too, or softmax",
                ),
                Parameter(
                    "stages", None, integer(1), "default: one pass over original features, else 16 blocks"
                ),
                Parameter("block_size", BLOCK_SIZE, integer(1), "features of a block, the paper's p"),
                *_GENERATORS,
                Parameter("alpha", 1e-3, number(0.0), "ridge on each block's weights, in mean form"),
                Parameter("inner_rounds", None, integer(1), "reads of a logistic stage; default 50"),
                Parameter(
                    "accelerate",
                    None,
                    one_of("none", "nesterov"),
                    "steps of a logistic stage: none (default) or nesterov",
                ),
                Parameter("models", None, integer(1), "models averaged, of random features each; default 1"),
                Parameter("fit_intercept", True, boolean, "an unpenalised intercept in each block"),
                Parameter(
                    "class_weight", None, class_weight, 'balanced, or JSON such as {"spam": 5}; default all 1'
                ),
                Parameter(
                    "lanes", None, integer(1, 4096), "chains read in parallel; default min(8, partitions)"
                ),
                Parameter(
                    "dtype", "float32", one_of("float32", "float64"), "of features, products and weights"
                ),
                Parameter("init", None, text, "a linear run or model; the stages fit what it has left"),
            ),
            solver="distls.solvers.least_squares.stagewise:Stagewise",
            targets=("class", "multilabel", "continuous"),
            passes=None,
            keeps_rows=True,
        ),
    )
}


def method_named(name: str) -> Method:
    """Return the method `name`.

    Raises
    ------
    ParameterError
        There is none; the closest is named.
    """
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(METHODS)}"
        raise ParameterError(f"no method {name!r}; {hint}")
    return METHODS[name]


def parse_values(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse command-line ``NAME=VALUE`` pairs; several values stay a list.

    Raises
    ------
    ParameterError
        A pair has no "=", or a name comes twice.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ParameterError(f"-p {pair}: expected NAME=VALUE")
        if name in values:
            raise ParameterError(f"-p {name} is given twice; list several values as {name}=A,B")
        values[name] = value.split(",") if "," in value and not value.startswith("{") else value
    return values


def expand_grid(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one parameter setting for each combination of the listed values."""
    lists = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in values.items()}
    return [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]
