"""GEN of Algorithm 3 (least squares revisited): blocks of features, pure functions of a row and of (seed, stage).

Random features are regenerated wherever they are needed, never stored and never sent. A block comes in batches of a
fixed number of rows, so that products over it are the same everywhere and fit in the processor's cache.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.features.convolution import Convolution, convolve
from distls.workers.features.feature_kernels import cosines, logits, times_shifted
from distls.workers.features.generator_registry import BUILT_IN, drawn_by, registered_generator
from distls.workers.linear_algebra.column_selection import columns_of_csr
from distls.workers.linear_algebra.gram_kernels import fill_dense
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.runtime.buffers import borrowed_buffers, take
from distls.workers.runtime.rng import Purpose, rng

# Rows of a batch: part of the promise of equal bits, because sums in another order have other last bits. So few that
# a thousand features of them stay in a core's own cache until they are multiplied.
PIECE_ROWS = 512

GIVEN = ("all", "columns", "masks")  # kinds that draw nothing

# Variance of the offsets within the logistic function, and of those of a polynomial's factors.
_LOGIT_OFFSET = 1.0
_POLYNOMIAL_OFFSET = 0.5
# Scale of polynomials next to the features of filters: a ridge on all weights is ten times as strong on theirs (on
# CIFAR-10 0.003 is best for the filters' weights, 0.03 for those of the polynomials).
_EXPANSION_SCALE = math.sqrt(0.1)


@dataclass(frozen=True, eq=False)
class Projection:
    """Principal components."""

    mean: NDArray[np.float64]  # (n_features,)
    components: NDArray[np.float64]  # (n_features, n_components)

    @functools.cached_property
    def digest(self) -> str:
        """Digest that identifies the projection."""
        return hashlib.sha256(self.mean.tobytes() + self.components.tobytes()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Design:
    """A feature map for one block: `convolution` and `projection`, if any, then the map named by `kind`."""

    # one of "all" (the rows as given), "columns", "masks" (filters of a stage), or of `generator_names`
    kind: str = "all"
    size: int = 0  # features of the block; not used by "all"
    seed: int = 0  # random features are drawn from (FEATURES, stage)
    stage: int = 0
    # s of the Gaussian kernel exp(-|x - x'|^2 / s) that "fourier" approximates; "logits" use the same scale, and
    # "polynomials" approximate (x . x' / s + 1/2)^degree
    bandwidth: float = 1.0
    columns: NDArray[np.int64] | None = None  # (size,), increasing, of "columns"
    projection: Projection | None = None
    degree: int = 2  # of "polynomials"
    convolution: Convolution | None = None  # for "masks" that of all stages, or of this one alone
    n_features: int = 0  # width of rows, which sparse ones do not know; 0: of dense rows only
    # of "masks": this many of the block's features, the last, are random polynomials of the others times sqrt(1/10)
    expand: int = 0

    def width(self, n_features: int) -> int:
        """Return the features of the block, for rows of `n_features`."""
        return self.inputs(n_features) if self.kind == "all" else self.size

    def inputs(self, n_features: int) -> int:
        """Return the width of the input of the map named by `kind`."""
        if self.projection is not None:
            return self.projection.components.shape[1]
        return n_features if self.convolution is None else self.convolution.width

    def takes(self, n_features: int) -> bool:
        """Return whether the map applies to rows of `n_features`."""
        width = n_features
        if self.n_features not in (0, n_features):
            return False
        if self.convolution is not None:
            if math.prod(self.convolution.shape) != width:
                return False
            width = self.convolution.width
        if self.projection is not None:
            if len(self.projection.mean) != width:
                return False
            width = self.projection.components.shape[1]
        return self.columns is None or int(self.columns.max(initial=-1)) < width

    def at(self, stage: int) -> Design:
        """Return the feature map of another stage; with "masks" it has only the filters of that stage."""
        return replace(self, stage=stage, convolution=replace(self, stage=stage)._own_convolution())

    def _own_convolution(self) -> Convolution | None:
        width = self.size - self.expand
        if self.kind != "masks" or self.convolution is None or self.convolution.width == width:
            return self.convolution
        return self.convolution.part(self.stage, width // self.convolution.per_filter)

    def work_bytes(self, n_features: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes that `blocks` holds in addition to the rows themselves."""
        size, inputs, width = dtype.itemsize, self.inputs(n_features), self.width(n_features)
        values = PIECE_ROWS * (n_features + inputs + 2 * width)
        own = self._own_convolution()
        convolved = 0 if own is None else own.work_bytes(size) + PIECE_ROWS * own.width * size
        if self.expand and own is not None:
            values += PIECE_ROWS * self.expand
            return values * size + convolved + _drawn_bytes(self.degree, own.width, self.expand, size)
        if self.kind in GIVEN:
            return values * size + convolved
        if self.kind not in BUILT_IN:
            size = 8  # of NumPy's own choice: what is drawn, and the features before they are stored
        factors = self.degree if self.kind == "polynomials" else 1
        return values * size + convolved + _drawn_bytes(factors, inputs, width, size)


