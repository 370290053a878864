"""Several hosts for real: a network namespace a worker, on a bridge in one for scheduler and driver.

Links have a shaped bandwidth; one is slow, or cut while a fit runs. Nothing of the machine's own network is touched,
and the namespaces go with the test. Skips where it may not make any.
"""

import json
import subprocess
import sys
import time

import pytest
from helpers import SECONDS, wait_until

from benchmarks.faults.hosts import SCHEDULER, Hosts
from distls import fit, generate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")

PASSES = 8


@pytest.fixture(scope="module")
def hosts():
    """A scheduler, and three workers on hosts of their own."""
    made = Hosts(3)
    try:
        if found := made.build():
            pytest.skip(found)
        made.start_scheduler()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Few documents of many features: a round moves 9 MB, for which the links take a while."""
    path = tmp_path_factory.mktemp("hosts") / "train"
    generate("rcv1-4", path, rows=6000, partition_size=2**18)
    return path


@pytest.fixture(scope="module")
def undisturbed(data):
    """The weights of a fit in this process."""
    run = data.parent / "undisturbed"
    fit("mcid", data, run, params={"loss": "hinge"}, passes=PASSES)
    return _weights(run)


def _weights(run):
    return str(json.loads((run / "status.json").read_text())["weights_sha256"])


class Fit:
    """A fit that the driver runs on the hosts."""

    def __init__(self, hosts, data, run):
        self._events = run / "events.jsonl"
        hosts.start_workers()
        command = ("distls", "fit", "mcid", data, run, "-p", "loss=hinge", "--passes", PASSES)
        self._process = hosts.start(hosts.hub, *command, "--scheduler", SCHEDULER, out=subprocess.PIPE)

    def records(self):
        """Return what is known of the rounds so far."""
        text = self._events.read_text() if self._events.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def when(self, condition):
        """Wait until `condition()`, failing when the fit ends first."""
        wait_until(condition, self._process)

    def end(self):
        """Wait for the end of the fit, which must be a good one."""
        out, _ = self._process.communicate(timeout=SECONDS)
        assert self._process.returncode == 0, out

    def all_work(self):
        """Tell whether every worker had a part in the newest round; the driver's own merging may be named there too."""
        records, driver = self.records(), f":{self._process.pid}"
        return bool(records) and sum(not name.endswith(driver) for name in records[-1]["worker_seconds"]) == 3


@pytest.mark.slow
def test_a_slow_link_and_one_cut_for_a_moment_cost_nothing_but_time(hosts, data, undisturbed, tmp_path):
    """Fault: A host's link is slow (40 of 100 Mbit/s) and is cut for 2 s | network namespaces: shaped for the whole
    fit; the bridge's port set down in a round, then up | longer rounds; no worker lost | bits"""
    slow, cut = hosts.workers[:2]
    hosts.shape(slow, "40mbit")
    try:
        training = Fit(hosts, data, tmp_path / "run")
        training.when(training.all_work)
        hosts.cut(cut)
        time.sleep(2)  # less than what counts as gone
        hosts.mend(cut)
        training.end()
    finally:
        hosts.mend(cut)
        hosts.shape(slow, "100mbit")
    assert not hosts.worker_ended(cut)
    assert training.all_work()
    assert _weights(tmp_path / "run") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("mended", [True, False], ids=["mended", "for good"])
def test_a_cut_link_loses_a_worker_and_nothing_else(hosts, data, undisturbed, tmp_path, mended):
    """Fault: A host is cut off until the fit has continued without it; permanently | the bridge's port set down in a
    round | one round waits for Dask's `comm.timeouts.tcp` (30 s; 11 s in the test), then continues on other
    workers; the host's worker ends | bits"""
    lost = hosts.workers[2]
    training = Fit(hosts, data, tmp_path / "run")
    training.when(training.all_work)
    hosts.cut(lost)
    try:
        before = len(training.records())
        training.when(lambda: len(training.records()) > before + 1)  # one may have been under way
        assert not training.all_work()
        if mended:
            hosts.mend(lost)
        training.end()
    finally:
        hosts.mend(lost)
    assert _weights(tmp_path / "run") == undisturbed
    # Dask's worker ends when it has lost the scheduler; a service manager must start another
    wait_until(lambda: hosts.worker_ended(lost))
