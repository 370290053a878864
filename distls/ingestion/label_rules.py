"""The rules of an ingest about labels and rows: their tables for workers, and what is reported of them."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distls.facts import counted
from distls.ingestion.label_files import store_label_map, store_labels
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.request.source_start import source_file
from distls.ingestion.schema import Survey
from distls.storage.errors import BadInputError
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.parsing.text_blocks import TextItem, line_starts
from distls.workers.ingestion.records.labels import class_values
from distls.workers.ingestion.row_rules import DROPPED, RowRules

_SAID = {"several": "with several labels", "unknown": "without a known label", "empty": "without features"}


def store_rules(
    plan: SourcePlan, read: FormatOptions, options: IngestOptions, like: Like | None, staging: StagingArea
) -> RowRules | None:
    """Store the tables of labels for workers; return what they do with rows, None if nothing."""
    if not (plan.joined or read.label_map or read.label_level or read.drop):
        return None
    targets = (
        max(len(getattr(plan.read, "labels", ())), getattr(getattr(plan.items[0], "y", None), "ndim", 1)) > 1
    )
    rules = RowRules(
        level=read.label_level or 0, drop=tuple(read.drop), sets=options.multilabel, targets=targets
    )
    if like is not None and "unknown" in read.drop and like.meta.classes:
        rules = replace(rules, known=tuple(class_values(like.meta.classes).ravel().tolist()))
    # Stored again by an ingest that goes on: the same files give the same bits.
    if read.label_map is not None:
        store_label_map(source_file(read.label_map), staging, read.label_level)
        rules = replace(rules, label_map=str(read.label_map))
    if plan.joined is None:
        return rules
    by_id = bool(plan.read.id_column)
    first_rows = () if by_id else _first_rows(plan)
    store_labels(plan.joined, staging, by_id, options.multilabel or "several" in read.drop)
    return replace(rules, labels=plan.joined.path, by_id=by_id, first_rows=first_rows)


def _first_rows(plan: SourcePlan) -> tuple[int, ...]:
    """Return the number of the first row of each item, if every line but a header is one; see `counted_rows`."""
    items: tuple[Any, ...] = plan.items
    # Items of other formats are ranges of rows.
    if not isinstance(items[0], TextItem):
        return tuple(itertools.accumulate((item.stop - item.start for item in items[:-1]), initial=0))
    header = int(getattr(getattr(plan.read, "dialect", None), "header", False))
    firsts, before = [], 0
    # A file may be given twice, so that only its beginning tells one from the next.
    begins = [number for number, item in enumerate(items) if item.start == 0]
    for begin, end in itertools.pairwise([*begins, len(items)]):
        offsets = [item.start for item in items[begin:end]]
        # the lines of the last file are counted as far as its last item begins
        counts = line_starts(items[begin].file, offsets + [sys.maxsize] * (end < len(items)))
        known = [
            count if item.before is None else item.before[1]
            for count, item in zip(counts, items[begin:end], strict=False)
        ]
        firsts += [before + max(count - header, 0) for count in known]
        before += counts[-1] - header
    return tuple(firsts)


def counted_rows(survey: Survey, rules: RowRules, staging: StagingArea) -> tuple[int, ...]:
    """Return the number of the first row of each item, as they were read: lines that are blank, or comments, are none.

    Raises BadInputError unless labels in the order of rows are as many.
    """
    counts = [
        sum(chunk["rows"] for chunk in summary["chunks"])
        + summary["skipped"]
        + sum(summary["dropped"].values())
        for summary in survey.summaries
    ]
    found = len(staging.read_array("labels-ends")) - 1
    if found != sum(counts):
        remedy = "; where rows have ids, --id-column joins labels by them"
        raise BadInputError(f"{rules.labels}: {found} labels for {sum(counts)} rows{remedy}")
    return tuple(itertools.accumulate(counts[:-1], initial=0))


# -- what is reported ------------------------------------------------------------------------------------


def dropped_rows(summaries: Sequence[dict[str, Any]], read: FormatOptions) -> dict[str, int]:
    """Sum up the rows that were left out, of each kind that was asked for."""
    return {
        kind: sum(s.get("dropped", {}).get(kind, 0) for s in summaries)
        for kind in DROPPED
        if kind in read.drop
    }


def dropped_notice(dropped: dict[str, int]) -> list[str]:
    """Return a notice of the rows that were left out, if any were asked for."""
    said = ", ".join(f"{count:,} {_SAID[kind]}" for kind, count in dropped.items())
    return [f"{counted(sum(dropped.values()), 'row')} left out: {said}"] if dropped else []


def rows_record(plan: SourcePlan, read: FormatOptions, dropped: dict[str, int]) -> dict[str, Any]:
    """Return the record of these options in a data set, empty if none was given."""
    files = {"labels": plan.joined and plan.joined.path, "label_map": read.label_map}
    found: dict[str, Any] = {name: Path(path).name for name, path in files.items() if path}
    found |= {"label_level": read.label_level} if read.label_level else {}
    return found | ({"dropped": dropped} if dropped else {})
