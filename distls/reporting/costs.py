"""Where the seconds and the memory of a run went, from its rounds."""

from collections.abc import Sequence
from typing import Any

from distls.clock import parts_of

# What the process-seconds of rounds are made of, in the order in which they are drawn.
SHARES = ("kernels", "waiting for data", "other work in tasks", "averaging in the driver", "outside tasks")


def seconds_of(events: Sequence[dict[str, Any]], before: float = 0.0) -> dict[str, float]:
    """Return the process-seconds of consecutive rounds by `SHARES`; `before` are the seconds until the first.

    Waiting for data is reading and decoding, as far as it is not hidden behind kernels. Outside of tasks are the
    driver, the network and workers without a task.
    """
    tasks = dict.fromkeys(SHARES, 0.0)
    if not events:
        return tasks
    workers = {name for event in events for name in event.get("worker_peaks", {})} or {"this process"}
    busy = 0.0
    for event in events:
        tasks["kernels"] += event["kernel_seconds"]
        tasks["waiting for data"] += event["wait_seconds"]
        busy -= event.get("compile_seconds", 0.0)  # no part of the rounds' seconds
        for name, seconds in event.get("worker_seconds", {}).items():
            if name in workers:
                busy += seconds
            else:
                tasks["averaging in the driver"] += seconds
    spent = tasks["kernels"] + tasks["waiting for data"]
    tasks["other work in tasks"] = max(0.0, busy - spent)
    wall = (round_seconds(events[-1]) - before) * len(workers)
    inside = max(busy, spent) + tasks["averaging in the driver"]
    tasks["outside tasks"] = max(0.0, wall - inside)
    return tasks


def round_seconds(event: dict[str, Any]) -> float:
    """Return the seconds of all rounds until this one."""
    # older runs counted nothing else
    parts = parts_of(event)
    return parts["read"] + parts["train"] if parts else float(event["seconds"])


def memory_of(events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the highest resident size of each worker process, by name."""
    peaks: dict[str, int] = {}
    for event in events:
        for name, size in event.get("worker_peaks", {}).items():
            peaks[name] = max(size, peaks.get(name, 0))
    return dict(sorted(peaks.items()))


def costs_of(events: Sequence[dict[str, Any]], status: dict[str, Any]) -> dict[str, Any]:
    """Return what a run has cost, as JSON values."""
    last = events[-1] if events else {}
    return {
        "seconds": status["seconds"] if status["seconds"] else last.get("seconds", 0.0),
        "parts": parts_of(last | status), "eval_seconds": last.get("eval_seconds", 0.0),
        "startup_seconds": status.get("startup_seconds"), "process_seconds": seconds_of(events),
        "worker_peaks": memory_of(events), "plan": status.get("plan"),
        "bytes_read": sum(event["bytes_read"] for event in events),
        "cached_bytes": sum(event["cached_bytes"] for event in events),
        "rows_read": sum(event["n_rows"] for event in events),
    }  # fmt: skip
