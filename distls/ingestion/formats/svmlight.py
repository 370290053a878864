"""Svmlight format: recognition, options, plan."""

import io
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import (
    ID_COLUMN,
    WEIGHT_COLUMN,
    OptionInfo,
    TextFile,
    absolute_path,
    option,
    yes_or_no,
)
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options, text_ids, text_plan
from distls.ingestion.request.source_start import source_file, start_of
from distls.storage.errors import BadInputError, ParameterError
from distls.workers.ingestion.formats.svmlight import SVMLIGHT_READER, xmc_width
from distls.workers.ingestion.parsing.array_types import Singles
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile, TextItem, line_starts
from distls.workers.ingestion.records.record_batch import ReadOptions

_NAMES = (".svm", ".svmlight", ".libsvm")
_LABEL = rb"[+-]?[0-9.]+([eE][+-]?[0-9]+)?(,[+-]?[0-9.]+)*"
_LINE = re.compile(rb"\s*(" + _LABEL + rb"(:[0-9.eE+-]+)?)?(\s+qid:[0-9]+)?(\s*[0-9]+:[^\s:]+)*\s*")


_OF_WEIGHTS = "File of sample weights of svmlight text, a number for each line."
_WEIGHTS = OptionInfo(_OF_WEIGHTS, "PATH", parse=absolute_path)
_OF_BASE = "Whether svmlight indices count from 0; default auto."
_ZERO_BASED = OptionInfo(_OF_BASE, choices=("auto", "yes", "no"), parse=yes_or_no)


@dataclass(frozen=True)
class SvmlightOptions(TextFile):
    """Options of svmlight text.

    Attributes
    ----------
    id_column : {"comment", "label"}, optional
        Keep what comes after ``#`` as ids of the rows; or what is in the place of the label, where another file has the
        labels.
    weight_column : {"label"}, optional
        Labels may have sample weights, as in ``1:0.5``; those without one count 1.
    weights : path, optional
        File of sample weights: a number for each line of the sources, in their order.
    encoding : str, optional
        As `CsvOptions` has it.
    zero_based : {"auto", "yes", "no"} or bool
        Base of the indices; auto: zero when index 0 occurs anywhere in the input.
    """

    id_column: str | int | None = option(None, ID_COLUMN)
    weight_column: str | int | None = option(None, WEIGHT_COLUMN)
    weights: str | Path | None = option(None, _WEIGHTS)  # noqa: RUF009 - a call that returns a field
    zero_based: str | bool = option("auto", _ZERO_BASED)


class SvmlightFormat(Format[SvmlightOptions]):
    """Text of ``LABEL INDEX:VALUE ...``; plain, gzip, bz2, xz or zstd."""

    name = "svmlight"
    options = SvmlightOptions
    rank = 2

    def recognises(self, start: SourceStart) -> bool:
        """Return whether the name, or the first non-empty line, is that of svmlight."""
        if start.name.endswith(_NAMES):
            return True
        content = start.content.removeprefix(b"\xef\xbb\xbf")
        if xmc_width(content) is not None:
            return True
        lines = (line.split(b"#", 1)[0].strip() for line in content.split(b"\n"))
        line = next(filter(None, lines), b"")
        if not line or not _LINE.fullmatch(line[:4096].rsplit(None, 1)[0] if len(line) > 4096 else line):
            return False
        # numbers without any pair are CSV as well, several of them or one like the column of a table
        table = start.name.endswith((".csv", ".tsv")) or "features" in description_of(start.like)
        # and "0,13:28", with a time of day, is a label set with a weight as well
        paired = b":" in b"".join(line.split(None, 1)[1:])
        return paired or (b"," not in line and not table) or start.options.multilabel

    def plan(self, files: Files, read: SvmlightOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Cut files into ranges of lines."""
        # of the vectors of RCV1-v2 the number in the place of the label is the document's id
        own = (read.id_column or description_of(like).get("id_column")) == "label"
        ids = "label" if own else text_ids(read.id_column, "comment", files[0].path, like)
        if own and not options.unlabelled:
            why = "where the label is the id of a row, --labels FILE has its labels, or ingest --unlabelled"
            raise ParameterError(f"id_column: {why}")
        weighted = _weighted(read, options, like, files[0].path)
        one_based = read.zero_based == "no"
        shared = shared_options(options) | ({"labelled": True} if own else {})
        reading = ReadOptions(one_based=one_based, id_column=ids, weighted=weighted, **shared)
        recipe = {"id_column": ids, "weight_column": "label" if weighted else ""}
        facts: dict[str, Any] = {"description": {name: place for name, place in recipe.items() if place}}
        widths = {file.path: xmc_width(start_of(file, 4096)) for file in files}
        if headed := {path: width for path, width in widths.items() if width is not None}:
            facts["notices"] = (
                f"{next(iter(headed))}: line 1 has the numbers of rows, features and labels, and is no row",
            )
            # no row can have features beyond the largest number
            facts["width"] = max((width for width in headed.values() if width <= MAX_INDEX + 1), default=0)
        facts |= {"weighted": weighted or read.weights is not None, "labelled": not options.unlabelled}
        plan = text_plan(self.name, SVMLIGHT_READER, files, reading, zero_based=str(read.zero_based), **facts)
        return plan if read.weights is None else _with_weights(plan, source_file(read.weights))


def _weighted(read: SvmlightOptions, options: IngestOptions, like: Like | None, path: str) -> bool:
    """Return whether labels may have weights, as asked for or as those of `like` have."""
    if read.weight_column not in (None, "label"):
        rest = "--weight-column label, or in a file, --weights FILE"
        raise ParameterError(f"weight_column: rows of {path} have weights behind their labels, {rest}")
    if read.weight_column and (options.multilabel or options.unlabelled or read.weights):
        other = next(o for o in ("weights", "multilabel", "unlabelled") if {**vars(options), **vars(read)}[o])
        raise ParameterError(f"weight_column and {other} exclude each other")
    known = description_of(like).get("weight_column") == "label" and not read.weights
    return bool(read.weight_column) or (known and not options.unlabelled)


def _read_weights(file: SourceFile) -> Singles:
    parts = [np.empty(0, np.float32)]
    try:
        with file.open() as opened:
            # in pieces: numbers as objects take several times their text
            lines = io.BufferedReader(cast(io.RawIOBase, opened))
            while some := lines.readlines(2**24):
                parts.append(np.array(b" ".join(some).split(), dtype=np.float64).astype(np.float32))
    except ValueError as error:
        word = str(error).rpartition("b'")[2].rstrip("'")
        raise BadInputError(f'{file.path}: weights are numbers, one a line, not "{word}"') from None
    weights = np.concatenate(parts)
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise BadInputError(f"{file.path}: sample weights must be finite and not negative")
    return weights


def _with_weights(plan: SourcePlan, file: SourceFile) -> SourcePlan:
    """Return the plan with the weights of a file, cut up as its items are."""
    weights = _read_weights(file)
    items = cast(tuple[TextItem, ...], plan.items)
    first, starts = 0, []
    for source in plan.files:
        own = [item for item in items if item.file == source]
        counts = line_starts(source, [item.start for item in own] + [sys.maxsize])
        starts += [first + n for n in counts[:-1]]
        first += counts[-1]
    if first != len(weights):
        raise BadInputError(f"{file.path}: {len(weights)} weights, but the sources have {first} lines")
    stops = [*starts[1:], first]
    cuts = zip(items, starts, stops, strict=True)
    items = tuple(replace(item, weights=weights[start:stop]) for item, start, stop in cuts)
    return replace(plan, items=items, beside=(*plan.beside, file))
