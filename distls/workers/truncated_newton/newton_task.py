"""The reads of a Newton method: loss, gradient and curvature at weights, Hessian-vector products, and a dual point.

With scores z_i = W^T x_i + b, slopes g_i and second derivatives H_i (k x k) of the loss in them, a read has

* ``sum s_i x_i g_i^T``, the gradient, and the diagonal of ``sum s_i x_i x_i^T (x) H_i``, or its blocks of each output;
* ``sum s_i x_i (H_i V^T x_i)^T``, the product of the Hessian with directions V (Keerthi, DeCoste 2005, section 3);
* the losses at W + t V for several lengths t;
* of duals -g_i that are balanced, their conjugates and the rows times them (`distls.dual_problem`).
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Partition, Rows, n_rows_of
from distls.workers.compilation.jit import kernel
from distls.workers.duals.dual_domains import Balance, feasible
from distls.workers.duals.stored_duals import numeric_targets
from distls.workers.evaluation.dual_task import in_float64, slopes_of
from distls.workers.linear_algebra.gram import add_cross
from distls.workers.linear_algebra.score_kernels import row_arrays, row_axpy, row_span, scores
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import class_scores, loss_named
from distls.workers.losses.targets import indicators, is_codes, slice_rows, wrong_sets
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Needs, Task
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]
Kind = Literal["gradient", "product", "search", "dual"]

# Bytes of scores that are worked on at a time: rows, scores and slopes of a piece stay in a cache.
_PIECE_BYTES, _MOST_ROWS = 2**20, 4096


class Points(NamedTuple):
    """Weights, and beside them the directions of a product or a search; the intercept's are the first row."""

    theta: Array  # (intercept + n_features, k), or 2 k columns
    fit_intercept: bool
    lengths: Array = np.empty(0)  # of the directions, in a search


