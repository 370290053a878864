"""What fits features to the data: tasks for moments, counts of columns and a sample of rows, and filters of images.

The filters, k-means of whitened patches of a sample, are those of section 3.2 of least squares revisited; patches are
prepared as by Coates et al. (2011).
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg  # noqa: F401 - its BLAS is limited to one thread only once it is loaded
import scipy.sparse as sp
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition, n_rows_of, take_rows
from distls.workers.features.convolution import patches_of
from distls.workers.features.design import Design, blocks
from distls.workers.linear_algebra.gram import GramSum, column_sums
from distls.workers.linear_algebra.packed_triangle import packed_size
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.rng import Purpose, rng

_Floats = NDArray[np.float64]

_PATCHES = 50_000
_ROUNDS = 10
_CHUNK = 4096
# Added to a patch's variance, and to that of a principal component, in units of the patches' mean variance (Coates et
# al. 2011 use 10 on pixels of 0 to 255, whose patches have a variance of about 2500; and 0.1 after that).
_CONTRAST_FLOOR = 0.004
_WHITENING_FLOOR = 0.1


@dataclass
class RowMoments:
    """Sums over rows, each times its weight."""

    gram: _Floats  # (m (m + 1) / 2,), packed
    sums: _Floats  # (m,)
    weight_sum: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class MomentsTask(Task):
    """Sums rows and their products."""

    data: DatasetRef
    design: Design  # the feature map that is applied to rows
    class_weight: _Floats | None = None  # (n_classes,), as in `TrainTask`

    def start(self) -> None:
        # in float64: subtracting the mean from the Gram matrix afterwards cancels digits
        m = self.design.width(open_ref(self.data).meta.n_features)
        self.total = RowMoments(np.zeros(packed_size(m)), np.zeros(m))
        self._pending = GramSum(self.total.gram, dtype=np.dtype(np.float64))

    def add(self, index: int, part: Partition) -> None:
        weight, total = row_weights(part, self.class_weight), self.total
        for rows, features in blocks(self.design, part.x, np.dtype(np.float64)):
            own = weight[rows] if len(weight) else None
            self._pending.add(features, own)
            total.sums += column_sums(features, own, len(total.sums))
        # Weighted moments: principal components are those of the weighted rows.
        total.weight_sum += weight.sum() if len(weight) else n_rows_of(part.x)

    def result(self) -> RowMoments:
        self._pending.flush()
        return replace(self.total, ledger=self.ledger)

    @staticmethod
    def merge(left: RowMoments, right: RowMoments) -> RowMoments:
        """Add two results; reuses the memory of `left`."""
        return add_sums(left, right, "gram", "sums")


@dataclass(eq=False)
class CountTask(Task):
    """Counts the rows that are not zero in each column; the result is of shape (n_features,)."""

    data: DatasetRef

    def start(self) -> None:
        self.total = np.zeros(open_ref(self.data).meta.n_features, np.int64)

    def add(self, index: int, part: Partition) -> None:
        if isinstance(part.x, CsrRows):
            self.total += np.bincount(part.x.indices, minlength=len(self.total))
        else:
            self.total += np.count_nonzero(part.x.values, axis=0)

    @staticmethod
    def merge(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        return left + right


@dataclass(eq=False)
class SampleTask(Task):
    """Takes random rows of a partition; items are those of `shares`."""

    data: DatasetRef
    n_rows: int  # of all partitions together, as few as hold them
    seed: int

    def reads(self, item: tuple[int, int]) -> tuple[int, ...]:
        return item[:1]

    def add(self, index: int, part: Partition) -> None:
        generator = rng(self.seed, Purpose.PREPARE, 1, index)
        chosen = np.sort(generator.choice(n_rows_of(part.x), self.item[1], replace=False))
        self.total = take_rows(part.x, chosen)


def shares(job: SampleTask, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the sampled partitions with the number of rows to take from each; `rows` are those of all partitions."""
    shares, wanted = [], job.n_rows
    # Random partitions first: rows within a partition are already a random sample.
    for index in rng(job.seed, Purpose.PREPARE, 0).permutation(len(rows)):
        share = min(wanted, int(rows[index]))
        if share:
            shares.append((int(index), share))
        wanted -= share
    return shares


