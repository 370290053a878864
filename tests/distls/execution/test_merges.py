"""Results that workers merge: the same bits, one for the driver, and losses in mid-merge that change nothing."""

import pickle
import time
from contextlib import closing, contextmanager
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from distributed.comm import tcp
from helpers import labelled_rows, raised, write_dataset
from merge_helpers import WIDTH, add, add_or_die, first_column, process_number, wholes_held, wide

from distls.columns.sharding import add_columns
from distls.execution import network
from distls.execution.dask import connection as connections
from distls.execution.dask import dask_executor
from distls.execution.dask.local_cluster import start_local
from distls.execution.dask.reduction_tasks import merge_parts
from distls.execution.dask.remote_cluster import connect
from distls.execution.executor import group_items, run_group
from distls.execution.network import HUGE_FAN, LARGE_FAN, count_nodes, merge_levels, traffic_of
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import METHODS
from distls.testing.executors import join_words, word_of
from distls.training.fitting import fit


@pytest.mark.parametrize("n_items", [1, 2, 3, 6, 11, 16, 21])
def test_results_of_neighbours_are_counted_as_the_tree_merges_them(n_items):
    for start, stop in combinations(range(n_items + 1), 2):
        nodes = run_group(lambda *_: None, None, range(start, stop), start, n_items, lambda *_: None)
        assert count_nodes((start, stop, ""), n_items) == len(nodes)


@pytest.mark.parametrize("fan", [HUGE_FAN, LARGE_FAN])
def test_a_merge_is_given_what_the_plan_says(fan):
    for slots, n_items in product((9, 16, 21, 50, 200, 300), (10, 50, 51, 64, 74, 100, 127, 200, 511, 777)):
        groups = group_items(n_items, ["there"] * slots)
        levels = list(merge_levels(groups, fan, n_items))
        held = [
            sum(count_nodes(each, n_items) for each in some)
            + (4 if sum(map(len, level)) >= 256 and fan == HUGE_FAN else fan).bit_length()
            for level in levels for some in level
        ]  # fmt: skip
        size = network._HUGE + (1 if fan == HUGE_FAN else 0)
        assert max(held) == traffic_of(0, size, lanes=n_items, workers=slots, threads=1).held


def test_tasks_merge_four_huge_results_while_many_are_left():
    """A thousand tasks would be followed by 999 of two: eight levels of two follow one of 250 that merge four."""
    size = network._HUGE + 1
    found = traffic_of(0, size, lanes=1000, workers=1000, threads=1)
    assert (found.merges, found.returned) == (250 + 249, size)
    assert traffic_of(0, size, lanes=255, workers=255, threads=1).merges == 254


def test_what_a_worker_is_given_to_merge_stays_as_it_is():
    items = range(6)
    parts = [run_group(wide, None, items[a:b], a, 6, add) for a, b in ((0, 1), (1, 2), (2, 4), (4, 5), (5, 6))]
    before = pickle.dumps(parts)
    for _ in range(2):
        ((_, _, root),) = merge_parts(6, add, parts)
        assert root.tobytes() == SerialExecutor().reduce(wide, items, merge=add).tobytes()
        # as the next merge would
        root += 1.0
    assert pickle.dumps(parts) == before


# ---------------------------------------------------------------- in one process, whose workers share what they hold


@pytest.fixture(scope="module", params=[1, 5, 8])
def workers(request):
    """Threads of one process."""
    executor = start_local(request.param, processes=False)
    yield executor
    executor.close()


_MERGE, _GIVEN = merge_parts, list[int]()


def _noted(n_items, merge, parts):
    """Merge twice, as when a result is lost, and note how many parts there were."""
    _GIVEN.append(len(parts))
    before = pickle.dumps(parts)
    first = pickle.dumps(_MERGE(n_items, merge, parts))
    again = _MERGE(n_items, merge, parts)
    # costs are of one call each; all else is not
    assert len(pickle.dumps(again)) == len(first)
    assert pickle.dumps(parts) == before, "what the worker holds has changed"
    return again


