"""The quadratic model of the loss around some weights, summed over row partitions, and its minimum plus the penalty.

What proximal Newton steps on a working set need of rows is loss, gradient and Gram: sums over rows, each of which one
lane has. So no number of a row is kept, and rows need not fit in the workers' memory (docs/decisions/0045).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Partition, Rows, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.coordinate_descent.active_columns import WORKING, bytes_of
from distls.workers.coordinate_descent.descent_kernels import Step
from distls.workers.coordinate_descent.dual_bounds import conjugate_mean
from distls.workers.coordinate_descent.prox_newton import ProxNewton
from distls.workers.coordinate_descent.row_scores_task import Margins, RowScores, wrong_rows
from distls.workers.coordinate_descent.working_columns import Judged
from distls.workers.coordinate_descent.working_set_kernels import add_gram, complete_gram, row_derivatives
from distls.workers.linear_algebra.column_selection import columns_of_csr
from distls.workers.linear_algebra.gram import add_cross, add_scores
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import label_sets
from distls.workers.rounds.block_stream import DatasetRef, Form, open_ref, stream
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]
Single = NDArray[np.float32]
Places = NDArray[np.int64]


@dataclass
class ModelSums:
    """The sums over the rows of one lane, or of several, at some weights."""

    gradient: Array  # of the mean loss, (columns, k), and in the intercept (k,)
    of_intercept: Array
    # (m, m, parts), the upper triangle, with an intercept that of ones last; or of no columns
    gram: Single
    loss: float = 0.0
    errors: int = 0
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class ModelTask(Task):
    """Sums the model over a lane's rows, at `SparseWeights`."""

    data: DatasetRef
    loss: str
    class_weight: Array | None
    scale: float  # 1 / sum_i s_i
    columns: Places | None = None  # of the model, which have all of the weights; None: all columns, without a Gram
    moving: Places | None = None  # the places among them of those in the Gram
    parts: int = 0  # second derivatives of a row that differ, see `working_set_kernels`
    fit_intercept: bool = False
    # In place of all sums the mean conjugate, as `loss`, at the slopes times this
    factor: float | None = None

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Partition]]:
        """See `Task.stream`: partitions with the columns of the model, which are kept as long as there is room."""
        form = None
        if self.columns is not None:
            name = hashlib.sha256(self.columns.tobytes()).hexdigest()
            form = Form(name, partial(_narrowed, self.columns), beside=True)
        return stream(self.data.whole, blocks, self.ledger, form)

    def start(self) -> None:
        """See `Task.start`."""
        given = self.shared
        whole = self.columns is None
        w = given.dense(open_ref(self.data).meta.n_features) if whole else given.values
        # One product with rows of either type; what cancels near the optimum needs float64.
        self._w = np.ascontiguousarray(w, np.float64)
        m = 0 if self.moving is None else len(self.moving) + self.fit_intercept
        gram = np.zeros((m, m, max(self.parts, 1)), np.float32)
        self.total = ModelSums(np.zeros(self._w.shape), np.zeros(self._w.shape[1]), gram)

    def add(self, index: int, part: Partition) -> None:
        """Add the sums over a partition's rows."""
        x, total, n = part.x, self.total, n_rows_of(part.x)
        if isinstance(x, DenseRows):
            x = DenseRows(x.values.astype(np.float64, copy=False))
        y = label_sets(part.y) if isinstance(part.y, CsrRows) else part.y
        z = np.tile(self.shared.intercept, (n, 1))
        g, h = np.empty_like(z), np.empty((n * (self.moving is not None), max(self.parts, 1)), np.float32)
        weight = row_weights(part, self.class_weight)
        with self.ledger.in_kernels(), single_threaded_blas():
            add_scores(x, self._w, z)
            mean = row_derivatives(z, y, weight, loss_named(self.loss), self.scale, g, h)
            if self.factor is not None:
                total.loss += conjugate_mean(self.loss, Margins(z, y, weight), g, self.factor, self.scale)
                return
            total.loss += mean
            total.errors += wrong_rows(self.loss, z, y)
            total.of_intercept += g.sum(axis=0)
            add_cross(x, g, total.gradient)
            if self.moving is not None:
                self._add_gram(x, h, self.moving)

    def _add_gram(self, x: Rows, h: Single, moving: Places) -> None:
        gram, m = self.total.gram, len(moving)
        if isinstance(x, DenseRows):
            values = x.values[:, moving].astype(np.float32)
            values = np.hstack([values, np.ones((len(h), int(self.fit_intercept)), np.float32)])
            for t in range(self.parts):
                gram[:, :, t] += values.T @ (h[:, t, None] * values)
            return
        if m < len(self._w):
            x = columns_of_csr(x, moving)
        if self.fit_intercept:
            # The last of each row, as its columns increase.
            ends = x.indptr[1:]
            ones = np.insert(x.indices, ends, m), np.insert(x.data, ends, 1)
            x = CsrRows(x.indptr + np.arange(len(x.indptr)), *ones)
        # The type of the descent in memory, whose kernel this is.
        add_gram(x.indptr, x.indices.astype(np.uint32), x.data, h, gram, 0, len(gram))

    @staticmethod
    def merge(left: ModelSums, right: ModelSums) -> ModelSums:
        """Add two sums, reusing the memory of `left`."""
        return add_sums(left, right, "gradient", "gram")