class Whitening(NamedTuple):
    """``(patch - mean) @ matrix`` has nearly uncorrelated values of variance one."""

    mean: _Floats  # (p,)
    matrix: _Floats  # (p, p), symmetric


def sample_patches(
    images: _Floats, shape: tuple[int, int, int], side: int, seed: int, *, contrast: bool
) -> tuple[_Floats, float]:
    """Return patches at random places of images, (about 50,000, channels * side^2), and their contrast floor.

    Images are float64 (n, channels * height * width).
    """
    channels, height, width = shape
    generator = rng(seed, Purpose.PREPARE, 2)
    # Every image gives as many patches.
    each = -(-_PATCHES // len(images))
    tops = generator.integers(0, height - side + 1, (len(images), each))
    lefts = generator.integers(0, width - side + 1, (len(images), each))
    # A view: patches are copied only where they are chosen.
    windows = np.lib.stride_tricks.sliding_window_view(images.reshape(-1, *shape), (side, side), axis=(2, 3))
    patches = windows[np.arange(len(images))[:, None], :, tops, lefts]
    patches = np.ascontiguousarray(patches.reshape(-1, channels * side**2))
    if not contrast:
        return patches, 0.0
    floor = _CONTRAST_FLOOR * float(patches.var(axis=1).mean())
    # each patch is an image of one patch
    return patches_of(patches, (channels, side, side), side, floor, np.empty_like(patches)), floor


def whitening_of(patches: _Floats) -> Whitening:
    """Return the whitening of patches (n, p), rotated back to pixels (ZCA)."""
    mean = patches.mean(axis=0)
    centred = patches - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(patches))
    # Rounding may make the smallest eigenvalues negative.
    values = np.maximum(values, 0.0)
    floor = _WHITENING_FLOOR * values.mean()
    scale = 1.0 / np.sqrt(values + floor) if floor else np.zeros(len(values))
    return Whitening(mean, (vectors * scale) @ vectors.T)


def random_filters(n_filters: int, size: int, seed: int) -> _Floats:
    """Return random directions, shape (n_filters, size)."""
    return _unit(rng(seed, Purpose.PREPARE, 3).standard_normal((n_filters, size)))


def kmeans(patches: _Floats, n_filters: int, seed: int, *, directions: bool = True) -> _Floats:
    """Return the k-means centres of whitened patches (n, p) or their directions, (n_filters, p): Lloyd's algorithm."""
    # With replacement only where there are fewer patches than filters.
    start = rng(seed, Purpose.PREPARE, 4).choice(len(patches), n_filters, replace=n_filters > len(patches))
    centres = patches[start]
    for _ in range(_ROUNDS):
        nearest, distance = _assigned(patches, centres)
        members = sp.csr_matrix((np.ones(len(patches)), (nearest, np.arange(len(patches)))), (n_filters, len(patches)))
        # No patch: the sum is zero, and the centre is replaced below.
        counts = np.bincount(nearest, minlength=n_filters)
        centres = np.asarray(members @ patches) / np.maximum(counts, 1)[:, None]
        # a centre without patches moves to the patch that is farthest from its own centre
        empty = np.flatnonzero(counts == 0)[: len(patches)]
        centres[empty] = patches[np.argsort(-distance, kind="stable")[: len(empty)]]
    return _unit(centres) if directions else centres


def _assigned(patches: _Floats, centres: _Floats) -> tuple[NDArray[np.int64], _Floats]:
    """Return each patch's nearest centre, ties to the first, and its squared distance."""
    nearest, distance = np.empty(len(patches), np.int64), np.empty(len(patches))
    # |c|^2 / 2 - x . c orders the centres as the distance does, with one product.
    half = 0.5 * np.square(centres).sum(axis=1)
    for first in range(0, len(patches), _CHUNK):
        rows = slice(first, first + _CHUNK)
        closeness = patches[rows] @ centres.T - half
        nearest[rows] = closeness.argmax(axis=1)
        distance[rows] = np.square(patches[rows]).sum(axis=1) - 2.0 * closeness.max(axis=1)
    return nearest, distance


def _unit(rows: _Floats) -> _Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    # A zero row has no direction, and stays zero.
    return rows / np.where(norms > 0.0, norms, 1.0)
