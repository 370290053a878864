"""Methods of sparse multi-class models: block coordinate descent, and proximal gradient steps."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from distls.methods.default_losses import OF_NUMBERS, OF_SPARSE_MODELS
from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    ALPHAS,
    BY_ROWS,
    CLASS_WEIGHT,
    FOLDS,
    INIT,
    LANES_READ,
    NO_PAPER_INTERCEPT,
    STANDARDIZE,
    boolean,
    dtype,
    integer,
    lanes,
    number,
    number_or,
    one_of,
)
from distls.methods.requirements import loss_with, penalty_with

_PAPER = (
    "Blondel, Seki, Uehara 2013, Block Coordinate Descent Algorithms for Large-scale Sparse Multiclass Classification"
)
SPARSE_PENALTY = "l1l2"
_OF_NUMBERS = {"loss": OF_NUMBERS}

# Tables, a parameter's row its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
_LOSS = Parameter("loss", OF_SPARSE_MODELS, loss_with(coordinate_descent=True),
                  "multiclass_squared_hinge (squared_hinge), multitask_squared_hinge or softmax (log): Equations 2, "
                  "11, 12; or squared: of numbers the lasso, with several of them the multi-task lasso")
_PENALTY = Parameter("penalty", SPARSE_PENALTY, penalty_with(),
                     "l1l2 (whole rows of weights become zero), l1, l2, elasticnet, l1linf or sparse-group")
_L1_RATIO = Parameter("l1_ratio", None, number(0.0, 1.0), "share of l1 in elasticnet and sparse-group; default 0.5")
ALPHA = Parameter("alpha", 1e-4, number_or(number(0.0), "path"),
                  "strength of the penalty, 0 or more: the paper's lambda; path: a regularization path, one child "
                  "run per alpha")
_OF_PATHS = ALPHAS, FOLDS


def _tau(default: float, more: str = "") -> Parameter:
    text = "stop when a round's violation is at most this fraction of the first round's; 0: never"
    return Parameter("tau", default, number(0.0), text + more)


# What is of sweeps alone, and its default.
_OF_SWEEPS = {"step": "line-search", "active_sweeps": 5, "shrink": False, "violation": "sum", "rules": None}
# The paper's K_j over mean x_j^2 of the losses whose own is smaller (section 4.4.2)
PRINTED_LIPSCHITZ: dict[str, Callable[[int], float]] = {
    OF_SPARSE_MODELS: lambda n_classes: 4.0 * (n_classes - 1)
}
_RULES = partial(Parameter, "rules", None, one_of("paper"), optional=True)


def only_of_sweeps(params: Mapping[str, Any]) -> list[str]:
    """Return the parameters of `bcd` that only sweeps have, where they are not at their defaults."""
    given = {name: params.get(name) for name in _OF_SWEEPS}
    return [f"{name}={given[name]}" for name, default in _OF_SWEEPS.items() if given[name] != default]


def by_working_sets(params: Mapping[str, Any]) -> bool:
    """Return whether `bcd` works on sets of columns, where not all columns have weights at the optimum."""
    return params.get("algorithm") != "sweeps" and not only_of_sweeps(params) and params["alpha"] != 0.0


_DESCENT = (
    _LOSS, _PENALTY,
    _L1_RATIO,
    replace(ALPHA, description=ALPHA.description + BY_ROWS),
    *_OF_PATHS,
    Parameter("algorithm", None, one_of("working-set", "row-blocks", "sweeps"),
              "working-set: descent on the columns that matter, with a certificate in each round; row-blocks: the "
              "same by reads of row partitions, for rows that do not fit in a worker's memory; sweeps: Algorithms "
              "1-3 of the paper; default working-set, but sweeps with l2, with alpha=0 or a parameter that only "
              "sweeps have", optional=True),
    Parameter("step", "line-search", one_of("line-search", "constant"),
              "line-search over permuted columns (Tseng-Yun), or constant steps at randomly drawn columns "
              "(Richtarik-Takac)"),
    Parameter("active_sweeps", 5, integer(0, 1000),
              "extra passes per round over the columns with nonzero weights; 0: the paper's algorithm"),
    Parameter("active_mib", 512, integer(1), "most MiB of such columns, of those of a working set, and of its Gram"),
    Parameter("shrink", False, boolean,
              "skip zero columns that are far from becoming nonzero until the others have reached tau (Yuan et al. "
              "2010, section 5.2.4)"),
    _tau(5e-4, "; by working sets, when the gap is at most this fraction of the objective"),
    Parameter("violation", "sum", one_of("sum", "max"),
              "sum or maximum of the violations of a round's blocks (Equation 10)"),
    _RULES(description="paper: columns 1 to d in turn, with constant steps drawn one by one from all of a lane, "
           "which it holds in memory; the printed K_j, the violation of Equation 9 and, with constant "
           "steps, its maximum"),
    Parameter("debias", None, number(above=0.0),
              "strength of the l2 penalty of a final refit of the selected features; default: no refit"),
    NO_PAPER_INTERCEPT, CLASS_WEIGHT,
    lanes("groups of column shards (row-blocks: of partitions) processed in parallel; default max(8, parallelism), of "
          "sweeps max(2, parallelism), at most one for each shard or partition"),
    dtype("float64", "type of the weights and of the scores of all rows"),
    INIT,
)


def _proximal(*own: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of the proximal gradient methods."""
    return (
        _LOSS, _PENALTY,
        _L1_RATIO,
        ALPHA,
        *_OF_PATHS,
        *own,
        _RULES(description="paper: L of a line search is doubled if a step fails; of fista it never falls and "
               "momentum is never dropped; of sparsa it is within 1e-30 and 1e30; default: see "
               "docs/notation.md"),
        _tau(1e-3),
        Parameter("active_mib", 128, integer(0),
                  "most MiB of columns, and of scores, that are held to find a better certificate (not with l2); 0: "
                  "none"),
        NO_PAPER_INTERCEPT, CLASS_WEIGHT, LANES_READ,
        dtype("float64", "type of products and weights"),
        INIT, STANDARDIZE,
    )


