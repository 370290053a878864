"""Thresholds of a label ranking, linear in a row's scores, for models that were trained to rank.

A ranking orders labels but does not separate a row's own ones from the others. As in Elisseeff and Weston (2001), the
best cut of each training row is found from its scores and labels, and a threshold t(z) = a . z + c is fitted to these
by least squares. Labels with z_r > t(z) are predicted. Scores minus their threshold are linear in the row as well, and
their differences are unchanged: the model W - (W a) 1^T, with the same ranking and the same loss, predicts at zero.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition
from distls.workers.losses.targets import indicators, slice_rows
from distls.workers.prediction.predictor import PIECE_BYTES, score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.process import single_threaded_blas

_BEYOND = 0.5  # distance of cuts before the first and after the last label from its score: half of the loss's margin
_RANK = 1e-10  # eigenvalues of the scores' second moments below this share of the largest are noise


@dataclass
class ThresholdSums:
    """Second moments over rows, with the scores z of a row and a one as its features."""

    gram: NDArray[np.float64]  # (k + 1, k + 1)
    cross: NDArray[np.float64]  # (k + 1,): features times the row's best cut
    ledger: Ledger


def threshold_bytes(k: int) -> int:
    """Return the bytes that a worker needs for the sums, those of a batch and those merged, and for a batch's cuts."""
    return 3 * 8 * (k + 1) ** 2 + 8 * PIECE_BYTES


@dataclass(eq=False)
class ThresholdTask(Task):
    """Sums rows' scores and best cuts."""

    data: DatasetRef
    row_weight: NDArray[np.float64] | None = None  # (1,), as `class_weight` in `TrainTask`

    def start(self) -> None:
        """See `Task.start`."""
        size = len(self.shared.intercept) + 1
        # float64: second moments of scores of many labels are ill-conditioned.
        self.total = ThresholdSums(np.zeros((size, size)), np.zeros(size), Ledger())

    def add(self, index: int, part: Partition) -> None:
        """Sum over a partition's rows."""
        weight, size = row_weights(part, self.row_weight), len(self.total.cross)
        for rows, scores in score_pieces(self.shared, part.x):
            features = np.ones((len(scores), size))
            features[:, :-1] = scores
            cuts = best_cuts(features[:, :-1], indicators(slice_rows(part.y, rows), size - 1))
            weighted = features * weight[rows, None] if len(weight) else features
            self.total.gram += weighted.T @ features
            self.total.cross += weighted.T @ cuts


def best_cuts(scores: NDArray[np.float64], wanted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return for each row where to cut so that fewest labels are on the wrong side; the highest of such cuts.

    Scores and `wanted`, whether a row has a label, are (n_rows, k). A cut, float64, is half-way between two scores,
    or half a margin beyond the first or the last.
    """
    n_rows, k = scores.shape
    # Cuts are places in the order of the scores.
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    own = np.take_along_axis(wanted, order, axis=1).astype(np.int64)
    # wrong if the first c are predicted, c = 0, ..., k: those not among them that should be, and the other way round
    wrong = np.zeros((n_rows, k + 1), np.int64)
    wrong[:, 0] = own.sum(axis=1)
    # Each label that is passed is right or wrong on the other side.
    wrong[:, 1:] = wrong[:, :1] + np.cumsum(1 - 2 * own, axis=1)
    wrong[:, 1:k][ranked[:, 1:] == ranked[:, :-1]] = k + 1  # equal scores cannot be separated
    above = np.column_stack([ranked[:, 0] + 2 * _BEYOND, ranked])
    below = np.column_stack([ranked, ranked[:, -1] - 2 * _BEYOND])
    best, rows = wrong.argmin(axis=1), np.arange(n_rows)
    return np.asarray(0.5 * (above[rows, best] + below[rows, best]))


def fitted_threshold(sums: ThresholdSums) -> tuple[NDArray[np.float64], float]:
    """Return (a, c) of the threshold a . z + c that is nearest to the best cuts, the shortest where there are many."""
    with single_threaded_blas():
        # The pseudo-inverse: scores of a model of low rank have fewer dimensions than labels.
        found = np.linalg.pinv(sums.gram, rcond=_RANK, hermitian=True) @ sums.cross
    return found[:-1], float(found[-1])
