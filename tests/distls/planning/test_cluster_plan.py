"""Plans for clusters that are not there: the bytes are those of a real fit, and the parts of a round add up."""

import pickle
import re
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from helpers import distls, labelled_rows, refuses, write_dataset
from hypothesis import given
from hypothesis import strategies as st

from distls import generate, open_dataset
from distls.execution.dask.dask_executor import _start_merges
from distls.execution.dask.local_cluster import start_local
from distls.execution.dask.reduction_tasks import call_group, merge_parts
from distls.execution.executor import group_items
from distls.execution.memory_budget import MemoryBudget
from distls.execution.network import FEW, FEW_HERE, SMALL, merge_levels, traffic_of
from distls.execution.row_reads import MOST_LANES, default_parallelism
from distls.methods.method_registry import METHODS, method_named
from distls.planning.cluster_plan import (
    Cluster,
    parse_bandwidth,
    parse_seconds,
    parse_shape,
    plan,
    plan_cluster,
    resized,
)
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.training.configuration import Setting
from distls.workers.rounds.reduction_tree import ReductionTree

GIB = 2**30
TEN_GBIT = parse_bandwidth("10Gbit")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Few rows, and column shards."""
    path = tmp_path_factory.mktemp("small") / "train"
    return write_dataset(path, *labelled_rows(700, 40, 4), shard_size=2000).path


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """As many features as make weights that do not travel with each task."""
    path = tmp_path_factory.mktemp("wide") / "train"
    generate("rcv1-4", path, rows=3000, partition_size=2**18)
    return path


def _solver(path, method, params, run, **budget):
    setting = Setting.of(method_named(method), params, open_dataset(path), 0)
    memory = MemoryBudget(GIB, **budget)
    return setting.solver(slots=memory.workers, memory=memory, state=None if run is None else str(run))


# ---------------------------------------------------------------- bytes


def _array_bytes(value):
    """Return the bytes of the arrays in what is pickled as Dask pickles it."""
    buffers = []
    pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return sum(buffer.raw().nbytes for buffer in buffers)


class Counting:
    """Reduces in groups and merges as on workers, and counts what would cross the network in each reduction."""

    def __init__(self, workers, threads, few=FEW_HERE):
        self.few, self.places = few, [f"worker-{w}" for _ in range(threads) for w in range(workers)]
        self.moved: list[int] = []

    @property
    def slots(self):
        return len(self.places)

    def reduce(self, function, items, *, merge, shared=None):
        tree = ReductionTree(len(items), merge)
        groups, sent = group_items(len(items), self.places), _array_bytes(shared)
        busy = len({place for *_, place in groups})
        # the others fetch it from the one that has it; small ones go with each task
        moved = sent * (len(groups) if sent <= SMALL else busy)
        few = len(groups) <= self.few
        parts = {
            (start, stop, place): (
                place,
                call_group(few, function, shared, items[start:stop], start, len(items), merge),
            )
            for start, stop, place in groups
        }
        fan = max(getattr(nodes, "fan", 0) for _, nodes in parts.values())

        def merged(calls, workers):
            nonlocal moved
            for (some,), worker in zip(calls, workers, strict=True):
                moved += sum(_array_bytes(nodes) for place, nodes in some if place != worker)
            return [
                (worker, merge_parts(len(items), merge, [nodes for _, nodes in some]))
                for (some,), worker in zip(calls, workers, strict=True)
            ]

        levels = merge_levels(groups, fan, len(items)) if fan else ()
        merges = _start_merges(parts, levels, merged)
        for _, nodes in merges[-1:] or parts.values():
            moved += _array_bytes(nodes)
            tree.add_all(pickle.loads(pickle.dumps(list(nodes))))
        self.moved.append(moved)
        return tree.root()

    def map(self, function, items, *, shared=None):
        return (function(shared, item) for item in items)

    def each_worker(self, function, item):
        return {"this process": function(item)}

    def close(self):
        pass


SHAPES = [(1, 1), (3, 1), (2, 2), (5, 3)]


@pytest.mark.fast_cases("mcid-params0-shape0-4$")
@pytest.mark.parametrize("few", [FEW, FEW_HERE])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("mcid", {"loss": "hinge"}),
        ("mcid", {"loss": "log", "average": "none"}),
        ("sgd", {}),
        ("sgdqn", {}),
        ("csgd", {}),
    ],
)
def test_bytes_of_a_round_are_those_of_a_real_one(wide, method, params, shape, few):
    memory = {"workers": shape[0], "threads": shape[1], "compiles": few == FEW}
    solver = _solver(wide, method, {"lanes": 6, **params}, None, **memory)
    counting, state = Counting(*shape, few), solver.init()
    for _ in range(2):
        state, _report = solver.step(state, counting)
    # what a method needs once, such as the mean of all rows, is not a round's
    assert counting.moved[-2:] == 2 * [solver.plan.network_bytes_per_round]


@pytest.mark.fast_cases("gls-params0")
@pytest.mark.parametrize(
    ("method", "params", "spare"),
    [
        ("gls", {"link": "identity"}, 1.6),
        ("gls", {"link": "softmax"}, 1.6),
        ("gls", {"link": "softmax", "alpha": "path"}, 2.5),
        ("stagewise", {"block_size": 16}, 2.5),
    ],
)
def test_bytes_of_statistics_are_bounded(small, tmp_path, method, params, spare):
    solver = _solver(small, method, params, tmp_path, workers=3, threads=1)
    counting, state = Counting(3, 1), solver.init()
    for _ in range(3):
        state, _report = solver.step(state, counting)
    assert max(counting.moved) <= solver.plan.network_bytes_per_round <= spare * max(counting.moved)


def _counter(least):
    """Return what, run in a process, has it count the bytes it sends in messages of at least `least`."""

    def count():
        from distributed.comm.tcp import TCP

        if not hasattr(TCP, "bytes_counted"):
            send = TCP.write

            async def write(self: Any, *message: Any, **options: Any) -> int:
                n_bytes = await send(self, *message, **options)
                if n_bytes >= least:
                    TCP.bytes_counted += n_bytes
                return n_bytes

            TCP.write, TCP.bytes_counted = write, 0
        return int(TCP.bytes_counted)

    return count


def test_bytes_are_those_that_workers_and_driver_send(wide, monkeypatch):
    from distributed.comm.tcp import TCP

    monkeypatch.setattr(TCP, "write", TCP.write)  # put back at the end
    solver = _solver(wide, "mcid", {"loss": "hinge", "lanes": 6}, None, workers=2, threads=1)
    executor = start_local(2)
    try:
        count = _counter(solver.plan.shared_bytes // 2)
        before = count() + sum(executor.client.run(count).values())
        state = solver.init()
        for _ in range(3):
            state, _report = solver.step(state, executor)
        after = count() + sum(executor.client.run(count).values())
    finally:
        executor.close()
        monkeypatch.delattr(TCP, "bytes_counted", raising=False)
    predicted = 3 * solver.plan.network_bytes_per_round
    # the messages around the arrays are small
    assert predicted <= after - before <= 1.01 * predicted


@given(
    st.integers(1, 60), st.integers(1, 12), st.integers(1, 4),
    st.sampled_from([100, SMALL + 1]), st.sampled_from([SMALL, SMALL + 1, 2**26]), st.booleans(),
)  # fmt: skip
def test_traffic_adds_up(lanes, workers, threads, shared, result, here):
    made = traffic_of(shared, result, lanes=lanes, workers=workers, threads=threads, here=here)
    assert made.tasks == min(lanes, workers * threads)
    if made.merges:
        assert made.results == 1
        assert made.merges < made.tasks
        # a worker fetches at most what one merge is given, for each of its merges
        assert made.merged <= result * made.held * made.merges
        assert made.held > 2
    else:
        assert made.tasks <= made.results <= lanes
        assert made.merged == made.held == 0
        assert result <= SMALL or made.tasks <= (FEW_HERE if here else FEW)
        assert made.steps == made.results - 1
    assert made.returned == result * made.results
    assert made.total == made.sent + made.fetched + made.merged + made.returned
    assert made.sent == shared
    assert made.fetched == shared * (made.tasks if shared <= SMALL else min(workers, made.tasks) - 1)


# ---------------------------------------------------------------- larger data


@pytest.mark.parametrize("factor", [1, 7, 1000])
def test_a_larger_data_set_has_rows_of_the_same_kind(small, factor):
    given, stored = open_dataset(small), int(open_dataset(small).stored_bytes.sum())
    grown = resized(given, factor * stored)
    assert grown.meta.n_rows == grown.table.rows.sum() == factor * given.meta.n_rows
    assert grown.meta.nnz == grown.table.nnz.sum() == factor * given.meta.nnz
    assert grown.meta.label_counts == [factor * rows for rows in given.meta.label_counts]
    assert grown.stored_bytes.sum() == factor * stored
    assert grown.decoded_bytes.max() <= max(16 * 2**20, given.decoded_bytes.max())
    assert grown.columns.table.columns.sum() == given.meta.n_features
    assert grown.columns.table.nnz.sum() == factor * given.columns.table.nnz.sum()
    assert len(grown.columns) >= len(given.columns)


def test_the_plan_of_the_same_size_is_that_of_the_data(wide):
    cluster, setting = Cluster(2, 2, TEN_GBIT, 1e-3), {"loss": "hinge"}
    stored = int(open_dataset(wide).stored_bytes.sum())
    made = plan_cluster("mcid", wide, setting, cluster=cluster, memory_limit=GIB, probe=False)
    grown = plan_cluster("mcid", wide, setting, cluster=cluster, memory_limit=GIB, probe=False, stored_bytes=stored)
    assert grown.plan.bytes_per_pass == made.plan.bytes_per_pass == stored
    assert grown.n_rows == made.n_rows
    assert made.round_seconds is made.plan.seconds_per_pass is made.limited_by is None
    assert "work" not in made.round_parts


# ---------------------------------------------------------------- seconds


def _plan(path, shape, lanes, **options):
    workers, threads = parse_shape(shape)
    setting = {"bandwidth": TEN_GBIT, "latency": 1e-3}
    cluster = Cluster(workers, threads, **{key: options.pop(key, value) for key, value in setting.items()})
    given = {"memory_limit": 16 * GIB, "stored_bytes": 10**12, "rate": 2e8, **options}
    return plan_cluster("mcid", path, {"loss": "hinge", "lanes": lanes}, cluster=cluster, **given)


def test_parts_of_a_round_add_up(wide):
    made = _plan(wide, "100x8", 800, rate=1e8)
    assert made.round_seconds == sum(made.round_parts.values())
    assert made.plan.seconds_per_pass == made.round_seconds * made.plan.rounds_per_pass
    moved = made.round_bytes
    assert sum(moved.values()) - moved["read"] == made.plan.network_bytes_per_round
    # every thread reads one lane
    assert made.round_parts["work"] == pytest.approx(moved["read"] / 800 / 1e8)
    assert made.round_parts["return"] == pytest.approx(moved["returned"] / TEN_GBIT)
    assert made.limited_by == max(made.round_parts, key=made.round_parts.get)


def test_bytes_and_memory_of_the_driver_do_not_depend_on_the_lanes(wide):
    few, *others = [_plan(wide, "64x8", lanes) for lanes in (8, 64, 512)]
    for made in others:
        assert {made.round_bytes[name] for name in ("sent", "returned")} == {
            few.plan.shared_bytes,
            few.plan.result_bytes,
        }
        assert made.round_bytes["returned"] == few.round_bytes["returned"]
        # but for the numbers of blocks and rows of each lane
        assert made.plan.driver_bytes == few.plan.driver_bytes


def test_idle_threads_are_told_of(wide):
    made = _plan(wide, "100x8", 8)
    assert made.limited_by == "lanes"
    assert made.advice == (
        "792 of 800 threads are idle: -p lanes=800 gives them work (and other weights: lanes are part of the problem)"
    )
    few = _plan(wide, "100x8", 13, stored_bytes=10**8, rate=1e3)
    assert few.advice == "787 of 800 threads are idle: there are only 13 blocks, " + (
        "smaller ones would make more lanes"
    )
    many = _plan(wide, "1000x8", MOST_LANES, rate=1e5)
    assert many.advice == f"{8000 - MOST_LANES} of 8000 threads are idle: there are {MOST_LANES} lanes at most"
    # also where something else takes the longest
    slow = _plan(wide, "100x8", 8, bandwidth=1e5)
    assert slow.limited_by != "lanes"
    assert slow.advice.endswith("; 792 of 800 threads are idle")


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("mcid", r"792 of 800 threads are idle: --parallelism \d+ gives them work"),
        ("rls", "799 of 800 threads are idle: rls runs in one lane"),
        ("ovr-sdca", "799 of 800 threads are idle: there is only 1 block of classes"),
    ],
)
def test_what_keeps_threads_idle(small, method, why):
    assert re.match(why, plan(method, small, probe=False, cluster="100x8", bytes="1GB").plan.idle)


def test_threads_without_a_lane_are_among_the_facts_of_a_plan(small):
    made = plan("mcid", small, probe=False, workers=1, threads=9)
    assert [fact.text for fact in made.facts() if fact.label == "idle"] == [
        "2 of 9 threads are idle: there are only 7 blocks, smaller ones would make more lanes"
    ]
    assert plan("mcid", small, probe=False, workers=7, threads=1).idle is None


def test_lanes_follow_the_data_and_the_parallelism_that_is_meant(small):
    one = plan("mcid", small, probe=False, cluster="100x8", bytes="1TB")
    assert one.plan.lanes == 4096
    assert one.plan.idle is None
    assert plan("mcid", small, probe=False, cluster="100x8", bytes="1TB", parallelism=100).plan.lanes == 100
    assert plan("mcid", small, probe=False).lanes == plan("mcid", small, probe=False, workers=7).lanes


@pytest.mark.parametrize(("rows", "most"), [(10**9, MOST_LANES), (2**19 + 1, 16), (50, 8)])
def test_the_parallelism_of_partitions_and_rows(rows, most):
    counts = (1, 23, 24, 95, 96, 123, 191, 192, 10**6)
    given = [MagicMock(**{"__len__.return_value": count, "meta.n_rows": rows}) for count in counts]
    expected = [1, 1, 2, 4, 8, 8, 8, 16, MOST_LANES]
    assert [default_parallelism(each) for each in given] == [min(each, most) for each in expected]


def test_most_lanes_are_what_methods_accept():
    (lanes,) = [parameter for parameter in METHODS["mcid"].parameters if parameter.name == "lanes"]
    assert lanes.parse(MOST_LANES) == MOST_LANES
    refuses(ValueError, "whole number", lanes.parse, MOST_LANES + 1)


def test_what_limits_a_round(small, wide):
    assert _plan(wide, "100x1", 100, rate=1e6).limited_by == "work"
    assert _plan(small, "100x8", 800, rate=1e12, bandwidth=1e6).limited_by == "store"
    assert _plan(small, "1000x4", 4000, rate=1e12, bandwidth=1e12).limited_by == "schedule"
    assert _plan(wide, "100x1", 100, rate=1e12, stored_bytes=10**9, bandwidth=1e7).limited_by == "merge"


@pytest.mark.slow
def test_more_of_everything_takes_longer_or_less_time(wide):
    half = _plan(wide, "100x8", 800, bandwidth=TEN_GBIT / 2)
    whole, ten = _plan(wide, "100x8", 800), _plan(wide, "100x8", 800, stored_bytes=10**13)
    assert half.round_parts["return"] == pytest.approx(2 * whole.round_parts["return"])
    assert half.round_seconds > whole.round_seconds
    assert ten.plan.seconds_per_pass == pytest.approx(10 * whole.plan.seconds_per_pass, rel=0.1)
    assert ten.plan.cached_fraction < whole.plan.cached_fraction


def test_scores_of_every_row_that_do_not_fit_are_not_held(small):
    cluster, gib = Cluster(100, 8, TEN_GBIT, 1e-3), {"memory_limit": 32 * GIB, "rate": 1e8}
    with pytest.raises(MemoryPlanError, match=r"a worker needs .* rows .* TiB\) but may use") as refused:
        plan_cluster("bcd", small, {}, cluster=cluster, stored_bytes=10**12, **gib)
    assert "train on" not in str(refused.value)  # eight partitions at a time leave no room for any score
    with pytest.raises(MemoryPlanError, match=r"a worker needs .* rows .*train on [1-9]\d* rows, which would fit"):
        plan_cluster("bcd", small, {}, cluster=cluster, stored_bytes=10**10, **gib)
    made = plan_cluster("bcd", small, {}, cluster=cluster, stored_bytes=10**9, **gib)
    assert made.plan.reductions == 3  # a descent, a read of all columns, the dual
    assert made.limited_by == "lanes"
    named = {"algorithm": "row-blocks"}
    by_rows = plan_cluster("bcd", small, named, cluster=cluster, stored_bytes=10**12, **gib)
    assert "rows" not in by_rows.plan.worker_parts
    assert by_rows.plan.worker_bytes <= 32 * GIB


# ---------------------------------------------------------------- the command line


@pytest.mark.fast_cases("parse_shape-100x8", "parse_bandwidth-8kbit", "parse_seconds-20us")
@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_shape, "100x8", (100, 8)), (parse_shape, " 1X1 ", (1, 1)),
        (parse_bandwidth, "10Gbit", 1.25e9), (parse_bandwidth, "100 mbit", 1.25e7), (parse_bandwidth, "8kbit", 1000.0),
        (parse_seconds, "1ms", 1e-3), (parse_seconds, "0.5s", 0.5), (parse_seconds, "20us", 20e-6),
    ],
)  # fmt: skip
def test_units(parse, text, value):
    assert parse(text) == pytest.approx(value)


@pytest.mark.fast_cases("parse_shape-100", "parse_bandwidth-10-bandwidth", "parse_seconds--1ms")
@pytest.mark.parametrize(
    ("parse", "text", "what"),
    [
        (parse_shape, "100", "cluster; write workers and threads of each like 100x8"),
        (parse_shape, "0x8", "cluster"), (parse_shape, "8x0", "cluster"), (parse_shape, "-1x8", "cluster"),
        (parse_bandwidth, "10", "bandwidth; write it like 10Gbit"), (parse_bandwidth, "0Gbit", "bandwidth"),
        (parse_bandwidth, "10GB", "bandwidth"), (parse_seconds, "1", "time; write it like 1ms"),
        (parse_seconds, "-1ms", "time"),
    ],
)  # fmt: skip
def test_what_has_no_unit_is_refused(parse, text, what):
    refuses(ValueError, f"'{text}' is not a {what}", parse, text)


@pytest.mark.fast_cases("asked0", "asked3")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"bytes": "1TB"}, "bytes needs cluster, such as cluster='100x8'"),
        ({"latency": "1ms"}, "latency needs cluster, such as cluster='100x8'"),
        (
            {"cluster": "4x2", "threads": 2},
            "threads describes actual workers and cluster hypothetical ones; drop one of",
        ),
        ({"cluster": "4"}, "cluster: '4' is not a cluster; write workers"),
        ({"cluster": "4x2", "bandwidth": "fast"}, "bandwidth: 'fast' is not a bandwidth"),
        ({"cluster": "4x2", "bytes": "much"}, "bytes: 'much' is not a size"),
    ],
)
def test_what_does_not_go_together_from_python(small, asked, message):
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}"):
        plan(**{"method": "mcid", "dataset": small, "probe": False, **asked})


def test_an_open_data_set_is_planned_from_python(small, monkeypatch):
    # of which others may take some between two plans
    monkeypatch.setattr("distls.execution.memory_budget.available_memory", lambda: 2**33)
    for shape in ({}, {"cluster": "4x2"}):
        asked = {"params": {"loss": "hinge"}, "probe": False, **shape}
        found = plan("mcid", open_dataset(small), **asked)
        assert found.to_json() == plan("mcid", small, **asked).to_json()


def test_the_lines_of_a_plan(small):
    command = ("plan", "mcid", small, "--cluster", "100x8", "-p", "loss=hinge")
    code, out, err = distls(*command, "--bytes", "1TB", "--rate", "1MB", "-p", "lanes=400")
    assert (code, err) == (0, "")
    lines = {line[:19].strip(): line[19:] for line in out.splitlines()}
    assert lines["cluster"] == "100 workers of 8 threads, 10 Gbit/s, 1 ms"
    assert lines["memory a worker"].startswith("29.4 GiB of 32.0 GiB: base 240 MiB")
    assert lines["a round takes"].count(",") == 4
    assert lines["limited by"].startswith("lanes; 400 of 800 threads are idle: -p lanes=800 ")
    assert "seconds a pass" in lines
    probed = distls(*command)
    assert (probed[0], probed[2]) == (0, "")


@pytest.mark.fast_cases("options0", "options5")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bandwidth", "1Gbit"), "--bandwidth needs --cluster, such as --cluster 100x8"),
        (("--bytes", "1TB"), "--bytes needs --cluster, such as --cluster 100x8"),
        (("--rate", "1MB"), "--rate needs --cluster, such as --cluster 100x8"),
        (
            ("--cluster", "2x2", "--workers", "3"),
            "--workers describes actual workers and --cluster hypothetical ones; drop one of them",
        ),
        (
            ("--cluster", "2x2", "--executor", "serial"),
            "--executor describes actual workers and --cluster hypothetical ones; drop one of them",
        ),
        (
            ("--cluster", "2x2", "--scheduler", "tcp://h:1"),
            "--scheduler describes actual workers and --cluster hypothetical ones; drop one of them",
        ),
    ],
)
def test_options_that_contradict_each_other(small, options, message):
    assert distls("plan", "mcid", small, *options) == (2, "", f"distls: {message}\n")


def test_random_sizes_are_cut_evenly(small):
    grown = resized(open_dataset(small), 10**9 + 7)
    for counts in (grown.table.rows, grown.table.nnz, grown.decoded_bytes):
        assert np.ptp(counts) <= 16
