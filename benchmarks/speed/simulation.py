"""Cost of a round in the driver, with up to thousands of simulated workers.

    python -m benchmarks.speed.simulation [--workers 10,100,1000,10000] [--kinds dense,rcv1-4,wide] [--methods mcid,gls]
                                    [--rounds 3] [--out FILE]

The driver's part is real: the loop, the solver's step, groups, the reduction tree, pickling there and back, the event
log, a checkpoint in every round. A task returns the result of the real task for one real partition, with the ledger of
its own lane; the time for this is not counted, nor that of merges by workers, which leave the driver one result.
Times are CPU seconds, which a busy machine distorts less. What the scheduler adds: `benchmarks.speed.scheduling`.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import scipy.sparse as sp

from distls.execution.batch import run_alone
from distls.execution.executor import Node, group_items, run_group
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.network import FEW, fan_of
from distls.execution.row_reads import MOST_LANES
from distls.ingestion.ingest import ingest
from distls.methods.method_registry import method_named
from distls.planning.cluster_plan import resized
from distls.request import Request
from distls.solvers.loop import Standing, solve
from distls.solvers.solver import Fitted
from distls.solvers.stochastic import stochastic
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.synthetic.generation import generate
from distls.training.callbacks import Checkpointer, EventLog
from distls.training.configuration import Setting
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.reduction_tree import ReductionTree

PARAMS: dict[str, dict[str, Any]] = {"mcid": {"loss": "hinge"}, "gls": {"link": "softmax", "alpha": 1e-3}}
# Partitions of each lane: a terabyte has some 150 for each of 800 lanes.
BLOCKS_A_LANE = 16


class Simulated:
    """An executor whose workers are not there: the driver's part is done as `DaskExecutor` does it.

    Parameters
    ----------
    workers, threads : int
    rows : array of the rows of each partition
    """

    def __init__(self, workers: int, threads: int, rows: Any) -> None:
        self._places = [f"worker-{w:05d}" for _ in range(threads) for w in range(workers)]
        self._rows = rows
        self._order = np.random.default_rng(0)
        self.forget()

    def forget(self) -> None:
        """Count from zero again."""
        self.seconds = dict.fromkeys(("elsewhere", "send", "receive", "merge"), 0.0)
        self.sent = self.returned = self.peak = 0

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return len(self._places)

    @contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[what] += time.process_time() - started

    def reduce(
        self, function: Any, items: Sequence[Any], *, merge: Callable[[Any, Any], Any], shared: Any = None
    ) -> Any:
        """See `distls.execution.executor.Executor.reduce`; results come in any order."""
        tree: ReductionTree[Any] = ReductionTree(len(items), merge)
        groups = group_items(len(items), self._places)
        with self._counted("elsewhere"):
            like = _one_result(function, shared, items[0])
        with self._counted("send"):
            self.sent += _size(shared)
            tasks = [pickle.dumps((function, items[a:b], a, len(items), merge), protocol=5) for a, b, _ in groups]
        self.sent += sum(map(len, tasks))
        work = [partial(self._work, like, task, place) for task, (_, _, place) in zip(tasks, groups, strict=True)]
        if len(groups) > FEW and fan_of(_size(like)):
            work = [partial(self._merged_work, ReductionTree(len(items), merge), work)]
        for number in self._order.permutation(len(work)).tolist():
            with self._counted("elsewhere"):
                received = _as_sent(work[number]())
            self.returned += sum(len(each) for each in received)
            with self._counted("receive"):
                nodes = pickle.loads(received[0], buffers=received[1:])
            with self._counted("merge"):
                tree.add_all(nodes)
            self.peak = max(self.peak, psutil.Process().memory_info().rss)
        return tree.root()

    def _work(self, like: Any, task: bytes, place: str) -> list[Node]:
        """Return a task's results."""
        _function, items, start, n_items, merge = pickle.loads(task)
        return run_group(partial(self._result, place), like, items, start, n_items, merge)

    def _merged_work(self, tree: ReductionTree[Any], work: Sequence[Callable[[], list[Node]]]) -> list[Node]:
        """Return the results of all tasks, merged by further ones."""
        for each in work:
            tree.add_all(each())
        return tree.nodes()

    def _result(self, place: str, like: Any, item: Any) -> Any:
        """Return a lane's result: the arrays of another lane, and its own ledger."""
        lane: Lane = getattr(item, "lane", item)
        n_rows = int(self._rows[list(lane.blocks)].sum())
        costs = {"worker_seconds": {place: 1.0}, "worker_peaks": {place: 2**28}}
        made = pickle.loads(pickle.dumps(like, protocol=5))
        ledger = replace(made.ledger, blocks=list(lane.blocks), n_rows=n_rows, **costs)
        if hasattr(made, "folds"):
            folds = [replace(fold, n_rows=n_rows if i == 0 else 0) for i, fold in enumerate(made.folds)]
            return replace(made, folds=folds, ledger=ledger)
        return replace(made, times={lane.index: made.times[0]}, ledger=ledger)

    def map(self, function: Any, items: Sequence[Any], *, shared: Any = None) -> Iterator[Any]:
        """See `distls.execution.executor.Executor.map`."""
        return (function(shared, item) for item in items)

    def each_worker(self, function: Any, item: Any) -> dict[str, Any]:
        """Run it here, once."""
        return {"this process": function(item)}

    def close(self) -> None:
        """Nothing to release."""


