"""AdaGrad's decay and steps of a feature: of one model, or of `LANES` models in the lanes of one vector.

Both are built by the same function, from one sequence of operations, so that a model has the same bits among others
as alone. The models' numbers of a feature are contiguous in memory, a *line*, ``lines[j]`` (2 + k, LANES): the sums of
squares, the factors of its weights, and the weights of each of k outputs. Lanes without a model are idle.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
SQUARES, FACTORS, WEIGHTS = 0, 1, 2  # places in a line, the last that of the first output
TINY = 1e-18  # avoids 0/0, far below the root of any sum of squares that matters
SMALLEST_FACTOR = 1e-4  # smaller ones are folded into the weights, which grow as factors shrink

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)
_FLAGS = ("contract", "nsz")  # as in `elementwise`
_LOG2_E = 1.4426950408889634


def _exp2_coefficients(degree: int) -> list[float]:
    """Return the polynomial that is 2^f on [-1/2, 1/2]."""
    series = np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return [float(c) for c in series.convert(kind=np.polynomial.Polynomial).coef]


# by the bytes of a number: mantissa bits, bias of the exponent, the least exponent, 2^f to the last bit
_FORMS = {4: (23, 127, -60.0, _exp2_coefficients(6)), 8: (52, 1023, -1000.0, _exp2_coefficients(11))}


class _Numbers:
    """Builds operations on numbers, or on vectors of them."""

    def __init__(self, builder: Any, element: Any, lanes: int) -> None:
        self.builder, self.element, self.lanes = builder, element, lanes
        self.size = 4 if isinstance(element, ir.FloatType) else 8
        self.type = self._of(element)

    def _of(self, element: Any) -> Any:
        return ir.VectorType(element, self.lanes) if self.lanes > 1 else element

    def constant(self, value: float, element: Any = None) -> Any:
        """Return a constant, the same in every lane."""
        if element is None:
            element, value = self.element, float(np.float32(value)) if self.size == 4 else value
        return ir.Constant(self._of(element), [value] * self.lanes if self.lanes > 1 else value)

    def splat(self, number: Any) -> Any:
        """Return a vector with `number` in every lane."""
        empty = ir.Constant(self.type, ir.Undefined)
        one = self.builder.insert_element(empty, number, _INT32(0))
        return self.builder.shuffle_vector(
            one, empty, ir.Constant(ir.VectorType(_INT32, self.lanes), [0] * self.lanes)
        )

    def add(self, x: Any, y: Any) -> Any:
        """Return ``x + y``."""
        return self.builder.fadd(x, y, flags=_FLAGS)

    def multiply(self, x: Any, y: Any) -> Any:
        """Return ``x y``."""
        return self.builder.fmul(x, y, flags=_FLAGS)

    def multiply_add(self, a: Any, x: Any, y: Any) -> Any:
        """Return ``a x + y``."""
        return self.add(self.multiply(a, x), y)

    def divide(self, x: Any, y: Any) -> Any:
        """Return ``x / y``."""
        return self.builder.fdiv(x, y, flags=_FLAGS)

    def _call(self, name: str, x: Any) -> Any:
        kind = ir.FunctionType(self.type, [self.type])
        suffix = f"{f'v{self.lanes}' if self.lanes > 1 else ''}f{8 * self.size}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}.{suffix}")
        return self.builder.call(function, [x])

    def root(self, square: Any) -> Any:
        """Return the root, never zero."""
        return self.add(self._call("sqrt", square), self.constant(TINY))

    def exp_of_minus(self, x: Any) -> Any:
        """Return exp(-x) of x >= 0, or a number too small to matter; NaN propagates."""
        b, (bits, bias, least, coefficients) = self.builder, _FORMS[self.size]
        t, low = self.multiply(x, self.constant(-_LOG2_E)), self.constant(least)
        t = b.select(b.fcmp_ordered("<", t, low), low, t)
        whole = self._call("floor", self.add(t, self.constant(0.5)))
        f, power = b.fsub(t, whole, flags=_FLAGS), self.constant(coefficients[-1])
        for c in coefficients[-2::-1]:
            power = self.multiply_add(f, power, self.constant(c))
        integer = ir.IntType(8 * self.size)
        exponent = b.add(b.fptosi(whole, self._of(integer)), self.constant(bias, integer))
        return self.multiply(power, b.bitcast(b.shl(exponent, self.constant(bits, integer)), self.type))

    def decayed(self, factor: Any, missed: Any, rate: Any, squares: Any) -> Any:
        """Build `decayed`."""
        step, zero = self.divide(self.multiply(missed, rate), self.root(squares)), self.constant(0.0)
        step = self.builder.select(self.builder.fcmp_ordered(">", squares, zero), step, zero)
        return self.multiply(factor, self.exp_of_minus(step))

    def added_square(self, squares: Any, square: Any, x: Any) -> Any:
        """Build `added_square`."""
        return self.multiply_add(self.multiply(square, x), x, squares)

    def step_by(self, eta: Any, x: Any, squares: Any, factor: Any) -> Any:
        """Build `step_by`."""
        return self.divide(self.multiply(eta, x), self.multiply(self.root(squares), factor))


def _of_numbers(name: str) -> Any:
    """Return the code generator that calls a method of `_Numbers`."""

    def build(context, builder, signature, args):
        element = context.get_data_type(signature.return_type)
        return getattr(_Numbers(builder, element, 1), name)(*args)

    return build


@intrinsic
def decayed(_context, factor, missed, rate, squares):
    """Return ``factor exp(-missed rate / sqrt(squares))``: what a feature's weights are to be multiplied by."""
    return factor(factor, factor, factor, factor), _of_numbers("decayed")


