"""A row of data along with its rows of weights, in vectors of the processor: scores, and additions to weights.

The same code serves any number of classes: a row of weights is read in vectors, the last of them masked, so that
weights need no padding. LLVM does not find this form by itself (it gathers over the non-zeros: 1.7 times slower at 4
classes, 2.3 at 53).

Shapes: indices and data (nnz,), of which a row is [start:stop], w (n_features, k) C-ordered, scores and gradients (k,).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

from distls.workers.simd.vector_builder import INT64, VectorBuilder, prefetch_address

_VECTOR_BYTES = 32  # 64 read as fast, but stores across cache lines, most of them, took 1.6 times as long
_GROUP = 8  # vectors that are summed in registers in one traversal of the row
_PAIRED = 2  # up to so many vectors are summed in two chains
_AHEAD = 8  # non-zeros between prefetch and use of a row of weights (4 measured the same)


class _Group(VectorBuilder):
    """Builds loads and stores of `count` vectors, from class `first` on, of one row of a C-ordered array.

    Only the last vector may reach beyond `width`, the length of the row, and it is masked there.
    """

    def __init__(self, builder: Any, element: Any, lanes: int, count: int, first: Any, width: Any) -> None:
        super().__init__(builder, element, lanes)
        self.first, self.width = first, width
        # Lanes that the last vector has left of the row.
        left = builder.sub(width, builder.add(first, INT64((count - 1) * lanes)))
        self.masks = [None] * (count - 1) + [self.numbered("<", left)]

    def at(self, data: Any, row: Any, v: int) -> Any:
        """Return the address of vector `v` of row `row`."""
        b = self.builder
        return self.address(data, b.add(b.add(b.mul(row, self.width), self.first), INT64(v * self.lanes)))

    def load_at(self, data: Any, row: Any, v: int) -> Any:
        """Load vector `v` of row `row`, zero where masked."""
        return self.load(self.at(data, row, v), self.masks[v])

    def store_at(self, value: Any, data: Any, row: Any, v: int) -> None:
        """Store vector `v` of row `row` where the mask is on."""
        self.store(value, self.at(data, row, v), self.masks[v])

    def multiply_add(self, a: Any, x: Any, y: Any) -> Any:
        """Return ``a * x + y``, rounded once."""
        return self.call("fma", a, x, y)


class _Walk:
    """Traverses a row along with its weights; the arguments are indices, data, start, stop, w (d, k), values (k,)."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        self.builder, self.start, self.stop = builder, args[2], args[3]
        arrays = [context.make_array(kinds[i])(context, builder, args[i]) for i in (0, 1, 4, 5)]
        self.indices, self.data, self.w, self.values = (array.data for array in arrays)
        self.width = cgutils.unpack_tuple(builder, arrays[2].shape)[1]
        self.element = context.get_data_type(kinds[4].dtype)

    def non_zero(self, p: Any, group: _Group) -> tuple[Any, Any]:
        """Return the column of non-zero `p`, and its value (in the type of w) in every lane."""
        value = self.builder.load(self.builder.gep(self.data, [p]))
        return self._column(p), group.splat(VectorBuilder.like(self.builder, value).converted(value, self.element))

    def prefetch(self, p: Any, group: _Group) -> None:
        """Fetch the weights of the non-zero `_AHEAD` places on, or of the row's last, where there are many."""
        b, count = self.builder, len(group.masks)
        if count > _PAIRED:
            ahead, last = b.add(p, INT64(_AHEAD)), b.sub(self.stop, INT64(1))
            column = self._column(b.select(b.icmp_signed("<", ahead, last), ahead, last))
            # Beyond the row's end its last weights are fetched again, which is free.
            for v in range(0, count, 2):  # two vectors fill a cache line
                prefetch_address(b, group.at(self.w, column, v))

    def groups(self, build: Callable[[_Group], None]) -> None:
        """Cover the classes by groups of vectors: `build` is called for each size a group may have."""
        b = self.builder
        most = _VECTOR_BYTES // (4 if isinstance(self.element, ir.FloatType) else 8)
        # Up to four classes: half vectors, so that little is masked.
        with b.if_else(b.icmp_signed("<=", self.width, INT64(4))) as (few, many):
            with few:
                build(_Group(b, self.element, 4, 1, INT64(0), self.width))
            with many, cgutils.for_range_slice(b, INT64(0), self.width, INT64(_GROUP * most)) as (first, _):
                count = b.sdiv(b.sub(b.add(b.sub(self.width, first), INT64(most)), INT64(1)), INT64(most))
                for size in range(1, _GROUP + 1):
                    with b.if_then(b.icmp_signed("==" if size < _GROUP else ">=", count, INT64(size))):
                        build(_Group(b, self.element, most, size, first, self.width))

    def _column(self, p: Any) -> Any:
        return self.builder.zext(self.builder.load(self.builder.gep(self.indices, [p])), INT64)


def _of_row(indices: Any, data: Any, w: Any, values: Any, *others: Any) -> Any:
    """Return the signature of a function of a row, weights and values; raise TypingError for other types."""
    for array in (indices, data, w, values):
        if not isinstance(array, types.Array) or array.layout != "C":
            raise errors.TypingError(f"a C-ordered array is needed here, not {array}")
    if w.dtype != values.dtype:
        # Mixed types would need a conversion in the inner loop.
        raise errors.TypingError(f"weights and scores or gradients differ in type: {w}, {values}")
    return types.void(indices, data, types.intp, types.intp, w, values, *others)


