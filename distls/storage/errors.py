"""Errors raised on purpose, one class per kind of failure; a message says what failed, where, and what to do."""

import contextlib
from collections.abc import Iterator

from distls.facts import said


def printable(text: str) -> str:
    """Return one line of text with escapes in place of line breaks and of what a terminal or a browser obeys.

    Every name and content of a file passes it on its way out: into messages, results on stdout, pages.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class DistlsError(Exception):
    """Base of all errors that distls raises on purpose; its text is one line."""

    def __str__(self) -> str:
        return printable(said(super().__str__()))


class ParameterError(DistlsError, ValueError):
    """A parameter is unknown, unused by the method, or out of range."""


class BadInputError(DistlsError, ValueError):
    """A source file cannot be read as asked: file, line, offending text and rule."""


class FormatError(DistlsError, ValueError):
    """A path is not a dataset, model or run, or is of another format version."""


class IncompleteError(DistlsError):
    """A dataset or run was left half-written; the message says how to resume or remove it."""


class CorruptDataError(DistlsError):
    """Stored bytes are missing, truncated or changed: partition and array are named."""


class MismatchError(DistlsError, ValueError):
    """Two things that must agree (classes, widths, fingerprints, transforms, settings) do not."""


class MemoryPlanError(DistlsError):
    """The job cannot fit in the memory it was given; the message carries the numbers and the remedy."""


class StateLostError(DistlsError):
    """State that a solver keeps for each row is missing or damaged; it is recomputed from the weights."""


class StorageError(DistlsError, OSError):
    """The disk is full, a path is missing or may not be written."""


class WorkerError(DistlsError):
    """A cluster could not be reached, or its workers failed; the message names the worker and the cause."""


@contextlib.contextmanager
def needing(remedy: str, kind: type[DistlsError] = ParameterError) -> Iterator[None]:
    """Import what is optional in a ``with`` block, where its absence is an error that says what to install."""
    try:
        yield
    except ImportError:
        raise kind(remedy) from None