@pytest.fixture(params=["large", "huge"])
def given_to_merge(request, monkeypatch):
    """Have workers in this process merge results of any size and number; return how many parts each merge had."""
    monkeypatch.setattr(network, "SMALL", 0)
    monkeypatch.setattr(network, "_HUGE", 0 if request.param == "huge" else network._HUGE)
    monkeypatch.setattr(dask_executor, "FEW_HERE", 1)
    monkeypatch.setattr(dask_executor, "merge_parts", _noted)
    _GIVEN.clear()
    return _GIVEN


@pytest.mark.fast_cases("1-large-1$", "1-huge-2", "5-large-3", "5-huge-8", "8-large-13", "8-huge-64")
@pytest.mark.parametrize("n_items", [1, 2, 3, 7, 8, 13, 64])
def test_the_tree_has_one_shape_wherever_it_is_merged(workers, given_to_merge, n_items):
    expected = SerialExecutor().reduce(word_of, range(n_items), merge=join_words)
    assert workers.reduce(word_of, range(n_items), merge=join_words) == expected
    # every group but one is merged into another; one group's results, if they are more than one, by the driver
    assert sum(given_to_merge) - len(given_to_merge) == min(n_items, workers.slots) - 1


_DONE = list[int]()


def _slow_but_the_first(_shared, item):
    _DONE.append(item)
    time.sleep(0.4 * (item > 0))
    return str(item)


@pytest.mark.parametrize("workers", [5], indirect=True)
@pytest.mark.parametrize("given_to_merge", ["large"], indirect=True)
def test_merges_that_wait_for_a_slow_task_are_not_taken_for_lost(workers, given_to_merge, monkeypatch):
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.05)
    _DONE.clear()
    expected = SerialExecutor().reduce(word_of, range(5), merge=join_words)
    assert workers.reduce(_slow_but_the_first, range(5), merge=join_words) == expected
    assert sorted(_DONE) == list(range(5))


@pytest.mark.fast_cases("large")
@pytest.mark.parametrize("workers", [5], indirect=True)
def test_an_error_of_a_task_whose_result_is_to_be_merged_is_raised_as_it_is(workers, given_to_merge):
    def failing(_shared, item):
        time.sleep(0.1 * (item == 4))
        return 1 // (4 - item)

    raised(ZeroDivisionError, workers.reduce, failing, range(5), merge=add)
    assert workers.reduce(word_of, range(2), merge=join_words) == "(0 1)"


# What a method needs to have lanes, and a few rounds.
PARAMS = {
    "adaline": {},
    "c-adaline": {},
    "csgd": {},
    "ncsgd": {},
    "cls": {"rounds": 2},
    "stagewise": {"block_size": 13, "stages": 2},
    "bcd": {"alpha": 1e-2, "lanes": 8},
    "ovr-sdca": {"alpha": 1e-2, "class_block": 1},
}
LANES = {"mcid", "ovr-pegasos", "ovr-logistic", "sgd", "asgd", "svmsgd2", "sgdqn", "csgd", "sdca", "newton"}


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    x, y = labelled_rows(300, 40, 4)
    path = write_dataset(tmp_path_factory.mktemp("data") / "train", x, y, partition_rows=20).path
    add_columns(path, shard_size=500)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_the_bits_of_one_process(workers, given_to_merge, train, method):
    """Sums of least squares, averages of lanes, changes of columns: whatever is merged, and by whom."""
    params = PARAMS.get(method, {"alpha": 1e-2}) | ({"lanes": 8} if method in LANES else {})
    limits = {} if method in ("cls", "stagewise", "ovr-sdca") else {"passes": 2}
    serial = fit(method, train, params=params, **limits).model
    model = fit(method, train, params=params, executor=workers, **limits).model
    assert model.sha256 == serial.sha256


