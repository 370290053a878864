"""Kernels of linear models on blocks of rows: scores, and the row helpers of all other kernels.

The same code serves CSR and dense rows: `row_arrays` and `row_span` give a row as (index, value) pairs, for dense
rows by gathering the non-zeros into a scratch row. The same code serves any number of classes: a row of weights is
read in vectors, the last of them masked, so that weights need no padding. LLVM does not find this form by
itself (it gathers over the non-zeros: 1.7 times slower at 4 classes, 2.3 at 53), hence `_row_dot`, `_row_add`.

Shapes: w (n_features, k) C-ordered, b (k,), y int32 (n_rows,), weight float64 (n_rows,) or (0,) for all ones.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.compilation.jit import helper, kernel

Floats = NDArray[np.floating[Any]]

# ---------------------------------------------------------------- vectors of classes, in LLVM's terms

_BIT, _BYTE, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_FAST = ("reassoc", "contract", "nsz", "arcp")  # as in `kernel`
_VECTOR_BYTES = 32  # 64 read as fast, but stores across cache lines, most of them, took 1.6 times as long
_GROUP = 8  # vectors that are summed in registers in one traversal of the row
_PAIRED = 2  # up to so many vectors are summed in two chains
_AHEAD = 8  # non-zeros between prefetch and use of a row of weights (4 measured the same)


class _Lanes:
    """Builds loads and stores of `count` vectors, from class `first` on, of one row of a C-ordered array.

    Only the last vector may reach beyond `width`, the length of the row, and it is masked there.
    """

    def __init__(self, builder: Any, element: Any, lanes: int, count: int, first: Any, width: Any) -> None:
        self.builder, self.lanes, self.count, self.first, self.width = builder, lanes, count, first, width
        self.size = 4 if isinstance(element, ir.FloatType) else 8
        self.type, self.mask_type = ir.VectorType(element, lanes), ir.VectorType(_BIT, lanes)
        ramp = ir.VectorType(_INT64, lanes)
        left = builder.sub(width, builder.add(first, _INT64((count - 1) * lanes)))
        self.mask = builder.icmp_signed("<", ir.Constant(ramp, list(range(lanes))), self.splat(left, ramp))

    def splat(self, scalar: Any, kind: Any = None) -> Any:
        """Return a vector with `scalar` in every lane."""
        empty = ir.Constant(kind or self.type, ir.Undefined)
        one = self.builder.insert_element(empty, scalar, _INT32(0))
        zeros = ir.Constant(ir.VectorType(_INT32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, empty, zeros)

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
        zero = ir.Constant(self.type, None)
        return self._masked("load", self.type, [pointer, _INT32(self.size), self.mask, zero])

    def store(self, value: Any, data: Any, row: Any, v: int) -> None:
        """Store vector `v` of row `row` where the mask is on."""
        pointer = self.pointer(data, row, v)
        if v < self.count - 1:
            self.builder.store(value, pointer, align=self.size)
        else:
            self._masked("store", ir.VoidType(), [value, pointer, _INT32(self.size), self.mask])

    def multiply_add(self, a: Any, x: Any, y: Any) -> Any:
        """Return ``a * x + y``."""
        return self.builder.fadd(self.builder.fmul(a, x, flags=_FAST), y, flags=_FAST)

    def _masked(self, what: str, result: Any, args: list[Any]) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        name = f"llvm.masked.{what}.v{self.lanes}f{8 * self.size}.p0"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)


class _Walk:
    """Traverses a row along with its weights; the arguments are indices, data, start, stop, w (d, k), values (k,)."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        self.builder, self.start, self.stop = builder, args[2], args[3]
        arrays = [context.make_array(kinds[i])(context, builder, args[i]) for i in (0, 1, 4, 5)]
        self.indices, self.data, self.w, self.values = (array.data for array in arrays)
        self.width = cgutils.unpack_tuple(builder, arrays[2].shape)[1]
        self.element = context.get_data_type(kinds[4].dtype)

    def non_zero(self, p: Any) -> tuple[Any, Any]:
        """Return column and value (in the type of w) of non-zero `p`."""
        value = self.builder.load(self.builder.gep(self.data, [p]))
        if value.type != self.element:
            widen = isinstance(self.element, ir.DoubleType)
            value = (self.builder.fpext if widen else self.builder.fptrunc)(value, self.element)
        return self._column(p), value

    def prefetch(self, p: Any, lanes: _Lanes) -> None:
        """Fetch the weights of the non-zero `_AHEAD` places on, or of the row's last."""
        b = self.builder
        ahead, last = b.add(p, _INT64(_AHEAD)), b.sub(self.stop, _INT64(1))
        column = self._column(b.select(b.icmp_signed("<", ahead, last), ahead, last))
        for v in range(0, lanes.count, 2):  # two vectors fill a cache line
            prefetch_address(b, lanes.pointer(self.w, column, v))

    def groups(self, build: Callable[[_Lanes], None]) -> None:
        """Cover the classes by groups of vectors: `build` is called for each size a group may have."""
        b = self.builder
        most = _VECTOR_BYTES // (4 if isinstance(self.element, ir.FloatType) else 8)
        with b.if_else(b.icmp_signed("<=", self.width, _INT64(4))) as (few, many):
            with few:
                build(_Lanes(b, self.element, 4, 1, _INT64(0), self.width))
            with many, cgutils.for_range_slice(b, _INT64(0), self.width, _INT64(_GROUP * most)) as (first, _):
                count = b.sdiv(b.sub(b.add(b.sub(self.width, first), _INT64(most)), _INT64(1)), _INT64(most))
                for size in range(1, _GROUP + 1):
                    with b.if_then(b.icmp_signed("==" if size < _GROUP else ">=", count, _INT64(size))):
                        build(_Lanes(b, self.element, most, size, first, self.width))

    def _column(self, p: Any) -> Any:
        return self.builder.zext(self.builder.load(self.builder.gep(self.indices, [p])), _INT64)


