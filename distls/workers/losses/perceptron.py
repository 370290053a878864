"""Multi-class perceptron."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np

from distls.workers.losses.binary_losses import BinaryPerceptron
from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.row_functions import row_gradient_of
from distls.workers.losses.shared_parts import pairs, scores_of_class
from distls.workers.simd.class_sums import first_max


class Perceptron(Loss):
    """Multi-class perceptron loss, ``max_j z_j - z_y`` (MCID paper Eq. 11, gradient Eq. 17)."""

    __slots__ = ()

    name = "perceptron"
    certificate = "none"
    binary = BinaryPerceptron()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return scores.max(axis=1) - scores_of_class(scores, y)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: +1 at the first best class, -1 at y, or 0 where they agree."""
        return pairs(scores.argmax(axis=1), y, scores)


@row_gradient_of(Perceptron)
def _row(z, scale, y, g):
    best = first_max(z)
    # Both places are `best`: where the row's class is best, the pair cancels to no gradient.
    return scale * (np.float64(z[best]) - np.float64(z[y])), best, best