@intrinsic
def added_square(_context, squares, square, x):
    """Return ``squares + square x^2``."""
    return squares(squares, squares, squares), _of_numbers("added_square")


@intrinsic
def step_by(_context, eta, x, squares, factor):
    """Return ``eta x / (sqrt(squares) factor)``."""
    return eta(eta, eta, eta, eta), _of_numbers("step_by")


# ---------------------------------------------------------------- lines


class _Line(_Numbers):
    """The line of a feature; the arguments start with lines (d, 2 + k, LANES) and j."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        super().__init__(builder, context.get_data_type(signature.args[0].dtype), LANES)
        self._context, self._kinds, self._args = context, signature.args, args
        lines = context.make_array(signature.args[0])(context, builder, args[0])
        self.height = cgutils.unpack_tuple(builder, lines.shape)[1]
        self.data = builder.gep(lines.data, [builder.mul(args[1], builder.mul(self.height, _INT64(LANES)))])

    def array(self, n: int) -> Any:
        """Return the address of the array that is argument `n`."""
        return self._context.make_array(self._kinds[n])(self._context, self.builder, self._args[n]).data

    def pointer(self, data: Any, place: Any) -> Any:
        """Return the address of a vector."""
        b = self.builder
        return b.bitcast(b.gep(data, [b.mul(place, _INT64(LANES))]), self.type.as_pointer())

    def load(self, pointer: Any) -> Any:
        """Load a vector."""
        return self.builder.load(pointer, align=self.size)

    def store(self, value: Any, pointer: Any) -> None:
        """Store a vector."""
        self.builder.store(value, pointer, align=self.size)

    def own(self, place: int) -> Any:
        """Return the address of the sums of squares, or of the factors."""
        return self.pointer(self.data, _INT64(place))

    def given(self, n: int) -> Any:
        """Load argument `n`, an array with a number for each lane."""
        return self.load(self.pointer(self.array(n), _INT64(0)))

    @property
    def outputs(self) -> Any:
        """The number of outputs k."""
        return self.builder.sub(self.height, _INT64(WEIGHTS))

    def each_output(self) -> Any:
        """Loop over the outputs."""
        return cgutils.for_range_slice(self.builder, _INT64(0), self.outputs, _INT64(1))

    def weights(self, c: Any) -> Any:
        """Return the address of the weights of output c."""
        return self.pointer(self.data, self.builder.add(c, _INT64(WEIGHTS)))


@intrinsic
def decay_line(_context, lines, j, missed, rates):
    """Apply `decayed` to the factors of a feature; return whether one is now below `SMALLEST_FACTOR`."""

    def build(context, builder, signature, args):
        line = _Line(context, builder, signature, args)
        place = line.own(FACTORS)
        factors = line.decayed(
            line.load(place), line.splat(args[2]), line.given(3), line.load(line.own(SQUARES))
        )
        line.store(factors, place)
        small = builder.fcmp_ordered("<", factors, line.constant(SMALLEST_FACTOR))
        every = ir.IntType(LANES)
        return builder.icmp_unsigned("!=", builder.bitcast(small, every), every(0))

    return types.boolean(lines, types.intp, lines.dtype, rates), build


@intrinsic
def add_line_scores(_context, lines, j, x, sums, chain):
    """Add the scores of a non-zero x to ``sums[chain]``, sums (2, k, LANES)."""

    def build(context, builder, signature, args):
        line = _Line(context, builder, signature, args)
        value = line.multiply(line.splat(args[2]), line.load(line.own(FACTORS)))
        sums = builder.gep(line.array(3), [builder.mul(args[4], builder.mul(line.outputs, _INT64(LANES)))])
        with line.each_output() as (c, _):
            total = line.pointer(sums, c)
            line.store(line.multiply_add(value, line.load(line.weights(c)), line.load(total)), total)
        return context.get_dummy_value()

    return types.void(lines, types.intp, lines.dtype, sums, types.intp), build


@intrinsic
def move_line(_context, lines, j, x, squares, etas, gradients):
    """Do the steps of a non-zero x, with `added_square` and `step_by`; gradients (k, LANES)."""

    def build(context, builder, signature, args):
        line = _Line(context, builder, signature, args)
        x, place = line.splat(args[2]), line.own(SQUARES)
        total = line.added_square(line.load(place), line.given(3), x)
        line.store(total, place)
        step = line.step_by(line.given(4), x, total, line.load(line.own(FACTORS)))
        gradients = line.array(5)
        with line.each_output() as (c, _):
            moved = line.multiply(step, line.load(line.pointer(gradients, c)))
            weights = line.weights(c)
            line.store(builder.fsub(line.load(weights), moved, flags=_FLAGS), weights)
        return context.get_dummy_value()

    return types.void(lines, types.intp, lines.dtype, squares, etas, gradients), build
