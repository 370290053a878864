"""Several hosts for real: a network namespace a worker, on a bridge in one for scheduler and driver.

Links have a shaped bandwidth; one is slow, or cut while a fit runs. Nothing of the machine's own network is touched,
and the namespaces go with the test. Skips where it may not make any.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import SECONDS, wait_until

from distls.synthetic.generation import generate
from distls.training.fitting import fit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")

# Silence of so long means that a host is gone; Dask's default is 30 s, and less than 11 s is not possible.
_GONE = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}
SCHEDULER = "tcp://10.213.0.1:8786"
PASSES = 8


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True, timeout=SECONDS)


class Hosts:
    """A bridge, and hosts on it, each a network namespace; what runs on them ends with them."""

    def __init__(self, count: int) -> None:
        self._prefix = f"distls{os.getpid()}"
        self.hub = f"{self._prefix}-hub"
        self.workers = [f"{self._prefix}-{number}" for number in range(count)]
        self._processes: list[subprocess.Popen[str]] = []
        self._working: dict[str, subprocess.Popen[str]] = {}

    def build(self) -> None:
        """Make the namespaces and links."""
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "set", "lo", "up")
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.hub, "address", "add", "10.213.0.1/24", "dev", "bridge")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, host in enumerate(self.workers):
            _ip("netns", "add", host)
            port = self._port(host)
            _ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", self.hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", host, "address", "add", f"10.213.0.{10 + number}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
            self.shape(host, "100mbit")

    def _port(self, host: str) -> str:
        return f"port{self.workers.index(host)}"

    def shape(self, host: str, rate: str) -> None:
        """Give the link of a host a bandwidth, each way."""
        for namespace, device in ((self.hub, self._port(host)), (host, "eth0")):
            command = ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf"]
            subprocess.run(
                [*command, "rate", rate, "burst", "64kb", "latency", "100ms"],
                check=True,
                capture_output=True,
                timeout=SECONDS,
            )

    def cut(self, host: str) -> None:
        """Take the link of a host down: what is sent is lost, and nobody is told."""
        _ip("-n", self.hub, "link", "set", self._port(host), "down")

    def mend(self, host: str) -> None:
        """Put it up again."""
        _ip("-n", self.hub, "link", "set", self._port(host), "up")

    def start(self, host: str, *command: object) -> subprocess.Popen[str]:
        """Start a Python module on a host."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "-m", *map(str, command)],
            stdout=subprocess.PIPE if "fit" in command else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **_GONE},
        )
        self._processes.append(process)
        return process

    def start_workers(self) -> None:
        """Start a worker, with its nanny, on every host where none runs: what a service manager does."""
        for number, host in enumerate(self.workers):
            if host not in self._working or self._working[host].poll() is not None:
                self._working[host] = self.start(
                    host, "distributed.cli.dask_worker", SCHEDULER, "--host", f"tcp://10.213.0.{10 + number}",
                    "--nthreads", 1, "--memory-limit", 0, "--no-dashboard",
                )  # fmt: skip

    def worker_ended(self, host: str) -> bool:
        """Tell whether the worker on a host has ended."""
        return self._working[host].poll() is not None

    def remove(self) -> None:
        """End what runs, and the namespaces; links go with them."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for namespace in (self.hub, *self.workers):
            _ip("netns", "delete", namespace, check=False)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """A scheduler, and three workers on hosts of their own."""
    made = Hosts(3)
    try:
        if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
            pytest.skip("network namespaces need root, ip and tc (Debian: iproute2)")
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        made.start(made.hub, "distributed.cli.dask_scheduler", "--host", "10.213.0.1", "--no-dashboard")
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few documents of many features: a round moves 9 MB, for which the links take a while."""
    path = tmp_path_factory.mktemp("hosts") / "train"
    generate("rcv1-4", path, rows=6000, partition_size=2**18)
    return path


@pytest.fixture(scope="module")
def undisturbed(data: Path) -> str:
    """The weights of a fit in this process."""
    run = data.parent / "undisturbed"
    fit("mcid", data, run, params={"loss": "hinge"}, passes=PASSES)
    return _weights(run)


def _weights(run: Path) -> str:
    return str(json.loads((run / "status.json").read_text())["weights_sha256"])


class Fit:
    """A fit that the driver runs on the hosts."""

    def __init__(self, hosts: Hosts, data: Path, run: Path) -> None:
        self._events = run / "events.jsonl"
        hosts.start_workers()
        command = ("distls", "fit", "mcid", data, run, "-p", "loss=hinge", "--passes", PASSES)
        self._process = hosts.start(hosts.hub, *command, "--scheduler", SCHEDULER)

    def records(self) -> list[dict[str, Any]]:
        """Return what is known of the rounds so far."""
        text = self._events.read_text() if self._events.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def when(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()`, failing when the fit ends first."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self._process.poll() is None, f"ended early: {self._process.communicate()[0]}"
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def end(self) -> None:
        """Wait for the end of the fit, which must be a good one."""
        out, _ = self._process.communicate(timeout=SECONDS)
        assert self._process.returncode == 0, out

    def all_work(self) -> bool:
        """Tell whether every worker had a part in the newest round; the driver's own merging is named there too."""
        records = self.records()
        return bool(records) and len(records[-1]["worker_seconds"]) == 4


def test_a_slow_link_and_one_cut_for_a_moment_cost_nothing_but_time(
    hosts: Hosts, data: Path, undisturbed: str, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("mended", [True, False], ids=["mended", "for good"])
def test_a_cut_link_loses_a_worker_and_nothing_else(
    hosts: Hosts, data: Path, undisturbed: str, tmp_path: Path, mended: bool
) -> None:
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
