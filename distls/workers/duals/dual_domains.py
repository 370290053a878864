"""Where the conjugates of losses are finite, and dual points that are exactly there (SDCA: Shalev-Shwartz, Zhang 2013).

The duals a_i (k numbers a row) are the negative gradients of a loss in its scores. With t_c = 1 for the row's class and
-1 for the others (of one output, 1 for class 1), a domain is

* ``line``: any numbers (squared loss);
* ``ray``: ``t_c a_c >= 0`` (one-versus-rest squared hinge);
* ``box``: ``0 <= t_c a_c <= 1`` (one-versus-rest hinge and logistic loss);
* ``simplex``: ``a = e_y - m`` with m >= 0 of sum one (softmax, multi-class hinge).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.losses.loss import DualDomain, Floats
from distls.workers.losses.shared_parts import class_signs

Array = NDArray[np.float64]


def feasible(domain: DualDomain, duals: Floats, y: Any) -> Array:
    """Return float64 duals (n, k) exactly in the domain, from duals that are so up to rounding."""
    # float64, where sums and signs are exact enough to stay in the domain.
    a = duals.astype(np.float64)
    if domain == "line":
        return a
    if domain in ("ray", "box"):
        signs = class_signs(y, a.shape[1])
        return np.asarray(signs * np.clip(signs * a, 0.0, 1.0 if domain == "box" else None))
    rows = np.arange(len(a))
    # The own dual follows from the others, so that the row sums to zero exactly.
    a[rows, y] = 0.0
    others = np.minimum(a, 0.0)
    # Scaled down only where the masses exceed one by rounding.
    others /= np.maximum(-others.sum(axis=1), 1.0)[:, None]
    others[rows, y] = -others.sum(axis=1)
    return others


class Balance:
    """The map that makes the weighted duals of every output sum to zero, and keeps them in their domain.

    Only such a dual point bounds the optimum of a problem with an unpenalised intercept. `up` and `down` (k,) are the
    sums of ``s_i max(a_ic, 0)`` and ``s_i max(-a_ic, 0)`` over all rows; `class_sums` (k,), of the domain
    ``simplex``, the weight of each class; `weight_sum` that of all rows.
    """

    def __init__(self, domain: DualDomain, up: Array, down: Array, class_sums: Array, weight_sum: float) -> None:
        self._domain = domain
        # What every output's weighted duals sum to; it has to be zero.
        excess = up - down
        if domain == "line":
            self._shift = excess / weight_sum
        elif domain == "simplex":
            # classes with too much mass give a share of it to those with too little
            surplus = excess < 0.0
            # Kept so that the class ends with just the mass it should have.
            self._kept = np.where(surplus, class_sums / np.where(surplus, class_sums - excess, 1.0), 1.0)
            missing = np.maximum(excess, 0.0)
            # The tiny divisor: no class is short of mass, and all shares are zero.
            self._shares = missing / max(float(missing.sum()), np.finfo(float).tiny)
        else:
            larger, smaller = np.maximum(up, down), np.minimum(up, down)
            # The larger side is scaled down: scaling up could leave the domain.
            factor = np.where(larger > 0.0, smaller / np.where(larger > 0.0, larger, 1.0), 1.0)
            self._of_up, self._of_down = np.where(up > down, factor, 1.0), np.where(up < down, factor, 1.0)

    def __call__(self, duals: Array, y: Any) -> Array:
        """Return the balanced duals of some rows, shape (n, k)."""
        if self._domain == "line":
            return duals - self._shift
        if self._domain != "simplex":
            return duals * np.where(duals > 0.0, self._of_up, self._of_down)
        masses = -duals
        # In masses, m = e_y - a, where the domain is the simplex.
        masses[np.arange(len(masses)), y] += 1.0
        masses *= self._kept
        # What was taken goes to the classes that lack mass, so that every row's masses still sum to one.
        masses += (1.0 - masses.sum(axis=1))[:, None] * self._shares
        masses *= -1.0
        masses[np.arange(len(masses)), y] += 1.0
        return masses
