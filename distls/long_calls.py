"""What functions that take long have in common: `workers`, `threads`, `memory_limit`, `progress`, as in commands."""

from __future__ import annotations

import functools
import html
import inspect
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, cast

from distls.execution import ClusterOptions, open_executor
from distls.execution.memory_budget import parse_bytes
from distls.storage.errors import ParameterError, printable

F = TypeVar("F", bound=Callable[..., Any])

_DOCUMENTED = """    workers, threads : int, optional
        Start so many processes on this machine for this call, of so many threads each.
    memory_limit : int or str, optional
        Memory of each of them, such as "600MiB".
"""
_EVERY = 0.1  # seconds between two states of a bar


class Workers(TypedDict, total=False):
    """Workers that a call starts for itself, for type checkers."""

    workers: int | None
    threads: int | None
    memory_limit: int | str | None


def long_call(function: F) -> F:
    """Let a function with an `executor` start workers of its own, and show its progress.

    `progress` is a callable of (done, total, what); True stands for a bar, False for none; the default is a bar in
    notebooks.
    """
    signature = inspect.signature(function)
    known = signature.parameters
    keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY, default=None)
    own = [keyword(name, annotation=kind) for name, kind in Workers.__annotations__.items()]

    @functools.wraps(function)
    def called(
        *args: Any,
        workers: int | None = None,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        **given: Any,
    ) -> Any:
        _show_progress(known, given)
        if given.get("scheduler") and "scheduler" not in known:  # an option of commands alone
            raise ParameterError("scheduler: client=dask.distributed.Client(ADDRESS) in Python")
        limit = worker_bytes(workers, threads, memory_limit)
        if workers is None and threads is None and memory_limit is None:
            return function(*args, **given)
        if given.get("executor") not in (None, "auto", "dask") or given.get("client") is not None:
            raise ParameterError(
                "workers, threads and memory_limit start workers, executor and client have theirs"
            )
        with open_executor(ClusterOptions("dask", workers, threads, limit)) as (executor, budget):
            if "memory" in known and given.get("memory") is None:
                given["memory"] = budget
            return function(*args, **{**given, "executor": executor})

    shown = [each for each in known.values() if "Workers" not in str(each.annotation)]
    rest = [each for each in shown if each.kind is inspect.Parameter.VAR_KEYWORD]
    plain = [each for each in shown if each not in rest]
    made: Any = called
    made.__signature__ = signature.replace(parameters=[*plain, *own, *rest])
    made.__doc__ = re.sub(
        r"(?m)^(?=    executor\b.* :|    executor, )", _DOCUMENTED, made.__doc__ or "", count=1
    )
    return cast("F", made)


def _show_progress(known: Any, given: dict[str, Any]) -> None:
    """Put a bar in place of `progress`, where one is wanted."""
    asked = given.get("progress")
    if "progress" not in known or isinstance(asked, Bar):
        return
    if callable(asked):
        # a fit of data that are there has rounds alone, which callbacks see
        if "callbacks" in known and "notify" not in known:
            raise ParameterError("progress: True or False; the rounds of a fit are for callbacks=")
        return
    # not None, which a call within this one would take for its default
    given["progress"] = Bar() if asked or (asked is None and in_notebook()) else False


def worker_bytes(workers: int | None, threads: int | None, memory_limit: int | str | None) -> int | None:
    """Return the memory of each worker in bytes; raise ParameterError for what workers cannot have."""
    limit: int | None = parsed("memory_limit", parse_bytes, memory_limit)
    for name, number in (("workers", workers), ("threads", threads), ("memory_limit", limit)):
        if number is not None and number < 1:
            raise ParameterError(f"{name}={number}: must be at least 1")
    return limit


def parsed(name: str, parse: Callable[[str], Any], given: Any) -> Any:
    """Return what a text says, or what is not a text as it is; raise ParameterError if it cannot be parsed."""
    try:
        return parse(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ParameterError(f"{name}: {error}") from None


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    # who has not imported IPython is not in one
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def watchers(callbacks: Any, progress: Any) -> tuple[Any, ...]:
    """Return the callbacks of a fit, with the bar of its rounds if there is one."""
    return (*callbacks, progress) if isinstance(progress, Bar) else tuple(callbacks)


class Bar:
    """A bar in a notebook, elsewhere a line of stderr that is written over; also a callback of a fit."""

    def __init__(self) -> None:
        self._next, self._limit, self._said, self._last = 0.0, 0.0, "", ""
        self._cell: Any = None

    def __call__(self, done: float, total: float, what: str) -> None:
        """Show how much of some work is done."""
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + _EVERY
        share = min(done / total, 1.0) if total else 0.0
        if not in_notebook():
            print(
                f"\r{printable(what)}: {share:4.0%}\033[K",
                end="\n" if done >= total else "",
                file=sys.stderr,
                flush=True,
            )
            return
        display = sys.modules["IPython"].display
        shown = display.HTML(f'<progress value="{share:.4f}"></progress> {html.escape(printable(what))}')
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
        self(done, self._limit, self._last)

    def on_end(self, status: Any, state: Any) -> None:
        """Show how the fit ended: unless it was interrupted nothing is left to do, however far the limit was."""
        self(status != "INTERRUPTED", 1, f"{self._last or self._said}, {status}")
