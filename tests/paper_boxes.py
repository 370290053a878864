"""Each box of the papers in plain NumPy on three passes over the rows of `data`, and what it leaves to the user."""

from typing import Any

import numpy as np

from distls.workers.runtime.rng import Purpose, rng
from distls.workers.stochastic.lane_task import draws_of
from reference import constrained, least_squares, mcid, ovr, printed, second_order, stagewise, stochastic
from reference.bcd import Problem, prox, sweep

N, D, PASSES = 90, 12, 3
ALPHA = 1e-2
Rows = np.ndarray[Any, np.dtype[np.float64]]


def k_of(y):
    """Return the number of classes."""
    return int(y.max()) + 1


def drawn(batch=1):
    """Return the batches of all passes, drawn uniformly from all rows."""
    order = [draws_of(rng(0, Purpose.DRAWS, number, 0), N, batch) for number in range(PASSES)]
    return [rows for each in order for rows in each.reshape(-1, batch)]


CYCLIC, DRAWN = np.tile(np.arange(N), PASSES), np.concatenate(drawn())


def of_mcid(loss, r):
    """Algorithm 1 of the MCID paper, by its algorithm 2, 3 or 4."""
    return lambda x, y: mcid.train(x, y, loss, ALPHA, drawn(r), w0=np.zeros((D, k_of(y)))).w


def of_csgd(schedule, eta0, *, project=True):
    """Algorithms 1 and 2 of the constrained SGD paper, and Adaline."""

    def trained(x, y):
        start = {"w0": np.zeros((D, k_of(y))), "b0": np.zeros(k_of(y)), "s": np.ones(N * PASSES)}

        def step(t):
            return constrained.STEPS[schedule](eta0, N / 2, t)

        return constrained.csgd(x[DRAWN], np.eye(k_of(y))[y][DRAWN], step, **start, project=project).w

    return trained


def of_qn(metric):
    """Figures 1 and 2 of the SGD-QN paper."""

    def trained(x, y):
        slopes, skip = stochastic.slopes_of("ovr_squared_hinge"), round(16 * N * D / np.count_nonzero(x))
        given = x[CYCLIC], y[CYCLIC], slopes, "ovr_squared_hinge", ALPHA, 500.0, skip, metric
        return stochastic.scheduled(*given, k=k_of(y))[0]

    return trained


def of_olbfgs(x, y):
    """Section 5.2 of the SGD-QN paper, whose two classes have one column; of one, code 0 has the positive score."""
    y, k = (1 - y, 1) if k_of(y) == 2 else (y, k_of(y))
    return second_order.olbfgs(x, y, k, "ovr_squared_hinge", ALPHA, CYCLIC, s=np.ones(N))[0]


def of_bcd(step):
    """Algorithms 1 to 3 of the paper of block coordinate descent."""

    def order(number):
        chosen = rng(0, Purpose.BLOCKS, number, 0, 0).integers(D, size=D)
        return range(D) if step == "line-search" else chosen

    return lambda x, y: printed.descent(x, y, k_of(y), ALPHA, order, step, PASSES)[0]


def of_sweeps(loss):
    """The line search on the other losses of that paper."""

    def trained(x, y):
        problem, w = Problem(x, y, k_of(y), loss, alpha=ALPHA), np.zeros((D, k_of(y)))
        for _ in range(PASSES):
            w = sweep(problem, w, range(D)).w
        return w

    return trained


def of_fobos(x, y):
    """FOBOS as section 5.2 of that paper has it."""
    slopes = stochastic.slopes_of("multiclass_squared_hinge")

    def shrunk(v, mu):
        return prox(v, mu, "l1l2", 0.0)

    return stochastic.fobos(x[DRAWN], y[DRAWN], slopes, 0.1, shrunk, k=k_of(y), alpha=ALPHA)[0]


def of_gls(link):
    """Algorithm 1 of least squares revisited; the square loss ends in one step."""

    def trained(x, y):
        p = least_squares.problem(x, np.eye(k_of(y))[y], link, 0.0, constant=False)
        return least_squares.train(p, 1 if link == "identity" else PASSES, lipschitz=1.0)[-1]

    return trained


def of_stages(inner):
    """Algorithm 3 of least squares revisited, on two blocks of features drawn without replacement."""

    def trained(x, y):
        order = rng(0, Purpose.COLUMNS, 0).permutation(D)
        blocks, common = [x[:, order[:6]], x[:, order[6:]]], {"s": np.ones(N), "intercept": False}
        if inner == "linear":
            found = stagewise.linear(blocks, np.eye(k_of(y))[y], 0.0, **common)
        else:
            found = stagewise.logistic(blocks, np.eye(k_of(y))[y], 0.0, rounds=50, **common)
        w = np.zeros((D, k_of(y)))
        w[order] = np.concatenate([stage.weights for stage in found])
        return w

    return trained


