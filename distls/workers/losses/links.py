"""Losses given by a link (Eq. 2 of least squares revisited), in NumPy, and log losses of probabilities.

The loss of a row is ``sum_c Phi(z_c) - y_c z_c`` with Phi a convex function, the potential, whose derivative g, the
mean, predicts y: the indicators of the row's class, or numbers. `gls` trains with it. Such losses have no kernels:
`distls.workers.losses.targets` calls these methods. Links of all outputs together (Eq. 12), whose g is the gradient of
a convex function of a row's k scores, are registered as others are; none is built in but the softmax.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
import math
from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.workers.losses.binary_losses import SingleOutput
from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.row_functions import row_gradient_of
from distls.workers.losses.shared_parts import scores_of_class, softmax_in_place
from distls.workers.simd.class_sums import first_max

Array = NDArray[np.float64]

# A potential is integrated in panels that become smaller toward 0, where a link turns, by Gauss and Legendre's rule.
_EDGES = np.append(0.0, 2.0 ** np.arange(-12, 1))
_NODES, _SHARES = np.polynomial.legendre.leggauss(16)
_MOST = 60.0  # the logarithm of a mean: 1e26
_CHECKED = np.linspace(-4.0, 4.0, 33)  # scores at which a link is checked before it is registered


class Link(Loss):
    """A loss given by its link; a subclass has a `name` and a `mean`, and for speed a `potential`.

    `steepest` is the largest derivative of the mean, infinite if it has no bound. `targets` are classes, whose means
    are probabilities, or numbers (``("continuous",)``).
    """

    __slots__ = ()

    separable = True
    stochastic = False
    steepest: ClassVar[float] = math.inf
    floor = -math.inf  # of a potential that is integrated from 0, nothing is known
    symmetric: ClassVar[bool | None] = None  # whether g(-z) = 1 - g(z); None: it is computed

    def __init_subclass__(cls) -> None:
        """Give a link its name in methods, and one of classes its log loss and its form for two classes."""
        cls.link_name = getattr(cls, "name", None)
        cls.inner_names = tuple(filter(None, [cls.link_name]))
        if "class" not in cls.targets:
            return
        # A class of its own, because numba and pickle know a loss by its class.
        space = {"__slots__": (), "name": cls.name, "link": cls}
        cls.log_loss = type(f"{cls.__name__}LogLoss", (LogOfMeans,), space)()
        # Of others a score of zero has no probability of a half: two classes keep an output each.
        symmetric = vars(cls).get("symmetric")  # not of the class that it is made from
        if symmetric is None:
            sums = cls().mean(_CHECKED) + cls().mean(-_CHECKED)
            symmetric = np.allclose(sums, 1.0, rtol=0.0, atol=1e-9)
        if symmetric:
            facts = {"floor": cls.floor, "log_loss": cls.log_loss}
            space |= {"name": f"binary_{cls.name}", **facts}
            cls.binary = type(f"Binary{cls.__name__}", (BinaryLink,), space)()

    def mean(self, scores: Array) -> Array:
        """Return g at each score, which must not decrease."""
        raise NotImplementedError

    def potential(self, scores: Array) -> Array:
        """Return Phi at each score, up to a constant: the integral of the mean from 0, unless a subclass knows it."""
        # From 0, where links turn; the constant does not matter in a difference of losses.
        total = np.zeros(scores.shape)
        for start, stop in pairwise(_EDGES):
            half = 0.5 * (stop - start)
            for node, share in zip(_NODES, _SHARES, strict=True):
                # The integral from 0 to z is z times that over [0, 1] of the scaled mean, so one rule serves
                # all scores.
                total += half * share * self.mean(scores * (start + half * (1.0 + node)))
        return total * scores

    def log_mean(self, scores: Array) -> Array:
        """Return the logarithm of the mean, a probability."""
        # A mean that underflows must not give an infinite log loss.
        return np.log(np.maximum(self.mean(scores), 1e-300))

    def values(self, scores: Floats, y: Codes) -> Array:
        """Return the loss of each row."""
        z = np.asarray(scores, np.float64)
        return np.asarray(self.potential(z).sum(axis=1) - scores_of_class(z, y))

    def gradient(self, scores: Floats, y: Codes) -> Array:
        """Return the derivatives of each row: the means, less 1 at the row's class."""
        out = np.array(self.mean(np.asarray(scores, np.float64)))
        out[np.arange(len(y)), y] -= 1.0
        return out

    def number_gradient(self, scores: Floats, y: Array) -> tuple[Array, Array]:
        """Return the means less the targets, and the losses."""
        z = scores.astype(np.float64)
        return self.mean(z) - y, (self.potential(z) - y * z).sum(axis=1)

    def numbers(self, scores: Floats) -> Floats:
        """Return the means."""
        return self.mean(scores.astype(np.float64)).astype(scores.dtype)

    def probabilities(self, scores: Floats) -> Floats:
        """Overwrite scores by the means over their sum, and return them."""
        # Normalised as a softmax of the logarithms, which is right where all means underflow.
        scores[...] = self.log_mean(scores.astype(np.float64))
        return softmax_in_place(scores)

    def lipschitz(self, k: int) -> float:
        """Return the largest derivative of the mean."""
        return self.steepest

    def check(self) -> None:
        """Raise ValueError unless the mean increases, is a probability of classes, and is the potential's slope."""
        mean, step = self.mean(_CHECKED), 1e-5
        # Central differences, whose error is of the order of the square of the step.
        slope = (self.potential(_CHECKED + step) - self.potential(_CHECKED - step)) / (2 * step)
        if not np.isfinite(mean).all() or (np.diff(mean) < 0).any():
            raise ValueError(f"link {self.name}: its mean is not finite or decreases between -4 and 4")
        if "class" in self.targets and not 0.0 <= mean[0] <= mean[-1] <= 1.0:
            raise ValueError(f"link {self.name}: its mean is not a probability, as that of classes must be")
        if np.abs(slope - mean).max() > 1e-5 * (1.0 + np.abs(mean).max()):
            raise ValueError(f"link {self.name}: its mean is not the derivative of its potential")
        # With room for rounding in the differences.
        if (np.diff(mean) > self.steepest * np.diff(_CHECKED) * (1.0 + 1e-9)).any():
            raise ValueError(f"link {self.name}: its mean is steeper than steepest = {self.steepest:g}")


