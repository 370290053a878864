"""Hosts of a cluster on one machine: a network namespace each, on a bridge in one for the scheduler.

Links have a shaped bandwidth, and can be cut. Nothing of the machine's own network is touched. Making them needs root,
and Debian's iproute2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping

SECONDS = 60.0  # of a command of the system
# Silence of so long means that a host is gone; Dask's default is 30 s, and less than 11 s is not possible.
GONE = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}
SCHEDULER = "tcp://10.213.0.1:8786"


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True, timeout=SECONDS)


class Hosts:
    """A bridge, and hosts on it, each a network namespace; what runs on them, with these settings, ends with them."""

    def __init__(self, count: int, *, others: int = 0, settings: Mapping[str, str] = GONE) -> None:
        self._settings = settings
        self._prefix = f"distls{os.getpid()}"
        self.hub = f"{self._prefix}-hub"
        self._hosts = [f"{self._prefix}-{number}" for number in range(count + others)]
        self.workers, self.others = self._hosts[:count], self._hosts[count:]
        self._processes: list[subprocess.Popen[str]] = []
        self._working: dict[str, subprocess.Popen[str]] = {}

    def build(self) -> str:
        """Make the namespaces and links; return why that is not possible here, empty if it was."""
        if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
            return "network namespaces need root, ip and tc (Debian: iproute2)"
        try:
            self._build()
        except subprocess.CalledProcessError as error:
            return f"network namespaces cannot be made here: {error.stderr.strip()}"
        return ""

    def _build(self) -> None:
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "set", "lo", "up")
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.hub, "address", "add", "10.213.0.1/24", "dev", "bridge")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, host in enumerate(self._hosts):
            _ip("netns", "add", host)
            port = self._port(host)
            _ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", self.hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", host, "address", "add", f"10.213.0.{10 + number}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
            self.shape(host, "100mbit")

    def _port(self, host: str) -> str:
        return f"port{self._hosts.index(host)}"

    def shape(self, host: str, rate: str) -> None:
        """Give the link of a host a bandwidth, each way."""
        # of a fast link as much as comes between two ticks of the clock
        burst = "1mb" if rate.endswith("gbit") else "64kb"
        for namespace, device in ((self.hub, self._port(host)), (host, "eth0")):
            command = ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf"]
            subprocess.run(
                [*command, "rate", rate, "burst", burst, "latency", "100ms"],
                check=True,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )

    def cut(self, host: str) -> None:
        """Take the link of a host down: what is sent is lost, and nobody is told."""
        _ip("-n", self.hub, "link", "set", self._port(host), "down")

    def mend(self, host: str) -> None:
        """Put it up again."""
        _ip("-n", self.hub, "link", "set", self._port(host), "up")

    def start_scheduler(self) -> None:
        """Start the scheduler in the hub."""
        self.start(self.hub, "distributed.cli.dask_scheduler", "--host", "10.213.0.1", "--no-dashboard")

    def start(self, host: str, *command: object, out: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start a Python module on a host, where what it says goes to `out`."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "-m", *map(str, command)],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **self._settings},
        )
        self._processes.append(process)
        return process

    def start_workers(self, *options: str) -> None:
        """Start a worker, by default with its nanny, on every host where none runs: what a service manager does."""
        for number, host in enumerate(self.workers):
            if host not in self._working or self._working[host].poll() is not None:
                self._working[host] = self.start(
                    host, "distributed.cli.dask_worker", SCHEDULER, "--host", f"tcp://10.213.0.{10 + number}",
                    "--nthreads", 1, "--memory-limit", 0, "--no-dashboard", *options,
                )  # fmt: skip

    def end_worker(self, host: str) -> None:
        """Kill the worker on a host, with its nanny."""
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.killpg(self._working[host].pid, signal.SIGKILL)

    def worker_ended(self, host: str) -> bool:
        """Tell whether the worker on a host has ended."""
        return self._working[host].poll() is not None

    def remove(self) -> None:
        """End what runs, and the namespaces; links go with them."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for namespace in (self.hub, *self._hosts):
            _ip("netns", "delete", namespace, check=False)
