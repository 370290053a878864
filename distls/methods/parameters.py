"""Parsers of parameter values, and the parameters that several methods share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from distls.methods.method import Parameter

__all__ = [
    "BLOCK_SIZE", "CLASS_WEIGHT", "FEATURE_PARAMETERS", "INIT", "LANES_READ", "ONE_BLOCK", "SHUFFLE", "Parser",
    "boolean", "colon_list", "dtype", "fit_intercept", "init", "integer", "lanes", "number", "number_or", "one_of",
]  # fmt: skip

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


def one_of(*choices: str, **aliases: str) -> Callable[[Any], str]:
    """Return a parser of one of `choices`, or an alias of one."""

    def parse(value: Any) -> str:
        text = aliases.get(str(value), str(value))
        if text not in choices:
            raise ValueError(f"expected one of {', '.join([*choices, *aliases])}")
        return text

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


CLASS_WEIGHT = Parameter(
    "class_weight", None, _class_weights, 'balanced, or weights as JSON such as {"spam": 5}; default all 1'
)


def fit_intercept(default: bool, description: str = "fit an unpenalised intercept") -> Parameter:
    """Return the parameter that asks for an intercept."""
    return Parameter("fit_intercept", default, boolean, description)


def lanes(description: str) -> Parameter:
    """Return the number of lanes; the method decides where none is given."""
    return Parameter("lanes", None, integer(1, 4096), description)


def dtype(default: str, description: str) -> Parameter:
    """Return the type of numbers a method works with."""
    return Parameter("dtype", default, one_of("float32", "float64"), description)


def init(description: str) -> Parameter:
    """Return the run or model that a fit starts from."""
    return Parameter("init", None, str, description)


LANES_READ = lanes("groups of partitions read in parallel; default min(8, partitions)")
INIT = init("a run or model to start from")
SHUFFLE = Parameter(
    "shuffle", True, boolean, "visit partitions and rows in random order; otherwise as stored"
)

# Parameters of the feature maps; the kind of map is the method's own `features`.
FEATURE_PARAMETERS = (
    Parameter(
        "pca", None, integer(1), "project rows onto this many principal components before random features"
    ),
    Parameter(
        "bandwidth",
        None,
        number_or(number(above=0.0), "median"),
        "s of the kernel exp(-|x - x'|^2 / s); median: the median squared distance of rows (default, except for "
        "polynomials, whose mean square is scaled to 1)",
    ),
    Parameter("degree", None, integer(1, 9), "degree of random polynomials; default 2"),
    Parameter(
        "image",
        None,
        str,
        "shape of a row's image, HEIGHTxWIDTHxCHANNELS; default: square, 3 channels if that fits",
    ),
    Parameter("mask_side", None, integer(1), "side of a square filter in pixels; default 6"),
    Parameter("pool", None, integer(1), "average convolutions over pool x pool regions; default 2"),
    Parameter(
        "rectify", None, one_of("two-sided", "absolute"), "rectification of convolutions; default two-sided"
    ),
    Parameter("threshold", None, number(0.0), "value that a filter's response must exceed; default 0"),
    Parameter(
        "contrast", None, boolean, "normalise the contrast of patches before convolutions; default false"
    ),
    Parameter(
        "expand",
        None,
        integer(1),
        "with filters: make this many of a block's features random polynomials of the others; default none",
    ),
)

# For methods with one block of features.
ONE_BLOCK = (
    Parameter(
        "features",
        "none",
        one_of("none", "fourier", "logits", "polynomials", "random-masks", "kmeans-masks"),
        "none: the row itself; otherwise random Fourier features, logits or low-degree polynomials of it, or "
        "convolutions of images with random or k-means filters",
    ),
    Parameter("block_size", None, integer(1), f"generated features; default {BLOCK_SIZE}"),
    *FEATURE_PARAMETERS,
)
