"""Retries of reads from storage that fails occasionally."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from distls.storage.errors import CorruptDataError, StorageError
from distls.storage.filesystem.paths import Place

Read = TypeVar("Read")

_LOG = logging.getLogger(__name__)
_WAITS = (0.05, 0.5)  # seconds before the second and the third attempt
# errors that do not go away
_LASTING = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


def read_with_retries(read: Callable[[], Read], what: Place, *, of_store: bool = False) -> Read:
    """Return `read()`, retried if storage failed (three attempts in all) or the bytes were wrong (two).

    With `of_store` wrong bytes are waited for like a failure: a store may list for a moment only some of its objects.
    `read` must open the file itself, as a stale handle stays stale. Raises the last attempt's OSError or
    CorruptDataError.
    """
    failed: Exception | None = None
    for wait in (*_WAITS, None):
        try:
            result = read()
        except (OSError, CorruptDataError) as error:
            if wait is None or _lasts(error, None if of_store else failed):
                raise
            failed = error
            if of_store or isinstance(error, OSError):
                time.sleep(wait)
        else:
            if failed is not None:
                _LOG.warning("%s: read again, and well, after: %s", what, failed)
            return result
    raise AssertionError("unreachable")


def _lasts(error: Exception, before: Exception | None) -> bool:
    # a torn read looks like damage; damage is found the second time too
    if isinstance(error, CorruptDataError):
        return isinstance(before, CorruptDataError)
    # requests of object stores have retries of their own
    return isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in _LASTING)
