"""The interface of an input format: name, options, recognition, plan."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.request.source_start import source_file, start_of
from distls.storage.errors import ParameterError
from distls.workers.ingestion.parsing.text_blocks import Files, SourceFile

OptionsT = TypeVar("OptionsT", bound=FormatOptions)


@dataclass(frozen=True)
class SourceStart:
    """The evidence by which the format of a file is recognised."""

    content: bytes  # the first 64 KiB, decompressed
    name: str  # its path, without the ending of a compressed file
    options: IngestOptions
    like: Like | None
    given: frozenset[str] = frozenset()  # options of formats that were given by name


class Format(ABC, Generic[OptionsT]):
    """An input format; `distls.ingestion.formats.format_registry` holds one object of each."""

    name: ClassVar[str]  # value of `format`, stored with the data set
    options: type[OptionsT]
    # formats of lower rank are asked first; those with a signature have 1, so that guesses about text come last
    rank: ClassVar[int] = 1
    signature: ClassVar[bytes] = b""  # with which its files begin, if that tells them from others
    # why its rows have no sets of labels, and where these are read; empty: they may
    no_sets: ClassVar[str] = ""

    def recognises(self, start: SourceStart) -> bool:
        """Return whether a file looks like this format: by default, whether it has the signature."""
        return bool(self.signature) and start.content.startswith(self.signature)

    def takes_folder(self, path: Path) -> bool:
        """Return whether a folder is a source of this format."""
        return False

    @abstractmethod
    def plan(self, files: Files, read: OptionsT, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Cut files into items and choose how they are read, as `like` was where it is given.

        Raises BadInputError if a file cannot be read or does not match the others, ParameterError or MismatchError if
        an option contradicts the files, or the files `like`.
        """


_ARRAYS = (b"\x93NUMPY", b"\0\0")


def is_array_file(file: SourceFile) -> bool:
    """Return whether labels are in an npy or IDX file, not in text."""
    return start_of(file, 8).startswith(_ARRAYS)


def seen_options(options: IngestOptions) -> IngestOptions:
    """Return the options of rows whose labels are elsewhere: to their format they are unlabelled."""
    return replace(options, unlabelled=True, multilabel=False, target="auto")


def plan_as_asked(
    read: FormatOptions,
    options: IngestOptions,
    format: Format[Any] | None,
    plan: Callable[[Any, IngestOptions], SourcePlan],
) -> SourcePlan:
    """Return the plan of a format (None: arrays in memory) whose labels are judged, or come from another file.

    `plan` is called with the options as they are without that file. Raises ParameterError for options that exclude
    each other.
    """
    judged = read.label_map or read.label_level or {*read.drop} - {"empty"}
    if options.unlabelled and (read.labels or judged):
        name = next(name for name in ("labels", "label_map", "label_level", "drop") if vars(read)[name])
        raise ParameterError(f"unlabelled and {name} exclude each other")
    if options.multilabel and "several" in read.drop:
        raise ParameterError("multilabel keeps several labels of a row, drop=several leaves out such rows")
    labels = None if read.labels is None else source_file(read.labels)
    # Array formats read label files of arrays themselves, several targets in a row among them.
    if labels is not None and format is not None and format.name in ("npy", "npz", "idx", "cifar"):
        labels = None if is_array_file(labels) else labels
    if labels is not None:
        # Two places of labels would contradict one another.
        if vars(read).get("label_column") is not None:
            raise ParameterError("labels and label_column exclude each other: give one of them")
        found = plan(replace(read, labels=None), seen_options(options))
    else:
        # sets of labels are read where rows with several are to be told, or several may become one
        sets = "several" in read.drop and format is not None and format.name in ("svmlight", "vw", "text")
        found = plan(read, replace(options, multilabel=True, target="auto") if sets else options)
    # files beside the sources must not change either
    map_file = None if read.label_map is None else source_file(read.label_map)
    beside = (*found.beside, *(file for file in (map_file, labels) if file is not None))
    return replace(found, joined=labels, labelled=found.labelled or labels is not None, beside=beside)