@dataclass
class Gathered:
    """What lanes have stored."""

    n_bytes: int = 0
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class GatherTask(Task):
    """Stores some columns of a lane's rows, partition by partition, for a descent on all rows of them in memory."""

    scores: RowScores  # whose folder and version are those of the columns
    columns: Places
    most_bytes: int  # no more is stored once there are more than these

    def __post_init__(self) -> None:
        """Read the data of the scores."""
        self.data = self.scores.data

    def start(self) -> None:
        """See `Task.start`."""
        self.total = Gathered()

    def add(self, index: int, part: Partition) -> None:
        """Store the columns of a partition."""
        x = _narrowed(self.columns, part).x
        self.total.n_bytes += bytes_of(x)
        if self.total.n_bytes <= self.most_bytes:
            for place, array in enumerate(x):
                RowState(self.scores.state, WORKING).write(3 * index + place, self.scores.version, array)


def _narrowed(columns: Places, part: Partition) -> Partition:
    """Return a partition with some columns, which shares no memory with it."""
    x, y = part.x, part.y
    if isinstance(x, DenseRows):
        x = DenseRows(np.ascontiguousarray(x.values[:, columns]))
    else:
        x = columns_of_csr(x, columns)
    y = type(y)(*(array.copy() for array in y)) if isinstance(y, tuple) else y.copy()
    return Partition(x, y, None if part.sample_weight is None else part.sample_weight.copy())


class _OnGram(ProxNewton):
    """What Newton's steps do with a Gram, on weights in place of columns."""

    def __init__(self, task: ModelStep, w: Array) -> None:
        self._columns: Any = SimpleNamespace(task=task, step=task.step, w=w)
        self._k, self._ones = w.shape[1], task.fit_intercept

    def minimum(self, judged: Judged, gram: Single) -> tuple[Array, Array]:
        """Return the weights that minimise the model plus the penalty, and the change of the intercept."""
        model = self._quadratic(gram)
        # Beyond the range of float32 nothing moves.
        return self._minimised(model, judged) if model else (self._columns.w, np.zeros(self._k))


@dataclass(eq=False)
class ModelStep(Task):
    """Minimises the model plus the penalty over the columns that move; shared are its `Judged`, Gram and weights."""

    data: DatasetRef
    penalty: str
    step: Step
    recentre: bool
    fit_intercept: bool

    def result(self) -> tuple[Array, Array]:
        """Return the weights, and the change of the intercept."""
        judged, gram, w = self.shared
        m, parts = gram.shape[0], gram.shape[2]
        # Others may have the same array.
        gram = gram.copy()
        complete_gram(gram, np.empty(m * parts if parts > 1 else 0, np.float32))
        with single_threaded_blas():
            return _OnGram(self, w).minimum(judged, gram.reshape(m, parts, m))

    @staticmethod
    def merge(left: Any, right: Any) -> Any:
        """Return the one result."""
        return left
