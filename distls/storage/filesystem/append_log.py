"""A text file that grows by lines, such as the events of a run."""

import time

from distls.storage.filesystem.atomic import sync_file, write_bytes
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import read_bytes

_STORE_SECONDS = 1.0


class Lines:
    """Lines of a file, created with the first one; `limit` is the most bytes that are read.

    An object of a store cannot grow: it is rewritten, at most once a second and by `flush`.
    """

    def __init__(self, path: Place, limit: int | None = None) -> None:
        self.path, self._limit = path, limit
        self._lines: list[str] | None = None
        self._unsent, self._sent = False, 0.0

    def append(self, line: str) -> None:
        """Add one line, given without its end."""
        if not isinstance(self.path, StorePath):
            # Opened for each line: a crash loses at most the line being written.
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            self._unsent = True
            return
        if self._lines is None:
            self._lines = self.read()
        self._lines.append(line)
        self._unsent = True
        if time.monotonic() - self._sent >= _STORE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Make durable what was appended, or write it where an object store does not have it yet."""
        if not self._unsent:
            return
        if not isinstance(self.path, StorePath):
            sync_file(self.path)
        elif self._lines is not None:
            self.replace(self._lines)
        self._unsent = False

    def read(self) -> list[str]:
        """Return all whole lines, without their ends; a line cut off by a crash is left out."""
        # Readers of this process must see what was appended.
        if isinstance(self.path, StorePath):
            self.flush()
        return self._content().decode().split("\n")[:-1]

    def _content(self) -> bytes:
        try:
            return read_bytes(self.path, self.path.parent, limit=self._limit)
        except FileNotFoundError:
            return b""

    def replace(self, lines: list[str]) -> None:
        """Replace all lines, unless they are there already."""
        content = "".join(line + "\n" for line in lines).encode()
        if content != self._content():
            write_bytes(self.path, content)
        if isinstance(self.path, StorePath):
            self._lines, self._unsent, self._sent = list(lines), False, time.monotonic()
