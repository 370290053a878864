"""Which executor a call gets: by name, by client, by the size of the data."""

import logging

import pytest
from distributed import Client
from helpers import distls, labelled_rows, printed, refuses, stored_rows

from distls import MCIDClassifier, evaluate, fit, ingest, predict, resume
from distls.execution import SMALL_BYTES, ClusterOptions, OpenExecutor, executor_of, open_executor
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.serial import SerialExecutor
from distls.storage.errors import ParameterError
from distls.testing.solvers import opened

ASKED = [
    {"workers": 1}, {"threads_per_worker": 1}, {"memory_limit": 2**30}, {"scheduler": "tcp://127.0.0.1:1"},
]  # fmt: skip


def test_small_data_stay_in_this_process_unless_workers_are_asked_for():
    assert ClusterOptions().for_data(SMALL_BYTES).executor == "serial"
    assert ClusterOptions().for_data(SMALL_BYTES + 1).executor == "dask"
    assert [ClusterOptions(**asked).for_data(0).executor for asked in ASKED] == ["dask"] * 4
    assert ClusterOptions(executor="dask").for_data(0).executor == "dask"
    assert ClusterOptions(executor="serial").for_data(1e15).executor == "serial"


data = stored_rows(200, 8, 3)


def test_commands_on_small_data_start_no_process_and_say_so(data, tmp_path, monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)

    def started(*_, **__):
        raise AssertionError("workers were started")

    monkeypatch.setattr("distls.execution.dask.local_cluster.start_local", started)
    source, run = tmp_path / "s.svm", str(tmp_path / "r")
    source.write_text("1 1:2\n0 2:1\n" * 20)
    for words in (
        ["ingest", str(source), str(tmp_path / "d")],
        ["fit", "sgd", str(data.path), run, "--passes", "1"],
        ["resume", run, "--passes", "2"],
        ["evaluate", run, str(data.path)],
        ["predict", run, str(data.path), str(tmp_path / "p.csv")],
        ["columns", str(tmp_path / "d")],
    ):
        ended = distls(*words)
        assert ended.code == 0, ended
        told = words[0] not in ("evaluate", "predict")  # they print no progress
        assert ended.err.count("the data are small: in this process, without workers") == told, ended.err


def test_the_size_counts_settings(data, tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(
        "distls.execution.ClusterOptions.for_data", lambda own, n: found.append(n) or ClusterOptions("serial")
    )
    words = ["fit", "sgd", str(data.path), str(tmp_path / "r"), "--passes", "1", "--select", str(data.path)]
    printed(*words, "-p", "alpha=0,1e-3,1e-2")
    assert set(found) == {3.0 * data.decoded_bytes.sum()}


def test_an_executor_is_chosen_by_name_or_given():
    own = SerialExecutor()
    assert executor_of(own) is own
    for asked in (None, "auto", "serial"):
        assert isinstance(executor_of(asked), SerialExecutor)
    refuses(ParameterError, "executor='dask': no Dask client is open in this process", executor_of, "dask")
    refuses(ParameterError, "executor='threads': must be 'auto', 'serial' or 'dask'", executor_of, "threads")
    refuses(ParameterError, r"a dict is neither an executor nor a .* Client; see", executor_of, {})
    refuses(ParameterError, "executor and client both say where to run", executor_of, "serial", own)


class _Asynchronous(Client):
    asynchronous = True

    def __init__(self):
        """Connect to nothing."""

    def __del__(self):
        """Close nothing."""


def test_an_asynchronous_client_is_refused_in_one_line(data):
    with pytest.raises(ParameterError, match=r"this Dask client is asynchronous, .* give executor='serial'$"):
        fit("sgd", data, client=_Asynchronous())


def test_open_executor_is_a_context_manager():
    with open_executor(ClusterOptions(executor="serial")) as (executor, budget):
        assert isinstance(executor, SerialExecutor)
        assert budget.workers == 1
    closed = []

    class Closing(SerialExecutor):
        def close(self):
            closed.append(True)

    with pytest.raises(ValueError, match="in it"), OpenExecutor(Closing(), budget):
        raise ValueError("in it")
    assert closed == [True]


@pytest.fixture
def client():
    """Return a client of a running cluster, open as the current one."""
    with Client(opened("two processes").client.scheduler.address) as made:
        yield made


def test_the_open_client_is_used_and_named(client, data, tmp_path, caplog):
    run = tmp_path / "r"
    with caplog.at_level(logging.WARNING):
        found = fit("sgd", data, run, passes=2)
        resume(run)
        evaluate(run, data)
        predict(run, data, tmp_path / "p.csv")
        ingest([[1.0], [2.0]], tmp_path / "d", y=[0, 1])
    said = [r.message for r in caplog.records if "the Dask client that is open" in r.message]
    assert len(said) == 1
    assert client.scheduler.address in said[0]
    alone = fit("sgd", data, passes=2, executor="serial")
    assert alone.model.sha256 == found.model.sha256
    assert alone.record["worker_seconds"].keys() < found.record["worker_seconds"].keys()


@pytest.mark.parametrize("name", ["executor", "client"])
def test_a_client_is_an_executor(data, name, client):
    assert isinstance(executor_of(**{name: client}), DaskExecutor)
    alone = fit("sgd", data, passes=1, executor="serial").model.sha256
    assert fit("sgd", data, passes=1, **{name: client}).model.sha256 == alone
    assert client.status == "running"
    rows = labelled_rows(100, 8, 3)
    there, here = (MCIDClassifier(passes=1, executor=each).fit(*rows) for each in (client, "serial"))
    assert (there.coef_ == here.coef_).all()
