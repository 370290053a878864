"""The process that the workers of a local cluster are forked from; started before Dask is imported, so without it."""

import atexit
import contextlib
import fcntl
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, process, resource_tracker, util
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeVar

from distls.storage.errors import WorkerError
from distls.storage.filesystem.memory_folder import held_folder, open_folder, sweep_folders
from distls.storage.filesystem.private_folder import private_folder, temporary_home

Made = TypeVar("Made", bound="Closable")

SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}

_PRELOAD = "distls.workers.forkserver_preload"
_JOIN_SECONDS = 10
_PATIENCE_SECONDS = 10.0

# Handlers of this module that are in place.
_HOLDING: list[Callable[[int, FrameType | None], None]] = []


def start_fork_server() -> None:
    """Start the process that imports the modules of every worker once, in a second; workers are forked from it.

    This process imports the same meanwhile, since it needs most of it. A server that runs already, or that cannot
    import these modules, serves as well: its workers import them themselves.
    """
    _end_if_importing_main()
    try:
        os.getcwd()
    except FileNotFoundError:
        raise WorkerError("the current folder was removed, and workers start in it; go to another one") from None
    choose_listener_folder()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["distls.execution.dask.quiet_preload", _PRELOAD])
    # the server does not inherit sys.path, and would search the current folder first
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    # this process gives the warning already
    warned = ",".join(
        filter(None, [os.environ.get("PYTHONWARNINGS"), "ignore::UserWarning:distls.workers.compilation.kernel_cache"])
    )
    changed = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": warned}
    with interrupts_held(), _environment(SINGLE_THREADED | changed):
        forkserver.ensure_running()
    if _PRELOAD not in sys.modules:
        thread = threading.Thread(target=_preload, daemon=True)
        thread.start()
        # do not end the process during an import, nor wait for ever for one that was interrupted
        atexit.register(thread.join, _JOIN_SECONDS)


def _end_if_importing_main() -> None:
    """End a worker that runs a whole script, without the traceback: the process that started it explains."""
    # Private hook of multiprocessing, by which it refuses to start a process from one that is being prepared.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)


def unguarded_script() -> str | None:
    """Return the script that is running if it has no ``if __name__ == "__main__":``, which every worker would run."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        text = "__main__" if file is None else Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # that of a package is not imported by workers
    return None if "__main__" in f"{file} {text}" else file


def _preload() -> None:
    # an import that fails here is reported where it is needed
    with contextlib.suppress(Exception):
        importlib.import_module(_PRELOAD)


class Closable(Protocol):
    """Something that is started and closed."""

    def close(self) -> None:
        """End it."""


def started(start: Callable[[], Made]) -> Made:
    """Return the result of `start`; if interrupted meanwhile, close it again and raise the interrupt."""
    with contextlib.ExitStack() as undo:
        with interrupts_held():
            made = start()
            undo.callback(made.close)
        undo.pop_all()
    return made


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Start threads and processes with Ctrl-C and SIGHUP blocked: only the driver handles them, once all run.

    They inherit the signal mask of the thread that starts them, and so does a worker that is restarted later.
    """
    with _handlers_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            # starting the tracker unblocks Ctrl-C in this thread, so it must come first
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _handlers_held() -> Iterator[None]:
    """Delay signals to the end of the block: another thread may have received them meanwhile."""
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if main else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    held = {n: handler for n, handler in handlers.items() if callable(handler) and handler not in _HOLDING}
    came: list[tuple[int, float]] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append((number, time.monotonic()))
        # a signal repeated after a while is handled at once: what is being started may hang
        if came[-1][1] - came[0][1] >= _PATIENCE_SECONDS:
            held[signal.Signals(number)](number, frame)

    _HOLDING.append(hold)
    for number in held:
        signal.signal(number, hold)
    try:
        yield
    finally:
        _HOLDING.remove(hold)
        for number, handler in held.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0][0])


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


# -- where it listens: a folder that later processes sweep if it was left behind -------------------------

# The name that multiprocessing gives it, in a folder of temporary files.
_PREFIX = "pymp-"
# The address of a socket has at most 108 bytes, of which the names in that folder take some 30.
_LONGEST = 70
# Locks on folders in use, released when this process ends, however it does.
_HELD: list[int] = []


def choose_listener_folder() -> None:
    """Let multiprocessing make its folder of sockets in this user's own folder, and sweep those that nobody holds.

    Nothing changes if it has one already, or there is no such folder.
    """
    if process.current_process()._config.get("tempdir") is not None:  # type: ignore[attr-defined]
        return
    with contextlib.suppress(OSError):
        home = private_folder(temporary_home())
        if len(os.fsencode(home)) > _LONGEST:
            return
        with held_folder(home):
            sweep_folders(home, _PREFIX)
            _HELD.append(open_folder(Path(_made_in(home))))
            fcntl.flock(_HELD[-1], fcntl.LOCK_SH)


def _made_in(home: Path) -> str:
    before, tempfile.tempdir = tempfile.tempdir, str(home)
    try:
        return util.get_temp_dir()
    finally:
        tempfile.tempdir = before
