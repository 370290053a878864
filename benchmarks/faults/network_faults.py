"""Random cuts of the network under random fits: `benchmarks.faults.chaos`.

Three workers and the command are hosts of their own, network namespaces on a bridge to the scheduler. Links are cut
for a while or for good, or slow; workers are killed, and started again as a service manager does. One worker is left.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.faults.faulty_fit import Round, lasts
from benchmarks.faults.hosts import GONE, SCHEDULER, Hosts

NETWORK_FAULTS = ("cut", "cut", "cut for good", "slow", "kill a worker")
_WORKERS = 3
# how often workers that have ended are started again; how long it takes to be told that there is no more to do
_SERVICE_SECONDS, _STOP_SECONDS = 0.5, 60.0


class NetworkRound(Round):
    """One fit on the hosts."""

    def __init__(self, place: Path, data: Path, kernels: str | None, choose: random.Random, hosts: Hosts) -> None:
        self._hosts = hosts
        super().__init__(place, data, kernels, choose)
        self._kinds, self._limit = NETWORK_FAULTS, None
        self.faults.clear()
        # never all of them: a cluster without workers is waited for
        self._spared = choose.choice(hosts.workers)

    def environment(self) -> dict[str, str]:
        """Let silence be a loss soon."""
        return {**super().environment(), **GONE}

    def prefix(self) -> list[str]:
        """Run commands on a host of their own."""
        return ["ip", "netns", "exec", self._hosts.others[0]]

    def cluster(self) -> list[str]:
        """Name the scheduler."""
        return ["--scheduler", SCHEDULER]

    def do_fault(self, kind: str, process: subprocess.Popen[str]) -> None:
        """Cut a link, slow it down, or kill a worker."""
        victims = [host for host in self._hosts.workers if host != self._spared]
        host = self._choose.choice(victims if kind == "kill a worker" else [*victims, *self._hosts.others])
        number = [*self._hosts.workers, *self._hosts.others].index(host)
        name = "the command" if number == _WORKERS else f"host {number}"
        seconds = self._choose.choice([0.5, 3.0, 14.0])
        if kind == "kill a worker":
            self.faults.append(f"kill the worker of {name}")
            self._hosts.end_worker(host)
        elif kind == "slow":
            self.faults.append(f"{name} slow")
            self._hosts.shape(host, "2mbit")
        else:
            self._hosts.cut(host)
            for_good = kind == "cut for good"
            self.faults.append(f"{name} {'cut for good' if for_good else f'cut for {seconds:g} s'}")
            lasts(process, seconds)
            if not for_good:
                self._hosts.mend(host)

    def heal(self) -> None:
        """Mend the links."""
        for host in (*self._hosts.workers, *self._hosts.others):
            self._hosts.mend(host)
            self._hosts.shape(host, "100mbit")


def _serve(hosts: Hosts, over: threading.Event) -> None:
    """Start workers that have ended again."""
    while not over.wait(_SERVICE_SECONDS):
        hosts.start_workers()


@contextlib.contextmanager
def network_rounds() -> Iterator[Callable[..., Round]]:
    """Make the hosts, with a scheduler and workers; yield what makes rounds on them."""
    hosts, over = Hosts(_WORKERS, others=1), threading.Event()
    service = threading.Thread(target=_serve, args=(hosts, over), daemon=True)
    try:
        if found := hosts.build():
            raise SystemExit(found)
        hosts.start_scheduler()
        service.start()
        yield lambda *given: NetworkRound(*given, hosts)
    finally:
        over.set()
        if service.is_alive():
            service.join(_STOP_SECONDS)
        hosts.remove()
