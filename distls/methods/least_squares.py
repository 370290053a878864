"""The methods of the least-squares paper: generalised, calibrated and stagewise least squares."""

from distls.methods.default_losses import OF_CLASSES
from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    BLOCK_SIZE,
    BY_ROWS,
    CLASS_WEIGHT,
    FEATURE_PARAMETERS,
    LANES_READ,
    ONE_BLOCK,
    STANDARDIZE,
    basis,
    colon_list,
    dtype,
    features_or,
    fit_intercept,
    init,
    integer,
    loss_by,
    number,
    number_or,
    one_of,
)

_PAPER = "Agarwal, Kakade, Karampatziakis, Song, Valiant 2014, Least Squares Revisited"

# Tables, a parameter's row its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
_GLS = (
    Parameter("link", OF_CLASSES, loss_by("link"),
              "identity: squared loss (solved in one read); logit: one logistic loss per output; softmax: "
              "multinomial logistic; probit, cauchit; poisson: counts"),
    Parameter("alpha", 1e-5, number_or(number(0.0), "path"),
              f"L2 strength, 0 or more{BY_ROWS}; path: the best of many by cross-validation, all fitted in the same "
              "reads"),
    Parameter("folds", None, integer(2, 1000), "cross-validation folds of alpha=path; default 5"),
    Parameter("alphas", None, colon_list,
              "alphas of the path, such as 1:0.1:0.01; default 20, from 10 to 1e-6 times the mean square of a "
              "feature"),
    Parameter("lipschitz", None, number_or(number(above=0.0), "adaptive", "sharp", "paper"),
              "L: sharp (1/2 softmax, 1/4 logit), paper (1; 1/2 of two classes with the softmax, in one column), an "
              "initial value, or adaptive (default): starts at sharp/8; below sharp it is raised when needed"),
    Parameter("accelerate", None, one_of("none", "nesterov"),
              "acceleration of the steps; default nesterov, except with link=identity"),
    fit_intercept(),
    CLASS_WEIGHT, LANES_READ,
    dtype("float64", "type of products and weights"),
    init("a run or model to start from; not with link=identity"),
    STANDARDIZE,
)

_CLS = (
    Parameter("basis", "1+2+3", basis,
              "powers of the predictions used to calibrate them: their number, or a list such as 1+2+3 (no commas); "
              "with functions of them, as in 1+2+log: log, logit, probit, cauchit"),
    Parameter("rounds", 20, integer(1, 10_000), "rounds of the algorithm, two reads of the data each"),
    *ONE_BLOCK,
    Parameter("alpha", 1e-4, number(0.0), "ridge on each round's weights, relative to the mean loss"),
    fit_intercept("fit an unpenalised intercept in each round"),
    CLASS_WEIGHT, LANES_READ,
    dtype("float64", "type of features, products and weights"),
    init("a linear run or model, whose weights are the first round's fit"),
    Parameter("init_as", None, one_of("predictions"),
              "predictions: the first round fits the residuals of the model of init (Algorithm 2's W_0); default: "
              "that model is the first round's fit", optional=True),
)

_STAGEWISE = (
    Parameter("inner", "linear", loss_by("inner"),
              "fit of a block: least squares; the same with the predictions so far as extra features; logistic: "
              "softmax; logit: a logistic loss for each class or label; cls: rounds of the method cls; or another "
              "link of gls: probit, cauchit; poisson: counts"),
    Parameter("stages", None, integer(1),
              "number of blocks; default: one pass over original features, 16 of generated ones"),
    Parameter("block_size", BLOCK_SIZE, integer(1), "features per block, the paper's p"),
    Parameter("features", "original", features_or("original"),
              "features of a block: original, random Fourier features, logits or low-degree polynomials, or "
              "convolutions of images with random or k-means filters"),
    Parameter("order", None, one_of("random", "replacement", "frequency", "rareness", "gradient", "block-gradient"),
              "order of original features: random (default), drawn with replacement, by the number of rows that have "
              "them (rareness: the fewest first), or by the magnitude of the gradient, recomputed in each pass over "
              "them or for each block"),
    *FEATURE_PARAMETERS,
    Parameter("alpha", 1e-3, number(0.0), "ridge on each block's weights, relative to the mean loss"),
    Parameter("inner_rounds", None, integer(1),
              "steps of a stage of logistic or another link, default 50; rounds of one of cls, two reads each, "
              "default 3"),
    Parameter("basis", None, basis, "powers and functions of the predictions that calibrate them, as in cls"),
    Parameter("accelerate", None, one_of("none", "nesterov"),
              "acceleration of a stage of logistic or another link of bounded slope: none (default) or nesterov"),
    Parameter("models", None, integer(1), "models with random features of their own that are averaged; default 1"),
    fit_intercept("fit an unpenalised intercept in each block"),
    CLASS_WEIGHT, LANES_READ,
    dtype("float32", "type of features, products and weights"),
    init("a linear run or model; the stages fit its residuals"),
    STANDARDIZE,
)

LEAST_SQUARES_METHODS = (
    Method(
        name="gls",
        summary="generalized least squares: steps preconditioned by the second moments; squared, logistic, softmax",
        paper=f"{_PAPER}, Algorithm 1",
        parameters=_GLS, solver="distls.solvers.least_squares.gls:generalized_least_squares",
        version=3,  # rounds know their gap, and the model is of the last weights that are proven
        targets=("class", "multilabel", "continuous"), passes=100.0, continuous={"link": "identity"},
        alpha_by_rows=("class",),
        published={"alpha": 0.0, "lipschitz": "paper", "accelerate": "none", "fit_intercept": False},
    ),
    Method(
        name="cls",
        summary="calibrated least squares: alternates residual fits and calibrations of the predictions",
        paper=f"{_PAPER}, Algorithm 2",
        parameters=_CLS, solver="distls.solvers.least_squares.cls:Cls", targets=("class", "multilabel"),
        passes=None, keeps_rows=True,
        published={"alpha": 0.0, "fit_intercept": False, "init_as": "predictions"},
    ),
    Method(
        name="stagewise",
        summary="blocks of features fitted to the residuals one after another: linear, calibrated or logistic",
        paper=f"{_PAPER}, Algorithm 3",
        parameters=_STAGEWISE, solver="distls.solvers.least_squares.staged_cls:stagewise_regression",
        targets=("class", "multilabel", "continuous"), passes=None, keeps_rows=True,
        published={"alpha": 0.0, "fit_intercept": False},
    ),
)
