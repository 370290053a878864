"""Raw text to batches of row records: one document per line, hashed into columns by scikit-learn.

A line is ``LABEL<TAB>DOCUMENT``, a document alone, or a JSON object with named fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.records.batch import Progress, ReadOptions, RecordBatch
from distls.workers.ingestion.records.labels import is_encodable, label_fault, label_value, value_labels
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.records.pack_records import pack_sparse
from distls.workers.ingestion.records.reader import TextReader

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer

__all__ = [
    "DOCUMENT_READER",
    "MAX_COLUMNS",
    "DocumentParser",
    "DocumentReadOptions",
    "Hashing",
    "hashed_texts",
]

MAX_COLUMNS = 2**31 - 1  # of scikit-learn's FeatureHasher

_CHUNK_BYTES = 8 * 2**20  # of text hashed at a time: its tokens take several times its size
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Hashing:
    """Parameters of scikit-learn's HashingVectorizer, without a norm."""

    n_features: int = 2**18
    ngrams: tuple[int, int] = (1, 1)  # shortest and longest run of words, or of characters
    analyzer: str = "word"  # word | char | char_wb
    lowercase: bool = True
    alternate_sign: bool = False  # hash collisions cancel out on average
    binary: bool = False  # ones instead of counts

    def vectorizer(self) -> HashingVectorizer:
        """Return scikit-learn's transformer."""
        # imported only where there is text to hash: other workers do not need scikit-learn
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(
            n_features=self.n_features,
            ngram_range=self.ngrams,
            analyzer=self.analyzer,
            lowercase=self.lowercase,
            alternate_sign=self.alternate_sign,
            binary=self.binary,
            norm=None,
        )


@dataclass(frozen=True)
class DocumentReadOptions(ReadOptions):
    """Options of the reader of documents; columns are JSON fields, empty if there is none."""

    hashing: Hashing = field(default_factory=Hashing)
    text_column: str = ""  # empty: lines are plain text
    label_column: str = ""
    weight_column: str = ""


class _Document(NamedTuple):
    text: str
    labels: list[str]
    weight: float


class _Refused(ValueError):
    """The rule that a line breaks."""


