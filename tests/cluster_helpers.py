"""A real `dask scheduler` with real `dask worker` processes, as an administrator starts them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from distributed import Client
from distributed.security import Security
from helpers import SECONDS


class Cluster:
    """A scheduler and what was started for it, as an administrator starts them."""

    def __init__(self, folder: Path, environment: dict[str, str], *options: str) -> None:
        self.folder, self._environment = folder, {**os.environ, **environment}
        self._started: list[subprocess.Popen[bytes]] = []
        self._file = folder / "scheduler.json"
        scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", *options)
        self.address = self._wait_for_address(scheduler)

    def _start(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard", "--scheduler-file", str(self._file)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        given = {**self._environment, **(environment or {})}
        process = subprocess.Popen(command, env=given, start_new_session=True, cwd=self.folder, **quiet)
        self._started.append(process)
        return process

    def add_worker(
        self, *options: str, nanny: bool = False, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a worker of one thread."""
        kind = "--nanny" if nanny else "--no-nanny"
        own = ("worker", kind, "--nthreads", "1", "--memory-limit", "1GiB", *options)
        return self._start(*own, environment=environment)

    def stop_scheduler(self, number: int = signal.SIGSTOP) -> None:
        """Stop the scheduler, or continue it."""
        self._started[0].send_signal(number)

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another one at the same address; workers of the old one end by themselves."""
        port = self.address.rpartition(":")[2]
        self._started[0].kill()
        self._started[0].wait()
        self._file.unlink()
        self._start("scheduler", "--host", "127.0.0.1", "--port", port)
        self._wait_for_address(self._started[-1])

    def wait_for_workers(self, number: int, security: Security | None = None) -> None:
        """Wait until the scheduler knows so many workers."""
        with Client(self.address, timeout=SECONDS, security=security, set_as_default=False) as client:
            client.wait_for_workers(number, timeout=SECONDS)

    def _wait_for_address(self, scheduler: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + SECONDS
        while True:
            # the file is written in place
            with contextlib.suppress(OSError, ValueError):
                return str(json.loads(self._file.read_text())["address"])
            assert time.monotonic() < deadline, "the scheduler did not start"
            assert scheduler.poll() is None
            time.sleep(0.05)

    def close(self) -> None:
        """Kill everything."""
        for process in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def cluster(folder: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Cluster]:
    made = Cluster(folder, environment or {}, *options)
    try:
        yield made
    finally:
        made.close()
