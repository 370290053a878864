"""`predict`: classes, sets of labels or numbers of every row, streamed partition by partition."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distls.evaluation.compatibility import check_model_scores, check_probabilities
from distls.execution import executor_of
from distls.execution.executor import Executor
from distls.ingestion.adhoc_dataset import (
    Notify,
    Scorable,
    are_sources,
    opened_like,
    pass_on,
    source_options,
    sources_of,
)
from distls.long_calls import long_call
from distls.model_check import check_model, predictor_of
from distls.storage.dataset.dataset import STAGING, Dataset, is_dataset, open_dataset
from distls.storage.dataset.feature_names import prediction_names
from distls.storage.dataset.row_origins import RowOrigins
from distls.storage.errors import MismatchError, ParameterError, StorageError
from distls.storage.filesystem.atomic import os_errors_described, remove_tree, text_file
from distls.storage.filesystem.locks import locked
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.filesystem.safe_read import first_bytes
from distls.storage.model.model import LinearModel, load_model
from distls.storage.model.predictions import PredictionArrays, are_predictions
from distls.workers.prediction.predict_task import Predicted, PredictTask
from distls.workers.prediction.predictor import scored_as
from distls.workers.prediction.probability_map import ProbabilityMap, label_cuts
from distls.workers.rounds.block_stream import DatasetRef

Progress = Callable[[int, int, str], None]
# names of our columns, and those that a line of CSV has in quotes
_TAKEN = re.compile(r'row|labels|source_(row|file)|(label|score|probability|prediction)(_\d+)?|.*[",\r\n].*', re.DOTALL)
_REMEDY = "nothing was written under that name; make room and predict again"


@long_call
def predict(
    model: str | Place | LinearModel,
    dataset: Scorable,
    out: str | Place,
    *,
    top: int = 1,
    proba: bool = False,
    labelled: bool = False,
    overwrite: bool = False,
    executor: Any = None,
    client: Any = None,
    progress: Any = None,
    notify: Notify | None = None,
    **reading: Any,
) -> int:
    """Write the predictions of a model; no (n_rows, n_classes) array is ever held.

    Parameters
    ----------
    model : run path, model path or LinearModel
    dataset : path or Dataset, paths of source files, data frame, or array or sparse matrix
        Labels are not needed. Source files, frames and arrays are first ingested like the model's data, into a folder
        next to `out` that is removed afterwards. (`LinearModel.predict` returns the predictions of rows in memory.)
    out : path
        ``.csv``: row, label, score, and label_2, score_2, ... with `top`. ``.zarr``: arrays ``label`` (codes into
        the attribute ``classes``) and ``score``, both of shape (n_rows, top). A model of sets of labels adds the
        sets: a column ``labels``, separated by commas, or a group ``labels``. A regression model gives ``prediction``
        instead: columns prediction, prediction_2, ..., of several columns of targets prediction_NAME each (unless a
        name is a number), or an array of shape (n_rows, n_outputs). ``row`` counts the rows in their order here.
        Where that is not the order of one source file, ``source_row`` is the number of the
        row in its file, from 0, without header and blank lines, and ``source_file`` the file if there are several;
        the last column is the id, if the data have one, under the name that they have for it (``id`` if another column
        here has that name). In ``.zarr`` ids are UTF-8, ``id_text`` and ``id_ends``.
    top : int
        Number of best classes, or labels, per row.
    proba : bool
        Write probabilities instead of scores.
    labelled : bool
        The source files have labels, which are read and not used.
    overwrite : bool
        Replace predictions that are there under this name, once the new ones are complete.
    executor, client, notify, **reading
        As of `distls.evaluate`.

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
    name = "the model" if isinstance(model, LinearModel) else str(model)
    fitted = check_model(model if isinstance(model, LinearModel) else load_model(model), name)
    target = place_of(out)
    _check_asked(fitted, name, target, top, proba)
    ids = _id_names(fitted, dataset, reading)
    with _alone(target, ids):  # without what a process that was killed after its end has left
        _check_new(target, overwrite, dataset, ids)
    reading = source_options(dataset, {"labelled": labelled, **reading})
    runner = executor_of(executor, client)
    labelled = reading.pop("labelled", False) or "label_column" in reading
    own = {"unlabelled": not labelled, "row_numbers": True, "executor": runner, "progress": progress}
    options = {**own, **reading}
    opened = opened_like(fitted, dataset, name=name, beside=target, **options)
    with _alone(target, ids), opened as (data, notices):
        check_model_scores(data, fitted, name)
        pass_on(notices, notify)
        complete = functools.partial(_check_new, target, overwrite, dataset, ids)
        _write(fitted, data, target, top, proba, runner, progress, complete)
        return data.meta.n_rows


