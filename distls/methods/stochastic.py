"""The stochastic methods, each with its parameters."""

from __future__ import annotations

from typing import Any

from distls.methods import coordinate_descent
from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    INIT,
    ONE_BLOCK,
    fit_intercept,
    integer,
    number,
    one_of,
)
from distls.methods.registered_names import loss_with, penalty_with
from distls.methods.stochastic_parameters import (
    DIVIDING_ALPHA,
    LANES_AND_ROWS,
    NO_PAPER_INTERCEPT,
    ONE_LANE,
    averaging,
    steps_by_schedule,
)

__all__ = ["FOBOS", "STOCHASTIC_METHODS", "STOCHASTIC_SOLVER"]

# The one solver of all stochastic methods, which differ in their steps.
STOCHASTIC_SOLVER = "distls.solvers.stochastic.stochastic:Stochastic"

_MCID_PAPER = "Chen, Chen, Yang 2011, Characterizing Inverse Time Dependency in Multi-class Learning"
_QN_PAPER = "Bordes, Bottou, Gallinari 2009, SGD-QN: Careful Quasi-Newton Stochastic Gradient Descent"
_CSGD_PAPER = (
    "Mu, Ding, Zhou, Tao 2013, Constrained Stochastic Gradient Descent for Large-scale Least Squares"
)

# Short names of losses of several classes, and of one-versus-rest losses.
_SGD_LOSSES = {"log": "softmax", "hinge": "crammer_singer"}
_OVR_LOSSES = {"log": "ovr_log", "hinge": "ovr_hinge", "squared_hinge": "ovr_squared_hinge"}
_FOBOS_LOSSES = {**coordinate_descent.LOSS_ALIASES, "hinge": "crammer_singer"}


def _mcid(loss: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of MCID and its comparators."""
    return (
        loss,
        DIVIDING_ALPHA,
        Parameter("batch_size", 1, integer(1), "rows a step, the paper's r"),
        averaging("tail"),
        NO_PAPER_INTERCEPT,
        Parameter("t0", None, number(0.0), "added to t in the step; default: see docs/notation.md"),
        *LANES_AND_ROWS,
    )


def _one_versus_rest(name: str, summary: str, alias: str, loss: str) -> Method:
    """Return a comparator of MCID: a binary model a class, all of them trained in one pass."""
    parse = one_of(loss, **{alias: loss})
    return Method(
        name=name,
        summary=summary,
        paper=f"{_MCID_PAPER}, section V.C",
        aliases={alias: loss},
        parameters=_mcid(Parameter("loss", loss, parse, f"{loss} ({alias}), the only one")),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgd:mcid_steps",
        targets=("class",),
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
        *steps_by_schedule(schedule, adaptive=adaptive),
        Parameter("alpha", 0.0, number(0.0), "L2 strength, 0 or more"),
        Parameter("batch_size", 1, integer(1), "rows a step"),
        averaging(average),
        Parameter(
            "center",
            "none",
            one_of("none", "running", "global"),
            "of loss=squared: subtract the mean of the rows so far, or of all rows (a read more)",
        ),
        fit_intercept(False),
        *LANES_AND_ROWS,
        *ONE_BLOCK,
    )


def _scheduled(*metric: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of SVMSGD2 and SGD-QN."""
    return (
        Parameter(
            "loss",
            "ovr_squared_hinge",
            loss_with(
                _OVR_LOSSES, curvature=True, single_output=True, first=("ovr_squared_hinge", "ovr_hinge")
            ),
            "one-versus-rest: ovr_squared_hinge (squared_hinge), ovr_hinge (hinge) or ovr_log (log); two classes are "
            "one binary problem",
        ),
        DIVIDING_ALPHA,
        *metric,
        Parameter(
            "skip", None, integer(1), "rows between dense parts; default 16 over the share of non-zeros"
        ),
        Parameter("t0", None, number(above=0.0), "added to t in the step; default: tried on some rows"),
        NO_PAPER_INTERCEPT,
        *LANES_AND_ROWS,
    )


def _constrained(schedule: str, center: str | None) -> tuple[Parameter, ...]:
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
        *steps_by_schedule(schedule),
        Parameter("alpha", 0.0, number(0.0), "L2 strength, 0 or more; the paper has none"),
        *(mean if center else ()),
        fit_intercept(True, "an unpenalised intercept: the paper's constant feature"),
        *LANES_AND_ROWS,
    )


# Second-order methods need derivatives of the loss that change with the scores.
_SMOOTH: dict[str, Any] = {"smooth": True, "curvature": True}
_SMOOTH_LOSSES = {"log": "ovr_log", "squared_hinge": "ovr_squared_hinge"}

_RLS = (
    Parameter(
        "loss",
        "squared",
        loss_with(_SMOOTH_LOSSES, **_SMOOTH, separable=True, first=("squared", "ovr_squared_hinge")),
        "squared, or one-versus-rest: ovr_squared_hinge (squared_hinge), ovr_log (log)",
    ),
    Parameter("alpha", 1e-6, number(above=0.0), "L2 strength; P starts at 1/(alpha n_rows)"),
    fit_intercept(True),
    *ONE_LANE,
)

_OLBFGS = (
    Parameter(
        "loss",
        "ovr_squared_hinge",
        loss_with(_SMOOTH_LOSSES, **_SMOOTH, first=("ovr_squared_hinge", "ovr_log", "softmax")),
        "a smooth one: ovr_squared_hinge (squared_hinge), ovr_log (log), softmax or squared",
    ),
    Parameter("alpha", 1e-5, number(0.0), "L2 strength, 0 or more"),
    Parameter("eta0", 0.1, number(above=0.0), "steps are eta0 tau/(tau + t)"),
    Parameter("tau", 1e4, number(above=0.0), "rows until steps are half as large"),
    Parameter("damping", 0.1, number(0.0), "times the step, added to the change of the gradient"),
    Parameter("rank", 10, integer(1, 1000), "steps that the metric is made of"),
    NO_PAPER_INTERCEPT,
    *ONE_LANE,
    INIT,
)


