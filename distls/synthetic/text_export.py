"""Export of a sparse dataset as text, for the demonstration and for other programs in benchmarks."""

from collections.abc import Callable

from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import MismatchError
from distls.storage.filesystem.atomic import os_errors_described
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.synthetic.text_export_task import ExportTask


def export_text(
    dataset: str | Place | Dataset,
    out: str | Place,
    *,
    style: str = "svmlight",
    executor: Executor | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write a sparse dataset with whole-number classes as text, values rounded to 7 decimals; return the bytes written.

    `style` "svmlight" is one-based with the labels as they are, "vw" has labels 1, 2, .... Raises MismatchError if
    the data are dense or have no class labels that are whole numbers of at least 0, StorageError if `out` cannot be
    written.
    """
    data = dataset if isinstance(dataset, Dataset) else open_dataset(dataset)
    meta = data.meta
    codes = [label for label in meta.classes if isinstance(label, int) and label >= 0]
    if meta.layout != "csr" or meta.target != "class" or len(codes) != len(meta.classes):
        why = "only sparse data with classes that are whole numbers can be written as text"
        raise MismatchError(f"{data.path}: {why}")
    # Vowpal Wabbit numbers classes from 1
    one_based = style == "svmlight"
    labels = codes if one_based else range(1, len(codes) + 1)
    task = ExportTask(DatasetRef.of(data), tuple(labels), int(one_based), b"" if one_based else b" |")
    texts = (executor or SerialExecutor()).map(task, range(len(data)))
    size, target = 0, place_of(out)
    with (
        os_errors_described(f"cannot write {out}", "remove it, make room and write it again"),
        target.upload() if isinstance(target, StorePath) else target.open("wb") as file,
    ):
        for done, text in enumerate(texts, 1):
            size += file.write(text)
            if progress:
                progress(done, len(data), f"writing {target.name}")
    return size
