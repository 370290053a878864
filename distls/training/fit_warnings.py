"""Warnings about a fit that has ended: it is far from the optimum, or no better than guessing."""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.problem import Problem
from distls.solvers.status import Record, Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import Label
from distls.storage.errors import DistlsError
from distls.storage.rows import CsrRows, DenseRows
from distls.training.fit_facts import LOOSE
from distls.workers.losses.loss_registry import loss_named

# Parts of the objective that a first step, or the optimum, could still take off; fits that are as good as their
# optimum on other data have up to 2 % and 1 % (measured on dense tables and on text).
_STEP_LEFT = 0.03
_GAP_LEFT = 0.05
_WORSE = 1.05  # times the objective of zero weights
_SCALES = 30.0  # ratio of the columns' scales from which they are worth a word
_MANY = 1e6  # of them, above which the number says no more
_SAMPLED_BYTES = 64 * 2**20
_SEEN = 10  # values of a sparse column from which their size says something
_EQUAL = 1.01  # ratio of the rows' lengths up to which they are scaled to one length


class _Sample(NamedTuple):
    """Columns of some rows: their mean squares, and the ratio of their scales; and of numbers the variance, summed."""

    squares: NDArray[np.float64]
    ratio: float
    variance: float


def fit_warnings(
    problem: Problem,
    status: Status,
    record: Record,
    slope: NDArray[np.float64] | None,
    eval_data: Dataset | None,
    proves: bool,
    ordered: bool,
) -> list[str]:
    """Return warnings, a line each, about what the exit code alone does not show.

    `slope` has the squared norms of the rows of the objective's gradient (n_features,), where the loss is smooth.
    With `proves` the certificate is that of a method that proves the optimum; those of others are loose. With
    `ordered` the method takes rows one after the other, so that their order matters.
    """
    # fits without a fold are trials, of which the best is fitted to all rows
    trial = record.get("preliminary") or problem.dataset.fold is not None
    if trial or status in (Status.INTERRUPTED, Status.DIVERGED):
        return []
    judged = _judged(problem, record, eval_data)
    found = _sorted_rows(problem.dataset) if ordered else []
    said = None if judged is None else guessing_warning(*judged, _most_frequent(problem))
    found += [] if said is None else [said]
    objective = record.get("objective")
    if status == Status.CONVERGED or not objective:
        return found + _no_better_than_the_mean(problem, record)
    start = _objective_at_zero(problem)
    floor = max(objective, _GAP_LEFT * (start or 0.0))
    if start is not None and objective > _WORSE * start and judged is not None and judged[0] > judged[1] / 2:
        rest = _advice(problem, _sampled(problem))
        return [*found, f"the objective of {objective:.4g} is above the {start:.4g} of zero weights; {rest}"]
    if proves:
        return found + _loose(problem, record, objective, floor)
    meta = problem.dataset.meta
    # of wide data, text above all, most columns occur in too few rows for a sample to judge
    if slope is None or meta.n_features > meta.n_rows:
        return found
    return found + _not_converged(problem, floor, slope, _sampled(problem))


def _sorted_rows(dataset: Dataset) -> list[str]:
    """Judge rows in the order of their source by the means of their partitions."""
    measured = dataset.exchangeability
    worst = None if measured is None or dataset.meta.shuffle_seed is not None else measured.largest
    if worst is None or worst[1].times_chance <= 1:
        return []
    what, (times, partition) = worst[0], (worst[1].times_chance, worst[1].partition)
    return [
        f"the rows are not in random order: the {what} of partition {partition} differ from the others' {times:.1f} "
        "times more than chance allows, and this method takes rows as they come; ingest without --no-shuffle"
    ]


def _judged(problem: Problem, record: Record, eval_data: Dataset | None) -> tuple[float, float, str] | None:
    """Return the error, that of the most frequent class of the training rows, and the rows; None if unknown."""
    meta = problem.dataset.meta
    known = eval_data is not None and record.get("eval_error") is not None
    data = eval_data if eval_data is not None and known else problem.dataset
    error = record.get("eval_error" if known else "running_error")
    too_early = not known and _has_hardly_begun(record)
    # of weighted classes it is not the share of rows that is least
    weighted = meta.weighted or len(set(problem.row_weight_by_class)) > 1
    if problem.target != "class" or error is None or weighted or too_early:
        return None
    counts = dict(zip(data.meta.classes, data.meta.label_counts, strict=True))
    guessed = 1 - counts.get(_most_frequent(problem), 0) / max(data.meta.n_rows, 1)
    return error, guessed, "evaluation rows" if known else "training rows"


def _has_hardly_begun(record: Record) -> bool:
    """Return whether rows were scored in the first pass, or the first round after passes that only prepared it."""
    return bool(record.get("passes", 0.0) < 2.0 or record.get("round", 2) < 2)


def _no_better_than_the_mean(problem: Problem, record: Record) -> list[str]:
    """Judge numbers that are fitted by squares; a method that ends by its own rule may be far from their optimum."""
    meta, loss, least = problem.dataset.meta, record.get("running_loss"), loss_named(problem.loss).quadratic
    if problem.target != "continuous" or not least or meta.weighted:
        return []
    if loss is None or _has_hardly_begun(record):
        return []
    # that of the round is of the weights before it; the objective, where it is known, of those that are kept
    loss = min(loss, record.get("objective") or loss)
    sample = _sampled(problem)
    if sample is None or not 2.0 * loss >= sample.variance > 0.0:
        return []
    error = 2.0 * loss / problem.shape[1]
    said = f"the mean squared error of {error:.4g} on training rows is no better than that of always answering the mean"
    return [f"{said}; {_advice(problem, sample)}"]


