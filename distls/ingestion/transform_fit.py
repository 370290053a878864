"""Choose the transforms of an ingest, fit them on its training rows, or take them over from other data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.schema import Schema, Survey
from distls.storage.errors import BadInputError, MismatchError
from distls.workers.ingestion.assemble_task import AssemblySpec, PartitionItem, column_counts, column_moments
from distls.workers.ingestion.column_moments import merge_moments, scale_of
from distls.workers.ingestion.transforms import (
    AUTO,
    FITTED,
    idf_weights,
    needs_counts,
    needs_moments,
    parse_transforms,
)

Steps = tuple[dict[str, Any], ...]
Items = list[PartitionItem]
# mapped(function, spec, groups) yields function(spec, group) for each group, in order
Mapped = Callable[[Callable[[AssemblySpec, Items], Any], AssemblySpec, list[Items]], Iterator[Any]]

# Of transform=auto.
_VOCABULARY = 1000  # columns from which counts are those of words
_TABLES = ("csv", "parquet")
# Partitions per task. The order of summation determines the bits: not to be adapted to the cluster.
_FITTED_TOGETHER = 8


@dataclass(frozen=True)
class FittedTransforms:
    """Transforms, ready to be applied."""

    steps: Steps  # min_count has the numbers of columns before and after
    features: dict[str, NDArray[Any]]  # of the dataset; the fitted arrays are in the staging area too
    share: float = 1.0  # fraction of the source's values that min_count leaves

    @property
    def names(self) -> tuple[str, ...]:
        """Arrays needed by the workers."""
        return tuple(name for name in FITTED if name in self.features)


def take_over_transforms(spec: AssemblySpec, like: Like) -> FittedTransforms:
    """Return the transforms of `like`, stored for the workers; raise MismatchError for sparse rows to be centred."""
    fitted = FittedTransforms(tuple(like.meta.transforms), like.features())
    # subtracting a mean would make sparse rows dense
    if "mean" in fitted.features and not spec.layout.dense:
        raise MismatchError(
            f"{like.path} has dense rows, centred by standardize; sparse rows cannot be centred"
        )
    return _stored(spec, fitted)


def fit_transforms(spec: AssemblySpec, training: Items, mapped: Mapped) -> FittedTransforms:
    """Fit each transform of `spec` on the training rows as the transforms before it leave them."""
    fitted = FittedTransforms(spec.transforms, {})
    if needs_counts(spec.transforms):
        fitted = _with_counts(spec, training, mapped)
    if needs_moments(spec.transforms):
        fitted = _with_moments(spec, fitted, training, mapped)
    return fitted


def _groups(training: Items) -> list[Items]:
    return [training[i : i + _FITTED_TOGETHER] for i in range(0, len(training), _FITTED_TOGETHER)]


def _with_counts(spec: AssemblySpec, training: Items, mapped: Mapped) -> FittedTransforms:
    counts, n_rows = _counts(spec, training, mapped)
    steps, share = spec.transforms, 1.0
    features: dict[str, NDArray[Any]] = {}
    if steps[0]["name"] == "min_count":
        kept = _kept(steps[0]["count"], counts, spec)
        share = float(len(kept) / len(counts) if spec.layout.dense else counts[kept].sum() / counts.sum())
        steps = ({**steps[0], "columns": len(counts), "kept": len(kept)}, *steps[1:])
        features["kept"], counts = kept, counts[kept]
    if any(step["name"] == "idf" for step in steps):
        features["idf"] = idf_weights(counts, n_rows)
    return _stored(spec, FittedTransforms(steps, features, share))


def _kept(least: int, counts: NDArray[np.int64], spec: AssemblySpec) -> NDArray[np.int64]:
    kept = np.flatnonzero(counts >= least).astype(np.int64)
    if not len(kept):
        raise BadInputError(
            f"{spec.roots[0]}: no feature has a value in {least} rows, {counts.max()} at most; lower min_count"
        )
    return kept


def _counts(spec: AssemblySpec, training: Items, mapped: Mapped) -> tuple[NDArray[np.int64], int]:
    """Return the non-zeros of each column and the number of rows, from an earlier attempt if there was one."""
    if not spec.staging.has_array("counts"):
        # the last entry is the number of rows
        counts = np.zeros(spec.n_columns + 1, dtype=np.int64)
        for group_counts, group_rows in mapped(column_counts, spec, _groups(training)):
            counts[:-1] += group_counts
            counts[-1] += group_rows
        spec.staging.write_array("counts", counts)
    counts = np.array(spec.staging.read_array("counts"))
    return counts[:-1], int(counts[-1])


def _with_moments(
    spec: AssemblySpec, fitted: FittedTransforms, training: Items, mapped: Mapped
) -> FittedTransforms:
    if not spec.staging.has_array("std"):
        place = next(n for n, step in enumerate(fitted.steps) if step["name"] == "standardize")
        before = replace(spec, transforms=fitted.steps[:place], fitted=fitted.names)
        moments = reduce(merge_moments, mapped(column_moments, before, _groups(training)))
        spec.staging.write_array("mean", moments.mean)
        spec.staging.write_array("std", scale_of(moments))
    names = ("mean", "std") if spec.layout.dense else ("std",)
    own = {name: np.array(spec.staging.read_array(name)) for name in names}
    return replace(fitted, features={**fitted.features, **own})


def _stored(spec: AssemblySpec, fitted: FittedTransforms) -> FittedTransforms:
    for name in fitted.names:
        spec.staging.write_array(name, fitted.features[name])
    return fitted


# -- the choice of transform=auto, by the rows (docs/decisions/0025) -------------------------------------


def asks_for_choice(options: IngestOptions) -> bool:
    """Return whether the transforms are still to be chosen."""
    return any(step["name"] == AUTO for step in options.transform)


def choose_transforms(options: IngestOptions, survey: Survey, schema: Schema) -> tuple[IngestOptions, Schema]:
    """Return the options with the transforms that suit the rows, and the schema with a notice of them."""
    names, why = _suitable(survey, schema)
    kept = tuple(step for step in options.transform if step["name"] != AUTO)
    notice = f"transform auto: {names or 'none'}, for {why}"
    return (
        replace(options, transform=(*kept, *parse_transforms(names))),
        replace(schema, notices=(*schema.notices, notice)),
    )


def _suitable(survey: Survey, schema: Schema) -> tuple[str, str]:
    if survey.plan.is_dense:
        return "standardize", "dense rows"
    largest = max(chunk["largest"] for chunk in survey.chunks)
    counts = all(chunk["counts"] for chunk in survey.chunks)
    wide = schema.n_columns >= _VOCABULARY and survey.plan.format not in _TABLES
    if survey.plan.format == "text" or (counts and largest > 1.0 and wide):
        return "log1p,idf,l2norm", "counts of words"
    if largest > 1.0:
        return "standardize", "sparse rows of several scales"
    return "", "sparse rows with values from -1 to 1"
