"""What an input format is to the driver: a name, options, how its files are recognised, and the plan to read them."""

from __future__ import annotations

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

__all__ = ["Format", "SourceStart"]

OptionsT = TypeVar("OptionsT", bound=FormatOptions)


@dataclass(frozen=True)
class SourceStart:
    """What a file is recognised by."""

    content: bytes  # the first 64 KiB, decompressed
    name: str  # its path, without the ending of a compressed file
    options: IngestOptions
    like: Like | None


class Format(ABC, Generic[OptionsT]):
    """An input format; `distls.ingestion.formats.registry` holds one object of each."""

    name: ClassVar[str]  # what `format` is given as, and what data sets are stored with
    options: type[OptionsT]  # dataclass of the options that only some formats take
    # formats of lower rank are asked first whether they recognise a file. Those with a signature in their
    # first bytes have rank 1, so that the guesses about text come after.
    rank: ClassVar[int] = 1
    # options for which there is a better message than that they are for other formats
    refuses: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def recognises(self, start: SourceStart) -> bool:
        """Tell whether a file looks like this format."""

    def takes_folder(self, path: Path) -> bool:
        """Tell whether a folder is a source of this format."""
        return False

    @abstractmethod
    def plan(
        self, files: Sequence[SourceFile], read: OptionsT, options: IngestOptions, like: Like | None
    ) -> SourcePlan:
        """Cut files into items, and say how they are read.

        Parameters
        ----------
        read : FormatOptions
            Of this format, as they were given.
        options : IngestOptions
            That all formats share.
        like : Like, or None
            Other data whose description of their source is taken over.

        Raises
        ------
        BadInputError
            A file cannot be read, or does not go with the others.
        ParameterError, MismatchError
            An option does not go with the files, or the files not with `like`.
        """
