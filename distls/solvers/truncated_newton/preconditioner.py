"""The inverse of the Hessian's diagonal, or of its blocks of each output, for conjugate gradients."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Array = NDArray[np.float64]

ROUNDING = 64 * float(np.finfo(np.float64).eps)  # of an objective, relative


class Preconditioner(NamedTuple):
    """Of a mean curvature, see `NewtonSum`, plus that of the penalty."""

    strength: Array  # the penalty's second derivative in each row of the weights, shape (m, 1)
    blocks: bool

    def scale(self, curvature: Array) -> Array:
        """Return the diagonal of the Hessian; columns without a value have no curvature, and a residual of zero."""
        diagonal = np.diagonal(curvature, axis1=1, axis2=2).T if self.blocks else curvature
        scale = diagonal + self.strength
        return np.where(scale > 0.0, scale, 1.0)

    def solve(self, curvature: Array, residual: Array) -> Array:
        """Return the residual times the inverse of the curvature's diagonal, or of its blocks."""
        if not self.blocks:
            return residual / self.scale(curvature)
        moved = np.empty_like(residual)
        for c, block in enumerate(curvature):
            matrix = block + np.diag(self.strength[:, 0])
            # an output without curvature, and a free intercept, would have none
            matrix.flat[:: len(matrix) + 1] += ROUNDING * max(float(np.trace(matrix)), 1e-300)
            try:
                moved[:, c] = cho_solve(cho_factor(matrix, lower=True), residual[:, c])
            except (LinAlgError, ValueError):
                moved[:, c] = residual[:, c] / np.maximum(np.diag(matrix), 1e-300)
        return moved
