"""The metadata of the data set that an ingest writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.schema import Schema
from distls.ingestion.transform_fit import FittedTransforms
from distls.storage.dataset.metadata import DatasetMeta
from distls.workers.ingestion.transforms import stored_width, transforms_digest


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
