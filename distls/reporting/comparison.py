"""Comparison of runs: what they were asked, how far their weights are apart, on which rows they disagree."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.compatibility import check_model_scores, check_targets, class_codes
from distls.execution import executor_of
from distls.execution.executor import Executor
from distls.execution.row_reads import reduce_rows
from distls.facts import Fact, Shown
from distls.long_calls import Workers, long_call
from distls.model_check import predictor_of
from distls.reporting.run_report import RunRecord, read_run
from distls.request import OPTIONS
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel
from distls.training.fit_facts import fit_facts
from distls.workers.evaluation.agreement_task import AgreementSum, AgreementTask
from distls.workers.rounds.block_stream import DatasetRef

_MOST_RUNS = 8  # as many as there are colours
_SHOWN_ROWS = 50  # rows in dispute
_CHUNK = 2**20  # weights whose products are summed at a time


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Several runs of the same classes and features."""

    names: list[str]  # of the runs, each once
    records: list[RunRecord]
    differing: dict[str, list[Any]]  # of a field of the request or a parameter, the value in each run
    weights: list[dict[str, Any]]  # of each pair: `runs`, `cosine`, `distance`
    agreement: dict[str, Any] | None  # with data: `dataset`, `n_rows`, `errors`, `disputed`, `pairs`, `rows`

    def facts(self) -> list[Fact]:
        """Return how each run ended."""
        said = (", ".join(fact.said for fact in fit_facts(record.status)) for record in self.records)
        return list(map(Fact, self.names, said))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; docs/cli.md lists the fields."""
        shown = ("status", "passes", "seconds", "objective", "certificate", "eval_error", "eval_mse", "select_error",
                 "weights_sha256")  # fmt: skip
        return {
            "kind": "comparison",
            "runs": [
                {
                    "name": name,
                    "run": str(record.path),
                    **{field: record.status[field] for field in shown if field in record.status},
                }
                for name, record in zip(self.names, self.records, strict=True)
            ],
            "differing": self.differing,
            "weights": self.weights,
            "agreement": self.agreement,
        }


@long_call
def compare(
    runs: Sequence[str | Place],
    data: str | Place | None = None,
    *,
    html: str | Place | None = None,
    executor: Any = None,
    **workers: Unpack[Workers],
) -> Comparison:
    """Compare runs of the same classes and features, with `data` also their predictions for its rows.

    With `html` a page of it is written too.

    Raises FormatError if one of `runs` is no run, ParameterError if there are fewer than two or too many,
    MismatchError if they have other classes or features, or their models cannot score `data`.
    """
    if not 2 <= len(runs) <= _MOST_RUNS:
        raise ParameterError(f"{len(runs)} runs were named; name from 2 to {_MOST_RUNS} of them")
    from distls.reporting.comparison_page import render_comparison
    from distls.reporting.page import checked_page, write_page

    page = None if html is None else checked_page(html)
    records = [read_run(run) for run in runs]
    names = _names(records)
    _check_alike(records)
    agreement = None
    if data is not None:
        agreement = _agreement(records, names, open_dataset(place_of(data)), executor_of(executor))
    made = Comparison(names, records, _differing(records), _weights(records, names), agreement)
    if page is not None:
        write_page(page, render_comparison(made))
    return made


def _names(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the folders, or the whole paths where two have the same name."""
    short = [record.path.name for record in records]
    names = short if len(set(short)) == len(short) else [str(record.path) for record in records]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ParameterError(f"{twice} is given twice; name each run once")
    return names


def _check_alike(records: Sequence[RunRecord]) -> None:
    """Raise MismatchError unless all published models predict the same from the same features."""
    known = [(str(record.path), record.model) for record in records if record.model is not None]
    for name, model in known[1:]:
        first, other = known[0]
        for what, mine, its in _sides(model, other):
            if mine != its:
                raise MismatchError(f"{name} cannot be compared with {first}: it has {what(mine)}, that {what(its)}")
        _check_feature_names(name, model, first, other)


def _sides(model: LinearModel, other: LinearModel) -> list[tuple[Any, Any, Any]]:
    """Return (how to say it, of one, of the other) for all that must be the same."""
    return [
        (lambda target: f"{target} targets", model.target, other.target),
        (lambda count: f"{count:,} features", model.n_features, other.n_features),
        (_said_classes, tuple(model.classes), tuple(other.classes)),
        (lambda count: f"{count} outputs", model.n_outputs, other.n_outputs),
        (lambda digest: f"transforms of digest {str(digest)[:12] or 'none'}",
         model.transforms_digest, other.transforms_digest),
    ]  # fmt: skip


