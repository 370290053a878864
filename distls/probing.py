"""`plan`: the memory plan of a fit, and its seconds from timing one partition."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from distls.configuring import make_solver
from distls.execution import ClusterOptions, open_executor
from distls.memory import MemoryBudget
from distls.methods import method_named
from distls.planning import Plan
from distls.problem import Problem
from distls.storage.dataset import open_dataset
from distls.workers.seeds import Purpose, rng

__all__ = ["plan_fit"]


def plan_fit(
    method: str,
    dataset: str | Path,
    params: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    passes: float | None = None,
    cluster: ClusterOptions | None = None,
    probe: bool = True,
) -> Plan:
    """Plan a fit without starting it.

    Parameters
    ----------
    probe : bool
        Read one partition and train on it in this process, to estimate the seconds of a pass.

    Raises
    ------
    MemoryPlanError
        It cannot fit; the message has the numbers and the remedy.
    """
    data = open_dataset(dataset)
    chosen = method_named(method)
    resolved = chosen.resolve(params or {})
    problem = Problem.of(data, resolved, seed, chosen.targets)
    options = cluster or ClusterOptions()
    budget = _budget(options)
    solver = make_solver(chosen, problem, resolved, slots=budget.workers * budget.threads, memory=budget)
    plan: Plan = replace(solver.plan, passes=_fewest(passes, solver.plan.passes) or chosen.passes)
    if not probe:
        return plan
    block = int(rng(seed, Purpose.PROBE).integers(len(data)))
    task = partial(solver.probe, block)
    task()  # compiles the kernels, warms the file cache
    started = time.perf_counter()
    task()
    seconds = time.perf_counter() - started
    share = float(data.decoded_bytes[block] / data.decoded_bytes.sum())
    slots = min(budget.workers * budget.threads, len(solver.lanes))
    return replace(plan, seconds_per_pass=seconds / share / slots)


def _fewest(asked: float | None, own: float | None) -> float | None:
    """Return the passes that end a fit: those asked for, or where the method ends by itself."""
    given = [passes for passes in (asked, own) if passes is not None]
    return min(given, default=None)


def _budget(options: ClusterOptions) -> MemoryBudget:
    """Return the memory of the workers: as asked, or what a running cluster says."""
    if options.scheduler is None:
        return options.budget()
    executor, budget = open_executor(options)
    executor.close()
    return budget
