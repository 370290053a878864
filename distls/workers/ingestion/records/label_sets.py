"""Sets of labels in memory: several for a row, or none."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Ints
from distls.workers.ingestion.records.labels import label_fault

_SETS = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class LabelSets:
    """The labels of each row, one row after another."""

    ends: Ints  # shape (n_rows + 1,), from 0
    labels: NDArray[Any]  # shape (n_labels,); whole numbers or str
    known: tuple[Any, ...] = ()  # all there are, also those that no row has

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ends) - 1

    def rows(self, first: int, stop: int) -> tuple[NDArray[Any], Ints]:
        """Return labels and ends of some rows."""
        ends = self.ends[first : stop + 1]
        return self.labels[ends[0] : ends[-1]], ends - ends[0]


def label_sets(y: Any, asked: bool) -> LabelSets | None:
    """Return sets of labels as scikit-learn's `type_of_target` knows them, and lists of labels; None for others.

    Sets are a matrix of 0 and 1, dense or sparse, a column a label, or a list (tuple, set) for each row. Raises
    BadInputError if they are `asked` for, and are none of these, or a label is no whole number and no word.
    """
    if hasattr(y, "tocsr"):
        return _of_matrix(y.tocsr())
    names = [str(name) for name in getattr(y, "columns", ())]
    values = _as_array(y)
    is_matrix = values is not None and values.ndim == 2 and values.dtype.kind in "fiub"
    if values is not None and is_matrix and (asked or values.shape[1] > 1) and np.isin(values, (0, 1)).all():
        rows, columns = np.nonzero(values)
        return _sets(np.bincount(rows, minlength=len(values)), columns, names or range(values.shape[1]))
    listed = values is not None and values.ndim == 1 and values.dtype == object  # a Series of lists
    lists: Any = y if isinstance(y, (list, tuple)) else values if listed else ()
    if len(lists) and all(isinstance(row, _SETS) for row in lists) and (asked or not is_matrix):
        return _of_lists(lists)
    if asked:
        raise BadInputError(
            "y: sets of labels are a matrix of 0 and 1 with a column for each, or a list of labels for each row"
        )
    return None


def _as_array(y: Any) -> NDArray[Any] | None:
    """Return the values as an array; None for rows of different lengths."""
    try:
        return np.asarray(y)
    except ValueError:
        return None


def _of_matrix(matrix: Any) -> LabelSets:
    matrix.eliminate_zeros()
    if not (matrix.data == 1).all():
        raise BadInputError("y: a sparse matrix of sets of labels has ones, and no other numbers")
    return _sets(np.diff(matrix.indptr), matrix.indices, range(matrix.shape[1]))


def _sets(counts: NDArray[Any], columns: NDArray[Any], names: Any) -> LabelSets:
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return LabelSets(ends, np.array(names)[columns], tuple(names))


def _of_lists(lists: Any) -> LabelSets:
    # a label that is given twice counts once
    rows = [
        list(dict.fromkeys(np.asarray(row).tolist() if isinstance(row, np.ndarray) else row)) for row in lists
    ]
    flat = [label for row in rows for label in row]
    words = any(isinstance(label, str) for label in flat)
    for label in {*map(str, flat)} if words else ():
        if fault := label_fault(label):
            raise BadInputError(f"y: {fault}")
    labels = np.array([str(label) for label in flat] if words else flat, dtype=None if flat else np.int64)
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise BadInputError("y: the labels of a row are whole numbers or words")
    counts = [len(row) for row in rows]
    return LabelSets(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), labels)
