"""Parsers of parameter values, and the parameters that several methods share."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from distls.methods.method import Parameter
from distls.methods.requirements import penalty_with

# Predictions may leave [0, 1] before they are calibrated; their higher powers show little else.
_MOST_POWERS = 12
BLOCK_SIZE = 1024  # generated features by default

Parser = Callable[[Any], Any]


def number(low: float = float("-inf"), high: float = float("inf"), *, above: float | None = None) -> Parser:
    """Return a parser of finite numbers within [low, high], and above `above`."""

    def parse(value: Any) -> float:
        try:
            result = float(value)
        except (TypeError, ValueError):
            raise ValueError("expected a number") from None
        # NaN fails every comparison, so it is refused here too
        if not low <= result <= high or result in (float("inf"), float("-inf")):
            raise ValueError(f"expected a number from {low:g} to {high:g}")
        if above is not None and result <= above:
            raise ValueError(f"must be greater than {above:g}")
        return result

    return parse


def integer(low: int, high: int = 2**63 - 1) -> Parser:
    """Return a parser of integers within [low, high]."""

    def parse(value: Any) -> int:
        try:
            result = int(str(value))  # by its text: int(2.7) would drop the fraction
        except ValueError:
            raise ValueError("expected a whole number") from None
        if not low <= result <= high:
            raise ValueError(f"expected a whole number of at least {low}")
        return result

    return parse


def one_of(*choices: str) -> Callable[[Any], str]:
    """Return a parser of one of `choices`."""

    def parse(value: Any) -> str:
        if str(value) not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return parse


def number_or(parse: Parser, *words: str) -> Parser:
    """Return a parser of one of `words`, or of a number that `parse` accepts."""

    def either(value: Any) -> Any:
        if value in words:
            return value
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, or {' or '.join(words)}") from None

    return either


def boolean(value: Any) -> bool:
    """Parse yes/no, true/false, 1/0."""
    table = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return table[str(value).lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def features_or(word: str) -> Parser:
    """Return a parser of the kinds of generated features, registered ones among them, or of one more word."""

    def parse(value: Any) -> str:
        # imported here, as of losses
        from distls.workers.features.generator_registry import generator_names

        return one_of(word, *generator_names(), "random-masks", "kmeans-masks")(value)

    return parse


def colon_list(value: Any) -> str:
    """Check colon-separated numbers above 0."""
    try:
        for each in str(value).split(":"):
            number(above=0.0)(each)
    except ValueError:
        raise ValueError("expected numbers greater than 0 separated by colons, such as 1:0.1:0.01") from None
    return str(value)


def _class_weights(value: Any) -> Any:
    """Parse 'balanced' or a mapping {label: weight}, as JSON text or a dict."""
    if value == "balanced":
        return value
    try:
        table = json.loads(value) if isinstance(value, str) else dict(value)
        weights = {str(label): float(weight) for label, weight in table.items()}
    except (AttributeError, RecursionError, TypeError, ValueError):
        raise ValueError('expected balanced, or weights such as {"1": 2.5}') from None
    # NaN is not below infinity, so it is refused too
    if not weights or min(weights.values()) < 0 or not all(w < float("inf") for w in weights.values()):
        raise ValueError("class weights must be finite and not negative")
    return weights


def _path_alphas(value: Any) -> Any:
    """Parse the number of alphas, or a colon-separated list of them."""
    return colon_list(value) if ":" in str(value) else integer(2, 1000)(value)


CLASS_WEIGHT = Parameter(
    "class_weight", None, _class_weights, 'balanced, or weights as JSON such as {"spam": 5}; default all 1'
)


def fit_intercept(description: str = "fit an unpenalised intercept") -> Parameter:
    """Return the parameter that asks for an intercept: by default there is one, also where the paper has none."""
    return Parameter("fit_intercept", True, boolean, description)


# A parameter's row: its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
STANDARDIZE = Parameter("standardize", None, boolean,
                        "fit to dense columns that are standardized, and numbers less their mean, by the first "
                        "partition; the weights are those of the rows as they are; default: no, but of numbers with "
                        "no alpha where scales or means are ten times off", optional=True)
NO_PAPER_INTERCEPT = fit_intercept("fit an unpenalised intercept; not in the paper")
INTERCEPT_SCALING = Parameter("intercept_scaling", None, number(above=0.0),
                              "penalise the intercept as the weight of one more feature, of this value in every row: "
                              "-B of LIBLINEAR; default: not penalised")


def lanes(description: str) -> Parameter:
    """Return the number of lanes; the method decides where none is given."""
    return Parameter("lanes", None, integer(1, 4096), description)


def dtype(default: str, description: str) -> Parameter:
    """Return the type of numbers a method works with."""
    return Parameter("dtype", default, one_of("float32", "float64"), description)


def init(description: str) -> Parameter:
    """Return the run or model that a fit starts from."""
    return Parameter("init", None, str, description)


LANES_READ = lanes(
    "groups of partitions read in parallel; default max(8, parallelism), at most one for each partition"
)
INIT = init("a run or model to start from; classes that it does not have begin with weights of zero")
SHUFFLE = Parameter("shuffle", True, boolean, "visit partitions and rows in random order; otherwise as stored")

# Of paths of strengths, ``alpha=path``.
ALPHAS = Parameter("alphas", None, _path_alphas,
                   "with alpha=path: the number of alphas, from the smallest with all weights zero down to a "
                   "thousandth of it (default 10), with l2 alone from 1e-2 to 1e-6 of the mean squared norm of a "
                   "row; or a list such as 1e-2:1e-3")
FOLDS = Parameter("folds", None, integer(2, 1000),
                  "choose one of alpha=path by cross-validation with this many folds; default: no cross-validation")

# Of methods that prove the optimum by a dual point.
DUAL_PENALTY = (
    Parameter("penalty", "l2", penalty_with(dual=True), "l2 or elasticnet"),
    Parameter("l1_ratio", None, number(0.0, 1.0), "share of l1 in elasticnet, below 1; default 0.5"),
)

PRUNE = Parameter("prune", None, boolean,
                  "with folds: leave out alphas and losses that are clearly worse on the rows of the folds so far; "
                  "default: none is left out")


# Said of methods with `alpha_by_rows` of classes.
BY_ROWS = "; by default of classes at least the smaller of 1 and a twentieth of mean |x|^2, over n_rows"


def strengths(
    default: float, parse: Parser, description: str, related: str = "all sharing the reads of the data"
) -> tuple[Parameter, ...]:
    """Return the strength of the penalty, and the parameters of several strengths."""
    also = f"{description}; path: a fit for each of alphas, {related}"
    return Parameter("alpha", default, number_or(parse, "path"), also), ALPHAS, FOLDS


# Parameters of the feature maps; the kind of map is the method's own `features`.
FEATURE_PARAMETERS = (
    Parameter("pca", None, integer(1), "project rows onto this many principal components before random features"),
    Parameter("bandwidth", None, number_or(number(above=0.0), "median"),
              "s of the kernel exp(-|x - x'|^2 / s); median: the median squared distance of rows (default, except "
              "for polynomials, whose mean square is scaled to 1)"),
    Parameter("degree", None, integer(1, 9), "degree of random polynomials; default 2"),
    Parameter("image", None, str,
              "shape of a row's image, HEIGHTxWIDTHxCHANNELS; default: square, 3 channels if that fits"),
    Parameter("mask_side", None, integer(1), "side of a square filter in pixels; default 6"),
    Parameter("pool", None, integer(1), "average convolutions over pool x pool regions; default 2"),
    Parameter("rectify", None, one_of("two-sided", "absolute", "triangle"),
              "rectification of convolutions: both signs apart (default), without the sign, or triangle: how much "
              "nearer a patch is to a filter than to the filters of the block on average (Coates et al. 2011)"),
    Parameter("threshold", None, number(0.0), "value that a filter's response must exceed; default 0"),
    Parameter("contrast", None, boolean, "normalise the contrast of patches before convolutions; default false"),
    Parameter("expand", None, integer(1),
              "with filters: make this many of a block's features random polynomials of the others; default none"),
)

# For methods with one block of features.
ONE_BLOCK = (
    Parameter("features", "none", features_or("none"),
              "none: the row itself; otherwise random Fourier features, logits or low-degree polynomials of it, or "
              "convolutions of images with random or k-means filters"),
    Parameter("block_size", None, integer(1), f"generated features; default {BLOCK_SIZE}"),
    *FEATURE_PARAMETERS,
)
# fmt: on


def shown_value(value: Any) -> str:
    """Return a value for a reader: a number has at most six significant digits."""
    short = f"{value:.6g}" if isinstance(value, float) else ""
    # 1.0 stays as it is
    return str(value) if not short or float(short) == value else short


def settings_text(params: Mapping[str, Any]) -> str:
    """Return the parameters that have a value as ``name=value``, for a reader."""
    return ", ".join(f"{name}={shown_value(value)}" for name, value in params.items() if value is not None)


# -- names of links and basis functions, also of registered ones -------------------------------------------


def basis(value: Any) -> str:
    """Parse a number of powers, or a list of powers and functions such as 1+2+log; return the list in that form."""
    listed = value if isinstance(value, (list, tuple)) else str(value).split("+")
    terms = [str(term) for term in listed]
    names = _known_functions([term for term in terms if term[:1].isalpha()])
    try:
        powers = [int(term) for term in terms if term not in names]
    except ValueError:
        raise ValueError("expected a number of powers, or powers such as 1+2+3") from None
    if len(terms) == 1 and powers and not isinstance(value, (list, tuple)):
        # cut off just above the limit: a billion would fill the memory before it is refused
        powers = list(range(1, min(powers[0], _MOST_POWERS + 1) + 1))
    if not powers or powers != sorted(set(powers)) or powers[0] != 1 or powers[-1] > _MOST_POWERS:
        raise ValueError(f"expected increasing powers from 1 to at most {_MOST_POWERS}, 1 among them")
    return "+".join([*map(str, powers), *names])


def _known_functions(names: list[str]) -> list[str]:
    if not names:
        return names
    from distls.workers.prediction.basis_functions import basis_function_names

    known = basis_function_names()
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise ValueError(f"expected powers such as 1+2+3, and functions of {', '.join(known)}, each once")
    return names


def loss_by(parameter: str) -> Parser:
    """Return a parser of what the least-squares methods call their losses: values of `link` or `inner`."""

    def parse(value: Any) -> str:
        # imported here: the registry loads numba, which `distls --help` must not wait for
        from distls.workers.losses.loss_registry import losses_by

        return one_of(*losses_by(parameter))(value)

    return parse
