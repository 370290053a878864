"""Numbers of rows in their files: where each staged chunk starts, and what all origins of rows have in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from distls.ingestion.request.options import IngestOptions
from distls.ingestion.schema import Survey
from distls.storage.dataset.row_origins import OriginFacts

__all__ = ["chunk_starts", "origin_facts"]


def chunk_starts(survey: Survey) -> tuple[tuple[int, int], ...]:
    """Return for each chunk the code of its file, and the number in it of the first row of the chunk's item."""
    files = survey.plan.files
    # by identity: a file may be given twice
    codes = {id(file): code for code, file in enumerate(files)}
    starts: list[tuple[int, int]] = []
    before = [0] * max(len(files), 1)
    for item, summary in zip(survey.plan.items, survey.summaries, strict=True):
        # arrays in memory have no files
        code = codes.get(id(getattr(item, "file", None)), 0)
        starts += [(code, before[code])] * len(summary["chunks"])
        before[code] += sum(chunk["rows"] for chunk in summary["chunks"]) + summary["skipped"]
    return tuple(starts)


def origin_facts(survey: Survey, options: IngestOptions) -> OriginFacts:
    """Return the description of the origins of the rows."""
    names = [Path(file.path).name for file in survey.plan.files]
    skipped, _ = survey.skipped()
    small = survey.n_rows + skipped <= np.iinfo(np.uint32).max
    return OriginFacts(
        dtype="uint32" if small else "uint64",
        files=names,
        ids=bool(survey.plan.read.id_column),
        in_order=not options.shuffle and not options.split and len(names) <= 1 and not skipped,
    )
