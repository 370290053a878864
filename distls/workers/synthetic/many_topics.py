"""Synthetic documents of very many classes: a class is a short list of its own terms, and some of its group's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, index_dtype
from distls.workers.synthetic.family import BLOCK_ROWS, Kind
from distls.workers.synthetic.topic_documents import Labels, document_lengths, unit_log_tf


class Topics(NamedTuple):
    """The model that all blocks share."""

    edges: NDArray[np.int64]  # (n_features,), cumulated weights of the ranks in the background
    column: NDArray[np.int64]  # (n_features,), the column of each rank
    own: NDArray[np.int64]  # (n_classes, terms), ranks of each class's terms, the most frequent first
    group: NDArray[np.int64]  # (n_groups, terms), those of each group of neighbouring classes


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

    def build(self, kind: Kind, generator: np.random.Generator) -> Topics:
        """Draw the lists of all classes and groups."""
        edges, rarer = (self._edges(kind, power) for power in (self.power, self.flat))
        column = generator.permutation(kind.n_features)
        groups = -(-kind.n_classes // self.group)
        lists = [
            np.searchsorted(rarer, generator.integers(rarer[-1], size=(count, self.terms)), side="right")
            for count in (kind.n_classes, groups)
        ]
        return Topics(edges, column, lists[0], lists[1])

    def _edges(self, kind: Kind, power: float) -> NDArray[np.int64]:
        weights = (np.arange(kind.n_features, dtype=np.float64) + self.shift) ** -power
        # whole numbers, so that no machine draws other terms
        return np.cumsum(np.rint(weights * (2.0**40 / weights.sum())).astype(np.int64))

    def draw(
        self, kind: Kind, model: Topics, generator: np.random.Generator
    ) -> tuple[CsrRows, NDArray[np.int32]]:
        """Draw one block of documents with their labels."""
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
