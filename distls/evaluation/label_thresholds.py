"""Thresholds of the labels of a multi-label model, fitted to held-out rows: those of the highest F1."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.scores import predictor_of, reduce_rows, reference
from distls.execution.executor import Executor
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import MismatchError
from distls.storage.model.model import LinearModel
from distls.workers.evaluation.label_cut_task import CutJob, CutSum, best_cut, cut_lane, merge_cuts
from distls.workers.evaluation.ranked_scores import scores_of
from distls.workers.losses.loss_registry import loss_named

__all__ = ["fitted_cuts"]


def fitted_cuts(
    executor: Executor, data: Dataset, model: LinearModel, codes: NDArray[np.int32], kind: str
) -> dict[str, NDArray[np.float64]]:
    """Return the arrays of a calibration; labels that no row has keep the threshold of the loss."""
    job = CutJob(reference(data), codes, model.n_outputs, kind == "macro-f1")
    total: CutSum = reduce_rows(executor, data, predictor_of(model), partial(cut_lane, job), merge_cuts)
    if not all(np.isfinite(scores_of(rows)).all() for rows in total.curves):
        raise MismatchError(f"{data.path}: the scores of its rows are not finite; nothing to calibrate")
    found = [best_cut(rows, model.weights.dtype) for rows in total.curves]
    kept = float(loss_named(model.loss).threshold)
    return {"threshold": np.array([kept if cut is None else cut for cut in found], np.float64)}
