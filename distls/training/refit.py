"""The last fit of a selection: the chosen setting, on the training and the held-out rows."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.evaluation.compatibility import class_codes
from distls.execution.executor import Executor
from distls.execution.row_reads import reduce_rows
from distls.storage.dataset.dataset import Dataset, is_dataset, open_dataset, publish
from distls.storage.dataset.partitions import PartitionRecord
from distls.storage.errors import MismatchError
from distls.storage.filesystem.paths import Place
from distls.workers.ingestion.join_task import Joined, JoinTask
from distls.workers.rounds.block_stream import DatasetRef


def check_joinable(data: Dataset, held: Dataset) -> None:
    """Raise MismatchError, by metadata, unless held-out rows can be fitted along with the training rows."""
    # Rows twice would count twice.
    if held.fingerprint == data.fingerprint:
        raise MismatchError(f"refit: {held.path} has the very rows of {data.path}; select by other rows")
    for name in ("layout", "dtype"):
        mine, other = getattr(data.meta, name), getattr(held.meta, name)
        if mine != other:
            raise MismatchError(
                f"refit: rows of {held.path} are {other}, those of {data.path} {mine}; ingest it with --like the "
                "training data"
            )


def joined_rows(root: Place, data: Dataset, held: Dataset, executor: Executor) -> Dataset:
    """Write the partitions of `data`, then those of `held`, as the data set `root`, unless it is there already.

    It has the classes, transforms and names of `data`. Workers write; each part is read once.
    """
    # A resumed run has joined them before.
    if is_dataset(root):
        return open_dataset(root)
    weighted = data.meta.weighted or held.meta.weighted
    # The training data's codes are those of the result.
    same = np.arange(len(data.meta.classes), dtype=np.int32)
    codes = class_codes(held, data.meta.classes, str(data.path), "error")
    records: list[PartitionRecord] = []
    for part, own in ((data, same), (held, codes)):
        records += _copied(root, part, data, own, len(records), weighted, executor)
    # the rows come from two ingests, so no one file or seed has them
    meta = msgspec.structs.replace(data.meta, weighted=weighted, shuffle_seed=None)
    return publish(root, meta, records, data.features())


def _copied(
    root: Place, part: Dataset, like: Dataset, codes: NDArray[np.int32], first: int, weighted: bool, executor: Executor
) -> Sequence[PartitionRecord]:
    meta = like.meta
    target = str(root.absolute())
    n_classes = len(meta.classes)
    task = JoinTask(DatasetRef.of(part), target, first, meta.n_features, n_classes, codes, weighted, meta.codecs)
    total: Joined = reduce_rows(executor, part, None, task)
    return total.records