def _drawn_bytes(factors: int, inputs: int, width: int, itemsize: int) -> int:
    """Return the bytes of two stages' directions."""
    # the stage added to the predictions and the current one, as `_draw` caches them
    return 2 * factors * (inputs + 1) * width * itemsize + _DRAWN_AT_ONCE * 8


def can_pad(design: Design, x: Rows) -> bool:
    """Return whether `blocks` can append padding columns to the features."""
    # random features are in memory of `blocks`; others may be views of the rows
    mapped = design.convolution is not None or design.projection is not None
    return design.kind in BUILT_IN and (mapped or isinstance(x, DenseRows))


def blocks(design: Design, x: Rows, dtype: np.dtype[Any], padding: int = 0) -> Iterator[tuple[slice, Rows]]:
    """Yield (rows, their features): `DenseRows` of `dtype` and at most PIECE_ROWS rows, or all sparse rows at once.

    The memory of a batch is reused for the next one. `padding` is a number of further columns, to be filled by the
    caller; only if `can_pad`.
    """
    mapped = design.convolution is not None or design.projection is not None
    if isinstance(x, CsrRows) and design.kind in ("all", "columns") and not mapped:
        # Sparse rows in one batch: no dense memory is made of them.
        own = x if design.columns is None else columns_of_csr(x, design.columns)
        yield slice(0, n_rows_of(x)), own._replace(data=own.data.astype(dtype, copy=False))
        return
    with borrowed_buffers() as buffers:
        maker = _FeatureMaker(design, x, np.dtype(dtype), buffers, padding)
        for first in range(0, n_rows_of(x), PIECE_ROWS):
            rows = slice(first, min(first + PIECE_ROWS, n_rows_of(x)))
            yield rows, DenseRows(maker.features(rows))


def shared_projection(designs: Sequence[Design]) -> tuple[Design | None, list[Design]]:
    """Return the projection that all designs share, as a design, and designs of projected rows: the same features.

    Without such a projection, None and the designs unchanged.
    """
    projections = [design.projection for design in designs if design.convolution is None]
    first = projections[0] if len(projections) == len(designs) else None
    # Different projections cannot share one cached form of the rows.
    if first is None or not all(_same(first, other) for other in projections):
        return None, list(designs)
    width = first.components.shape[1]
    rest = [replace(design, projection=None, n_features=width) for design in designs]
    return Design(projection=first, n_features=designs[0].n_features), rest


def project(design: Design, x: Rows, dtype: np.dtype[Any]) -> DenseRows:
    """Return all rows after the projection of `shared_projection`, in memory of their own."""
    out = np.empty((n_rows_of(x), design.width(design.n_features)), dtype)
    for rows, batch in blocks(design, x, dtype):
        out[rows] = batch[0]
    return DenseRows(out)


def _same(one: Projection, other: Projection | None) -> bool:
    if other is None or one is other:
        return one is other
    # By value: designs that were sent and decoded are other objects.
    return np.array_equal(one.mean, other.mean) and np.array_equal(one.components, other.components)


