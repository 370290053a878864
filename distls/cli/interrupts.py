"""Signals that end a command: the first raises one KeyboardInterrupt, a second stops the process at once.

Files are written under another name and renamed, so stopping at once loses nothing that was saved.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from distls.cli.output import let_go

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# The exit code.
INTERRUPTED = 3
# Signals within this time count as one: supervisors signal a process and again its group, people press twice, and
# the second must not destroy what is being saved after the first.
_SECONDS = 1.0
# Time to save and close after the first signal; the documented limit is ten seconds.
_PATIENCE_SECONDS = 9.0
# An exception inside the compiler would leave it unusable for saving, so an interrupt waits for it, up to a limit.
COMPILING_SECONDS = 2.0
_COMPILERS = ("numba.", "llvmlite.")
_RETRY_SECONDS = 0.01
_END = b"\0"


class Interrupts:
    """Treats SIGTERM and SIGHUP like Ctrl-C in a ``with`` block, and several signals at once like one.

    A second signal after a second, or nine seconds without an end, stop the process whatever the main thread does.
    Outside the main thread nothing changes, and ignored signals stay ignored.
    """

    def __enter__(self) -> None:
        self._raised, self._first = False, 0.0
        self._echoes: list[int] = []
        self._hook, self._before = sys.unraisablehook, dict[int, Any]()
        self._terminals = [number for number in (0, 1, 2) if os.isatty(number)]
        numbers = [signal.SIGTERM]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            numbers.append(signal.SIGINT)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            numbers.append(signal.SIGHUP)
        with contextlib.suppress(ValueError):
            for number in numbers:
                self._before[number] = signal.signal(number, self._interrupt)
        if self._before:
            self._listen()
        sys.unraisablehook = self._raise_again

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook
        self._raised = True
        if self._before:
            signal.set_wakeup_fd(self._wakeup_before)
            os.write(self._writing, _END)  # ends the listener
            self._listener.join()
            os.close(self._reading)
            os.close(self._writing)
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            let_go(*self._terminals)  # they are gone
        if self._raised:
            return
        self._first = self._first or time.monotonic()
        if _is_compiling(frame) and time.monotonic() - self._first < COMPILING_SECONDS:
            self._send_again()
            return
        self._raised = True
        raise KeyboardInterrupt

    def _raise_again(self, lost: UnraisableHookArgs) -> None:
        """Repeat an interrupt that was raised in a finalizer, where Python prints and drops exceptions."""
        if lost.exc_type is not KeyboardInterrupt:
            self._hook(lost)
        elif self._before:
            self._raised = False
            self._send_again()

    def _send_again(self) -> None:
        self._echoes.append(signal.SIGTERM)
        again = (threading.get_ident(), signal.SIGTERM)
        threading.Timer(_RETRY_SECONDS, signal.pthread_kill, again).start()

    def _listen(self) -> None:
        """Start a thread that receives signals too: the main thread handles them only between bytecodes."""
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._listener = threading.Thread(target=self._obey, name="interrupts", daemon=True)
        # a signal delivered to the listener would not interrupt a system call of the main thread
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(self._before))
        self._listener.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _obey(self) -> None:
        """Stop the process at a second signal, or if the first has not ended it in time."""
        first: float | None = None
        while True:
            left = None if first is None else max(first + _PATIENCE_SECONDS - time.monotonic(), 0.0)
            if not select.select([self._reading], [], [], left)[0]:
                _stop_at_once()
            heard = os.read(self._reading, 1)
            if heard == _END:
                return
            if heard[0] not in self._before:
                continue
            if self._echoes:  # sent by this process itself
                self._echoes.pop()
            elif first is None:
                first = time.monotonic()
            elif time.monotonic() - first >= _SECONDS:
                _stop_at_once()


def _is_compiling(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_COMPILERS):
            return True
        frame = frame.f_back
    return False


def _stop_at_once() -> NoReturn:
    # a live bar hides the cursor
    shown = "\x1b[?25h" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{shown}interrupted: stopped at once; what was saved is whole\n".encode())
    leave(INTERRUPTED)


def leave(code: int) -> NoReturn:
    """Kill all child processes and exit at once."""
    try:
        import psutil

        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
    finally:
        # whatever failed: there may be no memory, nor a file to open
        os._exit(code)


def forget_interrupts() -> None:
    """Let a process that handled its interrupts end with its exit code."""
    # after an interrupt inside an `exec`, as in imports, CPython ends ``python -m`` by the signal, until the next
    # `exec`
    exec("")


def refuse_interrupts() -> None:
    """Ignore signals in a process that is ending: they would print a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
