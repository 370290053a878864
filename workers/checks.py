"""What every worker verifies before a job starts."""

from __future__ import annotations

import uuid
from pathlib import Path

from distls.storage.dataset import open_dataset
from distls.storage.errors import DistlsError
from distls.workers.buffers import release_buffers

__all__ = ["trouble_with"]


def trouble_with(job: tuple[str, str, str | None]) -> str | None:
    """Return what keeps this process from doing its share, or None.

    Parameters
    ----------
    job : (dataset path, its fingerprint, run folder or None)
    """
    path, fingerprint, run = job
    release_buffers()  # those of an earlier job are not in this one's plan
    try:
        found = open_dataset(path).fingerprint
    except DistlsError as error:
        return str(error)
    if found != fingerprint:
        return f"{path}: sees a data set with fingerprint {found[:12]}, the job expects {fingerprint[:12]}"
    if run is None:
        return None
    probe = Path(run) / f".probe-{uuid.uuid4().hex[:8]}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        return f"{run}: cannot be written ({error.strerror})"
    return None