def _one_result(task: Any, shared: Any, item: Any) -> Any:
    """Return the real task's result for the first partition of the real data."""
    changes: dict[str, Any] = {"data": replace(task.data, cache_bytes=0, prefetch=False)}
    if hasattr(task, "sample"):
        changes["sample"] = None
    lane = Lane(0, (0,))
    one = replace(item, lane=lane) if hasattr(item, "lane") else lane
    return replace(task, **changes)(shared, one)


def _as_sent(value: Any) -> list[bytearray]:
    """Return a value in the form in which it is sent."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [bytearray(head), *(bytearray(buffer.raw()) for buffer in buffers)]


def _size(value: Any) -> int:
    return sum(map(len, _as_sent(value)))


def simulate(data: Dataset, method: str, workers: int, rounds: int, place: Path) -> dict[str, Any]:
    """Run some rounds with `workers` of one thread each; return the cost of one to the driver."""
    began = time.process_time()
    solver = _solver_of(data, method, workers)
    start_seconds, large = time.process_time() - began, solver.problem.dataset
    executor = Simulated(workers, 1, large.table.rows)
    run = Run.create(place, RunConfig(method=method, dataset=str(data.path), dataset_fingerprint="", seed=0, grid=[{}]))
    state, before = solver.init(), psutil.Process().memory_info().rss
    solver.prepare(executor)
    limits: Request[str] = Request(passes=rounds / solver.plan.rounds_per_pass, eval_every=0)
    # what the driver reads for the fixed sample does not grow with the workers, and is of data that are not there
    with patch.object(stochastic, "mean_loss", lambda *_: 0.5):
        solver.step(state, executor)  # pays one-time costs
        executor.forget()
        began = time.process_time()
        watchers = [EventLog(run), Checkpointer(run, 0)]
        work = solve(solver, Standing(state), limits=limits, evaluate=_not_evaluated, callbacks=watchers)
        solution = run_alone(work, executor)
    seconds, done = time.process_time() - began - executor.seconds["elsewhere"], solution.state.round
    parts = {name: value / done for name, value in executor.seconds.items() if name != "elsewhere"}
    return {
        "method": method,
        "workers": workers,
        "lanes": len(solver.lanes),
        "partitions": len(large),
        "rounds": done,
        "start": start_seconds,
        "seconds": seconds / done,
        **parts,
        "rest": seconds / done - sum(parts.values()),
        "sent": executor.sent // done,
        "returned": executor.returned // done,
        "planned": solver.plan.network_bytes_per_round,
        "memory": executor.peak - before,
    }


async def _not_evaluated(fitted: Fitted) -> dict[str, Any]:
    return {}


def _solver_of(data: Dataset, method: str, workers: int) -> Any:
    """Return a solver for data so large that every worker has a lane, up to the limit of lanes."""
    lanes = min(workers, MOST_LANES)
    stored_share = float(data.stored_bytes.sum() / data.decoded_bytes.sum())
    large = resized(data, int(stored_share * 16 * MIB * lanes * BLOCKS_A_LANE))
    chosen = method_named(method)
    setting = Setting.of(chosen, {**PARAMS[method], "lanes": lanes}, large, 0)
    return setting.solver(slots=workers, memory=MemoryBudget(64 * 2**30, workers, 1))


def slope(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Fit seconds = fixed + lanes * per_lane, and the exponent of their growth between the ends; NaN of one row."""
    if len(rows) == 1:
        return dict.fromkeys(("per_lane", "fixed", "exponent"), math.nan)
    lanes, seconds = (np.array([row[name] for row in rows], float) for name in ("lanes", "seconds"))
    per_lane, fixed = np.polyfit(lanes, seconds, 1)
    first, last = int(np.argmin(lanes)), int(np.argmax(lanes))
    exponent = math.log(seconds[last] / seconds[first]) / math.log(lanes[last] / lanes[first])
    return {"per_lane": float(per_lane), "fixed": float(fixed), "exponent": exponent}


