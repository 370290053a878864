"""The intercept of block coordinate descent: its optimum for given scores, and columns that it moves with.

A column whose mean is not small beside its values is nearly a multiple of the intercept's column of ones, and blocks
that are changed one after the other would take turns for thousands of sweeps. Such columns are swept less their mean:
a change d of their weights changes the intercept by ``-mean * d``. What is left of them is another problem's column,
with the same optimum, as the intercept is not penalised.
"""

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.coordinate_descent.descent_kernels import N_TOTALS, Step, Totals, intercept_step
from distls.workers.coordinate_descent.row_scores_task import Margins
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.row_functions import has_row_function

Array = NDArray[np.float64]

_T = Totals()

# Most classes whose intercept has steps by the whole Hessian.
NEWTON_CLASSES = 1024
# Steps of the intercept, of which the last is shorter than `_SHORT`, in units of scores: as steps are Newton's, what
# is left after it is about its square.
_NEWTON_STEPS, _SHORT = 50, 1e-4
# Share of a column's mean square that is its mean's, from which on it is centred. A centred column is dense, so that it
# costs at most 10 times as much; on text (20 Newsgroups) a fit then ends 3.6 times nearer to the optimum than with 0.5.
_LEANING = 0.1


class Intercept:
    """The steps of the intercept on the scores of a lane, which they change in place."""

    def __init__(self, margins: Margins, loss: str, step: Step) -> None:
        self._margins, self._loss = margins, loss_named(loss)
        # The intercept is not penalised, and its step is always searched for.
        self._step = step._replace(alpha=0.0, constant=False)
        n_rows, k = margins.z.shape
        full = k <= NEWTON_CLASSES and has_row_function(
            self._loss, "add_score_hessian", sets=isinstance(margins.y, LabelSets)
        )
        self._side = k if full else 0
        # The intercept is a column of ones, so the kernels of columns serve it.
        self._ones = DenseRows(np.ones((1, n_rows), np.float32))

    def step(self, b: Array, totals: Array) -> float:
        """Do one step in place; return its longest part."""
        z, y, weight = self._margins
        hessian = np.empty((self._side, self._side))
        return float(intercept_step(self._ones, b, z, y, weight, self._loss, self._step, hessian, totals))

    def optimise(self, b: Array, totals: Array) -> float:
        """Do steps in place until it is optimal; return its violation before them."""
        violation = 0.0
        for number in range(_NEWTON_STEPS):
            # Totals of its own: only the violation before the first step counts.
            own = np.zeros(N_TOTALS)
            longest = self.step(b, own)
            violation = violation if number else float(own[_T.violation])
            totals += own
            if longest <= _SHORT:
                break
        return violation


def uncentred_columns(x: Rows, weight: Array, n_rows: int) -> dict[int, float]:
    """Return the means of the columns that are to be swept less their mean, by their places in the rows of X^T.

    `weight` are those of the rows, of mean one, or (0,) for all ones.
    """
    places = np.arange(n_rows_of(x))
    if isinstance(x, CsrRows):
        # by the inequality of Cauchy and Schwarz others have too few non-zeros
        places = np.flatnonzero(np.diff(x.indptr) >= _LEANING * n_rows)
    found = {}
    for j in places.tolist():
        values, own = _column(x, j, weight)
        mean = float((own * values).sum()) / n_rows
        # Its share of the mean square says how nearly parallel to the ones the column is.
        if mean != 0.0 and mean * mean >= _LEANING * float((own * values * values).sum()) / n_rows:
            found[j] = mean
    return found


def _column(x: Rows, j: int, weight: Array) -> tuple[Array, Array]:
    """Return the stored values of a column, and the weights of their rows."""
    if isinstance(x, DenseRows):
        return x.values[j].astype(np.float64), weight if len(weight) else np.ones(1)
    stored = slice(x.indptr[j], x.indptr[j + 1])
    return x.data[stored].astype(np.float64), weight[x.indices[stored]] if len(weight) else np.ones(1)


def centred(x: Rows, j: int, mean: float, n_rows: int) -> DenseRows:
    """Return a column less its mean, as the only row of X^T."""
    # Dense, since all zeros become minus the mean.
    out = np.full((1, n_rows), -mean)
    if isinstance(x, DenseRows):
        out[0] += x.values[j]
    else:
        stored = slice(x.indptr[j], x.indptr[j + 1])
        out[0, x.indices[stored]] += x.data[stored]
    return DenseRows(out)
