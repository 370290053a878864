"""Tables as JSON lines: a record on each line, whose fields are the columns."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from distls.ingestion.formats.column_kinds import Samples
from distls.ingestion.formats.parquet import ParquetOptions, table_reading
from distls.ingestion.formats.tables import (
    LABEL_NAMES,
    TABLE_NO_SETS,
    TEXT_NAMES,
    declared_columns,
    is_table,
    text_facts,
)
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import ColumnSurvey, SourcePlan, text_plan
from distls.workers.ingestion.formats.csv import CSV_READER
from distls.workers.ingestion.formats.table_records import first_records, json_head, json_record
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.transforms import AUTO, has_step

_TABLE_OPTIONS = {"kind", "impute", "categorical", "ignore_columns", "na"}


class JsonLinesFormat(Format[ParquetOptions]):
    """Records with named fields, as those of Parquet files with their types; documents alone are raw text."""

    name = "jsonl"
    options = ParquetOptions
    rank = -1  # before raw text
    no_sets = TABLE_NO_SETS

    def recognises(self, start: SourceStart) -> bool:
        """Return whether its lines are records without documents, or with more than one, its label, weight and id."""
        if not start.content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
            return False
        # data to be scored are what those of training were
        if start.like is not None:
            return is_table(start.like)
        if start.given & _TABLE_OPTIONS:
            return True
        if "text_column" in start.given or start.options.multilabel:
            return False
        chosen = has_step(start.options.transform, AUTO) and not start.given & {"weight_column", "id_column"}
        return _is_table(start.content, start.options.unlabelled, chosen)

    def plan(
        self, files: Sequence[SourceFile], read: ParquetOptions, options: IngestOptions, like: Like | None
    ) -> SourcePlan:
        """Choose the columns by the first records; an item is a file."""
        head = json_head(files[0].path, first_records(files))
        if like is None and not options.unlabelled and not any(k.endswith("=label") for k in read.kind):
            label = next((name for name in LABEL_NAMES if name in head.kinds), None)
            read = replace(read, label_column=label if read.label_column is None else read.label_column)
        reading, notices = table_reading(files, [head], read, options, like)
        # unlike fields of separated text, values have types
        reading = replace(reading, source="json")
        facts, survey = partial(text_facts, files), None
        unknown = any(f.categories == () or f.indices or f.name in head.empty for f in reading.features)
        if like is None and unknown:
            declared = declared_columns(reading, read)
            survey = ColumnSurvey(reading, declared, typed=True, facts=facts, empty=head.empty)
        plan = text_plan(self.name, CSV_READER, files, reading, survey=survey, notices=notices)
        return replace(plan, **facts(reading))


def _is_table(content: bytes, unlabelled: bool, chosen: bool) -> bool:
    """Return whether the first records have no documents or, where that is `chosen`, features beside them."""
    lines = content.split(b"\n")
    records = [json_record(line) for line in itertools.islice(lines[:-1] or lines, 20) if line.strip()]
    found = [record for record in records if isinstance(record, dict)]
    if not found:
        return False
    samples = Samples(
        {name: [record.get(name) for record in found] for name in dict.fromkeys(itertools.chain(*found))}
    )
    label = next((name for name in LABEL_NAMES if name in samples.values and not unlabelled), None)
    others = {*samples.values} - {label}
    if not others & {*TEXT_NAMES}:
        # documents with another name are named by an option
        return len(others) > 1 or any(samples.kind(name)[0] != "text" for name in others)
    if not chosen:
        return False
    # beside documents: numbers, truths, and words that recur
    others -= {next(name for name in TEXT_NAMES if name in others)}
    return any(_is_feature(samples, name) for name in others)


def _is_feature(samples: Samples, name: str) -> bool:
    # words that never recur are names of something, or documents
    values = samples.present(name)
    if samples.kind(name)[0] in ("id", "text") or name.lower() in ("id", "weight") or not values:
        return False
    return not all(isinstance(value, str) for value in values) or len({*values}) < len(values)
