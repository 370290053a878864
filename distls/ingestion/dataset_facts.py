"""The metadata of the data set that an ingest writes, and what is to be said of it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from distls.facts import Shown, counted, said
from distls.ingestion.formats.column_kinds import codes_notice, first_of
from distls.ingestion.label_rules import dropped_notice
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.schema import Schema, Survey
from distls.ingestion.transform_fit import FittedTransforms
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.errors import CorruptDataError
from distls.storage.filesystem.paths import Place
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.document_records import DocumentReadOptions
from distls.workers.ingestion.formats.table_columns import DATE_PARTS, TableOptions
from distls.workers.ingestion.merged_values import Merged, Values
from distls.workers.ingestion.parsing.rounding_kernels import KEPT, EqualValues
from distls.workers.ingestion.stand_ins import recorded
from distls.workers.ingestion.transforms import stored_width, transforms_digest

_SHOWN = 20  # columns named in a notice
_CYCLES = tuple(f"[{part}]" for part in DATE_PARTS[1:])
_SETS = "sets are labels with commas between them"
_CONSTANT = "--kind NAME=category (hash, id) of a table keeps them apart; of other sources, subtract a constant"
_BESIDE = "once transformed, beside others that are much larger, in float64 too"
# where values become equal, and what keeps them
_EQUAL = (
    ("in float32", "--dtype float64 keeps them"),
    ("in float64 too, which has whole numbers up to 2^53", _CONSTANT),
    ("once transformed, in float32", "--dtype float64 keeps them"),
    (_BESIDE, "a --transform without standardize keeps them"),
)


def dataset_meta(
    plan: SourcePlan,
    options: IngestOptions,
    schema: Schema,
    fitted: FittedTransforms,
    codecs: dict[str, str],
    rows: dict[str, Any],
) -> DatasetMeta:
    """Return the metadata before any row is counted; `rows` is the record of joined labels and of rows left out."""
    return DatasetMeta(
        n_rows=0,
        n_features=stored_width(fitted.steps, schema.n_columns),
        nnz=0,
        layout="dense" if plan.is_dense else "csr",
        dtype=options.dtype,
        target=schema.target,
        classes=list(schema.classes),
        n_targets=schema.n_targets,
        weighted=schema.weighted,
        transforms=[dict(step) for step in fitted.steps],
        transforms_digest=transforms_digest(fitted.steps, fitted.features),
        zero_based=schema.zero_based,
        shuffle_seed=options.seed if options.shuffle else None,
        source=_source(plan, options, fitted) | ({"rows": rows} if rows else {}),
        codecs=dict(sorted(codecs.items())),
    )


def _source(plan: SourcePlan, options: IngestOptions, fitted: FittedTransforms) -> dict[str, Any]:
    """Return the description of the source, with the recipe by which a later ``like`` reads more of its kind."""
    recipe = plan.description
    if fitted.stand_ins and isinstance(plan.read, TableOptions):
        own = {f.name: f for f in plan.read.features}
        own |= {n: structs.replace(own[n], impute=recorded(own[n], v)) for n, v in fitted.stand_ins.items()}
        recipe = {**recipe, "features": msgspec.to_builtins([*own.values()])}
    if plan.encoding:
        recipe = {**recipe, "encoding": plan.encoding}
    described: dict[str, Any] = {"recipe": recipe} if recipe else {}
    files = [Path(file.path).name for file in plan.files]
    if options.float64:
        described = {**described, "dtype": "float64"}
    return {"format": plan.format, "files": files, **described}


def lost_labels(training: DatasetMeta) -> tuple[str, ...]:
    """Return a notice of the labels that only held-out rows have: of sets of labels, a split knows no strata."""
    lost = [str(c) for c, n in zip(training.classes, training.label_counts, strict=False) if not n]
    if not lost:
        return ()
    shown = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
    return (f"all rows with {counted(len(lost), 'label')} are held out, so that none is learned: {shown}",)


def joined_labels(meta: DatasetMeta, read: Any) -> tuple[str, ...]:
    """Return a notice of sets whose labels seem to be joined by another mark, and of labels joined to a document."""
    from_text = meta.target == "multilabel" and meta.source.get("format") != "memory"
    prefixed = getattr(read, "prefixed", False)
    marks = {"|": _SETS, ";": _SETS} if from_text else {}
    if prefixed and not from_text:
        marks = {",": "a label ends at the first blank"}
    found = [(mark, sum(mark in str(label) for label in meta.classes)) for mark in marks]
    parts = {part.strip() for label in meta.classes for part in str(label).split(",")}
    if meta.target == "class" and not prefixed and 0 < 2 * len(parts) <= len(meta.classes):
        first = next(label for label in meta.classes if "," in str(label))
        return (f'the classes are lists of {len(parts):,} labels, such as "{first}": --multilabel reads sets',)
    many = ((mark, n) for mark, n in found if 2 * n > len(meta.classes))
    said = f"of {len(meta.classes):,} labels have"
    return tuple(f'{n:,} {said} "{mark}" in them: {marks[mark]}' for mark, n in many)


def code_notices(survey: Survey) -> tuple[str, ...]:
    """Return a notice of numbers that begin with zeros, in the first rows or later."""
    read = survey.plan.read
    if not isinstance(read, TableOptions):
        return ()
    found = read.coded.union(*(summary.get("codes", ()) for summary in survey.summaries))
    own = [feature for feature in read.features if feature.is_dense and feature.name in found]
    names, timed = ([f.name for f in own if (f.kind == "date") == dated] for dated in (False, True))
    lost = "have times of day, but the first ones of the training data have none: the cycle of the day is no feature"
    return (*([codes_notice(names)] if names else ()), *(f'dates in "{name}" {lost}' for name in timed))


def digit_notices(
    data: Dataset, parts: Sequence[Merged], rounded: Mapping[int, EqualValues], source: Sequence[str], centred: bool
) -> list[str]:
    """Return notices of columns in which different values became equal: as they were read, or by the transforms.

    `parts` has what was found in each partition, `rounded` what was read, of the columns of the `source`.
    """
    if not rounded and not any(parts):
        return []
    stored, places = data.feature_names(), data.features().get("kept")
    merged = _merged_columns(parts, data.meta.dtype)
    later = {stored[c] if stored else str(c if places is None else places[c]): v for c, v in merged.items()}
    # times of one hour, and the two of a cycle with one sine, differ there in the last digit
    later = {name: found for name, found in later.items() if not name.endswith(_CYCLES)}
    names = {c: source[c] if source else str(c) for c in rounded}
    numbers = {names[c]: rounded[c] for c in sorted(rounded)}
    lost = {
        name: _two_read(values)
        for name, values in numbers.items()
        # centred, all values of one partition were compared; of several each for itself
        if values.level < 2 and not (centred and (name in later or len(parts) == 1 or values.high - values.low <= KEPT))
    }
    # the other was never a number
    long = {name: _apart(v.high, v.high)[0] for name, v in numbers.items() if v.level == 2}
    kept, mixed = (
        {name: " and ".join(_apart(a, b)) for name, ((a, x), (b, y)) in later.items() if (x != y) == differ}
        for differ in (True, False)
    )
    cases = zip((lost, long, kept, mixed), _EQUAL, strict=True)
    return [_equal_notice(found, where, remedy) for found, (where, remedy) in cases if found]


def _two_read(values: EqualValues) -> str:
    a, b = _apart(*values.two)
    return f"{a} and {b}" if values.both else f"{a}, which is read as {b}"


def _merged_columns(parts: Sequence[Merged], dtype: str) -> dict[int, Values]:
    """Return the columns in which different values became equal, in one partition or in several, with two of them."""
    seen: dict[int, dict[float, float]] = {}
    for column, values in itertools.chain.from_iterable(parts):
        seen.setdefault(column, {}).update(values)
    merged = {}
    for column, known in sorted(seen.items()):
        pairs = itertools.pairwise(sorted(known.items()))
        equal = (p for p in pairs if len({*np.array([z for _, z in p]).astype(dtype).tolist()}) == 1)
        if found := next(equal, None):
            merged[column] = list(found)
    return merged


def _apart(a: float, b: float) -> tuple[str, str]:
    """Write two numbers with as many digits as tell them apart, whole ones with all of theirs."""
    if a.is_integer() and b.is_integer() and max(abs(a), abs(b)) < 2.0**63:
        return f"{a:.0f}", f"{b:.0f}"
    digits = next((n for n in (9, 15) if f"{a:.{n}g}" != f"{b:.{n}g}"), 17)
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def _equal_notice(found: Mapping[str, str], where: str, remedy: str) -> str:
    """Return the notice of columns with two of their values each."""
    shown = first_of([f'"{name}"' for name in found], _SHOWN)
    columns = f"column{'s' * (len(found) > 1)}"
    return f"different values of {columns} {shown} become equal {where}, such as {next(iter(found.values()))}; {remedy}"


def column_names(survey: Survey, staging: StagingArea) -> tuple[str, ...]:
    """Return the names of all columns, empty if words are not kept; of columns without a word their numbers.

    The words of each chunk are merged as in a majority vote, with one word and one number for each column: a word that
    is more than half of a column's occurrences is always found.
    """
    read = survey.plan.read
    if not isinstance(read, DocumentReadOptions) or not read.keep_words:
        return ()
    best: dict[int, tuple[str, int]] = {}
    for chunk in survey.chunks:
        for column, (word, count) in _words_of(staging, chunk["name"]):
            known, lead = best.get(column, (word, 0))
            if known == word:
                best[column] = (word, lead + count)
            else:
                best[column] = (known, lead - count) if lead >= count else (word, count - lead)
    return tuple(best[k][0] if k in best else f"#{k}" for k in range(read.hashing.n_features))


def _words_of(staging: StagingArea, chunk: str) -> list[Any]:
    found = staging.read_document(f"words-{chunk}")
    if not isinstance(found, list):
        why = f"the words of chunk {chunk} are missing; remove it and ingest again"
        raise CorruptDataError(f"{staging.dataset}: {why}")
    return found


@dataclass(frozen=True, repr=False)
class IngestReport(Shown):
    """The result of an ingest.

    Attributes
    ----------
    paths : tuple of Place
        DATASET, then DATASET-NAME for each split.
    rows, nnz, bytes : int
        Totals over all paths; `bytes` as stored.
    skipped : int
        Refused lines (rows, for arrays) that were left out.
    skipped_lines : tuple of str
        The first few, ``FILE:LINE: "text": rule``.
    notices : tuple of str
        Messages for the user, one line each.
    dropped : dict
        Rows that were left out, by what `drop` calls them.
    """

    paths: tuple[Place, ...]
    rows: int
    nnz: int
    bytes: int
    skipped: int
    skipped_lines: tuple[str, ...]
    notices: tuple[str, ...]
    dropped: dict[str, int] = field(default_factory=dict)


def ingest_report(
    datasets: Sequence[Dataset], survey: Survey, notices: Sequence[str], dropped: dict[str, int]
) -> IngestReport:
    """Return the report of what was written; `notices` are those of its stages."""
    skipped, lines = survey.skipped()
    # The first of them is enough to see what is wrong.
    refused = [f"{skipped} line{'s' * (skipped > 1)} skipped; the first: {lines[0]}"] if skipped else []
    return IngestReport(
        paths=tuple(data.path for data in datasets),
        rows=sum(data.meta.n_rows for data in datasets),
        nnz=sum(data.meta.nnz for data in datasets),
        bytes=sum(int(data.stored_bytes.sum()) for data in datasets),
        skipped=skipped,
        skipped_lines=tuple(map(said, lines)),
        notices=tuple(map(said, (*notices, *dropped_notice(dropped), *refused))),
        dropped=dropped,
    )
