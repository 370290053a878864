"""Four float64 numbers as one value of the processor, for kernels: written like a number, computed four at a time.

A `Vector` has + - * / (with floats too, which stand in every lane), abs, floor, and comparisons, which give a `Mask`.
`select` and `any_of` also take numbers, so the same function may be written once for a number and for a vector.
LLVM does not find this form by itself in loops over few classes: it would need a dozen of them for one turn of a loop.

Arrays are read and written from a place on, in their own type; lanes beyond the end are left alone.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="misc, no-untyped-call"
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils, errors
from numba.core.datamodel.models import PrimitiveModel
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_jitable, register_model

LANES = 4  # of 64 bits; longer vectors store across cache lines
_INT1, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 32, 64))
_DOUBLES, _BITS, _LONGS = (ir.VectorType(kind, LANES) for kind in (ir.DoubleType(), _INT1, _INT64))


@register_jitable
def padded(k: int) -> int:
    """Return k rounded up to whole vectors."""
    return (k + LANES - 1) // LANES * LANES


class _VectorType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Vector")


class _MaskType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Mask")


VECTOR, MASK = _VectorType(), _MaskType()


@register_model(_VectorType)
class _VectorModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _DOUBLES)


@register_model(_MaskType)
class _MaskModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _BITS)


# ---------------------------------------------------------------- operators


def _lanes_of(builder: Any, scalar: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _INT32(0))
    zeros = ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


def _widened(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Build the vector of an operand, which may be a number."""
    if kind == VECTOR:
        return value
    return _lanes_of(builder, context.cast(builder, value, kind, types.float64), _DOUBLES)


def _operator(function: Any, result: Any, build: Callable[[Any, Any, Any], Any]) -> None:
    """Teach numba an operator of two vectors, or of a vector and a number."""

    class _Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, _kws: Any) -> Any:
            if VECTOR in args and all(arg == VECTOR or isinstance(arg, types.Number) for arg in args):
                return signature(result, *args)
            return None

    infer_global(function)(_Template)

    def lower(context: Any, builder: Any, called: Any, args: Any) -> Any:
        pair = zip(called.args, args, strict=True)
        return build(builder, *(_widened(context, builder, kind, value) for kind, value in pair))

    for kinds in ((VECTOR, VECTOR), (VECTOR, types.Number), (types.Number, VECTOR)):
        lower_builtin(function, *kinds)(lower)


for _function, _name in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv"),
):  # fmt: skip
    _operator(_function, VECTOR, lambda builder, a, b, name=_name: getattr(builder, name)(a, b))
for _function, _sign in ((operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.ge, ">=")):
    _operator(_function, MASK, lambda builder, a, b, sign=_sign: builder.fcmp_ordered(sign, a, b))
# as of numbers: a NaN differs from everything
_operator(operator.ne, MASK, lambda builder, a, b: builder.fcmp_unordered("!=", a, b))


def _unary(function: Any, build: Callable[[Any, Any], Any]) -> None:
    """Teach numba an operator of one vector."""

    class _Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, _kws: Any) -> Any:
            return signature(VECTOR, VECTOR) if tuple(args) == (VECTOR,) else None

    infer_global(function)(_Template)

    def lower(_context: Any, builder: Any, _called: Any, args: Any) -> Any:
        return build(builder, args[0])

    lower_builtin(function, VECTOR)(lower)


def _called_on(builder: Any, name: str, value: Any) -> Any:
    """Build a call of an intrinsic of LLVM on a float64 or a vector."""
    suffix = f"v{LANES}f64" if isinstance(value.type, ir.VectorType) else "f64"
    kind = ir.FunctionType(value.type, [value.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.{suffix}"), [value])


_unary(abs, lambda builder, a: _called_on(builder, "llvm.fabs", a))
_unary(operator.neg, lambda builder, a: builder.fneg(a))


@intrinsic
def floor_of(_context, x):
    """Return the largest whole number that is no larger than a float64 or each lane."""
    return x(x), lambda _context, builder, _signature, args: _called_on(builder, "llvm.floor", args[0])


@intrinsic
def select(_context, condition, a, b):
    """Return `a` where a condition or a mask is true, else `b`."""
    result = types.float64 if condition == types.boolean else VECTOR

    def build(context, builder, signature, args):
        pair = zip(signature.args[1:], args[1:], strict=True)
        if result == VECTOR:
            own, other = (_widened(context, builder, kind, value) for kind, value in pair)
        else:
            own, other = (context.cast(builder, value, kind, result) for kind, value in pair)
        return builder.select(args[0], own, other)

    return result(condition, a, b), build


@intrinsic
def any_of(_context, mask):
    """Return whether a condition is true, or a mask anywhere."""

    def build(_context, builder, _signature, args):
        if mask == types.boolean:
            return args[0]
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], ir.IntType(LANES)), ir.IntType(LANES)(0))

    return types.boolean(mask), build


