"""Seeded synthetic data of the papers' shapes, made block by block: `distls generate`.

A kind is an endless stream of rows, one for training and one for testing, cut into blocks of `BLOCK_ROWS`.
A block depends on (kind, seed, part, index) alone, so blocks can be made anywhere in any order, fewer rows
are a prefix of more, and the test rows do not depend on how many training rows are made. To add a kind, add
an entry to `KINDS`; a new family of data is a new recipe (`build` its model, `draw` a block).

One seed gives the same bits on any machine: probabilities and term weights are rounded to whole numbers, far
above the last bits in which mathematical libraries differ, before anything is drawn from or summed over them;
the rest is integer or elementwise IEEE arithmetic (no BLAS, no float reductions but `math.fsum`, which rounds
once).

What each kind is drawn from: docs/synthetic.md.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows, index_dtype
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.synthetic.sampling_kernels import alias_cells, draw_documents

__all__ = ["BLOCK_ROWS", "KINDS", "PARTS", "Kind", "block", "generate_rows", "kind_named"]

BLOCK_ROWS = 8192  # part of the reproducibility promise, as are the exceptions in `KINDS`: never change them
PARTS = ("train", "test")  # a part's position keys its random stream: only append


class Recipe(Protocol):
    """How the rows of a family of kinds are made."""

    def build(self, kind: Kind, generator: np.random.Generator) -> Any:
        """Draw what all blocks of one seed share (topics, class means), whatever the part."""

    def draw(self, kind: Kind, model: Any, generator: np.random.Generator) -> tuple[Any, NDArray[Any]]:
        """Draw one block: `kind.block_rows` rows (Rows) and their class codes (n_rows,) or targets (n_rows, 1)."""


@dataclass(frozen=True)
class Kind:
    """A named stream of synthetic rows.

    Attributes
    ----------
    name : as typed after `distls generate`
    id : keys the random streams; part of the reproducibility promise, never reused
    n_train, n_test : the paper's numbers of rows, which are the defaults; more is more of the stream
    n_features : width of a row
    n_classes : number of classes, coded 0 to n_classes - 1; 0 for regression targets
    layout : whether blocks are CsrRows or DenseRows
    description : one line for the help text
    recipe : makes the rows
    block_rows : rows of a block
    row_nnz : non-zeros of a sparse row, about: how many rows a partition gets
    """

    name: str
    id: int
    n_train: int
    n_test: int
    n_features: int
    n_classes: int
    layout: Literal["csr", "dense"]
    description: str
    recipe: Recipe
    block_rows: int = BLOCK_ROWS
    row_nnz: int = 90


@dataclass(frozen=True)
class Labels:
    """Class codes with unequal priors and label noise.

    Attributes
    ----------
    priors : weight of each class, in any unit
    noise : fraction of rows whose label is replaced by one of the other classes, uniformly
    """

    priors: Sequence[float]
    noise: float = 0.02

    def draw(self, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw a block's true classes (int64) and its noisy labels (int32), both of shape (BLOCK_ROWS,)."""
        n_classes = len(self.priors)
        edges = np.cumsum(self.priors)
        true = np.searchsorted(edges[:-1], generator.random(BLOCK_ROWS) * edges[-1], side="right")
        wrong = generator.random(BLOCK_ROWS) < self.noise
        other = (true + generator.integers(1, n_classes, BLOCK_ROWS)) % n_classes
        return true.astype(np.int64), np.where(wrong, other, true).astype(np.int32)


