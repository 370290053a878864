"""A line while kernels are compiled, which takes a minute at the first fit on a machine, and is silent otherwise."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time

_LOG = logging.getLogger(__name__)
_VARIABLE = "DISTLS_COMPILING_NOTICE"
_PATIENCE_SECONDS = 1.0
_TEXT = "compiling kernels, once for this machine; this takes from seconds to a minute ..."


class CompilingNotice:
    """Logs the line once, when this process has compiled for a second, unless another process has said it.

    Silent where the environment has ``DISTLS_COMPILING_NOTICE=0``, as commands with ``--quiet`` have.
    """

    def __init__(self) -> None:
        self._spent, self._began, self._told = 0.0, 0.0, False
        self._timer: threading.Timer | None = None
        self._lock: int | None = None

    def begin(self, folder: str) -> None:
        """Note that a kernel whose results are kept in `folder` is being compiled."""
        if self._told or self._timer is not None:
            return
        self._began = time.monotonic()
        self._timer = threading.Timer(max(_PATIENCE_SECONDS - self._spent, 0.0), self._tell, (folder,))
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Note that it is compiled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._began

    def _tell(self, folder: str) -> None:
        self._told = True
        if os.environ.get(_VARIABLE, "1") != "0" and self._is_first(folder):
            _LOG.warning(_TEXT)

    def _is_first(self, folder: str) -> bool:
        """Return whether no other living process has said it; workers of a cluster compile at the same time."""
        try:
            self._lock = os.open(
                os.path.join(folder, "notice.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
        return True
