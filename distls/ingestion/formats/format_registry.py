"""The registry of input formats, their recognition, and the options that belong to each."""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distls.ingestion.formats.anndata import AnnDataFormat
from distls.ingestion.formats.arrays import CifarFormat, IdxFormat, NpyFormat, NpzFormat
from distls.ingestion.formats.csv import CsvFormat
from distls.ingestion.formats.documents import DocumentFormat
from distls.ingestion.formats.parquet import JsonLinesFormat, ParquetFormat
from distls.ingestion.formats.svmlight import SvmlightFormat
from distls.ingestion.formats.vw import VwFormat
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import FormatOptions, OptionInfo
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_start import of_folder, of_picture, start_of
from distls.storage.errors import BadInputError, ParameterError
from distls.workers.ingestion.parsing.text_blocks import SourceFile

_BUILT_IN: tuple[Format[Any], ...] = (
    *(SvmlightFormat(), VwFormat(), DocumentFormat(), CsvFormat(), ParquetFormat(), AnnDataFormat()),
    *(JsonLinesFormat(),),
    *(NpzFormat(), NpyFormat(), IdxFormat(), CifarFormat()),
)
_JSON_ARRAY = re.compile(rb'(\xef\xbb\xbf)?\s*\[\s*\{\s*"')
_BETWEEN_BLANKS = re.compile(rb"[ \t]*[-+.0-9eE]+([ \t]+[-+.0-9eE]+)+[ \t]*\r?(\n|\Z)")
_FORMATS = {format.name: format for format in _BUILT_IN}


def register(format: Format[Any]) -> None:
    """Add a format, which `ingest` and the command line then accept.

    Raises ValueError if there is one of this name, or one with another option of the same name.
    """
    if format.name in (*_FORMATS, "auto"):
        raise ValueError(f"there is a format {format.name} already")
    # formats may share an option, but then its description too
    known = option_infos()
    for name, info in format.options.infos().items():
        if known.get(name, info) != info:
            raise ValueError(f"there is another option {name} already")
    _FORMATS[format.name] = format


def format_names() -> tuple[str, ...]:
    """Return the names of all formats."""
    return tuple(_FORMATS)


def option_infos() -> dict[str, OptionInfo]:
    """Return the description of each option that only some formats take, by name."""
    return {name: info for format in _FORMATS.values() for name, info in format.options.infos().items()}


def option_defaults() -> dict[str, object]:
    """Return the default of each option that only some formats take, by name."""
    return {name: value for format in _FORMATS.values() for name, value in format.options.defaults().items()}


_UNREAD = {
    b"\x1f\x8b": "twice; gunzip undoes one of them",
    b"\x1f\x9d": "by compress; uncompress undoes it",
    b"\x04\x22\x4d\x18": "by lz4; unlz4 undoes it",
}


def folder_format(path: Path) -> Format[Any] | None:
    """Return the format of which a folder is a source, if there is one."""
    return next((format for format in _FORMATS.values() if format.takes_folder(path)), None)


def format_of(
    file: SourceFile, options: IngestOptions, like: Like | None, given: frozenset[str] = frozenset()
) -> Format[Any]:
    """Return the format of a file, as requested or recognised; raise BadInputError if neither.

    `given` has the options of formats that were given by name, which are evidence too.
    """
    path = Path(file.path)
    if path.is_dir():
        found = folder_format(path)
        if found is None or options.format not in ("auto", found.name):
            raise BadInputError(f"{file.path}: {of_folder(path)}")
        return found
    content = start_of(file)
    _check_archive(file.path, content)
    # a document of other text may begin like that
    if _JSON_ARRAY.match(content) and (like is None or ".json" in path.name):
        remedy = "write a record a line, as pandas' to_json(..., orient='records', lines=True)"
        raise BadInputError(f"{file.path}: a JSON array; {remedy}")
    if options.format != "auto":
        return _FORMATS[options.format]
    start = SourceStart(content, re.sub(r"\.(gz|bz2|xz|zst)\Z", "", file.path), options, like, given)
    found = recognised(start)
    if found is not None:
        return found
    if picture := of_picture(path):
        raise BadInputError(f"{file.path}: {picture}")
    if _BETWEEN_BLANKS.match(content):
        why = "--format csv and --separator space read them"
        raise BadInputError(f"{file.path}: numbers between blanks: {why}")
    first = start.content.split(b"\n", 1)[0][:40].decode("utf-8", "backslashreplace")
    remedy = f"name its format, one of {', '.join(_FORMATS)}"
    raise BadInputError(f'{file.path}: not recognised by its name or its start ("{first}"); {remedy}')