def _id_names(model: LinearModel, data: Scorable, reading: Mapping[str, Any]) -> frozenset[str]:
    """Return the names that the column of ids may have: by the model's data, the data set, and as asked."""
    from distls.ingestion.request.format_options import position_of  # most calls never ingest

    own = [] if are_sources(data) else [place for place in sources_of(data) if is_dataset(place)]
    known = [model.source, *(open_dataset(place).meta.source for place in own)]
    asked = reading.get("id_column")
    by_place = () if asked is None or position_of(asked) is None or own else sources_of(data)
    names = {field for place in by_place if place.is_file() for field in _first_fields(place)}
    return frozenset({"id", str(asked), *names, *map(_id_name, known)})


def _first_fields(source: Place) -> list[str]:
    """Return what may be the names of columns, of which one is that of the ids."""
    line = first_bytes(source, 2**16).decode("utf-8", "replace").partition("\n")[0]
    return [field.strip(' "\r\ufeff') for field in re.split(r"[,;|\t]", line)]


def _id_name(source: Mapping[str, Any]) -> str:
    """Return the name of the column of ids of data with this source; "id" if it has none, or that of another column."""
    name = source.get("recipe", {}).get("id_column") or "id"
    return "id" if _TAKEN.fullmatch(name) else name


@contextlib.contextmanager
def _alone(target: Place, ids: frozenset[str]) -> Iterator[None]:
    """Hold the lock of the predictions, without what killed processes left under their name."""
    lock = target.with_name(f".{target.name}.lock")
    with contextlib.ExitStack() as held:
        with os_errors_described(f"cannot write {target}", _REMEDY):
            held.enter_context(locked(lock, str(target)))
            _sweep(target, ids)
        yield


def _write(
    fitted: LinearModel,
    data: Dataset,
    target: Place,
    top: int,
    proba: bool,
    executor: Executor,
    progress: Progress | None,
    complete: Callable[[], None],
) -> None:
    shown = origin_columns(data)
    made_of = ProbabilityMap.of(fitted) if proba and fitted.target == "class" else None
    scored = scored_as(fitted.loss, fitted.recipe)
    cuts = label_cuts(fitted) if fitted.target == "multilabel" and fitted.calibration else None
    by_score = "threshold_for" in fitted.calibration
    task = PredictTask(DatasetRef.of(data), scored, top, proba, fitted.target, made_of, cuts, by_score)
    predictor = predictor_of(fitted)
    blocks = executor.map(task, range(len(data)), shared=predictor)
    # results come in the order of the partitions, so rows are numbered as they are written
    counted = _counted(blocks, len(data), progress, complete)
    with os_errors_described(f"cannot write {target}", _REMEDY):
        if target.suffix == ".csv":
            header = _header(fitted, top, proba) + ([] if shown is None else shown.names)
            _write_csv(target, counted, fitted, header, shown)
        else:
            _write_zarr(target, counted, fitted, data.meta.n_rows, top, shown)


def _sweep(target: Place, ids: frozenset[str]) -> None:
    """Remove what killed processes left of predictions under this name; the lock says that nobody writes it."""
    if isinstance(target, StorePath):
        return
    half = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{8}}\.partial")
    for path in target.parent.iterdir():
        if not half.fullmatch(path.name) or path.is_symlink():
            continue
        # of predictions, or of source files ingested for them
        if are_predictions(path, ids, whole=False) or (path / STAGING).is_dir() or is_dataset(path):
            remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _check_asked(model: LinearModel, name: str, out: Place, top: int, proba: bool) -> None:
    if out.suffix not in (".csv", ".zarr"):
        raise ParameterError(f"{out}: predictions are written as .csv or .zarr; choose one of these endings")
    if isinstance(out, Path) and not out.parent.is_dir():
        raise StorageError(f"{out}: there is no folder {out.parent}; make it first")
    if model.target == "continuous" and (top != 1 or proba):
        asked = "--proba" if proba else f"--top {top}"
        raise ParameterError(f"{asked}: {name} predicts numbers, all of which are written; leave it out")
    if not 1 <= top <= model.n_outputs:
        what = "labels" if model.target == "multilabel" else "classes"
        raise ParameterError(f"--top {top}: the model has {len(model.classes)} {what}")
    if proba:
        check_probabilities(model, name, "--proba")


def _check_new(out: Place, overwrite: bool, data: Scorable, ids: frozenset[str]) -> None:
    """Refuse a name that is taken, unless by predictions that may be replaced and are not read themselves."""
    if not out.exists():
        return
    if not overwrite:
        # of a file of anybody's nothing is proposed but to leave it alone
        replaced = ", or give --overwrite" if are_predictions(out, ids) else ""
        raise MismatchError(f"{out} exists already; choose another name{replaced}")
    there = [source for source in sources_of(data) if isinstance(source, Path) and source.exists()]
    if isinstance(out, Path) and any(map(out.samefile, there)):  # through links too
        raise MismatchError(f"{out}: the data that are predicted, which are only read; choose another name")
    if not are_predictions(out, ids):
        raise MismatchError(f"{out}: not predictions of distls, which alone are overwritten; choose another name")


