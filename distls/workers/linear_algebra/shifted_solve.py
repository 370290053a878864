"""Solves with A + c I for many c, A symmetric.

Reflectors are applied in blocks, by the compact WY form (Schreiber and Van Loan 1989).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

Array = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# Columns reduced at a time: products this wide are near the speed of large ones, and banded solves are still cheap.
_BAND = 48


class Shifted:
    """A symmetric positive semidefinite matrix, reduced once to Q B Q^T with B banded, to solve with any A + c I.

    The reduction costs (4/3) d^3 operations, nearly all of them in matrix products, a solve little more than two
    products with Q: for many c that serves as an eigendecomposition does, at a fraction of its cost. The matrix is
    float64 (d, d), both triangles; `eps` the relative rounding error of its elements.
    """

    def __init__(self, matrix: Array, eps: float = _EPS) -> None:
        d = len(matrix)
        # smaller shifts are raised to it: they would be lost in rounding, and A + c I might have no factor
        self.least = max(d * _EPS, 10.0 * eps) * float(np.linalg.norm(matrix))
        self._band = np.zeros((_BAND + 1, d))
        self._reflectors: list[tuple[Array, Array]] = []
        rest = matrix.T  # Fortran-ordered; only its lower triangle is read
        for first in range(0, d, _BAND):
            # What is no wider than the band is banded as it is.
            if len(rest) <= _BAND + 1:
                self._keep(first, rest)
                break
            rest = self._reduce(first, rest)

    def inside(self, right: Array) -> Array:
        """Return ``Q^T @ right``, for right sides of shape (d, any)."""
        # A copy: reflectors work in place.
        out = np.array(right)
        for number, (v, t) in enumerate(self._reflectors):
            below = out[(number + 1) * _BAND :]
            below -= v @ (t.T @ (v.T @ below))
        return out

    def outside(self, inner: Array) -> Array:
        """Return ``Q @ inner``."""
        out = np.array(inner)
        for number, (v, t) in reversed(list(enumerate(self._reflectors))):
            below = out[(number + 1) * _BAND :]
            below -= v @ (t @ (v.T @ below))
        return out

    def solve_inside(self, inner: Array, shift: float) -> Array:
        """Return ``(B + c I)^-1 @ inner``."""
        # The shift changes the diagonal alone, which the band holds in its first row.
        band = self._band.copy()
        band[0] += max(shift, self.least)
        found: Any = linalg.solveh_banded(band, inner, overwrite_ab=True, lower=True, check_finite=False)
        return np.asarray(found)

    def _reduce(self, first: int, matrix: Array) -> Array:
        """Make the first columns of the remaining matrix banded; return the rest, lower triangle."""
        self._keep(first, matrix[:_BAND, :_BAND])
        # QR of the columns below the band: its R is the band's next block.
        factor, scales, _, _ = lapack.dgeqrf(matrix[_BAND:, :_BAND])
        width = len(scales)
        for column in range(_BAND):
            # The band is stored by diagonals, as LAPACK's banded solver wants it.
            height = min(column + 1, width)
            self._band[_BAND - column : _BAND - column + height, first + column] = factor[:height, column]
        v = np.tril(factor[:, :width], -1)
        # Ones on the diagonal of the reflectors are implied in LAPACK's storage.
        v[np.arange(width), np.arange(width)] = 1.0
        t = _block_reflector(v, scales)
        # (I - V T V^T)^T C (I - V T V^T) = C - V W^T - W V^T
        rest = np.asfortranarray(matrix[_BAND:, _BAND:])
        y = blas.dsymm(1.0, rest, np.asfortranarray(v), lower=1) @ t
        w = y - 0.5 * (v @ (t.T @ (v.T @ y)))
        # Only reflectors are kept, not Q: half the memory, and products with it are as fast.
        self._reflectors.append((v, t))
        return np.asarray(
            blas.dsyr2k(-1.0, np.asfortranarray(v), np.asfortranarray(w), beta=1.0, c=rest, overwrite_c=1, lower=1)
        )

    def _keep(self, first: int, block: Array) -> None:
        """Put the lower triangle of a block on the diagonal into the band."""
        for column in range(len(block)):
            self._band[: len(block) - column, first + column] = block[column:, column]


def _block_reflector(v: Array, scales: Array) -> Array:
    """Return T, upper triangular, of the product of reflectors H_1 H_2 ... = I - V T V^T."""
    products, t = v.T @ v, np.diag(scales)
    for column in range(1, len(scales)):
        t[:column, column] = -scales[column] * (t[:column, :column] @ products[:column, column])
    return t
