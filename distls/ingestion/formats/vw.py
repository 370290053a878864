"""Vowpal Wabbit format: feature names are column numbers, or are hashed to 2**B columns."""

from dataclasses import dataclass
from typing import Any

from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import ID_COLUMN, OptionInfo, TextFile, option
from distls.ingestion.request.like import Like, description_of
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options, text_ids, text_plan
from distls.ingestion.request.source_start import start_of, whole_lines
from distls.storage.errors import MismatchError, ParameterError
from distls.workers.ingestion.formats.vw import VW_READER, VwReadOptions, only_namespace
from distls.workers.ingestion.parsing.text_blocks import Files
from distls.workers.ingestion.records.record_batch import ArrayHeader

_DEFAULT_BITS = 18  # Vowpal Wabbit's own


@dataclass(frozen=True)
class VwOptions(TextFile):
    """Options of Vowpal Wabbit text.

    Attributes
    ----------
    id_column : {"tag"}, optional
        Keep the tags as ids of the rows.
    encoding : str, optional
        As `CsvOptions` has it.
    hash_bits : int, optional
        The names of features are hashed into ``2**hash_bits`` columns as vw does it. Default: when in the first 64 KiB
        all names are whole numbers, of one namespace, they are the columns, and a later name that is none is refused;
        else 18.
    """

    id_column: str | int | None = option(None, ID_COLUMN)
    hash_bits: int | None = option(None, OptionInfo("vw: hash names into 2**B columns.", fitted=True, bounds=(1, 31)))


class VwFormat(Format[VwOptions]):
    """Text with a bar before its features; plain, gzip, bz2, xz or zstd."""

    name = "vw"
    options = VwOptions
    rank = 4

    def recognises(self, start: SourceStart) -> bool:
        """Return whether the first non-empty line has a bar."""
        return b"|" in next(filter(None, map(bytes.strip, start.content.split(b"\n"))), b"")

    def plan(self, files: Files, read: VwOptions, options: IngestOptions, like: Like | None) -> SourcePlan:
        """Choose how names become columns: by the options, by `like`, or by the start of the first file."""
        start, path = whole_lines(start_of(files[0])), files[0].path
        ids = text_ids(read.id_column, "tag", path, like)
        columns = {**_columns(start, path, read.hash_bits, like), "id_column": ids}
        reading = VwReadOptions(**columns, **shared_options(options))
        bits = reading.hash_bits
        if bits is not None and options.n_features not in (None, 2**bits):
            raise ParameterError(
                f"n_features={options.n_features}, but names are hashed to 2**{bits} = {2**bits} "
                "columns; choose their number with hash_bits"
            )
        if bits is None and like is not None and like.meta.zero_based is False:
            rest = "those of Vowpal Wabbit text from 0"
            raise MismatchError(f"the features of {like.path} count from 1, {rest}")
        facts: dict[str, Any] = {"weighted": True, "may_be_unweighted": True, "zero_based": "yes"}
        namespace = reading.namespace.decode("utf-8", "surrogateescape")
        facts["description"] = {"hash_bits": bits, "namespace": namespace} | ({"id_column": ids} if ids else {})
        facts["headers"] = () if bits is None else (ArrayHeader(-1, 2**bits, sparse=True),)
        facts["notices"] = () if read.hash_bits is not None or like is not None else (_notice(bits),)
        return text_plan(self.name, VW_READER, files, reading, **facts)


def _columns(start: bytes, path: str, hash_bits: int | None, like: Like | None) -> dict[str, Any]:
    """Return the fields of `VwReadOptions` that determine how names become columns."""
    known = description_of(like)
    # data like Vowpal Wabbit's are read with the same hashing
    if like is not None and like.meta.source.get("format") == "vw":
        if hash_bits not in (None, known["hash_bits"]):
            bits = known["hash_bits"]
            has = "column numbers as names" if bits is None else f"hash_bits={bits}"
            raise MismatchError(f"hash_bits={hash_bits}, but {like.path} has {has}")
        return {**known, "namespace": known["namespace"].encode("utf-8", "surrogateescape")}
    if hash_bits is not None:
        return {"hash_bits": hash_bits}
    namespace = only_namespace(start)
    if namespace is not None:
        return {"namespace": namespace}
    if like is not None:
        rest = f"but {like.path} is of numbered columns"
        raise MismatchError(f"{path}: names that are no column numbers, {rest}")
    return {"hash_bits": _DEFAULT_BITS}


def _notice(bits: int | None) -> str:
    """Describe the treatment of names that the user did not choose."""
    if bits is None:
        return "the names of features are numbers of columns; --hash-bits 18 hashes them as vw does"
    return f"the names of features are hashed to 2**{bits} columns; --hash-bits chooses how many"
