"""Convolutional features of images: filters times patches, rectified, and averaged over regions (section 3.2).

Sums over regions, as Coates et al. (2011) have them, are the same features: they are scaled to variance one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.workers.features.feature_kernels import cut_patches, normalise_patches, pool_absolute, pool_two_sided
from distls.workers.runtime.buffers import take

# bytes of patches that are multiplied at a time: they stay in a core's cache
_PATCH_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class Convolution:
    """Filters, and the rectification, pooling and scaling of their responses."""

    # (channels, height, width) of an image; a row holds channel after channel, each line by line
    shape: tuple[int, int, int]
    side: int  # filters are side x side pixels of all channels
    filters: NDArray[np.float64]  # (n_filters, channels * side * side)
    offsets: NDArray[np.float64]  # (n_filters,), added to the responses
    pool: int = 2  # responses are averaged over pool x pool regions of the image
    # two features max(r - threshold, 0) and max(-r - threshold, 0), or "absolute": max(|r| - threshold, 0);
    # "triangle": max(mean of the filters' distances from the whitened patch - a filter's - threshold, 0)
    rectify: str = "two-sided"
    threshold: float = 0.0
    # patches are centred and divided by the root of their variance plus this; 0: used as they are
    contrast: float = 0.0
    # (per_filter, n_filters), subtracted from features; None: features are used as they are
    means: NDArray[np.float64] | None = None
    # (per_filter, n_filters), by which the centred features are multiplied
    scales: NDArray[np.float64] | None = None
    # of "triangle", whose offsets are less half the squares of the filters (whitened): (1 + channels * side * side,
    # channels * side * side), what is subtracted from patches times the rest
    whitening: NDArray[np.float64] | None = None

    @property
    def n_inputs(self) -> int:
        """Width of the rows it takes."""
        return int(np.prod(self.shape))

    @property
    def per_filter(self) -> int:
        """Features of each filter."""
        return self.pool**2 * (2 if self.rectify == "two-sided" else 1)

    @property
    def width(self) -> int:
        """Features of a row."""
        return len(self.filters) * self.per_filter

    @property
    def patches(self) -> tuple[int, int]:
        """Patches of an image, and values of a patch."""
        channels, height, width = self.shape
        return (height - self.side + 1) * (width - self.side + 1), channels * self.side**2

    def part(self, number: int, n_filters: int) -> Convolution:
        """Return the convolution with the filters ``number * n_filters`` to ``(number + 1) * n_filters - 1``."""
        chosen = slice(number * n_filters, (number + 1) * n_filters)
        means, scales = (None if own is None else own[:, chosen] for own in (self.means, self.scales))
        return replace(self, filters=self.filters[chosen], offsets=self.offsets[chosen], means=means, scales=scales)

    def work_bytes(self, itemsize: int) -> int:
        """Return the bytes that `convolve` needs in addition to rows and features."""
        n_patches, values = self.patches
        triangle = values + len(self.filters) if self.rectify == "triangle" else 0
        image = n_patches * (values + len(self.filters) + triangle) * itemsize
        return _images_at_once(self, itemsize) * image + self.filters.nbytes


def _images_at_once(convolution: Convolution, itemsize: int) -> int:
    # As many images as fit, at least one; the results do not depend on it.
    return max(1, _PATCH_BYTES // (int(np.prod(convolution.patches)) * itemsize))


def patches_of(
    images: NDArray[Any], shape: tuple[int, int, int], side: int, contrast: float, out: NDArray[Any]
) -> NDArray[Any]:
    """Fill `out` with all patches of images (n, channels * height * width), and return it."""
    cut_patches(images.reshape(-1, *shape), side, out)
    if contrast > 0.0:
        normalise_patches(out, contrast)
    return out


def convolve(convolution: Convolution, values: NDArray[Any], out: NDArray[Any], buffers: BufferPool) -> NDArray[Any]:
    """Fill `out` (n, width) with the features of images (n, n_inputs) of the same type, and return it.

    Features go region by region, then side by side (of two-sided ones), then filter by filter.
    """
    dtype, step = out.dtype, _images_at_once(convolution, out.itemsize)
    n_patches, size = convolution.patches
    n_filters = len(convolution.filters)
    # In the type of the rows, whose products these are.
    filters, offsets = convolution.filters.T.astype(dtype), convolution.offsets.astype(dtype)
    cells, weights = _regions(convolution)
    two_sided = convolution.rectify == "two-sided"
    pooled: Any = pool_two_sided if two_sided else pool_absolute
    form = (convolution.pool**2, 2, n_filters) if two_sided else (convolution.pool**2, n_filters)
    means, scales = (
        None if own is None else own.astype(dtype).ravel() for own in (convolution.means, convolution.scales)
    )
    for first in range(0, len(values), step):
        images = values[first : first + step]
        shape = (len(images) * n_patches, size)
        patches = take(buffers, "patches", shape, dtype)
        patches_of(images, convolution.shape, convolution.side, convolution.contrast, patches)
        responses = take(buffers, "responses", (len(patches), n_filters), dtype)
        # One matrix product for all positions: faster than any loop over filters.
        np.matmul(patches, filters, out=responses)
        shifts = offsets
        if convolution.whitening is not None:
            _triangle(patches, convolution.whitening.astype(dtype), responses, offsets)
            shifts = np.zeros_like(offsets)
        threshold = dtype.type(convolution.threshold)
        pooled(
            responses.reshape(len(images), n_patches, n_filters),
            shifts,
            threshold,
            cells,
            weights.astype(dtype),
            out[first : first + step].reshape(len(images), *form),
        )
        if means is not None and scales is not None:
            # Centred and scaled after pooling, with the statistics of the first images.
            out[first : first + step] -= means
            out[first : first + step] *= scales
    return out


def _triangle(patches: NDArray[Any], whitening: NDArray[Any], responses: NDArray[Any], offsets: NDArray[Any]) -> None:
    """Overwrite responses by how much nearer than the filters' mean distance each filter is, 0 if it is farther."""
    whitened = patches @ whitening[1:]
    whitened -= whitening[0]
    # |x - c|^2 = |x|^2 - 2 (x . c - |c|^2 / 2)
    responses += offsets
    responses *= -2.0
    responses += np.einsum("ij,ij->i", whitened, whitened)[:, None]
    # Rounding may make the square of a distance negative.
    np.sqrt(np.maximum(responses, 0.0, out=responses), out=responses)
    np.subtract(responses.mean(axis=1, keepdims=True), responses, out=responses)
    np.maximum(responses, 0.0, out=responses)


def _regions(convolution: Convolution) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the region of each position (n_positions,), and one over the positions of each region."""
    pool = convolution.pool
    _, height, width = convolution.shape
    rows, columns = (np.arange(n - convolution.side + 1) for n in (height, width))
    # Regions differ by at most one position where the image does not divide evenly.
    cells = (rows * pool // len(rows))[:, None] * pool + (columns * pool // len(columns))[None, :]
    counts = np.bincount(cells.ravel(), minlength=pool**2)
    return cells.ravel().astype(np.int64), 1.0 / counts