def prefetch_address(builder: Any, pointer: Any) -> None:
    """Build a fetch of the cache line at `pointer`."""
    address = builder.bitcast(pointer, _BYTE.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT32, _INT32, _INT32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, _INT32(0), _INT32(3), _INT32(1)])  # to read, keep, data cache


def _check_types(*arrays: Any) -> None:
    for array in arrays:
        if not isinstance(array, types.Array) or array.layout != "C":
            raise errors.TypingError(f"a C-ordered array is needed here, not {array}")
    if arrays[2].dtype != arrays[3].dtype:
        raise errors.TypingError(f"weights and scores or gradients differ in type: {arrays[2:]}")


def _dot_builder(chains_of: Callable[[int], int]) -> Any:
    """Return the code generator of the scores of a row, in so many chains of additions for a number of vectors."""

    def build(context, builder, signature, args):
        walk = _Walk(context, builder, signature.args, args)

        def group(lanes: _Lanes) -> None:
            chains, zero = chains_of(lanes.count), ir.Constant(lanes.type, None)
            new = cgutils.alloca_once_value
            sums = [[new(builder, zero) for _ in range(lanes.count)] for _ in range(chains)]

            def add(p: Any, chain: list[Any]) -> None:
                column, value = walk.non_zero(p)
                for v, total in enumerate(chain):
                    x = lanes.load(walk.w, column, v)
                    builder.store(lanes.multiply_add(lanes.splat(value), x, builder.load(total)), total)
                if lanes.count > _PAIRED:
                    walk.prefetch(p, lanes)

            length = builder.sub(walk.stop, walk.start)
            paired = builder.add(walk.start, builder.and_(length, _INT64(-chains)))
            with cgutils.for_range_slice(builder, walk.start, paired, _INT64(chains)) as (p, _):
                for step, chain in enumerate(sums):
                    add(builder.add(p, _INT64(step)), chain)
            with cgutils.for_range_slice(builder, paired, walk.stop, _INT64(1)) as (p, _):
                add(p, sums[0])
            for v in range(lanes.count):
                total = builder.load(sums[0][v])
                for chain in sums[1:]:
                    total = builder.fadd(total, builder.load(chain[v]), flags=_FAST)
                lanes.store(total, walk.values, _INT64(0), v)

        walk.groups(group)
        return context.get_dummy_value()

    return build


