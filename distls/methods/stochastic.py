"""The stochastic methods, each with its parameters."""

from functools import partial

from distls.methods import default_losses
from distls.methods.coordinate_descent import SPARSE_PENALTY
from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    BY_ROWS,
    INIT,
    NO_PAPER_INTERCEPT,
    ONE_BLOCK,
    fit_intercept,
    integer,
    number,
    one_of,
    strengths,
)
from distls.methods.requirements import loss_with, penalty_with
from distls.methods.stochastic_parameters import (
    BALL,
    DIVIDING_ALPHA,
    DRAWS,
    LANES_AND_ROWS,
    ONE_LANE,
    TOLERANCE,
    averaging,
    steps_by_schedule,
)

# The one solver of all stochastic methods, which differ in their steps.
STOCHASTIC_SOLVER = "distls.solvers.stochastic.stochastic:Stochastic"
_stochastic = partial(Method, solver=STOCHASTIC_SOLVER, path=True, side_by_side=True)

_MCID_PAPER = "Chen, Chen, Yang 2011, Characterizing Inverse Time Dependency in Multi-class Learning"
_QN_PAPER = "Bordes, Bottou, Gallinari 2009, SGD-QN: Careful Quasi-Newton Stochastic Gradient Descent"
_CSGD_PAPER = "Mu, Ding, Zhou, Tao 2013, Constrained Stochastic Gradient Descent for Large-scale Least Squares"

_SQUARED = {"loss": default_losses.OF_NUMBERS}
_LABELS = {"loss": default_losses.OF_LABELS}


# What the papers' boxes have in common: one chain of steps, over rows drawn one by one from all, or over the rows as
# they are stored, which was in random order; and the constant feature of the constrained SGD paper.
_DRAWN = {"lanes": 1, "shuffle": DRAWS}
_MCID_BOX = {**_DRAWN, "average": "none", "t0": 0.0, "fit_intercept": False}
_QN_ORDER = {"lanes": 1, "shuffle": False, "fit_intercept": False}
_QN_BOX = {**_QN_ORDER, "trial": "same-rows"}
_CSGD_BOX = {**_DRAWN, "fit_intercept": True}


def _only(loss: str) -> Parameter:
    return Parameter("loss", loss, loss_with(loss), f"{loss}, the only choice")


# Tables, a parameter's row its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
def _mcid(loss: Parameter) -> tuple[Parameter, ...]:
    return (
        loss,
        *DIVIDING_ALPHA,  # the step is 1/(alpha t)
        Parameter("batch_size", 1, integer(1), "rows per step, the paper's r"),
        Parameter("steps", None, integer(1),
                  "steps of each lane, the paper's T; rows after them are not learned from; default: passes are the "
                  "limit", optional=True),
        averaging("tail"),
        BALL, NO_PAPER_INTERCEPT,
        Parameter("t0", None, number(0.0), "offset added to t in the step size; default: see docs/notation.md"),
        *LANES_AND_ROWS,
    )


def _one_versus_rest(name: str, summary: str, loss: str) -> Method:
    """Return a comparator of MCID: one binary model per class, all trained in one pass."""
    return _stochastic(
        name=name,
        summary=summary,
        paper=f"{_MCID_PAPER}, section V.C",
        parameters=_mcid(_only(loss)), steps="distls.workers.stochastic.sgd:mcid_steps",
        targets=("class", "multilabel"), alpha_by_rows=("class",), published=_MCID_BOX,
    )


def _sgd(schedule: str, average: str) -> tuple[Parameter, ...]:
    """Return the parameters of plain stochastic gradient descent."""
    adaptive = schedule == "adaptive"
    return (
        Parameter("loss", None if adaptive else default_losses.OF_CLASSES, loss_with(target="class", stochastic=True),
                  "softmax (log), crammer_singer (hinge), perceptron, one-versus-rest losses, or squared"
                  + ("; default: hinge with more features than rows, else log" if adaptive else "")),
        *steps_by_schedule(schedule, adaptive=adaptive),
        *strengths(0.0, number(0.0), "L2 strength, 0 or more"),
        Parameter("batch_size", 1, integer(1), "rows per step"),
        averaging(average),
        Parameter("center", "none", one_of("none", "running", "global"),
                  "with loss=squared: subtract the mean of the rows seen so far, or of all rows (one more read)"),
        fit_intercept(),
        *LANES_AND_ROWS, *ONE_BLOCK,
    )


