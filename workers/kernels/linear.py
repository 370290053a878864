"""Kernels of linear models on blocks of rows: scores, loss sums, gradients, and the row helpers they share.

One code path serves CSR and dense rows: `row_arrays` and `row_span` give any row as runs of (index, value)
pairs, for dense rows by gathering the non-zeros into a scratch row, so that zeros cost no multiplication.
One path serves any number of classes: a row of weights is read in vectors of 4 lanes (up to 4 classes) or of
64 bytes, with a mask beyond the last class, so that no padding of the weights is needed. LLVM does not find
this form by itself (it vectorises over the non-zeros, with gathers: 1.7 times slower at 4 classes, 2.3 times
at 53), which is why `row_dot` and `row_add` are written in its own instructions.

Shapes, throughout: w (n_features, k) C-ordered, b (k,), y int32 (n_rows,), weight float64 (n_rows,) or (0,)
for all ones. Results depend on the arguments only, never on threads.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.kernels._jit import kernel
from distls.workers.losses import LOSSES, SLOPES_IN_G, Loss, row_slopes

__all__ = [
    "add_gradient",
    "add_slopes",
    "evaluate_rows",
    "log_loss_sum",
    "prefetch_row",
    "row_arrays",
    "row_axpy",
    "row_axpy_pair",
    "row_count",
    "row_scores",
    "row_span",
    "row_update",
    "row_weight",
    "scores",
]

Floats = NDArray[np.floating[Any]]

# ---------------------------------------------------------------- vectors of classes, in LLVM's terms

_BIT, _BYTE, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_FAST = ("reassoc", "contract", "nsz", "arcp")  # as in `kernel`
_QUAD = 0  # how many vectors of 64 bytes; this one stands for a single vector of 4 lanes
_AHEAD = 8  # non-zeros: how far before its use a row of weights is fetched (4 and 16 measured no better)


class _Lanes:
    """Builds loads, stores and multiply-adds of `vectors` vectors of one row of a C-ordered array.

    Lane l of vector v is class ``first + v * lanes + l``. Only the last vector may reach beyond `width`, and it is
    masked there. (Masking all was simpler, but a store whose mask is all off costs more than a full one.)
    """

    def __init__(self, builder: Any, element: Any, vectors: int, first: Any, width: Any) -> None:
        size = 4 if isinstance(element, ir.FloatType) else 8
        self.builder, self.first, self.width, self.size = builder, first, width, size
        self.count = max(vectors, 1)
        self.lanes = 4 if vectors == _QUAD else 64 // size
        self.type = ir.VectorType(element, self.lanes)
        self.name = f"v{self.lanes}f{8 * size}.p0"
        self.mask_type = ir.VectorType(_BIT, self.lanes)
        ramp = ir.VectorType(_INT64, self.lanes)
        left = builder.sub(width, builder.add(first, _INT64((self.count - 1) * self.lanes)))
        numbers = ir.Constant(ramp, list(range(self.lanes)))
        self.mask = builder.icmp_signed("<", numbers, self.splat(left, ramp))

    def splat(self, scalar: Any, kind: Any = None) -> Any:
        """Return a vector with `scalar` in every lane."""
        empty = ir.Constant(kind or self.type, ir.Undefined)
        one = self.builder.insert_element(empty, scalar, _INT32(0))
        return self.builder.shuffle_vector(
            one, empty, ir.Constant(ir.VectorType(_INT32, self.lanes), [0] * self.lanes)
        )

    def pointer(self, data: Any, row: Any, v: int) -> Any:
        """Return the address of vector `v` of row `row`."""
        b = self.builder
        at = b.add(b.add(b.mul(row, self.width), self.first), _INT64(v * self.lanes))
        return b.bitcast(b.gep(data, [at]), self.type.as_pointer())

    def load(self, data: Any, row: Any, v: int) -> Any:
        """Load vector `v` of row `row`, zero where masked."""
        pointer = self.pointer(data, row, v)
        if v < self.count - 1:
            return self.builder.load(pointer, align=self.size)
        kinds = [self.type.as_pointer(), _INT32, self.mask_type, self.type]
        function = self._declare("load", self.type, kinds)
        zero = ir.Constant(self.type, None)
        return self.builder.call(function, [pointer, _INT32(self.size), self.mask, zero])

    def store(self, value: Any, data: Any, row: Any, v: int) -> None:
        """Store vector `v` of row `row` where the mask is on."""
        pointer = self.pointer(data, row, v)
        if v < self.count - 1:
            self.builder.store(value, pointer, align=self.size)
            return
        kinds = [self.type, self.type.as_pointer(), _INT32, self.mask_type]
        function = self._declare("store", ir.VoidType(), kinds)
        self.builder.call(function, [value, pointer, _INT32(self.size), self.mask])

    def multiply_add(self, a: Any, x: Any, y: Any) -> Any:
        """Return ``a * x + y``."""
        return self.builder.fadd(self.builder.fmul(a, x, flags=_FAST), y, flags=_FAST)

    def _declare(self, what: str, result: Any, kinds: list[Any]) -> Any:
        kind = ir.FunctionType(result, kinds)
        return cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.masked.{what}.{self.name}")


class _Row:
    """Builds the walk over the non-zeros of one row: (indices, data, start, stop) are the first arguments."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        self.builder, self.start, self.stop = builder, args[2], args[3]
        self.indices = context.make_array(kinds[0])(context, builder, args[0]).data
        self.data = context.make_array(kinds[1])(context, builder, args[1]).data

    def column(self, p: Any) -> Any:
        """Return the column of non-zero `p`."""
        return self.builder.zext(self.builder.load(self.builder.gep(self.indices, [p])), _INT64)

    def value(self, p: Any, element: Any) -> Any:
        """Return the value of non-zero `p` in the type of the weights."""
        value = self.builder.load(self.builder.gep(self.data, [p]))
        if value.type == element:
            return value
        cast = self.builder.fpext if isinstance(element, ir.DoubleType) else self.builder.fptrunc
        return cast(value, element)

    def prefetch(self, p: Any, lanes: _Lanes, data: Any) -> None:
        """Fetch the weights of the non-zero `_AHEAD` places on, or of the row's last."""
        b = self.builder
        ahead, last = b.add(p, _INT64(_AHEAD)), b.sub(self.stop, _INT64(1))
        column = self.column(b.select(b.icmp_signed("<", ahead, last), ahead, last))
        for v in range(lanes.count):
            _prefetch_address(b, lanes.pointer(data, column, v))


