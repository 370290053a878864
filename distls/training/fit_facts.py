"""The facts of a fit, from what a round, a run's status or a result records: progress, objective and bound, errors."""

from typing import Any

from distls.clock import parts_text
from distls.facts import Fact, percent
from distls.solvers.loop import relative_bound
from distls.solvers.status import Record

# What JSON about a run has of its status, as far as it is there.
RECORDED = ("objective", "certificate", "eval_error", "eval_mse", "select_error", "select_mse", "weights_sha256")

LOOSE = 0.2  # part of the objective above which a bound says nothing, and is not shown as one
_OLDER = "of training alone: start-up and evaluation were not counted"  # where a run does not name the parts


def fit_facts(record: Record) -> list[Fact]:
    """Return status, passes, seconds, objective and errors, as far as a status has them."""
    found = [
        Fact("status", record["status"], lambda status: str(getattr(status, "value", status)), key="status"),
        Fact("passes", record["passes"], ".4g", key="passes"),
        Fact("seconds", record["seconds"], ",.1f", parts_text(record) or _OLDER, "seconds"),
    ]
    if record.get("objective") is not None:
        found.append(objective_fact(record))
    for name, whose in (("eval", ""), ("select", "selection ")):
        judged = judged_fact(record, name)
        if judged.value is not None:
            found.append(judged._replace(label=whose + judged.label))
    return found


def objective_fact(record: Record) -> Fact:
    """Return the objective, and what its certificate says."""
    return Fact("objective", record["objective"], _objective, bound_text(record), "objective")


def _objective(value: Any) -> str:
    return f"{value:.6g}" if abs(value) < 1e-2 else f"{value:.6f}"


def bound_text(record: Record) -> str:
    """Return what the certificate of a record says; nothing where there is none."""
    certificate = record.get("certificate") or {}
    value, share = certificate.get("value"), relative_bound(record)
    if value is None:
        return ""
    if certificate["kind"] == "gradient_norm":
        return f"gradient norm {value:.1e} (no guarantee)"
    if share is None:
        return f"proven to be at most {value:.2e} above the lowest possible ({certificate['kind']})"
    if share > LOOSE:
        return "how far above the lowest possible is not known"
    return f"proven to be at most {_share(share)} ({value:.2e}) above the lowest possible ({certificate['kind']})"


def bound_fact(record: Record) -> Fact:
    """Return how far the objective is above the optimum at most, as a part of it; a loose bound is shown as none."""
    share = relative_bound(record)
    return Fact("above the optimum", share, lambda value: "-" if value is None or value > LOOSE else _share(value))


def _share(share: float) -> str:
    return f"{100 * share:{'.0f' if share > 0.1 else '.2g'}} %"


def judged_fact(record: Record, name: str) -> Fact:
    """Return the result on the evaluation ("eval") or selection ("select") data: of numbers the mse, else the error."""
    what = "mse" if f"{name}_mse" in record else "error"
    key = f"{name}_{what}"
    return Fact(what, record.get(key), _mse if what == "mse" else percent, "as the run recorded it", key)


def _mse(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.5g}"
