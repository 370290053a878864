"""`plan`: the memory plan of a fit, and its seconds from timing one partition."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

from distls.clock import began
from distls.execution import ClusterOptions, open_executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.row_reads import MOST_LANES
from distls.facts import counted
from distls.memory_plan import Plan
from distls.methods.method import Method
from distls.methods.method_registry import expand_grid, method_named
from distls.methods.recommendation import AUTO
from distls.solvers.solver import Solver, State
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.filesystem.paths import Place
from distls.training.child_runs import budget_of, fits_at_once
from distls.training.configuration import Setting
from distls.training.exact_method import chosen_for
from distls.training.memory_search import are_compared_here
from distls.training.regularization_path import has_path, number_of_fits
from distls.workers.runtime.rng import Purpose, rng


def plan_fit(
    method: str,
    dataset: str | Place,
    params: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    passes: float | None = None,
    cluster: ClusterOptions | None = None,
    parallelism: int | None = None,
    probe: bool = True,  # read one partition and train on it in this process, to estimate the seconds of a pass
) -> Plan:
    """Plan a fit without starting it, of the recommended method for "auto".

    Raises MemoryPlanError, with numbers and remedies, if it cannot fit.
    """
    data = open_dataset(dataset)
    budget = workers_of(cluster or ClusterOptions(), data)
    asked = {"workers": lambda: budget, "parallelism": parallelism, "limited": passes is not None}
    named = Asked.of(method, params or {}, data, **asked)
    setting = Setting.of(named.method, named.params, data, seed, parallelism)
    slots = budget.workers * budget.threads
    at_once = fits_at_once([setting] * _fits(setting), slots, budget)
    solver = setting.solver(slots=slots, memory=budget if at_once == 1 else budget_of(budget, slots, at_once))
    plan = named.told(planned(setting, solver.plan, passes, slots))
    if not probe:
        return plan
    seconds, overhead = one_thread_seconds(solver, data, seed)
    return replace(plan, seconds_per_pass=seconds / min(slots, len(solver.lanes)), overhead_seconds=overhead)


class Asked(NamedTuple):
    """The method that is planned, chosen where none was named."""

    method: Method
    params: Mapping[str, Any]
    alike: int = 1  # settings that differ in the loss, which needs the same memory
    reason: str | None = None

    @classmethod
    def of(cls, method: str, params: Mapping[str, Any], data: Dataset, **asked: Any) -> Self:
        """Return the method and its parameters; `asked` are those of `chosen_for`."""
        if method != AUTO:
            return cls(method_named(method), params)
        found = chosen_for(data, params, **asked)
        grid = expand_grid(found.params)
        return cls(method_named(found.method), grid[0], len(grid), found.reason)

    def told(self, plan: Plan) -> Plan:
        """Return the plan with the method, if it was chosen, and the fits of all settings."""
        chosen = None if self.reason is None else f"{self.method.name}: {self.reason}"
        return replace(plan, fits=1 + self.alike * (plan.fits - 1), chosen=chosen)


def planned(setting: Setting, plan: Plan, passes: float | None, slots: int) -> Plan:
    """Return the solver's plan with passes and fits, one of each alpha of a path, and with which threads are idle."""
    passes = _fewest(passes, plan.passes) or setting.method.passes
    return replace(plan, passes=passes, fits=_fits(setting), idle=_idle(setting, plan.lanes, slots))


def blocks_of(setting: Setting) -> int:
    """Return how many blocks of the data lanes can be made of: partitions, or column shards."""
    by_rows = setting.method.name != "bcd" or setting.params.get("algorithm") == "row-blocks"
    columns = None if by_rows else setting.problem.dataset.columns
    return len(setting.problem.dataset if columns is None else columns)


def _idle(setting: Setting, lanes: int, slots: int) -> str | None:
    """Return how many of the threads have no lane, and why."""
    if lanes >= slots:
        return None
    idle, asked = f"{slots - lanes} of {slots} threads are idle", setting.params.get("lanes")
    if "lanes" not in setting.params:
        return f"{idle}: {_only(lanes)} of classes"
    if [p.default for p in setting.method.parameters if p.name == "lanes"] != [None]:
        return f"{idle}: {setting.method.name} runs in one lane"
    blocks = blocks_of(setting)
    # dual ascent has one lane fewer than partitions
    best = min(slots, blocks - (setting.method.name == "sdca"), MOST_LANES)
    if best > lanes and (asked or setting.problem.parallelism < best):
        way = f"-p lanes={best}" if asked else f"--parallelism {best}"
        return f"{idle}: {way} gives them work (and other weights: lanes are part of the problem)"
    if lanes == MOST_LANES:
        return f"{idle}: there are {MOST_LANES} lanes at most"
    return f"{idle}: {_only(blocks)}, smaller ones would make more lanes"


def _only(blocks: int) -> str:
    return f"there {'is' if blocks == 1 else 'are'} only {counted(blocks, 'block')}"


def _fits(setting: Setting) -> int:
    apart = has_path(setting.method, [setting.params]) and not are_compared_here(setting)
    return number_of_fits(setting.params) if apart else 1


def one_thread_seconds(solver: Solver[State], data: Dataset, seed: int) -> tuple[float, float]:
    """Return the seconds of a pass in one thread, from training on one partition here, and those before it."""
    block = int(rng(seed, Purpose.PROBE).integers(len(data)))
    task = partial(solver.probe, block)
    command = began()
    task()  # compiles the kernels, warms the file cache
    started = time.perf_counter()
    task()
    seconds = time.perf_counter() - started
    # a pass of blocks of classes reads the rows for each block, and a probe trains one
    reads: int = getattr(solver, "reads", 1)
    share = float(data.decoded_bytes[block] / data.decoded_bytes.sum())
    return reads * seconds / share, max(0.0, started - command - seconds)


def _fewest(asked: float | None, own: float | None) -> float | None:
    """Return the passes after which a fit ends: the limit, or the method's own end."""
    given = [passes for passes in (asked, own) if passes is not None]
    return min(given, default=None)


def workers_of(asked: ClusterOptions, dataset: str | Place | Dataset) -> MemoryBudget:
    """Return the workers that a data set is trained on, from options or the running cluster."""
    data = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
    options = asked.for_data(float(data.decoded_bytes.sum()))
    if options.scheduler is None:
        return options.budget()
    executor, budget = open_executor(options)
    executor.close()
    return budget
