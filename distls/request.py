"""What a user asks of a fit, declared once.

Names, types, bounds, defaults, units and texts of the command line, of `fit` and `train`, of a run's record, its page
and comparison, and of docs/cli.md are generated from `Request`; `distls.solvers.loop` acts on its limits.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, Self, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from distls.storage.errors import ParameterError

if TYPE_CHECKING:
    from distls.storage.dataset.dataset import Dataset
    from distls.storage.filesystem.paths import Place

    Source = str | Place | Dataset

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D")  # a data set: as given, open, or a path in a run's record

_LARGEST = 1e308
_Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0, le=_LARGEST)] | None
_Amount = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0, le=_LARGEST)] | None
_Count = Annotated[int, Meta(ge=1)] | None
Calibration = Literal["temperature", "vector", "platt", "isotonic", "micro-f1", "macro-f1"] | None


def plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, which has a place in JSON; others as they are."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _asked(unit: str, help: str, needs: str = "") -> Meta:
    """Describe what may be asked, and the data set without which it cannot."""
    return Meta(title=unit, description=help, extra={"needs": needs})


class Request(msgspec.Struct, Generic[D], frozen=True, kw_only=True):
    """The limits of a fit, and the data sets beside that it is trained on.

    A field with a description can be asked for; the others are filled in by fits for fits of their own.
    """

    # fmt: off
    passes: Annotated[_Positive, _asked("PASSES",
        "Limit of passes over the data; default the method's own if no other limit is set.")] = None
    tol: Annotated[_Positive, _asked("X", "Stop when the certificate is at most this.")] = None
    rtol: Annotated[_Positive, _asked("FRACTION",
        "Stop when the certificate is at most this fraction of the objective, where it bounds the distance from the "
        "optimum; default of sdca without a limit: 1e-3.")] = None
    max_seconds: Annotated[_Positive, _asked("SECONDS", "Limit of wall time since the command began.")] = None
    eval_data: Annotated[D | None, _asked("DATASET",
        "Data set to evaluate on during the fit and at its end.")] = msgspec.field(default=None, name="eval")
    eval_every: Annotated[_Amount, _asked("PASSES",
        "Passes between evaluations of the objective, the certificate and the evaluation data; 0 for no evaluation. "
        "Default: at the end, and where a tolerance needs it as often as a fifth of the work allows; with patience the "
        "evaluation data every pass.")] = None
    patience: Annotated[_Count, _asked("EVALUATIONS",
        "Stop after this many evaluations without a lower error, and publish the best weights.", "eval_data")] = None
    select: Annotated[D | None, _asked("DATASET",
        "Data set that chooses among several settings by its error.")] = None
    refit: Annotated[bool, _asked("",
        "Fit the chosen setting once more, on the rows of --select too, and publish that model.", "select")] = False
    calibrate: Annotated[D | None, _asked("DATASET",
        "Held-out data set that calibrates the model: its probabilities, or the thresholds of its labels.")] = None
    calibration: Annotated[Calibration, _asked("KIND",
        "How to calibrate; default: platt for two classes, else temperature; micro-f1 for sets of labels.",
        "calibrate")] = None
    threshold_for: Annotated[str | None, _asked("METRIC",
        "Of two classes, predict the second above the score that is best on the rows of --calibrate (train holds out a "
        "fifth for it): f1, recall=R, precision=P or cost=FP:FN.", "calibrate")] = None
    as_published: Annotated[bool, _asked("",
        "Every parameter as the paper of the method prints it, but for those given beside.")] = False
    parallelism: Annotated[_Count, _asked("THREADS",
        "Threads that are to train at the same time, on any cluster: methods have as many lanes at least, or one for "
        "each partition; lanes are part of the problem. Default: by the data, one for every twelve partitions, more "
        "than eight for 32,768 rows each, rounded down to a power of two.")] = None
    seed: Annotated[Annotated[int, Meta(ge=0)], _asked("N", "Seed of all random choices.")] = 0
    # fmt: on
    selected_on: D | None = None  # to be scored for a parent run that chooses
    reason: str | None = None  # why the method was chosen, where it was not asked for
    departures: str | None = None  # what was given beside `as_published` that the paper does not print
    trial: bool = False  # one of many fits that are compared: ended by its estimates, not evaluated

    def with_data(self, change: Callable[[D], Any]) -> dict[str, Any]:
        """Return all fields by name, with `change` of each data set."""
        values = {name: getattr(self, name) for name in Request.__struct_fields__}
        return {name: change(value) if value is not None and name in _DATA else value for name, value in values.items()}

    def without(self, *names: str, **changes: Any) -> Self:
        """Return the request without these, and without what needs them; with other changes."""
        off = {o.name: o.default for o in OPTIONS if o.name in names or o.needs in names}
        return msgspec.structs.replace(self, **off, **changes)

    def until(self, passes: float) -> Self:
        """Return the request with a new limit of passes, in place of those of passes and seconds."""
        return msgspec.structs.replace(self, passes=passes, max_seconds=None)

    def or_else(self, passes: float | None, rtol: float | None) -> Self:
        """Return the request with these limits, a method's own, if it has none that ends a fit."""
        if self.passes is not None or self.max_seconds is not None or self.is_judged:
            return self
        return msgspec.structs.replace(self, passes=passes, rtol=None if self.eval_every == 0 else rtol)

    @property
    def is_judged(self) -> bool:
        """Whether the certificate is compared with a tolerance."""
        return self.tol is not None or self.rtol is not None

    @property
    def asked(self) -> dict[Option, Any]:
        """What is asked for."""
        values = {option: getattr(self, option.name) for option in OPTIONS}
        return {option: value for option, value in values.items() if value is not None and value is not False}

    def check_bounds(self) -> None:
        """Raise ParameterError unless all numbers are within their bounds, and finite."""
        for option, value in self.asked.items():
            if option.low is None:
                continue
            least = f"greater than {option.low}" if option.open else f"at least {option.low}"
            if not (value > option.low or (value == option.low and not option.open)) or math.isinf(value):
                raise ParameterError(f"{option.name}={value}: must be {least} and finite")
            if option.kind is int and value != int(value):
                raise ParameterError(f"{option.name}={value}: must be a whole number, {least}")

    def check_needs(self) -> None:
        """Raise ParameterError if something is asked for that needs what is not, or contradicts it."""
        for option in self.asked:
            if option.needs and getattr(self, option.needs) is None:
                needed = next(o.flag for o in OPTIONS if o.name == option.needs)
                raise ParameterError(f"{option.name} needs held-out rows: give {needed} DATASET")
        if self.eval_every == 0 and (self.is_judged or self.patience is not None):
            raise ParameterError("eval_every=0 evaluates nothing, which tol, rtol and patience need; drop one of them")


