"""`predict`: classes and scores of every row, streamed partition by partition."""

from __future__ import annotations

import csv
import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from distls.evaluation import check_scorable, readout_of, reference
from distls.execution.base import Executor
from distls.execution.serial import SerialExecutor
from distls.scorable import Scorable, check_source_options, opened_like
from distls.storage.atomic import describe_os_error
from distls.storage.dataset import Dataset
from distls.storage.errors import MismatchError, ParameterError, StorageError
from distls.storage.model import PROBABLE, LinearModel, load_model
from distls.storage.predictions import PredictionArrays
from distls.workers.predicting import Predicted, PredictJob, predict_block

__all__ = ["predict"]


def predict(
    model: str | Path | LinearModel,
    dataset: Scorable,
    out: str | Path,
    *,
    top: int = 1,
    proba: bool = False,
    labelled: bool = False,
    format: str = "auto",
    executor: Executor | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Write the predictions of a model; no (n_rows, n_classes) array is ever held.

    Parameters
    ----------
    model : run path, model path or LinearModel
    dataset : path or Dataset, or paths of source files
        Labels are not needed. Source files are ingested first like the data of the model, into a folder beside
        `out` that is removed after.
    out : path
        ``.csv``: row, label, score, and label_2, score_2, ... with `top`. ``.zarr``: arrays ``label`` (codes into
        the attribute ``classes``) and ``score``, both of shape (n_rows, top).
    top : int
        How many of the best classes a row gets.
    proba : bool
        Probabilities instead of scores.
    labelled : bool
        The source files have labels, which are read and not used.
    format : str
        Of the source files; see `distls.ingest`.
    executor : Executor, optional
    progress : callable, optional

    Returns
    -------
    n_rows : int

    Raises
    ------
    ParameterError, MismatchError, StorageError
        Before any partition is read.
    BadInputError
        A source file cannot be read as asked.
    """
    fitted = model if isinstance(model, LinearModel) else load_model(model)
    name = "the model" if isinstance(model, LinearModel) else str(model)
    target = Path(out)
    _check_asked(fitted, name, target, top, proba)
    check_source_options(dataset, {"labelled": labelled, "format": format != "auto"})
    options = {"unlabelled": not labelled, "format": format, "executor": executor, "progress": progress}
    with opened_like(fitted, dataset, name=name, beside=target, **options) as data:
        check_scorable(
            data,
            n_features=fitted.n_features,
            transforms_digest=fitted.transforms_digest,
            transforms=fitted.transforms,
            features=fitted.features,
            model_name=name,
        )
        _write(fitted, data, target, top, proba, executor or SerialExecutor(), progress)
        return data.meta.n_rows


def _write(
    fitted: LinearModel,
    data: Dataset,
    target: Path,
    top: int,
    proba: bool,
    executor: Executor,
    progress: Callable[[int, int, str], None] | None,
) -> None:
    job = PredictJob(reference(data), fitted.loss, top, proba)
    readout = readout_of(fitted)
    blocks = executor.map(partial(predict_block, job), range(len(data)), shared=readout)
    counted = _counted(blocks, len(data), progress)
    try:
        if target.suffix == ".csv":
            _write_csv(target, counted, fitted.classes, top, proba)
        else:
            _write_zarr(target, counted, fitted, data.meta.n_rows, top)
    except OSError as error:
        remedy = "nothing was written under that name; make room and predict again"
        raise describe_os_error(error, f"cannot write {target}", remedy) from None


def _check_asked(model: LinearModel, name: str, out: Path, top: int, proba: bool) -> None:
    if out.suffix not in (".csv", ".zarr"):
        raise ParameterError(f"{out}: predictions are written as .csv or .zarr; choose one of these endings")
    if not out.parent.is_dir():
        raise StorageError(f"{out}: there is no folder {out.parent}; make it first")
    if out.exists():
        raise MismatchError(f"{out} exists already; remove it or choose another name")
    if not 1 <= top <= len(model.classes):
        raise ParameterError(f"--top {top}: the model has {len(model.classes)} classes")
    if proba and not model.has_probabilities:
        raise ParameterError(
            f"--proba: {name} was trained with loss {model.loss}, which has no probabilities; "
            f"train with {' or '.join(PROBABLE)}"
        )


def _counted(
    blocks: Iterator[Predicted], total: int, progress: Callable[[int, int, str], None] | None
) -> Iterator[Predicted]:
    for done, block in enumerate(blocks, 1):
        if progress:
            progress(done, total, "predicting")
        yield block


def _write_csv(target: Path, blocks: Iterator[Predicted], classes: list[Any], top: int, proba: bool) -> None:
    temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")
    names = np.array([str(label) for label in classes], dtype=object)
    value = "probability" if proba else "score"
    header = ["row", "label", value]
    header += [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", value)]
    try:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(header)
            row = 0
            for block in blocks:
                row = _write_block(file, names, block, row)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_block(file: TextIO, names: NDArray[Any], block: Predicted, row: int) -> int:
    labels = names[block.codes]
    columns: list[Any] = [range(row, row + len(labels))]
    for place in range(labels.shape[1]):
        columns += [labels[:, place], [f"{score:.7g}" for score in block.scores[:, place]]]
    csv.writer(file).writerows(zip(*columns, strict=True))
    return row + len(labels)


def _write_zarr(target: Path, blocks: Iterator[Predicted], model: LinearModel, n_rows: int, top: int) -> None:
    with PredictionArrays(target, n_rows, top, model.classes, model.weights.dtype) as arrays:
        for block in blocks:
            arrays.append(block.codes, block.scores)
