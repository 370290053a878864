"""The interface of an input format: name, options, recognition, plan."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.workers.ingestion.parsing.text_blocks import SourceFile

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
    # option -> message, where there is a better one than that the option is for other formats
    refuses: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def recognises(self, start: SourceStart) -> bool:
        """Return whether a file looks like this format."""

    def takes_folder(self, path: Path) -> bool:
        """Return whether a folder is a source of this format."""
        return False

    @abstractmethod
    def plan(
        self, files: Sequence[SourceFile], read: OptionsT, options: IngestOptions, like: Like | None
    ) -> SourcePlan:
        """Cut files into items and choose how they are read, as `like` was where it is given.

        Raises BadInputError if a file cannot be read or does not match the others, ParameterError or MismatchError if
        an option contradicts the files, or the files `like`.
        """