# ---------------------------------------------------------------- processes

SLOTS = 512


@contextmanager
def _connected(workers, threads):
    """Yield an executor on worker processes that are another's, as if they were on other machines."""
    with closing(start_local(workers, threads)) as owner:
        executor = connect(owner.client.scheduler.address)
        yield executor
        executor.close()


@pytest.fixture(scope="module")
def processes():
    """Worker processes of many threads."""
    with _connected(8, SLOTS // 8) as executor:
        yield executor


@pytest.mark.fast_cases("8$")
@pytest.mark.parametrize("lanes", [8, 64, SLOTS])
def test_the_driver_sends_one_model_and_gets_one_whatever_the_lanes(processes, monkeypatch, lanes):
    sent, got = list[int](), list[int]()
    write, read = tcp.TCP.write, tcp.from_frames

    async def written(self: Any, *message: Any, **options: Any) -> int:
        sent.append(await write(self, *message, **options))
        return sent[-1]

    async def received(frames: Any, **options: Any) -> Any:
        got.append(sum(memoryview(frame).nbytes for frame in frames))
        return await read(frames, **options)

    monkeypatch.setattr(tcp.TCP, "write", written)
    monkeypatch.setattr(tcp, "from_frames", received)
    shared = np.linspace(0.5, 2, WIDTH)
    found = processes.reduce(wide, range(lanes), merge=add, shared=shared)
    assert found.tobytes() == SerialExecutor().reduce(wide, range(lanes), merge=add, shared=shared).tobytes()
    # messages of tasks, of which some hold those of many
    for messages in (sent, got):
        assert [size // shared.nbytes for size in messages if size >= shared.nbytes] == [1]


def test_slices_of_what_is_shared_go_to_workers_side_by_side(processes, monkeypatch):
    sent = list[int]()
    write = tcp.TCP.write

    async def written(self: Any, *message: Any, **options: Any) -> int:
        sent.append(await write(self, *message, **options))
        return sent[-1]

    shared = np.linspace(0.5, 2, 2 * WIDTH).reshape(2, WIDTH).T, np.arange(7), [np.zeros(0)], "text"
    monkeypatch.setattr(network, "SLICED", shared[0].nbytes - 1)
    monkeypatch.setattr(tcp.TCP, "write", written)
    expected = SerialExecutor().reduce(first_column, range(64), merge=add, shared=shared)
    assert processes.reduce(first_column, range(64), merge=add, shared=shared).tobytes() == expected.tobytes()
    slice_bytes = shared[0].nbytes // network.SLICES
    assert [size // slice_bytes for size in sent if size >= slice_bytes] == [1] * network.SLICES
    assert set(processes.each_worker(wholes_held, None).values()) == {0}, "put together for nobody"


@pytest.mark.slow_cases("(11|all)")
@pytest.mark.parametrize(("number", "killed"), [(1, "one"), (11, "one"), (11, "all")])
def test_a_worker_is_killed_in_mid_merge(tmp_path, monkeypatch, number, killed):
    """Fault: SIGKILL of a worker, and of all | while it merges what others have returned, and the last such merge |
    nothing | bits"""
    # in four slices, each of which a worker may be the last to hold
    monkeypatch.setattr(network, "SLICED", WIDTH)
    with _connected(6, 2) as executor:
        # one a thread, so that all merges are of what tasks have returned
        items, shared = range(12), np.linspace(0.5, 2, WIDTH)
        expected = SerialExecutor().reduce(wide, items, merge=add, shared=shared)
        victims = list(executor.each_worker(process_number, None).values()) if killed == "all" else []
        merge = partial(add_or_die, tmp_path, number, victims)
        assert executor.reduce(wide, items, merge=merge, shared=shared).tobytes() == expected.tobytes()
        assert (tmp_path / "merges").stat().st_size > len(items) - 1, "nothing was made again"
