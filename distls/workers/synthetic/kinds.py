"""Seeded synthetic data of the papers' shapes, made block by block: `distls generate`.

A kind is an endless stream of rows, one for training and one for testing, cut into blocks of `BLOCK_ROWS`.
A block depends on (kind, seed, part, index) alone, so blocks can be made anywhere in any order, fewer rows
are a prefix of more, and the test rows do not depend on how many training rows are made. To add a kind, add
an entry to `KINDS`; a new family of data is a class with `build` (its model) and `draw` (a block).

One seed gives the same bits on any machine: probabilities and term weights are rounded to whole numbers, far
above the last bits in which mathematical libraries differ, before anything is drawn from or summed over them;
the rest is integer or elementwise IEEE arithmetic (no BLAS, no float reductions but `math.fsum`, which rounds
once).

What each kind is drawn from: docs/synthetic.md.
"""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows, index_dtype
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Int32s, Ints, Singles
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.synthetic.topic_documents import BLOCK_ROWS, Documents, Kind, Labels, document_lengths, unit_log_tf


class GaussianModel(NamedTuple):
    """Parameters of the classes, all float32."""

    mean: Singles  # shape (n_classes, n_features)
    scale: Singles  # likewise
    factors: Singles  # shape (n_factors, n_classes, n_features)


@dataclass(frozen=True)
class Gaussians:
    """One Gaussian per class, with its own mean and its own covariance diag(scale^2) + factors.T @ factors."""

    labels: Labels
    separation: float
    n_factors: int = 2

    def build(self, kind: Kind, generator: Generator) -> GaussianModel:
        shape = (kind.n_classes, kind.n_features)
        mean = self.separation * generator.standard_normal(shape)
        scale = generator.uniform(0.5, 1.5, shape)
        factors = generator.uniform(-0.5, 0.5, (self.n_factors, *shape))
        return GaussianModel(*(table.astype(np.float32) for table in (mean, scale, factors)))

    def draw(self, kind: Kind, model: GaussianModel, generator: Generator) -> tuple[DenseRows, Int32s]:
        true, y = self.labels.draw(generator)
        values = generator.standard_normal((BLOCK_ROWS, kind.n_features), dtype=np.float32)
        values *= model.scale[true]
        values += model.mean[true]
        for factor in model.factors:  # elementwise: a matrix product would round as the BLAS at hand does
            values += generator.standard_normal((BLOCK_ROWS, 1), dtype=np.float32) * factor[true]
        return DenseRows(values), y


def harmonic_decay(n: int) -> Doubles:
    """Return 1, 1/2, 1/3, ..., 1/n."""
    return 1.0 / np.arange(1, n + 1)


def geometric_decay(n: int) -> Doubles:
    """Return n numbers from 1 to 1/100 in equal ratios, as fractions of 2^30, scaled to a sum of squares of 1."""
    whole = np.rint(10.0 ** (-2.0 * np.arange(n) / (n - 1)) * 2.0**30)
    return whole / math.sqrt(math.fsum(whole * whole))


class FactorModel(NamedTuple):
    """Parameters of all blocks of factors."""

    scale: Singles  # shape (n_features,)
    signal: Doubles  # shape (n_features,), unit length
    pairings: Ints  # shape (rotations, n_features), permutations


