"""Live progress on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from distls.execution.memory_budget import human
from distls.progress_bar import Bar, terminal_bar
from distls.solvers.events import Callback, FitStart, RoundEvent
from distls.storage.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from distls.solvers.solver import State
    from distls.solvers.status import Status

Report = Callable[[int, int, str], None]
_LONG = 3.0  # seconds of a stage before its first line


def fit_progress() -> Callback:
    """Return a live bar on a terminal, otherwise one line per round."""
    from distls.training.callbacks import LineProgress

    return BarProgress() if sys.stderr.isatty() else LineProgress()


class BarProgress(Callback):
    """A live bar: passes, running loss and error, objective, certificate, bytes read."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.progress import TextColumn

        self._bar = terminal_bar(
            TextColumn("{task.fields[passes]} passes"),
            TextColumn("{task.fields[facts]}", style="dim", markup=False),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}  # of the fits side by side
        self._bytes: dict[str, int] = {}
        self._running = 0

    def on_start(self, start: FitStart) -> None:
        """Show the bar of a fit."""
        self._running += 1
        self._bytes[start.what] = 0
        self._tasks[start.what] = self._bar.add_task(
            printable(" ".join(part for part in (start.method, start.dataset, start.what) if part)),
            total=start.max_passes,
            completed=int(start.passes),
            passes="0",
            facts=f"{start.n_rows:,} rows, {start.n_lanes} lanes, {start.n_slots} threads",
        )
        self._bar.start()

    def on_round(self, event: RoundEvent) -> None:
        """Move the bar."""
        from distls.training.callbacks import measures_text

        record = event.record
        self._bytes[event.what] += record["bytes_read"]
        self._bar.update(
            self._tasks[event.what],
            completed=record["passes"],
            passes=f"{record['passes']:g}",
            facts=f"{measures_text(record)}, read {human(self._bytes[event.what])}",
        )

    def on_end(self, status: Status, state: State) -> None:
        """Stop updating the bars, after the last fit."""
        self._running -= 1
        if not self._running:
            self._bar.stop()


@contextlib.contextmanager
def work_progress(quiet: bool) -> Iterator[Report | None]:
    """Yield a callable (done, total, what) that shows the progress of ingest, generate or predict."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with Bar() as bar:
        # not the bar itself, which would show the rounds of fits too
        yield bar.__call__


class _Lines:
    """Lines of stages that take more than some seconds, one every ten seconds."""

    def __init__(self) -> None:
        self._stage = ""
        self._next = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if what != self._stage:
            self._stage, self._next = what, now + _LONG
        # nothing done tells nothing
        if done and now >= self._next:
            self._next = now + 10
            print(f"{what}: {100 * done / max(total, 1):.0f} %", file=sys.stderr, flush=True)
