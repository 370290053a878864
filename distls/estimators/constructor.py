"""Constructors and documentation of estimators, made of the parameters of their methods."""

import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from distls.facts import said
from distls.methods.method import Parameter, unknown_parameter
from distls.methods.method_registry import method_named
from distls.methods.parameters import boolean, integer, number

T = TypeVar("T")

_WIDTH = 100  # of lines of documentation
_EXECUTOR = (
    'where to run, an Executor, a Client, "auto", "serial" or "dask"; default, as "auto": the Dask client that is open '
    "if there is one, else this process"
)
# The limits of a fit of a method that does not end by itself.
_LIMITS = (
    Parameter("passes", None, number(above=0.0), "reads of the data, at most"),
    Parameter("tol", None, number(above=0.0), "stop when the certificate is at most this"),
    Parameter("warm_start", False, boolean, "start from the weights of the last fit"),
)
_AS_PUBLISHED = Parameter(
    "as_published",
    False,
    boolean,
    "every parameter as the paper of the method prints it, but for those that differ from their defaults here",
)
_KIND = (
    'what columns of a frame are, by name, as `distls.train` has it: ``{"zip": "category", "note": "text:tfidf"}``; '
    "not of a Dask frame; default: as their types and values say"
)
_SEED = "seed of all that is drawn, and of the order in which rows are stored"
_ALWAYS = (
    Parameter("kind", None, lambda value: value, _KIND),
    Parameter("random_state", 0, integer(0), _SEED),
    Parameter("executor", None, lambda value: value, _EXECUTOR),
)


def estimator(
    method: str, first: str, *own: Parameter, without: Sequence[str] = (), **defaults: Any
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that gives a class the parameters of a method, and the limits of a fit.

    Parameters
    ----------
    method : str
    first : str
        The only parameter that may be given by its place.
    own : Parameter
        Further parameters of the estimator; one takes the place of the method's parameter of its name.
    without : names
        Parameters of the method that the estimator sets itself, or that its rows cannot have.
    defaults
        Where they are not the method's.
    """
    chosen = method_named(method)
    limits = () if chosen.passes is None else _LIMITS
    defaults = {"passes": chosen.passes, **defaults}
    printed = (_AS_PUBLISHED,) if chosen.published else ()
    known = {p.name: p for p in (*chosen.parameters, *own, *limits, *printed, *_ALWAYS)}
    # an estimator starts from its own weights, and a pipeline has a scaler
    names = sorted(known.keys() - {*without, "init", "standardize"}, key=[first, *known].index)

    def decorate(cls: type[T]) -> type[T]:
        made: Any = cls
        made._method = vars(cls).get("_method", method)
        made._defaults = {n: defaults.get(n, known[n].default) for n in names}
        made.__init__ = _constructor(cls.__name__, made._defaults)
        parameters = [_documented(known[n], default) for n, default in made._defaults.items()]
        made.__doc__ = "\n".join(
            [
                inspect.cleandoc(cls.__doc__ or ""),
                "",
                "Parameters",
                "----------",
                *parameters,
                "",
                "Attributes",
                "----------",
                *_attributes(cls),
            ]
        )
        return cls

    return decorate


def _constructor(name: str, defaults: dict[str, Any]) -> Any:
    """Return a constructor that stores its parameters, and says which one stands for one of scikit-learn's."""
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD, *[inspect.Parameter.KEYWORD_ONLY] * (len(defaults) - 1)]
    parameters = [
        inspect.Parameter(each, kind, default=default)
        for (each, default), kind in zip(defaults.items(), kinds, strict=True)
    ]
    signature = inspect.Signature(parameters)

    def __init__(self: Any, *args: Any, **given: Any) -> None:
        for parameter in given:
            if parameter not in defaults:
                raise TypeError(said(unknown_parameter(parameter, name, list(defaults))))
        vars(self).update({**defaults, **signature.bind(*args, **given).arguments})

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    made: Any = __init__
    made.__signature__ = signature.replace(parameters=[own, *parameters])  # scikit-learn reads it
    made.__qualname__ = f"{name}.__init__"
    return made


def _documented(parameter: Parameter, default: Any) -> str:
    said = parameter.description.replace("|", r"\|")  # else a substitution of reStructuredText
    text = textwrap.fill(said, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"{parameter.name} : default {default!r}\n{text}"


def _attributes(cls: type[Any]) -> list[str]:
    """Return what is known after a fit: the properties of the class whose names end with an underscore, and others."""
    others = {name: text for base in reversed(cls.__mro__) for name, text in vars(base).get("_known", {}).items()}
    found = {
        name: (getattr(cls, name).__doc__ or "").partition("\n")[0]
        for name in dir(cls)
        if not name.startswith("_") and name.endswith("_") and isinstance(getattr(cls, name), property)
    }
    return [f"{name}\n    {text}" for name, text in {**others, **found}.items()]