def _prefetch_address(builder: Any, pointer: Any) -> None:
    address = builder.bitcast(pointer, _BYTE.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT32, _INT32, _INT32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, _INT32(0), _INT32(3), _INT32(1)])  # to read, keep, data cache


def _require_c_order(*arrays: Any) -> None:
    for array in arrays:
        if not isinstance(array, types.Array) or array.layout != "C":
            raise errors.TypingError(f"a C-ordered array is needed here, not {array}")


@intrinsic
def _prefetch(_context, array, position):  # type: ignore[no-untyped-def]
    """Fetch the cache line of element `position` of a 1-d or flattened C-ordered array."""
    _require_c_order(array)

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        _prefetch_address(builder, builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@intrinsic(prefer_literal=True)
def _row_dot(_context, indices, data, start, stop, w, first, z, vectors):  # type: ignore[no-untyped-def]
    """Set ``z[c] = sum_p data[p] * w[indices[p], c]`` for the classes of `vectors` vectors from `first`."""
    _require_c_order(indices, data, w, z)
    n_vectors = vectors.literal_value
    chains = (
        2 if n_vectors < 2 else 1
    )  # more sums in flight where one vector would wait for its last addition

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        row = _Row(context, builder, signature.args, args)
        weights = context.make_array(signature.args[4])(context, builder, args[4])
        out = context.make_array(signature.args[6])(context, builder, args[6]).data
        width = cgutils.unpack_tuple(builder, weights.shape)[1]
        element = context.get_data_type(w.dtype)
        lanes = _Lanes(builder, element, n_vectors, args[5], width)
        zero = ir.Constant(lanes.type, None)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(lanes.count)] for _ in range(chains)]

        def add(p: Any, chain: list[Any]) -> None:
            column, value = row.column(p), lanes.splat(row.value(p, element))
            for v, total in enumerate(chain):
                x = lanes.load(weights.data, column, v)
                builder.store(lanes.multiply_add(value, x, builder.load(total)), total)
            if n_vectors >= 2:
                row.prefetch(p, lanes, weights.data)

        length = builder.sub(row.stop, row.start)
        paired = builder.add(row.start, builder.and_(length, _INT64(-chains)))
        with cgutils.for_range_slice(builder, row.start, paired, _INT64(chains)) as (p, _):
            for step, chain in enumerate(sums):
                add(builder.add(p, _INT64(step)), chain)
        with cgutils.for_range_slice(builder, paired, row.stop, _INT64(1)) as (p, _):
            add(p, sums[0])
        for v in range(lanes.count):
            total = builder.load(sums[0][v])
            for chain in sums[1:]:
                total = builder.fadd(total, builder.load(chain[v]), flags=_FAST)
            lanes.store(total, out, _INT64(0), v)
        return context.get_dummy_value()

    kinds = (indices, data, types.intp, types.intp, w, types.intp, z, vectors)
    return types.void(*kinds), build


