"""`train`: from source files to a model and its error, in one call."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distls.clock import began
from distls.evaluation.evaluate import evaluate
from distls.evaluation.metrics import AnyEvaluation, Evaluation
from distls.evaluation.thresholds import worth_by
from distls.execution import memory_of
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.facts import Shown
from distls.ingestion.adhoc_dataset import Notify, in_memory, pass_on
from distls.ingestion.ingest import ingest
from distls.ingestion.plan import found_label_column
from distls.ingestion.request.source_start import absent
from distls.ingestion.schema import MANY_CLASSES
from distls.long_calls import long_call, watchers
from distls.methods.method_registry import METHODS, expand_grid, method_named
from distls.methods.recommendation import AUTO
from distls.request import ALONE, takes_request
from distls.solvers.events import Callback
from distls.storage.dataset.dataset import is_dataset, open_dataset
from distls.storage.errors import BadInputError, DistlsError, ParameterError
from distls.storage.filesystem.atomic import remove_tree
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.model.model import load_model
from distls.training.configuration import FitRequest, check_published
from distls.training.exact_method import choosing
from distls.training.fitting import train as train_request
from distls.training.run_config import TESTED_BY
from distls.training.run_folder import Run
from distls.training.setting_fit import FitOptions, FitResult
from distls.workers.ingestion.formats.data_frames import is_frame

# Of rows, those that have one class, and those that are given one, from which on it is worth a word
_NEARLY_ALL, _ONE_ANSWER = 0.8, 0.97
_FEW_BYTES = 64 * 2**20
# What is held out to choose a threshold, and how it is named
_HELD, _HELD_SHARE = "held", 0.2


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """The result of `train`.

    Attributes
    ----------
    fit : FitResult
    evaluation : Evaluation, LabelEvaluation, RegressionEvaluation or None
        On the test files; None without, or if the fit was interrupted or diverged.
    dataset : Place or None
        What the files were ingested into; None if it was discarded.
    """

    fit: FitResult
    evaluation: AnyEvaluation | None
    dataset: Place | None


@long_call
@takes_request(ALONE)
def train(
    sources: Any, run: str | Place, *, test: Any = (), test_labels: str | None = None, method: str = AUTO,
    params: Mapping[str, Any] | None = None, threshold_for: str | None = None,
    dataset: str | Place | None = None, keep_dataset: bool = True, executor: Executor | None = None,
    memory: MemoryBudget | None = None, callbacks: Sequence[Callback] = (), progress: Any = None,
    notify: Notify | None = None, **options: Any,
) -> Trained:  # fmt: skip
    """Ingest files or a data frame, train a model on them, and evaluate it on others.

    Repeating an interrupted call resumes its ingest; `distls.resume` continues a fit that was interrupted.

    Parameters
    ----------
    sources : path, sequence of paths, or data frame
        Files, or a data frame of pandas, polars, Arrow or Dask, to train on, with labels. The column of labels of a
        table, unless `label_column` names it, is the first of ``label``, ``class``, ``category``, ``intent``,
        ``target``, ``y``; a notice says which.
    run : path
        Folder for the run and its model.
    test : path, sequence of paths, or data frame
        Rows with labels to evaluate on; read like `sources`.
    test_labels : path, optional
        File with the labels of `test`, as `labels` has those of `sources`.
    method : str
        See ``distls methods``. Default: the one that suits the data, its strength found by cross-validation.
    params, callbacks
        As of `distls.fit`.
    %(request)s
    threshold_for : {"f1", "recall=R", "precision=P", "cost=FP:FN"}, optional
        Of two classes, predict the second above the score that is best by this. A fifth of the rows is held out to
        choose it, and to calibrate probabilities.
    dataset : path, optional
        What the files are ingested into. Default: next to `run`, named like it with ``-data``.
    keep_dataset : bool
        Keep it: `distls.resume` needs it, `distls.predict` does not.
    executor, memory
        As of `distls.fit`.
    progress : callable or bool, optional
        Called with (bytes done, bytes in all, stage) of the ingest. Default, in notebooks, and True: a bar.
    notify : callable, optional
        Called with each notice, one line of text. Default: they become a UserWarning each.
    **options
        Of `distls.ingest`, such as ``label_column="y"`` or ``text_column="text"``; `transform` is ``auto`` here,
        ``none`` with `as_published`, and `unknown_features` is of `test`, which is read like `sources` otherwise.

    Raises
    ------
    ParameterError, BadInputError, MismatchError, StorageError
        As of `distls.ingest`, `distls.fit` and `distls.evaluate`; options are checked before anything is written.
    """
    command = began()
    folder, options = place_of(run), {**_defaults(method, params, options), **options}
    asked: Any = {name: options.pop(name) for name in ALONE if name in options}
    files, others = _listed(sources), _listed(test)
    unknown = options.pop("unknown_features", "error")
    scored: Any = {name: options[name] for name in TESTED_BY if name in options}
    scored |= {"labels": test_labels, "unknown_features": unknown}
    # Everything about the options before an hour of ingest.
    _check(files, others, folder, method, params, options)
    data = place_of(dataset) if dataset is not None else folder.with_name(f"{folder.name}-data")
    made, named = [data], _with_label(files, options, notify)
    if threshold_for is not None:
        made.append(_held_out(data, threshold_for, named, notify))
        asked |= {"calibrate": made[1], "threshold_for": threshold_for}
    workers: dict[str, Any] = {"executor": executor, "memory": memory}
    # The same seed shuffles rows and trains: one number repeats the whole call.
    begun = time.perf_counter()
    report = ingest(_alone(files), data, seed=asked.get("seed", 0), progress=progress, **named, **workers)
    ingested = time.perf_counter() - begun
    pass_on(report.notices, notify)
    _check_classes(made, report.notices, options)
    try:
        choose = choosing(partial(memory_of, executor or SerialExecutor()), asked)
        request = FitRequest.of(method, data, params=params, choose=choose, **asked)
        pass_on(request.notices, notify)
        options_of_fit = FitOptions(
            executor or SerialExecutor(), memory, watchers(callbacks, progress), 30.0,
            began=command, ingest_seconds=ingested,
        )  # fmt: skip
        fitted = train_request(request, folder, options_of_fit)
        tested = others and fitted.model is not None
        found = _tested(folder, others, scored, executor=executor, notify=notify) if tested else None
    except DistlsError:
        # what cannot be fitted leaves nothing: the corrected call writes the data set again
        if not folder.exists():
            _remove(made)
        raise
    if fitted.model is not None:
        pass_on(_one_answer(folder, data, executor), notify)
    # they are the caller's if notices are, with the rest of the result
    pass_on(fitted.warnings if notify is None else (), None)
    # A diverged or interrupted fit needs its data to go on.
    if not keep_dataset and fitted.model is not None:
        _remove(made)
    return Trained(fitted, found, data if is_dataset(data) else None)


def _defaults(method: str, params: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `ingest` that are others here: transforms, and what a method needs of its data set."""
    check_published(method, given.get("as_published", False))
    # chosen by the data, as nobody has seen them yet; the papers' rows are the file's
    transform = "none" if given.get("as_published") else AUTO
    by_rows = (params or {}).get("algorithm") == "row-blocks"
    columns = method in METHODS and METHODS[method].columns and not by_rows
    return {"transform": transform} | ({"columns": True} if columns else {})