@dataclass(frozen=True)
class Factors:
    """Two classes separated by standard normal factors f, which are observed at very unequal scales.

    A row is Q (scale * f), its class is 1 where ``signal . f + noise * g > 0``, g standard normal: the best
    achievable error is arctan(noise) / pi.
    """

    scales: Callable[[int], Doubles]
    damped: bool
    rotations: int
    noise: float = 0.5

    def build(self, kind: Kind, generator: Generator) -> FactorModel:
        scale = self.scales(kind.n_features)
        signal = generator.standard_normal(kind.n_features)
        signal *= np.sqrt(scale) if self.damped else 1.0
        signal /= math.sqrt(math.fsum(signal * signal))
        pairings = np.empty((self.rotations, kind.n_features), dtype=np.int64)
        for pairing in pairings:
            pairing[:] = generator.permutation(kind.n_features)
        return FactorModel(scale.astype(np.float32), signal, pairings)

    def draw(self, kind: Kind, model: FactorModel, generator: Generator) -> tuple[DenseRows, Int32s]:
        columns = generator.standard_normal((kind.n_features, kind.block_rows), dtype=np.float32)
        margin = _product(model.signal, columns) + self.noise * generator.standard_normal(kind.block_rows)
        columns *= model.scale[:, None]
        for pairing in model.pairings:
            left, right = columns[pairing[0::2]], columns[pairing[1::2]]
            columns[pairing[0::2]] = (left - right) * np.float32(math.sqrt(0.5))
            columns[pairing[1::2]] = (left + right) * np.float32(math.sqrt(0.5))
        return DenseRows(np.ascontiguousarray(columns.T)), (margin > 0).astype(np.int32)


@dataclass(frozen=True)
class Regression:
    """A linear model of uniform inputs with Gaussian noise (constrained-SGD paper, section 5.1).

    The first input is 1, which Theorem 2.1 of the paper needs; the others are uniform on [0, 1). The target is
    ``w* . x`` plus noise, w* standard normal.
    """

    variance: float = 0.2

    def build(self, kind: Kind, generator: Generator) -> Doubles:
        return generator.standard_normal(kind.n_features)

    def draw(self, kind: Kind, model: Doubles, generator: Generator) -> tuple[DenseRows, Doubles]:
        columns = generator.random((kind.n_features, kind.block_rows), dtype=np.float32)
        columns[0] = 1.0
        noise = math.sqrt(self.variance) * generator.standard_normal(kind.block_rows)
        targets = _product(model, columns) + noise
        return DenseRows(np.ascontiguousarray(columns.T)), targets[:, None]


def _product(weights: Doubles, columns: Singles) -> Doubles:
    """Return ``weights @ columns``, shape (n,)."""
    # summed feature by feature, unlike a BLAS: the same bits on any machine
    total = np.zeros(columns.shape[1])
    for weight, column in zip(weights, columns, strict=True):
        total += weight * column.astype(np.float64)
    return total


# -- documents of very many classes: each a short list of own terms, and some of its group's -------------


class Topics(NamedTuple):
    """The model that all blocks share."""

    edges: Ints  # (n_features,), cumulated weights of the ranks in the background
    column: Ints  # (n_features,), the column of each rank
    own: Ints  # (n_classes, terms), ranks of each class's terms, the most frequent first
    group: Ints  # (n_groups, terms), those of each group of neighbouring classes


