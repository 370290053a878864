"""What an ingest of parquet files will do: their columns by type, and which pair of lists is sparse rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distls.ingestion.formats.tables import Columns, choose_columns, like_columns, refuse_for_tables
from distls.ingestion.like import Like
from distls.ingestion.options import IngestOptions
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats.parquet import ParquetHead, ParquetItem
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions
from distls.workers.ingestion.parsing.text_blocks import SourceFile

__all__ = ["parquet_items", "parquet_options"]

# Names of a pair of list columns, indices and values, when none is given.
_PAIR = ("indices", "values")
# Row labels of pandas, which are no data.
_PANDAS_INDEX = "__index_level_"


def parquet_options(
    files: Sequence[SourceFile],
    heads: Sequence[ParquetHead],
    options: IngestOptions,
    like: Like | None,
    common: Mapping[str, Any],
) -> TableOptions:
    """Decide what the columns of parquet files are.

    Parameters
    ----------
    common : mapping
        Fields of TextOptions.

    Raises
    ------
    BadInputError
        The files have other columns than the first, or one that can be no feature.
    ParameterError, MismatchError
        As `choose_columns` and `like_columns`; or there is no such pair of lists.
    """
    refuse_for_tables(options)
    path, kinds = files[0].path, heads[0].kinds
    for file, other in zip(files[1:], heads[1:], strict=True):
        if list(other.kinds.items()) != list(kinds.items()):
            raise BadInputError(
                f"{file.path}: its columns are not those of {path}, in names, order and types"
            )
    names = [name for name in kinds if not name.startswith(_PANDAS_INDEX)]
    if like is None:
        words = [name for name in names if kinds[name] == "text"]
        columns = choose_columns(names, words, path, options)
        columns = replace(columns, features=_features(columns, heads[0], path, options))
    else:
        columns = _renamed(like_columns(names, True, path, options, like), names)
        _check_like(columns, kinds, path, like)
    _check_other(columns, kinds, path)
    return TableOptions(
        columns=columns.names,
        label=columns.label,
        weight=columns.weight,
        features=columns.features,
        na=columns.na,
        **common,
    )


def parquet_items(files: Sequence[SourceFile], heads: Sequence[ParquetHead]) -> tuple[ParquetItem, ...]:
    """Return one item a row group with rows."""
    items: list[ParquetItem] = []
    for file, head in zip(files, heads, strict=True):
        start = 0
        for group, (n_rows, n_bytes) in enumerate(head.groups):
            if n_rows:
                items.append(ParquetItem(len(items), file, group, start, start + n_rows, n_bytes))
            start += n_rows
    return tuple(items)


def _renamed(columns: Columns, names: Sequence[str]) -> Columns:
    """Return columns that were matched by their places with the names that they have in the file."""
    own = dict(zip(columns.names, names, strict=True))
    features = (
        replace(feature, name=own[feature.name], indices=own.get(feature.indices, ""))
        for feature in columns.features
    )
    return Columns(
        tuple(names), own.get(columns.label, ""), own.get(columns.weight, ""), tuple(features), columns.na
    )


def _features(columns: Columns, head: ParquetHead, path: str, options: IngestOptions) -> tuple[Feature, ...]:
    """Return the features, lists among them; the width of sparse rows is left to the survey."""
    indices, values = _pair(columns, head.kinds, path, options)
    features = []
    for feature in columns.features:
        if feature.name == values:
            features.append(Feature(values, indices=indices))
        elif feature.name != indices:
            listed = head.kinds[feature.name] == "list"
            features.append(replace(feature, width=_length(feature.name, head, path)) if listed else feature)
    if options.n_features is not None and not values:
        raise ParameterError(
            "n_features is for sparse rows; there are no two columns of lists, indices and values"
        )
    return tuple(features)


def _pair(columns: Columns, kinds: Mapping[str, str], path: str, options: IngestOptions) -> tuple[str, str]:
    """Return the columns of indices and values of sparse rows, empty when there are none."""
    lists = [feature.name for feature in columns.features if kinds[feature.name] == "list"]
    pair = options.list_columns or _PAIR
    if set(pair) <= set(lists):
        return pair[0], pair[1]
    if options.list_columns is not None:
        missing = next(name for name in pair if name not in lists)
        raise ParameterError(f'list_columns: {path} has no column "{missing}" of lists of numbers')
    return "", ""


def _length(name: str, head: ParquetHead, path: str) -> int:
    if not head.lengths.get(name):
        raise BadInputError(
            f'{path}, row 0: column "{name}": an empty list; the first row says how long lists are, '
            "unless --list-columns INDICES,VALUES names two columns that are sparse rows"
        )
    return head.lengths[name]


def _check_like(columns: Columns, kinds: Mapping[str, str], path: str, like: Like) -> None:
    """Refuse columns that are of another kind than those of `like`."""
    for feature in columns.features:
        listed = bool(feature.width or feature.indices)
        expected = "list" if listed else "number" if feature.categories is None else "text"
        found = kinds[feature.name]
        if found != expected and (found, expected) != ("number", "text"):
            raise MismatchError(
                f'{path}: column "{feature.name}" is of kind {found}, but that of {like.path} of kind {expected}'
            )


def _check_other(columns: Columns, kinds: Mapping[str, str], path: str) -> None:
    """Refuse columns of types that cannot be what they are to be."""
    allowed: dict[str, tuple[str, ...]]
    allowed = {feature.name: ("number", "text", "list") for feature in columns.features}
    allowed |= {columns.label: ("number", "text"), columns.weight: ("number",)}
    for name, fitting in allowed.items():
        if name and kinds[name] not in fitting:
            remedy = f'; --ignore-columns "{name}" leaves it out' if len(fitting) == 3 else ""
            needed = " or ".join(fitting).replace("list", "list of numbers")
            raise BadInputError(f'{path}: column "{name}" is of type {kinds[name]}, not {needed}{remedy}')
