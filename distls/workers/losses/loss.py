"""The interface of losses: values and gradients on arrays, and the facts that solvers and reports ask for.

A loss is an empty tuple: immutable, picklable, and a numba type by itself, so that a kernel with a loss argument is
compiled for it and cached on disk (measured: 1 % slower than no loss argument at all, against a recompilation in every
process for function arguments and closures). Its file has the class, in plain NumPy that tests compare with, and the
row functions that kernels run; see `distls.workers.losses.row_functions`.

Ties: every arg max takes the lowest class.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]
Target = Literal["class", "multilabel", "continuous", "none"]
# Where the conjugate of a row's loss is finite, as `distls.workers.duals.dual_domains` says; "none": not offered.
DualDomain = Literal["none", "line", "ray", "box", "simplex"]


# returned for `runner_up` when the gradient is not a pair +1, -1 but in `g`
GRADIENT_IN_G = -1


class LabelSets(NamedTuple):
    """The label codes of each row: row i has ``indices[indptr[i]:indptr[i + 1]]``, each code at most once."""

    indptr: Any  # int64 (n_rows + 1,)
    indices: Any  # int32


class _NoFields(NamedTuple):
    """An empty named tuple: numba compiles for its class."""


class Loss(_NoFields):
    """A loss of a row's scores. Scores are (n, k) and classes y (n,) throughout."""

    __slots__ = ()

    name: ClassVar[str]
    # short names, each of which is that of several losses: a method's is the first of its losses that has it
    aliases: ClassVar[tuple[str, ...]] = ()
    # its names in the least-squares methods: the value of `link`, and those of `inner`
    link_name: ClassVar[str | None] = None
    inner_names: ClassVar[tuple[str, ...]] = ()
    # what other programs call it: solver types of LIBLINEAR, options of Vowpal Wabbit
    elsewhere: ClassVar[tuple[str, ...]] = ()
    targets: ClassVar[tuple[Target, ...]] = ("class",)  # kinds of targets that it suits
    # whether the step sizes of plain stochastic gradients are chosen for gradients as large as its own
    stochastic: ClassVar[bool] = True
    separable: ClassVar[bool] = False  # a sum over the outputs, so that its Hessian in the scores is diagonal
    # whether a constant added to all scores of a row changes nothing
    ignores_constants: ClassVar[bool] = False
    # the squared distance from numbers, or from indicators of classes: least squares solve it in closed form
    quadratic: ClassVar[bool] = False
    # probabilities are exponentials of the scores over their sum, or of a separable loss their sigmoids
    logistic: ClassVar[bool] = False
    floor: ClassVar[float] = 0.0  # no row's loss is below
    # orders the labels of a row only, so that a threshold has to be fitted to the scores
    ranks: ClassVar[bool] = False
    threshold: ClassVar[float] = 0.0  # a label is predicted where its score is greater
    # the bound on the distance from the optimum under an l2 penalty; "none" where zero weights are optimal
    certificate: ClassVar[Literal["strong_convexity", "duality_gap", "none"]] = "strong_convexity"
    # scores the probabilities of a model trained with this loss; None: it has none
    log_loss: ClassVar[Loss | None] = None
    # the loss of two classes, whose one output is the score of the second: see `distls.workers.losses.binary_losses`
    binary: ClassVar[Loss | None] = None
    one_output: ClassVar[bool] = False  # whether it is such a loss itself
    dual_domain: ClassVar[DualDomain] = "none"
    # by which the sums of `add_score_gradient` and `add_score_curvature` have to be multiplied
    descent_factor: ClassVar[float] = 1.0

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row, shape (n,)."""
        raise NotImplementedError

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return d loss / d score, shape (n, k): the subgradient that the row function chooses."""
        raise NotImplementedError

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return gradients (n, k) and values (n,) of rows with sets of labels; `wanted` (n, k) are their indicators."""
        raise ValueError(f"{self.name} is no loss of sets of labels")

    def number_gradient(
        self, scores: Floats, y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return gradients (n, k) and values (n,) of rows whose targets are numbers (n, k)."""
        raise ValueError(f"{self.name} is no loss of numbers")

    def numbers(self, scores: Floats) -> Floats:
        """Return the predictions of numbers: the scores, unless a link is between them."""
        return scores

    def start_at(self, gradient: NDArray[np.float64]) -> tuple[NDArray[np.float64], float] | None:
        """Return an intercept (k,) to start from and the curvature there; None: zero.

        `gradient` (k,) is that of the mean loss in the intercept, at zero weights.
        """
        return None

    def of_classes(self, scores: Floats) -> Floats:
        """Return scores with a column for each class; of two with one output their difference is the decision."""
        return scores

    def probabilities(self, scores: Floats) -> Floats:
        """Return the class probabilities of a model trained with this loss; may overwrite the scores."""
        raise ValueError(f"{self.name} has no probabilities")

    def lipschitz(self, k: int) -> float:
        """Return the smallest Lipschitz constant of a row's gradient in its k scores; infinite if it is not smooth.

        Kernels compile this method.
        """
        # sets of labels have the constants of classes: pairs of a label of the row and another one are the edges of a
        # complete bipartite graph
        return math.inf

    def conjugate(self, duals: Floats, y: Any) -> NDArray[np.float64]:
        """Return the convex conjugate of each row's loss at the negative of its duals, shape (n,).

        Duals (n, k), the negative gradients in the scores, are in the loss's domain.
        """
        raise ValueError(f"{self.name} has no conjugate")

    def curvature(self, gradients: Floats) -> Floats:
        """Return the second derivatives in each score, shape (n, k), from the gradients."""
        raise ValueError(f"{self.name} has no second derivatives")

    def secant_curvature(self, gradients: Floats, scores: Floats) -> Floats:
        """Return `curvature` at scores (n, k), raised where the loss is nearly straight, for steps that may be long."""
        return self.curvature(gradients)

    def curvature_product(self, gradients: Floats, directions: Floats) -> Floats:
        """Return each row's matrix of second derivatives times a direction (n, k), from the gradients."""
        # of a sum over the outputs the matrix is diagonal
        return self.curvature(gradients) * directions

    def score_step(self, k: int, n_rows: int) -> float:
        """Return the size in k scores of AdaGrad's steps on so many rows."""
        return 0.5 * math.sqrt(k)  # docs/decisions/0011

    def slope_growth(self, k: int) -> float:
        """Return how many times as steep as with one score the largest derivative in one of k scores is."""
        return 1.0

    def dual_shortfall(self, c: float) -> float:
        """Return the decrease of the dual, over the mean loss, at c <= 1 times the gradients instead of these."""
        # the bound that convexity gives for non-negative losses, exact at c = 1
        return 1.0 - c

    @property
    def smooth(self) -> bool:
        """Whether the gradient is Lipschitz continuous."""
        return math.isfinite(self.lipschitz(2))