class LogOfMeans(Loss):
    """``-log p_y`` for p_c = g(z_c) / sum_j g(z_j): evaluates models of a link; no gradient."""

    __slots__ = ()

    link: ClassVar[type[Link]]

    def values(self, scores: Floats, y: Codes) -> Array:
        """Return the log loss of each row."""
        z = np.asarray(scores, np.float64)
        # of two classes with one output, whose means sum to one
        logs = self.link().log_mean(z if z.shape[1] > 1 else np.hstack([-z, z]))
        # The maximum is subtracted, so that no exponential overflows.
        shifted = logs - logs.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - scores_of_class(shifted, y))


class BinaryLink(SingleOutput):
    """A link of two classes, ``Phi(-m)``, whose mean is the probability of the second: ``g(-z) = 1 - g(z)``."""

    __slots__ = ()

    link: ClassVar[type[Link]]
    stochastic = False

    def of_margins(self, m: Array) -> tuple[Array, Array]:
        m = np.asarray(m, np.float64)
        return self.link().potential(-m), -np.asarray(self.link().mean(-m))

    def probabilities(self, scores: Floats) -> Floats:
        """Return the means."""
        return self.link().probabilities(np.hstack([-scores, scores]))

    def lipschitz(self, k: int) -> float:
        """Return the largest derivative of the mean."""
        return self.link.steepest


