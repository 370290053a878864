"""Svmlight format: recognition, options, plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import ID_COLUMN, OptionInfo, TextFile, option, yes_or_no
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options, text_ids, text_plan
from distls.ingestion.request.source_start import start_of
from distls.workers.ingestion.formats.svmlight import SVMLIGHT_READER, xmc_header
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.records.record_batch import ReadOptions

_NAMES = (".svm", ".svmlight", ".libsvm")
_LABEL = rb"[+-]?[0-9.]+([eE][+-]?[0-9]+)?(,[+-]?[0-9.]+)*"
_LINE = re.compile(rb"\s*(" + _LABEL + rb")?(\s+qid:[0-9]+)?(\s*[0-9]+:[^\s:]+)*\s*")
_REFUSES = {"labels": "labels is for array sources; svmlight text has its own"}


@dataclass(frozen=True)
class SvmlightOptions(TextFile):
    """Options of svmlight text.

    Attributes
    ----------
    id_column : {"comment"}, optional
        Keep what comes after ``#`` as ids of the rows.
    zero_based : {"auto", "yes", "no"} or bool
        Base of the indices; auto: zero when index 0 occurs anywhere in the input.
    """

    id_column: str | int | None = option(None, ID_COLUMN)
    zero_based: str | bool = option(
        "auto",
        OptionInfo(
            "Whether svmlight indices count from 0; default auto.",
            choices=("auto", "yes", "no"),
            parse=yes_or_no,
        ),
    )


class SvmlightFormat(Format[SvmlightOptions]):
    """Text of ``LABEL INDEX:VALUE ...``; plain, gzip, bz2, xz or zstd."""

    name = "svmlight"
    options = SvmlightOptions
    rank = 2
    refuses = _REFUSES

    def recognises(self, start: SourceStart) -> bool:
        """Return whether the name, or the first non-empty line, is that of svmlight."""
        if start.name.endswith(_NAMES):
            return True
        content = start.content.removeprefix(b"\xef\xbb\xbf")
        if xmc_header(content):
            return True
        lines = (line.split(b"#", 1)[0].strip() for line in content.split(b"\n"))
        line = next(filter(None, lines), b"")
        if not line or not _LINE.fullmatch(line[:4096].rsplit(None, 1)[0] if len(line) > 4096 else line):
            return False
        # numbers without any pair are CSV as well, several of them or one like the column of a table
        table = start.name.endswith((".csv", ".tsv")) or "features" in description_of(start.like)
        return b":" in line or (b"," not in line and not table) or start.options.multilabel

    def plan(
        self, files: Sequence[SourceFile], read: SvmlightOptions, options: IngestOptions, like: Like | None
    ) -> SourcePlan:
        """Cut files into ranges of lines."""
        ids = text_ids(read.id_column, "comment", files[0].path, like)
        reading = ReadOptions(one_based=read.zero_based == "no", id_column=ids, **shared_options(options))
        facts: dict[str, Any] = {"description": {"id_column": ids}} if ids else {}
        if headed := [file.path for file in files if xmc_header(start_of(file, 4096))]:
            facts["notices"] = (
                f"{headed[0]}: line 1 has the numbers of rows, features and labels, and is no row",
            )
        return text_plan(self.name, SVMLIGHT_READER, files, reading, zero_based=str(read.zero_based), **facts)
