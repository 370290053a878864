"""The rows of a data set in the forms of other libraries: arrays, batches, a frame; `to_dask` has them as Dask's."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from distls import facts
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place
from distls.storage.rows import CsrRows, Partition, n_rows_of


class StoredRows(NamedTuple):
    """Some rows, in order."""

    X: Any  # array or scipy.sparse.csr_matrix of shape (n_rows, n_features), as the data set is dense or sparse
    # labels (n_rows,); numbers (n_rows,) or (n_rows, n_targets); a csr_matrix (n_rows, n_labels) of ones at the labels
    # of each row, whose columns are ``dataset.meta.classes``; None without targets
    y: Any
    sample_weight: Any  # float32 (n_rows,), or None

    def _repr_html_(self) -> str:
        told = {name: each for name, each in zip(self._fields, self, strict=True) if each is not None}
        listed = [facts.Fact(name, f"{' x '.join(map(str, a.shape))}, {a.dtype}") for name, a in told.items()]
        return facts.as_card("StoredRows", listed)


def dataset_of(dataset: Dataset | Place | str) -> Dataset:
    """Return an open data set; raise as `open_dataset`."""
    return dataset if isinstance(dataset, Dataset) else open_dataset(dataset)


def to_arrays(dataset: Dataset | Place | str) -> StoredRows:
    """Read all rows into memory.

    Parameters
    ----------
    dataset : path or Dataset

    Returns
    -------
    StoredRows
        ``X``, ``y`` and ``sample_weight``, in the order in which the rows are stored.

    Raises
    ------
    CorruptDataError
        A partition is not as it was written.
    """
    data = dataset_of(dataset)
    return _joined([rows_of_partition(data, index) for index in range(len(data))], data)


def batches(
    dataset: Dataset | Place | str, size: int = 1024, *, random_state: int | None = None
) -> Iterator[StoredRows]:
    """Read rows in batches, a partition at a time, as `torch.utils.data.IterableDataset` and ``partial_fit`` take them.

    Parameters
    ----------
    dataset : path or Dataset
    size : int
        Rows of each batch, at least 1; the last batch of a partition may have fewer.
    random_state : int, optional
        Seed of a random order of the partitions, and of the rows within each; by default the order is the stored one.

    Yields
    ------
    StoredRows
    """
    data = dataset_of(dataset)
    if size < 1:
        raise ParameterError(f"size={size}: expected at least 1 row a batch")
    return _batches(data, size, random_state)


def _batches(data: Dataset, size: int, random_state: int | None) -> Iterator[StoredRows]:
    generator = None if random_state is None else np.random.default_rng(random_state)
    for index in range(len(data)) if generator is None else generator.permutation(len(data)).tolist():
        rows = rows_of_partition(data, index)
        if generator is not None:
            order = generator.permutation(rows.X.shape[0])
            rows = StoredRows(*(None if each is None else each[order] for each in rows))
        for start in range(0, rows.X.shape[0], size):
            yield StoredRows(*(None if each is None else each[start : start + size] for each in rows))


def to_frame(dataset: Dataset | Place | str) -> Any:
    """Read all rows into a pandas DataFrame.

    Parameters
    ----------
    dataset : path or Dataset

    Returns
    -------
    pandas.DataFrame
        A column for each feature, by its name or number, sparse columns of sparse data; then the targets: ``label``,
        or ``target`` (several: ``target_0``, ...), or a column ``label=NAME`` for each label; and ``sample_weight``.
    """
    import pandas as pd

    data = dataset_of(dataset)
    X, y, weight = to_arrays(data)
    make = pd.DataFrame.sparse.from_spmatrix if sp.issparse(X) else pd.DataFrame
    frame = make(X, columns=data.feature_names() or range(X.shape[1]))
    more: dict[str, Any] = {}
    if sp.issparse(y):
        more = {f"label={name}": y[:, [c]].toarray()[:, 0] for c, name in enumerate(data.meta.classes)}
    elif y is not None and y.ndim == 2:
        more = {f"target_{c}": y[:, c] for c in range(y.shape[1])}
    elif y is not None:
        more = {"label" if data.meta.target == "class" else "target": y}
    more |= {} if weight is None else {"sample_weight": weight}
    return pd.concat([frame, pd.DataFrame(more)], axis=1)


def rows_of_partition(data: Dataset, index: int) -> StoredRows:
    """Read one partition."""
    part = data.read(index)
    return StoredRows(_features(part, data.meta.n_features), _targets(part, data), part.sample_weight)


def _features(part: Partition, n_features: int) -> Any:
    if not isinstance(part.x, CsrRows):
        return part.x.values
    # SciPy wants signed indices of one type
    kind = np.int32 if max(n_features, len(part.x.data)) < 2**31 else np.int64
    given = part.x.data, part.x.indices.astype(kind), part.x.indptr.astype(kind)
    return sp.csr_matrix(given, shape=(n_rows_of(part.x), n_features))


def _targets(part: Partition, data: Dataset) -> Any:
    if part.y is None:
        return None
    if isinstance(part.y, CsrRows):
        ones = CsrRows(part.y.indptr, part.y.indices, np.ones(len(part.y.indices), np.int8))
        return _features(Partition(ones, None), len(data.meta.classes))
    if data.meta.target == "class":
        return np.array(data.meta.classes)[part.y]
    return part.y[:, 0] if part.y.shape[1] == 1 else part.y


def _joined(parts: list[StoredRows], data: Dataset) -> StoredRows:
    """Return partitions one after the other; of no rows, empty arrays of the right shapes."""
    if not parts:
        none = np.empty((0, data.meta.n_features), data.meta.dtype)
        return StoredRows(sp.csr_matrix(none) if data.meta.layout == "csr" else none, None, None)
    columns = ([getattr(part, name) for part in parts] for name in StoredRows._fields)
    return StoredRows(*(_concatenated(column) for column in columns))


def _concatenated(parts: list[Any]) -> Any:
    if parts[0] is None:
        return None
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
