"""Links of all outputs together: g is the gradient of a convex function of a row's k scores.

Equation 12 of least squares revisited. None is built in but the softmax; one's own is registered as other links are.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from typing import ClassVar

import numpy as np

from distls.workers.losses.links import Array, Link, LogOfMeans
from distls.workers.losses.loss import Floats


class CoupledLink(Link):
    """A loss ``Phi(z) - y . z`` given by the gradient of Phi; a subclass has a `name`, `targets` and a `mean`.

    `mean` maps scores (n, k) to the gradients (n, k); `potential`, if there is one, to Phi (n, 1), up to a constant.
    `steepest` is the largest eigenvalue of the mean's derivative, infinite if it has no bound.
    """

    __slots__ = ()

    separable = False
    targets = ()
    checked_outputs: ClassVar[int] = 3  # with which it is checked before it is registered

    def __init_subclass__(cls) -> None:
        """Give a link its name in methods, and one of classes its log loss; two classes keep an output each."""
        cls.link_name, cls.inner_names = cls.name, (cls.name,)
        if "class" in cls.targets:
            space = {"__slots__": (), "name": cls.name, "link": cls}
            cls.log_loss = type(f"{cls.__name__}LogLoss", (LogOfMeans,), space)()

    def number_gradient(self, scores: Floats, y: Array) -> tuple[Array, Array]:
        """Return the means less the targets, and the losses."""
        z = scores.astype(np.float64)
        return self.mean(z) - y, self.potential(z).sum(axis=1) - (y * z).sum(axis=1)

    def check(self) -> None:
        """Raise ValueError unless the mean is the gradient of a convex function, and of classes a probability each."""
        z = 2.0 * np.random.default_rng(0).standard_normal((64, self.checked_outputs))
        mean, steps = self.mean(z), 1e-5 * np.eye(self.checked_outputs)
        if mean.shape != z.shape or not np.isfinite(mean).all():
            raise ValueError(f"link {self.name}: expected finite means, one for each score")
        # An integral along rays has the mean as its gradient only if there is a function that has.
        slopes = [self.potential(z + step) - self.potential(z - step) for step in steps]
        found = np.stack([slope.sum(axis=1) for slope in slopes], axis=1) / 2e-5
        if np.abs(found - mean).max() > 1e-5 * (1.0 + np.abs(mean).max()):
            raise ValueError(f"link {self.name}: its mean is not the gradient of a potential")
        ahead, change = np.diff(z, axis=0), np.diff(mean, axis=0)
        if ((ahead * change).sum(axis=1) < -1e-9).any():
            raise ValueError(f"link {self.name}: its potential is not convex")
        if "class" in self.targets and not 0.0 <= mean.min() <= mean.max() <= 1.0:
            raise ValueError(
                f"link {self.name}: its means are not probabilities, as those of classes must be"
            )
        # With room for rounding in the differences.
        if (
            np.linalg.norm(change, axis=1) > self.steepest * np.linalg.norm(ahead, axis=1) * (1 + 1e-9)
        ).any():
            raise ValueError(f"link {self.name}: its mean is steeper than steepest = {self.steepest:g}")
