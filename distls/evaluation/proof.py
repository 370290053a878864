"""The proof of a run's model: its objective and duality gap, anew from the duals that the run has kept."""

from __future__ import annotations

from typing import Any

from distls.evaluation.evaluator import Evaluator
from distls.evaluation.scores import reference
from distls.execution.executor import Executor
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.solvers.loop import relative_bound
from distls.solvers.solver import Fitted
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import StateLostError
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import LinearModel
from distls.workers.duals.stored_duals import published_duals
from distls.workers.prediction.predictor import LinearPredictor

__all__ = ["prove"]


def prove(run: Place, model: LinearModel, dataset: Dataset, executor: Executor) -> dict[str, Any] | None:
    """Return ``objective`` and ``certificate`` of a run's model, from its weights and duals in one read of the data.

    None if the data are not those the model was trained on, or its method keeps no duals; raise StateLostError if they
    cannot be read any more, or are not those of the weights.
    """
    method = METHODS.get(model.method)
    if method is None or not method.proves or dataset.fingerprint != model.dataset_fingerprint:
        return None
    point = published_duals(str(run), model.dataset_fingerprint)
    if point is None:
        raise StateLostError(
            f"{run}: no duals of these weights are kept; those in a run are of its last round, and patience publishes "
            "an earlier one"
        )
    problem = Problem.of(dataset, model.params, 0, method.targets)
    evaluator = Evaluator(problem, executor, reference(dataset))
    found = evaluator.objective(Fitted(LinearPredictor.of(model), duals=point))
    certificate = {**found["certificate"], "relative": relative_bound(found)}
    return {"objective": found["objective"], "certificate": certificate}
