"""Choose the transforms of an ingest, fit them on its training rows, or take them over from other data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from distls.ingestion.imputation_fit import ImputeFit, impute_steps
from distls.ingestion.request.like import Like, known_stand_ins
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.schema import Schema, Survey
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion import transforms
from distls.workers.ingestion.assemble_task import AssemblySpec, PartitionItem, column_counts, column_moments
from distls.workers.ingestion.column_moments import merge_moments, scale_of
from distls.workers.ingestion.formats.table_columns import (
    WORD_STEPS,
    Feature,
    TableOptions,
    dense_width,
    first_columns,
    text_ranges,
)
from distls.workers.ingestion.parsing.array_types import Array, Ints

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
    features: dict[str, Array]  # of the dataset; the fitted arrays are in the staging area too
    share: float = 1.0  # fraction of the source's values that min_count leaves
    notice: str = ""  # of missing values
    stand_ins: Mapping[str, Sequence[float]] = field(default_factory=dict)  # as `Imputed` has them
    fill: Array | None = None  # what those of `like` stand for

    @property
    def names(self) -> tuple[str, ...]:
        """Arrays needed by the workers."""
        own = () if self.fill is None else ("stand_ins",)
        return (*(name for name in transforms.FITTED if name in self.features), *own)


def take_over_transforms(spec: AssemblySpec, like: Like) -> FittedTransforms:
    """Return the transforms of `like`, stored for the workers; raise MismatchError for sparse rows to be centred."""
    fitted = FittedTransforms(tuple(like.meta.transforms), like.features(), fill=known_stand_ins(like))
    # subtracting a mean would make sparse rows dense
    if "mean" in fitted.features and not spec.layout.dense and not transforms.centres(fitted.steps):
        remedy = "sparse rows cannot be centred"
        raise MismatchError(f"{like.path} has dense rows, centred by standardize; {remedy}")
    return _stored(spec, fitted)


def fit_transforms(spec: AssemblySpec, training: Items, mapped: Mapped) -> FittedTransforms:
    """Fit each transform of `spec` on the training rows as the transforms before it leave them."""
    fitted = FittedTransforms(spec.transforms, {})
    if spec.transforms and spec.transforms[0]["name"] == "impute":
        fitted = _with_imputation(spec, training, mapped)
    if transforms.has_step(spec.transforms, "idf", "min_count"):
        fitted = _with_counts(spec, fitted, training, mapped)
    if transforms.has_step(spec.transforms, "standardize"):
        fitted = _with_moments(spec, fitted, training, mapped)
    return fitted


def _groups(training: Items) -> list[Items]:
    return [training[i : i + _FITTED_TOGETHER] for i in range(0, len(training), _FITTED_TOGETHER)]


def _with_imputation(spec: AssemblySpec, training: Items, mapped: Mapped) -> FittedTransforms:
    # as they were read: what is fitted here comes before all others
    plain, first, others = replace(spec, transforms=()), spec.transforms[0], spec.transforms[1:]
    # where nothing is missing the rows of a partition tell enough
    groups = _groups(training if first["is_needed"] else training[:1])
    found = ImputeFit(plain, lambda task: mapped(task, plain, groups), first).result()
    if not first["is_needed"]:
        return FittedTransforms(others, {}, stand_ins=found.stand_ins)
    own = {"fill": found.fill}
    return _stored(spec, FittedTransforms((found.step, *others), own, 1.0, found.notice, found.stand_ins))


def _with_counts(spec: AssemblySpec, fitted: FittedTransforms, training: Items, mapped: Mapped) -> FittedTransforms:
    # what is filled in counts too
    first = fitted.steps[:1] if "fill" in fitted.features else ()
    before = replace(spec, transforms=first, fitted=fitted.names)
    counts, n_rows = _counts(before, training, mapped)
    steps, share = fitted.steps[len(first) :], 1.0
    features = dict(fitted.features)
    if steps[0]["name"] == "min_count":
        kept = _kept(steps[0]["count"], counts, spec)
        share = float(len(kept) / len(counts) if spec.layout.dense else counts[kept].sum() / counts.sum())
        own = {**steps[0], "columns": len(counts), "kept": len(kept)}
        steps = (own, *(_renumbered(step, kept) for step in steps[1:]))
        features["kept"], counts = kept, counts[kept]
    for step in (step for step in steps if step["name"] == "idf"):
        features["idf"] = transforms.idf_weights(counts, n_rows)
        if "ranges" in step:  # other columns stay
            inside = np.zeros(len(counts), dtype=bool)
            for start, stop in step["ranges"]:
                inside[start:stop] = True
            features["idf"][~inside] = 1.0
    return _stored(spec, replace(fitted, steps=(*first, *steps), features=features, share=share))


def _renumbered(step: dict[str, Any], kept: Ints) -> dict[str, Any]:
    """Return a step of some columns with their numbers among those that are kept."""
    # kept columns are in their order, so that a range stays one
    own = dict(step)
    for name in {"ranges", "except"} & own.keys():
        own[name] = [np.searchsorted(kept, bounds).tolist() for bounds in step[name]]
    if "dense" in step:
        own["dense"] = int(np.searchsorted(kept, step["dense"]))
    return own


def _kept(least: int, counts: Ints, spec: AssemblySpec) -> Ints:
    kept = np.flatnonzero(counts >= least).astype(np.int64)
    if not len(kept):
        why = f"no feature has a value in {least} rows, {counts.max()} at most; lower min_count"
        raise BadInputError(f"{spec.roots[0]}: {why}")
    return kept


def _counts(spec: AssemblySpec, training: Items, mapped: Mapped) -> tuple[Ints, int]:
    """Return the non-zeros of each column and the number of rows, from an earlier attempt if there was one."""
    if not spec.staging.has_array("counts"):
        # the last entry is the number of rows
        counts = np.zeros(transforms.stored_width(spec.transforms, spec.n_columns) + 1, dtype=np.int64)
        for group_counts, group_rows in mapped(column_counts, spec, _groups(training)):
            counts[:-1] += group_counts
            counts[-1] += group_rows
        spec.staging.write_array("counts", counts)
    counts = np.array(spec.staging.read_array("counts"))
    return counts[:-1], int(counts[-1])


def _with_moments(spec: AssemblySpec, fitted: FittedTransforms, training: Items, mapped: Mapped) -> FittedTransforms:
    place = next(n for n, step in enumerate(fitted.steps) if step["name"] == "standardize")
    if not spec.staging.has_array("std"):
        before = replace(spec, transforms=fitted.steps[:place], fitted=fitted.names)
        moments = reduce(merge_moments, mapped(column_moments, before, _groups(training)))
        mean, std = moments.mean, scale_of(moments)
        if "dense" in fitted.steps[place]:  # indicators and words stay
            width = fitted.steps[place]["dense"]
            mean[width:], std[width:] = 0.0, 1.0
        for start, stop in fitted.steps[place].get("except", ()):
            mean[start:stop], std[start:stop] = 0.0, 1.0
        spec.staging.write_array("mean", mean)
        spec.staging.write_array("std", std)
    names = ("mean", "std") if spec.layout.dense or transforms.centres(fitted.steps) else ("std",)
    own = {name: np.array(spec.staging.read_array(name)) for name in names}
    # what is fitted says it
    steps = tuple({name: value for name, value in step.items() if name != "except"} for step in fitted.steps)
    return replace(fitted, steps=steps, features={**fitted.features, **own})


def _stored(spec: AssemblySpec, fitted: FittedTransforms) -> FittedTransforms:
    arrays = fitted.features if fitted.fill is None else {**fitted.features, "stand_ins": fitted.fill}
    for name in fitted.names:
        spec.staging.write_array(name, arrays[name])
    return fitted


# -- the choice of transform=auto, by the rows (docs/decisions/0025) -------------------------------------


def completed_transforms(options: IngestOptions, survey: Survey, schema: Schema) -> tuple[IngestOptions, Schema]:
    """Return the options with all transforms: those that suit the rows, if that is asked, and of missing values.

    The schema has a notice of what was chosen.
    """
    if transforms.has_step(options.transform, transforms.AUTO):
        names, why = _suitable(survey, schema)
        kept = tuple(step for step in options.transform if step["name"] != transforms.AUTO)
        notice = f"transform auto: {names or 'none'}, for {why}"
        steps = _of_columns(transforms.parse_transforms(names), survey.plan)
        if not kept and is_mixed(survey.plan) and text_ranges(_features(survey.plan)):
            kept = ({"name": "min_count", "count": 1},)  # most hashes are those of no word
        options = replace(options, transform=(*kept, *steps))
        schema = replace(schema, notices=(*schema.notices, notice))
    options = replace(options, transform=_with_own(options.transform, survey.plan))
    missing = impute_steps(survey.plan, survey.total("gaps") > 0)
    return (replace(options, transform=(*missing, *options.transform)) if missing else options), schema


def _features(plan: SourcePlan) -> tuple[Feature, ...]:
    return plan.read.features if isinstance(plan.read, TableOptions) else ()


def _of_columns(steps: Steps, plan: SourcePlan) -> Steps:
    """Return the steps of a mixed table with the columns that each is for."""
    if not is_mixed(plan):
        return steps
    # indicators and categories are 0 and 1 already
    ranges, width = _own_ranges(_features(plan), "", texts=True), dense_width(_features(plan))
    own = ({"dense": width} if step["name"] == "standardize" else {"ranges": ranges} for step in steps)
    return tuple({**step, **columns} for step, columns in zip(steps, own, strict=True))


def _own_ranges(features: Sequence[Feature], step: str, *, texts: bool) -> list[list[int]]:
    """Return the columns of documents, or the others, that have a step of their own; empty: that have none."""
    columns = zip(features, first_columns(features), strict=False)
    own = ((f, at) for f, at in columns if (f.kind == "text") == texts)
    return [[at, at + f.size] for f, at in own if step in f.transform.split("+")]


def _with_own(steps: Steps, plan: SourcePlan) -> Steps:
    """Return the steps with those of single columns, and the columns that no other is for."""
    features = _features(plan)
    words = {name: _own_ranges(features, name, texts=True) for name in WORD_STEPS}
    plain = _own_ranges(features, "none", texts=False)
    plain += [r for r in text_ranges(features) if r not in _own_ranges(features, "", texts=True)]
    others = [s["name"] for s in steps if "ranges" not in s and s["name"] not in ("min_count", "standardize")]
    if plain and others:
        raise ParameterError(
            f"a column has transforms of its own, or none, but the transform {others[0]} is for all columns"
        )
    shared = {step["name"]: step["ranges"] for step in steps if "ranges" in step}
    joined = {name: sorted([*shared.get(name, ()), *own]) for name, own in words.items()}
    own = (("log1p", _own_ranges(features, "log1p", texts=False)), *joined.items())
    first = tuple(step for step in steps if step["name"] == "min_count")
    rest = tuple(step for step in steps if step not in first and "ranges" not in step)
    if plain:
        rest = tuple({**s, "except": plain} if s["name"] == "standardize" else s for s in rest)
    return (*first, *({"name": name, "ranges": ranges} for name, ranges in own if ranges), *rest)


def is_mixed(plan: SourcePlan) -> bool:
    """Return whether rows are sparse and have columns of several kinds, each with transforms of its own."""
    return isinstance(plan.read, TableOptions) and plan.read.mixed and not plan.is_dense


def _suitable(survey: Survey, schema: Schema) -> tuple[str, str]:
    if survey.plan.is_dense:
        return "standardize", "dense rows"
    if is_mixed(survey.plan):
        words = ",".join(WORD_STEPS) if _own_ranges(_features(survey.plan), "", texts=True) else ""
        numbers = "standardize" if dense_width(_features(survey.plan)) else ""
        what = " and ".join(filter(None, (words and "words", numbers and "numbers")))
        return ",".join(filter(None, (words, numbers))), what or "categories"
    largest = max(chunk["largest"] for chunk in survey.chunks)
    counts = all(chunk["counts"] for chunk in survey.chunks)
    wide = schema.n_columns >= _VOCABULARY and survey.plan.format not in _TABLES
    if survey.plan.format == "text" or (counts and largest > 1.0 and wide):
        return "log1p,idf,l2norm", "counts of words"
    if largest > 1.0:
        return "standardize", "sparse rows of several scales"
    return "", "sparse rows with values from -1 to 1"
