"""`sdca` or `newton` where none was named: the one whose fit takes fewer predicted seconds on the cluster.

Both end at a proven optimum. Dual ascent needs more passes with each lane, truncated Newton as many with any number,
and more where they are few. Lanes follow the data, so what is left is how many threads there are for them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from distls.execution.memory_budget import MemoryBudget
from distls.execution.round_seconds import Cluster, exchange
from distls.methods.method import Params
from distls.methods.method_registry import expand_grid, method_named
from distls.methods.recommendation import Recommendation, recommended
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import ParameterError
from distls.training.configuration import Setting
from distls.workers.losses.loss_registry import loss_named

_NEWTON = "newton"
# Measured, see docs/scale.md: seconds of a pass for each stored value, of reading it and of each output; passes that
# make the gap ten times smaller, and for each lane.
_SECONDS = {"sdca": (12e-9, 2e-9), _NEWTON: (12e-9, 3.5e-9)}
_PASSES = {"sdca": (1.1, 0.09), _NEWTON: (3.2, 0.0)}
_BEGUN_PASSES = {**_PASSES, "sdca": (3.1, 0.027)}  # of fits that begin with a pass of `sgd`
# Of squared hinges, whose duals have one end: lanes overshoot, and a start by `sgd` saves nothing.
_SQUARED_HINGE_PASSES = {"sdca": (2.3, 0.5), _NEWTON: (4.3, 0.0)}
_MOST_PASSES = 100.0  # of a fit by `newton`, whose passes are single reads
_EVER = 2**60  # bytes: whether a fit has the memory is not what is asked here


def chosen_for(
    data: Dataset,
    params: Mapping[str, Any] | None = None,
    *,
    workers: Callable[[], MemoryBudget | Cluster],  # asked for where they matter
    judged: bool = False,
    limited: bool = False,
    parallelism: int | None = None,
    rtol: float | None = None,
) -> Recommendation:
    """Return what is `recommended`, with the exact method that takes fewer predicted seconds.

    With a `parallelism` that is asked for they are those of as many threads, whatever the cluster has.
    """
    found = recommended(data, params, judged=judged, limited=limited)
    # What is small is one lane's, of which dual ascent takes the fewest passes.
    if found.method != "sdca" or found.params.get("lanes") == 1:
        return found
    decades = math.log10(1.0 / min(rtol or found.rtol or 1.0, 0.1))
    known = workers() if parallelism is None else MemoryBudget(workers=parallelism)
    there = known if isinstance(known, Cluster) else Cluster.of((known.workers, known.threads))
    try:
        seconds = {
            name: fit_seconds(name, expand_grid(found.params)[0], data, there, decades, parallelism)
            for name in ("sdca", _NEWTON)
        }
    except ParameterError:  # of a parameter that only one of them has
        return found
    told = f"predicted on {there.slots} thread{'s' * (there.slots != 1)}: " + ", ".join(
        f"{name} {value:.2g} s" for name, value in seconds.items()
    )
    best = min(seconds, key=seconds.__getitem__)
    passes = _MOST_PASSES if best == _NEWTON else found.passes
    return replace(found, method=best, reason=f"{found.reason}; {told} a fit", passes=passes)


def choosing(workers: Callable[[], MemoryBudget], asked: Mapping[str, Any]) -> Callable[..., Recommendation]:
    """Return `chosen_for` for the workers of a fit, with the options that it was asked for."""
    return partial(chosen_for, workers=workers, parallelism=asked.get("parallelism"), rtol=asked.get("rtol"))


def fit_seconds(
    method: str, params: Params, data: Dataset, cluster: Cluster, decades: float, parallelism: int | None
) -> float:
    """Return the seconds until the gap is a part ``10^-decades`` of the objective, as far as metadata tell.

    Raises ParameterError if it is no setting of the method.
    """
    setting = Setting.of(method_named(method), params, data, 0, parallelism)
    budget = MemoryBudget(_EVER, cluster.workers, cluster.threads)
    solver = setting.solver(slots=cluster.slots, memory=budget)
    plan = solver.plan
    meta, (read, learned) = data.meta, _SECONDS[method]
    values = meta.nnz if meta.layout == "csr" else meta.n_rows * meta.n_features
    work = values * (read + learned * setting.problem.shape[1])
    traffic, parts = exchange(cluster, lanes=plan.lanes, shared_bytes=plan.shared_bytes, result_bytes=plan.result_bytes)
    # One thread is this process, which sends nothing.
    moved = sum(parts.values()) if cluster.slots > 1 else 0.0
    busiest = -(-plan.lanes // traffic.tasks) / plan.lanes
    a_pass = work * busiest + plan.rounds_per_pass * plan.reductions * moved
    overshoots = loss_named(setting.problem.loss).dual_domain == "ray"
    return passes_to(method, plan.lanes, decades, solver.sgd is not None, overshoots) * a_pass


def passes_to(method: str, lanes: int, decades: float, begun: bool, overshoots: bool = False) -> float:
    """Return about the passes to a gap of ``10^-decades`` of the objective; see docs/scale.md."""
    alone, each = (_SQUARED_HINGE_PASSES if overshoots else _BEGUN_PASSES if begun else _PASSES)[method]
    return (alone + each * lanes) * decades
