"""The task of `predict`: the best classes of one partition's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import n_rows_of
from distls.workers.kernels.linear import scores
from distls.workers.losses import probabilities
from distls.workers.readout import Readout, linear_view
from distls.workers.stream import DatasetRef, ReadStats, stream

__all__ = ["PredictJob", "Predicted", "predict_block", "top_classes"]

# Scores of this many bytes at a time, whatever the number of classes.
_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class PredictJob:
    """What to predict.

    Attributes
    ----------
    data : DatasetRef
    loss : str
    top : int
        Classes a row.
    proba : bool
        Probabilities instead of scores.
    """

    data: DatasetRef
    loss: str
    top: int
    proba: bool


class Predicted(NamedTuple):
    """The best classes of a block of rows, best first.

    Attributes
    ----------
    codes : int32 array of shape (n_rows, top)
    scores : array of shape (n_rows, top)
    """

    codes: NDArray[np.int32]
    scores: NDArray[Any]


def predict_block(job: PredictJob, readout: Readout, index: int) -> Predicted:
    """Predict partition `index`."""
    ((_, part),) = stream(job.data, [index], ReadStats())
    x, weights, intercept = linear_view(readout, part.x)
    n_rows, k = n_rows_of(x), len(intercept)
    codes = np.empty((n_rows, job.top), np.int32)
    best = np.empty((n_rows, job.top), weights.dtype)
    step = max(1, _CHUNK_BYTES // (k * weights.itemsize))
    for first in range(0, n_rows, step):
        rows = slice(first, min(first + step, n_rows))
        chunk = scores(x, weights, intercept, np.empty((rows.stop - first, k), weights.dtype), first)
        if job.proba:
            probabilities(job.loss, chunk)
        codes[rows], best[rows] = top_classes(chunk, job.top)
    return Predicted(codes, best)


def top_classes(values: NDArray[Any], top: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the codes and values of the `top` largest of each row, ties to the lower code.

    Parameters
    ----------
    values : array of shape (n_rows, n_classes)
    """
    codes = values.argmax(axis=1)[:, None]
    if top > 1:
        codes = np.argsort(-values, axis=1, kind="stable")[:, :top]
    return codes.astype(np.int32), np.take_along_axis(values, codes, axis=1)
