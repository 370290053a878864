"""From a problem and a method's parameters to the updates its lanes take: one, or candidates that are tried first.

Every method has a function of type `ChooseSteps` next to its update, named by the method's entry in `distls.methods`.
It sees the problem only through `ProblemStats`, so that it serves streams of rows (`partial_fit`) too.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from distls.storage.errors import ParameterError
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY
from distls.workers.stochastic.step_sizes import POWERS
from distls.workers.stochastic.update import ScheduleUpdate, Update

SPECTRUM = "spectrum"  # `eta0` that follows from the eigenvalues of the Hessian

# Steps are tried on a tenth of the rows (SGD-QN paper, section 6), within these bounds.
_TRIAL_SHARE = 10
_LEAST_TRIAL_ROWS, _MOST_TRIAL_ROWS = 4096, 65_536


@dataclass(frozen=True)
class ProblemStats:
    """The facts that steps depend on: the objective, and statistics of the rows."""

    loss: str
    target: str
    alpha: float
    fit_intercept: bool
    n_outputs: int
    n_features: int
    n_rows: int
    nnz: int
    mean_square_norm: float  # mean_i |x_i|^2
    penalty: str = PLAIN_PENALTY
    l1_ratio: float = 0.0

    def objective(self) -> dict[str, Any]:
        """Return the fields that every `Update` has."""
        return {"loss": self.loss, "alpha": self.alpha, "fit_intercept": self.fit_intercept}


class Candidate(NamedTuple):
    """Steps that are tried before the first round."""

    setting: dict[str, Any]  # the parameters tried, as a user would give them with one lane
    on_trial: Update  # of the trial: one lane over `trial_rows` rows
    update: Update  # of all lanes
    handicap: float = 1.0  # its objective counts as many times where candidates are compared

    def __str__(self) -> str:
        """Return the setting as NAME=VALUE, ..."""
        values = (f"{value:.6g}" if isinstance(value, float) else value for value in self.setting.values())
        return ", ".join(f"{name}={value}" for name, value in zip(self.setting, values, strict=True))


class StepChoice(NamedTuple):
    """The update of all lanes where nothing is tried, and the candidates where something is."""

    default: Update
    candidates: tuple[Candidate, ...] = ()
    # a tenth of the rows judges what was tried on it (the SGD-QN paper), and no others
    same_rows: bool = False


class ChooseSteps(Protocol):
    """Chooses a method's steps from all its parameters (resolved), the number of lanes, and `warm`: trained weights."""

    def __call__(self, stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
        """Return the steps to take or to try; raise ParameterError if parameters contradict each other or the data."""
        ...


def trial_rows(n_rows: int, *, same: bool = False) -> int:
    """Return the number of rows that steps are tried on; as many more score them, or the `same`."""
    if same:
        return max(n_rows // _TRIAL_SHARE, 1)
    # Bounded from above: a trial must stay cheap on large data; and by half of the rows, as others judge.
    return min(max(n_rows // _TRIAL_SHARE, _LEAST_TRIAL_ROWS), _MOST_TRIAL_ROWS, max(n_rows // 2, 1))


def boldness(n_rows: int) -> float:
    """Return how many times as long steps without decay are on trial: few rows need not have the longest one."""
    return 4.0 if trial_rows(n_rows) < _LEAST_TRIAL_ROWS else 1.0


def refuse_params(params: dict[str, Any], plain: dict[str, Any], because: str) -> None:
    """Raise ParameterError for parameters with other values than those of `plain`."""
    for name, value in plain.items():
        if params[name] != value:
            raise ParameterError(f"{name}={params[name]}: not with {because}; leave it out")


def refuse_spectrum(params: dict[str, Any], because: str) -> None:
    """Raise ParameterError if `eta0` is to follow from the spectrum."""
    if params["eta0"] == SPECTRUM:
        raise ParameterError(f"eta0={SPECTRUM}: not with {because}; leave it out")


def needs_measurement(eta0: Any = None, tolerance: Any = None) -> bool:
    """Return whether steps follow from reads of all rows before the first one."""
    return eta0 == SPECTRUM or tolerance is not None


def choose_by_schedule(update: ScheduleUpdate, stats: ProblemStats, params: dict[str, Any], n_lanes: int) -> StepChoice:
    """Return an update with steps that follow a schedule, of the given size or of sizes to be tried.

    Raises ParameterError if steps of that size would erase the weights.
    """
    schedule, given, tolerance = params["schedule"], params["eta0"], params.get("tolerance")
    if not loss_named(stats.loss).quadratic:
        refuse_spectrum(params, f"loss={stats.loss}")
    if tolerance is not None:
        if schedule != "two-phase":
            raise ParameterError(f"tolerance={tolerance}: of schedule=two-phase only; leave it out")
        refuse_params(params, {"switch": None, "center": "running"}, f"tolerance={tolerance}")
        if not stats.fit_intercept:
            raise ParameterError(
                f"tolerance={tolerance}: no mean point binds models without intercept; set fit_intercept=true"
            )
    if given == SPECTRUM:  # not measured yet
        given = None
    # 1 - alpha eta0 <= 0 would erase or invert the weights in one step.
    if given and stats.alpha * given >= 1.0:
        raise ParameterError(f"eta0={given}: times alpha={stats.alpha} it is 1 or more, which would erase the weights")
    square = stats.mean_square_norm or 1.0
    # a constant step has to be small enough for the last rows, where the other schedules have decayed
    bold = boldness(stats.n_rows) if schedule == "constant" else 1.0
    finest = 64.0 * bold if schedule == "constant" else 1.0
    # Around 1 / mean|x|^2, the step at which a score reaches its target in one row.
    sizes = [4.0**power / square / finest for power in range(-2, 5) if stats.alpha * 4.0**power < square]
    if given or not sizes:
        # The given size; or, where no candidate is small enough, half of the bound.
        sizes = [given or 0.5 / stats.alpha]
    # Half of a lane's rows of one pass.
    switch = params["switch"] or max(stats.n_rows / n_lanes / 2, 1.0)
    # on trial, in one lane over fewer rows, the second phase starts half-way too
    trial_switch = params["switch"] or max(trial_rows(stats.n_rows) / 2, 1.0)
    if schedule.startswith(POWERS):
        refuse_params(params, {"switch": None}, f"schedule={schedule}")
        switch = trial_switch = float(schedule.removeprefix(POWERS))
    update = replace(update, schedule=schedule, eta0=sizes[0], switch=switch)
    alone = replace(update, switch=trial_switch).for_one_lane()
    candidates = [
        Candidate({"eta0": eta0}, replace(alone, eta0=bold * eta0), replace(update, eta0=eta0)) for eta0 in sizes
    ]
    # The second smallest: warm-ups and streams, which try nothing, take it.
    default = candidates[min(1, len(sizes) - 1)].update
    return StepChoice(default, tuple(candidates) if len(sizes) > 1 else ())
