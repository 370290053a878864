"""Sources whose labels are judged, or come from another file: how their format is asked to plan them."""

from dataclasses import dataclass, replace
from typing import Any

from distls.ingestion.request.format import Format
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, file_identity
from distls.ingestion.request.source_start import source_file, start_of
from distls.storage.errors import ParameterError
from distls.workers.ingestion.parsing.text_blocks import SourceFile

_ARRAYS = (b"\x93NUMPY", b"\0\0")


def is_array_file(file: SourceFile) -> bool:
    """Return whether labels are in an npy or IDX file, not in text."""
    return start_of(file, 8).startswith(_ARRAYS)


def seen_options(options: IngestOptions) -> IngestOptions:
    """Return the options of rows whose labels are elsewhere: to their format they are unlabelled."""
    return replace(options, unlabelled=True, multilabel=False, target="auto")


@dataclass(frozen=True)
class Asked:
    """How a format is asked to read sources whose labels are judged, or come from another file."""

    read: FormatOptions
    options: IngestOptions
    labels: SourceFile | None  # to be joined


def as_asked(read: FormatOptions, options: IngestOptions, format: Format[Any] | None) -> Asked:
    """Return the options with which a format (None: arrays in memory) plans the sources.

    Raises ParameterError for options that exclude each other.
    """
    judged = read.label_map or read.label_level or {*read.drop} - {"empty"}
    if options.unlabelled and (read.labels or judged):
        name = next(name for name in ("labels", "label_map", "label_level", "drop") if vars(read)[name])
        raise ParameterError(f"unlabelled and {name} exclude each other")
    if options.multilabel and "several" in read.drop:
        raise ParameterError("multilabel keeps several labels of a row, drop=several leaves out such rows")
    # Array formats read label files of arrays themselves, several targets in a row among them.
    labels = None if read.labels is None else source_file(read.labels)
    own = format is not None and format.name in ("npy", "npz", "idx", "cifar")
    if labels is None or (own and is_array_file(labels)):
        # sets of labels are read where rows with several are to be told, or several may become one
        takes_sets = format is not None and format.name in ("svmlight", "vw", "text")
        sets = takes_sets and bool({"several"} & {*read.drop})
        return Asked(read, replace(options, multilabel=True, target="auto") if sets else options, None)
    # Two places of labels would contradict one another.
    if vars(read).get("label_column") is not None:
        raise ParameterError("labels and label_column exclude each other: give one of them")
    return Asked(replace(read, labels=None), seen_options(options), labels)


def with_rules(plan: SourcePlan, asked: Asked, read: FormatOptions) -> SourcePlan:
    """Return a plan whose rows have the labels of another file; files beside the sources must not change either."""
    beside = [source_file(path) for path in (read.label_map,) if path is not None]
    beside += [asked.labels] if asked.labels is not None else []
    labelled = plan.labelled or asked.labels is not None
    return replace(
        plan, joined=asked.labels, labelled=labelled, identity=[*plan.identity, *map(file_identity, beside)]
    )