A = {"alpha": ALPHA}
L = {**A, "lipschitz": 0.1}
BOXES = {  # the method, what its box leaves to the user
    "mcid-log": ("mcid", {**A, "loss": "log"}, of_mcid("softmax", 1)),
    "mcid-hinge": ("mcid", {**A, "loss": "hinge", "batch_size": 3}, of_mcid("crammer_singer", 3)),
    "mcid-perceptron": ("mcid", {**A, "loss": "perceptron"}, of_mcid("perceptron", 1)),
    "pegasos": ("ovr-pegasos", A, lambda x, y: ovr.train(x, y, k_of(y), "ovr_hinge", ALPHA, drawn())),
    "pegasos-ball": (
        "ovr-pegasos",
        {**A, "ball": True},
        lambda x, y: ovr.train(x, y, k_of(y), "ovr_hinge", ALPHA, drawn(), ball=True),
    ),
    "binary-lr": ("ovr-logistic", A, lambda x, y: ovr.train(x, y, k_of(y), "ovr_log", ALPHA, drawn())),
    "csgd": ("csgd", {"eta0": 0.2}, of_csgd("two-phase", 0.2)),
    "ncsgd": ("ncsgd", {"eta0": 0.2}, of_csgd("sqrt", 0.2)),
    "c-adaline": ("c-adaline", {"eta0": 0.1}, of_csgd("sqrt", 0.1)),
    "adaline": ("adaline", {"eta0": 0.01}, of_csgd("constant", 0.01, project=False)),
    "svmsgd2": ("svmsgd2", {**A, "t0": 500.0}, of_qn("none")),
    "sgdqn": ("sgdqn", {**A, "t0": 500.0}, of_qn("paper")),
    "olbfgs": ("olbfgs", A, of_olbfgs),
    "bcd-line-search": ("bcd", A, of_bcd("line-search")),
    "bcd-log": ("bcd", {**A, "loss": "log"}, of_sweeps("softmax")),
    "bcd-multitask": ("bcd", {**A, "loss": "multitask_squared_hinge"}, of_sweeps("multitask_squared_hinge")),
    "bcd-constant": ("bcd", {**A, "step": "constant"}, of_bcd("constant")),
    "fista": ("fista", L, lambda x, y: printed.fista(Problem(x, y, k_of(y)), 9, 0.1)),
    "sparsa": ("sparsa", L, lambda x, y: printed.sparsa(Problem(x, y, k_of(y)), 9, 0.1)),
    "fobos": ("fobos", {**A, "eta0": 0.1}, of_fobos),
    "gls-softmax": ("gls", {}, of_gls("softmax")),
    "gls-logit": ("gls", {"link": "logit"}, of_gls("logit")),
    "gls-identity": ("gls", {"link": "identity"}, of_gls("identity")),
    "stagewise-linear": ("stagewise", {"block_size": 6}, of_stages("linear")),
    "stagewise-logistic": ("stagewise", {"block_size": 6, "inner": "logistic"}, of_stages("logistic")),
}
READS = {"fista": 9, "sparsa": 9, "stagewise": None}  # where not `PASSES`
# the first pair of L-BFGS is a difference of nearly equal slopes, which has eight digits
DIGITS = {"olbfgs": 1e-6}

# Two classes, whose one column here is the difference of two that mirror each other, or the second of two that have a
# problem each: what of the parameters is multiplied by what.
SAME: dict[str, float] = {}
HALVED, GROUPED, DOUBLED = {"alpha": 0.5}, {"alpha": 0.5**0.5}, {"alpha": 2.0}
STARTED = {**GROUPED, "lipschitz": 0.5}
DIFFERENCE = {
    **dict.fromkeys(("mcid-log", "mcid-hinge", "mcid-perceptron"), HALVED),
    **dict.fromkeys(("csgd", "ncsgd", "c-adaline", "adaline"), SAME),
    **dict.fromkeys(("bcd-line-search", "bcd-constant", "bcd-log"), GROUPED),
    **dict.fromkeys(("fista", "sparsa"), STARTED),
    "fobos": {**GROUPED, "eta0": 2.0},
    **dict.fromkeys(("gls-softmax", "gls-identity", "stagewise-linear", "stagewise-logistic"), SAME),
}
SECOND = {
    **dict.fromkeys(("pegasos", "pegasos-ball", "binary-lr", "gls-logit"), SAME),
    **dict.fromkeys(("svmsgd2", "sgdqn"), DOUBLED),
    "olbfgs": {**DOUBLED, "damping": 2.0},
    "bcd-multitask": GROUPED,
}
