"""The public function `ingest`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distls.execution import executor_of
from distls.execution.memory_budget import MemoryBudget
from distls.ingestion.dataset_facts import IngestReport
from distls.ingestion.formats.csv import with_line_breaks
from distls.ingestion.formats.format_registry import ReadRequest
from distls.ingestion.formats.frames import is_source_frame, plan_frame
from distls.ingestion.formats.memory_arrays import own_columns, plan_arrays
from distls.ingestion.plan import plan_files
from distls.ingestion.request.format import plan_as_asked
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like, open_like
from distls.ingestion.request.options import OPTIONS, IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.run import IngestRun
from distls.long_calls import long_call
from distls.storage.errors import BadInputError, ParameterError
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.model.model import LinearModel
from distls.workers.ingestion.formats.csv import UNCLOSED
from distls.workers.ingestion.records.labels import label_sets

_SETS_FOUND = "y has sets of labels (multilabel); target='continuous' takes a matrix of 0 and 1 for numbers"


@long_call
def ingest(
    sources: Any,
    dataset: str | Place,
    *,
    y: Any = None,
    sample_weight: Any = None,
    format: str = "auto",
    read: FormatOptions | None = None,
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
    unknown_features: str = "error",
    columns: bool = False,
    row_numbers: bool = True,
    executor: Any = None,
    client: Any = None,
    memory: MemoryBudget | None = None,
    progress: Any = None,
    **named: object,
) -> IngestReport:
    """Turn files or arrays into a dataset of shuffled, compressed, checksummed partitions.

    The same arguments give the same bits with any executor. After a crash, the same call resumes.

    Parameters
    ----------
    sources : path, sequence of paths, data frame, or array, scipy.sparse matrix or dask array
        Files of one format, see `format`; text may be plain, gzip, bz2, xz or zstd, IDX too. A data frame (pandas,
        polars, Arrow, Dask) is read as a Parquet file of its columns is, with the same options; row labels of pandas
        are left out. Arrays have the shape (n_rows, n_features). The chunks of a dask array or DataFrame are computed
        one at a time by the scheduler that is current; row chunks of unknown length are fine. They are computed once
        more to be counted, for a dask array if `y` is in memory, for a DataFrame of more than 32 MiB always, and once
        more for the values of its categories.
    dataset : path
        Folder to write; it must not exist, unless an earlier call with the same arguments did not finish.
    y, sample_weight : array, optional
        Of in-memory data or dask arrays: shape (n_rows,), or (n_rows, n_targets) for continuous `y`. Of a data frame
        they may be columns instead: `label_column`, `weight_column`. Sets of labels are a matrix of 0 and 1 with a
        column for each label, dense or sparse, or a list of labels for each row. A label that is None, NaN or masked is
        missing.
    format : str
        ``auto``: detected; else one of those that ``distls ingest --help`` lists. text: one document a line,
        ``LABEL<TAB>DOCUMENT``, a document alone (`unlabelled`), or a JSON object.
    read : SvmlightOptions, VwOptions, DocumentOptions, CsvOptions, ParquetOptions, AnnDataOptions or ArrayOptions
        The options of the format, which they name too: ``read=CsvOptions(label_column="y", separator=";")``.
    n_features : int, optional
        Width; by default the largest index, for raw text 2**18.
    min_count : int, optional
        Drop features that are non-zero in fewer training rows than this; the others are renumbered.
    multilabel : bool
        Labels are comma-separated lists; of `y` in memory sets, as which matrices of 0 and 1 are taken by themselves.
    unlabelled : bool
        There are no labels.
    target : {"auto", "class", "continuous"}
        auto: classes when all labels are whole numbers.
    transform : str or sequence of str
        ``log1p``, ``idf``, ``l2norm``, ``scale=X``, ``standardize``, applied in the given order, fitted on the
        training rows. standardize subtracts the mean and divides by the standard deviation; sparse rows are only
        divided. ``auto``: what suits the rows, with a notice of what that is.
    like : path, Dataset or LinearModel, optional
        Take classes, width, base, fitted transforms and description of the source of this dataset, run or model.
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
    unknown_features : {"error", "ignore"}
        With `like`: refuse sparse rows with features, or tables with columns, that its data do not have, or leave
        these out.
    columns : bool
        Add column shards to `dataset` (not to what `split` holds out), as `add_columns` does.
    row_numbers : bool
        Keep the file and the number of each row, and its id if `id_column` names it, so that predictions can be joined
        to the source: ``open_dataset(dataset).origins``. Four bytes a row.
    executor : Executor, Client or {"auto", "serial", "dask"}, optional
        Where to run. auto, the default: on the Dask client that is open, if there is one, else in this process.
    client : dask.distributed.Client, optional
        The same as a client for `executor`.
    memory : MemoryBudget, optional
        Of a worker, for `columns`.
    progress : callable or bool, optional
        Called with (bytes done, bytes in all, stage). Default, in notebooks, and True: a bar.
    **named
        The options of `read` by their names, as in ``label_column="y", separator=";"``: `zero_based` of svmlight;
        `hash_bits` of vw; `text_column`, `label_column`, `weight_column`, `ngrams`, `analyzer`, `lowercase`,
        `alternate_sign`, `binary` of text; `label_column`, `weight_column`, `ignore_columns`, `categorical`, `na` of
        csv and parquet; `separator`, `header` of csv; `list_columns` of parquet; `label_column`, `weight_column` of
        anndata; and of all formats `labels`, `label_map`, `label_level` and `drop`, see `FormatOptions`.

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
    given = {name: value for name, value in locals().items() if name in OPTIONS}
    known = None if like is None else open_like(like)
    notices: tuple[str, ...] = ()
    numbers = target != "auto" or (known is not None and known.meta.target == "continuous")
    if y is not None and not hasattr(y, "__dask_graph__") and not numbers:
        sets = label_sets(y, multilabel)
        notices = (_SETS_FOUND,) if sets is not None and sets.known and not multilabel else ()
        y, multilabel = (y, multilabel) if sets is None else (sets, True)
    request = ReadRequest(format, read, named)
    given |= {"format": request.format, "multilabel": multilabel}
    given |= {"like": None if known is None else known.path}
    given |= {"shuffle": not unlabelled} if shuffle is None else {}
    options = IngestOptions.checked(**given)
    plan, own = _plan(sources, y, sample_weight, request, options, known)
    plan = replace(plan, notices=(*notices, *plan.notices))
    runner = executor_of(executor, client)
    run = IngestRun(place_of(dataset), options, own, plan, known, runner, progress or _silent)
    try:
        report = run.result()
    except BadInputError as error:
        # a table that turns out to have line breaks in fields is read once more, by records
        again = with_line_breaks(plan) if UNCLOSED in str(error) else None
        if again is None:
            raise
        report = replace(run, plan=again, options=options).result()
    if columns:
        # plans and losses come with it, which an ingest has no use for
        from distls.columns.sharding import add_columns

        add_columns(dataset, executor=runner, memory=memory, progress=progress)
    return report


def _silent(done: int, total: int, stage: str) -> None:
    pass


def _plan(
    sources: Any, y: Any, sample_weight: Any, request: ReadRequest, options: IngestOptions, like: Like | None
) -> tuple[SourcePlan, FormatOptions]:
    if isinstance(sources, (str, Path, StorePath)):
        sources = [sources]
    if isinstance(sources, (list, tuple)) and all(isinstance(s, (str, Path, StorePath)) for s in sources):
        if y is not None or sample_weight is not None:
            raise ParameterError("y and sample_weight go with arrays in memory; files were given")
        return plan_files(sources, request, options, like)
    if is_source_frame(sources, y, like):
        return plan_frame(sources, y, sample_weight, request, options, like)
    sources, y, sample_weight, request = own_columns(sources, y, sample_weight, request)
    read = request.options_of_arrays()
    plan = plan_as_asked(read, options, None, lambda _, own: plan_arrays(sources, y, sample_weight, own))
    return plan, read
