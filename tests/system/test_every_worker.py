"""A cluster with nothing chosen: every worker trains in every method, with the bits of one process, and if one dies."""

import json

import numpy as np
import pytest
from cluster_helpers import cluster
from helpers import labelled_rows, write_dataset
from merge_helpers import process_number
from worker_faults import Fault

from distls import add_columns, fit
from distls.execution.dask.local_cluster import start_local
from distls.execution.dask.remote_cluster import connect
from distls.workers.rounds import task
from distls.workers.rounds.ledger import Ledger

pytestmark = pytest.mark.slow
PARTITIONS = 123
# Limits that keep it short; nothing says how the work is dealt.
LIMITS = {
    "mcid": {"passes": 2}, "sgd": {"passes": 2}, "sdca": {"passes": 2}, "newton": {"passes": 4}, "bcd": {"passes": 3},
    "gls": {"passes": 4}, "cls": {"params": {"rounds": 3}}, "stagewise": {"params": {"block_size": 20, "stages": 2}},
    "bcd by rows": {"passes": 9, "params": {"algorithm": "row-blocks"}},
}  # fmt: skip
TABLES = {"gls", "cls", "stagewise"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the data of a method: a table, or rows so wide that results are merged on the workers."""
    folder = tmp_path_factory.mktemp("data")
    x, y = labelled_rows(10 * PARTITIONS, 6000, 4)
    write_dataset(folder / "wide", x, y, partition_rows=10)
    add_columns(folder / "wide", shard_size=1000)
    x, y = labelled_rows(10 * PARTITIONS, 40, 4)
    table = np.asarray(x.todense(), np.float32)
    write_dataset(folder / "table", table, y, partition_rows=10)
    return lambda method: folder / ("table" if method in TABLES else "wide")


@pytest.fixture(scope="module", params=[1, 2, 5, 8])
def workers(request):
    """Processes of one thread that are another's, as if they were on other machines."""
    owner = start_local(request.param, 1)
    executor = connect(owner.client.scheduler.address)
    yield executor
    executor.close()
    owner.close()


@pytest.fixture(scope="module")
def undisturbed(data):
    """Return the digest of a method's model by one process, made once."""
    made = {}

    def of(method):
        if method not in made:
            alone = fit(method.split()[0], data(method), executor="serial", **LIMITS[method])
            made[method] = alone.model.sha256
        return made[method]

    return of


def _blocks_read(_item):
    """Return how many partitions and column shards tasks of this process have worked on, from the first call on."""
    if not hasattr(Ledger, "blocks_read"):
        started, Ledger.blocks_read = task._read, 0

        def read(tasks):
            results = started(tasks)
            Ledger.blocks_read += sum(len(each.ledger.blocks) for each in tasks)
            return results

        task._read = read
    return int(Ledger.blocks_read)


@pytest.mark.parametrize("method", LIMITS)
def test_every_worker_trains_with_the_same_bits(tmp_path, workers, data, undisturbed, method):
    before = workers.each_worker(_blocks_read, None)
    result = fit(method.split()[0], data(method), tmp_path / "run", executor=workers, **LIMITS[method])
    # work is counted and not timed: blocks are about as large as each other
    shares = [read - before[worker] for worker, read in workers.each_worker(_blocks_read, None).items()]
    assert min(shares) >= max(shares) / 5, shares
    assert result.model.sha256 == undisturbed(method)
    pids = workers.each_worker(process_number, None).values()
    for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines():
        seconds = json.loads(line)["worker_seconds"]
        assert {int(name.rpartition(":")[2]) for name in seconds} >= set(pids), "a worker had nothing to do"


@pytest.mark.parametrize("method", ["mcid", "sdca", "newton"])
def test_a_worker_dies_while_it_merges_results_of_a_fit(tmp_path, data, undisturbed, method):
    """Fault: SIGKILL of one of six workers | while it merges results of a fit with nothing chosen | nothing | bits"""
    fault = Fault("distls.execution.dask.reduction_tasks:merge_parts", call=2)
    with cluster(tmp_path, environment=fault.preload(tmp_path)) as there:
        for _ in range(6):
            there.add_worker()
        there.wait_for_workers(6)
        executor = connect(there.address)
        model = fit(method, data(method), executor=executor, **LIMITS[method]).model
        executor.close()
    assert model.sha256 == undisturbed(method)
    assert len(fault.struck(tmp_path)) == 1, "nobody merged"
