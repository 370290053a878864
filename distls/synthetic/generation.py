"""`generate`: seeded synthetic datasets of the papers' shapes, written partition by partition in parallel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from distls.columns.sharding import add_columns
from distls.execution import executor_of
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.long_calls import Workers, long_call
from distls.storage.dataset.dataset import Dataset, publish
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import PartitionRecord, choose_codecs, write_partition
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.filesystem.atomic import os_errors_described
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.rows import DenseRows, Partition
from distls.workers.synthetic.kinds import KINDS, generate_rows, kind_named
from distls.workers.synthetic.topic_documents import Kind

DEFAULT_PARTITION_BYTES = 16 * 2**20


@dataclass(frozen=True)
class _Job:
    root: str
    kind: str
    seed: int
    part: str
    n_rows: int
    partition_rows: int
    codecs: dict[str, str]


def _write(job: _Job, shared: None, index: int) -> PartitionRecord:
    start = index * job.partition_rows
    x, y = generate_rows(job.kind, job.seed, job.part, start, min(start + job.partition_rows, job.n_rows))
    shape = KINDS[job.kind].n_features, KINDS[job.kind].n_classes
    return write_partition(place_of(job.root), index, Partition(x, y), *shape, job.codecs)


def _partition_rows(kind: Kind, partition_bytes: int) -> int:
    """Return the rows of a partition: whole generator blocks, or an even fraction of one."""
    row_bytes = 4 * kind.n_features + 4 if kind.layout == "dense" else 6 * kind.row_nnz + 12
    rows, block = max(1, partition_bytes // row_bytes), kind.block_rows
    return rows // block * block if rows >= block else -(-block // -(-block // rows))


@long_call
def generate(
    kind: str,
    dataset: str | Place,
    *,
    rows: int | None = None,
    seed: int = 0,
    partition_size: int = DEFAULT_PARTITION_BYTES,
    compress: str = "auto",
    columns: bool = False,
    executor: Any = None,
    memory: MemoryBudget | None = None,
    progress: Any = None,
    **workers: Unpack[Workers],
) -> tuple[Dataset, Dataset]:
    """Write a synthetic training set and its test set, DATASET and DATASET-test; see docs/synthetic.md.

    Parameters
    ----------
    kind : str
        See `distls.workers.synthetic.kinds.KINDS`.
    dataset : path
    rows : int, optional
        Training rows; default the paper's. Fewer rows are a prefix of more. The test set is always the paper's.
    seed : int
        The same seed gives the same bits.
    partition_size : int
        Decoded bytes of a partition, about.
    compress : {"auto", "zstd", "lz4", "none"}
    columns : bool
        Add column shards to the training set, as `add_columns` does.
    executor : Executor, Client or {"auto", "serial", "dask"}, optional
        Where the work is done; see `distls.fit`.
    memory : MemoryBudget, optional
        Of a worker, for `columns`.
    progress : callable, optional
        Called with (partitions done, partitions in all, what).

    Returns
    -------
    train, test : Dataset

    Raises
    ------
    ParameterError, MismatchError, StorageError
    """
    made, runner = kind_named(kind), executor_of(executor)
    n_rows = made.n_train if rows is None else rows
    if n_rows < 1:
        raise ParameterError(f"--rows {n_rows}: at least one row is needed")
    root = place_of(dataset)
    targets = [(root, "train", n_rows), (root.with_name(f"{root.name}-test"), "test", made.n_test)]
    # both are checked before either is written
    for path, _, _ in targets:
        if path.exists():
            raise MismatchError(f"{path} exists already; choose another name")
    remedy = f"{root} is incomplete: make room, remove it and generate again"
    with os_errors_described(f"cannot write {root}", remedy):
        train, test = (
            _generate_part(made, path, seed, part, count, partition_size, compress, runner, progress)
            for path, part, count in targets
        )
    if columns:
        train = add_columns(root, executor=runner, memory=memory, progress=progress)
    return train, test


def _generate_part(
    kind: Kind,
    root: Place,
    seed: int,
    part: str,
    n_rows: int,
    partition_size: int,
    compress: str,
    executor: Executor,
    progress: Callable[[int, int, str], None] | None,
) -> Dataset:
    root.mkdir(parents=True)
    # the first block determines the codecs of all partitions
    trial = Partition(*generate_rows(kind.name, seed, part, 0, min(n_rows, kind.block_rows)))
    partition_rows = _partition_rows(kind, partition_size)
    codecs = choose_codecs(trial, compress)
    job = _Job(str(root.absolute()), kind.name, seed, part, n_rows, partition_rows, codecs)
    indices = range(-(-n_rows // partition_rows))
    records = []
    for record in executor.map(partial(_write, job), indices):
        records.append(record)
        if progress:
            progress(len(records), len(indices), f"generating {root.name}")
    meta = DatasetMeta(
        n_rows=n_rows,
        n_features=kind.n_features,
        nnz=0,
        layout="dense" if isinstance(trial.x, DenseRows) else "csr",
        dtype="float32",
        target="class" if kind.n_classes else "continuous",
        classes=list(range(kind.n_classes)),
        n_targets=0 if kind.n_classes else 1,
        source={"format": "generated", "kind": kind.name, "part": part, "seed": seed},
        codecs=codecs,
    )
    return publish(root, meta, records, {})
