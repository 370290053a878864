"""What the scheduler says of workers while a job goes on: who pauses, spills or is killed for memory, who is silent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from distls.execution.memory_budget import human

_LOG = logging.getLogger(__name__)
# Between two looks at the workers, which are two short messages.
LOOK_SECONDS = 2.0
# After this time without the end of a task it is said what keeps them, if that is seen; after the other one in any
# case, and then after twice as long each time.
TROUBLE_SECONDS, LONG_SECONDS = 60.0, 300.0
_MORE = "give the workers more memory (--memory-limit) or fewer threads; `distls plan` says what a fit needs"


class WorkerWatch:
    """Looks at the workers of a scheduler; each thing that it finds out of one is said once."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask  # a question of the scheduler, which may raise what a cut connection does
        self._workers: dict[str, Any] = {}
        self._told: set[tuple[str, str]] = set()
        # Of each worker: bytes that it had on disk before; its last sign of life, and when that was first seen.
        self._spilled: dict[str, int] = {}
        self._heard: dict[str, tuple[float, float]] = {}
        self._looked, self._newest = 0.0, -1.0

    def look(self) -> None:
        """Look at the workers, unless that was just done."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._workers = self._ask("identity", n_workers=-1)["workers"]
        for address, worker in self._workers.items():
            self._note(address, worker, now)
        killed = self._ask("events", topic="worker-restart-memory")
        for when, event in killed:
            # those from before the first look were not ours
            if when > self._newest >= 0:
                used = f"{human(event['rss'])} were in use, near its limit"
                self._tell(
                    event["worker"], f"was killed for its memory ({used}); its work is redone: {_MORE}"
                )
        self._newest = max([self._newest, 0.0, *(when for when, _ in killed)])

    def _note(self, address: str, worker: Mapping[str, Any], now: float) -> None:
        if self._heard.get(address, (0.0, 0.0))[0] != worker["last_seen"]:
            self._heard[address] = worker["last_seen"], now
        if worker["status"] == "paused":
            self._tell(address, f"has paused, and takes no tasks: {_full(worker)}; {_MORE}")
        spilled = worker["metrics"].get("spilled_bytes", {}).get("disk", 0)
        if spilled > self._spilled.setdefault(address, spilled):
            self._tell(
                address, f"writes what it is sent to its disk, which is slow: {_full(worker)}; {_MORE}"
            )

    def _tell(self, worker: str, what: str) -> None:
        # by the first words: the numbers change
        if (worker, what[:10]) not in self._told:
            self._told.add((worker, what[:10]))
            _LOG.warning("worker %s %s", worker, what)

    def troubles(self, keys: set[str]) -> list[str]:
        """Return what is known to keep these tasks from ending."""
        found, now = list[str](), time.monotonic()
        for address, ours in self._ask("processing").items():
            worker, heard = self._workers.get(address), self._heard.get(address, (0.0, now))[1]
            if worker is not None and worker["status"] != "running":
                found.append(f"worker {address} is {worker['status']} ({_full(worker)})")
            elif worker is None or not keys & set(ours):
                continue
            elif now - heard > TROUBLE_SECONDS / 2:
                found.append(f"nothing was heard of worker {address} for {now - heard:.0f} s")
            elif len(others := set(ours) - keys) >= worker["nthreads"]:
                found.append(f"worker {address} has {len(others)} tasks of others")
        return found


def _full(worker: Mapping[str, Any]) -> str:
    limit = worker["memory_limit"]
    return human(worker["metrics"].get("memory", 0)) + (f" of its {human(limit)} are in use" if limit else "")


class Silence:
    """The time since a task has ended."""

    def __init__(self) -> None:
        self._since, self._next = time.monotonic(), TROUBLE_SECONDS

    def note(self, tasks: int, workers: int, troubles: Callable[[], list[str]]) -> None:
        """Say that nothing goes on, and why, if that is so for long."""
        silent = time.monotonic() - self._since
        if silent < self._next:
            return
        found = troubles()
        # Twice as long each time, so that a long night fills no log; a task may take its time.
        self._next = 2 * silent if found or silent >= LONG_SECONDS else silent + TROUBLE_SECONDS
        if found or silent >= LONG_SECONDS:
            _LOG.warning(
                "no task has ended for %.0f minutes: %d of them wait or run on %d workers; %s; an interrupt saves the "
                "last round",
                *(silent / 60, tasks, workers, "; ".join(found) or "they may be slow"),
            )