def _tested(run: Place, files: list[Any], options: dict[str, Any], **how: Any) -> AnyEvaluation:
    """Evaluate on the test files, and record them, and how they were read: the report scores them again."""
    found = evaluate(run, _alone(files), **how, **options)
    if any(map(in_memory, files)):
        return found
    named = [name for name in ("labels", "label_map") if options.get(name) is not None]
    given = {**options, **{name: str(place_of(options[name]).absolute()) for name in named}}
    tested = {"files": [str(place_of(file).absolute()) for file in files], "options": given}
    folder = Run.open(run)
    folder.write_status({**folder.status, "test": tested})
    return found


def _held_out(data: Place, threshold_for: str, named: dict[str, Any], notify: Notify | None) -> Place:
    """Have the ingest hold out rows that choose a threshold; return their data set."""
    worth_by(threshold_for)  # raises for what is no metric
    named["split"] = (f"{_HELD}={_HELD_SHARE}",)
    pass_on([f"{_HELD_SHARE:.0%} of the rows are held out to choose the threshold"], notify)
    return data.with_name(f"{data.name}-{_HELD}")


def _remove(made: Sequence[Place]) -> None:
    for data in made:
        if data.exists():
            remove_tree(data)


def _listed(sources: Any) -> list[Any]:
    """Return paths, or the one data frame, as a list."""
    one = isinstance(sources, (str, Path, StorePath)) or in_memory(sources)
    if in_memory(sources) and not is_frame(sources):
        raise ParameterError(
            "train takes files or a data frame; of arrays: ingest(X, dataset, y=y) and fit, or an estimator"
        )
    return [sources] if one else list(sources)


