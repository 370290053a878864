"""What is looked at when workers of a running cluster are met: processors that would round differently, silence."""

import time

import pytest
from distributed import Client, LocalCluster

from distls.execution.dask import remote_cluster as remote
from distls.storage.errors import WorkerError
from distls.workers.compilation.processor import processor


@pytest.fixture
def client():
    """A client of two workers in this process."""
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


@pytest.mark.slow
def test_a_worker_with_another_processor_is_named_once(monkeypatch, caplog, client):
    first, second = sorted(client.nthreads())
    check = remote._NewWorkers()
    check(client, [first])
    check(client, [second])
    assert _said(caplog) == []
    monkeypatch.setattr(remote, "processor", lambda: "znver9-01234567")
    check(client, [second])
    check(client, [second])
    assert _said(caplog) == [
        f"worker {second} has the processor znver9-01234567, worker {first} {processor()}: what NumPy and BLAS "
        "compute for gls, cls, stagewise, newton, bcd, fista, sparsa, generated features and sdca with init may differ "
        "in its last bits from a cluster of one kind"
    ]


def _said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == remote.__name__]


def test_processors_are_told_apart_by_their_features(monkeypatch):
    names = set()
    for name, features in [("znver9", "+fma,+avx2"), ("znver9", "-fma,+avx2"), ("generic", "+fma,+avx2")]:
        monkeypatch.setattr("numba.config.CPU_NAME", name)
        monkeypatch.setattr("numba.config.CPU_FEATURES", features)
        names.add(processor())
    assert len(names) == 3


@pytest.mark.slow
def test_a_worker_that_does_not_answer_is_one_line(monkeypatch, client):
    monkeypatch.setattr(remote, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(remote, "processor", lambda: time.sleep(2))
    (worker, *_) = client.nthreads()
    with pytest.raises(WorkerError, match=f"^one of the workers {worker} does not answer within 0.2 s"):
        remote._asked(client, [worker])
