"""Filters for convolutional features: patches of a sample of images, whitened, and their k-means.

The filters are those of section 3.2 of least squares revisited; patches are prepared as by Coates et al. (2011).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distls.workers.features.convolution import patches_of
from distls.workers.runtime.rng import Purpose, rng

_Floats = NDArray[np.float64]

_PATCHES = 50_000
_ROUNDS = 10
_CHUNK = 4096
# Added to a patch's variance, and to that of a principal component, in units of the patches' mean variance (Coates et
# al. 2011 use 10 on pixels of 0 to 255, whose patches have a variance of about 2500; and 0.1 after that).
_CONTRAST_FLOOR = 0.004
_WHITENING_FLOOR = 0.1


class Whitening(NamedTuple):
    """``(patch - mean) @ matrix`` has nearly uncorrelated values of variance one."""

    mean: _Floats  # (p,)
    matrix: _Floats  # (p, p), symmetric
    contrast: float  # added to each patch's variance when it was normalised; 0: it was not


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


def whitening_of(patches: _Floats, contrast: float) -> Whitening:
    """Return the whitening of patches (n, p), rotated back to pixels (ZCA)."""
    mean = patches.mean(axis=0)
    centred = patches - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(patches))
    # Rounding may make the smallest eigenvalues negative.
    values = np.maximum(values, 0.0)
    floor = _WHITENING_FLOOR * values.mean()
    scale = 1.0 / np.sqrt(values + floor) if floor else np.zeros(len(values))
    return Whitening(mean, (vectors * scale) @ vectors.T, contrast)


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
        members = sp.csr_matrix(
            (np.ones(len(patches)), (nearest, np.arange(len(patches)))), (n_filters, len(patches))
        )
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
