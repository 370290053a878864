"""Child runs: the fits of a run of several settings, as many at each read as share the fewest reads."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from distls.clock import PARTS
from distls.execution.batch import run_alone, run_batch
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method import Params
from distls.problem import penalty_of
from distls.solvers.loop import Progress
from distls.solvers.status import Record, Status
from distls.storage.errors import CorruptDataError, FormatError, MemoryPlanError
from distls.storage.filesystem.atomic import SyncedTogether, remove_tree
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.model.model import used_rows
from distls.training.configuration import FitRequest, Setting
from distls.training.run_folder import Run, is_run
from distls.training.setting_fit import End, FitOptions, FitResult, calibrated, close, store, train_setting
from distls.workers.penalties.penalty_registry import penalty_named

# Files of children are synced all at once, this often: one by one they take longer than most fits of a path.
_SYNC_SECONDS = 10.0
_MOST = 64  # fits whose results a reduction holds at once


class Children:
    """The child runs of a run, and what they have cost."""

    def __init__(
        self, run: Run, request: FitRequest, options: FitOptions, count: int, *, at_most: bool = False
    ) -> None:
        self._run, self._request, self._options = run, request, options
        self._count = f"at most {count}" if at_most else str(count)
        # Parts are the sums of the children's; all seconds those of the commands that have trained them.
        self._passes, self._earlier, own = 0.0, 0.0, Progress()
        options.started(own)
        self._spent = {name: getattr(own, name) for name in PARTS}
        self._summaries: list[Record] = []
        self._synced = SyncedTogether(_SYNC_SECONDS)
        self._stopped: FitResult | None = None  # the first that was interrupted

    @property
    def interrupted(self) -> bool:
        """Whether one was interrupted, and with it the run."""
        return self._stopped is not None

    def path(self, number: int) -> Place:
        """Return the folder of a child."""
        return self._run.path / "children" / f"{number:03d}"

    def train(self, request: FitRequest, what: str) -> FitResult:
        """Train the next child."""
        return self._train_batch([(request, what)])[0]

    def train_all(self, requests: Sequence[tuple[FitRequest, str]]) -> list[FitResult]:
        """Train the next children, as many at each read as there is memory for; if interrupted, not all of them."""
        settings = [request.settings[0] for request, _ in requests]
        options, results = self._options, list[FitResult]()
        # As many as share memory; results do not depend on how they are grouped.
        at_once = fits_at_once(settings, options.executor.slots, options.memory)
        while len(results) < len(requests) and not self.interrupted:
            results += self._train_batch(requests[len(results) : len(results) + at_once])
        return results

    def _train_batch(self, batch: Sequence[tuple[FitRequest, str]]) -> list[FitResult]:
        """Train children that share each read, or continue them where a parent that is resumed had left them."""
        first, options = len(self._summaries), self._options
        if len(batch) > 1:
            options = replace(options, memory=budget_of(options.memory, options.executor.slots, len(batch)))
        works = [self._train_child(first + place, *each, options) for place, each in enumerate(batch)]
        with self._synced.writing():
            results = run_batch(works, options.executor, interrupted=_was_interrupted)
        for (request, _), result in zip(batch, results, strict=True):
            self._note(request, result)
        return results

    async def _train_child(self, number: int, request: FitRequest, what: str, options: FitOptions) -> FitResult:
        path, options = self.path(number), replace(options, what=f"{what} ({number + 1} of {self._count})")
        # A child of an interrupted parent is there already.
        if is_run(path):
            try:
                return await self._trained(Run.open(path), request, options)
            except (FormatError, CorruptDataError) as error:
                if str(path) not in str(error):
                    raise
        # What a failure of power has left of one that was not synced yet: it is trained again.
        remove_tree(path)
        return await self._trained(Run.create(path, request.config), request, options)

    async def _trained(self, child: Run, request: FitRequest, options: FitOptions) -> FitResult:
        self._earlier += child.status["seconds"]
        with child.held():
            # the folder may be that of another fit's child
            request.check_same(child)
            return await train_setting(child, request, options)

    def _note(self, request: FitRequest, result: FitResult) -> None:
        self._passes += result.passes
        for name in PARTS:
            self._spent[name] += result.record.get(name, 0.0)
        if self._stopped is None and _was_interrupted(result):
            self._stopped = result
        self._summaries.append(_child_summary(request.settings[0].params, result))

    def compared(self, seconds: float) -> None:
        """Note how long strengths were compared without a child for each."""
        self._spent["cv_seconds"] += seconds

    def refit(self, request: FitRequest, params: Params) -> FitResult:
        """Train the chosen setting on more rows, as the last child; `params` are those of its first fit."""
        result = self.train(request, "all rows")
        # The parent's record names the parameters of the first fit.
        self._summaries[-1] |= {"params": params, "refit": True}
        return result

    def stopped(self) -> FitResult:
        """Note that a child was interrupted, and with it the run."""
        assert self._stopped is not None
        self._sync()
        result, cost = self._stopped, self._cost()
        # Interrupted: the status says so, and no model is published.
        self._run.write_status({**result.record, "status": result.status, **cost})
        return replace(result, run=self._run.path, passes=self._passes, seconds=cost["seconds"])

    def publish(self, won: FitResult | None, params: Params) -> FitResult:
        """Publish the model of a child, with the settings of all; without one the fit has diverged."""
        self._sync()
        if won is None or won.model is None:
            end = End(Status.DIVERGED, {})
        else:
            work = calibrated(self._run, self._request, End(won.status, won.record, won.model))
            end = store(self._run, run_alone(work, self._options.executor))
            end.record["selected"] = params
        return close(self._run, end, {**self._cost(), "children": self._summaries})

    def _sync(self) -> None:
        if not isinstance(self._run.path, StorePath):
            self._synced.sync(self._run.path, now=True)

    def _cost(self) -> Record:
        """Return the passes of all, and the seconds of the commands with their parts."""
        # Not the sum of the children's: between them alphas are found, and models written.
        seconds = self._earlier + time.perf_counter() - self._options.began
        return {"passes": self._passes, "seconds": seconds, **self._spent}


def _was_interrupted(result: FitResult) -> bool:
    return result.status == Status.INTERRUPTED


def _child_summary(params: Params, result: FitResult) -> Record:
    """Return the entry of a child in its parent's ``status.json``."""
    record = result.record
    summary: Record = {"params": params, "status": result.status}
    summary["error"] = record.get("select_error")
    if "select_mse" in record:
        summary["mse"] = record["select_mse"]
    if not penalty_named(penalty_of(params)).quadratic and result.model is not None:
        summary["non_zero_rows"] = len(used_rows(result.model.weights))
    shown = {name: record[name] for name in ("objective", "eval_error") if record.get(name) is not None}
    return {**summary, "passes": result.passes, **shown}


