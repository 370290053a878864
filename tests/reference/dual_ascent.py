"""Stochastic dual coordinate ascent in plain NumPy and SciPy, float64: the best duals of a row, and passes over rows.

The duals a (k numbers a row) are negative gradients in the scores. The best ones of a row minimise
``conjugate(a') + z . (a' - a) + q/2 |a' - a|^2``.
"""

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import entr, wrightomega

DOMAINS = {
    "softmax": "simplex",
    "crammer_singer": "simplex",
    "ovr_log": "box",
    "ovr_hinge": "box",
    "ovr_squared_hinge": "ray",
    "squared": "line",
}


def signs(y, k):
    """Return t of one row: `y` is a class, or 0/1 indicators; with one output t is that of class 1."""
    if np.ndim(y):
        return np.where(np.asarray(y) > 0.5, 1.0, -1.0)
    if k == 1:
        return np.array([1.0 if y == 1 else -1.0])
    return np.where(np.arange(k) == y, 1.0, -1.0)


def target(y, k):
    """Return the numbers that the squared loss compares scores with."""
    if k == 1 and not np.ndim(y):
        return signs(y, k)
    return np.asarray(y, float) if np.ndim(y) else np.eye(k)[y]


def half(k):
    """Return the factor of squared slacks: that of two classes with one output has none."""
    return 0.5 if k > 1 else 1.0


def loss(name, z, y):
    """Return the loss of one row, of all its outputs."""
    t = signs(y, len(z))
    if name == "softmax":
        return np.logaddexp.reduce(z) - z[y]
    if name == "crammer_singer":
        return max(0.0, 1.0 + np.delete(z, y).max() - z[y])
    if name == "squared":
        return 0.5 * np.square(z - target(y, len(z))).sum()
    if name == "ovr_log":
        return np.logaddexp(0.0, -t * z).sum()
    short = np.maximum(0.0, 1.0 - t * z)
    return short.sum() if name == "ovr_hinge" else half(len(z)) * np.square(short).sum()


def gradient(name, z, y):
    """Return a subgradient of the loss of one row."""
    k = len(z)
    t = signs(y, k)
    if name == "softmax":
        return np.exp(z - np.logaddexp.reduce(z)) - np.eye(k)[y]
    if name == "crammer_singer":
        raised = z + 1.0 - np.eye(k)[y]
        return np.eye(k)[raised.argmax()] - np.eye(k)[y]
    if name == "squared":
        return z - target(y, k)
    if name == "ovr_log":
        return -t * np.exp(-np.logaddexp(0.0, t * z))
    short = np.maximum(0.0, 1.0 - t * z)
    return -t * (short > 0) if name == "ovr_hinge" else -2.0 * half(k) * t * short


def conjugate(name, a, y):
    """Return the conjugate of the loss of one row at -a, for a in its domain."""
    k = len(a)
    if name == "softmax":
        return -entr(np.maximum(np.eye(k)[y] - a, 0.0)).sum()
    if name == "crammer_singer":
        return -a[y]
    if name == "squared":
        return (0.5 * a * a - a * target(y, k)).sum()
    share = signs(y, k) * a
    if name == "ovr_log":
        return -(entr(share) + entr(1.0 - share)).sum()
    return -share.sum() if name == "ovr_hinge" else (0.25 * share * share / half(k) - share).sum()


def best_duals(name, z, y, q, a):
    """Return the best duals of one row with the scores z at its duals a."""
    k = len(z)
    if name == "softmax":
        return np.eye(k)[y] - _entropic(z, q, np.eye(k)[y] - a)
    if name == "crammer_singer":
        return np.eye(k)[y] - _onto_simplex(np.eye(k)[y] - a + (z - np.eye(k)[y]) / q)
    if name == "squared":
        return (target(y, k) - z + q * a) / (1.0 + q)
    t = signs(y, k)
    margins, share = t * z, t * a
    if name == "ovr_log":
        return t * np.array([_logistic(m, q, b) for m, b in zip(margins, share, strict=True)])
    if name == "ovr_hinge":
        return t * np.clip(share + (1.0 - margins) / q, 0.0, 1.0)
    return t * np.maximum((1.0 - margins + q * share) / (0.5 / half(k) + q), 0.0)


def _sigmoid(x):
    return np.exp(-np.logaddexp(0.0, -x))


def _logistic(m, q, b):
    """Return the share at which ``logit(share) + m + q (share - b)`` is zero."""

    def excess(x):
        return x + m + q * (_sigmoid(x) - b)

    return _sigmoid(brentq(excess, -m - q - 1.0, -m + q + 1.0, xtol=1e-13, rtol=1e-15, maxiter=500))


