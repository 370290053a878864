"""Costs of wrong predictions, by class: a CSV file with the classes in its first line and its first column."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import Label
from distls.storage.errors import BadInputError, ParameterError
from distls.workers.evaluation.class_metrics_task import RANKED_CLASSES

_SHAPE = (
    "expected a first line with a blank and the predicted classes, then a line for each class with its costs"
)


def read_costs(path: str | Path, classes: Sequence[Label], predicted: Sequence[Label]) -> NDArray[np.float64]:
    """Return the costs of each class of the data (rows) where each of the model is predicted (columns).

    Raises ParameterError if there are too many classes or costs of a class are missing, BadInputError if the file is
    not such a table of finite numbers.
    """
    if max(len(classes), len(predicted)) > RANKED_CLASSES:
        raise ParameterError(f"--costs: {len(predicted)} classes; costs are for {RANKED_CLASSES} at most")
    columns, rows = _read(path)
    for names, wanted, where in ((columns, predicted, "first line"), (list(rows), classes, "first column")):
        missing = [str(label) for label in wanted if str(label) not in names]
        if missing:
            raise ParameterError(f'{path}: no class "{missing[0]}" in its {where}; {_SHAPE}')
    places = [columns.index(str(label)) for label in predicted]
    return np.array([[rows[str(label)][place] for place in places] for label in classes]).reshape(
        len(classes), len(predicted)
    )


def _read(path: str | Path) -> tuple[list[str], dict[str, list[float]]]:
    """Return the names of the columns, and the numbers of each row by its name."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: cannot be read as a table of costs ({error})") from None
    if not lines:
        raise BadInputError(f"{path}: empty; {_SHAPE}")
    columns = [name.strip() for name in lines[0][1:]]
    rows: dict[str, list[float]] = {}
    for number, line in enumerate(lines[1:], 2):
        name, fields = line[0].strip(), line[1:]
        if len(fields) != len(columns) or name in rows:
            why = "twice" if name in rows else f"{len(fields)} costs of {len(columns)} classes"
            raise BadInputError(f'{path}, line {number}: class "{name}", {why}; {_SHAPE}')
        rows[name] = [_number(field, f"{path}, line {number}") for field in fields]
    return columns, rows


def _number(field: str, where: str) -> float:
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInputError(f'{where}: "{field}" is not a cost; expected a finite number')
    return value
