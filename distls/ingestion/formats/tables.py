"""What an ingest of a table will do: which column is what, what its categories are, and how that is taken over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distls.ingestion.request.format_options import TableColumns
from distls.ingestion.request.like import Like, description_of
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions, feature_names, first_columns
from distls.workers.ingestion.records.row_block import ArrayHeader

__all__ = [
    "TABLE_REFUSES",
    "ColumnFinder",
    "Columns",
    "choose_columns",
    "declared_columns",
    "is_table",
    "label_of",
    "like_columns",
    "table_facts",
]

_SHOWN = 20
# Options that say nothing about a table.
TABLE_REFUSES = {
    name: f"{name} is not for tables: the label is a column of theirs, the features are the others"
    for name in ("zero_based", "labels", "multilabel")
}


@dataclass(frozen=True)
class Columns:
    """The columns of a table and what they are."""

    names: tuple[str, ...]  # all of them, in the order of the source
    # label, weight: empty if there is none
    label: str
    weight: str
    # in the order of the features. Before the survey, ``categories=()`` says that the values are to be
    # collected.
    features: tuple[Feature, ...]
    na: str  # the number that missing values stand for; empty: they are refused


def table_facts(read: TableOptions) -> dict[str, Any]:
    """Return the fields of a `SourcePlan` that follow from the columns of a table."""
    return {
        "headers": (ArrayHeader(-1, first_columns(read.features)[-1], sparse=not read.dense),),
        "description": {
            "columns": list(read.columns),
            "label": read.label,
            "weight": read.weight,
            "na": read.na,
            "features": [feature.to_json() for feature in read.features],
        },
        "feature_names": feature_names(read.features),
    }


# -- from the options ------------------------------------------------------------------------------------


def choose_columns(
    names: Sequence[str], words: Iterable[str], path: str, options: TableColumns, unlabelled: bool
) -> Columns:
    """Decide from the options what each column is.

    Parameters
    ----------
    words : iterable of str
        Columns that seem to be categories.

    Raises
    ------
    ParameterError
        A column is named that does not exist, or for two purposes; or no column is left.
    BadInputError
        No label column is named.
    """
    find = ColumnFinder(names, path)
    label = label_of(options.label_column, unlabelled, find)
    weight = "" if options.weight_column is None else find("weight_column", options.weight_column)
    ignored = [find("ignore_columns", name) for name in options.ignore_columns]
    declared = [find("categorical", name) for name in options.categorical]
    _check_purposes({"label_column": [label], "weight_column": [weight], "ignore_columns": ignored})
    no_features = {label, weight, *ignored}
    others = [name for name in names if name not in no_features]
    for name in declared:
        if name in no_features:
            raise ParameterError(f'categorical: column "{name}" is not a feature')
    if not others:
        raise ParameterError(f"{path}: no column is left for features")
    collected = {*words, *declared}
    features = tuple(Feature(name, () if name in collected else None) for name in others)
    return Columns(tuple(names), label, weight, features, str(options.na or ""))


def declared_columns(read: TableOptions, options: TableColumns) -> tuple[str, ...]:
    """Return the columns that are categories whatever is in them."""
    find = ColumnFinder(read.columns, "")
    return tuple(find("categorical", name) for name in options.categorical)


class ColumnFinder:
    """Finds columns by name, or else by position.

    Parameters
    ----------
    path : str
        Of the source, for errors.
    """

    def __init__(self, names: Sequence[str], path: str) -> None:
        self.names = names
        self.path = path
        self._known = frozenset(names)

    def __call__(self, option: str, wanted: str | int) -> str:
        """Return the name of the column that `option` wants."""
        if wanted in self._known:
            return str(wanted)
        position = -1 if wanted == "last" else _position(wanted)
        if position is None or not -len(self.names) <= position < len(self.names):
            raise ParameterError(
                f'{option}: {self.path} has no column "{wanted}"; it has {listed(self.names)}'
            )
        return self.names[position]


def _position(text: str | int) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def listed(names: Sequence[str]) -> str:
    """Return names for a message, the first few of many."""
    shown = ", ".join(f'"{name}"' for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ... ({len(names)} columns)"


def label_of(label_column: str | int | None, unlabelled: bool, find: ColumnFinder) -> str:
    """Return the column of labels, empty for unlabelled rows.

    Raises
    ------
    BadInputError
        None is named.
    ParameterError
        It does not exist, or rows are said to have no labels.
    """
    if unlabelled:
        if label_column is not None:
            raise ParameterError("unlabelled and label_column exclude each other; see ignore_columns")
        return ""
    if label_column is None:
        raise BadInputError(
            f"{find.path}: name the column of labels with --label-column, or give --unlabelled; "
            f"there are {listed(find.names)}"
        )
    return find("label_column", label_column)


def _check_purposes(purposes: Mapping[str, Sequence[str]]) -> None:
    taken: dict[str, str] = {}
    for purpose, names in purposes.items():
        for name in filter(None, names):
            if taken.setdefault(name, purpose) != purpose:
                raise ParameterError(f'column "{name}" is given as {taken[name]} and as {purpose}')


# -- from another data set -------------------------------------------------------------------------------


def is_table(like: Like) -> bool:
    """Tell whether the features of `like` are columns of a table."""
    return "features" in description_of(like)


def like_columns(
    names: Sequence[str], headed: bool, path: str, options: TableColumns, unlabelled: bool, like: Like
) -> Columns:
    """Take the columns of `like`, by their names, or by their places where one of the two has none.

    Raises
    ------
    MismatchError
        The source has not the columns of `like`, or others; or an option contradicts it.
    """
    if not is_table(like):
        kind = like.meta.source.get("format", "other")
        raise MismatchError(f"{path} is a table, but {like.path} has features of {kind} sources")
    known = description_of(like)
    if options.categorical:
        raise ParameterError("like takes the categories of a data set; categorical is for new ones")
    if options.na not in (None, known["na"] or options.na):
        raise MismatchError(f"na={options.na}, but {like.path} has na={known['na']}")
    names = _known_names(names, headed, path, unlabelled, like)
    find = ColumnFinder(names, path)
    features = tuple(Feature.from_json(value) for value in known["features"])
    same = options.label_column is None and not unlabelled and known["label"] in names
    label = known["label"] if same else label_of(options.label_column, unlabelled, find)
    weight = options.weight_column if options.weight_column is not None else known["weight"]
    weight = find("weight_column", weight) if weight in names or options.weight_column is not None else ""
    ignored = {find("ignore_columns", name) for name in options.ignore_columns}
    needed = {name for feature in features for name in (feature.name, feature.indices) if name}
    for name in needed - {*names} or needed & ignored:
        raise MismatchError(f'{path}: no column "{name}", which is a feature of {like.path}')
    taken = {*needed, *ignored, label, weight, *known["columns"]}
    extra = [name for name in names if name not in taken]
    if extra:
        raise MismatchError(
            f'{path}: column "{extra[0]}" is none of {like.path}; --ignore-columns leaves it out'
        )
    return Columns(tuple(names), label, weight, features, str(options.na or known["na"]))


def _known_names(
    names: Sequence[str], headed: bool, path: str, unlabelled: bool, like: Like
) -> Sequence[str]:
    """Return the names of columns that have none in one of the two."""
    description = description_of(like)
    known, label = description["columns"], description["label"]
    numbered = known == [str(c) for c in range(len(known))]
    if headed and not numbered:
        return names
    if len(names) == len(known):
        return list(known)
    if unlabelled and label and len(names) == len(known) - 1:
        return [name for name in known if name != label]
    raise MismatchError(f"{path}: {len(names)} columns, but {like.path} was made from {len(known)}")