def _print_rounds(kind: str, method: str, rows: list[dict[str, Any]], fitted: dict[str, float]) -> None:
    print(f"\n{method} on rows of {kind}: the driver's part of a round")
    print("workers  lanes  partitions  start s  round ms   send  receive  merge   rest  returned MiB  memory MiB")
    for row in rows:
        ms = [1e3 * row[name] for name in ("seconds", "send", "receive", "merge", "rest")]
        print(
            f"{row['workers']:7d} {row['lanes']:6d} {row['partitions']:11d} {row['start']:8.2f} {ms[0]:9.1f} "
            f"{ms[1]:6.1f} {ms[2]:8.1f} {ms[3]:6.1f} {ms[4]:6.1f} {row['returned'] / MIB:13.1f} "
            f"{row['memory'] / MIB:11.0f}"
        )
    print(
        f"{1e6 * fitted['per_lane']:.0f} us per lane and {1e3 * fitted['fixed']:.1f} ms; "
        f"grows as lanes ** {fitted['exponent']:.2f}"
    )


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the tables, write them as JSON where asked, and return them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=_numbers, default=[10, 100, 1000, 10_000])
    parser.add_argument("--kinds", default="dense,rcv1-4")
    parser.add_argument("--methods", default="mcid,gls")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    results: dict[str, Any] = {"rounds": []}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for kind, method in _cases(options):
            data = _data(place / kind, kind)
            rows = [
                simulate(data, method, workers, options.rounds, place / f"{kind}-{method}-{workers}")
                for workers in options.workers
            ]
            fitted = slope(rows)
            _print_rounds(kind, method, rows, fitted)
            results["rounds"].append({"kind": kind, "method": method, "rows": rows, "slope": fitted})
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return results


def _cases(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for kind in options.kinds.split(","):
        for method in options.methods.split(","):
            # a Gram matrix of 47,236 features fits nowhere
            if method != "gls" or kind == "dense":
                yield kind, method


def _data(path: Path, kind: str) -> Dataset:
    """Return a few rows of a kind; of `wide` ones results of four classes have 100 MiB."""
    if not path.exists() and kind == "wide":
        rng, n = np.random.default_rng(0), 2000
        width, at = 100 * MIB // (4 * 4), np.arange(0, 20 * n + 1, 20)
        x = sp.csr_matrix((np.ones(20 * n, np.float32), rng.integers(0, width, 20 * n), at), (n, width))
        ingest(x, path, y=rng.integers(0, 4, n))
    elif not path.exists():
        generate(kind, path, rows=2000)
    return open_dataset(path)


if __name__ == "__main__":
    main()
