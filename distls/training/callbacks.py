"""Callbacks of a fit: records, the event log, checkpoints, a line a round."""

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from distls.facts import Fact, Shown, percent
from distls.solvers.events import Callback, FitStart, RoundEvent
from distls.solvers.loop import Progress, Standing
from distls.solvers.solver import State
from distls.solvers.status import Record, Status
from distls.storage.errors import printable
from distls.training.fit_facts import LOOSE, judged_fact, objective_fact
from distls.training.run_folder import Run

_FIRST_ROUNDS = 20  # that each have a line of progress: of all fits of a run together


@dataclass(repr=False)
class History(Shown, Callback):
    """Keeps every round's record."""

    records: list[Record] = field(default_factory=list)

    def on_round(self, event: RoundEvent) -> None:
        """Keep the record."""
        self.records.append(event.record)

    def facts(self) -> list[Fact]:
        """Return the number of records, and what the last one has of the fit."""
        last = self.records[-1] if self.records else {}
        known = ("passes", "running_loss", "objective", "eval_error")
        told = [name for name in known if last.get(name) is not None]
        rounds = Fact("rounds", len(self.records), ",")
        return [rounds, *(Fact(name.replace("_", " "), last[name], ".6g") for name in told)]


class EventLog(Callback):
    """Appends every round's record to the run's ``events.jsonl``."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_round(self, event: RoundEvent) -> None:
        """Append the record."""
        # As it is: the event log is the run's own record.
        self._run.append_event(event.record)

    def on_end(self, status: Status, state: State) -> None:
        """Write buffered events to an object store."""
        self._run.flush_events()


class Checkpointer(Callback):
    """Saves the state every `seconds` (0: after every round), and when a fit was ended by what will not recur."""

    def __init__(self, run: Run, seconds: float = 30.0, saved: Callable[[State], None] = lambda state: None) -> None:
        self._run, self._seconds, self._saved = run, seconds, saved
        self._last = time.monotonic()
        self._done: Standing[State] | None = None

    def on_round(self, event: RoundEvent) -> None:
        """Save when it is time."""
        done = Standing(event.state, Progress(**event.progress), event.record, event.best)
        # At the end of a round only: a checkpoint inside of one would have to be thrown away.
        if time.monotonic() - self._last >= self._seconds:
            self.save(done)
        # last: an interrupt meanwhile ends the fit with the round before
        self._done = done

    def on_end(self, status: Status, state: State) -> None:
        """Save what an interrupt would lose, or another clock end elsewhere."""
        # Before the first round there is nothing to save.
        if self._done is not None and status in (Status.INTERRUPTED, Status.MAX_SECONDS):
            self.save(self._done)

    def save(self, done: Standing[State]) -> None:
        """Write a checkpoint now."""
        self._run.save_checkpoint(done)
        self._saved(done.state)
        self._last = time.monotonic()


class LineProgress(Callback):
    """Lines for logs and pipes: each of the first rounds and the last, else one a second."""

    def __init__(
        self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic, every: float = 1.0
    ) -> None:
        self._stream = stream or sys.stderr  # None where it was closed before the start
        self._clock, self._every = clock, every
        self._rounds, self._last = 0, clock()
        self._held: dict[str, Record] = {}  # the newest round of each fit, if it was not printed
        self._running, self._named = 0, False

    def on_start(self, start: FitStart) -> None:
        """Print the setting of the fit."""
        self._running += 1
        self._named = self._running > 1  # fits side by side, whose rounds alternate
        limit = "" if start.max_passes is None else f", passes {start.max_passes:g} at most"
        used = f"; {start.n_lanes} of {start.n_slots} threads are used, `distls plan` says why"
        idle = used if start.n_lanes < start.n_slots else ""
        which = f", {start.what}" if start.what else ""
        self._say(
            f"{start.method} ({start.loss}){which}: {start.n_rows:,} rows of {start.dataset}, lanes {start.n_lanes}, "
            f"worker threads {start.n_slots}{limit}{idle}"
        )

    def on_round(self, event: RoundEvent) -> None:
        """Print the round, if it is one of the first or the last line was long ago."""
        self._rounds += 1
        self._held[event.what] = event.record
        # Early rounds one by one: they show whether a setting makes sense.
        if self._rounds <= _FIRST_ROUNDS or self._clock() - self._last >= self._every:
            self._print(event.what)

    def on_end(self, status: Status, state: State) -> None:
        """Print the last round, unless that was done."""
        self._running -= 1
        for what in list(self._held):
            self._print(what)

    def _print(self, what: str) -> None:
        name = f"{what}: " if self._named else ""
        self._say(f"{name}{describe_round(self._held.pop(what))}")
        self._last = self._clock()

    def _say(self, text: str) -> None:
        # a log that is full, closed or without a reader costs no round
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                print(printable(text), file=self._stream, flush=True)


def describe_round(record: Record) -> str:
    """Return one round's record as a line."""
    clock = f"round {record['round']}, {record['passes']:.2f} passes, {record['seconds']:.1f} s"
    return f"{clock}, running {measures_text(record)}, read {record['bytes_read'] / 2**20:,.0f} MiB"


def measures_text(record: Record) -> str:
    """Return what a round measured: loss, error, objective, certificate, and the result on the evaluation data."""
    wrong = record.get("running_error")
    error = "" if wrong is None else f" error {percent(wrong)}"
    parts = [f"loss {_number(record['running_loss'])}{error}"]
    if "objective" in record:
        certificate, finite = record["certificate"], record["objective"] is not None
        parts.append(objective_fact(record).said if finite else "objective not finite")
        if certificate["value"] is not None:
            share = f" ({100 * certificate['relative']:.2g} %)" if "relative" in certificate else ""
            if certificate.get("relative", 0.0) <= LOOSE:
                parts.append(f"{certificate['kind']} {certificate['value']:.2e}{share}")
    if "eval_error" in record:
        parts.append(eval_text(record))
    return ", ".join(parts)


def eval_text(record: Record) -> str:
    """Return the result on the evaluation data."""
    return f"eval {judged_fact(record, 'eval').said}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.5f}"
