"""A row of data along with its rows of weights, in vectors of the processor: scores, and additions to weights.

The same code serves any number of classes: a row of weights is read in vectors, the last of them masked, so that
weights need no padding. LLVM does not find this form by itself (it gathers over the non-zeros: 1.7 times slower at 4
classes, 2.3 at 53).

Shapes: indices and data (nnz,), of which a row is [start:stop], w (n_features, k) C-ordered, scores and gradients (k,).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

from distls.workers.simd.rounding import rounded_value

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
def row_dot(_context, indices, data, start, stop, w, z):
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


def _add_builder(*, apart: bool) -> Any:
    """Return the code generator of additions to the weights of a row's features."""

    def build(context, builder, signature, args):
        walk = _Walk(context, builder, signature.args, args)

        def group(lanes: _Lanes) -> None:
            by, zero = lanes.splat(args[6]), ir.Constant(lanes.type, None)
            values = [lanes.load(walk.values, _INT64(0), v) for v in range(lanes.count)]
            steps = [rounded_value(builder, builder.fmul(by, value)) for value in values]
            moved = [builder.fcmp_unordered("!=", step, zero) for step in steps]  # true of a NaN
            with cgutils.for_range_slice(builder, walk.start, walk.stop, _INT64(1)) as (p, _):
                column, value = walk.non_zero(p)
                old = [lanes.load(walk.w, column, v) for v in range(lanes.count)]
                for v, step in enumerate(steps):
                    if apart:
                        product = rounded_value(builder, builder.fmul(lanes.splat(value), step))
                        total = builder.select(moved[v], builder.fadd(old[v], product), old[v])
                        lanes.store(total, walk.w, column, v)
                    else:
                        lanes.store(lanes.multiply_add(lanes.splat(value), step, old[v]), walk.w, column, v)
                if apart and lanes.count > _PAIRED:  # fused ones were not faster for it
                    walk.prefetch(p, lanes)

        walk.groups(group)
        return context.get_dummy_value()

    return build


@intrinsic
def row_add(_context, indices, data, start, stop, w, g, factor):
    """Add ``data[p] * (factor * g[c])`` to ``w[indices[p], c]``."""
    _check_types(indices, data, w, g)
    return types.void(indices, data, types.intp, types.intp, w, g, w.dtype), _add_builder(apart=False)


@intrinsic
def row_add_pairs(_context, indices, data, start, stop, w, g, factor):
    """Do the same for pairs of outputs, of models side by side: g is zero outside of them."""
    _check_types(indices, data, w, g)
    # the bits of `row_axpy_pair`: a product is rounded before it is added, and all outside of the pairs stays as it is
    return types.void(indices, data, types.intp, types.intp, w, g, w.dtype), _add_builder(apart=True)


def _sum_builder(*, apart: bool) -> Any:
    """Return the code generator of a weighted sum of rows of `w`, which the values (k,) hold meanwhile."""

    def build(context, builder, signature, args):
        walk = _Walk(context, builder, signature.args, args)

        def group(lanes: _Lanes) -> None:
            new = cgutils.alloca_once
            sums = [new(builder, lanes.type) for _ in range(lanes.count)]
            for v, total in enumerate(sums):
                builder.store(lanes.load(walk.values, _INT64(0), v), total)
            with cgutils.for_range_slice(builder, walk.start, walk.stop, _INT64(1)) as (p, _):
                row, value = walk.non_zero(p)
                for v, total in enumerate(sums):
                    by, x, old = lanes.splat(value), lanes.load(walk.w, row, v), builder.load(total)
                    if apart:
                        own = builder.fadd(old, rounded_value(builder, builder.fmul(by, x)))
                    else:
                        own = lanes.multiply_add(by, x, old)
                    builder.store(rounded_value(builder, own), total)  # else sums may be taken together
            for v, total in enumerate(sums):
                lanes.store(builder.load(total), walk.values, _INT64(0), v)

        walk.groups(group)
        return context.get_dummy_value()

    return build


@intrinsic
def rows_add(_context, indices, data, start, stop, w, total):
    """Add ``data[p] * w[indices[p]]`` to `total` (k,), one p after the other, each as `row_add` would."""
    _check_types(indices, data, w, total)
    return types.void(indices, data, types.intp, types.intp, w, total), _sum_builder(apart=False)


@intrinsic
def rows_add_pairs(_context, indices, data, start, stop, w, total):
    """Do the same, each as `row_add_pairs` would."""
    _check_types(indices, data, w, total)
    return types.void(indices, data, types.intp, types.intp, w, total), _sum_builder(apart=True)
