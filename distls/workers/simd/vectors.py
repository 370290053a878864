"""Several floats as one value of the processor, for kernels: written like a number, computed all at once.

A `Vector` has + - * / (with numbers too, which stand in every lane), abs, floor, root, and comparisons, which give a
`Mask`. `select`, `any_of` and the rest also take numbers, so the same function may be written once for a number and for
vectors of either float type. LLVM does not find this form by itself in loops over few classes: it would need a dozen of
them for one turn of a loop.

Arrays are read and written from a place on; lanes beyond the end are left alone.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="misc, no-untyped-call"
import operator
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils, errors
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_jitable, register_model

from distls.workers.simd.vector_builder import INT1, INT64, VectorBuilder

F64_PER_VECTOR = 4  # longer vectors store across cache lines
_DOUBLE, _START = ir.DoubleType(), INT64(0)


@register_jitable
def padded(k: int) -> int:
    """Return k rounded up to whole vectors of float64."""
    return (k + F64_PER_VECTOR - 1) // F64_PER_VECTOR * F64_PER_VECTOR


class VectorType(types.Type):
    """The type of vectors of so many numbers."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")


class MaskType(types.Type):
    """The type of what comparisons of vectors give."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Mask({lanes})")


VECTOR, MASK = VectorType(types.float64, F64_PER_VECTOR), MaskType(F64_PER_VECTOR)


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(manager[kind.dtype].get_value_type(), kind.lanes))


@register_model(MaskType)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(INT1, kind.lanes))


# ---------------------------------------------------------------- operators


def _vector_among(*kinds: Any) -> Any:
    """Return the type of the vectors among types that are else of numbers; None if there is no such type."""
    found = {kind for kind in kinds if isinstance(kind, VectorType)}
    others = [kind for kind in kinds if kind not in found]
    # Vectors of two types do not mix: a conversion would be hidden.
    return found.pop() if len(found) == 1 and all(isinstance(k, types.Number) for k in others) else None


def _widened(context: Any, builder: Any, kind: Any, value: Any, vector: Any) -> Any:
    """Build an operand as a vector of this type, or number."""
    if kind == vector:
        return value
    if not isinstance(vector, VectorType):
        return context.cast(builder, value, kind, vector)
    one = context.cast(builder, value, kind, vector.dtype)
    return VectorBuilder(builder, one.type, vector.lanes).splat(one)


def _operator(function: Any, build: Callable[..., Any], *, compares: bool = False) -> None:
    """Teach numba an operator of a vector, of two vectors, or of a vector and a number."""

    class _Template(AbstractTemplate):
        key = function

        def generic(self, args: Any, _kws: Any) -> Any:
            # None tells numba that this operator is not ours.
            vector = _vector_among(*args)
            return vector and signature(MaskType(vector.lanes) if compares else vector, *args)

    infer_global(function)(_Template)

    def lower(context: Any, builder: Any, called: Any, args: Any) -> Any:
        vector = _vector_among(*called.args)
        pairs = zip(called.args, args, strict=True)
        return build(builder, *(_widened(context, builder, *pair, vector) for pair in pairs))

    for kinds in ((VectorType,), (VectorType, VectorType), (VectorType, types.Number), (types.Number, VectorType)):
        lower_builtin(function, *kinds)(lower)


def _on_each(name: str) -> Callable[[Any, Any], Any]:
    """Return the code generator that calls an intrinsic of LLVM on a float or each lane."""
    return lambda builder, value: VectorBuilder.like(builder, value).call(name, value)


for _function, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
    (operator.neg, "fneg"),
):
    _operator(_function, lambda builder, *pair, name=_name: getattr(builder, name)(*pair))
for _function, _sign in ((operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.ge, ">=")):
    _operator(_function, lambda builder, *pair, s=_sign: builder.fcmp_ordered(s, *pair), compares=True)
# as of numbers: a NaN differs from everything
_operator(operator.ne, lambda builder, *pair: builder.fcmp_unordered("!=", *pair), compares=True)
_operator(abs, _on_each("fabs"))


def elementwise_intrinsic(build: Callable[[Any, Any], Any]) -> Any:
    """Return the function of a float or each lane that is built so."""

    def of_kind(_context: Any, x: Any) -> Any:
        return x(x), lambda _context, builder, _signature, args: build(builder, args[0])

    return intrinsic(of_kind)


floor_of = elementwise_intrinsic(_on_each("floor"))
root_of = elementwise_intrinsic(_on_each("sqrt"))


@intrinsic
def fused(_context, a, x, y):
    """Return ``a * x + y``, rounded once, of vectors and of numbers; of numbers of two types a float64."""
    numbers = types.float32 if {a, x, y} == {types.float32} else types.float64
    result = _vector_among(a, x, y) or numbers

    def build(context, builder, signature, args):
        pairs = zip(signature.args, args, strict=True)
        same = [_widened(context, builder, *pair, result) for pair in pairs]
        return VectorBuilder.like(builder, same[0]).call("fma", *same)

    return result(a, x, y), build


@intrinsic
def like(_context, x, number):
    """Return a number in the type of x, in every lane if that is a vector."""

    def build(context, builder, signature, args):
        return _widened(context, builder, signature.args[1], args[1], x)

    return x(x, number), build


@intrinsic
def select(_context, condition, a, b):
    """Return `a` where a condition or a mask is true, else `b`; of numbers of two types a float64."""
    if isinstance(condition, MaskType):
        # Of two numbers a mask gives a vector of float64.
        result = _vector_among(a, b) or VectorType(types.float64, condition.lanes)
    else:
        result = a if a == b and isinstance(a, types.Float) else types.float64

    def build(context, builder, signature, args):
        pairs = zip(signature.args[1:], args[1:], strict=True)
        return builder.select(args[0], *(_widened(context, builder, *pair, result) for pair in pairs))

    return result(condition, a, b), build


@intrinsic
def any_of(_context, mask):
    """Return whether a condition is true, or a mask anywhere."""

    def build(_context, builder, _signature, args):
        if mask == types.boolean:
            return args[0]
        # A mask is as many bits as it has lanes.
        bits = ir.IntType(mask.lanes)
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], bits), bits(0))

    return types.boolean(mask), build


# ---------------------------------------------------------------- lanes


@intrinsic
def splat(_context, x):
    """Return the vector of float64 with a number in every lane."""
    return VECTOR(x), lambda context, builder, _s, args: _widened(context, builder, x, args[0], VECTOR)


@intrinsic(prefer_literal=True)
def splat_lanes(_context, x, lanes):
    """Return the vector of so many lanes, a constant, with a number in each, in the number's type."""
    result = VectorType(x, lanes.literal_value)
    return result(x, lanes), lambda context, builder, _s, args: _widened(context, builder, x, args[0], result)


