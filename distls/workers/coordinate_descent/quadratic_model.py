"""The minimum of a quadratic model plus the penalty: passes of descent on the Gram, and steps between them.

Passes soon know which weights are zero, and then need hundreds more where columns are correlated. There the penalty is
smooth in the weights that are not zero: Newton's step in these alone leads to where the passes go, solved as it is for
few weights and by conjugate gradients for more.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from distls.storage.rows import DenseRows, n_rows_of, take_rows
from distls.workers.coordinate_descent.cycle_kernels import curved
from distls.workers.coordinate_descent.descent_kernels import Step
from distls.workers.coordinate_descent.working_columns import WorkingColumns, products_of, squares_of
from distls.workers.coordinate_descent.working_set_kernels import add_products, gram_descent
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.row_functions import has_row_function
from distls.workers.penalties.penalty import Curvature, Penalty
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Passes between two steps, and turns of both.
_PASSES, _TURNS = 10, 100
# Products with the Gram in one step, each of the price of a pass, and the residual at which it ends.
_PRODUCTS, _RESIDUAL = 20, 0.1
# Weights of which that step is solved as it is, and what is added to its diagonal, as the Gram is float32.
_FEW_WEIGHTS, _DAMPING = 256, 1e-6
# Of that step, until the model is lower there: the whole leads too far where many weights would change their signs.
_SIZES = (1.0, 0.25, 0.0625)
# Products with the curvature over the rows in one step between cycles, or sweeps.
_ROW_PRODUCTS = 20
# Curvature below this part of a block's own is rounding of float32.
SINGLE = 1e-6
# Operations of the Gram of one step, in units of a sweep over the columns, above which sweeps are sooner; of a
# quadratic loss, one Gram of which serves for all steps; and those of one pass over it, of several outputs.
_SWEEPS, _SWEEPS_QUADRATIC, _GRAM_PASSES = 100.0, 300.0, 1.0


def parts_of(loss: Loss, k: int, *, sets: bool) -> int:
    """Return how many second derivatives of a row differ, see the kernels; 0 where the loss does not have them."""
    if not has_row_function(loss, "add_score_hessian", sets=sets):
        return 0
    if k == 2 and loss.ignores_constants:
        return 1
    return k if loss.separable else k * (k + 1) // 2


class Model(NamedTuple):
    """A quadratic model of the loss, as `gram_descent` takes it; with an intercept, what its own step is made of."""

    gram: NDArray[np.float32]
    blocks: Array
    longest: Array
    pull: Array
    inverse: Array | None
    coupling: Array | None
    penalty: int | Penalty  # a `kernel_argument`
    step: Step

    def changes(self, d: Array) -> tuple[Array, Array]:
        """Return what a change of the weights (n, k) does to the intercept, and to the gradients (k, m)."""
        k = d.shape[1]
        shift, slopes = np.zeros(k), np.zeros((k, len(self.gram)))
        self.descend(d, shift, slopes, 0.0, 0)
        return shift, slopes

    def hessian(self) -> Array:
        """Return the Hessian in all weights (n k, n k), at the intercept that is optimal for them."""
        n, k = len(self.blocks), self.blocks.shape[1]
        parts = [expanded(np.ascontiguousarray(self.gram[j, :, :n].T, np.float64), k) for j in range(n)]
        whole = np.stack(parts)
        if self.coupling is not None and len(self.pull):
            whole -= np.einsum("iab,jbc->jiac", self.coupling[:n], self.pull)
        flat = whole.transpose(0, 2, 1, 3).reshape(n * k, n * k)
        return np.asarray(0.5 * (flat + flat.T))

    def descend(self, w: Array, shift: Array, slopes: Array, tolerance: float, passes: int) -> bool:
        """Do at most so many passes over the blocks, see `gram_descent`."""
        alpha, rho = self.step.alpha, self.step.rho
        given = self.gram, self.blocks, self.longest, self.pull, self.penalty, alpha, rho
        return bool(gram_descent(*given, w, shift, slopes, tolerance, passes))


def minimise(model: Model, penalty: Penalty, w: Array, shift: Array, slopes: Array, tolerance: float) -> bool:
    """Change weights (n, k), the intercept's change and the gradients (k, m) until no block would move by more.

    By more than `tolerance`, times the curvature of the block; return False where the turns are over before that.
    """
    hessian = None
    for _ in range(_TURNS):
        if model.descend(w, shift, slopes, tolerance, _PASSES):
            return True
        hessian = model.hessian() if hessian is None and 0 < w.size <= _FEW_WEIGHTS else hessian
        _step(model, penalty, w, shift, slopes, hessian)
    return False


def _step(model: Model, penalty: Penalty, w: Array, shift: Array, slopes: Array, hessian: Array | None) -> None:
    """Move to the minimum over the weights that are not zero, if the model is lower there."""
    step = model.step
    tangent = penalty.tangent(w, step.rho)
    if tangent is None:
        return
    gradient, curvature = tangent
    n, free = len(w), w != 0.0
    residual = -(slopes[:, :n].T + step.alpha * gradient) * free
    bent = curvature.scaled(step.alpha)
    solved = None if hessian is None else _newton(hessian, bent, free, residual)
    whole = _solved(model, bent, free, residual) if solved is None else solved
    for size in _SIZES:
        change = size * whole
        # A weight stops at zero, where the penalty is not smooth.
        change = np.where(w * (w + change) < 0.0, -w, change) if penalty.signed else change
        further, slope = model.changes(change)
        rise = float(np.vdot(slopes[:, :n].T + 0.5 * slope[:, :n].T, change))
        rise += step.alpha * (penalty.value(w + change, step.rho) - penalty.value(w, step.rho))
        if rise < 0.0:
            w += change
            shift += further
            slopes += slope
            return


def _newton(hessian: Array, curvature: Curvature, free: NDArray[np.bool_], residual: Array) -> Array | None:
    """Return ``(H + curvature)^-1 residual`` in the free weights; None where that is not positive."""
    n, k = residual.shape
    used, change = np.flatnonzero(free), np.zeros(n * k)
    matrix = hessian.copy()
    for j, block in enumerate(curvature.blocks()):
        matrix[j * k : (j + 1) * k, j * k : (j + 1) * k] += block
    matrix = matrix[np.ix_(used, used)]
    diagonal = np.einsum("ii->i", matrix)
    diagonal += _DAMPING * diagonal.max(initial=0.0)
    try:
        with single_threaded_blas():
            change[used] = cho_solve(cho_factor(matrix), residual.reshape(-1)[used])
    except (LinAlgError, ValueError):
        return None
    return change.reshape(n, k)


def _solved(model: Model, curvature: Curvature, free: NDArray[np.bool_], residual: Array) -> Array:
    """Return about ``(H + curvature)^-1 residual`` in the free weights, by conjugate gradients."""

    def product(direction: Array) -> Array:
        found = model.changes(direction)[1][:, : len(residual)].T
        return np.asarray((found + curvature.times(direction)) * free)

    scale = 1.0 / np.where(model.longest > 0.0, model.longest, 1.0)[:, None]
    return conjugate_gradients(product, residual, scale, _PRODUCTS)


def expanded(parts: Array, k: int) -> Array:
    """Return blocks (m, k, k) of parts (m, parts)."""
    out = np.zeros((len(parts), k, k))
    if parts.shape[1] < k:
        out[:] = parts[:, :, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    elif parts.shape[1] == k:
        out[:, np.arange(k), np.arange(k)] = parts
    else:
        rows, columns = np.tril_indices(k)
        out[:, rows, columns] = out[:, columns, rows] = parts
    return out


class SupportStep:
    """The step of Newton's method in the free weights of columns, by conjugate gradients over the rows.

    Parameters
    ----------
    columns : WorkingColumns
        Their slopes are those of the weights.
    h : float32 (n_rows, parts)
        Second derivatives of the rows.
    curvatures : float64 (m,), optional
        About those of columns of one output; computed where they are not given.
    """

    def __init__(self, columns: WorkingColumns, h: NDArray[np.float32], curvatures: Array | None = None) -> None:
        self._h, self._columns, self.products = h, columns, 0
        used, k = np.flatnonzero(columns.w.any(axis=1)), columns.w.shape[1]
        own = (
            squares_of(take_rows(columns.x, used), np.ascontiguousarray(own_parts(h, k)), k)
            if curvatures is None
            else curvatures[used, None]
        )
        free = (columns.w[used] != 0.0) & (own > 0.0) & (own < np.inf)
        some = free.any(axis=1)
        self._rows = used[some]
        # Dense columns are not copied: new memory for them would take as long as some products.
        dense = isinstance(columns.x, DenseRows)
        self._x = columns.x if dense else take_rows(columns.x, self._rows)
        self._places = self._rows if dense else np.arange(len(self._rows))
        self._free, self._curvatures = free[some], np.where(free, own, 1.0)[some]
        # What the intercept follows by, to its optimum for the model; it is singular where a loss ignores constants.
        total = expanded(h.sum(axis=0, dtype=np.float64, keepdims=True), columns.w.shape[1])[0]
        follows = columns.task.fit_intercept
        self._inverse = np.linalg.pinv(total, rcond=SINGLE, hermitian=True) if follows else np.zeros_like(total)

    def found(self) -> tuple[Array, Array, Array, float] | None:
        """Return the new weights (m, k), the intercept's change, those of the scores, and the mean loss's slope."""
        columns, step = self._columns, self._columns.step
        penalty = penalty_named(columns.task.penalty)
        old = columns.w[self._rows]
        tangent = penalty.tangent(old, step.rho)
        if tangent is None or not len(old):
            return None
        gradient, curvature = step.alpha * tangent[0], tangent[1].scaled(step.alpha)
        first = -self._inverse @ columns.slopes.sum(axis=0)
        slopes = columns.slopes + curved(self._h, np.tile(first, (len(self._h), 1)))
        residual = -(products_of(self._x, slopes, self._places, alone=True) + gradient) * self._free
        change = self._solved(residual, curvature)
        # A weight stops at zero, where the penalty is not smooth.
        change = np.where(old * (old + change) < 0.0, -old, change) if penalty.signed else change
        moved, shift = self._moved(change)
        moved += first
        w = columns.w.copy()
        w[self._rows] = old + change
        return w, first + shift, moved, float(np.vdot(columns.slopes, moved))

    def _moved(self, change: Array) -> tuple[Array, Array]:
        """Return how scores change with weights, and with the intercept that is best for the model then."""
        moved, whole = np.zeros_like(self._columns.slopes), np.zeros((n_rows_of(self._x), change.shape[1]))
        whole[self._places] = change
        add_products(self._x, whole, moved)
        self.products += 1
        shift = -self._inverse @ curved(self._h, moved).sum(axis=0)
        moved += shift
        return moved, shift

    def _solved(self, residual: Array, curvature: Curvature) -> Array:
        """Return about ``(X^T H X + curvature)^-1 residual``."""

        def product(direction: Array) -> Array:
            slopes = curved(self._h, self._moved(direction)[0])
            found = products_of(self._x, slopes, self._places, alone=True)
            return np.asarray((found + curvature.times(direction)) * self._free)

        own = self._curvatures + curvature.own
        return conjugate_gradients(product, residual, 1.0 / own, _ROW_PRODUCTS)


def gram_serves(columns: WorkingColumns, parts: int, most_bytes: int) -> bool:
    """Return whether the Gram fits into memory, and a step on it is sooner than the sweeps in its place."""
    m, k = columns.w.shape
    if not parts or 4 * parts * (m + 1) ** 2 > most_bytes:
        return False
    sweeps = _SWEEPS_QUADRATIC if loss_named(columns.task.scores.loss).quadratic else _SWEEPS
    if isinstance(columns.x, DenseRows):
        return m * parts <= 40.0 * sweeps * k
    per_row = len(columns.x.data) / max(len(columns.margins.z), 1)
    return per_row * parts <= 2.0 * sweeps * k


def passes_are_quick(columns: WorkingColumns, parts: int) -> bool:
    """Return whether passes over the Gram are no slower than sweeps: of several outputs over few non-zeros."""
    (m, k), x = columns.w.shape, columns.x
    # Kernels of what may come are compiled on one row.
    if columns.task.data.one_row or k == 1 or isinstance(x, DenseRows):
        return True
    quadratic = loss_named(columns.task.scores.loss).quadratic
    return quadratic or m * m * parts / k <= _GRAM_PASSES * len(x.data)


def own_parts(parts: NDArray[Any], k: int) -> NDArray[Any]:
    """Return those of parts (n, parts) that are second derivatives in one score; the only one, if that is all."""
    rows = np.arange(k)
    return parts if parts.shape[1] <= k else parts[:, rows * (rows + 3) // 2]


def conjugate_gradients(product: Callable[[Array], Array], residual: Array, scale: Array, most: int) -> Array:
    """Return about the solution of ``product(x) = residual`` by at most so many products; `scale` as preconditioner."""
    change = np.zeros_like(residual)
    direction = scaled = scale * residual
    size = first = float(np.vdot(residual, scaled))
    for _ in range(most):
        if not size > _RESIDUAL**2 * first:
            break
        moved = product(direction)
        bent = float(np.vdot(direction, moved))
        # Not positive by rounding alone: what has been found already is good.
        if not bent > 0.0:
            break
        change += size / bent * direction
        residual = residual - size / bent * moved
        scaled = scale * residual
        size, before = float(np.vdot(residual, scaled)), size
        direction = scaled + size / before * direction
    return change