class Options(TypedDict, total=False):
    """The fields of `Request` as keywords, for type checkers."""

    passes: float | None
    tol: float | None
    rtol: float | None
    max_seconds: float | None
    eval_data: Source | None
    eval_every: float | None
    patience: int | None
    select: Source | None
    refit: bool
    calibrate: Source | None
    calibration: Calibration
    threshold_for: str | None
    as_published: bool
    parallelism: int | None
    seed: int


class Option(NamedTuple):
    """One field of `Request` that can be asked for."""

    name: str  # the keyword
    key: str  # in config.json
    unit: str
    help: str
    needs: str
    kind: type  # float, int, bool, str, or Path of a data set
    default: Any
    low: float | None
    open: bool  # the bound itself is refused
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def is_limit(self) -> bool:
        """Whether it ends a fit or says when to evaluate."""
        return self.low is not None and self.default is None and self.name != "parallelism"

    def documented(self) -> str:
        """Return it as a parameter of a docstring."""
        choices = "{" + ", ".join(f'"{choice}"' for choice in self.choices) + "}"
        named = "path or Dataset" if self.kind is Path else choices if self.choices else self.kind.__name__
        text = textwrap.indent(textwrap.fill(self.help.replace("--", ""), 102), 4 * " ")
        return f"{self.name} : {named}{'' if self.default is not None else ', optional'}\n{text}"


_KINDS = {"FloatType": float, "IntType": int, "BoolType": bool, "LiteralType": str, "StrType": str, "CustomType": Path}


def _option(field: Any) -> Option:
    """Return what the declaration of a field says, whose type is one of numbers, choices or a data set, or none."""
    types = getattr(field.type.type, "types", (field.type.type,))
    kind: Any = next(t for t in reversed(types) if not isinstance(t, msgspec.inspect.NoneType))
    above, least = getattr(kind, "gt", None), getattr(kind, "ge", None)
    schema, extra = field.type.extra_json_schema, field.type.extra
    return Option(
        field.name,
        field.encode_name,
        schema["title"],
        schema["description"],
        extra["needs"],
        _KINDS[type(kind).__name__],
        field.default,
        least if above is None else above,
        above is not None,
        tuple(getattr(kind, "values", ())),
    )


OPTIONS = tuple(
    _option(field)
    for field in msgspec.inspect.type_info(Request[Path]).fields  # type: ignore[attr-defined]
    if isinstance(field.type, msgspec.inspect.Metadata)
)
_DATA = {option.name for option in OPTIONS if option.kind is Path} | {"selected_on"}
ALONE = tuple(option.name for option in OPTIONS if option.kind is not Path and not option.needs)


def takes_request(names: Iterable[str] = Options.__annotations__) -> Callable[[F], F]:
    """Show options of `Request` in the signature of a function that takes them by ``**``, and in its docstring."""
    options = [option for option in OPTIONS if option.name in names]
    types = {name: getattr(kind, "__forward_arg__", kind) for name, kind in Options.__annotations__.items()}
    keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    asked = [keyword(o.name, default=o.default, annotation=types[o.name]) for o in options]

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        *own, rest = signature.parameters.values()
        others = [] if "Options" in str(rest.annotation) else [rest]
        function.__signature__ = signature.replace(parameters=[*own, *asked, *others])  # type: ignore[attr-defined]
        text = "\n".join(option.documented() for option in options)
        # without the indentation of the source, as Python 3.13 has it
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("%(request)s", text)
        return function

    return shown