@intrinsic
def _row_dot(_context, indices, data, start, stop, w, z):
    """Set ``z[c] = sum_p data[p] * w[indices[p], c]``."""
    _check_types(indices, data, w, z)
    # a single chain of few sums is bound by the latency of additions
    build = _dot_builder(lambda count: 2 if count <= _PAIRED else 1)
    return types.void(indices, data, types.intp, types.intp, w, z), build


@intrinsic
def row_dot_paired(_context, indices, data, start, stop, w, z):
    """Do the same for weights side by side, with the bits that up to `most_paired` of them have by themselves."""
    _check_types(indices, data, w, z)
    return types.void(indices, data, types.intp, types.intp, w, z), _dot_builder(lambda _: 2)


def most_paired(dtype: Any) -> int:
    """Return the most outputs whose scores are added up in two chains, of even and of odd non-zeros."""
    return _PAIRED * _VECTOR_BYTES // int(np.dtype(dtype).itemsize)


@intrinsic
def _row_add(_context, indices, data, start, stop, w, g, factor):
    """Add ``factor * data[p] * g[c]`` to ``w[indices[p], c]``."""
    _check_types(indices, data, w, g)

    def build(context, builder, signature, args):
        walk = _Walk(context, builder, signature.args, args)

        def group(lanes: _Lanes) -> None:
            by = lanes.splat(args[6])
            steps = [builder.fmul(by, lanes.load(walk.values, _INT64(0), v)) for v in range(lanes.count)]
            with cgutils.for_range_slice(builder, walk.start, walk.stop, _INT64(1)) as (p, _):
                column, value = walk.non_zero(p)
                old = [lanes.load(walk.w, column, v) for v in range(lanes.count)]
                for v, step in enumerate(steps):
                    lanes.store(lanes.multiply_add(lanes.splat(value), step, old[v]), walk.w, column, v)

        walk.groups(group)
        return context.get_dummy_value()

    return types.void(indices, data, types.intp, types.intp, w, g, w.dtype), build


# ---------------------------------------------------------------- rows


def row_arrays(rows):
    """Return (indices, data), once for a block: the CSR arrays, or scratch for one dense row."""


def row_span(rows, i, indices, data):
    """Return (start, stop) of row i in (indices, data); a dense row is gathered there first."""


def is_csr(rows: Any) -> bool:
    """Return whether a numba type of rows is `CsrRows`."""
    if rows.instance_class not in (CsrRows, DenseRows):
        raise errors.TypingError(f"rows are CsrRows or DenseRows, not {rows}")
    return rows.instance_class is CsrRows


@overload(row_arrays)
def _row_arrays(rows):
    def dense(rows):
        d = rows.values.shape[1]
        return np.empty(d, np.uint32), np.empty(d, rows.values.dtype)

    return (lambda rows: (rows.indices, rows.data)) if is_csr(rows) else dense


@overload(row_span)
def _row_span(rows, i, indices, data):
    def dense(rows, i, indices, data):
        found = 0
        for j in range(rows.values.shape[1]):
            # written always, kept if not zero: no branch to mispredict
            indices[found] = j
            data[found] = rows.values[i, j]
            found += rows.values[i, j] != 0
        return 0, found

    return (lambda rows, i, indices, data: (rows.indptr[i], rows.indptr[i + 1])) if is_csr(rows) else dense


def column_of(rows, p):
    """Return the column of the non-zero at place p of `places`; of a dense row p itself."""


def value_of(rows, i, p):
    """Return the value of row i at place p."""


def places(rows, i):
    """Return (first, end) of row i's places, without gathering anything: for a dense row all columns."""
    # unsigned: numba lets signed indices count from the end, and LLVM then gathers what is contiguous