def _lazy_penalty(value: Any) -> str:
    """Parse a penalty whose shrinkages add up over the rows that lack a feature."""
    if value == "sparse-group":
        raise ValueError(
            "its shrinkages do not add up over the rows that lack a feature; bcd, fista and sparsa have it"
        )
    return penalty_with(split=True)(value)


_FOBOS = (
    Parameter(
        "loss",
        "multiclass_squared_hinge",
        one_of(
            "multiclass_squared_hinge",
            "multitask_squared_hinge",
            "softmax",
            "crammer_singer",
            **_FOBOS_LOSSES,
        ),
        "multiclass_squared_hinge (squared_hinge), multitask_squared_hinge, softmax (log), or crammer_singer "
        "(hinge)",
    ),
    Parameter(
        "penalty",
        "l1l2",
        _lazy_penalty,
        "l1l2: rows of weights become zero as a whole; or l1, l2, elasticnet, l1linf",
    ),
    Parameter("l1_ratio", None, number(0.0, 1.0), "of elasticnet; default 0.5"),
    coordinate_descent.ALPHA,
    Parameter(
        "eta0",
        None,
        number(above=0.0),
        "steps are eta0/sqrt(t); default: tried on some rows, judged on others",
    ),
    coordinate_descent.FIT_INTERCEPT,
    *LANES_AND_ROWS,
)

STOCHASTIC_METHODS = (
    Method(
        name="mcid",
        summary="stochastic multi-class logistic regression, SVM and perceptron, step 1/(alpha t)",
        paper=f"{_MCID_PAPER}, Algorithms 1-4",
        aliases=_SGD_LOSSES,
        parameters=_mcid(
            Parameter(
                "loss",
                "softmax",
                loss_with(_SGD_LOSSES, target="class", stochastic=True, separable=False),
                "softmax (log), crammer_singer (hinge) or perceptron: Equations 6, 9, 11",
            )
        ),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgd:mcid_steps",
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
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgd:sgd_steps",
        targets=("class", "continuous"),
    ),
    Method(
        name="asgd",
        summary="averaged stochastic gradients: the mean of all iterates (Polyak-Ruppert)",
        paper="Polyak, Juditsky 1992, Acceleration of Stochastic Approximation by Averaging",
        aliases=_SGD_LOSSES,
        parameters=_sgd("sqrt", "all"),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgd:sgd_steps",
        targets=("class", "continuous"),
    ),
    Method(
        name="svmsgd2",
        summary="stochastic gradients with step 1/(alpha (t + t0)), L2 every skip rows; binary or one-versus-rest",
        paper=f"{_QN_PAPER}, Figure 1",
        aliases=_OVR_LOSSES,
        parameters=_scheduled(),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgdqn:sgdqn_steps",
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
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgdqn:sgdqn_steps",
        targets=("class",),
    ),
    Method(
        name="csgd",
        summary="least squares by stochastic gradients that pass through the mean point; steps of two phases",
        paper=f"{_CSGD_PAPER}, Algorithm 1 and section 4.2",
        aliases={},
        parameters=_constrained("two-phase", "running"),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.constrained_sgd:constrained_steps",
        targets=("class", "continuous"),
    ),
    Method(
        name="ncsgd",
        summary="least squares by stochastic gradients that pass through the mean point; steps eta0/sqrt(t)",
        paper=f"{_CSGD_PAPER}, section 5.1",
        aliases={},
        parameters=_constrained("sqrt", "running"),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.constrained_sgd:constrained_steps",
        targets=("class", "continuous"),
    ),
    Method(
        name="adaline",
        summary="least-squares classification by stochastic gradients with a constant step",
        paper=f"{_CSGD_PAPER}, section 5.2",
        aliases={},
        parameters=_constrained("constant", None),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.sgd:adaline_steps",
        targets=("class",),
    ),
    Method(
        name="c-adaline",
        summary="least-squares classification by stochastic gradients that pass through the mean point",
        paper=f"{_CSGD_PAPER}, Algorithm 2",
        aliases={},
        parameters=_constrained("sqrt", "running"),
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.constrained_sgd:constrained_steps",
        targets=("class",),
    ),
    Method(
        name="rls",
        summary="second-order stochastic gradients: recursive least squares, and other losses; one lane",
        paper=f"{_CSGD_PAPER}, section 5.1 (2SGD); {_QN_PAPER}, Equation 4",
        aliases=_OVR_LOSSES,
        parameters=_RLS,
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.rls:rls_steps",
        targets=("class", "continuous"),
    ),
    Method(
        name="olbfgs",
        summary="online L-BFGS: stochastic gradients in a metric of low rank; one lane",
        paper=f"{_QN_PAPER}, section 5.2; Schraudolph, Yu, Guenter 2007",
        aliases=_OVR_LOSSES,
        parameters=_OLBFGS,
        solver=STOCHASTIC_SOLVER,
        steps="distls.workers.stochastic.olbfgs:olbfgs_steps",
        targets=("class", "continuous"),
    ),
)

# The list of methods has it among those of sparse models.
FOBOS = Method(
    name="fobos",
    summary="sparse direct multi-class models by stochastic forward-backward splitting",
    paper="Duchi, Singer 2009, Efficient Online and Batch Learning Using Forward Backward Splitting",
    aliases=_FOBOS_LOSSES,
    parameters=_FOBOS,
    solver=STOCHASTIC_SOLVER,
    steps="distls.workers.stochastic.fobos:fobos_steps",
    targets=("class",),
)
