"""A data set on one line. Apart from the text of runs, so that ingest need not load what trains and evaluates them."""

from distls.execution.memory_budget import human
from distls.facts import counted
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset


def dataset_line(dataset: Dataset) -> str:
    """Return a dataset's size on one line."""
    meta = dataset.meta
    density = f", {meta.nnz / max(meta.n_rows, 1):.1f} non-zeros a row" if meta.layout == "csr" else ""
    what = "labels" if meta.target == "multilabel" else "classes"
    kind = (
        f"{len(meta.classes)} {what}" if meta.classes else {"none": "no labels"}.get(meta.target, meta.target)
    )
    return (
        f"{dataset.path}: {counted(meta.n_rows, 'row')} x {counted(meta.n_features, 'feature')}{density}, {kind}, "
        f"{counted(len(dataset), 'partition')}, {human(int(dataset.stored_bytes.sum()))} stored"
    )


def columns_line(shards: ColumnShards) -> str:
    """Return the number and sizes of a dataset's column shards, on one line."""
    return (
        f"{shards.path}: {len(shards)} column shards of at most {human(int(shards.decoded_bytes.max(initial=0)))}, "
        f"{human(int(shards.stored_bytes.sum()))} stored"
    )