def _alone(sources: list[Any]) -> Any:
    return sources[0] if len(sources) == 1 else sources


def _check(
    files: Sequence[Any], others: Sequence[Any], run: Place, method: str, params: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Refuse what would only fail after the ingest."""
    # Without a method named there are no parameters to check.
    if method != AUTO:
        chosen = method_named(method)
        for given in expand_grid(params or {}):
            if (start := chosen.resolve(given).get("init")) is not None:
                load_model(start)
    Run.check_new(run)
    if options.get("unlabelled"):
        raise ParameterError("unlabelled: rows without labels train nothing")
    for option in ("like", "split"):
        if options.get(option):
            raise ParameterError(f"{option} is for ingest; use ingest, fit and evaluate one after the other")
    for path in map(place_of, (source for source in (*files, *others) if not in_memory(source))):
        if is_dataset(path):
            raise ParameterError(f"{path}: a data set already; train on it with fit")
        if isinstance(path, Path) and not path.exists():
            # of the test files too, before an hour of training
            raise ParameterError(f"{path}: {absent(path)}")


def _check_classes(made: Sequence[Place], notices: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse to guess whether whole numbers of many values are classes; what was made is removed then."""
    doubt = next((notice for notice in notices if MANY_CLASSES in notice), None)
    if doubt is not None and options.get("target", "auto") == "auto":
        _remove(made)
        raise BadInputError(
            f"{doubt.partition(':')[0]}, all whole numbers: --target continuous if they are a "
            "quantity to predict (regression), --target class if they are classes"
        )


def _one_answer(run: Place, data: Place, executor: Executor | None) -> list[str]:
    """Say so where the model gives nearly all rows one class; looked at where nearly all rows have one."""
    dataset = open_dataset(data)
    meta = dataset.meta
    small = float(dataset.decoded_bytes.sum()) <= _FEW_BYTES  # whose rows are predicted in no time
    if meta.target != "class" or not small or max(meta.label_counts) < _NEARLY_ALL * meta.n_rows:
        return []
    found = evaluate(run, data, executor=executor)
    assert isinstance(found, Evaluation)
    answers = np.bincount(found.confusion[:, 1], found.confusion[:, 2])
    share, most = answers.max() / meta.n_rows, found.predicted_classes[int(answers.argmax())]
    if share < max(_ONE_ANSWER, max(meta.label_counts) / meta.n_rows):
        return []
    return [
        f"the model answers {most} for {100 * share:.1f} % of the training rows, of which "
        f"{100 * max(meta.label_counts) / meta.n_rows:.1f} % are {most}: train with --threshold-for f1 (or "
        "recall=0.9, cost=1:10), or rank rows by `predict --proba`"
    ]


def _with_label(files: Sequence[Any], options: Mapping[str, Any], notify: Notify | None) -> dict[str, Any]:
    """Return the options of the ingest, with the column of labels if it is found by its name."""
    known = {"separator", "header", "encoding", "text_column", "label_column"}
    named = {name: value for name, value in options.items() if name in known and value is not None}
    found = None
    # what cannot be read is explained by the ingest
    with contextlib.suppress(DistlsError):
        found = found_label_column(files, options.get("format", "auto"), named)
    if found is None:
        return dict(options)
    pass_on([f'the labels are column "{found}"; --label-column names another one'], notify)
    return {**options, "label_column": found}
