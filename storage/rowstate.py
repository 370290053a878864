"""What a solver keeps for each row (predictions, residuals), in RUN/state: a file a partition and version.

A version is what a round has written; the one before it stays until the next round, so that a round can be done
again. Files are replaced whole, carry a checksum and are not synced: a solver can make them anew from its weights.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distls.storage.atomic import write_bytes
from distls.storage.bundle import parse_npy
from distls.storage.errors import StateLostError

__all__ = ["RowState"]

_KEPT_VERSIONS = 2
_CHECKSUM_BYTES = 4


class RowState:
    """The folder RUN/state, as a worker sees it.

    Parameters
    ----------
    folder : path
        Made when the first array is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def _path(self, index: int, version: int) -> Path:
        return self.folder / f"{index:08d}-{version:06d}.npy"

    def write(self, index: int, version: int, array: NDArray[Any]) -> None:
        """Keep the array of partition `index` as `version`, and forget all but the version before it."""
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        payload = buffer.getvalue()
        self.folder.mkdir(parents=True, exist_ok=True)
        checksum = google_crc32c.value(payload).to_bytes(_CHECKSUM_BYTES, "little")
        write_bytes(self._path(index, version), payload + checksum, sync=False)
        self._path(index, version - _KEPT_VERSIONS).unlink(missing_ok=True)

    def read(self, index: int, version: int) -> NDArray[Any]:
        """Return the array of partition `index` that was kept as `version`.

        Raises
        ------
        StateLostError
            It is not there, or not as it was written.
        """
        path = self._path(index, version)
        try:
            content = np.fromfile(path, np.uint8)
        except FileNotFoundError:
            raise StateLostError(f"{path}: missing") from None
        payload, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        sound = (
            google_crc32c.value(payload.tobytes()).to_bytes(_CHECKSUM_BYTES, "little") == checksum.tobytes()
        )
        array = parse_npy(payload) if sound else None
        if array is None:
            raise StateLostError(f"{path}: its bytes do not match its checksum")
        return array
