"""The largest eigenvalue of a matrix that is known by its products, which cost a read each: subspace iteration."""

import numpy as np
from numpy.typing import NDArray

from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Columns of the subspace, the relative residual that ends its iteration, and the reads that do.
COLUMNS, RESIDUAL, NORM_READS = 4, 0.01, 20


def general_basis(m: int) -> Array:
    """Return orthonormal columns in general position, always the same."""
    # A fixed basis instead of a random one: the bound, and so every step, is the same in every fit.
    waves = np.cos(np.outer(np.arange(1.0, m + 1.0), np.sqrt(np.arange(2.0, 2.0 + min(COLUMNS, m)))))
    waves[:, 0] = 1.0  # not orthogonal to the leading direction of rows that are not negative
    with single_threaded_blas():
        return np.asarray(np.linalg.qr(waves)[0])


def leading_eigenvalue(vectors: Array, product: Array) -> tuple[float, float]:
    """Return an estimate from orthonormal columns and their product, and its residual, within which there is one."""
    # Rayleigh-Ritz: the projection onto a subspace gives estimates of the leading eigenvalues from one product.
    values, rotation = np.linalg.eigh(vectors.T @ product)
    rest = product @ rotation[:, -1] - values[-1] * (vectors @ rotation[:, -1])
    # The residual of the leading pair bounds the error of its eigenvalue, because the matrix is symmetric.
    return float(values[-1]), float(np.sqrt(rest @ rest))
