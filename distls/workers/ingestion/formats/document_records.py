"""Documents to row records: their labels and weights checked, their words hashed into columns as scikit-learn does."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from distls.storage.dataset.row_origins import pack_ids
from distls.workers.ingestion.formats.table_columns import COMMON, Dialect, Words
from distls.workers.ingestion.parsing.array_types import Array, Ints
from distls.workers.ingestion.records.hashed_words import hash_columns, word_hashes
from distls.workers.ingestion.records.labels import is_encodable, label_fault, label_value, value_labels
from distls.workers.ingestion.records.messages import SEVERAL_LABELS, UNLABELLED, quoted
from distls.workers.ingestion.records.pack_records import pack_sparse
from distls.workers.ingestion.records.reader import Reader, SourceItem
from distls.workers.ingestion.records.record_batch import ReadOptions, ReadRun, RecordBatch

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import HashingVectorizer

MAX_COLUMNS = 2**31 - 1  # of scikit-learn's FeatureHasher
CHUNK_CHARACTERS = 8 * 2**20  # hashed at a time
CHUNK_ROWS = 2**16
ItemT = TypeVar("ItemT", bound=SourceItem)
_WORD = re.compile(r"\b\w\w+\b")  # scikit-learn's
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


class Hashing(Words, frozen=True, kw_only=True):
    """How words are hashed, and into how many columns."""

    n_features: int = 2**18

    @property
    def has_runs(self) -> bool:
        """Whether runs of words or of characters are hashed, and not words alone."""
        return self.analyzer != "word" or self.ngrams[1] > 1

    def vectorizer(self) -> HashingVectorizer:
        # imported only where it is asked for: it takes a second, and words are found without it
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(
            n_features=self.n_features,
            ngram_range=self.ngrams,
            analyzer=self.analyzer,
            lowercase=self.lowercase,
            alternate_sign=self.alternate_sign,
            binary=self.binary,
            # Rows are normalised by a transform, where it is asked for, and not here.
            norm=None,
        )


@dataclass(frozen=True)
class DocumentReadOptions(ReadOptions):
    """Options of the readers of documents; columns are those of a table, or JSON fields, empty if there is none."""

    hashing: Hashing = field(default_factory=Hashing)
    text_column: str = ""  # empty: lines are plain text
    label_column: str = ""
    weight_column: str = ""
    keep_words: bool = False  # the most frequent word of each column
    prefixed: bool = False  # lines of text have labels as fastText's, __label__NAME
    marks: str = ""  # smart | rdf, of files that are not lines
    # of separated text
    columns: tuple[str, ...] = ()
    dialect: Dialect = COMMON

    @cached_property
    def missing(self) -> frozenset[str]:
        """Texts that stand for no value, looked up for every label."""
        return frozenset(self.dialect.missing)


class Document(NamedTuple):
    """A document and what belongs to it."""

    text: str
    labels: list[str]
    weight: float
    id: str = ""


class Refused(ValueError):
    """The rule that a line breaks."""


def check_fields(record: dict[str, Any], raw: bytes) -> None:
    """Raise Refused if the JSON text of a record has a field twice, of which the parser keeps the last value."""
    # most lines have a colon for each field and no other
    if raw.count(b":") > len(record):
        json.loads(raw, object_pairs_hook=_check_names)


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    seen = Counter(name for name, _ in pairs)
    if len(seen) < len(pairs):
        name = max(seen, key=seen.__getitem__).encode("utf-8", "replace")
        raise Refused(f"the field {quoted(name)} occurs twice")


# The 0-based line (row) of a document, and the document, or why it cannot be read.
Found = tuple[int, Document | Refused]


class DocumentPacker:
    """Makes record batches of documents."""

    def __init__(self, options: DocumentReadOptions, n_extra: int) -> None:
        self.options = options
        self.n_extra = n_extra

    def batch(self, found: list[tuple[int, Document]]) -> RecordBatch:
        documents = [document for _, document in found]
        # All labels at once: each distinct one is hashed only once.
        values, words = value_labels(label for document in documents for label in document.labels)
        offsets = np.cumsum([0, *(len(document.labels) for document in documents)], dtype=np.int64)
        records, row_at = pack_sparse(self._hashed(documents), values, offsets, self.n_extra)
        weights = np.array([document.weight for document in documents], dtype=np.float32)
        lines = np.array([line for line, _ in found], dtype=np.int32)
        ids = pack_ids([document.id for document in documents]) if self.options.id_column else None
        own = self._words(documents) if self.options.keep_words else None
        given = weights if self.options.weight_column else None
        return RecordBatch(records, row_at, lines, given, words, ids, own)

    def _words(self, documents: list[Document]) -> dict[int, tuple[str, int]]:
        """Return the most frequent word of each column, and how often it occurs; ties to the first in the alphabet."""
        words_of = _words_of(self.options.hashing)
        counts = Counter(itertools.chain.from_iterable(words_of(document.text) for document in documents))
        found: dict[int, tuple[str, int]] = {}
        # In alphabetical order, so that ties do not depend on the order of documents.
        words = sorted(counts)
        columns = hash_columns(word_hashes(words), self.options.hashing.n_features).tolist()
        for word, column in zip(words, columns, strict=True):
            count = counts[word]
            if count > found.get(column, ("", 0))[1]:
                found[column] = (word, count)
        return found

    def _hashed(self, documents: list[Document]) -> tuple[Ints, Ints, Array]:
        dtype = np.dtype(np.float64 if self.options.float64 else np.float32)
        return hashed_texts(self.options.hashing, [document.text for document in documents], dtype)


@lru_cache(maxsize=16)
def _words_of(hashing: Hashing) -> Callable[[str], list[str]]:
    """Return what gives the words of a text, or the runs of words or characters, that are hashed."""
    if hashing.has_runs:
        analyzer: Callable[[str], list[str]] = hashing.vectorizer().build_analyzer()
        return analyzer
    return lambda text: _WORD.findall(text.lower() if hashing.lowercase else text)


@dataclass(frozen=True)
class DocumentReader(Reader[ItemT, DocumentReadOptions], Generic[ItemT]):
    """Reads documents one after another; those that are staged are read again, since their places are not known."""

    # 0-based line (row) of each document, or why it cannot be read; the offset of the progress counts them
    documents: Callable[[ItemT, DocumentReadOptions], Iterator[Found]]

    def batches(self, item: ItemT, run: ReadRun[DocumentReadOptions]) -> Iterator[RecordBatch]:
        progress, packer = run.progress, DocumentPacker(run.options, run.n_extra)
        found: list[tuple[int, Document]] = []
        size = 0
        for line, document in itertools.islice(self.documents(item, run.options), progress.offset, None):
            progress.offset, progress.lines = progress.offset + 1, line + 1
            if isinstance(document, Refused):
                progress.skip(line, str(document))
                continue
            found.append((line, document))
            size += len(document.text)
            # By characters and by rows: many short documents have as many records.
            if size >= CHUNK_CHARACTERS or len(found) >= CHUNK_ROWS:
                yield packer.batch(found)
                found, size = [], 0
        if found:
            yield packer.batch(found)


def hashed_texts(hashing: Hashing, texts: Sequence[str], dtype: np.dtype[Any]) -> tuple[Ints, Ints, Array]:
    """Return the hashed features of documents: indptr, indices and values, sorted, without zeros."""
    # There are several times as many runs as words, of which scikit-learn holds none.
    if texts and hashing.has_runs:
        matrix = hashing.vectorizer().transform(texts)
        matrix.eliminate_zeros()  # counts of opposite signs
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(dtype)
    words_of, known = _words_of(hashing), dict[str, int]()
    places, sizes = list[int](), list[int]()
    for text in texts:
        own = words_of(text)
        places += [known.setdefault(word, len(known)) for word in own]
        sizes.append(len(own))
    hashes, at = word_hashes([*known]), np.array(places, np.int64)
    rows = np.repeat(np.arange(len(texts)), np.array(sizes, np.int64))
    # of each row and column one entry
    keys = rows * hashing.n_features + hash_columns(hashes, hashing.n_features)[at]
    entries, entry = np.unique(keys, return_inverse=True)
    signs = np.where(hashes < 0, -1.0, 1.0)[at] if hashing.alternate_sign else np.ones(len(at))
    values = np.ones(len(entries)) if hashing.binary else np.bincount(entry, signs, len(entries))
    used = values != 0.0  # counts of opposite signs
    rows, columns = np.divmod(entries[used], hashing.n_features)
    return np.searchsorted(rows, np.arange(len(texts) + 1)), columns, values[used].astype(dtype)


def hashed_values(values: Sequence[str], n_columns: int) -> Ints:
    """Return the column of each value, by the hash that words have."""
    # distinct values only, of which a column has fewer than rows
    own = [*dict.fromkeys(values)]
    column = dict(zip(own, (word_hashes(own).view(np.uint32) % n_columns).tolist(), strict=True))
    return np.fromiter(map(column.__getitem__, values), np.int64, len(values))


def document_of(record: dict[str, Any], options: DocumentReadOptions) -> Document:
    """Return the document of a record with named fields, or raise Refused."""
    text = _text_field(record, options.text_column)
    labels = _label_field(record, options) if options.labelled else []
    return Document(text, labels, _weight_field(record, options.weight_column), _id_field(record, options))


def _field(record: dict[str, Any], name: str, remedy: str = "") -> Any:
    if record.get(name) is None:
        raise Refused(f'field "{name}" is {"null" if name in record else "missing"}{remedy}')
    return record[name]


def _text_field(record: dict[str, Any], name: str) -> str:
    text = _field(record, name)
    if not isinstance(text, str):
        raise Refused(f'field "{name}" must be a string')
    # Hashing encodes to UTF-8, which a lone surrogate does not survive.
    if not is_encodable(text):
        raise Refused(f'field "{name}" has a lone surrogate, which is no character')
    return text


def _label_field(record: dict[str, Any], options: DocumentReadOptions) -> list[str]:
    name = options.label_column
    given = _field(record, name, f"; documents {UNLABELLED}")
    if isinstance(given, float) and math.isnan(given):  # as tables have what is missing
        raise Refused(f'field "{name}" is NaN; documents {UNLABELLED}')
    # A list without --multilabel is a mistake, and not a label.
    if options.multilabel != isinstance(given, list):
        said = "must be a list of labels" if options.multilabel else f"is a list; {SEVERAL_LABELS}"
        raise Refused(f'field "{name}" {said}')
    return checked_labels([_label_text(label, name) for label in (given if options.multilabel else [given])])


def _label_text(label: Any, name: str) -> str:
    if isinstance(label, str):
        return label
    if not isinstance(label, (int, float)) or not math.isfinite(label):
        raise Refused(f'field "{name}" must hold a word or a number')
    return json.dumps(label)  # as the number is written


def checked_labels(labels: list[str]) -> list[str]:
    """Return labels of a document, or raise Refused."""
    for label in labels:
        if fault := label_fault(label):
            raise Refused(fault)
    # Two spellings of one number are one label.
    if len(labels) > 1 and len({label_value(label) for label in labels}) < len(labels):
        raise Refused("a label is given twice")
    return labels


def _id_field(record: dict[str, Any], options: DocumentReadOptions) -> str:
    if not options.id_column:
        return ""
    found = _field(record, options.id_column)
    # Numbers as they are written in JSON.
    text = found if isinstance(found, str) else json.dumps(found)
    if not is_encodable(text):
        raise Refused(f'field "{options.id_column}" has a lone surrogate, which is no character')
    return text


def _weight_field(record: dict[str, Any], name: str) -> float:
    if not name:
        return 1.0
    weight = _field(record, name)
    # bool is a subclass of int
    sound = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    # float32 would make larger ones infinite.
    if not sound or not 0 <= weight <= _LARGEST_WEIGHT:
        raise Refused(f'field "{name}" must be a number that is finite and not negative')
    return float(weight)
