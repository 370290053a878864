"""What functions that take long have in common: `workers`, `threads`, `memory_limit`, `progress`, as in commands."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, TypeVar, cast

from distls.execution import ClusterOptions, open_executor
from distls.execution.memory_budget import parse_bytes
from distls.progress_bar import Bar, in_notebook
from distls.storage.errors import ParameterError

F = TypeVar("F", bound=Callable[..., Any])

_DOCUMENTED = """workers, threads : int, optional
    Start so many processes on this machine for this call, of so many threads each.
memory_limit : int or str, optional
    Memory of each of them, such as "600MiB".
"""


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
        if given.get("scheduler") and "scheduler" not in known:  # an option of commands alone
            raise ParameterError("scheduler: client=dask.distributed.Client(ADDRESS) in Python")
        limit = worker_bytes(workers, threads, memory_limit)
        with _shown_progress(known, given):
            if workers is None and threads is None and memory_limit is None:
                return function(*args, **given)
            if given.get("executor") not in (None, "auto", "dask") or given.get("client") is not None:
                raise ParameterError("workers, threads and memory_limit start workers, executor and client have theirs")
            with open_executor(ClusterOptions("dask", workers, threads, limit)) as (executor, budget):
                if "memory" in known and given.get("memory") is None:
                    given["memory"] = budget
                return function(*args, **{**given, "executor": executor})

    shown = [each for each in known.values() if "Workers" not in str(each.annotation)]
    rest = [each for each in shown if each.kind is inspect.Parameter.VAR_KEYWORD]
    plain = [each for each in shown if each not in rest]
    made: Any = called
    made.__signature__ = signature.replace(parameters=[*plain, *own, *rest])
    text = inspect.cleandoc(made.__doc__ or "")  # as Python 3.13 has it
    made.__doc__ = re.sub(r"(?m)^(?=executor\b.* :|executor, )", _DOCUMENTED, text, count=1)
    return cast("F", made)


@contextlib.contextmanager
def _shown_progress(known: Any, given: dict[str, Any]) -> Iterator[None]:
    """Put a bar in place of `progress`, where one is wanted, and end it."""
    asked = given.get("progress")
    made = "progress" in known and not callable(asked) and (asked or (asked is None and in_notebook()))
    # a fit of data that are there has rounds alone, which callbacks see
    if callable(asked) and not isinstance(asked, Bar) and "callbacks" in known and "notify" not in known:
        raise ParameterError("progress: True or False; the rounds of a fit are for callbacks=")
    with Bar() if made else contextlib.nullcontext(False) as bar:
        if "progress" in known and not callable(asked):
            # not None, which a call within this one would take for its default
            given["progress"] = bar
        yield


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


def watchers(callbacks: Any, progress: Any) -> tuple[Any, ...]:
    """Return the callbacks of a fit, with the bar of its rounds if there is one."""
    return (*callbacks, progress) if isinstance(progress, Bar) else tuple(callbacks)
