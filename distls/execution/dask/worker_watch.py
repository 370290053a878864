"""What the scheduler says of workers while a job goes on: who pauses, spills, is killed for memory, or is silent."""

import logging
import time
from collections.abc import Callable
from typing import Any

from distls.execution.memory_budget import human

_LOG = logging.getLogger(__name__)
_NAMED = 5  # of the workers that keep tasks from ending
LOOK_SECONDS = 2.0  # between two looks, which are two short messages
# After this time without the end of a task it is said what keeps them, if that is seen; after the other in any case.
TROUBLE_SECONDS, LONG_SECONDS = 60.0, 300.0
_RESTART_EVENTS = "worker-restart-memory"  # of nannies
# What the scheduler is asked while tasks are at work, here of nothing.
_ASKED_LATER: dict[str, dict[str, Any]] = {
    "ncores_running": {},
    "processing": {"workers": []},
    "get_task_status": {"keys": []},
    "who_has": {"keys": []},
}


class WorkerWatch:
    """Names workers that are short of memory, each once; `ask` puts a question to the scheduler."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask, self._looked = ask, 0.0
        self._workers: dict[str, Any] = {}
        # a worker's last sign of life -> when it was first seen
        self._heard: dict[tuple[str, float], float] = {}
        self._told: set[tuple[str, str]] = set()

    def look(self, *, again: bool = False) -> None:
        """Look at the workers, unless that was just done and is not asked for again."""
        before, now = self._workers, time.monotonic()
        if now - self._looked < LOOK_SECONDS and not again:
            return
        # a call that is refused ends a fit: before its first round, not hours later
        for question, given in _ASKED_LATER.items() if not before else ():
            self._ask(question, **given)
        self._workers, self._looked = self._ask("identity", n_workers=-1)["workers"], now
        seen = [(address, worker["last_seen"]) for address, worker in self._workers.items()]
        self._heard = {each: self._heard.get(each, now) for each in seen}
        for address, worker in self._workers.items():
            if worker["status"] == "paused":
                self._tell(address, "has paused and takes no tasks", _in_use(worker))
            # since its last sign of life: what others have there from before does not count
            recent = worker["metrics"].get("digests_total_since_heartbeat", ())
            if any("disk-write" in each for each in recent):
                self._tell(address, "moves what it is sent to its disk and back", _in_use(worker))
        for _, event in self._ask("events", topic=_RESTART_EVENTS):
            # those from before the first look are not of this job
            self._tell(event["worker"], "was killed for its memory", human(event["rss"]), aloud=bool(before))

    def _tell(self, worker: str, what: str, in_use: str, *, aloud: bool = True) -> None:
        if (worker, what) not in self._told and aloud:
            _LOG.warning(
                "worker %s %s: %s in use; give workers more memory (--memory-limit) or fewer threads, `distls plan` "
                "says what a fit needs",
                *(worker, what, in_use),
            )
        self._told.add((worker, what))

    def troubles(self, keys: set[str]) -> str:
        """Return what is seen to keep these tasks from ending."""
        found, processing = list[str](), self._ask("processing")
        for (address, _), heard in self._heard.items():
            worker, tasks = self._workers[address], processing.get(address, ())
            others, quiet = len(set(tasks) - keys), time.monotonic() - heard
            if worker["status"] != "running":
                found.append(f"worker {address} is {worker['status']}, {_in_use(worker)} in use")
            elif quiet > TROUBLE_SECONDS / 2:
                found.append(f"nothing was heard of worker {address} for {quiet:.0f} s")
            elif others >= worker["nthreads"] and others < len(tasks):
                found.append(f"worker {address} has {others} tasks of others")
        # of a thousand workers without a network the first few say enough
        more = f"; {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return "; ".join(found[:_NAMED]) + more


def _in_use(worker: Any) -> str:
    return f"{human(worker['metrics'].get('memory', 0))} of {human(worker['memory_limit'] or 0)}"


class Silence:
    """The time since a task has ended."""

    def __init__(self) -> None:
        self._since, self._next = time.monotonic(), TROUBLE_SECONDS

    def note(self, tasks: int, workers: int, troubles: Callable[[], str]) -> None:
        """Say that nothing goes on, and why, if that is so for long."""
        silent = time.monotonic() - self._since
        if silent >= self._next:
            self._next, found = silent + TROUBLE_SECONDS, troubles()
            if found or silent >= LONG_SECONDS:
                # Twice as long each time, so that a long night fills no log.
                self._next = 2 * silent
                _LOG.warning(
                    "no task has ended for %.0f minutes: %d wait or run on %d workers; %s (an interrupt saves the fit)",
                    *(silent / 60, tasks, workers, found or "they may be slow"),
                )