COORDINATE_DESCENT_METHODS = (
    Method(
        name="bcd",
        summary="sparse direct multi-class models by block coordinate descent over column shards",
        paper=f"{_PAPER}, Algorithms 1-3",
        parameters=_DESCENT, solver="distls.solvers.coordinate_descent.bcd:BlockCoordinateDescent",
        targets=("class", "multilabel", "continuous"), continuous=_OF_NUMBERS, passes=200.0,
        version=14,  # several outputs descend by sweeps, where the Gram of their columns has more numbers than these
        proves_with=by_working_sets, columns=True, keeps_rows=True,
        alpha_by_rows=("class",),  # few rows with 1e-4: hundreds of Newton steps to separate them
        path=True,
        published={"penalty": SPARSE_PENALTY, "algorithm": "sweeps", "rules": "paper", "lanes": 1,
                   "active_sweeps": 0, "shrink": False, "tau": 1e-3, "fit_intercept": False},
    ),
    Method(
        name="fista",
        summary="sparse direct multi-class models by accelerated proximal gradient steps",
        paper="Beck, Teboulle 2009, A Fast Iterative Shrinkage-Thresholding Algorithm",
        parameters=_proximal(
            Parameter("step", "line-search", one_of("line-search", "constant"),
                      "line-search: L follows the curvature along the steps; constant: steps of 1/L"),
            Parameter("lipschitz", None, number_or(number(above=0.0), "norm", "bound"),
                      "L of constant steps: the loss's constant times the norm of Sigma, which takes some reads "
                      "(norm, default), or times its trace (bound), or a number; of line-search: the initial L, a "
                      "number"),
        ),
        solver="distls.solvers.coordinate_descent.proximal:Fista",
        version=6,  # searches whose sweeps are chosen sooner
        targets=("class", "multilabel", "continuous"), continuous=_OF_NUMBERS, passes=200.0, keeps_rows=True, path=True,
        published={"penalty": SPARSE_PENALTY, "rules": "paper", "tau": 1e-3, "fit_intercept": False},
    ),
    Method(
        name="sparsa",
        summary="sparse direct multi-class models by proximal gradient steps of spectral (Barzilai-Borwein) length",
        paper="Wright, Nowak, Figueiredo 2009, Sparse Reconstruction by Separable Approximation",
        parameters=_proximal(
            Parameter("history", 5, integer(1, 1000),
                      "a step must improve on the worst of this many last objectives, the paper's M + 1"),
            Parameter("lipschitz", None, number(above=0.0), "initial L; default: 1/64 of its bound"),
        ),
        solver="distls.solvers.coordinate_descent.proximal:Sparsa",
        version=6,  # as `fista`
        targets=("class", "multilabel", "continuous"), continuous=_OF_NUMBERS, passes=200.0, keeps_rows=True, path=True,
        published={"penalty": SPARSE_PENALTY, "rules": "paper", "history": 6, "tau": 1e-3, "fit_intercept": False},
    ),
)
