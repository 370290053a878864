"""Parameters that several stochastic methods share: rows and lanes, the size of steps, averaging."""

from __future__ import annotations

from typing import Any

from distls.methods.method import Parameter
from distls.methods.parameters import (
    CLASS_WEIGHT,
    INIT,
    boolean,
    dtype,
    fit_intercept,
    integer,
    lanes,
    number,
    one_of,
)

__all__ = [
    "DIVIDING_ALPHA",
    "LANES_AND_ROWS",
    "NO_PAPER_INTERCEPT",
    "ONE_LANE",
    "averaging",
    "steps_by_schedule",
]

_SHUFFLE = Parameter("shuffle", True, boolean, "visit partitions and rows in random order, else as stored")
_DTYPE = dtype("float32", "of the weights")
_ROUND_BYTES = Parameter(
    "round_bytes", 4 * 2**30, integer(1), "stored bytes a lane reads at most between averagings"
)

# The last parameters of all methods of several lanes.
LANES_AND_ROWS = (
    CLASS_WEIGHT,
    lanes("chains worked in parallel; default min(8, partitions)"),
    _SHUFFLE,
    _DTYPE,
    _ROUND_BYTES,
    Parameter(
        "sync_bytes",
        None,
        integer(1),
        "stored bytes a lane reads between averagings while lanes differ; default 64 MiB, or 16 times the weights",
    ),
    INIT,
)


def _one_lane(value: Any) -> int:
    """Parse the number of lanes of a method that has but one."""
    if str(value) != "1":
        raise ValueError("this method works in one lane: what it remembers of rows cannot be averaged")
    return 1


# Of methods of one lane; those that start from a model have `INIT` besides.
ONE_LANE = (
    CLASS_WEIGHT,
    Parameter("lanes", 1, _one_lane, "1: what the method remembers of rows cannot be averaged"),
    _SHUFFLE,
    _DTYPE,
    _ROUND_BYTES,
)


def averaging(default: str) -> Parameter:
    """Return which iterates are averaged."""
    return Parameter(
        "average", default, one_of("none", "all", "tail"), "which iterates the model is the mean of"
    )


def steps_by_schedule(schedule: str, *, adaptive: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters of the size of steps; the default of `sgd` adapts to each feature."""
    plain = "eta0/t, eta0, eta0/sqrt(t), or eta0/sqrt(t) and from switch on eta0 sqrt(switch)/t"
    return (
        Parameter(
            "schedule",
            schedule,
            one_of(*(("adaptive",) if adaptive else ()), "inverse", "constant", "sqrt", "two-phase"),
            f"of steps: {'adaptive to each feature (AdaGrad), ' if adaptive else ''}{plain}",
        ),
        Parameter(
            "eta0",
            None,
            number(above=0.0),
            "size of steps; default: "
            + (
                "adaptive: sqrt(outputs)/2 (hinge: max(1, rows/10000)^(1/4)/4) times the cube root of lanes, over the "
                "root of mean |x|^2; else "
                if adaptive
                else ""
            )
            + "tried on a tenth of the rows, at least 4096",
        ),
        Parameter("switch", None, number(1.0), "of two-phase, a lane's rows; default half of a pass"),
    )


DIVIDING_ALPHA = Parameter(
    "alpha", 1e-5, number(above=0.0), "L2 strength, the paper's lambda; it divides the step"
)
NO_PAPER_INTERCEPT = fit_intercept(False, "an unpenalised intercept; the paper has none")
