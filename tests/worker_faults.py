"""Faults of worker processes: a module that Dask preloads into them, and that strikes at one call of one function."""

import json
from pathlib import Path
from typing import NamedTuple

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
# when the answer to this call has been sent
KILL_AFTERWARDS = "threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()"

_PRELOAD = """
import functools, importlib, itertools, os, signal, threading, time

def claim():
    for number in range({victims}):
        try:
            file = os.open({marks!r} + str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            continue
        os.write(file, str(os.getpid()).encode())
        os.close(file)
        return True
    return False

def faulty(function):
    calls = itertools.count(1)
    @functools.wraps(function)
    def wrapped(*given, **options):
        call = next(calls)
        if {strikes}:
            {act}
        return function(*given, **options)
    return wrapped

def dask_setup(worker):
    chosen = {once} or claim()
    if {target!r} in worker.handlers:
        worker.handlers[{target!r}] = faulty(worker.handlers[{target!r}])
        return
    module, _, path = {target!r}.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    if chosen:
        setattr(owner, name, faulty(getattr(owner, name)))
"""


class Fault(NamedTuple):
    """What happens, and where.

    Attributes
    ----------
    target : str
        ``module:function`` or ``module:Class.method`` as the workers look it up, or the name of a worker's handler.
    call : int
        The first call of a process that is struck.
    act : str
        A statement.
    once : bool
        In `victims` processes altogether, once in each; else at every call of that many chosen processes.
    victims : int
    """

    target: str
    call: int = 1
    act: str = KILL
    once: bool = True
    victims: int = 1

    def preload(self, folder: Path) -> dict[str, str]:
        """Write the module; return the environment in which Dask's workers load it."""
        strikes = f"call >= {self.call} and " + ("claim()" if self.once else "True")
        text = _PRELOAD.format(
            victims=self.victims, marks=str(folder / "struck-"), strikes=strikes, act=self.act, once=self.once,
            target=self.target,
        )  # fmt: skip
        (folder / "fault.py").write_text(text)
        return {"DASK_DISTRIBUTED__WORKER__PRELOAD": json.dumps([str(folder / "fault.py")])}

    def struck(self, folder: Path) -> list[int]:
        """Return the processes that were struck so far."""
        return [int(mark.read_text() or 0) for mark in sorted(folder.glob("struck-*"))]