def _check_archive(path: str, content: bytes) -> None:
    """Refuse what has to be unpacked or saved as text first."""
    names: list[str] = []
    workbook = content.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    if content.startswith(b"PK\x03\x04"):
        with contextlib.suppress(OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            workbook = "[Content_Types].xml" in names
    if names and not workbook and not any(name.endswith(".npy") for name in names):
        raise BadInputError(f"{path}: a zip archive of {', '.join(names[:5])}; unpack it: unzip {path}")
    if workbook:
        raise BadInputError(f"{path}: an Excel workbook; save it as CSV")
    if content[257:262] == b"ustar":
        raise BadInputError(f"{path}: a tar archive; unpack it: tar -xf {path}")
    # what is compressed otherwise, or within gzip, which was undone
    for mark, remedy in _UNREAD.items():
        if content.startswith(mark):
            raise BadInputError(f"{path}: it is compressed {remedy}")


def recognised(start: SourceStart) -> Format[Any] | None:
    """Return the format of which a source is by its start, None if it is of none."""
    # the sort is stable: formats of equal rank are asked in the order of the list
    ordered = sorted(_FORMATS.values(), key=lambda format: format.rank)
    return next((format for format in ordered if format.recognises(start)), None)


class ReadRequest:
    """Format and options as the user gave them, checked before any source is opened.

    `format` is a name or ``auto``, `read` the options of a format, `named` options by name, of any format; those at
    their defaults count as not given. Raises ParameterError if there is no such format, a value is not allowed, or
    both `read` and options by name are given; TypeError if no format has an option of this name.
    """

    def __init__(self, format: str, read: FormatOptions | None, named: Mapping[str, object]) -> None:
        if format != "auto" and format not in _FORMATS:
            raise ParameterError(f"format must be one of auto, {', '.join(_FORMATS)}, not {format!r}")
        self._read = read
        self._given = _checked(named)
        # either spelling, never a mixture
        if read is not None and self._given:
            both = ", ".join(self._given)
            remedy = f"give what {type(read).__name__} has there"
            raise ParameterError(f"{both} and read exclude each other; {remedy}")
        self.format = format
        self.given = frozenset(self._given)
        if read is not None and format == "auto":
            fitting = [name for name, known in _FORMATS.items() if known.options is type(read)]
            # npz, npy and idx share their options: the files decide which it is
            self.format = fitting[0] if len(fitting) == 1 else format

    def named_format(self) -> Format[Any]:
        """Return the format that is named."""
        return _FORMATS[self.format]

    def with_column(self, option: str, column: str, beside: str) -> ReadRequest:
        """Return the request with the option that names a column, whose values are given beside the source.

        Raises
        ------
        ParameterError
            The option is given as well.
        """
        own = self._given.get(option) if self._read is None else getattr(self._read, option, None)
        if own is not None:
            raise ParameterError(f"{beside} and {option} exclude each other: give one of them")
        if self._read is None:
            return ReadRequest(self.format, None, {**self._given, option: column})
        changed: Any = {option: column}
        return ReadRequest(self.format, replace(self._read, **changed), {})

    def without(self, *options: str) -> tuple[ReadRequest, list[Any]]:
        """Return the request without options, and their values, None where they were not given by name."""
        others = {name: value for name, value in self._given.items() if name not in options}
        return ReadRequest(self.format, self._read, others), [self._given.get(name) for name in options]

    def options_of(self, format: Format[Any], multilabel: bool) -> FormatOptions:
        """Return the options of a format; raise ParameterError for one it does not take."""
        if multilabel and format.no_sets:
            raise ParameterError(format.no_sets)
        if self._read is None:
            return self._options(format.options, format.name)
        if type(self._read) is not format.options:
            raise ParameterError(
                f"read must be {format.options.__name__} for sources of format {format.name}, "
                f"not {type(self._read).__name__}"
            )
        return self._read

    def options_of_arrays(self) -> FormatOptions:
        """Return the options of arrays in memory; raise ParameterError for those of files."""
        if self.format != "auto" or self._read is not None or "labels" in self._given:
            what = "read is" if self._read is not None else "format and labels are"
            raise ParameterError(f"{what} for files; arrays in memory were given")
        return self._options(FormatOptions, "arrays in memory")

    def _options(self, kind: type[FormatOptions], what: str) -> FormatOptions:
        infos = kind.infos()
        if (name := next((name for name in self._given if name not in infos), None)) is not None:
            takers = [format.name for format in _FORMATS.values() if name in format.options.infos()]
            raise ParameterError(f"{name} is for sources of format {' or '.join(takers)}, these are {what}")
        given: Any = self._given
        return kind(**given)


def _checked(named: Mapping[str, object]) -> dict[str, object]:
    """Return the parsed options that are not at their defaults."""
    infos, defaults = option_infos(), option_defaults()
    unknown = next((name for name in named if name not in infos), None)
    if unknown is not None:
        meant = f"; it is {unknown}_column" if f"{unknown}_column" in infos else ""
        raise TypeError(f"ingest() or train() got an unexpected keyword argument {unknown!r}{meant}")
    values = {name: infos[name].checked(name, value) for name, value in named.items()}
    return {name: value for name, value in values.items() if value != defaults[name]}