def _counted(
    blocks: Iterator[Predicted], total: int, progress: Progress | None, complete: Callable[[], None]
) -> Iterator[Predicted]:
    for done, block in enumerate(blocks, 1):
        if progress:
            progress(done, total, "predicting")
        yield block
    complete()


def _header(model: LinearModel, top: int, proba: bool) -> list[str]:
    if model.target == "continuous":
        return ["row", *prediction_names(model.source, model.n_outputs, "prediction_")]
    sets = ["labels"] if model.target == "multilabel" else []
    header = ["row", *sets, "label", "probability" if proba else "score"]
    return header + [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", header[-1])]


def _write_csv(
    target: Place, blocks: Iterator[Predicted], model: LinearModel, header: list[str], shown: OriginColumns | None
) -> None:
    columns_of = _number_columns if model.target == "continuous" else _LabelColumns(model.classes)
    with text_file(target) as file:
        writer, row = csv.writer(file), 0
        writer.writerow(header)
        for index, block in enumerate(blocks):
            n_rows = len(block.scores)
            columns = [*columns_of(block), *([] if shown is None else shown.columns(index))]
            writer.writerows(zip(range(row, row + n_rows), *columns, strict=True))
            row += n_rows


def _number_columns(block: Predicted) -> list[Any]:
    """Return the numbers of each output, in the shortest text that reads back the same."""
    return [map(str, column) for column in block.scores.T]


class _LabelColumns:
    """Makes the columns of a block: sets of labels if there are any, then the best labels and their scores."""

    def __init__(self, classes: list[Any]) -> None:
        self._names = np.array([str(label) for label in classes], dtype=object)
        # a set is one CSV field in itself: labels with commas are quoted inside it
        self._quoted = [_csv_field(name) for name in self._names]

    def __call__(self, block: Predicted) -> list[Any]:
        labels = self._names[block.codes]
        columns: list[Any] = [] if block.indptr is None else [self._sets(block)]
        for place in range(labels.shape[1]):
            columns += [labels[:, place], [f"{score:.7g}" for score in block.scores[:, place]]]
        return columns

    def _sets(self, block: Predicted) -> list[str]:
        assert block.indptr is not None
        assert block.labels is not None
        codes, bounds = block.labels.tolist(), block.indptr.tolist()
        return [
            ",".join([self._quoted[code] for code in codes[first:last]]) for first, last in itertools.pairwise(bounds)
        ]


def _csv_field(text: str) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([text])
    return buffer.getvalue()


def _write_zarr(
    target: Place, blocks: Iterator[Predicted], model: LinearModel, n_rows: int, top: int, shown: OriginColumns | None
) -> None:
    width = model.n_outputs if model.target == "continuous" else top
    dtype = model.weights.dtype
    facts = None if shown is None else shown.origins.facts
    with PredictionArrays(target, n_rows, width, model.classes, dtype, model.target, facts) as arrays:
        for index, block in enumerate(blocks):
            if shown is not None and arrays.origins is not None:
                arrays.origins.append(shown.origins.read(index))
            if block.indptr is not None and block.labels is not None and arrays.sets is not None:
                arrays.sets.append(block.indptr, block.labels)
            arrays.append(*([block.scores] if model.target == "continuous" else [block.codes, block.scores]))


# -- columns that join predictions to their source -------------------------------------------------------


@dataclass(frozen=True)
class OriginColumns:
    """The origins of a data set's rows, as columns of its predictions."""

    origins: RowOrigins
    numbered: bool  # rows are not simply those of one file in its order, which their count shows
    id_name: str = "id"

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        several = len(self.origins.facts.files) > 1
        own = (["source_file"] if several else []) + (["source_row"] if self.numbered else [])
        return own + ([self.id_name] if self.origins.facts.ids else [])

    def columns(self, index: int) -> list[Any]:
        """Return the columns of the rows of partition `index`."""
        sources, columns = self.origins.read(index), list[Any]()
        if sources.files is not None:
            columns.append([self.origins.facts.files[code] for code in sources.files.tolist()])
        if self.numbered:
            columns.append(sources.rows.tolist())
        if sources.ids is not None:
            columns.append(sources.ids.texts())
        return columns


def origin_columns(data: Dataset) -> OriginColumns | None:
    """Return the columns for the rows of `data`; None if they would say nothing new."""
    origins = data.origins
    if origins is None:
        return None
    columns = OriginColumns(origins, not origins.facts.in_order, _id_name(data.meta.source))
    return columns if columns.names else None
