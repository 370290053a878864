"""The process that the workers of a local cluster are forked from; started before Dask is imported, so without it."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker

__all__ = ["SINGLE_THREADED", "interrupts_held", "start_fork_server"]

SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}

_PRELOAD = "distls.workers.preload"


def start_fork_server() -> None:
    """Have one process import what every worker needs, a second's work; workers are then forked from it.

    It has one thread. This process imports the same meanwhile, since it will need most of it. A server that runs
    already, or that cannot import these modules, serves as well: its workers import them themselves.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["distributed", _PRELOAD])
    # the server knows nothing of this process's sys.path
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with interrupts_held(), _environment(SINGLE_THREADED | {"PYTHONPATH": path}):
        forkserver.ensure_running()
    if _PRELOAD not in sys.modules:
        threading.Thread(target=_preload).start()


def _preload() -> None:
    # what cannot be imported is reported by whoever needs it
    with contextlib.suppress(Exception):
        importlib.import_module(_PRELOAD)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Start threads and processes that Ctrl-C does not reach: it is the driver's to handle, and when all are started.

    They inherit the mask of the thread that starts them, and so does a worker that is started anew later.
    """
    resource_tracker.ensure_running()  # starting it later would lift the mask of the thread that does
    with _handlers_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _handlers_held() -> Iterator[None]:
    """Call this process's own handlers of Ctrl-C and SIGTERM at the end: other threads may have taken the signals."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers if callable(signal.getsignal(number))}
    came: list[int] = []
    for number in handlers:
        signal.signal(number, lambda came_now, _frame: came.append(came_now))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
