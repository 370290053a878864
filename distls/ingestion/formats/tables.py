"""Columns of a table: roles chosen by the options, or taken over from another data set."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from distls.ingestion.formats.column_kinds import FeatureMaker, Samples, imputed, ordered
from distls.ingestion.request.format_options import TableColumns, declared_kinds, label_names, position_of
from distls.ingestion.request.like import Like, description_of, known_dialect, missing_values
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import check_columns, item_facts, record_items, shared_options
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats import table_columns
from distls.workers.ingestion.formats.plain_rows import TABLE_READER
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing.text_blocks import Files
from distls.workers.ingestion.records.record_batch import ArrayHeader

# Names of columns and fields with documents, and with labels, in the order in which they are tried.
TEXT_NAMES = ("text", "document", "sentence", "content", "body")
LABEL_NAMES = ("label", "class", "category", "intent", "target", "y", "labels")
_SHOWN = 20  # column names listed in a message
TABLE_NO_SETS = (
    "--multilabel of ingest and train is for documents of a table, whose column --text-column names; with other "
    "columns, distls.ingest(frame, DATASET, y=LISTS) in Python"
)


def table_facts(read: TableOptions) -> dict[str, Any]:
    """Return the fields of a `SourcePlan` that follow from the columns of a table; refuse too many of them."""
    check_columns(read.columns, [feature.name for feature in read.features])
    written = bool(read.dialect.missing)  # typed values have no dialect, unless some stand for none
    return {
        "headers": (ArrayHeader(-1, table_columns.first_columns(read.features)[-1], sparse=not read.dense),),
        "description": {
            "columns": list(read.columns),
            "label": read.label,
            **({"labels": list(read.labels)} if read.more_labels else {}),
            "weight": read.weight,
            "na": read.na,
            "features": msgspec.to_builtins(read.features),
            # left out where there is none: the recipe is part of the fingerprint
            **({"id_column": read.id_column} if read.id_column else {}),
            **({"dialect": msgspec.to_builtins(read.dialect)} if written else {}),
        },
        "feature_names": table_columns.feature_names(read.features),
        "labelled": bool(read.label),
        "weighted": bool(read.weight),
    }


def text_facts(files: Files, read: TableOptions) -> dict[str, Any]:
    """Return the facts of a table as text; some are read by records, not by the kernel of numbers and categories."""
    # the kernel knows neither line breaks within fields nor other kinds; it is several times as fast
    if not read.by_records:
        return table_facts(read)
    separator = None if read.source == "json" else read.dialect.separator
    items = item_facts(TABLE_READER, record_items(files, separator))
    return {**table_facts(read), **items, "read": replace(read, source=read.source or "csv")}


# -- from the options ------------------------------------------------------------------------------------


def choose_columns(
    names: Sequence[str],
    words: Iterable[str],
    path: str,
    read: TableColumns,
    options: IngestOptions,
    samples: Samples,
    documents: str = "",
) -> tuple[TableOptions, tuple[str, ...]]:
    """Choose label, weight and feature columns from the options; return notices too.

    Columns in `words` look categorical, the column `documents`, if there is one, like documents. Raises BadInputError
    or ParameterError if no label column is named, a named column does not exist or has two roles, or no feature is
    left.
    """
    find = ColumnFinder(names, path, documents)
    kinds = declared_kinds(read.kind, find)
    read = _with_roles(read, kinds)
    labels = labels_of(read.label_column, options.unlabelled, find)
    weight = "" if read.weight_column is None else find("weight_column", read.weight_column)
    ignored = find.all("ignore_columns", read.ignore_columns)
    declared = find.all("categorical", read.categorical)
    ids = "" if read.id_column is None else find("id_column", read.id_column)
    taken: dict[str, str] = {}
    purposes = {"label_column": labels, "weight_column": [weight], "id_column": [ids], "ignore_columns": ignored}
    for purpose, name in ((purpose, name) for purpose, own in purposes.items() for name in own if name):
        if taken.setdefault(name, purpose) != purpose:
            raise ParameterError(f'column "{name}" is given as {taken[name]} and as {purpose}')
    no_features = {*labels, weight, ids, *ignored}
    others = [name for name in names if name not in no_features]
    for name in declared:
        if name in no_features:
            raise ParameterError(f'categorical: column "{name}" is not a feature')
    maker = FeatureMaker(replace(read, categorical=declared), options, samples, kinds)
    found = [maker.feature(name, is_category=name in words) for name in others]
    features = imputed([feature for feature in found if feature is not None], read, options, find)
    if not features:
        raise ParameterError(f"{path}: no column is left for features")
    ids = ids or next((name for name, each in zip(others, found, strict=True) if each is None), "")
    table = _table_options(names, labels, options, samples.dialect, na=str(read.na or ""), weight=weight)
    guessed = frozenset(feature.name for feature in features if feature.name not in kinds)
    table = replace(table, features=ordered(features), id_column=ids, guessed=guessed)
    return replace(table, coded=frozenset(maker.noted.get("codes", ()))), maker.notices()


def _with_roles(read: TableColumns, kinds: Mapping[str, tuple[str, str]]) -> TableColumns:
    """Return the options with the columns whose kind is a role in the options for that."""
    by_kind: dict[str, list[Any]] = {}
    for name, (kind, _) in kinds.items():
        by_kind.setdefault(kind, []).append(name)
    for kind in ("label", "weight", "id"):
        option, own = f"{kind}_column", by_kind.get(kind, [])
        if own and ((len(own) > 1 and kind != "label") or vars(read)[option] not in (None, own[0])):
            raise ParameterError(f"kind: only one column can be the {kind}, as {option} says too")
        given: dict[str, Any] = {option: own[0] if len(own) == 1 else tuple(own)} if own else {}
        read = replace(read, **given)
    return replace(read, ignore_columns=(*read.ignore_columns, *by_kind.get("ignore", ())))


def _table_options(
    names: Sequence[str], labels: Sequence[str], options: IngestOptions, dialect: Dialect, **own: Any
) -> TableOptions:
    own |= {"label": next(iter(labels), ""), "more_labels": tuple(labels[1:]), **shared_options(options)}
    return TableOptions(columns=tuple(names), dialect=dialect, **own)


def declared_columns(read: TableOptions, options: TableColumns) -> tuple[str, ...]:
    """Return the columns declared categorical."""
    find = ColumnFinder(read.columns, "")
    kinds = declared_kinds(options.kind, find)
    return (
        *find.all("categorical", options.categorical),
        *(name for name, (kind, _) in kinds.items() if kind == "category"),
    )


class ColumnFinder:
    """Finds columns of the source `path` by name, or else by position."""

    def __init__(self, names: Sequence[str], path: str, documents: str = "") -> None:
        self.names = names
        self.path = path
        self.documents = documents  # looks like documents
        # a scan of 50,000 names for each of them would take half a minute
        self._known = frozenset(names)

    def __call__(self, option: str, wanted: str | int) -> str:
        """Return the name of the column that `option` refers to."""
        if wanted in self._known:
            return str(wanted)
        if same := same_form(str(wanted), self.names):  # keyboards and file systems have others
            return same
        position = position_of(wanted)
        if position is None or not -len(self.names) <= position < len(self.names):
            if str(wanted) in self._known:  # a number that is no position
                return str(wanted)
            remedy = self.remedy if position is None else ""
            advice = f"it has {listed(self.names)}{remedy}"
            raise ParameterError(f'{option}: {self.path} has no column "{wanted}"; {advice}')
        return self.names[position]

    def all(self, option: str, given: Sequence[str | int]) -> list[str]:
        """Return the names of several columns, or of one whose name has a comma."""
        whole = (mark.join(map(str, given)) for mark in (",", ", ")) if len(given) > 1 else ()
        one = next((name for name in whole if name in self._known), None)
        return [one] if one is not None else [self(option, name) for name in given]

    @property
    def remedy(self) -> str:
        """What may help where no column has a name."""
        numbered = list(self.names) == [str(c) for c in range(len(self.names))]
        return "; --header yes if its first line names them; or remove lines before that" if numbered else ""


def named_columns(options: Iterable[str | int | None]) -> frozenset[str]:
    """Return the names among columns as options give them: by name or by position."""
    return frozenset(c for c in options if isinstance(c, str) and position_of(c) is None)


def same_form(wanted: str, names: Iterable[str]) -> str:
    """Return the only name that is another form of a text in Unicode, or has line breaks; empty if there is none."""
    if wanted.isascii() and " " not in wanted:
        return ""
    found = [name for name in names if _plain(name) == _plain(wanted)]
    return found[0] if len(found) == 1 else ""


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).replace("\n", " ")


def listed(names: Sequence[str]) -> str:
    """Format column names for a message, only the first few of many."""
    shown = ", ".join(f'"{name}"' for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ... ({len(names)} columns)"


def difference(names: Sequence[str], known: Sequence[str]) -> str:
    """Say how the columns of a file differ from `known` ones."""
    lacking, others = set(known) - set(names), set(names) - set(known)
    parts = [f"it has no {listed([n for n in known if n in lacking])}"] if lacking else []
    parts += [f"it has {listed([n for n in names if n in others])}"] if others else []
    return ", and ".join(parts) or "they are in another order"


def are_row_names(fields: Sequence[str]) -> bool:
    """Return whether the first fields of lines are names of rows: different words, or 1, 2, 3, ..."""
    if len(fields) < 2 or len({*fields}) < len(fields) or not all(fields):
        return False
    return fields == [str(k) for k in range(1, len(fields) + 1)] or not any(map(table_columns.is_number, fields))


def label_of(label_column: Any, unlabelled: bool, find: ColumnFinder) -> str:
    """Return the label column, empty for unlabelled rows; raise BadInputError if none is named."""
    if unlabelled:
        if label_column is not None:
            raise ParameterError("unlabelled and label_column exclude each other; see ignore_columns")
        return ""
    if label_column is None:
        documents = f'; if "{find.documents}" holds documents, {_as_text(find)} reads them alone'
        raise BadInputError(
            f"{find.path}: name the column of labels with --label-column (or ingest --unlabelled); "
            f"there are {listed(find.names)}{find.remedy}{documents if find.documents else ''}"
        )
    return find("label_column", label_column)


def labels_of(given: Any, unlabelled: bool, find: ColumnFinder) -> list[str]:
    """Return the columns of labels, several for several targets; raises as `label_of`."""
    names = label_names(given)
    # a name may have a comma
    if len(names) < 2 or (isinstance(given, str) and given in find.names):
        found = label_of(names[0] if names else None, unlabelled, find)
        return [found] if found else []
    several = [label_of(name, unlabelled, find) for name in names if name != given]
    if len({*several}) < len(several):
        raise ParameterError(f"label_column: {given} names a column twice")
    return several


def _as_text(find: ColumnFinder) -> str:
    """Return the option that reads the documents: two columns without names are a label and its document."""
    return "--format text" if list(find.names) == ["0", "1"] else f'--text-column "{find.documents}"'


# -- from another data set -------------------------------------------------------------------------------


def is_table(like: Like) -> bool:
    """Return whether the features of `like` are columns of a table."""
    return "features" in description_of(like)


def like_columns(
    names: Sequence[str],
    headed: bool,
    path: str,
    read: TableColumns,
    options: IngestOptions,
    like: Like,
    dialect: Dialect | None = None,
    *,
    remedy: str = "--ignore-columns leaves it out, --unknown-features ignore all like it",
) -> TableOptions:
    """Match the columns of `like` by name, or by position if either side is unnamed; `remedy` is for others.

    Without `dialect` values are typed.

    Raises MismatchError if columns of `like` are missing, there are others, or an option contradicts it.
    """
    if not is_table(like):
        kind = like.meta.source.get("format", "other")
        raise MismatchError(f"{path} is a table, but {like.path} has features of {kind} sources")
    known = description_of(like)
    for option in ("categorical", "kind", "impute"):
        if vars(read)[option]:
            raise ParameterError(f"like takes the categories of a data set; {option} is for new ones")
    if read.na not in (None, known["na"] or read.na):
        raise MismatchError(f"na={read.na}, but {like.path} has na={known['na']}")
    names = _known_names(names, headed, path, options.unlabelled, like)
    find = ColumnFinder(names, path)
    features = msgspec.convert(known["features"], tuple[Feature, ...])
    # the label and the weight of `like` may be missing from data to be scored
    labels = _labels_like(find, read, options, like)
    weight, ids = (name if name in names else "" for name in (known["weight"], known.get("id_column", "")))
    weight = weight if read.weight_column is None else find("weight_column", read.weight_column)
    ids = ids if read.id_column is None else find("id_column", read.id_column)
    ignored = {find("ignore_columns", name) for name in read.ignore_columns}
    needed = {name for feature in features for name in (feature.name, feature.indices) if name}
    if lacking := [name for name in sorted(needed) if name not in names or name in ignored]:
        what = "which is a feature" if len(lacking) == 1 else "which are features"
        form = "; the same letters in other bytes (NFC, NFD)" * any(same_form(n, names) for n in lacking)
        advice = f"there are {listed(names)}{form}"
        raise MismatchError(f"{path}: no column {listed(lacking)}, {what} of {like.path}; {advice}")
    # columns of `like` that are no features, such as its label, may be there too
    taken = {*needed, *ignored, *labels, weight, ids, *known["columns"]}
    extra = [name for name in names if name not in taken]
    if extra and options.unknown_features == "error":
        what = f"column {listed(extra)} is" if len(extra) == 1 else f"columns {listed(extra)} are"
        raise MismatchError(f"{path}: {what} none of {like.path}; {remedy}")
    dialect = dialect or Dialect(missing=missing_values(read.na_values, like, typed=True))
    own = {"na": str(read.na or known["na"]), "weight": weight, "features": features, "id_column": ids}
    return _table_options(names, labels, options, dialect, **own)


def _labels_like(find: ColumnFinder, read: TableColumns, options: IngestOptions, like: Like) -> list[str]:
    """Return the columns of labels: those of `like`, unless others are asked for."""
    labels = known_labels(description_of(like))
    if read.label_column is not None or options.unlabelled or not labels:
        return labels_of(read.label_column, options.unlabelled, find)
    if lacking := [name for name in labels if name not in find.names]:
        raise MismatchError(
            f"{find.path}: no column {listed(lacking)}, the labels of {like.path}; --label-column names another one, "
            f"and predict takes rows without labels; there are {listed(find.names)}"
        )
    return labels


def known_labels(known: Mapping[str, Any]) -> list[str]:
    """Return the columns of labels of a recorded description."""
    return list(known.get("labels") or filter(None, [known["label"]]))


def _known_names(names: Sequence[str], headed: bool, path: str, unlabelled: bool, like: Like) -> Sequence[str]:
    description = description_of(like)
    known, labels = description["columns"], known_labels(description)
    named = {feature["name"] for feature in description["features"]} <= set(names)
    if headed and (named or not has_positions(like)):
        return names
    if len(names) == len(known):
        return list(known)
    if unlabelled and labels and len(names) == len(known) - len(labels):
        return [name for name in known if name not in labels]
    remedy = f"there are {listed(names)}"
    raise MismatchError(f"{path}: {len(names)} columns, but {like.path} was made from {len(known)}; {remedy}")


def has_positions(like: Like) -> bool:
    """Return whether the columns of `like` have positions for names, as those of a file without a header."""
    known, dialect = description_of(like)["columns"], known_dialect(like)
    return not (dialect and dialect.header) and known == [str(c) for c in range(len(known))]