@intrinsic(prefer_literal=True)
def _row_add(_context, indices, data, start, stop, factor, g, first, w, vectors):  # type: ignore[no-untyped-def]
    """Add ``factor * data[p] * g[c]`` to ``w[indices[p], c]`` for the classes of `vectors` vectors from `first`."""
    _require_c_order(indices, data, w, g)
    n_vectors = vectors.literal_value

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        row = _Row(context, builder, signature.args, args)
        slopes = context.make_array(signature.args[5])(context, builder, args[5]).data
        weights = context.make_array(signature.args[7])(context, builder, args[7])
        width = cgutils.unpack_tuple(builder, weights.shape)[1]
        element = context.get_data_type(w.dtype)
        lanes = _Lanes(builder, element, n_vectors, args[6], width)
        by = lanes.splat(args[4])
        held = [builder.fmul(by, lanes.load(slopes, _INT64(0), v)) for v in range(lanes.count)]
        with cgutils.for_range_slice(builder, row.start, row.stop, _INT64(1)) as (p, _):
            column, value = row.column(p), lanes.splat(row.value(p, element))
            for v, slope in enumerate(held):
                x = lanes.load(weights.data, column, v)
                lanes.store(lanes.multiply_add(value, slope, x), weights.data, column, v)
        return context.get_dummy_value()

    kinds = (indices, data, types.intp, types.intp, w.dtype, g, types.intp, w, vectors)
    return types.void(*kinds), build


# ---------------------------------------------------------------- rows: what stochastic kernels are made of


