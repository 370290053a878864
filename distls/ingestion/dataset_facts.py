"""The metadata of the data set that an ingest writes, and what is to be said of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distls.facts import counted
from distls.ingestion.formats.column_kinds import codes_notice
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.schema import Schema, Survey
from distls.ingestion.transform_fit import FittedTransforms
from distls.storage.dataset.metadata import DatasetMeta
from distls.workers.ingestion.formats.table_columns import TableOptions
from distls.workers.ingestion.parsing.rounding_kernels import KEPT, Rounded
from distls.workers.ingestion.transforms import stored_width, transforms_digest

_SHOWN = 20  # columns named in a notice


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
        source=_source(plan, options, "fill" in fitted.features) | ({"rows": rows} if rows else {}),
        codecs=dict(sorted(codecs.items())),
    )


def _source(plan: SourcePlan, options: IngestOptions, imputed: bool) -> dict[str, Any]:
    """Return the description of the source, with the recipe by which a later ``like`` reads more of its kind."""
    recipe = plan.description
    if not imputed and "features" in recipe:
        # nothing was missing, so that nobody knows what would stand for it
        plain = [{name: value for name, value in f.items() if name != "impute"} for f in recipe["features"]]
        recipe = {**recipe, "features": plain}
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


def code_notices(survey: Survey) -> tuple[str, ...]:
    """Return a notice of numbers that begin with zeros, in the first rows or later."""
    read = survey.plan.read
    if not isinstance(read, TableOptions):
        return ()
    found = read.coded.union(*(summary.get("codes", ()) for summary in survey.summaries))
    names = [feature.name for feature in read.features if feature.is_dense and feature.name in found]
    return (codes_notice(names),) if names else ()


def rounding_notices(rounded: Mapping[int, Rounded], names: Sequence[str], centred: bool) -> list[str]:
    """Return notices of columns in which different values become equal, also where they are centred before."""
    long = [c for c, (*_, level) in rounded.items() if level == 2]
    # centred, whole numbers that float64 has are kept if few would fit between the smallest and the largest
    lost = [
        c for c, (_, low, high, _) in rounded.items() if c not in long and (not centred or high - low > KEPT)
    ]
    remedies = (
        (lost, "float32", "--dtype float64 keeps them"),
        (
            long,
            "float64 too, which has whole numbers up to 2^53",
            "--kind NAME=category (hash, id) of a table keeps them apart; of other sources, subtract a constant",
        ),
    )
    return [_rounding_notice(found, rounded, names, *said) for found, *said in remedies if found]


def _rounding_notice(
    lost: Sequence[int],
    rounded: Mapping[int, Rounded],
    names: Sequence[str],
    where: str,
    remedy: str,
) -> str:
    shown = ", ".join(f'"{names[c] if names else c}"' for c in sorted(lost)[:_SHOWN])
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return (
        f"different values of column{'s' * (len(lost) > 1)} {shown}{more} become equal in {where}, such as "
        f"{rounded[min(lost)][2]:.17g}; {remedy}"
    )
