"""Parameters that several stochastic methods share: rows and lanes, the size of steps, averaging."""

from typing import Any

from distls.methods.method import Parameter
from distls.methods.parameters import (
    BY_ROWS,
    CLASS_WEIGHT,
    INIT,
    STANDARDIZE,
    Parser,
    boolean,
    dtype,
    integer,
    lanes,
    number,
    number_or,
    one_of,
    strengths,
)

_DTYPE = dtype("float32", "type of the weights")
# Tables, a parameter's row its name, default and parser, then what it is; a formatter would spread it over lines.
# fmt: off
_ROUND_BYTES = Parameter("round_bytes", 4 * 2**30, integer(1),
                         "most stored bytes a lane reads between two averagings")

DRAWS = "draws"
# as in `distls.workers.stochastic.step_choice`, which a list of methods need not load
SPECTRUM = "spectrum"


def _order(value: Any) -> Any:
    """Parse how the rows of a pass are visited."""
    return DRAWS if value == DRAWS else boolean(value)


_SHUFFLE = Parameter("shuffle", True, _order,
                     "visit partitions and rows in random order; false: as stored; draws: rows drawn with "
                     "replacement from all that a lane has in a round, which it holds in memory, those of a batch "
                     "apart")

# The last parameters of every method with several lanes.
LANES_AND_ROWS = (
    CLASS_WEIGHT,
    lanes("models trained in parallel and averaged; default max(8, parallelism), at most one for each partition"),
    _SHUFFLE, _DTYPE, _ROUND_BYTES, STANDARDIZE,
    Parameter("sync_bytes", None, integer(1),
              "stored bytes a lane reads between averagings while the lanes differ; default 64 MiB, or 16 times the "
              "weights"),
    INIT,
)


def _one_lane(value: Any) -> int:
    """Parse the number of lanes of a method that has only one."""
    if str(value) != "1":
        raise ValueError("this method has one lane only: its second-order state cannot be averaged")
    return 1


# For methods of one lane; those that can start from a model add `INIT`.
ONE_LANE = (
    CLASS_WEIGHT,
    Parameter("lanes", 1, _one_lane, "1: second-order state cannot be averaged over lanes"),
    _SHUFFLE, _DTYPE, _ROUND_BYTES, STANDARDIZE,
)


def averaging(default: str) -> Parameter:
    """Return the parameter that names the averaged iterates."""
    return Parameter("average", default, one_of("none", "all", "tail"), "iterates whose mean is the model")


def _schedule(*names: str) -> Parser:
    """Return a parser of the names of schedules, and of t^-A with an exponent between 1/2 and 1."""

    def parse(value: Any) -> str:
        power = str(value).removeprefix("t^-")
        # a closed interval would have two names for sqrt and inverse
        if power == str(value) or not 0.5 < number()(power) < 1.0:
            return one_of(*names, "t^-A with A between 0.5 and 1, such as t^-0.75")(value)
        return str(value)

    return parse


def steps_by_schedule(schedule: str, *, adaptive: bool = False) -> tuple[Parameter, ...]:
    """Return the parameters of the step size; `adaptive` is the default of `sgd`."""
    plain = ("inverse (eta0/t), constant (eta0), sqrt (eta0/sqrt(t)), t^-A with 1/2 < A < 1 (times eta0), two-phase "
             "(eta0/sqrt(t) up to switch, eta0 sqrt(switch)/t after it)")
    first = ("adaptive: sqrt(outputs)/2 (hinge: max(1, rows/10000)^(1/4)/4) times the cube root of lanes, over the "
             "root of mean |x|^2; else ") if adaptive else ""
    names = (*(("adaptive",) if adaptive else ()), "inverse", "constant", "sqrt", "two-phase")
    return (
        Parameter("schedule", schedule, _schedule(*names),
                  f"step sizes: {'adaptive (AdaGrad, for each feature), ' if adaptive else ''}{plain}"),
        Parameter("eta0", None, number_or(number(above=0.0), SPECTRUM),
                  "initial step size, or spectrum: of squared loss, from trace and largest eigenvalue of the Hessian, "
                  f"found by at most 20 reads; default: {first}chosen by trial on a tenth of the rows, at least 4096"),
        Parameter("switch", None, number(1.0), "rows of a lane before the second phase; default half a pass"),
    )


TOLERANCE = Parameter("tolerance", None, number(above=0.0),
                      "with two-phase steps, in the place of switch: Proposition 2.2's epsilon; the second phase "
                      "begins after as many rows as their mean is expected to need for it, by the moments of the "
                      "data (three reads)", optional=True)
_DIVIDES = (
    "L2 strength, greater than 0, as steps are divided by it: the paper's lambda, "
    "of two classes see docs/papers.md"
)
# Steps 1/(alpha t) of few rows would end far beyond the optimum.
DIVIDING_ALPHA = strengths(1e-5, number(above=0.0), f"{_DIVIDES}{BY_ROWS}")
BALL = Parameter("ball", None, boolean,
                 "put the weights back onto the ball of radius 1/sqrt(alpha) after each step, as Pegasos may; of "
                 "hinges and the perceptron, and of ovr-pegasos each class onto one of its own; a step then reads "
                 "all weights; default: no", optional=True)