def _said_classes(classes: Sequence[Any]) -> str:
    named = ", ".join(str(label) for label in classes[:4])
    return f"{len(classes):,} classes ({named}{', ...' if len(classes) > 4 else ''})"


def _check_feature_names(name: str, model: LinearModel, first: str, other: LinearModel) -> None:
    mine, its = unpack_names(model.features, name), unpack_names(other.features, first)
    for number, (one, two) in enumerate(zip(mine or (), its or (), strict=False)):
        if one != two:
            raise MismatchError(
                f'{name} cannot be compared with {first}: feature {number} is "{one}" in it, "{two}" in that'
            )


def _differing(records: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Return the fields and parameters that are not the same in all runs; a run without one has None."""
    fields = {name: name for name in ("method", "dataset", "dataset_fingerprint")}
    fields |= {option.key: option.name for option in OPTIONS}
    found = {key: [getattr(record.config, name) for record in records] for key, name in fields.items()}
    names = dict.fromkeys(name for record in records for name in record.params)
    for name in names:
        found.setdefault(name, [record.params.get(name) for record in records])
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


# -- weights ---------------------------------------------------------------------------------------------


def _weights(records: Sequence[RunRecord], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return cosine and relative distance of the weights of each pair; None for models of generated features."""
    lines = []
    for (i, one), (j, two) in itertools.combinations(enumerate(records), 2):
        if one.model is not None and two.model is not None:
            lines.append({"runs": [names[i], names[j]], **_apart(one.model, two.model)})
    return lines


def _apart(one: LinearModel, two: LinearModel) -> dict[str, float | None]:
    """Return the cosine, and the norm of the difference as a part of the first one's."""
    if one.recipe or two.recipe or one.weights.shape != two.weights.shape:
        return {"cosine": None, "distance": None}
    products = _products(one.weights, two.weights)
    a, b, both = products + _products(one.intercept[None], two.intercept[None])
    square = max(a + b - 2 * both, 0.0)
    return {
        "cosine": float(both / np.sqrt(a * b)) if a * b > 0 else None,
        "distance": float(np.sqrt(square / a)) if a > 0 else None,
    }


def _products(one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums of squares of both, and of their products, in double precision and pieces of bounded size."""
    total = np.zeros(3)
    step = max(1, _CHUNK // max(one.shape[1], 1))
    for first in range(0, len(one), step):
        a = one[first : first + step].astype(np.float64).ravel()
        b = two[first : first + step].astype(np.float64).ravel()
        total += (a @ a, b @ b, a @ b)
    return total


# -- predictions -----------------------------------------------------------------------------------------


def _agreement(records: Sequence[RunRecord], names: Sequence[str], data: Dataset, executor: Executor) -> dict[str, Any]:
    """Compare the predicted classes for every row; labels that no model knows count as errors."""
    models = []
    for record in records:
        name = str(record.path)
        if record.model is None:
            raise MismatchError(f"{name}: no model yet; `distls resume {name}` continues the run")
        if record.model.target != "class":
            raise MismatchError(f"{name}: --data compares predicted classes, its targets are {record.model.target}")
        check_model_scores(data, record.model, name)
        check_targets(data, "class", record.model.n_outputs, name)
        models.append(record.model)
    codes = class_codes(data, models[0].classes, str(records[0].path), "count")
    task = AgreementTask(
        DatasetRef.of(data), tuple(model.loss for model in models), codes, data.first_rows, _SHOWN_ROWS
    )
    predictors = [predictor_of(model) for model in models]
    total: AgreementSum = reduce_rows(executor, data, predictors, task)
    return _told(total, names, models[0].classes, data)


def _told(total: AgreementSum, names: Sequence[str], classes: Sequence[Any], data: Dataset) -> dict[str, Any]:
    n_rows = data.meta.n_rows
    pairs = [
        {"runs": [names[i], names[j]], "rows": int(apart), "fraction": float(apart / n_rows)}
        for i, j in itertools.combinations(range(len(names)), 2)
        for apart in [total.apart[i, j]]
    ]
    return {
        "dataset": str(data.path), "n_rows": n_rows, "errors": (total.errors / n_rows).tolist(),
        "disputed": total.disputed, "pairs": pairs,
        "rows": [
            {
                "row": int(row), "class": None if true < 0 else classes[true],
                "predicted": [classes[code] for code in predicted],
            }
            for row, true, *predicted in total.rows.tolist()
        ],
    }  # fmt: skip