def _entropic(z, q, old):
    """Return the masses with ``log m + q (m - old) = z - nu`` that sum to one: omega + log omega = q old + z - nu."""

    def masses(nu):
        return wrightomega(q * old + z - nu + np.log(q)) / q

    top = (z + q * old).max()
    low, high = top - q - 1.0, top + np.log(len(z)) + 1.0
    found = masses(brentq(lambda nu: masses(nu).sum() - 1.0, low, high, xtol=1e-13, rtol=1e-15, maxiter=500))
    return found / found.sum()


def _onto_simplex(v):
    """Return the point of the simplex nearest to v, by sorting."""
    v = v - v.max()
    falling = np.sort(v)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, len(v) + 1)
    return np.maximum(v - thresholds[np.flatnonzero(falling > thresholds)[-1]], 0.0)


class Ascent:
    """Duals and weights of one lane, from zero duals, with ``W = shrink(U, l1) / (1 - l1)``.

    `bias` is the square of a constant feature; its weight is the intercept.
    """

    def __init__(self, name, x, y, k, *, alpha, s=None, l1=0.0, bias=0.0):
        self.name, self.x, self.y, self.alpha, self.l1, self.bias = name, x, y, alpha, l1, bias
        self.s = np.ones(len(x)) if s is None else s
        self.duals, self.u, self.b = np.zeros((len(x), k)), np.zeros((x.shape[1], k)), np.zeros(k)

    @property
    def w(self):
        return np.sign(self.u) * np.maximum(np.abs(self.u) - self.l1, 0.0) / (1.0 - self.l1)

    def visit(self, order):
        """Replace the duals of each row in turn by the best ones."""
        n = len(self.x)
        for i in order:
            q = self.s[i] / (self.alpha * n) * (self.x[i] @ self.x[i] / (1.0 - self.l1) + self.bias)
            new = best_duals(self.name, self.x[i] @ self.w + self.b, self.y[i], max(q, 1e-30), self.duals[i])
            change = self.s[i] / (self.alpha * n) * (new - self.duals[i])
            self.u += np.outer(self.x[i], change)
            self.b += self.bias * change
            self.duals[i] = new

    def free(self):
        """Return the rows with duals strictly inside their bounds."""
        return np.flatnonzero(((self.duals != 0.0) & (np.abs(self.duals) != 1.0)).any(axis=1))

    def objective(self):
        """Return the mean loss and the penalties, that of the constant feature included."""
        w = self.w
        scores = self.x @ w + self.b
        losses = np.array([loss(self.name, z, y) for z, y in zip(scores, self.y, strict=True)])
        penalty = self.l1 * np.abs(w).sum() + 0.5 * (1.0 - self.l1) * np.square(w).sum()
        own = 0.5 * np.square(self.b).sum() / self.bias if self.bias else 0.0
        return self.s @ losses / len(losses) + self.alpha * (penalty + own)

    def dual(self):
        """Return the dual of the same problem."""
        values = np.array([conjugate(self.name, a, y) for a, y in zip(self.duals, self.y, strict=True)])
        t = self.s @ self.duals / (self.alpha * len(self.x))
        own = 0.5 * self.bias * np.square(t).sum()
        return -self.s @ values / len(values) - self.alpha * (0.5 * (1 - self.l1) * np.square(self.w).sum() + own)


# ---------------------------------------------------------------- the optimum, by independent methods


def all_signs(y, k):
    """Return t of all rows; see `signs`."""
    return np.array([signs(own, k) for own in y])


def losses(name, z, y):
    """Return the loss of every row and its gradient in the scores (n, k)."""
    rows, k = np.arange(len(z)), z.shape[1]
    if name == "softmax":
        log_total = np.logaddexp.reduce(z, axis=1)
        return log_total - z[rows, y], np.exp(z - log_total[:, None]) - np.eye(k)[y]
    if name == "crammer_singer":
        raised = z + 1.0 - np.eye(k)[y]
        return raised.max(axis=1) - z[rows, y], np.eye(k)[raised.argmax(axis=1)] - np.eye(k)[y]
    if name == "squared":
        rest = z - np.array([target(own, k) for own in y])
        return 0.5 * np.square(rest).sum(axis=1), rest
    t = all_signs(y, k)
    if name == "ovr_log":
        return np.logaddexp(0.0, -t * z).sum(axis=1), -t * np.exp(-np.logaddexp(0.0, t * z))
    short = np.maximum(0.0, 1.0 - t * z)
    if name == "ovr_hinge":
        return short.sum(axis=1), -t * (short > 0.0)
    return half(k) * np.square(short).sum(axis=1), -2.0 * half(k) * t * short


