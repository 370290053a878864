"""What a fit starts from: a model, or an averaged pass of stochastic gradients (Agarwal et al. 2014)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.facts import counted
from distls.memory_plan import Plan
from distls.methods.method import Params
from distls.methods.method_registry import method_named
from distls.problem import Problem
from distls.solvers.solver import RoundReport, Solver, State, solver_factory
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.prediction.predictor import LinearPredictor

_WIDE = 1000  # features from which a pass of stochastic gradients saves more reads than it costs


def in_form(model: LinearModel, n_outputs: int) -> LinearModel:
    """Return a model of two columns, as earlier versions made of two classes, in the form of one column.

    Others are returned as they are.
    """
    if model.recipe or model.weights.shape[1] != 2 or n_outputs != 1:
        return model
    loss = loss_named(model.loss)
    # Each of two columns with a loss of its own has the whole score; else both together have it.
    share = model.weights.dtype.type(0.5 if loss.separable and not loss.quadratic else 1.0)
    # The decision between both classes, in the type of the model.
    weights, intercept = (share * (a[..., 1:] - a[..., :1]) for a in (model.weights, model.intercept))
    form = model.loss if loss.binary is None else loss.binary.name
    return replace(model, weights=weights, intercept=intercept, loss=form)


def with_further_classes(model: LinearModel, problem: Problem) -> LinearModel:
    """Return a model of some of the classes of the rows as one of all: weights of the others are zero.

    Others, also those with classes that the rows do not have, are returned as they are.
    """
    classes, n_outputs = list(problem.dataset.meta.classes), problem.shape[1]
    known = list(model.classes)
    if model.recipe or known == classes or not set(known) < set(classes) or n_outputs != len(classes):
        return model
    # by name: new classes need not come behind the others
    columns = [classes.index(label) for label in known]
    weights = np.zeros((len(model.weights), n_outputs), model.weights.dtype)
    intercept = np.zeros(n_outputs, model.intercept.dtype)
    for wide, narrow in ((weights, model.weights), (intercept, model.intercept)):
        # one column of two classes: half of the score for the one, half against the other
        wide[..., columns] = np.stack([-narrow[..., 0], narrow[..., 0]], -1) / 2 if narrow.shape[-1] == 1 else narrow
    return replace(model, weights=weights, intercept=intercept, classes=classes)


def check_initial(initial: LinearModel | None, problem: Problem, given: str | None, *, generated: bool = False) -> None:
    """Raise MismatchError unless a fit can start from the model, ParameterError where features are generated."""
    if initial is None:
        return
    if generated:
        raise ParameterError(f"init={given}: not with generated features; leave one of them out")
    meta = problem.dataset.meta
    # Models of generated features or calibrations are not W x + b, which is all that a start can take.
    if initial.recipe:
        raise MismatchError(f"init={given}: a model of {initial.method}, which is not plainly linear in the rows")
    shape = initial.n_features, len(initial.intercept)
    # The order of classes matters: column c must mean the same label.
    if shape != problem.shape or list(initial.classes) != list(meta.classes):
        raise MismatchError(
            f"init={given}: a model of {shape[0]} features and {counted(shape[1], 'output')}; "
            f"{problem.dataset.path} has {problem.shape[0]} and {problem.shape[1]}, or other labels; `distls append` "
            f'the rows to the model\'s data, or ingest them with --like "{given}"'
        )
    # as many categories may be others
    problem.dataset.check_names(unpack_names(initial.features, str(given)), f"init={given}")


def initial_weights(initial: LinearModel, problem: Problem) -> NDArray[Any]:
    """Return the weights to start from, shape (n_features, k); of a ranking without the model's threshold.

    Adding a constant to a row of weights does not change a ranking's loss: the one taken minimises the row's penalty.
    """
    weights = initial.weights
    if not problem.ranks:
        return weights
    best = penalty_named(problem.penalty).best_constants(weights.astype(np.float64), problem.l1_ratio)
    middle = weights.mean(axis=1) if best is None else best.astype(weights.dtype)
    return np.asarray(weights - middle[:, None])


def check_start(params: Params) -> None:
    """Raise ParameterError where a fit is asked to begin both at a model and with a pass of `sgd`."""
    if params["init"] is not None and params["start"] == "sgd":
        raise ParameterError(f"start=sgd: a fit with init={params['init']} begins at that model; leave one of them out")


def is_wide(problem: Problem) -> bool:
    """Return whether a pass of stochastic gradients saves reads: from dense weights l1 takes steps to find zeros."""
    return problem.shape[0] > _WIDE and not problem.l1_ratio


def sgd_for(problem: Problem, params: Params, memory: MemoryBudget) -> Solver[State]:
    """Return the `sgd` with whose pass a fit begins; made with its solver, whose plan may fail too."""
    method = method_named("sgd")
    problem = problem.with_squares(problem.alpha * (1.0 - problem.l1_ratio))
    # Its step sizes and lanes are the method's own defaults: the start need not be good, only cheap.
    strength = {} if math.isnan(problem.alpha) else {"alpha": problem.alpha}  # of a path none is known yet
    own = method.resolve(
        {
            "fit_intercept": problem.fit_intercept,
            "dtype": problem.dtype.name,
            "class_weight": params["class_weight"],
            **strength,
        }
    )
    # Not as a parameter: the binary form of a loss is one of a problem alone.
    own["loss"] = problem.loss
    try:
        return solver_factory(method)(problem, own, memory=memory)
    except MemoryPlanError as error:
        raise MemoryPlanError(f"{error}; start=zero begins without its pass of sgd") from None


def covering(plan: Plan, start: Solver[State] | None) -> Plan:
    """Return the plan of a fit with what its start needs, which comes before it, where that is more."""
    if start is None:
        return plan
    most = max(plan, start.plan, key=lambda each: each.worker_bytes)
    return replace(
        plan,
        worker_bytes=most.worker_bytes,
        worker_parts=most.worker_parts,
        driver_bytes=max(plan.driver_bytes, start.plan.driver_bytes),
    )


def sgd_pass(sgd: Solver[State], executor: Executor) -> tuple[LinearPredictor, float, RoundReport]:
    """Do a pass of `sgd`; return its model, its passes and the last round's report, with the costs of all."""
    state, report = sgd.step(sgd.init(), executor)
    while state.passes < 1.0:
        state, later = sgd.step(state, executor)
        report = later.with_costs(report.ledger)
    # Nothing is proven of it, and nothing has to be read for that.
    report.gap_estimate = report.objective_estimate = report.running_loss
    return sgd.weights(state).predictor, state.passes, report