class Probit(Link):
    """``g(z) = N(z)``, the normal distribution function; Phi is ``z N(z) + N'(z)``."""

    __slots__ = ()

    name = "probit"
    symmetric = True  # known, so that what no link is used for does not load SciPy's functions
    steepest = 1.0 / math.sqrt(2.0 * math.pi)
    floor = 0.0

    def mean(self, scores: Array) -> Array:
        """Return N(z)."""
        return np.asarray(scipy.special.ndtr(scores))

    def potential(self, scores: Array) -> Array:
        """Return the integral of N from minus infinity."""
        return np.asarray(scores * scipy.special.ndtr(scores) + self.steepest * np.exp(-0.5 * np.square(scores)))

    def log_mean(self, scores: Array) -> Array:
        """Return log N(z), finite where N(z) underflows."""
        return np.asarray(scipy.special.log_ndtr(scores))


class Cauchit(Link):
    """``g(z) = 1/2 + arctan(z) / pi``, the Cauchy distribution function.

    Far from its side a row's loss falls without a bound, though slowly: like ``-log |z|``.
    """

    __slots__ = ()

    name = "cauchit"
    steepest = 1.0 / math.pi

    def mean(self, scores: Array) -> Array:
        """Return the distribution function."""
        # arctan(1, -z) / pi is the same, without the cancellation where z is far below 0
        return np.asarray(np.arctan2(1.0, -scores) / math.pi)

    def potential(self, scores: Array) -> Array:
        """Return the integral from 0."""
        return np.asarray(scores * self.mean(scores) - np.log1p(np.square(scores)) / (2.0 * math.pi))


class Poisson(Link):
    """Counts, ``g(z) = exp(z)``: the loss is half the Poisson deviance, ``exp(z) - y z`` less its least value."""

    __slots__ = ()

    name = "poisson"
    targets = ("continuous",)
    floor = 0.0

    def mean(self, scores: Array) -> Array:
        """Return exp(z), or where no count leads, exp(60): steps that are too long must not overflow."""
        return np.asarray(np.exp(np.minimum(scores, _MOST)))

    def potential(self, scores: Array) -> Array:
        """Return exp(z), continued as a line."""
        return np.asarray(self.mean(scores) * (1.0 + np.maximum(scores - _MOST, 0.0)))

    def number_gradient(self, scores: Floats, y: Array) -> tuple[Array, Array]:
        """Return the means less the counts, and half the deviances; raise ParameterError for a negative count."""
        if y.min(initial=0.0) < 0.0:
            raise ParameterError(
                f"link=poisson: a target is {y.min():g}; counts are 0 or more (link=identity takes any numbers)"
            )
        gradient, values = super().number_gradient(scores, y)
        # Half the deviance instead of the likelihood: zero for a perfect fit, so relative tolerances make sense.
        return gradient, values - (y - scipy.special.xlogy(y, y)).sum(axis=1)

    def start_at(self, gradient: Array) -> tuple[Array, float]:
        """Return the best scores without any feature, and the curvature there, from the mean gradient at zero."""
        mean = np.maximum(1.0 - gradient, 1e-8)  # outputs without a single count have no best score
        return np.log(mean), float(mean.max())


class LogOfProbability(Loss):
    """``-log z_y``, infinite for z_y = 0: evaluates models that end in a projection onto the simplex; no gradient."""

    __slots__ = ()

    name = "simplex"

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the log loss of each row."""
        # A probability of zero has an infinite loss, which is meant, and no warning.
        with np.errstate(divide="ignore"):
            return -np.log(scores_of_class(scores, y))

    def probabilities(self, scores: Floats) -> Floats:
        """Return the scores."""
        return scores


LogOfProbability.log_loss = LogOfProbability()


@row_gradient_of(LogOfProbability)
def _row(z, scale, y, g):
    own = scale * np.float64(z[y])
    return np.inf if own <= 0.0 else -math.log(own), y, first_max(z)


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
            raise ValueError(f"link {self.name}: its means are not probabilities, as those of classes must be")
        # With room for rounding in the differences.
        if (np.linalg.norm(change, axis=1) > self.steepest * np.linalg.norm(ahead, axis=1) * (1 + 1e-9)).any():
            raise ValueError(f"link {self.name}: its mean is steeper than steepest = {self.steepest:g}")
