"""The methods of the least-squares paper: generalised, calibrated and stagewise least squares."""

from __future__ import annotations

from typing import Any

from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    BLOCK_SIZE,
    CLASS_WEIGHT,
    FEATURE_PARAMETERS,
    LANES_READ,
    ONE_BLOCK,
    colon_list,
    dtype,
    fit_intercept,
    init,
    integer,
    number,
    number_or,
    one_of,
)

__all__ = ["LEAST_SQUARES_METHODS"]

_PAPER = "Agarwal, Kakade, Karampatziakis, Song, Valiant 2014, Least Squares Revisited"

# Predictions may leave [0, 1] before they are calibrated; their higher powers say nothing but that.
_MOST_POWERS = 12


def _powers(value: Any) -> str:
    """Parse the number of powers, or a list of them such as 1+2+3; return the list in that form."""
    try:
        if isinstance(value, (list, tuple)):
            listed = [int(power) for power in value]
        elif isinstance(value, str) and "+" in value:
            listed = [int(power) for power in value.split("+")]
        else:
            # one more than allowed is refused as well as a billion, which would not fit into memory
            listed = list(range(1, min(int(value), _MOST_POWERS + 1) + 1))
    except (TypeError, ValueError):
        raise ValueError("expected a number of powers, or powers such as 1+2+3") from None
    if not listed or listed != sorted(set(listed)) or listed[0] != 1 or listed[-1] > _MOST_POWERS:
        raise ValueError(f"expected increasing powers from 1 to at most {_MOST_POWERS}, 1 among them")
    return "+".join(str(power) for power in listed)


_GLS = (
    Parameter(
        "link",
        "softmax",
        one_of("identity", "logit", "softmax"),
        "squared loss (solved in one read), one logistic loss an output, or multi-class logistic",
    ),
    Parameter(
        "alpha",
        1e-5,
        number_or(number(0.0), "path"),
        "L2 strength, 0 or more; path: of many, the best in cross-validation, all of them at each read",
    ),
    Parameter("folds", None, integer(2, 1000), "of alpha=path; default 5"),
    Parameter(
        "alphas",
        None,
        colon_list,
        "of alpha=path, such as 1:0.1:0.01; default 20, from 10 to 1e-6 times the mean square of a feature",
    ),
    Parameter(
        "lipschitz",
        None,
        number_or(number(above=0.0), "adaptive", "sharp", "paper"),
        "L: sharp (1/2 softmax, 1/4 logit), paper (1), where to start, or adaptive (default): from sharp/8 "
        "on; below sharp it is raised when needed",
    ),
    Parameter("accelerate", None, one_of("none", "nesterov"), "steps; default nesterov but for identity"),
    fit_intercept(True),
    CLASS_WEIGHT,
    LANES_READ,
    dtype("float64", "of products and weights"),
    init("a run or model to start from; not with link=identity"),
)

_CLS = (
    Parameter(
        "basis",
        "1+2+3",
        _powers,
        "powers of the predictions that calibrate them: how many, or a list such as 1+2+3 (no commas)",
    ),
    Parameter("rounds", 20, integer(1, 10_000), "of the algorithm, two reads of the data each"),
    *ONE_BLOCK,
    Parameter("alpha", 1e-4, number(0.0), "ridge on each round's weights, in mean form"),
    fit_intercept(True, "an unpenalised intercept in each round's fit"),
    CLASS_WEIGHT,
    LANES_READ,
    dtype("float64", "of features, products and weights"),
    init("a linear run or model, whose weights are the first round's fit"),
)

_STAGEWISE = (
    Parameter(
        "inner",
        "linear",
        one_of("linear", "calibrated", "logistic"),
        "how a block is fitted: least squares, with the predictions so far as features too, or softmax",
    ),
    Parameter("stages", None, integer(1), "default: one pass over original features, else 16 blocks"),
    Parameter("block_size", BLOCK_SIZE, integer(1), "features of a block, the paper's p"),
    Parameter(
        "features",
        "original",
        one_of("original", "fourier", "logits", "polynomials", "random-masks", "kmeans-masks"),
        "of a block: original ones, random Fourier features, logits or low-degree polynomials, or images' "
        "convolutions with masks",
    ),
    Parameter(
        "order",
        None,
        one_of("random", "replacement", "frequency", "gradient"),
        "of original features: random (default), drawn with replacement, by rows that have them, or by the "
        "gradient's magnitude, anew in each pass over them",
    ),
    *FEATURE_PARAMETERS,
    Parameter("alpha", 1e-3, number(0.0), "ridge on each block's weights, in mean form"),
    Parameter("inner_rounds", None, integer(1), "reads of a logistic stage; default 50"),
    Parameter(
        "accelerate",
        None,
        one_of("none", "nesterov"),
        "steps of a logistic stage: none (default) or nesterov",
    ),
    Parameter("models", None, integer(1), "models averaged, of random features each; default 1"),
    fit_intercept(True, "an unpenalised intercept in each block"),
    CLASS_WEIGHT,
    LANES_READ,
    dtype("float32", "of features, products and weights"),
    init("a linear run or model; the stages fit what it has left"),
)

LEAST_SQUARES_METHODS = (
    Method(
        name="gls",
        summary="generalized least squares: steps in the metric of the second moments; squared, logistic, softmax",
        paper=f"{_PAPER}, Algorithm 1",
        aliases={},
        parameters=_GLS,
        solver="distls.solvers.least_squares.gls:generalized_least_squares",
        targets=("class", "multilabel", "continuous"),
        passes=100.0,
    ),
    Method(
        name="cls",
        summary="calibrated least squares: residual fits and calibrations of the predictions in turns",
        paper=f"{_PAPER}, Algorithm 2",
        aliases={},
        parameters=_CLS,
        solver="distls.solvers.least_squares.cls:Cls",
        targets=("class", "multilabel"),
        passes=None,
        keeps_rows=True,
    ),
    Method(
        name="stagewise",
        summary="blocks of features fitted to residuals one after the other: linear, calibrated or logistic",
        paper=f"{_PAPER}, Algorithm 3",
        aliases={},
        parameters=_STAGEWISE,
        solver="distls.solvers.least_squares.stagewise:Stagewise",
        targets=("class", "multilabel", "continuous"),
        passes=None,
        keeps_rows=True,
    ),
)
