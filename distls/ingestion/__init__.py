"""Raw files or arrays to a dataset: the public function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distls.columns.sharding import add_columns
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.ingestion.formats.memory_arrays import plan_arrays
from distls.ingestion.like import Like, open_like
from distls.ingestion.options import IngestOptions
from distls.ingestion.plan import SourcePlan, plan_files
from distls.ingestion.run import IngestReport, IngestRun, Progress
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.model.model import LinearModel

__all__ = ["IngestReport", "ingest"]


def ingest(
    sources: Any,
    dataset: str | Place,
    *,
    y: Any = None,
    sample_weight: Any = None,
    format: str = "auto",
    labels: str | Path | None = None,
    zero_based: str | bool = "auto",
    n_features: int | None = None,
    min_count: int | None = None,
    multilabel: bool = False,
    unlabelled: bool = False,
    target: str = "auto",
    transform: str | Sequence[str] = (),
    like: str | Place | LinearModel | Like | None = None,
    split: Any = (),
    partition_size: int = 16 * 2**20,
    compress: str = "auto",
    dtype: str = "float32",
    shuffle: bool | None = None,
    seed: int = 0,
    on_error: str = "stop",
    hash_bits: int | None = None,
    text_column: str | None = None,
    label_column: str | int | None = None,
    weight_column: str | int | None = None,
    ignore_columns: str | Sequence[str | int] = (),
    categorical: str | Sequence[str | int] = (),
    na: str | float | None = None,
    separator: str | None = None,
    header: str | bool | None = None,
    list_columns: str | Sequence[str] | None = None,
    ngrams: str | Sequence[int] | None = None,
    analyzer: str | None = None,
    lowercase: bool | None = None,
    alternate_sign: bool | None = None,
    binary: bool | None = None,
    columns: bool = False,
    executor: Executor | None = None,
    memory: MemoryBudget | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Turn files or arrays into a dataset of shuffled, compressed, checksummed partitions.

    The same arguments give the same bits with any executor. After a crash, the same call resumes.

    Parameters
    ----------
    sources : path, sequence of paths, or array, scipy.sparse matrix or dask array of shape (n_rows, n_features)
        Files of one format, see `format`; text may be plain, gzip or bz2, IDX plain or gzip. The chunks of a dask
        array, dense or sparse, are computed one at a time by the scheduler that is current; row chunks of unknown
        length are fine. With `y` in memory they are computed once more, to be counted.
    dataset : path
        Folder to write; it must not exist, unless an earlier call with the same arguments did not finish.
    y, sample_weight : array, optional
        Of in-memory data or dask arrays: shape (n_rows,), or (n_rows, n_targets) for continuous `y`.
    format : {"auto", "svmlight", "vw", "text", "csv", "parquet", "anndata", "npz", "npy", "idx"}
        text: one document a line, ``LABEL<TAB>DOCUMENT``, a document alone (`unlabelled`), or a JSON object.
    labels : path, optional
        IDX or npy file with the labels of array files.
    zero_based : {"auto", "yes", "no"} or bool
        Base of svmlight indices; auto: zero when index 0 occurs anywhere in the input.
    n_features : int, optional
        Width; by default the largest index.
    min_count : int, optional
        Drop the features that are not zero in fewer training rows than this, and number the others anew.
    multilabel : bool
        Labels are comma-separated lists.
    unlabelled : bool
        There are no labels.
    target : {"auto", "class", "continuous"}
        auto: classes when all labels are whole numbers.
    transform : str or sequence of str
        ``log1p``, ``idf``, ``l2norm``, ``scale=X``, ``standardize``, applied in the given order, fitted on the
        training rows. standardize takes off the mean and divides by the standard deviation; sparse rows it only
        divides.
    like : path, Dataset or LinearModel, optional
        Take classes, width, base, fitted transforms and source recipe of this dataset, run or model.
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
    hash_bits : int, optional
        The names of features of Vowpal Wabbit text are hashed into ``2**hash_bits`` columns as vw does it. Default:
        when in the first 64 KiB all names are whole numbers, of one namespace, they are the columns, and a later name
        that is none is refused; else 18.
    text_column, label_column, weight_column : str or int, optional
        Fields of JSON lines, or columns: by name, by position from 0, from -1 backwards, or ``"last"``. A label column
        of tables, parquet and AnnData has no default. Of JSON lines, by default the document is the first of ``text``,
        ``document``, ``sentence``, ``content``, ``body`` that the first record has, its label the first of ``label``,
        ``class``, ``category``, ``intent``, ``target``, ``y``; there is no weight.
    ignore_columns, categorical : str or sequence, optional
        Columns of tables and parquet to leave out, and to take as categories whatever is in them. A column with
        anything but numbers in it is a category by itself: a feature for each of its values.
    na : float, optional
        The number that missing values of tables and parquet stand for. Default: they are refused.
    separator : str, optional
        Between the fields of tables. Default: found out.
    header : bool, optional
        Whether the first line of tables names the columns. Default: found out.
    list_columns : (str, str), optional
        Columns of parquet with lists of indices and values: sparse rows. Default: ``indices`` and ``values``.
    ngrams : (int, int) or str, optional
        Raw text is hashed as scikit-learn's HashingVectorizer does it, without a norm: into `n_features` columns,
        2**18 by default, by runs of so many words or characters at least and at most. Default: (1, 1).
    analyzer : {"word", "char", "char_wb"}, optional
        What is counted. Default: "word".
    lowercase : bool, optional
        Default: true.
    alternate_sign : bool, optional
        Let half of the columns count downwards. Default: false, as log1p and idf want counts.
    binary : bool, optional
        Ones instead of counts. Default: false.
    columns : bool
        Add column shards to `dataset` (not to what `split` holds out), as `add_columns` does.
    executor : Executor, optional
        Where the work is done; by default in this process.
    memory : MemoryBudget, optional
        Of a worker, for `columns`.
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
        `dataset` exists, cannot be written, or is being written by another process; after a full disk, the same
        call resumes.
    """
    known = None if like is None else open_like(like)
    options = IngestOptions.checked(
        format=format,
        labels=labels,
        zero_based=zero_based,
        n_features=n_features,
        min_count=min_count,
        multilabel=multilabel,
        unlabelled=unlabelled,
        target=target,
        transform=transform,
        like=None if known is None else known.path,
        split=split,
        partition_size=partition_size,
        compress=compress,
        dtype=dtype,
        shuffle=not unlabelled if shuffle is None else shuffle,
        seed=seed,
        on_error=on_error,
        hash_bits=hash_bits,
        text_column=text_column,
        label_column=label_column,
        weight_column=weight_column,
        ignore_columns=ignore_columns,
        categorical=categorical,
        na=na,
        separator=separator,
        header=header,
        list_columns=list_columns,
        ngrams=ngrams,
        analyzer=analyzer,
        lowercase=lowercase,
        alternate_sign=alternate_sign,
        binary=binary,
    )
    plan = _plan(sources, y, sample_weight, options, known)
    runner = executor or SerialExecutor()
    report = IngestRun(place_of(dataset), options, plan, known, runner, progress or _silent).result()
    if columns:
        add_columns(dataset, executor=runner, memory=memory, progress=progress)
    return report


def _silent(done: int, total: int, stage: str) -> None:
    pass


def _plan(sources: Any, y: Any, sample_weight: Any, options: IngestOptions, like: Like | None) -> SourcePlan:
    if isinstance(sources, (str, Path, StorePath)):
        sources = [sources]
    if isinstance(sources, (list, tuple)) and all(
        isinstance(source, (str, Path, StorePath)) for source in sources
    ):
        if y is not None or sample_weight is not None:
            raise ParameterError("y and sample_weight go with arrays in memory; files were given")
        return plan_files(sources, options, like)
    return plan_arrays(sources, y, sample_weight, options)
