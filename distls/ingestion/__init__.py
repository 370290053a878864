"""Raw files or arrays to a dataset: the public function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distls.execution.base import Executor
from distls.execution.serial import SerialExecutor
from distls.ingestion.options import IngestOptions
from distls.ingestion.plan import SourcePlan, plan_arrays, plan_files
from distls.ingestion.run import IngestReport, IngestRun, Progress
from distls.storage.errors import ParameterError

__all__ = ["IngestReport", "ingest"]


def ingest(
    sources: Any,
    dataset: str | Path,
    *,
    y: Any = None,
    sample_weight: Any = None,
    format: str = "auto",
    labels: str | Path | None = None,
    zero_based: str | bool = "auto",
    n_features: int | None = None,
    multilabel: bool = False,
    unlabelled: bool = False,
    target: str = "auto",
    transform: str | Sequence[str] = (),
    like: str | Path | None = None,
    split: Any = (),
    partition_size: int = 16 * 2**20,
    compress: str = "auto",
    dtype: str = "float32",
    shuffle: bool | None = None,
    seed: int = 0,
    on_error: str = "stop",
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Turn files or arrays into a dataset of shuffled, compressed, checksummed partitions.

    The same arguments give the same bits with any executor. After a crash, the same call resumes.

    Parameters
    ----------
    sources : path, sequence of paths, or an array or scipy.sparse matrix of shape (n_rows, n_features)
        Files of one format: svmlight text (plain, gzip, bz2), IDX (.gz), npy, npz (dense ``X`` or scipy CSR).
    dataset : path
        Folder to write; it must not exist, unless an earlier call with the same arguments did not finish.
    y, sample_weight : array, optional
        Of in-memory data: shape (n_rows,), or (n_rows, n_targets) for continuous `y`.
    format : {"auto", "svmlight", "npz", "npy", "idx"}
    labels : path, optional
        IDX or npy file with the labels of array files.
    zero_based : {"auto", "yes", "no"} or bool
        Base of svmlight indices; auto: zero when index 0 occurs anywhere in the input.
    n_features : int, optional
        Width; by default the largest index.
    multilabel : bool
        Labels are comma-separated lists.
    unlabelled : bool
        There are no labels.
    target : {"auto", "class", "continuous"}
        auto: classes when all labels are whole numbers.
    transform : str or sequence of str
        ``log1p``, ``idf``, ``l2norm``, ``scale=X``, applied in this order, fitted on the training rows.
    like : path, optional
        Take classes, width, base and fitted transforms of this dataset.
    split : mapping, or sequence of "NAME=FRACTION"
        Hold out these fractions of each class as datasets DATASET-NAME.
    partition_size : int
        Decoded bytes of a partition.
    compress : {"auto", "zstd", "lz4", "none"}
    dtype : {"float32", "float64"}
    shuffle : bool, optional
        Keep the source order when false; by default rows are shuffled unless they are unlabelled.
    seed : int
    on_error : {"stop", "skip"}
        What to do with lines that cannot be read.
    executor : Executor, optional
        Where the work is done; by default in this process.
    progress : callable, optional
        Called with (bytes done, bytes in all, stage).

    Raises
    ------
    BadInputError
        A source cannot be read as asked; names file, line, text and rule. Nothing is left behind.
    ParameterError
        An option is out of range or does not go with another.
    MismatchError
        The data do not go with `like`.
    IncompleteError
        `dataset` holds an unfinished ingest with other arguments.
    StorageError
        `dataset` exists, or cannot be written; after a full disk, the same call resumes.
    """
    options = IngestOptions.checked(
        format=format,
        labels=labels,
        zero_based=zero_based,
        n_features=n_features,
        multilabel=multilabel,
        unlabelled=unlabelled,
        target=target,
        transform=transform,
        like=like,
        split=split,
        partition_size=partition_size,
        compress=compress,
        dtype=dtype,
        shuffle=not unlabelled if shuffle is None else shuffle,
        seed=seed,
        on_error=on_error,
    )
    plan = _plan(sources, y, sample_weight, options)
    run = IngestRun(Path(dataset), options, plan, executor or SerialExecutor(), progress or _silent)
    return run.result()


def _silent(done: int, total: int, stage: str) -> None:
    pass


def _plan(sources: Any, y: Any, sample_weight: Any, options: IngestOptions) -> SourcePlan:
    if isinstance(sources, (str, Path)):
        sources = [sources]
    if isinstance(sources, (list, tuple)) and all(isinstance(source, (str, Path)) for source in sources):
        if y is not None or sample_weight is not None:
            raise ParameterError("y and sample_weight go with arrays in memory; files were given")
        return plan_files(sources, options)
    return plan_arrays(sources, y, sample_weight, options)