def _in_groups(build_group: Callable[..., None]) -> Any:
    """Return the code generator that calls ``build_group(builder, walk, group, *others)`` for each group of vectors."""

    def build(context, builder, signature, args):
        walk = _Walk(context, builder, signature.args, args)
        walk.groups(lambda group: build_group(builder, walk, group, *args[6:]))
        return context.get_dummy_value()

    return build


def _sum_builder(chains_of: Callable[[int], int], add: Callable[..., Any], *, onto: bool = False) -> Any:
    """Return the code generator of a weighted sum of rows of `w`, in chains of additions for a number of vectors.

    ``add(group, value, x, total)`` is the new total; `onto` says that the values (k,) are added to, not set.
    """

    def build_group(builder, walk, group):
        each, zero = range(len(group.masks)), ir.Constant(group.type, None)
        chains, new = chains_of(len(each)), cgutils.alloca_once_value
        first = [group.load_at(walk.values, INT64(0), v) if onto else zero for v in each]
        sums = [[new(builder, zero if chain else first[v]) for v in each] for chain in range(chains)]

        def add_row(p: Any, chain: list[Any]) -> None:
            row, value = walk.non_zero(p, group)
            for v, total in enumerate(chain):
                builder.store(add(group, value, group.load_at(walk.w, row, v), builder.load(total)), total)
            if not onto:
                walk.prefetch(p, group)

        length = builder.sub(walk.stop, walk.start)
        # The length rounded down to whole turns of the chains.
        paired = builder.add(walk.start, builder.and_(length, INT64(-chains)))
        with cgutils.for_range_slice(builder, walk.start, paired, INT64(chains)) as (p, _):
            for step, chain in enumerate(sums):
                add_row(builder.add(p, INT64(step)), chain)
        # The non-zeros left over belong to the first chain.
        with cgutils.for_range_slice(builder, paired, walk.stop, INT64(1)) as (p, _):
            add_row(p, sums[0])
        for v in each:
            total = builder.load(sums[0][v])
            # Chains are added in their order: part of the promise of equal bits.
            for chain in sums[1:]:
                total = builder.fadd(total, builder.load(chain[v]))
            group.store_at(total, walk.values, INT64(0), v)

    return _in_groups(build_group)


@intrinsic
def row_dot(_context, indices, data, start, stop, w, z):
    """Set ``z[c] = sum_p data[p] * w[indices[p], c]``."""
    # a single chain of few sums is bound by the latency of additions
    build = _sum_builder(lambda count: 2 if count <= _PAIRED else 1, _Group.multiply_add)
    return _of_row(indices, data, w, z), build


@intrinsic
def row_dot_paired(_context, indices, data, start, stop, w, z):
    """Do the same for weights side by side, with the bits that up to `most_paired` of them have by themselves."""
    return _of_row(indices, data, w, z), _sum_builder(lambda _: 2, _Group.multiply_add)


def most_paired(dtype: Any) -> int:
    """Return the most outputs whose scores are added up in two chains, of even and of odd non-zeros."""
    return _PAIRED * _VECTOR_BYTES // int(np.dtype(dtype).itemsize)


@intrinsic
def rows_add(_context, indices, data, start, stop, w, total):
    """Add ``data[p] * w[indices[p]]`` to `total` (k,), one p after the other, each as `row_add` would."""
    return _of_row(indices, data, w, total), _sum_builder(lambda _: 1, _Group.multiply_add, onto=True)


@intrinsic
def rows_add_pairs(_context, indices, data, start, stop, w, total):
    """Do the same, each as `row_add_pairs` would."""

    def add(group, value, x, old):
        return group.builder.fadd(old, group.builder.fmul(value, x))

    return _of_row(indices, data, w, total), _sum_builder(lambda _: 1, add, onto=True)


def _add_builder(*, apart: bool) -> Any:
    """Return the code generator of additions to the weights of a row's features."""

    def build_group(builder, walk, group, factor):
        by, zero, each = group.splat(factor), ir.Constant(group.type, None), range(len(group.masks))
        values = [group.load_at(walk.values, INT64(0), v) for v in each]
        steps = [builder.fmul(by, value) for value in values]
        # An inactive output must keep its bits: adding zero would turn -0 into 0.
        moved = [builder.fcmp_unordered("!=", step, zero) for step in steps]  # true of a NaN
        with cgutils.for_range_slice(builder, walk.start, walk.stop, INT64(1)) as (p, _):
            column, value = walk.non_zero(p, group)
            old = [group.load_at(walk.w, column, v) for v in each]
            for v, step in enumerate(steps):
                if apart:
                    total = builder.fadd(old[v], builder.fmul(value, step))
                    total = builder.select(moved[v], total, old[v])
                else:
                    total = group.multiply_add(value, step, old[v])
                group.store_at(total, walk.w, column, v)
            if apart:  # fused ones were not faster for it
                walk.prefetch(p, group)

    return _in_groups(build_group)


@intrinsic
def row_add(_context, indices, data, start, stop, w, g, factor):
    """Add ``data[p] * (factor * g[c])`` to ``w[indices[p], c]``."""
    return _of_row(indices, data, w, g, w.dtype), _add_builder(apart=False)


@intrinsic
def row_add_pairs(_context, indices, data, start, stop, w, g, factor):
    """Do the same for pairs of outputs, of models side by side: g is zero outside of them."""
    # the bits of `row_axpy_pair`: a product is rounded before it is added, and all outside of the pairs stays as it is
    return _of_row(indices, data, w, g, w.dtype), _add_builder(apart=True)