def _scheduled(*metric: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of SVMSGD2 and SGD-QN."""
    return (
        Parameter("loss", default_losses.OF_SUPPORT_VECTORS, loss_with(curvature=True, separable=True, quadratic=False),
                  "one-versus-rest: ovr_squared_hinge (squared_hinge), ovr_hinge (hinge) or ovr_log (log); two "
                  "classes make one binary problem"),
        *DIVIDING_ALPHA,
        *metric,
        Parameter("skip", None, integer(1),
                  "rows between dense updates (L2, metric); default 16 over the density of the data"),
        Parameter("t0", None, number(above=0.0),
                  "offset added to t in the step size; default: chosen by trial on a sample of rows"),
        Parameter("trial", None, one_of("same-rows"),
                  "same-rows: values of t0 are judged on the tenth of the rows they are tried on (the paper); "
                  "default: on as many others", optional=True),
        NO_PAPER_INTERCEPT, *LANES_AND_ROWS, *ONE_BLOCK,
    )


def _constrained(schedule: str, center: str | None) -> tuple[Parameter, ...]:
    """Return the parameters of the constrained SGD paper's methods."""
    mean = (
        Parameter("center", center, one_of("running", "global"),
                  "mean that the model passes through: of the rows seen so far (the paper), or of all rows (one more "
                  "read)"),
    )
    return (
        _only(default_losses.OF_NUMBERS),
        *steps_by_schedule(schedule),
        *strengths(0.0, number(0.0), "L2 strength, 0 or more; not in the paper"),
        *(mean if center else ()),
        *((TOLERANCE,) if center else ()),
        fit_intercept("fit an unpenalised intercept: the paper's constant feature"),
        *LANES_AND_ROWS, *ONE_BLOCK,
    )


# Second-order methods divide by the curvature: hinges, whose second derivative is zero, are out.
_SMOOTH = {"smooth": True, "curvature": True}

_RLS = (
    Parameter("loss", default_losses.OF_NUMBERS, loss_with(**_SMOOTH, separable=True),
              "squared, or one-versus-rest: ovr_squared_hinge (squared_hinge), ovr_log (log)"),
    # above 0: P starts at its inverse
    *strengths(1e-6, number(above=0.0), "L2 strength; P starts at 1/(alpha n_rows)"),
    fit_intercept(),
    *ONE_LANE,
)

_OLBFGS = (
    Parameter("loss", default_losses.OF_SUPPORT_VECTORS, loss_with(**_SMOOTH, separable_first=True),
              "a smooth loss: ovr_squared_hinge (squared_hinge), ovr_log (log), softmax or squared"),
    *strengths(1e-5, number(0.0), f"L2 strength, 0 or more{BY_ROWS}"),
    Parameter("eta0", None, number(above=0.0),
              "step sizes are eta0 tau/(tau + t); default: 0.4 or up to five quarterings of it, chosen by trial as "
              "in fobos"),
    Parameter("tau", None, number(above=0.0), "rows that halve the step; default: all, from 1,000 to 10,000"),
    Parameter("damping", None, number(0.0), "added to the curvature; default: 0.1 mean |x|^2"),
    Parameter("rank", 10, integer(1, 1000), "steps kept for the L-BFGS metric"),
    NO_PAPER_INTERCEPT, *ONE_LANE, INIT,
)

_FOBOS = (
    Parameter("loss", default_losses.OF_SPARSE_MODELS, loss_with(target="class", slopes=True),
              "multiclass_squared_hinge (squared_hinge), multitask_squared_hinge, softmax (log), crammer_singer "
              "(hinge), perceptron, one-versus-rest losses, or squared"),
    Parameter("penalty", SPARSE_PENALTY, penalty_with(split=True),
              "l1l2 (whole rows of weights become zero), l1, l2, elasticnet or l1linf"),
    Parameter("l1_ratio", None, number(0.0, 1.0), "share of l1 in elasticnet; default 0.5"),
    *strengths(1e-4, number(0.0), "strength of the penalty, 0 or more"),
    Parameter("eta0", None, number(above=0.0), "steps are eta0/sqrt(t); default: by trial on some rows"),
    Parameter("trial", None, one_of("decades"),
              "decades: eta0 from 1e-3, 1e-2, ..., 1e3, as in the paper of bcd; default: seven powers of 4 about the "
              "inverse of a mean row's curvature", optional=True),
    NO_PAPER_INTERCEPT, *LANES_AND_ROWS,
)

STOCHASTIC_METHODS = (
    _stochastic(
        name="mcid",
        summary="stochastic multi-class logistic regression, SVM and perceptron, step 1/(alpha t)",
        paper=f"{_MCID_PAPER}, Algorithms 1-4",
        parameters=_mcid(
            Parameter("loss", default_losses.OF_CLASSES, loss_with(target="class", stochastic=True, separable=False),
                      "softmax (log), crammer_singer (hinge) or perceptron: Algorithms 2, 3, 4 (Equations 6, 9, 11)")
        ),
        steps="distls.workers.stochastic.sgd:mcid_steps", targets=("class",), alpha_by_rows=("class",),
        published=_MCID_BOX,
    ),
    _one_versus_rest(
        "ovr-pegasos",
        "one-versus-rest SVM by stochastic subgradients, step 1/(alpha t)",
        default_losses.OF_PEGASOS,
    ),
    _one_versus_rest(
        "ovr-logistic", "one-versus-rest logistic regression, step 1/(alpha t)", default_losses.OF_LABELS
    ),
    _stochastic(
        name="sgd",
        summary="stochastic gradient descent for any loss, with per-feature adaptive steps (AdaGrad) or a schedule",
        paper="Duchi, Hazan, Singer 2011, Adaptive Subgradient Methods (adaptive); Robbins, Monro 1951",
        parameters=_sgd("adaptive", "none"), steps="distls.workers.stochastic.sgd:sgd_steps",
        targets=("class", "multilabel", "continuous"),
        losses={"class": default_losses.OF_CLASSES, "wide": default_losses.OF_WIDE_CLASSES}, multilabel=_LABELS,
        # steps that are tried: those of AdaGrad are chosen for classes
        continuous={**_SQUARED, "schedule": "sqrt"},
    ),
    _stochastic(
        name="asgd",
        summary="averaged stochastic gradient descent: the mean of all iterates (Polyak-Ruppert)",
        paper="Polyak, Juditsky 1992, Acceleration of Stochastic Approximation by Averaging",
        parameters=_sgd("sqrt", "all"), steps="distls.workers.stochastic.sgd:sgd_steps",
        targets=("class", "multilabel", "continuous"), multilabel=_LABELS, continuous=_SQUARED,
    ),
    _stochastic(
        name="svmsgd2",
        summary="stochastic gradient descent, step 1/(alpha (t + t0)), L2 every skip rows; binary or one-versus-rest",
        paper=f"{_QN_PAPER}, Figure 1",
        parameters=_scheduled(), steps="distls.workers.stochastic.second_order.sgdqn:sgdqn_steps",
        targets=("class", "multilabel"), alpha_by_rows=("class",), published=_QN_BOX,
        version=3,  # sums as they are written
    ),
    _stochastic(
        name="sgdqn",
        summary="stochastic quasi-Newton steps in a diagonal metric; binary or one-versus-rest",
        paper=f"{_QN_PAPER}, Figure 2",
        parameters=_scheduled(
            Parameter("diagonal", None, one_of("capped", "gauss-newton", "secant", "paper", "none"),
                      "estimate of the metric: sums of second derivatives up to a cap, from where steps are those of "
                      "svmsgd2, or without end; secants at new rows (the authors' erratum of 2010); the paper's as "
                      "printed; or none, svmsgd2; default capped, with few rows or none by trial, gauss-newton with "
                      "a given t0; with loss=hinge, which has no second derivatives, secant")
        ),
        steps="distls.workers.stochastic.second_order.sgdqn:sgdqn_steps", targets=("class", "multilabel"),
        alpha_by_rows=("class",), published={**_QN_BOX, "diagonal": "paper"},
        version=4,  # sums as they are written
    ),
    _stochastic(
        name="csgd",
        summary="least squares by SGD constrained to pass through the mean point; two-phase steps",
        paper=f"{_CSGD_PAPER}, Algorithm 1 and section 4.2",
        parameters=_constrained("two-phase", "running"),
        steps="distls.workers.stochastic.constrained_sgd:constrained_steps", targets=("class", "continuous"),
        published={**_CSGD_BOX, "schedule": "two-phase", "center": "running"},
    ),
    _stochastic(
        name="ncsgd",
        summary="least squares by SGD constrained to pass through the mean point; steps eta0/sqrt(t)",
        paper=f"{_CSGD_PAPER}, section 5.1",
        parameters=_constrained("sqrt", "running"),
        steps="distls.workers.stochastic.constrained_sgd:constrained_steps", targets=("class", "continuous"),
        published={**_CSGD_BOX, "schedule": "sqrt", "center": "running"},
    ),
    _stochastic(
        name="adaline",
        summary="least-squares classification by SGD with a constant step",
        paper=f"{_CSGD_PAPER}, section 5.2",
        parameters=_constrained("constant", None), steps="distls.workers.stochastic.sgd:adaline_steps",
        targets=("class",), published={**_CSGD_BOX, "schedule": "constant"},
    ),
    _stochastic(
        name="c-adaline",
        summary="least-squares classification by SGD constrained to pass through the mean point",
        paper=f"{_CSGD_PAPER}, Algorithm 2",
        parameters=_constrained("sqrt", "running"),
        steps="distls.workers.stochastic.constrained_sgd:constrained_steps", targets=("class",),
        published={**_CSGD_BOX, "schedule": "sqrt", "center": "running"},
    ),
    _stochastic(
        name="rls",
        summary="recursive least squares, and second-order stochastic gradients for other losses; one lane",
        paper=f"{_CSGD_PAPER}, section 5.1 (2SGD); {_QN_PAPER}, Equation 4",
        parameters=_RLS, steps="distls.workers.stochastic.second_order.rls:rls_steps",
        targets=("class", "continuous"), published=_CSGD_BOX,
    ),
    _stochastic(
        name="olbfgs",
        summary="online L-BFGS: stochastic gradients in a low-rank metric; one lane",
        paper=f"{_QN_PAPER}, section 5.2; Schraudolph, Yu, Guenter 2007",
        parameters=_OLBFGS, steps="distls.workers.stochastic.second_order.olbfgs:olbfgs_steps",
        targets=("class", "continuous"),
        published={**_QN_ORDER, "rank": 10, "eta0": 0.1, "tau": 1e4, "damping": 0.1}, continuous=_SQUARED,
        alpha_by_rows=("class",),
        version=3,  # sums as they are written
    ),
)

# Not in STOCHASTIC_METHODS: the registry lists it with the other sparse methods.
FOBOS = _stochastic(
    name="fobos",
    summary="sparse direct multi-class models by stochastic forward-backward splitting",
    paper="Duchi, Singer 2009, Efficient Online and Batch Learning Using Forward Backward Splitting",
    parameters=_FOBOS, steps="distls.workers.stochastic.fobos:fobos_steps", targets=("class",),
    published={**_DRAWN, "penalty": SPARSE_PENALTY, "trial": "decades", "fit_intercept": False},
    version=5,  # bounds from working sets, whose sweeps are chosen sooner
)