@dataclass
class NewtonSum:
    """Sums over rows; rows of a matrix are those of `Points`."""

    image: Array  # of x_i times slopes, products or duals, (m, k)
    # of the curvature: (m, k) the diagonal of the Hessian, (k, m, m) its blocks of each output, or empty
    curvature: Array
    up: Array  # (k,) of s_i max(-g_i, 0) and of s_i max(g_i, 0)
    down: Array
    along: Array  # losses at each of the lengths of a search
    loss_sum: float = 0.0
    conjugate_sum: float = 0.0
    weight_sum: float = 0.0
    errors: int = 0
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class NewtonTask(Task):
    """One read, from `Points`."""

    data: DatasetRef
    loss: str
    n_outputs: int
    class_weight: Array | None
    kind: Kind
    blocks: bool = False  # of the curvature's outputs, in place of its diagonal
    balance: Balance | None = None  # of the duals
    secant: bool = False  # curvature of sums over the outputs, see `Loss.secant_curvature`

    @staticmethod
    def needs(shape: tuple[int, int], *, blocks: bool) -> Needs:
        """Return the bytes that a read needs: two sets of weights are sent, two sums come back."""
        one = 8 * shape[0] * shape[1]
        return Needs(2 * one, one * (1 + (shape[0] if blocks else 1)), 8 * _PIECE_BYTES)

    def start(self) -> None:
        m, k = len(self.shared.theta), self.n_outputs
        shape = (0, k) if self.kind != "gradient" else (k, m, m) if self.blocks else (m, k)
        along = np.zeros(len(self.shared.lengths))
        # Once: beside another array of its size, the system would take it back and give it page by page for each piece.
        self._half = np.empty((_MOST_ROWS, m) if self.blocks and self.kind == "gradient" else (0, 0))
        self.total = NewtonSum(np.zeros((m, k)), np.zeros(shape), np.zeros(k), np.zeros(k), along)

    def add(self, index: int, part: Partition) -> None:
        """Add a partition's sums, piece by piece of a fixed size: sums round alike on every worker."""
        form, weight = loss_named(self.loss), row_weights(part, self.class_weight)
        width = self.shared.theta.shape[1]
        step = max(1, min(_MOST_ROWS, _PIECE_BYTES // (8 * width)))
        with single_threaded_blas():
            for first in range(0, n_rows_of(part.x), step):
                rows = slice(first, min(first + step, n_rows_of(part.x)))
                s = weight[rows] if len(weight) else np.ones(rows.stop - rows.start)
                self._add_piece(form, in_float64(slice_rows(part.x, rows)), slice_rows(part.y, rows), s)

    def _add_piece(self, form: Loss, x: Rows, y: Any, s: Array) -> None:
        total, k = self.total, self.n_outputs
        # Scores of the weights, and beside them of the directions: one product of the rows serves both.
        z = self._scores(x)
        if self.kind == "search":
            total.weight_sum += float(s.sum())
            for place, length in enumerate(self.shared.lengths):
                total.along[place] += float(s @ slopes_of(form, z[:, :k] + length * z[:, k:], y)[1])
            return
        slopes, values = slopes_of(form, z[:, :k], y)
        if self.kind == "product":
            ahead = z[:, k:]
            product = form.curvature_product(slopes, ahead)
            if self.secant:
                product = form.secant_curvature(slopes, z[:, :k]) * ahead
            self._add_cross(x, s[:, None] * product)
            return
        if self.kind == "dual":
            targets = numeric_targets(y, k)
            # Slopes are in the domain of duals up to rounding.
            duals = feasible(form.dual_domain, -slopes, targets)
            if self.balance is not None:
                duals = self.balance(duals, targets)
            total.conjugate_sum += float(s @ form.conjugate(duals, targets))
            self._add_cross(x, s[:, None] * duals)
            return
        total.loss_sum += float(s @ values)
        total.weight_sum += float(s.sum())
        total.errors += _errors(self.loss, z[:, :k], y)
        weighed = s[:, None] * slopes
        # Both signs apart: balancing scales the larger side down.
        total.up += np.maximum(-weighed, 0.0).sum(axis=0)
        total.down += np.maximum(weighed, 0.0).sum(axis=0)
        self._add_cross(x, weighed)
        curvature = form.secant_curvature(slopes, z[:, :k]) if self.secant else form.curvature(slopes)
        self._add_curvature(x, s[:, None] * curvature)

    def _scores(self, x: Rows) -> Array:
        theta, first = self.shared.theta, int(self.shared.fit_intercept)
        b = theta[0] if first else np.zeros(theta.shape[1])
        if isinstance(x, DenseRows):
            return np.asarray(x.values @ theta[first:] + b)
        return np.asarray(scores(x, theta[first:], b, np.empty((n_rows_of(x), theta.shape[1]))), np.float64)

    def _add_cross(self, x: Rows, values: Array) -> None:
        """Add ``sum_i x_i values_i^T``, whose first row is that of the constant feature."""
        first = int(self.shared.fit_intercept)
        if first:
            self.total.image[0] += values.sum(axis=0)
        _add_products(x, values, self.total.image[first:])

    def _add_curvature(self, x: Rows, curvature: Array) -> None:
        first, total = int(self.shared.fit_intercept), self.total
        if not self.blocks:
            if first:
                total.curvature[0] += curvature.sum(axis=0)
            _add_products(_squared(x), curvature, total.curvature[first:])
            return
        assert isinstance(x, DenseRows)
        half = self._half[: len(x.values)]
        for c, block in enumerate(total.curvature):
            # the losses are convex; the product of a matrix with itself is half the work of another
            root = np.sqrt(np.maximum(curvature[:, c, None], 0.0))
            half[:, :first] = root
            np.multiply(root, x.values, out=half[:, first:])
            block += half.T @ half

    @staticmethod
    def merge(left: NewtonSum, right: NewtonSum) -> NewtonSum:
        """Add two sums, reusing the memory of `left`."""
        return add_sums(left, right, "image", "curvature")


def _errors(loss: str, z: Array, y: Any) -> int:
    """Return how many rows are predicted wrong; 0 of numbers."""
    if is_codes(y):
        return int(np.count_nonzero(class_scores(loss, z).argmax(axis=1) != y))
    if isinstance(y, CsrRows):
        return int(np.count_nonzero(wrong_sets(loss, z, indicators(y, z.shape[1]))))
    return 0


def _add_products(x: Rows, values: Array, out: Array) -> None:
    """Add ``sum_i x_i values_i^T`` to `out` (n_features, k), float64: near the optimum the products cancel."""
    if isinstance(x, CsrRows):
        _add_sparse_products(x, values, out)
    else:
        add_cross(x, values, out)


@kernel
def _add_sparse_products(rows, values, out):  # type: ignore[no-untyped-def]  # numba compares signatures
    indices, data = row_arrays(rows)
    for i in range(len(values)):
        start, stop = row_span(rows, i, indices, data)
        row_axpy(indices, data, start, stop, 1.0, values[i], out)


def _squared(x: Rows) -> Rows:
    if isinstance(x, CsrRows):
        return CsrRows(x.indptr, x.indices, np.square(x.data))
    return DenseRows(np.square(x.values))
