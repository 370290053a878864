"""Kinds of synthetic data; and documents: words drawn from topics, weighted as text is, with classes of any number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, index_dtype
from distls.workers.synthetic.sampling_kernels import alias_cells, draw_documents

BLOCK_ROWS = 8192  # part of the reproducibility promise, as are the exceptions in `KINDS`: never change them


class Family(Protocol):
    """Generator of the rows of a family of kinds."""

    def build(self, kind: Kind, generator: np.random.Generator) -> Any:
        """Draw what all blocks of one seed share (topics, class means), whatever the part."""

    def draw(self, kind: Kind, model: Any, generator: np.random.Generator) -> tuple[Any, NDArray[Any]]:
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


def document_lengths(
    generator: np.random.Generator, draws: float, spread: float, n_rows: int
) -> NDArray[np.int64]:
    """Draw log-normal numbers of terms, int64 (n_rows,), clipped so that no row is degenerate."""
    centre = np.log(draws) - spread**2 / 2
    lengths = np.exp(centre + spread * generator.standard_normal(n_rows))
    return np.rint(np.clip(lengths, 5.0, 20.0 * draws)).astype(np.int64)


def _alias_table(weights: NDArray[np.float64], column: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Alias table, uint64 (n_features,): term r has the weight ``weights[r]`` and stands in ``column[r]``."""
    whole = np.empty(len(weights), dtype=np.int64)
    whole[column] = np.rint(weights * (2.0**30 / weights.sum()))
    return alias_cells(whole)


def unit_log_tf(indptr: NDArray[np.int64], frequencies: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Turn term frequencies into 1 + log(tf), float32 (nnz,), scaled to rows of unit L2 norm."""
    table = 1 + np.log(np.maximum(np.arange(int(frequencies.max()) + 1), 1))
    table = np.rint(table * 2.0**20).astype(np.int64)  # whole numbers, so that sums of squares are exact
    norms = np.sqrt(np.add.reduceat((table * table)[frequencies], indptr[:-1]))
    return (table[frequencies] / np.repeat(norms, np.diff(indptr))).astype(np.float32)
