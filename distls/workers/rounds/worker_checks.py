"""The checks of every worker before a job starts."""

import uuid

from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import DistlsError
from distls.storage.filesystem.atomic import write_bytes
from distls.storage.filesystem.paths import place_of
from distls.workers.rounds.block_stream import DatasetRef, columns_of
from distls.workers.runtime.buffers import release_buffers


def access_error(job: tuple[DatasetRef, str | None]) -> str | None:
    """Return why this process cannot take part in a job (dataset; run folder or None), or None."""
    ref, run = job
    release_buffers()  # the memory plan of this job does not include those of an earlier one
    # Opened by itself, not through the cache: what this worker sees now counts.
    try:
        dataset = open_dataset(ref.path)
        found = dataset.fingerprint
        if found != ref.fingerprint:
            return f"{ref.path}: sees a data set with fingerprint {found[:12]}, the job expects {ref.fingerprint[:12]}"
        if ref.columns:
            columns_of(dataset, ref)
    except DistlsError as error:  # as it is: the process of the caller knows its reader
        return str(error.args[0])
    if run is None:
        return None
    # A name of its own: all workers probe at the same time.
    probe = place_of(run) / f".probe-{uuid.uuid4().hex[:8]}"
    try:
        write_bytes(probe, b"", sync=False)
        probe.unlink()
    except DistlsError as error:
        return str(error.args[0])
    except OSError as error:
        return f"{run}: cannot be written ({error.strerror})"
    return None
