"""Storage that fails now and then: a read that went wrong is tried again before it is believed."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from distls.storage.errors import CorruptDataError, StorageError
from distls.storage.filesystem.paths import Place

__all__ = ["read_patiently"]

Read = TypeVar("Read")

_LOG = logging.getLogger(__name__)
# Seconds before the second and before the third attempt where storage failed.
_WAITS = (0.05, 0.5)
# What another attempt finds again.
_LASTING = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


def read_patiently(read: Callable[[], Read], what: Place) -> Read:
    """Return `read()`, tried again where storage failed (three times in all) or the bytes were wrong (once).

    A read that was torn on its way looks like damage; damage is there the second time too.

    Parameters
    ----------
    read : callable
        Opens the file anew: a stale handle stays stale.
    what : Place
        For the note in the log, which is written when another attempt succeeded.

    Raises
    ------
    OSError, CorruptDataError
        The last attempt's.
    """
    failed: Exception | None = None
    for wait in (*_WAITS, None):
        try:
            result = read()
        except (OSError, CorruptDataError) as error:
            if wait is None or _lasts(error, failed):
                raise
            failed = error
            if isinstance(error, OSError):
                time.sleep(wait)
        else:
            if failed is not None:
                _LOG.warning("%s: read again, and well, after: %s", what, failed)
            return result
    raise AssertionError("unreachable")


def _lasts(error: Exception, before: Exception | None) -> bool:
    if isinstance(error, CorruptDataError):
        return isinstance(before, CorruptDataError)
    # an object store has been asked for long enough
    return isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in _LASTING)
