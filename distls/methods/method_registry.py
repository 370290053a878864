"""The methods by name: one vocabulary, described in docs/notation.md."""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from distls.facts import ShownDict
from distls.methods.coordinate_descent import COORDINATE_DESCENT_METHODS
from distls.methods.dual_ascent import DUAL_ASCENT_METHODS
from distls.methods.least_squares import LEAST_SQUARES_METHODS
from distls.methods.method import Method
from distls.methods.stochastic import FOBOS, STOCHASTIC_METHODS
from distls.methods.truncated_newton import TRUNCATED_NEWTON_METHODS
from distls.storage.errors import ParameterError

METHODS: dict[str, Method] = {}

WHICH_TO_TAKE = """\
Which to choose: sgd for a model in one pass, sdca for the optimum (also from where sgd has ended: -p init=RUN), newton
for the optimum on many workers, bcd for a model of few features, gls for few (a few thousand), dense or correlated
features. Most follow a paper: `distls methods METHOD` names its box, which fit --as-published runs as it is printed."""


def register_method(method: Method) -> None:
    """Add a method to those of `fit`, the command line and the estimators; raise ValueError if its name is taken."""
    if METHODS.setdefault(method.name, method) is not method:
        raise ValueError(f"a method {method.name!r} is registered already")


for _method in (
    *STOCHASTIC_METHODS,
    *DUAL_ASCENT_METHODS,
    *TRUNCATED_NEWTON_METHODS,
    *COORDINATE_DESCENT_METHODS,
    FOBOS,
    *LEAST_SQUARES_METHODS,
):
    register_method(_method)


def list_methods() -> dict[str, str]:
    """Return the methods by name, with a line about each, as ``distls methods`` does."""
    return ShownDict({name: method.summary for name, method in METHODS.items()})


def method_named(name: str) -> Method:
    """Return the method `name`; raise ParameterError with the closest name if there is none."""
    if name not in METHODS:
        close = difflib.get_close_matches(name.lower(), METHODS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(METHODS)}"
        raise ParameterError(f"no method {name!r}; {hint}")
    return METHODS[name]


def parse_values(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse command-line ``NAME=VALUE`` pairs; several values stay a list.

    Raises ParameterError for a pair without "=", or a name given twice.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ParameterError(f"-p {pair}: expected NAME=VALUE")
        if name in values:
            raise ParameterError(f"-p {name} is given twice; list several values as {name}=A,B")
        # the commas of a JSON object do not separate values
        values[name] = value.split(",") if "," in value and not value.startswith("{") else value
    return values


def expand_grid(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one parameter setting for each combination of the listed values."""
    lists = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in values.items()}
    return [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]