class Primal:
    """F(W, b) over all outputs, with sample weights of mean one, and its optimum."""

    def __init__(self, name, x, y, k, *, alpha, s=None, l1=0.0, intercept=False):
        if k == 2 and np.ndim(y) == 1:  # one problem of one output
            name, k = {"softmax": "ovr_log", "crammer_singer": "ovr_hinge"}.get(name, name), 1
        self.name, self.x, self.y, self.k, self.alpha, self.l1 = name, x, y, k, alpha, l1
        self.s, self.intercept = np.ones(len(x)) if s is None else s / np.mean(s), intercept

    def value(self, w, b):
        """Return F."""
        mean = self.s @ losses(self.name, self.x @ w + b, self.y)[0] / len(self.x)
        return mean + self.alpha * (self.l1 * np.abs(w).sum() + 0.5 * (1.0 - self.l1) * np.square(w).sum())

    def optimum(self):
        """Return the least F that is found."""
        return self._constrained() if self.name in ("crammer_singer", "ovr_hinge") else self._smooth()

    def _parts(self, v):
        """Return W and b of a vector: W as the difference of its halves, both at least zero."""
        size = self.x.shape[1] * self.k
        w = (v[:size] - v[size : 2 * size]).reshape(-1, self.k)
        return w, v[2 * size : 2 * size + self.k] if self.intercept else np.zeros(self.k)

    def _penalty(self, v, w):
        """Return the penalty and its gradient; the halves are never both above zero at the optimum."""
        size = w.size
        value = self.alpha * (self.l1 * v[: 2 * size].sum() + 0.5 * (1.0 - self.l1) * np.square(w).sum())
        own = self.alpha * (1.0 - self.l1) * w.reshape(-1)
        return value, np.concatenate([own + self.alpha * self.l1, -own + self.alpha * self.l1])

    def _smooth(self):
        size = self.x.shape[1] * self.k
        extra = self.k * self.intercept

        def value(v):
            w, b = self._parts(v)
            each, g = losses(self.name, self.x @ w + b, self.y)
            g = g * self.s[:, None] / len(g)
            penalty, slope = self._penalty(v, w)
            own = (self.x.T @ g).reshape(-1)
            whole = np.concatenate([slope + np.concatenate([own, -own]), g.sum(axis=0)[: extra or 0]])
            return self.s @ each / len(each) + penalty, whole

        found = minimize(
            value, np.zeros(2 * size + extra), jac=True, method="L-BFGS-B",
            bounds=[(0, None)] * (2 * size) + [(None, None)] * extra,
            options={"maxiter": 20000, "maxfun": 40000, "maxcor": 50, "ftol": 1e-16, "gtol": 1e-11},
        )  # fmt: skip
        return self.value(*self._parts(found.x))

    def _constrained(self):
        """Hinges by a bound of each row's loss (of each output's loss) and linear constraints."""
        n, d, k = len(self.x), self.x.shape[1], self.k
        size, extra = d * k, k * self.intercept
        joint = self.name == "crammer_singer"
        bounds = n if joint else n * k
        rows, t = [], None if joint else all_signs(self.y, k)
        for i in range(n):  # xi - t (x w + b) >= 1, or xi + (z_y - z_c) >= 1
            for c in range(k):
                if joint and c == self.y[i]:
                    continue
                place = np.zeros((d + 1, k))
                if joint:
                    place[:, self.y[i]] = [*self.x[i], 1.0]
                    place[:, c] = [*-self.x[i], -1.0]
                else:
                    place[:, c] = t[i, c] * np.append(self.x[i], 1.0)
                own = place[:d].reshape(-1)
                slack = np.zeros(bounds)
                slack[i if joint else i * k + c] = 1.0
                rows.append(np.concatenate([own, -own, place[d][:extra], slack]))
        a = np.array(rows)
        weight = (self.s if joint else np.repeat(self.s, k)) / n

        def value(v):
            penalty, slope = self._penalty(v, self._parts(v)[0])
            return penalty + weight @ v[-bounds:], np.concatenate([slope, np.zeros(extra), weight])

        start = np.concatenate([np.zeros(2 * size + extra), np.ones(bounds)])
        found = minimize(
            value, start, jac=True, method="SLSQP",
            bounds=[(0, None)] * (2 * size) + [(None, None)] * extra + [(0, None)] * bounds,
            constraints={"type": "ineq", "fun": lambda v: a @ v - 1.0, "jac": lambda v: a},
            options={"maxiter": 500, "ftol": 1e-13},
        )  # fmt: skip
        return self.value(*self._parts(found.x))
