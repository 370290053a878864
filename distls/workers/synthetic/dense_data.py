"""Synthetic dense rows: Gaussian classes, factors, and linear models of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows
from distls.workers.synthetic.family import BLOCK_ROWS, Kind
from distls.workers.synthetic.topic_documents import Labels


class GaussianModel(NamedTuple):
    """Parameters of the classes, all float32."""

    mean: NDArray[np.float32]  # shape (n_classes, n_features)
    scale: NDArray[np.float32]  # likewise
    factors: NDArray[np.float32]  # shape (n_factors, n_classes, n_features)


@dataclass(frozen=True)
class Gaussians:
    """One Gaussian per class, with its own mean and its own covariance diag(scale^2) + factors.T @ factors."""

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


def harmonic_decay(n: int) -> NDArray[np.float64]:
    """Return 1, 1/2, 1/3, ..., 1/n."""
    return 1.0 / np.arange(1, n + 1)


def geometric_decay(n: int) -> NDArray[np.float64]:
    """Return n numbers from 1 to 1/100 in equal ratios, as fractions of 2^30, scaled to a sum of squares of 1."""
    whole = np.rint(10.0 ** (-2.0 * np.arange(n) / (n - 1)) * 2.0**30)
    return whole / math.sqrt(math.fsum(whole * whole))


class FactorModel(NamedTuple):
    """Parameters of all blocks of factors."""

    scale: NDArray[np.float32]  # shape (n_features,)
    signal: NDArray[np.float64]  # shape (n_features,), unit length
    pairings: NDArray[np.int64]  # shape (rotations, n_features), permutations


@dataclass(frozen=True)
class Factors:
    """Two classes separated by standard normal factors f, which are observed at very unequal scales.

    A row is Q (scale * f), its class is 1 where ``signal . f + noise * g > 0``, g standard normal: the best
    achievable error is arctan(noise) / pi.
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
    """Return ``weights @ columns``, shape (n,)."""
    # summed feature by feature, unlike a BLAS: the same bits on any machine
    total = np.zeros(columns.shape[1])
    for weight, column in zip(weights, columns, strict=True):
        total += weight * column.astype(np.float64)
    return total
