"""Real processes: a small dataset, and the command line started as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from helpers import workers_of

from distls.generation import generate


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training documents in some thirty partitions; the test set is beside them."""
    path = tmp_path_factory.mktemp("documents") / "train"
    generate("rcv1-4", path, rows=30_000, partition_size=2**19)
    return path


class Command:
    """A `distls` command running as a process group of its own, as under a shell."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distls", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes that have been started so far."""
        return workers_of(self.process.pid)

    def when(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until `condition()`, failing when the command ends first."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.process.communicate()}"
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def interrupt(self, number: int) -> None:
        """Send a signal to the whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def end(self, seconds: float = 120) -> tuple[int, str, str]:
        """Wait for the end; return exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@pytest.fixture
def command() -> Iterator[Callable[..., Command]]:
    """Start commands; whatever still runs at the end of the test is killed."""
    started: list[Command] = []

    def start(*arguments: object) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, 9)
            each.process.wait()
