"""``-`` in place of a file: standard input as a source, predictions to standard output."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence

from distls.storage.errors import BadInputError, DistlsError
from distls.storage.filesystem.memory_folder import temporary_folder
from distls.storage.filesystem.paths import Place

__all__ = ["STREAM", "from_stdin", "to_stdout"]

STREAM = "-"


@contextlib.contextmanager
def from_stdin(data: Sequence[Place]) -> Iterator[tuple[Place, ...]]:
    """Yield `data` with a temporary copy of standard input in place of ``-``, which messages call stdin."""
    if not any(_is_stream(path) for path in data):
        yield tuple(data)
        return
    with temporary_folder("distls-stdin-", None) as folder:
        copy = folder / "stdin"
        # recognised like any file: it is read more than once
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not copy.stat().st_size:
            raise BadInputError("stdin: no data")
        try:
            yield tuple(copy if _is_stream(path) else path for path in data)
        except DistlsError as error:
            if str(copy) not in str(error):
                raise
            raise type(error)(str(error).replace(str(copy), "stdin")) from None


@contextlib.contextmanager
def to_stdout(out: Place) -> Iterator[Place]:
    """Yield `out`, or in place of ``-`` a temporary CSV file that is copied to standard output at the end."""
    if not _is_stream(out):
        yield out
        return
    with temporary_folder("distls-stdout-", None) as folder:
        copy = folder / "predictions.csv"
        yield copy
        sys.stdout.flush()
        with copy.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _is_stream(path: Place) -> bool:
    return str(path) == STREAM