def _mask_of(comparison: str) -> Any:
    def of_number(_context: Any, n: Any) -> Any:
        def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return VectorBuilder(builder, _DOUBLE, F64_PER_VECTOR).numbered(comparison, args[0])

        return MASK(types.int64), build

    return intrinsic(of_number)


lanes_below = _mask_of("<")  # the mask of the first n lanes, of all of them where n is larger
is_lane = _mask_of("==")  # the mask that is true in lane n alone, nowhere if there is no such lane


def _by_halves(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Return the function that combines the halves of a vector, then those of what is left, and so on."""

    def of_vector(_context: Any, vector: Any) -> Any:
        def build(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            # A fixed tree of additions, the same as on any processor.
            left = args[0]
            while left.type.count > 1:
                left = combine(builder, *VectorBuilder.like(builder, left).halves(left))
            return builder.extract_element(left, INT64(0))

        return vector.dtype(vector), build

    return intrinsic(of_vector)


sum_of_lanes = _by_halves(lambda builder, a, b: builder.fadd(a, b))
# which one is the largest where there is a NaN is left open
max_of_lanes = _by_halves(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


# ---------------------------------------------------------------- memory


def _check(array: Any) -> None:
    if not isinstance(array, types.Array) or array.ndim != 1 or array.layout != "C":
        raise errors.TypingError(f"a C-ordered array of one dimension is needed here, not {array}")
    if array.dtype not in (types.float32, types.float64):
        raise errors.TypingError(f"an array of floats is needed here, not {array}")


def _opened(context: Any, builder: Any, kind: Any, array: Any, lanes: int, first: Any = _START) -> Any:
    """Return the builder of vectors of an array's own type, an address, and the numbers from there to the end."""
    made = context.make_array(kind)(context, builder, array)
    own = VectorBuilder(builder, context.get_data_type(kind.dtype), lanes)
    size = cgutils.unpack_tuple(builder, made.shape)[0]
    return own, own.address(made.data, first), builder.sub(size, first)


def _to_the_end(own: VectorBuilder, left: Any, build: Callable[[Any], None]) -> None:
    """Build what is done without a mask where a whole vector is left, and what is done with one where less is."""
    # Whole vectors are by far the most frequent.
    whole = own.builder.icmp_signed(">=", left, INT64(own.lanes))
    with own.builder.if_else(whole, likely=True) as (all_lanes, first_lanes):
        with all_lanes:
            build(None)
        with first_lanes:
            build(own.numbered("<", left))


@intrinsic
def load(_context, array, first, fill):
    """Return the numbers of an array from `first` on as float64, and `fill` beyond its end."""
    _check(array)

    def build(context, builder, signature, args):
        own, address, left = _opened(context, builder, signature.args[0], args[0], F64_PER_VECTOR, args[1])
        result = cgutils.alloca_once(builder, own.of(_DOUBLE))

        def read(mask):
            value = own.converted(own.load(address, mask), own.of(_DOUBLE))
            builder.store(value if mask is None else builder.select(mask, value, own.splat(args[2])), result)

        _to_the_end(own, left, read)
        return builder.load(result)

    return VECTOR(array, types.intp, types.float64), build


@intrinsic
def store(_context, vector, array, first):
    """Set an array from `first` on to the lanes of a vector of float64; return them as rounded to its type."""
    _check(array)

    # Converted back from the rounded type: callers go on with what is in memory.
    def build(context, builder, signature, args):
        own, address, left = _opened(context, builder, signature.args[1], args[1], F64_PER_VECTOR, args[2])
        value = own.converted(args[0], own.type)
        _to_the_end(own, left, lambda mask: own.store(value, address, mask))
        return own.converted(value, own.of(_DOUBLE))

    return VECTOR(VECTOR, array, types.intp), build


@intrinsic(prefer_literal=True)
def load_whole(_context, array, first, lanes):
    """Return `lanes` numbers of an array from `first` on, a constant, in its own type; so many must be there."""
    _check(array)
    result = VectorType(array.dtype, lanes.literal_value)

    def build(context, builder, signature, args):
        own, address, _ = _opened(context, builder, signature.args[0], args[0], result.lanes, args[1])
        return own.load(address)

    return result(array, types.intp, lanes), build


@intrinsic
def load_as(_context, array, first, skipped, vector):
    """Return the numbers of an array from `first` on in a vector's lanes and type, zeros for the first `skipped`."""
    # Whole vectors only: so many numbers must be there.
    _check(array)

    def build(context, builder, signature, args):
        own, address, _ = _opened(context, builder, signature.args[0], args[0], vector.lanes, args[1])
        value = own.converted(own.load(address), args[3].type)
        return builder.select(own.numbered(">=", args[2]), value, ir.Constant(value.type, None))

    return vector(array, types.intp, types.intp, vector), build


@intrinsic
def gathered(_context, array, indices, first, vector):
    """Return the numbers of a C-ordered array at the places `indices` from `first` on, of its type, likewise."""

    def build(context, builder, signature, args):
        data, places = (
            context.make_array(kind)(context, builder, each).data
            for kind, each in zip(signature.args[:2], args[:2], strict=True)
        )
        own, kind = VectorBuilder.like(builder, args[3]), context.get_data_type(indices.dtype)
        address = builder.bitcast(builder.gep(places, [args[2]]), own.of(kind).as_pointer())
        found = builder.load(address, align=indices.dtype.bitwidth // 8)
        return own.gather(data, builder.zext(found, own.of(INT64)))

    return vector(array, indices, types.intp, vector), build


@intrinsic
def store_whole(_context, vector, array):
    """Set as many numbers of an array of the vector's type as it has lanes; return the vector."""
    _check(array)

    def build(context, builder, signature, args):
        own, address, _ = _opened(context, builder, signature.args[1], args[1], vector.lanes)
        own.store(args[0], address)
        return args[0]

    return vector(vector, array), build
