"""The proof of a run's model: its objective and duality gap, anew from the duals that the run has kept."""

from __future__ import annotations

from distls.evaluation.evaluator import Evaluator
from distls.evaluation.scores import reference
from distls.execution.executor import Executor
from distls.methods.registry import method_named
from distls.problem import Problem
from distls.solvers.loop import relative_bound
from distls.solvers.solver import Fitted, Record
from distls.storage.dataset.dataset import Dataset
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel, load_model
from distls.training.run_folder import Run, is_run
from distls.workers.duals.stored_duals import DualPoint, published_duals
from distls.workers.prediction.predictor import LinearPredictor

__all__ = ["kept_duals", "prove"]


def prove(run: Place, dataset: Dataset, executor: Executor) -> Record | None:
    """Return ``objective`` and ``certificate`` of a run's model, from its weights and duals in one read of the data.

    None if the data are not those the model was trained on, or the run has no duals; raise StateLostError if they
    cannot be read any more.
    """
    model = load_model(run)
    if dataset.fingerprint != model.dataset_fingerprint:
        return None
    point = kept_duals(run, model)
    if point is None:
        return None
    problem = Problem.of(dataset, model.params, 0, method_named(model.method).targets)
    evaluator = Evaluator(problem, executor, reference(dataset))
    found = evaluator.objective(Fitted(LinearPredictor.of(model), duals=point))
    certificate = {**found["certificate"], "relative": relative_bound(found)}
    return {"objective": found["objective"], "certificate": certificate}


def kept_duals(run: Place, model: LinearModel) -> DualPoint | None:
    """Return the duals of a run's model, or None: of one that was selected, they are in the run of its setting."""
    for path in (run, *_won(run, model)):
        point = published_duals(str(path), model.dataset_fingerprint)
        if point is not None:
            return point
    return None


def _won(run: Place, model: LinearModel) -> list[Place]:
    """Return the child run whose model a run has published, if it has children."""
    if not is_run(run):  # a model without its run
        return []
    children = Run.open(run).status.get("children", [])
    paths = [place_of(run) / "children" / f"{number:03d}" for number in range(len(children))]
    return [
        path for path in paths if is_run(path) and Run.open(path).status.get("weights_sha256") == model.sha256
    ]