@dataclass(frozen=True)
class ManyTopics:
    """Bags of words as unit rows of 1 + log(term frequency).

    A document draws each term from the list of its class, from that of the class's group, or from the background, a
    Zipf-Mandelbrot law over the terms. The table of a class is its list, so that tens of thousands of classes take
    little memory.
    """

    labels: Labels
    own: float  # part of the terms of a document that are its class's
    shared: float  # and its group's
    draws: float
    spread: float
    terms: int = 64  # of a list
    group: int = 32  # classes of a group
    shift: float = 50.0
    power: float = 1.3  # of the background
    flat: float = 0.9  # of the law that lists are drawn from: rarer terms than the background's

    def build(self, kind: Kind, generator: Generator) -> Topics:
        edges, rarer = (self._edges(kind, power) for power in (self.power, self.flat))
        column = generator.permutation(kind.n_features)
        groups = -(-kind.n_classes // self.group)
        lists = [
            np.searchsorted(rarer, generator.integers(rarer[-1], size=(count, self.terms)), side="right")
            for count in (kind.n_classes, groups)
        ]
        return Topics(edges, column, lists[0], lists[1])

    def _edges(self, kind: Kind, power: float) -> Ints:
        weights = (np.arange(kind.n_features, dtype=np.float64) + self.shift) ** -power
        # whole numbers, so that no machine draws other terms
        return np.cumsum(np.rint(weights * (2.0**40 / weights.sum())).astype(np.int64))

    def draw(self, kind: Kind, model: Topics, generator: Generator) -> tuple[CsrRows, Int32s]:
        true, y = self.labels.draw(generator)
        lengths = document_lengths(generator, self.draws, self.spread, BLOCK_ROWS)
        row = np.repeat(np.arange(BLOCK_ROWS), lengths)
        ranks = np.searchsorted(model.edges, generator.integers(model.edges[-1], size=len(row)), side="right")
        # the first terms of a list are the frequent ones
        place = generator.integers(self.terms, size=(2, len(row))).min(axis=0)
        source = generator.random(len(row))
        own, group = source < self.own, (source >= self.own) & (source < self.own + self.shared)
        ranks[own] = model.own[true[row[own]], place[own]]
        ranks[group] = model.group[true[row[group]] // self.group, place[group]]
        cells, frequencies = np.unique(row * kind.n_features + model.column[ranks], return_counts=True)
        counts = np.bincount(cells // kind.n_features, minlength=BLOCK_ROWS)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        indices = (cells % kind.n_features).astype(index_dtype(kind.n_features))
        return CsrRows(indptr, indices, unit_log_tf(indptr, frequencies)), y


PARTS = ("train", "test")  # a part's position keys its random stream: only append

_RCV1_PRIORS = (0.47, 0.26, 0.14, 0.13)  # unequal, as the four top-level topics of RCV1 are

# The families' numbers were set by the test error of the best tuned one-versus-rest LinearSVC (squared hinge),
# trained on all default rows of seed 0: rcv1-4 6.8 % (C = 0.3), rcv1-53 30.3 % (C = 1), dense 7.6 %,
# odp 14.0 % (C = 1), alpha 15.0 %, axis 14.9 % and delta 22.0 % (C = 10; without an intercept).
# fmt: off
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "rcv1-4", id=0, n_train=665_265, n_test=19_806, n_features=47_236, n_classes=4, layout="csr",
            description="RCV1-like documents in 4 classes, 90 non-zeros a row",
            family=Documents(Labels(_RCV1_PRIORS), topical=0.5, tilt=1.08, draws=99.0, spread=0.8),
        ),
        Kind(
            "rcv1-53", id=1, n_train=518_571, n_test=15_564, n_features=47_236, n_classes=53, layout="csr",
            description="RCV1-like documents in 53 classes, 90 non-zeros a row",
            family=Documents(
                Labels([1 / (rank + 2) for rank in range(53)]), topical=0.335, tilt=1.2, draws=98.0, spread=0.65
            ),
        ),
        Kind(
            "dense", id=2, n_train=100_000, n_test=20_000, n_features=200, n_classes=10, layout="dense",
            description="Gaussian classes of unequal covariance, 200 features, 10 classes",
            family=Gaussians(Labels([1.0 + 0.1 * rank for rank in range(10)]), separation=0.25),
        ),
        Kind(
            "odp", id=3, n_train=569_068, n_test=142_267, n_features=61_016, n_classes=11, layout="csr",
            description="web pages in 11 classes, 190 non-zeros a row",
            family=Documents(
                Labels([1 / (rank + 4) for rank in range(11)]), topical=0.3, tilt=1.1, draws=228.0, spread=0.8
            ),
            row_nnz=190,
        ),
        Kind(
            "csgd", id=4, n_train=10_000, n_test=10_000, n_features=100, n_classes=0, layout="dense",
            description="linear regression, 100 uniform inputs", family=Regression(),
        ),
        Kind(
            "csgd-wide", id=5, n_train=5_000, n_test=5_000, n_features=5_000, n_classes=0, layout="dense",
            description="linear regression, as many uniform inputs as rows", family=Regression(), block_rows=512,
        ),
        Kind(
            "alpha", id=6, n_train=100_000, n_test=50_000, n_features=500, n_classes=2, layout="dense",
            description="two classes, 500 rotated features, condition number 10,000",
            family=Factors(geometric_decay, damped=True, rotations=12),
        ),
        Kind(
            "axis", id=7, n_train=100_000, n_test=50_000, n_features=500, n_classes=2, layout="dense",
            description="two classes, 500 features of scales 1, 1/2, 1/3, ...",
            family=Factors(harmonic_decay, damped=False, rotations=0),
        ),
        Kind(
            "delta", id=9, n_train=100_000, n_test=50_000, n_features=500, n_classes=2, layout="dense",
            description="two noisy classes, 500 rotated features, condition number 250,000",
            family=Factors(harmonic_decay, damped=True, rotations=12, noise=0.8),
        ),
        Kind(
            "lshtc1", id=8, n_train=93_805, n_test=34_880, n_features=347_255, n_classes=12_294, layout="csr",
            description="web pages in 12,294 classes, 55 non-zeros a row",
            family=ManyTopics(
                Labels([1 / (rank + 200) for rank in range(12_294)]), own=0.15, shared=0.15, draws=60.0, spread=0.8
            ),
            row_nnz=55,
        ),
    )
}
# fmt: on


