"""Kinds of synthetic data; and documents: words drawn from topics, weighted as text is, with classes of any number.

Terms are drawn from alias tables in whole numbers, by one splitmix64 stream a block: integer arithmetic, so that one
seed gives the same bits on any machine.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, index_dtype
from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Int32s, Ints, Singles, ULongs
from distls.workers.ingestion.parsing.decimal_kernels import trailing_zeros

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_BITS_30, _BITS_27, _BITS_31, _BITS_32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_BITS_6 = np.uint64(6)


@kernel
def alias_cells(weights: Ints) -> ULongs:
    """Build Walker's alias table of a discrete distribution (Vose's method, exact in integers).

    Weights are int64, not negative, their sum at most 2^31, so that nothing below overflows. Cell i of the uint64
    table keeps i with probability (cell >> 32) / 2^32, else its low 32 bits name the column drawn.
    """
    n = len(weights)
    total = weights.sum()
    left = weights * n  # in units where a full cell weighs `total`
    cells = np.empty(n, dtype=np.uint64)
    small = np.empty(n, dtype=np.int64)
    large = np.empty(n, dtype=np.int64)
    n_small = n_large = 0
    for i in range(n):
        if left[i] < total:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0:
        n_small -= 1
        i = small[n_small]
        j = large[n_large - 1]  # exists: what is small together lacks what is large together has too much
        keep = (np.uint64(left[i]) << _BITS_32) // np.uint64(total)
        cells[i] = (keep << _BITS_32) | np.uint64(j)
        left[j] -= total - left[i]
        if left[j] < total:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    for position in range(n_large):
        i = large[position]
        cells[i] = (_LOW << _BITS_32) | np.uint64(i)
    return cells


@helper
def _next(state: ULongs) -> np.uint64:
    """Advance a splitmix64 state of shape (1,) and return 64 random bits."""
    state[0] += _STEP
    z = state[0]
    z = (z ^ (z >> _BITS_30)) * _MIX_1
    z = (z ^ (z >> _BITS_27)) * _MIX_2
    return z ^ (z >> _BITS_31)


@kernel
def _draw(cells: ULongs, state: ULongs) -> np.uint64:
    """Draw one column from an alias table of shape (n_features,): one number, one memory access."""
    bits = _next(state)
    column = ((bits >> _BITS_32) * np.uint64(len(cells))) >> _BITS_32
    cell = cells[column]
    return column if (bits & _LOW) < (cell >> _BITS_32) else cell & _LOW


@kernel
def _count(
    cells: ULongs, n_draws: int, repeat: np.uint64, state: ULongs, counts: NDArray[np.uint16], present: ULongs
) -> None:
    """Add `n_draws` terms to the document's `counts` (n_features,) and to its bitmap `present`.

    Every occurrence is followed by another of the same term with probability repeat / 2^64.
    """
    for _ in range(n_draws):
        column = _draw(cells, state)
        counts[column] += 1
        while _next(state) < repeat:
            counts[column] += 1
        present[column >> _BITS_6] |= _ONE << (column & np.uint64(63))


@helper
def _flush(
    counts: NDArray[np.uint16], present: ULongs, indices: Array, frequencies: NDArray[np.uint16], at: int
) -> int:
    """Append the document's columns in increasing order with their counts, empty both, return the new end.

    Reading the bitmap word by word sorts and merges the terms without a sort.
    """
    for word in range(len(present)):
        bits = present[word]
        present[word] = 0
        while bits != 0:
            column = word * 64 + trailing_zeros(bits)
            bits &= bits - _ONE  # without the lowest
            indices[at] = column
            frequencies[at] = counts[column]
            counts[column] = 0
            at += 1
    return at


@kernel
def draw_documents(
    key: np.uint64,
    cells: ULongs,
    topics: Ints,
    n_topical: Ints,
    n_background: Ints,
    repeat: np.uint64,
    indptr: Ints,
    indices: Array,
    frequencies: NDArray[np.uint16],
) -> None:
    """Draw the terms of a block of documents into `indptr`, `indices` and `frequencies`.

    Parameters
    ----------
    key : uint64
        Start of the block's stream.
    cells : uint64 array of shape (n_topics + 1, n_features)
        Alias tables; the last one is the background.
    topics, n_topical, n_background : int64 arrays of shape (n_rows,)
        A document's topic, and how many terms it draws from it and from the background.
    repeat : uint64
        Probability, times 2^64, that an occurrence of a term is followed by another of the same term.
    indptr : int64 array of shape (n_rows + 1,), written
    indices : uint16 or uint32 array of shape (at least the number of draws,), written
        Increasing columns of each document.
    frequencies : uint16 array of the same shape, written
        How often each term occurs in its document.
    """
    n_features = cells.shape[1]
    state = np.empty(1, dtype=np.uint64)
    state[0] = key
    counts = np.zeros(n_features, dtype=np.uint16)
    present = np.zeros((n_features + 63) // 64, dtype=np.uint64)
    indptr[0] = 0
    for row in range(len(topics)):
        _count(cells[topics[row]], n_topical[row], repeat, state, counts, present)
        _count(cells[-1], n_background[row], repeat, state, counts, present)
        indptr[row + 1] = _flush(counts, present, indices, frequencies, indptr[row])


BLOCK_ROWS = 8192  # part of the reproducibility promise, as are the exceptions in `KINDS`: never change them


class Family(Protocol):
    """Generator of the rows of a family of kinds."""

    def build(self, kind: Kind, generator: Generator) -> Any:
        """Draw what all blocks of one seed share (topics, class means), whatever the part."""

    def draw(self, kind: Kind, model: Any, generator: Generator) -> tuple[Any, Array]:
        """Draw one block: `kind.block_rows` rows (Rows) and their class codes (n_rows,) or targets (n_rows, 1)."""


@dataclass(frozen=True)
class Kind:
    """A named stream of synthetic rows."""

    name: str
    id: int
    n_train: int
    n_test: int
    n_features: int
    n_classes: int
    layout: Literal["csr", "dense"]
    description: str
    family: Family
    block_rows: int = BLOCK_ROWS
    row_nnz: int = 90


@dataclass(frozen=True)
class Labels:
    """Class codes with unequal priors and label noise."""

    priors: Sequence[float]
    noise: float = 0.02

    def draw(self, generator: Generator) -> tuple[Ints, Int32s]:
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
    exp(tilt * g), g standard normal: each term carries little information, and the many rare ones can only be learned
    from many documents, so accuracy keeps growing with the number of rows. The most frequent terms, like stop words,
    are tilted less.
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

    def build(self, kind: Kind, generator: Generator) -> ULongs:
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

    def draw(self, kind: Kind, model: ULongs, generator: Generator) -> tuple[CsrRows, Int32s]:
        true, y = self.labels.draw(generator)
        n_draws = document_lengths(generator, self.draws, self.spread, BLOCK_ROWS)
        n_topical = generator.binomial(n_draws, self.topical)
        indptr = np.empty(BLOCK_ROWS + 1, dtype=np.int64)
        indices = np.empty(n_draws.sum(), dtype=index_dtype(kind.n_features))
        frequencies = np.empty(len(indices), dtype=np.uint16)
        key = generator.integers(2**64, dtype=np.uint64)
        repeat = np.uint64(self.burst * 2.0**64)
        draw_documents(key, model, true, n_topical, n_draws - n_topical, repeat, indptr, indices, frequencies)
        nnz = indptr[-1]  # at most the number of draws: repeated terms are merged
        return CsrRows(indptr, indices[:nnz].copy(), unit_log_tf(indptr, frequencies[:nnz])), y


def document_lengths(generator: Generator, draws: float, spread: float, n_rows: int) -> Ints:
    """Draw log-normal numbers of terms, int64 (n_rows,), clipped so that no row is degenerate."""
    centre = np.log(draws) - spread**2 / 2
    lengths = np.exp(centre + spread * generator.standard_normal(n_rows))
    return np.rint(np.clip(lengths, 5.0, 20.0 * draws)).astype(np.int64)


def _alias_table(weights: Doubles, column: Ints) -> ULongs:
    """Alias table, uint64 (n_features,): term r has the weight ``weights[r]`` and stands in ``column[r]``."""
    whole = np.empty(len(weights), dtype=np.int64)
    whole[column] = np.rint(weights * (2.0**30 / weights.sum()))
    return alias_cells(whole)


def unit_log_tf(indptr: Ints, frequencies: NDArray[np.uint16]) -> Singles:
    """Turn term frequencies into 1 + log(tf), float32 (nnz,), scaled to rows of unit L2 norm."""
    table = 1 + np.log(np.maximum(np.arange(int(frequencies.max()) + 1), 1))
    table = np.rint(table * 2.0**20).astype(np.int64)  # whole numbers, so that sums of squares are exact
    norms = np.sqrt(np.add.reduceat((table * table)[frequencies], indptr[:-1]))
    return (table[frequencies] / np.repeat(norms, np.diff(indptr))).astype(np.float32)
