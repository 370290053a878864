"""Standard streams as commands use them: no text in them is obeyed by a terminal, and none of them ends a command."""

from __future__ import annotations

import atexit
import csv
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from distls import facts
from distls.storage.errors import StorageError, printable
from distls.storage.filesystem.atomic import describe_os_error

OK, FAILED = 0, 1
_REMEDY = "make room, or send it elsewhere"
_CLOSED = "cannot write to stdout: it is closed; send it elsewhere"


class Output:
    """A stream for text: what it cannot write is lost, not raised, and `failure` says why.

    A terminal sees escapes in place of control characters; `obeyed` is the same stream for the program's own ones.
    """

    def __init__(self, stream: Any, shown: Callable[[str], str] = printable) -> None:
        self._stream, self._shown = stream, shown
        self.failure: Exception | None = None
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def obeyed(self) -> Output:
        """The stream as a live bar uses it, whose control characters a terminal obeys."""
        return Output(self._stream, str)

    def write(self, text: str) -> int:
        """Write a text, with its line ends."""
        self.attempt(self._stream.write, "\n".join(map(self._shown, text.split("\n"))))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self.attempt(self._stream.flush)

    def attempt(self, act: Callable[..., object], *given: Any) -> None:
        """Do something with the stream; keep why it fails."""
        try:
            act(*given)
        except (OSError, ValueError) as error:
            if self.failure is None:
                # what is left in its buffer would fail once more at the interpreter's end, with a traceback
                atexit.register(lambda: let_go(self._stream.fileno()))
            self.failure = error


def let_go(*numbers: int) -> None:
    """Connect streams with nothing, where writing to them raises an error."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(nowhere, number)
    os.close(nowhere)


def guard_streams() -> None:
    """Make the standard streams ones that can be used, however the process was started, for messages with options."""
    facts.as_keywords = False
    for name in ("stdin", "stdout", "stderr"):
        # in this order each takes the number of the closed one, which a file of ours would otherwise have; writing to
        # what is open for reading fails, as it should
        stream = getattr(sys, name) or open(os.devnull, encoding="utf-8")  # noqa: SIM115
        guarded = name == "stdin" or isinstance(stream, Output)
        setattr(sys, name, stream if guarded else Output(stream))


def show(lines: Iterable[str], *, needed: bool = True) -> None:
    """Print lines on stdout. What is `needed` is the product of the command: it fails if they cannot be written."""
    print(*map(printable, lines), sep="\n", flush=True)
    if needed and (code := unwritten()):
        raise click.exceptions.Exit(code)


def unwritten() -> int:
    """Return OK, or FAILED if stdout could not be written, and say why unless its reader has gone."""
    failure = getattr(sys.stdout, "failure", None)
    if isinstance(failure, io.UnsupportedOperation):  # of the stream in place of a closed one
        return say(f"distls: {_CLOSED}", FAILED)
    if isinstance(failure, OSError) and not isinstance(failure, BrokenPipeError):
        return say(f"distls: {describe_os_error(failure, 'cannot write to stdout', _REMEDY)}", FAILED)
    return FAILED if failure else OK


def say(text: str, code: int) -> int:
    """Print one line on stderr and return `code`."""
    print(printable(text.replace("\n", " ")), file=sys.stderr, flush=True)
    return code


def note(text: str) -> None:
    """Print a notice on stderr."""
    say(f"note: {text}", OK)


def silent(_text: str) -> None:
    """Print nothing."""


def check_stdout() -> None:
    """Raise StorageError where nothing can be written, before there is something."""
    if not sys.stdout.writable():
        raise StorageError(_CLOSED)


def show_table(path: Path) -> None:
    """Copy a CSV file to stdout, as its bytes; on a terminal with escapes in its fields."""
    assert isinstance(sys.stdout, Output)
    if sys.stdout.isatty():
        csv.field_size_limit(sys.maxsize)  # a set of labels may be long
        with path.open(encoding="utf-8", newline="") as text:
            shown = ([printable(field) for field in record] for record in csv.reader(text))
            csv.writer(sys.stdout, lineterminator="\n").writerows(shown)
    else:
        with path.open("rb") as file:
            sys.stdout.attempt(shutil.copyfileobj, file, sys.stdout.buffer)
    sys.stdout.flush()
    if code := unwritten():
        raise click.exceptions.Exit(code)
