"""The arguments of estimators as scikit-learn's take them: rows of any type of numbers, weights, seeds, data sets."""

import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from distls.ingestion.formats.memory_arrays import are_missing, unwrapped
from distls.ingestion.request.format_options import pair_list
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import BadInputError, ParameterError
from distls.storage.rows import CsrRows, DenseRows, Rows, index_dtype
from distls.workers.ingestion.formats.data_frames import column_labels, is_frame
from distls.workers.ingestion.parsing.rounding_kernels import KEPT

_NARROW: list[Any] = [np.float32, np.float64]
_SEEDS = 2**31 - 1
_NUMBERS = re.compile(r"u?int|float|double|halffloat|bool|decimal", re.IGNORECASE)  # types of polars and Arrow


def has_other_columns(X: Any, kind: Any = None) -> bool:
    """Return whether a frame has columns that are no plain numbers, such as categories, texts or dates.

    Raises ParameterError if kinds of columns are given and X is no frame or one of Dask, or one is a target or weight.
    """
    if not is_frame(X) or isinstance(X, Mapping):
        if kind is not None:
            raise ParameterError("kind names columns of a data frame, and X is none")
        return False
    if kind is not None:
        _check_kind(X, kind)
        return True
    types = X.schema.types if hasattr(X, "column_names") else list(X.dtypes)
    return any(not _is_number(X, *each) for each in zip(column_labels(X), types, strict=True))


def _check_kind(X: Any, kind: Any) -> None:
    if hasattr(X, "__dask_graph__"):
        raise ParameterError("kind: of a Dask frame; distls.train reads it")
    for pair in pair_list(kind):
        if pair.rpartition("=")[2] in ("label", "weight", "id"):
            raise ParameterError(
                f"kind: {pair!r} is no feature; labels are given as y, weights as sample_weight, ids are NAME=ignore"
            )


def _is_number(X: Any, column: Any, kind: Any) -> bool:
    if not isinstance(kind, np.dtype):
        # extension types of pandas say themselves what they are
        return bool(getattr(kind, "_is_numeric", _NUMBERS.match(str(kind))))
    if kind.kind != "O" or hasattr(X, "__dask_graph__"):
        return kind.kind in "fiub"
    try:
        np.asarray(X[column], dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def number_types(X: Any) -> list[Any]:
    """Return the types that rows may have, first that of all others: the one in which their values stay different."""
    types = getattr(X, "dtypes", ())
    # a series has one
    types = (list(types) if np.iterable(types) else []) or [getattr(X, "dtype", np.dtype(object))]
    # of numbers with a fraction nothing is changed, and small ones are in float32 too
    if all(isinstance(kind, np.dtype) and (kind.kind in "fb" or kind.itemsize < 4) for kind in types):
        return _NARROW
    try:
        numbers = np.asarray(X.tocsr().data if sp.issparse(X) else X, dtype=np.float64)
    except (TypeError, ValueError):  # what they are is said by those who check them
        return _NARROW
    return _NARROW[::-1] if np.abs(numbers).max(initial=0.0, where=np.isfinite(numbers)) > KEPT else _NARROW


def lazy_type(X: Any) -> str:
    """Return the type of numbers in which a dask array or DataFrame is stored, whose values are not known yet."""
    types = list(getattr(X, "dtypes", [])) or [X.dtype]
    small = all(kind == np.float32 or getattr(kind, "itemsize", 8) < 4 for kind in types)
    return "float32" if small else "float64"


def labels_given(y: Any) -> Any:
    """Return labels that may be wrapped; raise BadInputError if one of them is missing."""
    y = unwrapped("y", y)
    if hasattr(y, "__dask_graph__"):
        return y
    # of a list of words NumPy makes NaN a word
    values = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
    if values.dtype != object:
        return y
    if places := np.flatnonzero(are_missing(values)).tolist():
        raise BadInputError(
            f"y: no label in {len(places):,} of {values.size:,} places, the first at {places[0]}; leave such rows out"
        )
    return y


def classes_given(y: Any) -> Any:
    """Return the classes of rows; raise BadInputError if rows have sets of them."""
    lists = isinstance(y, (list, tuple)) or getattr(getattr(y, "dtype", None), "kind", "") == "O"
    several = lists and any(isinstance(one, (list, tuple, set, frozenset)) and len(one) != 1 for one in y)
    if several or hasattr(y, "tocsr") or (getattr(y, "ndim", 1) == 2 and y.shape[1] > 1):
        raise BadInputError(
            "y: an estimator takes one class for each row; distls.train and distls.ingest take sets of labels"
        )
    return y


def weights_of(X: Any, sample_weight: Any) -> Any:
    """Return the weights of rows; one number is that of each."""
    if not isinstance(sample_weight, (int, float, np.number)):
        return sample_weight
    return np.full(X.shape[0] if hasattr(X, "shape") else len(X), sample_weight)


def seed_of(random_state: Any) -> int:
    """Return a whole number as it is, and one drawn from a generator, or from that of NumPy for None."""
    if random_state is None or hasattr(random_state, "randint"):
        return int(check_random_state(random_state).randint(_SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    try:
        return operator.index(random_state)
    except TypeError:
        raise ParameterError(
            f"random_state={random_state!r}: a whole number, a RandomState or None is needed"
        ) from None


def dataset_given(X: Any, y: Any = None, sample_weight: Any = None) -> Dataset | None:
    """Return the dataset that X is or names, None for arrays; raise ParameterError if targets are given beside it."""
    if not isinstance(X, (str, Path, Dataset)):
        return None
    if y is not None or sample_weight is not None:
        raise ParameterError("a data set has its own labels and weights; do not pass y or sample_weight")
    return X if isinstance(X, Dataset) else open_dataset(X)


def rows_of(X: Any) -> Rows:
    """Return rows of an array or a CSR matrix as workers read them."""
    if not sp.issparse(X):
        return DenseRows(np.ascontiguousarray(X))
    return CsrRows(X.indptr.astype(np.int64), X.indices.astype(index_dtype(X.shape[1])), X.data)
