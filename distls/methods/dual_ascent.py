"""Stochastic dual coordinate ascent: the optimum of problems with an l2 penalty, with a duality gap."""

from distls.methods.default_losses import OF_CLASSES, OF_LABELS, OF_NUMBERS, OF_SUPPORT_VECTORS
from distls.methods.method import Method, Parameter
from distls.methods.parameters import (
    BY_ROWS,
    CLASS_WEIGHT,
    DUAL_PENALTY,
    INIT,
    INTERCEPT_SCALING,
    PRUNE,
    SHUFFLE,
    STANDARDIZE,
    dtype,
    fit_intercept,
    integer,
    lanes,
    number,
    one_of,
    strengths,
)
from distls.methods.requirements import loss_with

_BY_ROWS = BY_ROWS.replace("of classes", "of classes and sets of labels")

# Tables, a parameter's row its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
DUAL_ASCENT_METHODS = (
    Method(
        name="sdca",
        summary="the optimum, proven by a duality gap: any loss with l2 or elastic net, by dual coordinate ascent",
        paper="Shalev-Shwartz, Zhang 2013, Stochastic Dual Coordinate Ascent Methods; Ma et al. 2015 (CoCoA+)",
        parameters=(
            Parameter("loss", None, loss_with(dual=True),
                      "softmax (log), crammer_singer (hinge), ovr_log, ovr_hinge, ovr_squared_hinge (squared_hinge) "
                      "or squared; default: softmax for classes, else squared. Two classes are one binary problem"),
            *DUAL_PENALTY,
            *strengths(
                1e-5,
                number(above=0.0),
                f"strength of the penalty, greater than 0: 1/(C n_rows) of LIBLINEAR and scikit-learn{_BY_ROWS}, of "
                "numbers of a fifth of it and of 2, or twice a column's mean square if that is more",
                "from the duals of the one before",
            ),
            PRUNE,
            Parameter("start", None, one_of("sgd", "zero"),
                      "sgd: one pass of stochastic gradients first, whose slopes are the first duals; default: sgd "
                      "with 32 lanes or more, more than 1,000 features, a smooth loss and l2, else zero"),
            fit_intercept("fit an intercept, unpenalised unless intercept_scaling is given"),
            INTERCEPT_SCALING, CLASS_WEIGHT,
            lanes(
                "groups of rows processed in parallel; default max(2, parallelism), at most one fewer than partitions; "
                "more lanes need more passes"
            ),
            Parameter("rounds", None, integer(1, 1000),
                      "how often a pass adds up the lanes' changes; default 2, or 1 with one lane; with a "
                      "parallelism above 2 once for every 48 MiB of a lane, up to the parallelism"),
            Parameter("group_mib", None, integer(1),
                      "decoded MiB of partitions between whose rows a lane alternates; larger values need fewer "
                      "passes, especially with hinges; default: all of a lane's up to 192, else 128"),
            Parameter("active_sweeps", None, integer(0, 100),
                      "extra visits per round to the rows whose duals are inside their bounds, fewer with many "
                      "classes; default 3 for hinges, else 0"),
            SHUFFLE,
            dtype("float32", "type of the weights and duals"),
            INIT, STANDARDIZE,
        ),
        solver="distls.solvers.dual_ascent.sdca:Sdca", targets=("class", "multilabel", "continuous"),
        losses={"class": OF_CLASSES, "multilabel": OF_NUMBERS, "continuous": OF_NUMBERS}, passes=100.0,
        rtol=1e-3, proves=True, alpha_by_rows=("class", "multilabel", "continuous"), keeps_rows=True, path=True,
        version=4,  # a pass of `sgd` before many lanes of wide rows
    ),
    Method(
        name="ovr-sdca",
        summary="very many classes: one-versus-rest by dual coordinate ascent, one block of classes after another; a "
        "sparse model",
        paper="Babbar, Schoelkopf 2017, DiSMEC; Shalev-Shwartz, Zhang 2013, Stochastic Dual Coordinate Ascent Methods",
        parameters=(
            Parameter("loss", None, loss_with(dual=True, separable=True, quadratic=False),
                      "ovr_squared_hinge (squared_hinge), ovr_hinge (hinge) or ovr_log (log, for sets of labels); "
                      "default: ovr_squared_hinge, or ovr_log for sets of labels"),
            Parameter("alpha", 1e-5, number(above=0.0),
                      f"strength of the l2 penalty, greater than 0: 1/(C n_rows) of LIBLINEAR{_BY_ROWS}"),
            Parameter("class_tol", 0.1, number(0.0),
                      "a class is finished when its duality gap is at most this fraction of its objective"),
            Parameter("sweeps", 100, integer(1), "most passes over all rows for a class"),
            Parameter("prune", None, number(above=0.0),
                      "weights smaller than this in absolute value are not stored (DiSMEC's Delta, 0.01 there); "
                      "default: only zeros are left out"),
            Parameter("class_block", None, integer(1),
                      "classes that a worker trains at a time; default: by its memory, at most 128; the weights do "
                      "not depend on it"),
            fit_intercept("fit an intercept: without it almost no weight is zero; see intercept_scaling"),
            Parameter("intercept_scaling", None, number(above=0.0),
                      "penalise the intercept as the weight of one more feature, of this value in every row: -B of "
                      "LIBLINEAR; default 1"),
            CLASS_WEIGHT, SHUFFLE,
            dtype("float32", "type of the weights and duals"),
        ),
        solver="distls.solvers.dual_ascent.class_blocks:ClassBlockSolver", targets=("class", "multilabel"),
        losses={"class": OF_SUPPORT_VECTORS, "multilabel": OF_LABELS}, passes=None, keeps_rows=True,
        by_classes=True, alpha_by_rows=("class", "multilabel"),
        version=3,  # sums as they are written
    ),
)
