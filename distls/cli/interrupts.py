"""Signals that end a command: each becomes one KeyboardInterrupt, which nothing swallows."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["Interrupts", "forget_interrupts", "refuse_interrupts"]

# Signals that follow each other within this time mean the same.
_SECONDS = 1.0
_RETRY_SECONDS = 0.01


class Interrupts:
    """For a ``with`` block, treat SIGTERM like Ctrl-C, and several of them at once like one.

    Supervisors send both, to a process and again to its group; people press twice. What is being saved after the first
    must not be lost to the second. Outside the main thread, and where Ctrl-C is ignored, that stays as it is.
    """

    def __enter__(self) -> None:
        self._last = -math.inf
        self._hook, self._before = sys.unraisablehook, dict[int, Any]()
        numbers = [signal.SIGTERM]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            numbers.append(signal.SIGINT)
        with contextlib.suppress(ValueError):
            for number in numbers:
                self._before[number] = signal.signal(number, self._interrupt)
        sys.unraisablehook = self._raise_again

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        since, self._last = time.monotonic() - self._last, time.monotonic()
        if since >= _SECONDS:
            raise KeyboardInterrupt

    def _raise_again(self, lost: UnraisableHookArgs) -> None:
        """Interrupt once more what was interrupted in a finalizer, where Python prints exceptions and goes on."""
        if lost.exc_type is not KeyboardInterrupt:
            self._hook(lost)
        elif self._before:
            self._last = -math.inf
            again = (threading.get_ident(), signal.SIGTERM)
            threading.Timer(_RETRY_SECONDS, signal.pthread_kill, again).start()


def forget_interrupts() -> None:
    """Let a process that handled its interrupts end with its exit code.

    After one inside of an `exec`, of which imports are full, CPython would end ``python -m`` by the signal; until the
    next `exec`.
    """
    exec("")


def refuse_interrupts() -> None:
    """Ignore signals in a process that ends anyway: they would be answered with a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
