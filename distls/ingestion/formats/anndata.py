"""What an ingest of AnnData stores will do: pieces of rows, the column of labels, the names of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distls.ingestion.formats.tables import ColumnFinder, label_of
from distls.ingestion.like import Like
from distls.ingestion.options import IngestOptions
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import BadInputError, MismatchError
from distls.storage.sources.anndata_store import check_links, open_anndata
from distls.workers.ingestion.formats.anndata import AnnDataItem
from distls.workers.ingestion.formats.arrays import ArrayHeader
from distls.workers.ingestion.parsing.text_blocks import SourceFile

__all__ = ["AnnDataHead", "anndata_head", "anndata_items", "check_same_names"]


@dataclass(frozen=True)
class AnnDataHead:
    """What is known of a store before its rows are read.

    Attributes
    ----------
    header : ArrayHeader
    label, weight : str
        Columns of ``obs``; empty: there is none.
    names : tuple of str
        Of the features.
    row_bytes : int
        Mean size of a row.
    step : int
        Rows that should not be read apart.
    """

    header: ArrayHeader
    label: str
    weight: str
    names: tuple[str, ...]
    row_bytes: int
    step: int


def anndata_head(file: SourceFile, options: IngestOptions, like: Like | None) -> AnnDataHead:
    """Open a store and find its columns.

    Raises
    ------
    BadInputError
        It cannot be read, or no column of labels is named.
    ParameterError
        A column is named that does not exist.
    """
    recipe: dict[str, Any] = {} if like is None else like.meta.source.get("recipe", {})
    check_links(file.path)
    with open_anndata(file.path) as store:
        columns = store.columns()
        find = ColumnFinder(columns, file.path)
        known = recipe.get("label") if options.label_column is None and not options.unlabelled else None
        label = known if known in columns else label_of(options, find)
        weight = "" if options.weight_column is None else find("weight_column", options.weight_column)
        header = ArrayHeader(*store.shape, store.sparse, bool(label))
        return AnnDataHead(header, label, weight, store.feature_names(), store.row_bytes, store.chunk_rows)


def anndata_items(
    files: Sequence[SourceFile], heads: Sequence[AnnDataHead], range_bytes: int
) -> tuple[AnnDataItem, ...]:
    """Cut stores into pieces of about `range_bytes`."""
    items: list[AnnDataItem] = []
    for file, head in zip(files, heads, strict=True):
        n_rows = head.header.n_rows
        step = max(range_bytes // head.row_bytes // head.step, 1) * head.step
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            items.append(AnnDataItem(len(items), file, start, stop, head.label, head.weight))
    return tuple(items)


def check_same_names(files: Sequence[SourceFile], heads: Sequence[AnnDataHead], like: Like | None) -> None:
    """Refuse stores whose features are not those of the first, or of `like`.

    Raises
    ------
    BadInputError, MismatchError
        Names the first feature that differs.
    """
    for file, head in zip(files[1:], heads[1:], strict=True):
        if head.header.sparse != heads[0].header.sparse:
            kinds = ["sparse" if h.header.sparse else "dense" for h in (head, heads[0])]
            raise BadInputError(f"{file.path}: X is {kinds[0]}, but that of {files[0].path} is {kinds[1]}")
        difference = _difference(head.names, heads[0].names)
        if difference:
            raise BadInputError(f"{file.path}: {difference} {files[0].path}")
    arrays = {} if like is None else like.features()
    known = unpack_names(arrays, "" if like is None else str(like.path))
    if known is not None:
        names = heads[0].names
        kept = arrays["kept"].tolist() if "kept" in arrays else range(len(names))
        difference = _difference([names[column] for column in kept if column < len(names)], known)
        if difference and like is not None:
            raise MismatchError(f"{files[0].path}: {difference} {like.path}")


def _difference(names: Sequence[str], known: Sequence[str]) -> str:
    """Say where the names of features are not the known ones, for a message that ends with whose those are."""
    for number, (name, other) in enumerate(zip(names, known, strict=False)):
        if name != other:
            return f'feature {number} is "{name}", but it is "{other}" in'
    return "" if len(names) == len(known) else f"{len(names)} features, but there are {len(known)} in"
