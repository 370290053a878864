"""Real processes: a small dataset, and the command line started as a user starts it.

Deadlines are there to end what hangs, and nothing is measured with a clock: the machine may be slow and busy.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest
from helpers import SECONDS, wait_until, workers_of

from distls.synthetic.generation import generate

# A shell that starts the tests in the background has them ignore Ctrl-C, nohup the end of the terminal; what they start
# would ignore them too.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time for several commands."""
    for item in items:
        if item.nodeid.startswith("tests/system/"):
            item.add_marker(pytest.mark.timeout(4 * SECONDS))


@pytest.fixture(scope="session")
def documents(tmp_path_factory):
    """Training documents in some thirty partitions; the test set is beside them."""
    path = tmp_path_factory.mktemp("documents") / "train"
    generate("rcv1-4", path, rows=30_000, partition_size=2**19)
    return path


class Command:
    """A `distls` command running as a process group of its own, as under a shell."""

    def __init__(self, *arguments: object, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distls", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **(environment or {})}, start_new_session=True,
        )  # fmt: skip

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes that have been started so far."""
        return workers_of(self.process.pid)

    def when(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()`, failing when the command ends first."""
        wait_until(condition, self.process)

    def interrupt(self, number: int) -> None:
        """Send a signal to the whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@contextlib.contextmanager
def _commands() -> Iterator[Callable[..., Command]]:
    """Start commands; whatever still runs at the end is killed."""
    started: list[Command] = []

    def start(*arguments: object, environment: dict[str, str] | None = None) -> Command:
        started.append(Command(*arguments, environment=environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, 9)
            each.process.wait()


@pytest.fixture
def command():
    """Start commands for a test."""
    with _commands() as start:
        yield start


@pytest.fixture(scope="module")
def lasting_command():
    """Start commands for all tests of a module."""
    with _commands() as start:
        yield start