def _most_frequent(problem: Problem) -> Label:
    meta = problem.dataset.meta
    return meta.classes[int(np.argmax(meta.label_counts))]


def guessing_warning(error: float, guessed: float, rows: str, most_frequent: Label) -> str | None:
    """Return a line about an error that is no lower than that of the most frequent class; None if it is lower."""
    if error < guessed or guessed == 0:
        return None
    return (
        f"the error of {100 * error:.2f} % on {rows} is no better than that of always answering "
        f"{most_frequent}, {100 * guessed:.2f} %"
    )


def _not_converged(problem: Problem, objective: float, slope: NDArray[np.float64], sample: _Sample | None) -> list[str]:
    """Judge by the decrease that each column promises for itself, which does not depend on the columns' scales."""
    if sample is None or not objective > 0:  # that of some links may be below
        return []
    squares, used = sample.squares, sample.squares > 0
    steepness = loss_named(problem.loss).lipschitz(max(problem.shape[1], 2))
    part = float((slope[used] / squares[used]).sum()) / (2 * steepness * objective)
    if not part >= _STEP_LEFT:
        return []
    left = f"not converged: a step could still lower the objective by about {100 * min(part, 1):.0f} %"
    return [f"{left}; {_advice(problem, sample)}"]


def _loose(problem: Problem, record: Record, objective: float, floor: float) -> list[str]:
    """Judge by the bound of a method that proves its optimum."""
    certificate: dict[str, Any] = record.get("certificate") or {}
    gap = certificate.get("value")
    if gap is None or gap < _GAP_LEFT * floor:
        return []
    most = gap / objective
    left = f"not converged: the objective may be {100 * most:.0f} % above the optimum"
    if most > LOOSE:
        left = f"not converged: nothing proves that the objective is within {100 * LOOSE:.0f} % of the optimum"
    return [f"{left}; {_advice(problem, _sampled(problem), 'another alpha')}"]


def _objective_at_zero(problem: Problem) -> float | None:
    """Return F(0), None for numbers and sets of labels."""
    if problem.target != "class":
        return None
    scores, code = np.zeros((1, problem.shape[1])), np.zeros(1, np.int32)
    return float(loss_named(problem.loss).values(scores, code)[0])


def _advice(problem: Problem, sample: _Sample | None, other: str = "another alpha or sdca") -> str:
    ratio = 1.0 if sample is None else sample.ratio
    steps: Sequence[dict[str, Any]] = problem.dataset.meta.transforms
    if ratio < _SCALES or any(step["name"] in ("standardize", "l2norm") for step in steps):
        return "give it more passes, or another method (`distls methods`)"
    times = f"{ratio:.0f}" if ratio < _MANY else "over a million"
    # rows of a table with categories are sparse too
    if problem.dataset.meta.layout == "csr" and "features" not in problem.dataset.meta.source.get("recipe", {}):
        return f"the values of its columns differ {times}-fold: ingest with --transform idf,l2norm, or take {other}"
    return (
        f"the scales of its columns differ {times}-fold: standardize them (--transform standardize of ingest, "
        "before an estimator StandardScaler), or take gls, which does not depend on scales"
    )


def _sampled(problem: Problem) -> _Sample | None:
    # a warning is not worth an error
    with contextlib.suppress(DistlsError, OSError):
        return _remembered(problem.dataset)
    return None


_LAST: list[tuple[tuple[str, bool], _Sample | None]] = []


def _remembered(dataset: Dataset) -> _Sample | None:
    """Return the sample; the fits of a path, or of a selection, take it once."""
    key = dataset.fingerprint, dataset.standardization is None  # a grid may have both
    if not _LAST or _LAST[0][0] != key:
        _LAST[:] = [(key, _sample(dataset))]
    return _LAST[0][1]


def _sample(dataset: Dataset) -> _Sample | None:
    """Return the columns of the first partition; None if it is too large for the driver."""
    if int(dataset.decoded_bytes[0]) > _SAMPLED_BYTES:
        return None
    part = dataset.read(0)
    numbers = dataset.meta.target == "continuous"
    variance = float(part.y.var(axis=0).sum()) if numbers else 0.0
    if not isinstance(part.x, DenseRows):
        return _sparse_sample(part.x, dataset.meta.n_features, variance)
    squares = np.einsum("ij,ij->j", part.x.values, part.x.values, dtype=np.float64)
    return _Sample(squares / len(part.x.values), _ratio(squares), variance)


def _sparse_sample(rows: CsrRows, width: int, variance: float) -> _Sample:
    """Judge scales by the values that are there: that a word is rare is no matter of scales."""
    data, n_rows = rows.data.astype(np.float64), len(rows.indptr) - 1
    sums = np.bincount(rows.indices, data * data, width)
    counts = np.bincount(rows.indices, minlength=width).astype(np.float64)
    often = counts >= _SEEN
    of_row = np.repeat(np.arange(n_rows), np.diff(rows.indptr))
    lengths = np.bincount(of_row, data * data, n_rows).astype(np.float64)
    # rows of one length have been scaled, by whoever wrote them
    ratio = 1.0 if _ratio(lengths) < _EQUAL else _ratio(sums[often] / counts[often])
    return _Sample(sums / n_rows, ratio, variance)


def _ratio(squares: NDArray[np.float64]) -> float:
    """Return the largest root over the smallest that is not zero."""
    used = squares[squares > 0]
    return float(np.sqrt(used.max() / used.min())) if len(used) else 1.0