@dataclass(frozen=True)
class Documents:
    """Bags of words as unit rows of 1 + log(term frequency), the weighting of RCV1-v2 without its idf.

    A document draws each term from its class topic with probability `topical`, else from the background, a
    Zipf-Mandelbrot law over the terms. A topic is the background with every term's probability multiplied by
    exp(tilt * g), g standard normal: each term tells a little, none tells much, and the many rare ones can
    only be learned from many documents, so accuracy keeps growing with the number of rows. The most frequent
    terms are tilted less, as stop words are.

    Attributes
    ----------
    labels : priors and noise
    topical : probability that a term is drawn from the class topic
    tilt : standard deviation of a rare term's log probability ratio between a topic and the background
    neutral : rank at which half of the tilt is reached
    draws, spread : mean number of terms drawn for a document; standard deviation of its logarithm
    burst : probability that an occurrence of a term is followed by another of the same term
    shift, power : the background probability of rank r = 0, 1, ... is proportional to (r + shift)^-power
    """

    labels: Labels
    topical: float
    tilt: float
    draws: float
    spread: float
    neutral: float = 50.0
    # in 1,000 real RCV1 documents the most frequent term is in 435, the 20th in 216, the 100th in 111
    shift: float = 50.0
    power: float = 1.3
    burst: float = 0.35

    def build(self, kind: Kind, generator: np.random.Generator) -> NDArray[np.uint64]:
        """Draw the alias tables of the topics, then of the background: (n_classes + 1, n_features)."""
        rank = np.arange(kind.n_features, dtype=np.float64)
        background = (rank + self.shift) ** -self.power
        tilt = self.tilt * rank / (rank + self.neutral)
        # the term numbers of RCV1-v2 follow no order of frequency: neither do these
        column = generator.permutation(kind.n_features)
        cells = np.empty((kind.n_classes + 1, kind.n_features), dtype=np.uint64)
        for topic in range(kind.n_classes):
            ratio = np.exp(tilt * generator.standard_normal(kind.n_features))
            cells[topic] = _alias_table(background * ratio, column)
        cells[-1] = _alias_table(background, column)
        return cells

    def draw(
        self, kind: Kind, model: NDArray[np.uint64], generator: np.random.Generator
    ) -> tuple[CsrRows, NDArray[np.int32]]:
        """Draw one block of documents with their labels."""
        true, y = self.labels.draw(generator)
        n_draws = self._lengths(generator)
        n_topical = generator.binomial(n_draws, self.topical)
        indptr = np.empty(BLOCK_ROWS + 1, dtype=np.int64)
        indices = np.empty(n_draws.sum(), dtype=index_dtype(kind.n_features))
        frequencies = np.empty(len(indices), dtype=np.uint16)
        key = generator.integers(2**64, dtype=np.uint64)
        repeat = np.uint64(self.burst * 2.0**64)
        draw_documents(key, model, true, n_topical, n_draws - n_topical, repeat, indptr, indices, frequencies)
        nnz = indptr[-1]  # at most the number of draws: repeated terms are merged
        return CsrRows(indptr, indices[:nnz].copy(), _unit_log_tf(indptr, frequencies[:nnz])), y

    def _lengths(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Draw log-normal numbers of terms, int64 (BLOCK_ROWS,), clipped so that no row is degenerate."""
        centre = np.log(self.draws) - self.spread**2 / 2
        lengths = np.exp(centre + self.spread * generator.standard_normal(BLOCK_ROWS))
        return np.rint(np.clip(lengths, 5.0, 20.0 * self.draws)).astype(np.int64)


def _alias_table(weights: NDArray[np.float64], column: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Alias table, uint64 (n_features,): term r has the weight ``weights[r]`` and stands in ``column[r]``."""
    whole = np.empty(len(weights), dtype=np.int64)
    whole[column] = np.rint(weights * (2.0**30 / weights.sum()))
    return alias_cells(whole)


def _unit_log_tf(indptr: NDArray[np.int64], frequencies: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Turn term frequencies into 1 + log(tf), float32 (nnz,), scaled to rows of unit L2 norm."""
    table = 1 + np.log(np.maximum(np.arange(int(frequencies.max()) + 1), 1))
    table = np.rint(table * 2.0**20).astype(np.int64)  # whole numbers, so that sums of squares are exact
    norms = np.sqrt(np.add.reduceat((table * table)[frequencies], indptr[:-1]))
    return (table[frequencies] / np.repeat(norms, np.diff(indptr))).astype(np.float32)


class GaussianModel(NamedTuple):
    """Parameters of the classes, all float32.

    Attributes
    ----------
    mean, scale : arrays of shape (n_classes, n_features)
    factors : array of shape (n_factors, n_classes, n_features)
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    factors: NDArray[np.float32]


@dataclass(frozen=True)
class Gaussians:
    """One Gaussian per class, with its own mean and its own covariance diag(scale^2) + factors.T @ factors.

    Attributes
    ----------
    labels : priors and noise
    separation : standard deviation of the entries of a class mean
    n_factors : number of correlated directions of each class
    """

    labels: Labels
    separation: float
    n_factors: int = 2

    def build(self, kind: Kind, generator: np.random.Generator) -> GaussianModel:
        """Draw the parameters of all classes."""
        shape = (kind.n_classes, kind.n_features)
        mean = self.separation * generator.standard_normal(shape)
        scale = generator.uniform(0.5, 1.5, shape)
        factors = generator.uniform(-0.5, 0.5, (self.n_factors, *shape))
        return GaussianModel(*(table.astype(np.float32) for table in (mean, scale, factors)))

    def draw(
        self, kind: Kind, model: GaussianModel, generator: np.random.Generator
    ) -> tuple[DenseRows, NDArray[np.int32]]:
        """Draw one block of points with their labels."""
        true, y = self.labels.draw(generator)
        values = generator.standard_normal((BLOCK_ROWS, kind.n_features), dtype=np.float32)
        values *= model.scale[true]
        values += model.mean[true]
        for factor in model.factors:  # elementwise: a matrix product would round as the BLAS at hand does
            values += generator.standard_normal((BLOCK_ROWS, 1), dtype=np.float32) * factor[true]
        return DenseRows(values), y


def _harmonic(n: int) -> NDArray[np.float64]:
    """Return 1, 1/2, 1/3, ..., 1/n."""
    return 1.0 / np.arange(1, n + 1)


def _geometric(n: int) -> NDArray[np.float64]:
    """Return n numbers from 1 to 1/100 in equal ratios, as fractions of 2^30, scaled to a sum of squares of 1."""
    whole = np.rint(10.0 ** (-2.0 * np.arange(n) / (n - 1)) * 2.0**30)
    return whole / math.sqrt(math.fsum(whole * whole))


class FactorModel(NamedTuple):
    """What all blocks of factors share.

    Attributes
    ----------
    scale : float32 array of shape (n_features,)
    signal : float64 array of shape (n_features,), unit length
    pairings : int64 array of shape (rotations, n_features), permutations
    """

    scale: NDArray[np.float32]
    signal: NDArray[np.float64]
    pairings: NDArray[np.int64]


@dataclass(frozen=True)
class Factors:
    """Two classes told apart by standard normal factors f, which are seen at very unequal scales.

    A row is Q (scale * f), its class is 1 where ``signal . f + noise * g > 0``, g standard normal: the best
    achievable error is arctan(noise) / pi.

    Attributes
    ----------
    scales : gives the scales of n factors, largest first
    damped : the weight of a factor in the label is a normal number, times the square root of its scale if damped
    rotations : Q turns the features in random pairs by 45 degrees, so many times over; 0 for Q = I
    noise : standard deviation of what the label does not owe to the factors
    """

    scales: Callable[[int], NDArray[np.float64]]
    damped: bool
    rotations: int
    noise: float = 0.5

    def build(self, kind: Kind, generator: np.random.Generator) -> FactorModel:
        """Draw the direction that decides the label, and the pairs."""
        scale = self.scales(kind.n_features)
        signal = generator.standard_normal(kind.n_features)
        signal *= np.sqrt(scale) if self.damped else 1.0
        signal /= math.sqrt(math.fsum(signal * signal))
        pairings = np.empty((self.rotations, kind.n_features), dtype=np.int64)
        for pairing in pairings:
            pairing[:] = generator.permutation(kind.n_features)
        return FactorModel(scale.astype(np.float32), signal, pairings)

    def draw(
        self, kind: Kind, model: FactorModel, generator: np.random.Generator
    ) -> tuple[DenseRows, NDArray[np.int32]]:
        """Draw one block of rows with their labels."""
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

    Attributes
    ----------
    variance : of the noise
    """

    variance: float = 0.2

    def build(self, kind: Kind, generator: np.random.Generator) -> NDArray[np.float64]:
        """Draw the coefficients w*."""
        return generator.standard_normal(kind.n_features)

    def draw(
        self, kind: Kind, model: NDArray[np.float64], generator: np.random.Generator
    ) -> tuple[DenseRows, NDArray[np.float64]]:
        """Draw one block of inputs with their targets."""
        columns = generator.random((kind.n_features, kind.block_rows), dtype=np.float32)
        columns[0] = 1.0
        noise = math.sqrt(self.variance) * generator.standard_normal(kind.block_rows)
        targets = _product(model, columns) + noise
        return DenseRows(np.ascontiguousarray(columns.T)), targets[:, None]


def _product(weights: NDArray[np.float64], columns: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return ``weights @ columns``, (n,), added up feature by feature: the same bits on any machine."""
    total = np.zeros(columns.shape[1])
    for weight, column in zip(weights, columns, strict=True):
        total += weight * column.astype(np.float64)
    return total


_RCV1_PRIORS = (0.47, 0.26, 0.14, 0.13)  # unequal, as the four top-level topics of RCV1 are

# The recipes' numbers were set by the test error of the best tuned one-versus-rest LinearSVC (squared hinge),
# trained on all default rows of seed 0: rcv1-4 6.8 % (C = 0.3), rcv1-53 30.3 % (C = 1), dense 7.6 %,
# odp 14.0 % (C = 1), alpha 15.0 % and axis 14.9 % (C = 10; without an intercept).
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="rcv1-4",
            id=0,
            n_train=665_265,
            n_test=19_806,
            n_features=47_236,
            n_classes=4,
            layout="csr",
            description="RCV1-like documents in 4 classes, 90 non-zeros a row",
            recipe=Documents(Labels(_RCV1_PRIORS), topical=0.5, tilt=1.08, draws=99.0, spread=0.8),
        ),
        Kind(
            name="rcv1-53",
            id=1,
            n_train=518_571,
            n_test=15_564,
            n_features=47_236,
            n_classes=53,
            layout="csr",
            description="RCV1-like documents in 53 classes, 90 non-zeros a row",
            recipe=Documents(
                Labels([1 / (rank + 2) for rank in range(53)]),
                topical=0.335,
                tilt=1.2,
                draws=98.0,
                spread=0.65,
            ),
        ),
        Kind(
            name="dense",
            id=2,
            n_train=100_000,
            n_test=20_000,
            n_features=200,
            n_classes=10,
            layout="dense",
            description="Gaussian classes of unequal covariance, 200 features, 10 classes",
            recipe=Gaussians(Labels([1.0 + 0.1 * rank for rank in range(10)]), separation=0.25),
        ),
        Kind(
            name="odp",
            id=3,
            n_train=569_068,
            n_test=142_267,
            n_features=61_016,
            n_classes=11,
            layout="csr",
            description="web pages in 11 classes, 190 non-zeros a row",
            recipe=Documents(
                Labels([1 / (rank + 4) for rank in range(11)]),
                topical=0.3,
                tilt=1.1,
                draws=228.0,
                spread=0.8,
            ),
            row_nnz=190,
        ),
        Kind(
            name="csgd",
            id=4,
            n_train=10_000,
            n_test=10_000,
            n_features=100,
            n_classes=0,
            layout="dense",
            description="linear regression, 100 uniform inputs",
            recipe=Regression(),
        ),
        Kind(
            name="csgd-wide",
            id=5,
            n_train=5_000,
            n_test=5_000,
            n_features=5_000,
            n_classes=0,
            layout="dense",
            description="linear regression, as many uniform inputs as rows",
            recipe=Regression(),
            block_rows=512,
        ),
        Kind(
            name="alpha",
            id=6,
            n_train=100_000,
            n_test=50_000,
            n_features=500,
            n_classes=2,
            layout="dense",
            description="two classes, 500 rotated features, condition number 10,000",
            recipe=Factors(_geometric, damped=True, rotations=12),
        ),
        Kind(
            name="axis",
            id=7,
            n_train=100_000,
            n_test=50_000,
            n_features=500,
            n_classes=2,
            layout="dense",
            description="two classes, 500 features of scales 1, 1/2, 1/3, ...",
            recipe=Factors(_harmonic, damped=False, rotations=0),
        ),
    )
}