class _FeatureMaker:
    """Computes the features of batches of one block of rows, each in the memory of the one before."""

    def __init__(self, design: Design, x: Rows, dtype: np.dtype[Any], buffers: BufferPool, padding: int = 0) -> None:
        self._design, self._x, self._dtype, self._buffers, self._padding = design, x, dtype, buffers, padding
        self._n_features = x.values.shape[1] if isinstance(x, DenseRows) else design.n_features
        self._convolution = design._own_convolution()
        if design.projection is not None:
            self._components = design.projection.components.astype(dtype, copy=False)
            # subtracted from the products, so that sparse rows stay sparse
            # In float64, then rounded once.
            self._shift = (design.projection.mean @ design.projection.components).astype(dtype)

    def features(self, rows: slice) -> NDArray[Any]:
        """Return the features of some rows, shape (n, width + padding)."""
        design, n = self._design, rows.stop - rows.start
        values = self._mapped(rows)
        if design.expand and values is not None:
            return self._expanded(values)
        if design.kind in ("all", "masks"):
            return self._dense(rows) if values is None else values
        if design.kind == "columns":
            assert design.columns is not None
            out = self._take("features", n, design.size)
            chosen = self._dense(rows) if values is None else values
            # "clip" skips the bounds check; columns have been checked before.
            return np.take(chosen, design.columns, axis=1, out=out, mode="clip")
        inputs = design.inputs(self._n_features)
        if (own := registered_generator(design.kind)) is not None:
            drawn = drawn_by(design.kind, design.seed, design.stage, inputs, design.size)
            out = self._take("features", n, design.size)
            out[:] = own.features(self._dense(rows) if values is None else values, *drawn)
            return out
        degree, stage = design.degree if design.kind == "polynomials" else 1, (design.seed, design.stage)
        kind, size = design.kind, design.size
        factors = _draw(kind, *stage, inputs, size, design.bandwidth, degree, self._dtype.name)
        out = self._times(values, rows, factors[0][0], "features", self._padding)
        if design.kind != "polynomials":
            _ACTIVATIONS[design.kind, self._dtype.name](out, factors[0][1])
            return out
        # The first factor, then products with the others.
        out[:, : design.size] += factors[0][1]
        for directions, offsets in factors[1:]:
            times_shifted(out, self._times(values, rows, directions, "factor"), offsets)
        return out

    def _expanded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the features of filters, followed by random polynomials of them."""
        design, n, width = self._design, len(values), values.shape[1]
        own = Design("polynomials", design.expand, design.seed, design.stage, design.bandwidth, degree=design.degree)
        out = self._take("expanded", n, design.size)
        # In memory of its own, as the polynomials use the other buffers.
        out[:, :width] = values
        for _, polynomials in blocks(own, DenseRows(values), self._dtype):
            np.multiply(polynomials[0], self._dtype.type(_EXPANSION_SCALE), out=out[:, width:])
        return out

    def _mapped(self, rows: slice) -> NDArray[Any] | None:
        """Return rows after convolution and projection; None if there is neither."""
        values, n = None, rows.stop - rows.start
        if self._convolution is not None:
            values = self._take("convolved", n, self._convolution.width)
            convolve(self._convolution, self._dense(rows), values, self._buffers)
        if self._design.projection is not None:
            values = self._times(values, rows, self._components, "projected")
            values -= self._shift
        return values

    def _times(
        self, values: NDArray[Any] | None, rows: slice, matrix: NDArray[Any], name: str, padding: int = 0
    ) -> NDArray[Any]:
        """Return `values`, or else the rows themselves, times a matrix, followed by padding columns."""
        out = self._take(name, rows.stop - rows.start, matrix.shape[1] + padding)
        if values is None and isinstance(self._x, CsrRows):
            return scores(self._x, matrix, np.zeros(matrix.shape[1]), out, rows.start)
        # Products go into the caller's buffer, which leaves its padding alone.
        np.matmul(self._dense(rows) if values is None else values, matrix, out=out[:, : matrix.shape[1]])
        return out

    def _dense(self, rows: slice) -> NDArray[Any]:
        if isinstance(self._x, DenseRows):
            return self._x.values[rows].astype(self._dtype, copy=False)
        out = self._take("rows", rows.stop - rows.start, self._n_features)
        fill_dense(self._x.indptr, self._x.indices, self._x.data, rows.start, out)
        return out

    def _take(self, name: str, n_rows: int, width: int) -> NDArray[Any]:
        return take(self._buffers, name, (n_rows, width), self._dtype)


def _cosines_in_float64(turns: NDArray[np.float64], offsets: NDArray[np.float64]) -> None:
    # Padding columns have no offsets.
    turns = turns[:, : len(offsets)]
    turns += offsets
    turns *= 2.0 * math.pi
    np.cos(turns, out=turns)
    turns *= math.sqrt(2.0)


def _logits_in_float64(z: NDArray[np.float64], offsets: NDArray[np.float64]) -> None:
    z = z[:, : len(offsets)]
    z += offsets
    z *= 0.5
    np.tanh(z, out=z)


_ACTIVATIONS: dict[tuple[str, str], Any] = {
    ("fourier", "float32"): cosines,
    ("fourier", "float64"): _cosines_in_float64,
    ("logits", "float32"): logits,
    ("logits", "float64"): _logits_in_float64,
}

_DRAWN_AT_ONCE = 2**20  # numbers that are drawn in float64 before they are rounded

Factor = tuple[NDArray[Any], NDArray[Any]]


# two stages are in use at a time: one is added to the predictions while the next is fitted
@functools.lru_cache(maxsize=2)
def _draw(
    kind: str, seed: int, stage: int, n_inputs: int, size: int, bandwidth: float, degree: int, dtype: str
) -> list[Factor]:
    """Return directions (n_inputs, size) and offsets (size,) of each factor of a design's features."""
    # Drawn from (seed, stage): every worker and every read makes the same features.
    generator = rng(seed, Purpose.FEATURES, stage)
    # the cosine kernel takes turns, not radians
    variance, unit = {
        "fourier": (2.0, 2.0 * math.pi), "logits": (2.0, 1.0), "polynomials": (1.0, 1.0)
    }[kind]  # fmt: skip
    scale = math.sqrt(variance / bandwidth) / unit
    factors = []
    for _ in range(degree):
        directions = _normal(generator, n_inputs, size, scale, np.dtype(dtype))
        if kind == "fourier":
            # A uniform offset in turns: the whole circle (Rahimi and Recht 2007).
            offsets = generator.random(size)
        else:
            variance = _LOGIT_OFFSET if kind == "logits" else _POLYNOMIAL_OFFSET
            offsets = generator.standard_normal(size) * math.sqrt(variance)
        factors.append((directions, offsets.astype(dtype)))
    return factors


def _normal(generator: np.random.Generator, n: int, m: int, scale: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return N(0, scale^2) numbers, shape (n, m), drawn in float64 row by row."""
    out = np.empty((n, m), dtype)
    # In pieces of the same stream: the numbers do not depend on the pieces.
    step = max(1, _DRAWN_AT_ONCE // m)
    for first in range(0, n, step):
        rows = out[first : first + step]
        np.multiply(generator.standard_normal(rows.shape), scale, out=rows, casting="same_kind")
    return out