class DocumentParser:
    """Parses the blocks of one item; built and used as `SvmlightParser` is."""

    def __init__(
        self,
        options: DocumentReadOptions,
        n_extra: int,
        progress: Progress,
        locate: Callable[[int], str],
        pool: BufferPool,
    ) -> None:
        self.options = options
        self.n_extra = n_extra
        self.progress = progress
        self.locate = locate
        self._vectorizer = options.hashing.vectorizer()
        self._read = _read_json if options.text_column else _read_plain

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        """Yield the block's rows; `progress` is up to date at each batch and at the end of the block."""
        for chunk in _line_chunks(block):
            found = list(self._documents(chunk))
            self.progress.offset += len(chunk)
            self.progress.lines += chunk.count(b"\n") + (not chunk.endswith(b"\n"))
            if found:
                yield self._batch(found)

    def _documents(self, chunk: bytes) -> Iterator[tuple[int, _Document]]:
        """Yield the documents of some lines, each with its line number."""
        for line, raw in enumerate(chunk.removesuffix(b"\n").split(b"\n"), self.progress.lines):
            try:
                document = self._read(raw, self.options)
            except _Refused as refused:
                self._refuse(line, f"{quoted(raw)}: {refused}")
                continue
            if document is not None:
                yield line, document

    def _refuse(self, line: int, reason: str) -> None:
        if not self.options.skip_errors:
            raise BadInputError(f"{self.locate(line)}: {reason}")
        self.progress.skip(line, reason)

    def _batch(self, found: list[tuple[int, _Document]]) -> RecordBatch:
        documents = [document for _, document in found]
        values, words = value_labels(label for document in documents for label in document.labels)
        offsets = np.cumsum([0, *(len(document.labels) for document in documents)], dtype=np.int64)
        records, row_at = pack_sparse(self._hashed(documents), values, offsets, self.n_extra)
        weights = np.array([document.weight for document in documents], dtype=np.float32)
        return RecordBatch(
            records,
            row_at,
            np.array([line for line, _ in found], dtype=np.int32),
            weights if self.options.weight_column else None,
            words,
        )

    def _hashed(
        self, documents: list[_Document]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        dtype = np.dtype(np.float64 if self.options.float64 else np.float32)
        return hashed_texts(self._vectorizer, [document.text for document in documents], dtype)


def hashed_texts(
    vectorizer: HashingVectorizer, texts: Sequence[str], dtype: np.dtype[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Return the hashed features of documents: indptr, indices and values, sorted, without zeros."""
    matrix = vectorizer.transform(texts)
    matrix.eliminate_zeros()  # counts of opposite signs
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(dtype)


def _line_chunks(block: TextBlock) -> Iterator[bytes]:
    """Cut a block into chunks of whole lines, of at most _CHUNK_BYTES unless a line is longer."""
    start = 0
    while start < block.size:
        stop = min(start + _CHUNK_BYTES, block.size)
        newlines = np.flatnonzero(block.text[start:stop] == ord("\n"))
        # no line ends in the chunk: extend it to the end of the line
        if stop < block.size and not len(newlines):
            stop += int(np.argmax(block.text[stop : block.size + 1] == ord("\n"))) + 1
        elif stop < block.size:
            stop = start + int(newlines[-1]) + 1
        yield block.text[start : min(stop, block.size)].tobytes()
        start = stop


# -- one line --------------------------------------------------------------------------------------------


def _read_plain(raw: bytes, options: DocumentReadOptions) -> _Document | None:
    text = _decoded(raw)
    if not options.labelled:
        return _Document(text, [], 1.0)
    if not text.strip():
        return None
    label, tab, document = text.partition("\t")
    if not tab:
        raise _Refused("expected LABEL<TAB>DOCUMENT; documents alone are read with --unlabelled")
    labels = [label]
    if options.multilabel:
        labels = label.split(",") if label.strip() else []
    return _Document(document, _checked_labels([label.strip() for label in labels]), 1.0)


def _decoded(raw: bytes) -> str:
    try:
        return raw.removeprefix(_BYTE_ORDER_MARK).removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"byte {error.start + 1} of the line is not UTF-8") from None


def _read_json(raw: bytes, options: DocumentReadOptions) -> _Document | None:
    text = _decoded(raw)
    if not text.strip():
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise _Refused("expected a JSON object with named fields")
    document = _text_field(record, options.text_column)
    labels = _label_field(record, options) if options.labelled else []
    return _Document(document, labels, _weight_field(record, options.weight_column))


def _field(record: dict[str, Any], name: str, remedy: str = "") -> Any:
    if record.get(name) is None:
        raise _Refused(f'field "{name}" is {"null" if name in record else "missing"}{remedy}')
    return record[name]


def _text_field(record: dict[str, Any], name: str) -> str:
    text = _field(record, name)
    if not isinstance(text, str):
        raise _Refused(f'field "{name}" must be a string')
    if not is_encodable(text):
        raise _Refused(f'field "{name}" has a lone surrogate, which is no character')
    return text


def _label_field(record: dict[str, Any], options: DocumentReadOptions) -> list[str]:
    name = options.label_column
    given = _field(record, name, "; documents without labels are read with --unlabelled")
    if options.multilabel != isinstance(given, list):
        needed = "must be a list, as --multilabel says" if options.multilabel else "is a list"
        remedy = "" if options.multilabel else "; several labels in a row are read with --multilabel only"
        raise _Refused(f'field "{name}" {needed}{remedy}')
    return _checked_labels([_label_text(label, name) for label in (given if options.multilabel else [given])])


def _label_text(label: Any, name: str) -> str:
    if isinstance(label, str):
        return label
    if not isinstance(label, (int, float)) or not math.isfinite(label):
        raise _Refused(f'field "{name}" must hold a word or a number')
    return json.dumps(label)  # as the number is written


def _checked_labels(labels: list[str]) -> list[str]:
    for label in labels:
        if fault := label_fault(label):
            raise _Refused(fault)
    if len(labels) > 1 and len({label_value(label) for label in labels}) < len(labels):
        raise _Refused("a label is given twice")
    return labels


def _weight_field(record: dict[str, Any], name: str) -> float:
    if not name:
        return 1.0
    weight = _field(record, name)
    # bool is a subclass of int
    sound = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not sound or not 0 <= weight <= _LARGEST_WEIGHT:
        raise _Refused(f'field "{name}" must be a number that is finite and not negative')
    return float(weight)


DOCUMENT_READER = TextReader(DocumentParser)