@overload(column_of, inline="always")
def _column_of(rows, p):
    return (lambda rows, p: np.intp(rows.indices[p])) if is_csr(rows) else (lambda rows, p: p)


@overload(value_of, inline="always")
def _value_of(rows, i, p):
    return (lambda rows, i, p: rows.data[p]) if is_csr(rows) else (lambda rows, i, p: rows.values[i, p])


@overload(places, inline="always")
def _places(rows, i):
    if is_csr(rows):
        return lambda rows, i: (np.uintp(rows.indptr[i]), np.uintp(rows.indptr[i + 1]))
    return lambda rows, i: (np.uintp(0), np.uintp(rows.values.shape[1]))


@helper
def single_score(rows, i, w):
    """Return the score of row i in the only output, w (n_features,); a dense row is read in place."""
    total = w.dtype.type(0.0)
    start, stop = places(rows, i)
    for p in range(start, stop):
        total += w.dtype.type(value_of(rows, i, p)) * w[column_of(rows, p)]
    return total


@helper
def row_scores(indices, data, start, stop, w, z):
    """Set ``z = W^T x`` for the row (indices, data)[start:stop]: O(nnz k)."""
    if len(z) == 1:
        z[0] = _dot_one(indices, data, start, stop, w)
    else:
        _row_dot(indices, data, start, stop, w, z)


@helper
def _dot_one(indices, data, start, stop, w):
    total = w.dtype.type(0.0)
    for p in range(np.uintp(start), np.uintp(stop)):  # unsigned: see `places`
        total += w.dtype.type(data[p]) * w[np.intp(indices[p]), 0]
    return total


@helper
def row_axpy(indices, data, start, stop, factor, g, w):
    """Add ``factor * x (x) g`` to w; g (k,) has the type of w."""
    if len(g) == 1:
        step = w.dtype.type(factor) * g[0]
        for p in range(np.uintp(start), np.uintp(stop)):
            w[np.intp(indices[p]), 0] += step * w.dtype.type(data[p])
    else:
        _row_add(indices, data, start, stop, w, g, w.dtype.type(factor))


@helper
def row_axpy_pair(indices, data, start, stop, factor, up, down, w):
    """Add ``factor * x`` to column `up` of w and take it from column `down`: O(2 nnz)."""
    factor = w.dtype.type(factor)
    for p in range(start, stop):
        j = np.intp(indices[p])
        change = factor * w.dtype.type(data[p])
        w[j, up] += change
        w[j, down] -= change


@helper
def check_widths(w, b):
    """Refuse weights of another width than the k classes of b."""
    if w.shape[1] != len(b):  # kernels would write out of bounds
        raise ValueError("the weights and the intercept have different numbers of classes")


@kernel
def row_weight(weight, i):
    """Return s_i; an empty array stands for ones."""
    return weight[i] if len(weight) else 1.0


# ---------------------------------------------------------------- whole blocks


@kernel
def _scores(rows, w, b, out, start):
    indices, data = row_arrays(rows)
    for i in range(len(out)):
        first, last = row_span(rows, start + i, indices, data)
        z = out[i]
        row_scores(indices, data, first, last, w, z)
        for c in range(len(b)):
            z[c] += b[c]


def scores(rows: Rows, w: Floats, b: Floats, out: Floats, start: int = 0) -> Floats:
    """Fill ``out[i] = W^T x_(start + i) + b`` for the rows that `out` (m, k) has room for; return it."""
    if not (out.shape[1] == w.shape[1] == len(b)) or out.dtype != w.dtype:
        raise ValueError(f"w {w.shape} {w.dtype}, b {b.shape} and out {out.shape} {out.dtype} do not fit")
    n = len(rows.indptr) - 1 if isinstance(rows, CsrRows) else len(rows.values)
    if start < 0 or start + len(out) > n:
        raise ValueError(f"rows {start} to {start + len(out)} of a block of {n}")
    _scores(rows, w, b, out, start)
    return out
