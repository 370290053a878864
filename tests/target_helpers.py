"""Small datasets whose rows have sets of labels, or numbers, and models made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from helpers import as_rows

from distls.storage.dataset.dataset import Dataset, publish
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import write_partition
from distls.storage.model.model import LinearModel
from distls.storage.rows import CsrRows, Partition


def sets_of(indicator: np.ndarray) -> CsrRows:
    """Return the sets of labels of a 0/1 array (n_rows, k) as a partition holds them."""
    row, code = np.nonzero(indicator)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(indicator)))]).astype(np.int64)
    return CsrRows(indptr, code.astype(np.uint32), np.ones(len(code), np.float32))


def write_targets(
    path: Path, x: Any, y: np.ndarray, target: str, *, partition_rows: int = 60,
    sample_weight: np.ndarray | None = None, classes: list[Any] | None = None,
) -> Dataset:  # fmt: skip
    """Write rows with sets of labels (`y` 0/1, a column a label) or numbers, in the given order."""
    sets = target == "multilabel"
    k = y.shape[1] if sets else 0
    records = []
    for index, start in enumerate(range(0, len(y), partition_rows)):
        rows = slice(start, start + partition_rows)
        own = sets_of(y[rows]) if sets else np.ascontiguousarray(y[rows], dtype=np.float64)
        weight = None if sample_weight is None else sample_weight[rows].astype(np.float32)
        part = Partition(as_rows(x[rows]), own, weight)
        records.append(write_partition(path, index, part, x.shape[1], k, {}))
    meta = DatasetMeta(
        n_rows=0, n_features=x.shape[1], nnz=0, layout="csr" if sp.issparse(x) else "dense", dtype=x.dtype.name,
        target=target, classes=(classes or list(range(k))) if sets else [], n_targets=0 if sets else y.shape[1],
        weighted=sample_weight is not None,
    )  # fmt: skip
    return publish(path, meta, records, {})


def rows_with_numbers(n_rows: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return dense rows and k numbers each that a linear model explains but for some noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, d)) * np.geomspace(1, 5, d)
    return x, x @ rng.standard_normal((d, k)) + 3.0 * np.arange(1, k + 1) + rng.standard_normal((n_rows, k))


def rows_with_labels(n_rows: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return dense rows and 0/1 labels (n_rows, k); some rows have none, some all."""
    x, y = rows_with_numbers(n_rows, d, k, seed)
    return x, (y > np.quantile(y, np.linspace(0.4, 0.8, k), axis=0).diagonal()).astype(np.int64)


def made_model(d: int, k: int, target: str, seed: int = 0, **changes: Any) -> LinearModel:
    """Return a random model of some kind of target."""
    rng = np.random.default_rng(seed)
    model = LinearModel(
        weights=rng.standard_normal((d, k)), intercept=rng.standard_normal(k),
        classes=[] if target == "continuous" else list(range(k)), method="gls", loss="squared", params={},
        transforms=[], transforms_digest="", dataset_fingerprint="", target=target,
    )  # fmt: skip
    return replace(model, **changes)
