"""Raw text to batches of row records: one document per line, hashed into columns.

A line is ``LABEL<TAB>DOCUMENT``, ``__label__NAME DOCUMENT`` as of fastText, a document alone, or a JSON object with
named fields.
"""

import json
import re
from collections.abc import Iterator

import numpy as np

from distls.workers.ingestion.formats.document_records import (
    Document,
    DocumentPacker,
    DocumentReadOptions,
    Refused,
    check_fields,
    checked_labels,
    document_of,
)
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.records.messages import ENCODED, UNLABELLED, quoted
from distls.workers.ingestion.records.reader import TextReader
from distls.workers.ingestion.records.record_batch import ReadRun, RecordBatch

_CHUNK_BYTES = 8 * 2**20  # of text hashed at a time: its tokens take several times its size
# as fastText: every word with this prefix is a label, wherever it is
_PREFIXED_LABEL = re.compile(r"(?<!\S)__label__(\S+)\s?")


class DocumentParser:
    """Parses the blocks of one item."""

    def __init__(self, run: ReadRun[DocumentReadOptions]) -> None:
        self.options = options = run.options
        self.progress = run.progress
        self._packer = DocumentPacker(options, run.n_extra)
        self._read = _read_plain
        if options.text_column or options.prefixed:
            self._read = _read_json if options.text_column else _read_prefixed

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        """Yield the block's rows; `progress` is up to date at each batch and at the end of the block."""
        # Hashing takes several times the memory of the text.
        for chunk in _line_chunks(block):
            found = list(self._documents(chunk))
            self.progress.offset += len(chunk)
            # The last line may lack its end.
            self.progress.lines += chunk.count(b"\n") + (not chunk.endswith(b"\n"))
            if found:
                yield self._packer.batch(found)

    def _documents(self, chunk: bytes) -> Iterator[tuple[int, Document]]:
        """Yield the documents of some lines, each with its line number."""
        # Numbered from the item's lines, as messages name them.
        for line, raw in enumerate(chunk.removesuffix(b"\n").split(b"\n"), self.progress.lines):
            try:
                document = self._read(raw, self.options)
            except Refused as refused:
                self.progress.skip(line, f"{quoted(raw)}: {refused}")
                continue
            if document is not None:
                yield line, document


def _line_chunks(block: TextBlock) -> Iterator[bytes]:
    """Cut a block into chunks of whole lines, of at most _CHUNK_BYTES unless a line is longer."""
    start = 0
    while start < block.size:
        stop = min(start + _CHUNK_BYTES, block.size)
        newlines = np.flatnonzero(block.text[start:stop] == ord("\n"))
        # no line ends in the chunk: extend it to the end of the line
        if stop < block.size and not len(newlines):
            # The text is followed by one more byte, a line end if there is one.
            stop += int(np.argmax(block.text[stop : block.size + 1] == ord("\n"))) + 1
        elif stop < block.size:
            # Behind the last whole line of the chunk.
            stop = start + int(newlines[-1]) + 1
        yield block.text[start : min(stop, block.size)].tobytes()
        start = stop


# -- one line --------------------------------------------------------------------------------------------


def _read_plain(raw: bytes, options: DocumentReadOptions) -> Document | None:
    text = _decoded(raw)
    if not options.labelled:
        return Document(text, [], 1.0)
    if not text.strip():
        return None
    label, tab, document = text.partition("\t")
    if not tab:
        # A document without a tab is most likely one without a label.
        raise Refused("expected LABEL<TAB>DOCUMENT; documents alone are for ingest --unlabelled, and predict")
    label = label.strip()
    # what stands for no value is an empty label, which is refused
    labels = ["" if label in options.missing else label]
    if options.multilabel:
        labels = label.split(",") if label.strip() else []
    return Document(document, checked_labels([label.strip() for label in labels]), 1.0)


def _read_prefixed(raw: bytes, options: DocumentReadOptions) -> Document | None:
    text = _decoded(raw)
    if options.labelled and not text.strip():
        return None
    # Labels are no words of the document.
    document = _PREFIXED_LABEL.sub("", text)
    if not options.labelled:
        return Document(document, [], 1.0)
    labels = _PREFIXED_LABEL.findall(text)
    if len(labels) != 1 and not options.multilabel:
        several = "several labels in a row are read with ingest --multilabel only"
        raise Refused(several if labels else f"expected __label__NAME; documents {UNLABELLED}")
    return Document(document, checked_labels(labels), 1.0)


def _decoded(raw: bytes) -> str:
    try:
        # A byte order mark may begin any file of a concatenation.
        return raw.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise Refused(f"byte {error.start + 1} of the line is not UTF-8; {ENCODED}") from None


def _read_json(raw: bytes, options: DocumentReadOptions) -> Document | None:
    text = _decoded(raw)
    if not text.strip():
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise Refused("expected a JSON object with named fields")
    check_fields(record, raw.removeprefix(BYTE_ORDER_MARK))
    return document_of(record, options)


DOCUMENT_READER = TextReader(DocumentParser)
