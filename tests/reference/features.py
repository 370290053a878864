"""Plain NumPy features, from their formulas alone: rows in, features out."""

from typing import Any

import numpy as np

FEATURES, COLUMNS = 8, 9  # purposes of streams of random numbers: docs/notation.md


def stream(seed: int, purpose: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, *key))))


def fourier(x: np.ndarray, size: int, s: float, seed: int, stage: int) -> np.ndarray:
    """Return sqrt(2) cos(w . x + b), w ~ N(0, (2 / s) I), b uniform on a circle (Rahimi and Recht 2007)."""
    draw = stream(seed, FEATURES, stage)
    w = draw.standard_normal((x.shape[1], size)) * np.sqrt(2 / s)
    b = 2 * np.pi * draw.random(size)
    return np.sqrt(2) * np.cos(x @ w + b)


def logits(x: np.ndarray, size: int, s: float, seed: int, stage: int) -> np.ndarray:
    """Return 2 sigma(w . x + b) - 1, w ~ N(0, (2 / s) I), b ~ N(0, 1)."""
    draw = stream(seed, FEATURES, stage)
    w = draw.standard_normal((x.shape[1], size)) * np.sqrt(2 / s)
    return 2 / (1 + np.exp(-(x @ w + draw.standard_normal(size)))) - 1


def polynomials(x: np.ndarray, size: int, s: float, seed: int, stage: int, degree: int) -> np.ndarray:
    """Return the product of `degree` factors w . x + b, w ~ N(0, (1 / s) I), b ~ N(0, 1 / 2)."""
    draw = stream(seed, FEATURES, stage)
    out = np.ones((len(x), size))
    for _ in range(degree):
        w = draw.standard_normal((x.shape[1], size)) * np.sqrt(1 / s)
        out *= x @ w + draw.standard_normal(size) * np.sqrt(0.5)
    return out


def convolutions(x: np.ndarray, own: Any) -> np.ndarray:
    """Return rectified, pooled responses, one image, place and mask at a time."""
    channels, height, width = own.shape
    down, across = height - own.side + 1, width - own.side + 1
    two_sided = own.rectify == "two-sided"
    if own.rectify == "triangle":  # the filters were multiplied by the whitening, which is symmetric
        centres = own.filters @ np.linalg.inv(own.whitening[1:])
    out = np.zeros((len(x), own.pool, own.pool, 2 if two_sided else 1, len(own.filters)))
    counts = np.zeros((own.pool, own.pool))
    for top in range(down):
        for left in range(across):
            counts[top * own.pool // down, left * own.pool // across] += 1
    for i, row in enumerate(x.astype(np.float64)):
        image = row.reshape(channels, height, width)
        for top in range(down):
            for left in range(across):
                patch = image[:, top : top + own.side, left : left + own.side].ravel()
                if own.contrast:
                    patch = (patch - patch.mean()) / np.sqrt(patch.var() + own.contrast)
                r = own.filters @ patch + own.offsets
                both = [r, -r] if two_sided else [np.abs(r)]
                if own.rectify == "triangle":
                    far = np.linalg.norm(patch @ own.whitening[1:] - own.whitening[0] - centres, axis=1)
                    both = [far.mean() - far]
                sides = np.array([np.maximum(side - own.threshold, 0) for side in both])
                out[i, top * own.pool // down, left * own.pool // across] += sides
    out /= counts[:, :, None, None]
    if own.means is not None:
        by_region = (own.pool, own.pool, *out.shape[3:])
        out = (out - own.means.reshape(by_region)) * own.scales.reshape(by_region)
    return out.reshape(len(x), -1)