# ---------------------------------------------------------------- lanes


@intrinsic
def splat(_context, x):
    """Return the vector with a number in every lane."""
    return VECTOR(x), lambda context, builder, _signature, args: _widened(context, builder, x, args[0])


def _ramp(builder: Any, n: Any) -> Any:
    """Build the mask of the first n lanes."""
    numbers = ir.Constant(_LONGS, list(range(LANES)))
    return builder.icmp_signed("<", numbers, _lanes_of(builder, n, _LONGS))


@intrinsic
def lanes_below(_context, n):
    """Return the mask of the first n lanes, of all of them where n is larger."""
    return MASK(types.int64), lambda _context, builder, _signature, args: _ramp(builder, args[0])


@intrinsic
def is_lane(_context, n):
    """Return the mask that is true in lane n alone, nowhere if there is no such lane."""

    def build(_context, builder, _signature, args):
        numbers = ir.Constant(_LONGS, list(range(LANES)))
        return builder.icmp_signed("==", numbers, _lanes_of(builder, args[0], _LONGS))

    return MASK(types.int64), build


def _lanes(builder: Any, vector: Any) -> list[Any]:
    return [builder.extract_element(vector, _INT32(lane)) for lane in range(LANES)]


@intrinsic
def sum_of_lanes(_context, vector):
    """Return (lane 0 + lane 1) + (lane 2 + lane 3)."""

    def build(_context, builder, _signature, args):
        a, b, c, d = _lanes(builder, args[0])
        return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))

    return types.float64(VECTOR), build


@intrinsic
def max_of_lanes(_context, vector):
    """Return the largest lane; which one where there is a NaN is left open."""

    def build(_context, builder, _signature, args):
        def larger(a, b):
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        a, b, c, d = _lanes(builder, args[0])
        return larger(larger(a, b), larger(c, d))

    return types.float64(VECTOR), build


# ---------------------------------------------------------------- memory


class _Place:
    """`LANES` numbers of an array of one dimension, from `first` on, of which those before the end exist."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, first: Any) -> None:
        self.builder = builder
        made = context.make_array(kind)(context, builder, array)
        element = context.get_data_type(kind.dtype)
        self.size = 4 if isinstance(element, ir.FloatType) else 8
        self.kind = ir.VectorType(element, LANES)
        self.pointer = builder.bitcast(builder.gep(made.data, [first]), self.kind.as_pointer())
        self.left = builder.sub(cgutils.unpack_tuple(builder, made.shape)[0], first)

    def whole(self) -> Any:
        return self.builder.icmp_signed(">=", self.left, _INT64(LANES))

    def masked(self, what: str, result: Any, args: list[Any]) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        name = f"llvm.masked.{what}.v{LANES}f{8 * self.size}.p0"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)


def _check(array: Any) -> None:
    if not isinstance(array, types.Array) or array.ndim != 1 or array.layout != "C":
        raise errors.TypingError(f"a C-ordered array of one dimension is needed here, not {array}")
    if array.dtype not in (types.float32, types.float64):
        raise errors.TypingError(f"an array of floats is needed here, not {array}")


@intrinsic
def load(_context, array, first, fill):
    """Return the numbers of an array from `first` on as float64, and `fill` beyond its end."""
    _check(array)

    def build(context, builder, signature, args):
        place = _Place(context, builder, signature.args[0], args[0], args[1])
        result = cgutils.alloca_once(builder, _DOUBLES)

        def widened(value):
            return value if place.size == 8 else builder.fpext(value, _DOUBLES)

        with builder.if_else(place.whole(), likely=True) as (whole, part):
            with whole:
                builder.store(widened(builder.load(place.pointer, align=place.size)), result)
            with part:
                mask, none = _ramp(builder, place.left), ir.Constant(place.kind, None)
                value = place.masked("load", place.kind, [place.pointer, _INT32(place.size), mask, none])
                builder.store(
                    builder.select(mask, widened(value), _lanes_of(builder, args[2], _DOUBLES)), result
                )
        return builder.load(result)

    return VECTOR(array, types.intp, types.float64), build


@intrinsic
def store(_context, vector, array, first):
    """Set an array from `first` on to the lanes of a vector; return them as rounded to its type."""
    _check(array)

    def build(context, builder, signature, args):
        place = _Place(context, builder, signature.args[1], args[1], args[2])
        value = args[0] if place.size == 8 else builder.fptrunc(args[0], place.kind)
        with builder.if_else(place.whole(), likely=True) as (whole, part):
            with whole:
                builder.store(value, place.pointer, align=place.size)
            with part:
                mask = _ramp(builder, place.left)
                place.masked("store", ir.VoidType(), [value, place.pointer, _INT32(place.size), mask])
        return value if place.size == 8 else builder.fpext(value, _DOUBLES)

    return VECTOR(VECTOR, array, types.intp), build
