"""The public function `append`: more rows for a data set, in its own place.

The new rows are ingested like the data set into a folder in it. Then a second data set is put together beside it, whose
stored rows are hard links to the files of both; it takes the name in one step, so that at any moment the data set is
that before or that after.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from distls.execution import executor_of
from distls.ingestion.dataset_facts import IngestReport
from distls.ingestion.ingest import ingest
from distls.long_calls import long_call
from distls.storage.dataset.dataset import STAGING, Dataset, open_dataset
from distls.storage.dataset.extension import digest_of_rows, extend
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.filesystem.atomic import os_errors_described, remove_tree, sweep
from distls.storage.filesystem.locks import DATASET_LOCK, locked
from distls.storage.filesystem.paths import Place, StorePath, place_of

_ADDED = ".append"  # where new rows are ingested
_REMEDY = "it is as it was; once that is fixed, append again"


@long_call
def append(
    dataset: str | Place,
    sources: Any,
    *,
    y: Any = None,
    sample_weight: Any = None,
    partition_size: int = 16 * 2**20,
    shuffle: bool | None = None,
    seed: int = 0,
    on_error: str = "stop",
    unknown_features: str = "error",
    again: bool = False,
    executor: Any = None,
    client: Any = None,
    progress: Any = None,
    **named: object,
) -> IngestReport:
    """Add the rows of files or arrays to a data set, behind those that it has.

    They are read as its own were, with its features, fitted transforms and classes; labels that it does not know become
    further classes. What is stored is not read or written again, but for the last partition if it is small. Until
    the end the data set is the one from before, also if the call is killed; the same call then resumes. Column shards
    are not taken over. A fit that runs meanwhile may find the last partition changed, and is refused then.

    Parameters
    ----------
    dataset : path
        Data set on a disk; it is replaced in one step.
    sources, y, sample_weight
        As in `distls.ingest`; no rows without labels for data with labels.
    partition_size : int
        Decoded bytes of a partition: the last one of the data set is filled up to that.
    shuffle : bool, optional
        Shuffle the new rows among themselves; by default if the rows of the data set were shuffled.
    seed : int
    on_error : {"stop", "skip"}
        What to do with lines that cannot be read.
    unknown_features : {"error", "ignore"}
        Refuse features or columns that the data set does not have, or leave them out.
    again : bool
        Add rows that the data set has already; else the very rows of an earlier call are refused.
    executor, client, progress
        As in `distls.ingest`.
    **named
        Options of how sources are read that differ from those of the data set: ``separator=";"``.

    Returns
    -------
    IngestReport
        Of the rows that were added.

    Raises
    ------
    FormatError, IncompleteError
        `dataset` is none, or was not finished.
    MismatchError
        The rows do not go with those of the data set, or are in it already.
    StorageError
        The data set cannot be written, or is being written by another process.
    """
    root = place_of(dataset)
    if isinstance(root, StorePath):
        remedy = "append to a copy of it on a disk"
        raise ParameterError(f"{root}: an object store replaces no data set in one step; {remedy}")
    root = Path(root).resolve()  # the folder is replaced, not a link to it
    open_dataset(root)  # before anything is written
    with os_errors_described(f"cannot add rows to {root}", _REMEDY), locked(root / DATASET_LOCK, str(root)):
        sweep(root.parent, root.name)  # the other folder of a call that was killed
        known, added = open_dataset(root), root / _ADDED
        had_columns = known.columns is not None
        if added.exists() and not (added / STAGING).exists():
            # of a call that was killed at its end, half removed or whole; nobody knows of which sources
            remove_tree(added)
        options: dict[str, Any] = {**_as_stored(known), "seed": seed, "on_error": on_error}
        options |= {"partition_size": partition_size, "unknown_features": unknown_features, **named}
        options |= {} if shuffle is None else {"shuffle": shuffle}
        options |= {"executor": executor_of(executor, client), "progress": progress}
        report = ingest(sources, added, y=y, sample_weight=sample_weight, like=known, **options)
        try:
            new = open_dataset(added)
            extend(known, new, int(partition_size), _appended(known, new, again))
        finally:
            remove_tree(added)
    lost = f"{root} has no column shards now; `distls columns` makes them of all rows"
    return replace(report, paths=(root,), notices=(*report.notices, *[lost] * had_columns))


def _as_stored(known: Dataset) -> dict[str, Any]:
    """Return the options of an ingest that stores rows as those of a dataset are."""
    meta = known.meta
    return {
        "multilabel": meta.target == "multilabel",
        "unlabelled": meta.target == "none",
        "dtype": meta.dtype,
        "compress": meta.codecs.get("data", meta.codecs.get("X", "none")),
        "shuffle": meta.shuffle_seed is not None,
        "row_numbers": known.origins is not None,
    }


def _appended(known: Dataset, new: Dataset, again: bool) -> tuple[str, ...]:
    """Return the digests of the rows of each call; refuse those of an earlier one."""
    # by content: a copy of a file, or a file that was touched, has the same rows
    digest, before = digest_of_rows(new), known.appended or (digest_of_rows(known),)
    if digest in before and not again:
        raise MismatchError(f"{known.path}: has these very rows already; --again adds them once more")
    return (*before, digest)