def block(kind: str, seed: int, part: str, index: int) -> tuple[Rows, NDArray[Any]]:
    """Generate rows [index * n, (index + 1) * n) of a stream, n the kind's `block_rows`.

    Parameters
    ----------
    kind : a name in `KINDS`
    seed : int, non-negative
    part : 'train' or 'test'
    index : int, non-negative; there is no last block

    Returns
    -------
    rows : CsrRows (float32, unit rows) or DenseRows (float32), as `KINDS[kind].layout` says
    y : int32 array of shape (n,), class codes; or float64 array of shape (n, 1), regression targets
    """
    made = kind_named(kind)
    if part not in PARTS:
        raise ParameterError(f"part is {part!r}: use one of {', '.join(PARTS)}")
    generator = rng(seed, Purpose.GENERATE, made.id, PARTS.index(part), index)
    return made.recipe.draw(made, _model(kind, seed), generator)


def generate_rows(kind: str, seed: int, part: str, start: int, stop: int) -> tuple[Rows, NDArray[Any]]:
    """Generate rows [start, stop) of a stream, whatever the blocks; parameters and results as in `block`."""
    if not 0 <= start <= stop:
        raise ParameterError(f"rows {start} to {stop}: need 0 <= start <= stop")
    pieces, size = [], kind_named(kind).block_rows
    for index in range(start // size, max(-(-stop // size), start // size + 1)):
        first = index * size
        x, y = block(kind, seed, part, index)
        wanted = slice(max(start - first, 0), min(stop - first, size))
        pieces.append((_cut(x, wanted), y[wanted]))
    return concatenate_rows([x for x, _ in pieces]), np.concatenate([y for _, y in pieces])


def kind_named(name: str) -> Kind:
    """Look up a kind, or refuse the name with the closest known one."""
    if name in KINDS:
        return KINDS[name]
    close = difflib.get_close_matches(name, KINDS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ParameterError(f"unknown kind {name!r}: {hint}known kinds are {', '.join(KINDS)}")


@lru_cache(maxsize=2)  # a worker makes blocks of one kind; the tables of rcv1-53 take 20 MB
def _model(kind: str, seed: int) -> Any:
    """What all blocks of a kind and seed share; made once per process."""
    made = kind_named(kind)
    return made.recipe.build(made, rng(seed, Purpose.GENERATE, made.id))


def _cut(x: Rows, wanted: slice) -> Rows:
    """View of the rows `wanted` (start and stop given) of a block."""
    if isinstance(x, DenseRows):
        return DenseRows(x.values[wanted])
    indptr = x.indptr[wanted.start : wanted.stop + 1]
    return CsrRows(indptr - indptr[0], x.indices[indptr[0] : indptr[-1]], x.data[indptr[0] : indptr[-1]])
