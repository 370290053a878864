"""Seconds of the user: wall time since the command, or the call of the library, began."""

import os
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

_BEGAN: ContextVar[float | None] = ContextVar("began", default=None)
# Seconds in which this fit has had kernels compiled or loaded: those of a search are no part of its certificate.
_LOADING: ContextVar[float] = ContextVar("loading", default=0.0)

# What the seconds of a fit are made of, by the names of their fields in its record; what is left is "write".
PARTS = {
    "start_seconds": "start",
    "ingest_seconds": "ingest",
    "cv_seconds": "cross-validation",
    "startup_seconds": "compile",
    "read_seconds": "read",
    "train_seconds": "train",
    "eval_seconds": "evaluate",
}


def began() -> float:
    """Return when the command began, by `time.perf_counter`; now, where nothing has said so."""
    known = _BEGAN.get()
    return time.perf_counter() if known is None else known


def loading() -> float:
    """Return the seconds in which kernels were compiled or loaded for this fit so far."""
    return _LOADING.get()


def loaded(seconds: float) -> None:
    """Count seconds in which kernels were compiled or loaded."""
    _LOADING.set(_LOADING.get() + seconds)


def begin_with_process() -> None:
    """Let the command have begun when this process was started: the imports are the user's seconds too."""
    begin(_age_of_process())


def begin(seconds_ago: float = 0.0) -> None:
    """Let the command have begun so many seconds ago: one of several parts has a clock of its own."""
    _BEGAN.set(time.perf_counter() - seconds_ago)


def _age_of_process() -> float:
    """Return the seconds since this process was started."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])  # since the machine was started
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        import psutil

        # by the calendar's clock, which on Linux is no better than a second
        return time.time() - psutil.Process().create_time()


def parts_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what the seconds of a fit were spent on; nothing where its record, an older one, does not say."""
    if "train_seconds" not in record:
        return {}
    parts = {name: float(record.get(field) or 0.0) for field, name in PARTS.items()}
    # What nobody has claimed: checkpoints, events and the model, and the end of workers.
    parts["write"] = max(0.0, record["seconds"] - sum(parts.values()))
    return parts


def seconds_text(record: Mapping[str, Any]) -> str:
    """Return the seconds of a fit with their parts for a reader."""
    parts, whole = parts_text(record), f"{record['seconds']:.1f} s"
    # older runs have counted nothing else
    return f"{whole}: {parts}" if parts_of(record) else f"{whole} of training"


def parts_text(record: Mapping[str, Any]) -> str:
    """Return the same for a reader, without what took no time."""
    shown = {name: f"{seconds:,.1f}" for name, seconds in parts_of(record).items()}
    return ", ".join(f"{name} {text}" for name, text in shown.items() if text != "0.0")
