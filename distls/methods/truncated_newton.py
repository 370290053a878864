"""Truncated Newton: the optimum of smooth problems, in passes that do not depend on the number of machines."""

from distls.methods.default_losses import OF_CLASSES, OF_LABELS, OF_NUMBERS
from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    BY_ROWS,
    CLASS_WEIGHT,
    DUAL_PENALTY,
    INIT,
    INTERCEPT_SCALING,
    LANES_READ,
    PRUNE,
    STANDARDIZE,
    dtype,
    fit_intercept,
    number,
    one_of,
    strengths,
)
from distls.methods.requirements import loss_with

# Tables, a parameter's row its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
TRUNCATED_NEWTON_METHODS = (
    Method(
        name="newton",
        summary="the optimum, proven by a duality gap: smooth losses with l2 or elastic net, by reads that "
        "are alike on any cluster",
        paper="Lin, Weng, Keerthi 2008, Trust Region Newton Method for Logistic Regression; Agarwal, Chapelle, Dudik, "
        "Langford 2014, A Reliable Effective Terascale Linear Learning System",
        parameters=(
            Parameter("loss", None, loss_with(dual=True, smooth=True, second_order=True),
                      "softmax (log), ovr_log, ovr_squared_hinge (squared_hinge) or squared; default: softmax for "
                      "classes, ovr_log for sets of labels, else squared. Two classes are one binary problem"),
            *DUAL_PENALTY,
            *strengths(1e-5, number(above=0.0),
                       f"strength of the penalty, greater than 0: 1/(C n_rows) of LIBLINEAR and scikit-learn{BY_ROWS}",
                       "from the weights of the one before"),
            PRUNE,
            Parameter("start", None, one_of("sgd", "zero"),
                      "sgd: one pass of stochastic gradients first; default: sgd with more than 1,000 features and "
                      "l2, else zero"),
            fit_intercept("fit an intercept, unpenalised unless intercept_scaling is given"),
            INTERCEPT_SCALING, CLASS_WEIGHT, LANES_READ,
            dtype("float32", "type of the weights; sums are in float64"),
            INIT, STANDARDIZE,
        ),
        solver="distls.solvers.truncated_newton.newton:Newton", targets=("class", "multilabel", "continuous"),
        losses={"class": OF_CLASSES, "multilabel": OF_LABELS, "continuous": OF_NUMBERS}, passes=200.0,
        rtol=1e-3, proves=True, path=True, in_memory=True, alpha_by_rows=("class",),
        version=6,  # far from the optimum the curvature of a secant for rows that are predicted wrong
    ),
)
