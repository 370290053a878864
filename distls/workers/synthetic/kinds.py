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

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, Rows, concatenate_rows
from distls.workers.runtime.rng import Purpose, rng
from distls.workers.synthetic.dense_data import (
    Factors,
    Gaussians,
    Regression,
    geometric_decay,
    harmonic_decay,
)
from distls.workers.synthetic.family import Kind
from distls.workers.synthetic.many_topics import ManyTopics
from distls.workers.synthetic.topic_documents import Documents, Labels

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


def block(kind: str, seed: int, part: str, index: int) -> tuple[Rows, NDArray[Any]]:
    """Generate rows [index * n, (index + 1) * n) of a stream, n the kind's `block_rows`.

    Rows are float32, unit CsrRows or DenseRows, as `KINDS[kind].layout` says; targets int32 codes (n,) or float64 (n,
    1).
    """
    made = kind_named(kind)
    if part not in PARTS:
        raise ParameterError(f"part is {part!r}: use one of {', '.join(PARTS)}")
    generator = rng(seed, Purpose.GENERATE, made.id, PARTS.index(part), index)
    return made.family.draw(made, _model(kind, seed), generator)


def generate_rows(kind: str, seed: int, part: str, start: int, stop: int) -> tuple[Rows, NDArray[Any]]:
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
