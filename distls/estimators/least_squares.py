"""Scikit-learn-style estimators of the least-squares methods: thin wrappers of `fit`."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier, LinearCoefficients
from distls.storage.errors import ParameterError


@estimator
class _LeastSquaresClassifier(DatasetClassifier):
    fit_intercept: bool = True
    class_weight: Any = None
    lanes: int | None = None
    random_state: int = 0
    executor: Any = None


@estimator
class _GeneratedFeatures(_LeastSquaresClassifier):
    pca: int | None = None
    bandwidth: Any = None
    degree: int | None = None
    image: str | None = None
    mask_side: int | None = None
    pool: int | None = None
    rectify: str | None = None
    threshold: float | None = None
    contrast: bool | None = None
    expand: int | None = None


@estimator
class GeneralizedLeastSquaresClassifier(LinearCoefficients, _LeastSquaresClassifier):
    """Linear classifier by steps preconditioned by the second moments (Algorithm 1 of least squares revisited).

    Objective and scaling: see `distls.problem`.

    Parameters
    ----------
    link : {"softmax", "logit", "identity"}
        Multinomial logistic, one logistic loss per class, or the squared loss of class indicators.
    alpha : float or "path"
        L2 strength, the papers' lambda; "path": the best of many by cross-validation.
    folds : int or None
        Cross-validation folds of ``alpha="path"``.
    alphas : str or None
        Alphas of ``alpha="path"``, such as "1:0.1:0.01".
    lipschitz : {"adaptive", "sharp", "paper"}, float or None
        The paper's L.
    accelerate : {"none", "nesterov"} or None
    fit_intercept : bool
    class_weight : dict of label -> weight, "balanced" or None
    lanes : int or None
        Groups of partitions read in parallel; last bits depend on it, never on the number of workers.
    dtype : {"float32", "float64"}
        Type of the weights and of products of rows.
    %(limits)s
    """

    _method = "gls"

    link: str = field(default="softmax", kw_only=False)
    alpha: Any = 1e-5
    folds: int | None = None
    alphas: str | None = None
    lipschitz: Any = None
    accelerate: str | None = None
    dtype: str = "float64"
    passes: float = 100
    tol: float | None = None
    warm_start: bool = False

    def _check_probabilities(self) -> bool:
        if self.link == "identity":
            raise ParameterError("link='identity' has no probabilities; use link='softmax'")
        return True


@estimator
class CalibratedLeastSquaresClassifier(_GeneratedFeatures):
    """Calibrated least squares (Algorithm 2 of least squares revisited).

    Each round fits the residuals by the rows, then the classes by powers of the predictions, and projects the
    outcome onto the probability simplex: scores are probabilities.

    Parameters
    ----------
    basis : int, str or sequence of int and str
        Powers of the predictions: their number, or a list such as ``"1+2+3"`` or ``(1, 2, 3)``; with functions of
        them by name, as in ``"1+2+log"``.
    rounds : int
        Most rounds, two reads of the data each.
    alpha : float
        Ridge on each round's weights: ``1/2 mean |r - W'x - b|^2 + alpha/2 |W|^2``.
    features : {"none", "fourier", "logits", "polynomials", "random-masks", "kmeans-masks"}
        Features of a row: its own, or generated ones.
    block_size, pca, bandwidth, degree, image, mask_side, pool, rectify, threshold, contrast, expand
        Parameters of generated features; see ``distls methods cls``.
    %(least_squares)s
    """

    _method = "cls"

    basis: Any = field(default=3, kw_only=False)
    rounds: int = 20
    alpha: float = 1e-4
    features: str = "none"
    block_size: int | None = None
    dtype: str = "float64"


@estimator
class StagewiseClassifier(_GeneratedFeatures):
    """Blocks of features fitted to the residuals one after another (Algorithm 3 of least squares revisited).

    Parameters
    ----------
    inner : {"linear", "calibrated", "logistic", "logit", "cls"}
        Fit of a block.
    stages : int or None
        None: one pass over the original features, or 16 blocks of random ones.
    block_size : int
        Features per block, the paper's p.
    features : {"original", "fourier", "logits", "polynomials", "random-masks", "kmeans-masks"}
    order, pca, bandwidth, degree, image, mask_side, pool, rectify, threshold, contrast, expand
        Parameters of the features; see ``distls methods stagewise``.
    alpha : float
        Ridge on each block's weights, relative to the mean loss.
    inner_rounds : int or None
        Reads per stage of logistic or logit, rounds per stage of cls.
    basis : int, str, sequence of int and str, or None
        Of ``inner="cls"``: as in `CalibratedLeastSquaresClassifier`; None: ``"1+2+3"``.
    accelerate : bool or None
        Nesterov steps in a stage of logistic or logit.
    models : int or None
        Models with random features of their own that are averaged.
    %(least_squares)s
    """

    _method = "stagewise"

    inner: str = field(default="linear", kw_only=False)
    stages: int | None = None
    block_size: int = 1024
    features: str = "original"
    order: str | None = None
    alpha: float = 1e-3
    inner_rounds: int | None = None
    basis: Any = None
    accelerate: bool | None = None
    models: int | None = None
    dtype: str = "float32"

    def _check_probabilities(self) -> bool:
        if self.inner not in ("logistic", "logit", "cls"):
            raise ParameterError(f"inner={self.inner!r} has no probabilities; use inner='logistic'")
        return True