def block(kind: str, seed: int, part: str, index: int) -> tuple[Rows, Array]:
    """Generate rows [index * n, (index + 1) * n) of a stream, n the kind's `block_rows`.

    Rows are float32, unit CsrRows or DenseRows, as `KINDS[kind].layout` says; targets int32 codes (n,) or float64 (n,
    1).
    """
    made = kind_named(kind)
    if part not in PARTS:
        raise ParameterError(f"part is {part!r}: use one of {', '.join(PARTS)}")
    generator = rng(seed, Purpose.GENERATE, made.id, PARTS.index(part), index)
    return made.family.draw(made, _model(kind, seed), generator)


def generate_rows(kind: str, seed: int, part: str, start: int, stop: int) -> tuple[Rows, Array]:
    """Generate rows [start, stop) of a stream, whatever the blocks; parameters and results as in `block`."""
    if not 0 <= start <= stop:
        raise ParameterError(f"rows {start} to {stop}: need 0 <= start <= stop")
    parts, size = [], kind_named(kind).block_rows
    for index in range(start // size, max(-(-stop // size), start // size + 1)):
        first = index * size
        x, y = block(kind, seed, part, index)
        wanted = slice(max(start - first, 0), min(stop - first, size))
        parts.append((_cut(x, wanted), y[wanted]))
    return concatenate_rows([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def kind_named(name: str) -> Kind:
    """Look up a kind, or refuse the name with the closest known one."""
    if name in KINDS:
        return KINDS[name]
    close = difflib.get_close_matches(name, KINDS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ParameterError(f"unknown kind {name!r}: {hint}known kinds are {', '.join(KINDS)}")


@lru_cache(maxsize=2)  # a worker makes blocks of one kind; the tables of rcv1-53 take 20 MB
def _model(kind: str, seed: int) -> Any:
    """Draw the parameters that all blocks of a kind and seed share."""
    made = kind_named(kind)
    return made.family.build(made, rng(seed, Purpose.GENERATE, made.id))


def _cut(x: Rows, wanted: slice) -> Rows:
    """Return a view of the rows `wanted` (start and stop given) of a block."""
    if isinstance(x, DenseRows):
        return DenseRows(x.values[wanted])
    indptr = x.indptr[wanted.start : wanted.stop + 1]
    return CsrRows(indptr - indptr[0], x.indices[indptr[0] : indptr[-1]], x.data[indptr[0] : indptr[-1]])
