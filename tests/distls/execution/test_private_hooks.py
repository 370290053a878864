"""The private hooks of distributed, all in one file: a version that changes one fails here, by name."""

import inspect
from contextlib import closing
from pathlib import Path

import distributed.utils
from distributed import Client, LocalCluster, Nanny, SpecCluster
from distributed.batched import BatchedSend
from distributed.core import Server
from distributed.deploy.cluster import Cluster

from distls.execution.dask import local_cluster, private_hooks


def test_a_cluster_notes_workers_by_update_worker_status():
    # `PatientCluster` skips SpecCluster's version, which closes the nanny of a worker that is away
    assert issubclass(LocalCluster, SpecCluster)
    assert issubclass(SpecCluster, Cluster)
    assert list(inspect.signature(Cluster._update_worker_status).parameters) == ["self", "op", "msg"]
    assert "_update_worker_status" in vars(SpecCluster)


def test_a_nanny_restarts_its_worker_in_on_worker_exit():
    assert inspect.iscoroutinefunction(Nanny._on_worker_exit)
    assert list(inspect.signature(Nanny._on_worker_exit).parameters) == ["self", "exitcode"]
    assert "_on_worker_exit" in vars(private_hooks.AskingNanny)


def test_a_client_describes_its_tasks_in_graph_to_futures():
    assert "span_metadata" in inspect.signature(Client._graph_to_futures).parameters
    assert "_graph_to_futures" in vars(private_hooks.PromptClient)


def test_the_preload_of_the_fork_server_is_set_once():
    assert isinstance(distributed.utils._forkserver_preload_set, bool)
    assert "_forkserver_preload_set" in inspect.getsource(distributed.utils.get_mp_context)


def test_messages_of_rounds_do_not_wait_for_others():
    with closing(local_cluster.start_local(1)) as executor:
        from_client = executor.client.scheduler_comm
        (to_worker,) = executor._cluster.scheduler.stream_comms.values()
        for stream in (from_client, to_worker):
            assert isinstance(stream, BatchedSend)
            assert stream.interval == private_hooks.MESSAGE_SECONDS < BatchedSend("2ms").interval


def test_a_client_asks_workers_by_run():
    assert {"function", "workers"} <= set(inspect.signature(Client._run).parameters)
    assert "callback_timeout" in inspect.signature(Client.sync).parameters


def test_the_id_of_a_client_ends_in_a_uuid_made_with_its_process():
    assert "uuid.uuid1(clock_seq=os.getpid())" in inspect.getsource(Client.__init__)


def test_a_client_that_is_being_closed_says_so_first():
    source = inspect.getsource(Client._close)
    assert source.index('self.status = "closing"') < source.index("self.rpc.close()")


def test_a_call_that_is_blocked_is_told_by_its_words():
    said = inspect.getsource(Server._handle_comm).replace('"\n                            "', "")
    assert private_hooks.REFUSED.search(said.replace("{op}", "run").replace("{obj}", "Worker"))


def test_these_are_all():
    hooks = (
        "_update_worker_status",
        "_on_worker_exit",
        "_graph_to_futures",
        "_forkserver_preload_set",
        "_ensure_connected",
        "stream_comms",
        "clock_seq",
        "_run",
        '"closing"',
    )
    text = inspect.getsource(private_hooks)
    assert text.count("# Private hook of distributed") == len(hooks)
    assert [hook for hook in hooks if hook not in text] == []
    folder = Path(private_hooks.__file__).parent
    others = [file.name for file in folder.glob("*.py") if "# Private hook of distributed" in file.read_text()]
    assert others == ["private_hooks.py"]