def fits_at_once(settings: Sequence[Setting], slots: int, memory: MemoryBudget | None) -> int:
    """Return the number of these fits that should share each read.

    All of them where the memory allows it. Their weights may take the room of cached partitions: then groups that read
    more often, but from the cache, may read less in all.
    """
    if not settings[0].method.side_by_side:
        return 1
    best, count = 1, len(settings)
    fewest = math.inf
    # From the fewest groups, the fewest reads of the store, on.
    for parts in _numbers_of_groups(count):
        at_once = -(-count // parts)
        share = _read_share(settings, slots, budget_of(memory, slots, at_once))
        # Parts times share: bytes read from the store in all passes.
        if share is not None and parts * share < fewest:
            best, fewest = at_once, parts * share
        if not fewest:
            break
    return best


def budget_of(memory: MemoryBudget | None, slots: int, models: int) -> MemoryBudget:
    """Return the memory of workers that train this many models at once."""
    return replace(memory or MemoryBudget(workers=slots), models=models)


def _numbers_of_groups(count: int) -> list[int]:
    found, parts = [], -(-count // _MOST)
    while parts < count:
        found.append(parts)
        parts *= 2
    return [*found, count]


def _read_share(settings: Sequence[Setting], slots: int, memory: MemoryBudget) -> float | None:
    """Return the largest share of the data that a pass of such fits reads from the store; None without the memory."""
    # what a fit holds does not depend on its strength
    kinds = {
        str({name: value for name, value in setting.params.items() if name != "alpha"}): setting for setting in settings
    }
    try:
        plans = [setting.solver(slots=slots, memory=memory).plan for setting in kinds.values()]
    except MemoryPlanError:
        return None
    # The worst plan counts, as the fits wait for each other.
    return 1.0 - min(plan.cached_fraction for plan in plans)
