"""The transforms of ``transform=auto``, chosen from what all rows have shown (docs/decisions/0025)."""

from __future__ import annotations

from dataclasses import replace

from distls.ingestion.request.options import IngestOptions
from distls.ingestion.schema import Schema, Survey
from distls.workers.ingestion.transforms import AUTO, parse_transforms

__all__ = ["asks_for_choice", "choose_transforms"]

_VOCABULARY = 1000  # columns from which counts are those of words
_TABLES = ("csv", "parquet")


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
