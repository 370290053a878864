"""One bar of work or of the rounds of fits: in a notebook an element of the cell, elsewhere rich's on stderr."""

from __future__ import annotations

import html
import sys
import time
from typing import TYPE_CHECKING, Any

from distls.storage.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID

_EVERY = 0.1  # seconds between two states of a cell


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    # who has not imported IPython is not in one
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def live_console() -> Console:
    """Return the terminal, in which names are text and no markup."""
    from rich.console import Console  # for a terminal alone

    stream = getattr(sys.stderr, "obeyed", sys.stderr)
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def terminal_bar(*columns: ProgressColumn, console: Console | None = None) -> Progress:
    """Return rich's bar with some columns between the bar and the time."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=24),
        *columns,
        TimeElapsedColumn(),
        console=console or live_console(),
    )


class Bar:
    """The bar of a call in Python and of work in commands; also a callback of a fit. `with` ends it."""

    def __init__(self) -> None:
        self._next, self._limit, self._said, self._last = 0.0, 0.0, "", ""
        self._cell: Any = None
        self._terminal: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._terminal is not None:
            self._terminal.stop()

    def __call__(self, done: float, total: float, what: str) -> None:
        """Show how much of some work is done."""
        self._show(what, done, total, what)

    def _show(self, work: str, done: float, total: float, text: str) -> None:
        if in_notebook():
            self._show_in_cell(done, total, text)
        else:
            self._show_in_terminal(work, done, total, text)

    def _show_in_terminal(self, work: str, done: float, total: float, text: str) -> None:
        if self._terminal is None:
            from rich.progress import TextColumn

            self._terminal = terminal_bar(TextColumn("{task.percentage:>3.0f} %"))
            self._terminal.start()
        if work not in self._tasks:
            self._tasks[work] = self._terminal.add_task("", total=None)
        self._terminal.update(self._tasks[work], description=printable(text), completed=done, total=total or None)

    def _show_in_cell(self, done: float, total: float, text: str) -> None:
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + _EVERY
        share = min(done / total, 1.0) if total else 0.0
        display = sys.modules["IPython"].display
        shown = display.HTML(f'<progress value="{share:.4f}"></progress> {html.escape(printable(text))}')
        if self._cell is None:
            self._cell = display.display(shown, display_id=True)
        else:
            self._cell.update(shown)

    def on_start(self, start: Any) -> None:
        """Note how long a fit may be."""
        self._limit, self._last = start.max_passes or 0.0, ""
        self._said = " ".join(filter(None, (start.method, start.what)))

    def on_round(self, event: Any) -> None:
        """Show a round."""
        done, loss = event.record["passes"], event.record["running_loss"]
        self._last = f"{self._said}: {done:g} passes" + ("" if loss is None else f", loss {loss:.5f}")
        self._show(self._said, done, self._limit, self._last)

    def on_end(self, status: Any, state: Any) -> None:
        """Show how the fit ended: unless it was interrupted nothing is left to do, however far the limit was."""
        done = status not in ("INTERRUPTED", "RUNNING")
        self._show(self._said, done, 1, f"{self._last or self._said}, {status}")