def row_arrays(rows: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (indices, data), once for a block: the CSR arrays, or scratch for one dense row."""
    raise NotImplementedError("for kernels")


def row_span(rows: Rows, i: int, indices: NDArray[Any], data: NDArray[Any]) -> tuple[int, int]:
    """Return (start, stop) of row i in (indices, data); a dense row is gathered there first."""
    raise NotImplementedError("for kernels")


def prefetch_row(rows: Rows, i: int) -> None:
    """Fetch row i, to be read soon: in a random order the processor cannot guess it (1.7 times at k = 4)."""
    raise NotImplementedError("for kernels")


def row_count(rows: Rows) -> int:
    """Return the number of rows."""
    raise NotImplementedError("for kernels")


def _is_csr(rows: Any) -> bool:
    if rows.instance_class not in (CsrRows, DenseRows):
        raise errors.TypingError(f"rows are CsrRows or DenseRows, not {rows}")
    return rows.instance_class is CsrRows


@overload(row_count)
def _row_count(rows):  # type: ignore[no-untyped-def]
    return (lambda rows: len(rows.indptr) - 1) if _is_csr(rows) else (lambda rows: len(rows.values))


@overload(row_arrays)
def _row_arrays(rows):  # type: ignore[no-untyped-def]
    def dense(rows):  # type: ignore[no-untyped-def]
        d = rows.values.shape[1]
        return np.empty(d, np.uint32), np.empty(d, rows.values.dtype)

    return (lambda rows: (rows.indices, rows.data)) if _is_csr(rows) else dense


@overload(row_span)
def _row_span(rows, i, indices, data):  # type: ignore[no-untyped-def]
    def dense(rows, i, indices, data):  # type: ignore[no-untyped-def]
        found = 0
        for j in range(rows.values.shape[1]):
            # written always, kept if not zero: no branch to mispredict
            indices[found] = j
            data[found] = rows.values[i, j]
            found += rows.values[i, j] != 0
        return 0, found

    return (lambda rows, i, indices, data: (rows.indptr[i], rows.indptr[i + 1])) if _is_csr(rows) else dense


@overload(prefetch_row)
def _prefetch_row(rows, i):  # type: ignore[no-untyped-def]
    def csr(rows, i):  # type: ignore[no-untyped-def]
        # the processor's own prefetcher has caught on after some lines
        start, stop = rows.indptr[i], min(rows.indptr[i + 1], rows.indptr[i] + 256)
        for p in range(start, stop, 32):
            _prefetch(rows.indices, p)
        for p in range(start, stop, 16):
            _prefetch(rows.data, p)

    def dense(rows, i):  # type: ignore[no-untyped-def]
        d = rows.values.shape[1]
        for p in range(i * d, i * d + min(d, 256), 16):
            _prefetch(rows.values, p)

    return csr if _is_csr(rows) else dense


@kernel
def row_scores(indices, data, start, stop, w, z):  # type: ignore[no-untyped-def]
    """Set ``z = W^T x`` for the row (indices, data)[start:stop]: O(nnz k)."""
    k, lanes = len(z), 64 // z.itemsize
    if k <= 4:
        _row_dot(indices, data, start, stop, w, 0, z, _QUAD)
        return
    for first in range(0, k, 4 * lanes):
        left = k - first
        if left > 3 * lanes:
            _row_dot(indices, data, start, stop, w, first, z, 4)
        elif left > 2 * lanes:
            _row_dot(indices, data, start, stop, w, first, z, 3)
        elif left > lanes:
            _row_dot(indices, data, start, stop, w, first, z, 2)
        else:
            _row_dot(indices, data, start, stop, w, first, z, 1)


@kernel
def row_axpy(indices, data, start, stop, factor, g, w):  # type: ignore[no-untyped-def]
    """Add ``factor * x (x) g`` to w, k slopes for each non-zero; g has the type of w."""
    k, lanes = len(g), 64 // g.itemsize
    if k <= 4:
        _row_add(indices, data, start, stop, factor, g, 0, w, _QUAD)
        return
    for first in range(0, k, 4 * lanes):
        left = k - first
        if left > 3 * lanes:
            _row_add(indices, data, start, stop, factor, g, first, w, 4)
        elif left > 2 * lanes:
            _row_add(indices, data, start, stop, factor, g, first, w, 3)
        elif left > lanes:
            _row_add(indices, data, start, stop, factor, g, first, w, 2)
        else:
            _row_add(indices, data, start, stop, factor, g, first, w, 1)


@kernel
def row_axpy_pair(indices, data, start, stop, factor, up, down, w):  # type: ignore[no-untyped-def]
    """Add ``factor * x`` to column `up` of w and take it from column `down`: O(2 nnz)."""
    factor = w.dtype.type(factor)
    for p in range(start, stop):
        j = np.intp(indices[p])
        change = factor * w.dtype.type(data[p])
        w[j, up] += change
        w[j, down] -= change


@kernel
def row_update(indices, data, start, stop, factor, rival, y, g, w):  # type: ignore[no-untyped-def]
    """Add ``factor * x (x) slopes`` to w for slopes as `row_slopes` returns them."""
    if rival == SLOPES_IN_G:
        row_axpy(indices, data, start, stop, factor, g, w)
    elif rival != y:
        row_axpy_pair(indices, data, start, stop, factor, rival, y, w)


@kernel
def add_slopes(factor, rival, y, g, out):  # type: ignore[no-untyped-def]
    """Add ``factor * slopes`` to the k values `out` (the intercept's part of `row_update`)."""
    if rival == SLOPES_IN_G:
        for c in range(len(out)):
            out[c] += factor * g[c]
    elif rival != y:
        out[rival] += factor
        out[y] -= factor


@kernel
def row_weight(weight, i):  # type: ignore[no-untyped-def]
    """Return s_i; an empty array stands for ones."""
    return weight[i] if len(weight) else 1.0


# ---------------------------------------------------------------- whole blocks


@kernel
def _scores(rows, w, b, out, start):  # type: ignore[no-untyped-def]
    indices, data = row_arrays(rows)
    for i in range(len(out)):
        first, last = row_span(rows, start + i, indices, data)
        z = out[i]
        row_scores(indices, data, first, last, w, z)
        for c in range(len(b)):
            z[c] += b[c]


def scores(rows: Rows, w: Floats, b: Floats, out: Floats, start: int = 0) -> Floats:
    """Fill ``out[i] = W^T x_(start + i) + b`` for the rows that `out` (m, k) has room for; return it."""
    n = len(rows.indptr) - 1 if isinstance(rows, CsrRows) else len(rows.values)
    if start < 0 or start + len(out) > n:
        raise ValueError(f"rows {start} to {start + len(out)} of a block of {n}")
    _scores(rows, w, b, out, start)
    return out


@kernel
def evaluate_rows(rows, y, weight, loss, w, b, predicted):  # type: ignore[no-untyped-def]
    """Sum the loss and count the errors of a block, without an (n_rows, k) array.

    Parameters
    ----------
    y : int32 (n_rows,). A negative code (a label unknown to the model) counts as an error and has no loss
    loss : a member of `LOSSES`
    predicted : int32 (n_rows,), filled with the class of the highest score; or (0,)

    Returns
    -------
    loss_sum : sum_i s_i * loss_i over the rows with y >= 0, float64
    weight_sum : sum_i s_i over the same rows, float64
    errors : rows whose predicted class is not y
    """
    k = len(b)
    z, g = np.empty(k, w.dtype), np.empty(k, w.dtype)
    loss_sum, weight_sum, wrong = 0.0, 0.0, 0
    indices, data = row_arrays(rows)
    for i in range(row_count(rows)):
        start, stop = row_span(rows, i, indices, data)
        row_scores(indices, data, start, stop, w, z)
        for c in range(k):
            z[c] += b[c]
        value, _, best = row_slopes(loss, z, 1.0, max(np.intp(y[i]), 0), g)
        wrong += best != y[i]
        if y[i] >= 0:
            loss_sum += row_weight(weight, i) * value
            weight_sum += row_weight(weight, i)
        if len(predicted):
            predicted[i] = best
    return loss_sum, weight_sum, wrong


def log_loss_sum(
    rows: Rows, y: NDArray[np.int32], weight: NDArray[np.float64], w: Floats, b: Floats
) -> tuple[float, float]:
    """Return the sums of s_i * -log p_i(y_i), p the softmax of the scores, and of s_i."""
    none = np.empty(0, np.int32)
    loss_sum, weight_sum, _ = evaluate_rows(rows, y, weight, LOSSES["softmax"], w, b, none)
    return loss_sum, weight_sum


@kernel
def add_gradient(rows, y, weight, loss, w, b, grad, grad_b):  # type: ignore[no-untyped-def]
    """Add ``sum_i s_i x_i (x) g_i`` to `grad` and ``sum_i s_i g_i`` to `grad_b`, g_i the slopes at (w, b).

    Parameters
    ----------
    loss : a member of `LOSSES`
    grad, grad_b : float64 (n_features, k) and (k,), added to

    Returns
    -------
    loss_sum, weight_sum, errors : as in `evaluate_rows`; every y must be a class
    """
    k = len(b)
    z, g, slopes = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty(k, grad.dtype)
    loss_sum, weight_sum, wrong = 0.0, 0.0, 0
    indices, data = row_arrays(rows)
    for i in range(row_count(rows)):
        start, stop = row_span(rows, i, indices, data)
        row_scores(indices, data, start, stop, w, z)
        for c in range(k):
            z[c] += b[c]
        s, label = row_weight(weight, i), np.intp(y[i])
        value, rival, best = row_slopes(loss, z, 1.0, label, g)
        loss_sum, weight_sum, wrong = loss_sum + s * value, weight_sum + s, wrong + (best != label)
        if rival == SLOPES_IN_G:
            slopes[:] = g
        add_slopes(s, rival, label, slopes, grad_b)
        row_update(indices, data, start, stop, s, rival, label, slopes, grad)
    return loss_sum, weight_sum, wrong
