"""AnnData format: ranges of rows, the label column, the feature names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distls.ingestion.formats.arrays import ARRAY_NO_SETS
from distls.ingestion.formats.tables import ColumnFinder, label_of
from distls.ingestion.request import source_plan
from distls.ingestion.request.format import Format
from distls.ingestion.request.format_options import LabelColumn
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import BadInputError, MismatchError
from distls.storage.sources.anndata_store import check_links, is_store, open_anndata
from distls.workers.ingestion.formats.anndata import ANNDATA_READER, AnnDataItem
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile
from distls.workers.ingestion.records.record_batch import ArrayHeader, ReadOptions


@dataclass(frozen=True)
class AnnDataOptions(LabelColumn):
    """Options of AnnData stores.

    Attributes
    ----------
    label_column, weight_column : str or int, optional
        Columns of ``obs``: by name, by position from 0, from -1 backwards, or ``"last"``; the label has no default.
    """


class AnnDataFormat(Format[AnnDataOptions]):
    """Stores of AnnData, ``.h5ad`` files and ``.zarr`` folders."""

    name = "anndata"
    signature = b"\x89HDF"
    options = AnnDataOptions
    no_sets = ARRAY_NO_SETS

    def takes_folder(self, path: Path) -> bool:
        """Return whether the folder has a zarr group."""
        return is_store(path)

    def plan(self, files: Files, read: AnnDataOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Open the stores, find their columns, and cut them into ranges of rows."""
        heads = [_head(file, read, options.unlabelled, like) for file in files]
        _check_same_names(files, heads, like)
        items = _items(files, heads, source_plan.RANGE_BYTES)
        head = heads[0]
        return SourcePlan(
            self.name,
            ANNDATA_READER,
            tuple(files),
            items,
            tuple(head.row_bytes * (item.stop - item.start) for item in items),
            ReadOptions(**shared_options(options)),
            tuple(one.header for one in heads),
            labelled=bool(head.label),
            weighted=bool(head.weight),
            estimate=float(sum(one.header.n_rows * one.row_bytes for one in heads)),
            description={"label": head.label, "weight": head.weight},
            feature_names=head.names,
        )


@dataclass(frozen=True)
class _Head:
    """Metadata of a store."""

    header: ArrayHeader
    label: str  # column of ``obs``; empty if there is none
    weight: str  # likewise
    names: tuple[str, ...]  # of the features
    row_bytes: int  # mean
    step: int  # rows of a chunk: a cut inside one would decode it twice


def _head(file: SourceFile, read: AnnDataOptions, unlabelled: bool, like: Like | None) -> _Head:
    check_links(file.path)
    with open_anndata(file.path) as store:
        columns = store.columns()
        find = ColumnFinder(columns, file.path)
        known = description_of(like).get("label") if read.label_column is None and not unlabelled else None
        label = known if known in columns else label_of(read.label_column, unlabelled, find)
        weight = "" if read.weight_column is None else find("weight_column", read.weight_column)
        header = ArrayHeader(*store.shape, store.sparse, bool(label))
        return _Head(header, label, weight, store.feature_names(), store.row_bytes, store.chunk_rows)


def _items(files: Files, heads: Sequence[_Head], range_bytes: int) -> tuple[AnnDataItem, ...]:
    items: list[AnnDataItem] = []
    for file, head in zip(files, heads, strict=True):
        n_rows = head.header.n_rows
        step = max(range_bytes // head.row_bytes // head.step, 1) * head.step
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            items.append(AnnDataItem(len(items), file, start, stop, head.label, head.weight))
    return tuple(items)


def _check_same_names(files: Files, heads: Sequence[_Head], like: Like | None) -> None:
    """Refuse stores whose features are not those of the first, or of `like`."""
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
        # min_count has dropped some features of `like`
        kept = arrays["kept"].tolist() if "kept" in arrays else range(len(names))
        difference = _difference([names[column] for column in kept if column < len(names)], known)
        if difference and like is not None:
            raise MismatchError(f"{files[0].path}: {difference} {like.path}")


def _difference(names: Sequence[str], known: Sequence[str]) -> str:
    """Describe the first difference of feature names; the message goes on with whose names `known` are."""
    for number, (name, other) in enumerate(zip(names, known, strict=False)):
        if name != other:
            return f'feature {number} is "{name}", but it is "{other}" in'
    return "" if len(names) == len(known) else f"{len(names)} features, but there are {len(known)} in"
