"""Documents between marks, in files that are read from their beginning: SMART, and the Open Directory's RDF.

SMART, the format of the token files of RCV1-v2: a line ``.I ID`` begins a document, lines behind ``.W`` have its words.
RDF of the Open Directory (DMOZ): of each ``ExternalPage`` its title and description are the document, its topic is the
label, its address the id. XML is read as a stream by expat; files with a document type, which alone could declare
entities, are refused, and nothing that they name is opened.
"""

import io
import re
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, cast
from xml.parsers import expat

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import document_records
from distls.workers.ingestion.formats.document_records import Document, DocumentReadOptions, Found, Refused
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, TextItem, damage_described, line_too_long
from distls.workers.ingestion.records.messages import ENCODED, LABELS_ELSEWHERE

_READ_BYTES = 2**20
_SMART = re.compile(rb"(\xef\xbb\xbf)?\s*\.I[ \t]+\S")
_RDF = re.compile(
    rb"(\xef\xbb\xbf)?\s*<\?xml[^>]*>.{0,4096}?<(\w+:)?RDF[\s>]|(\xef\xbb\xbf)?\s*<(\w+:)?RDF[\s>]", re.DOTALL
)
_ROOT = "Top/"  # of all topics of the directory


def marks_of(start: bytes) -> str:
    """Return the kind of marks with which a file begins: smart, rdf, or empty."""
    return "smart" if _SMART.match(start) else "rdf" if _RDF.match(start) else ""


# -- SMART -----------------------------------------------------------------------------------------------


def smart_documents(stream: IO[bytes], path: str) -> Iterator[Found]:
    """Yield the documents of a SMART file, with their ids."""
    # A document ends where the next begins.
    begun, row_id, words, size = -1, "", list[bytes](), 0
    line = 0
    while raw := stream.readline(MAX_LINE + 1):
        size += len(raw)
        if size > MAX_LINE:
            raise line_too_long(path, line + 1)
        raw = raw if line else raw.removeprefix(b"\xef\xbb\xbf")
        if raw[:2] == b".I" and raw[2:3].isspace():
            if begun >= 0:
                yield begun, _smart_document(row_id, words)
            begun, row_id, words, size = line, raw[2:].strip().decode("utf-8", "replace"), [], 0
        elif begun < 0 and raw.strip():
            raise BadInputError(f"{path}:{line + 1}: a document begins with a line .I ID")
        elif raw.strip() != b".W":
            words.append(raw)
        line += 1
    if begun >= 0:
        yield begun, _smart_document(row_id, words)


def _smart_document(row_id: str, words: list[bytes]) -> Document | Refused:
    if not row_id:
        return Refused("expected .I ID")
    try:
        return Document(b"".join(words).decode(), [], 1.0, row_id)
    except UnicodeDecodeError:
        return Refused(f'document "{row_id}" is not UTF-8; {ENCODED}')


# -- RDF -------------------------------------------------------------------------------------------------


class Element(NamedTuple):
    """A child of the root, with its own children: name, attributes, text."""

    line: int
    name: str
    attributes: dict[str, str]
    children: list[tuple[str, dict[str, str], str]]


class _Elements:
    """Collects the children of the root of an XML document as they end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ended: list[Element] = []
        self._depth = self._size = self._fed = 0
        self._text: list[str] = []
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._characters
        # entities are declared in a document type, and nowhere else
        parser.StartDoctypeDeclHandler = self._refuse

    def feed(self, content: bytes, last: bool = False) -> list[Element]:
        """Parse some more of the document; return the elements that have ended."""
        self._fed += len(content)
        try:
            self._parser.Parse(content, last)
        except expat.ExpatError as error:
            why = expat.errors.messages[error.code]
            # some dumps of the directory have bytes that are no UTF-8
            broken = error.code == expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]
            remedy = "iconv -c -f utf-8 -t utf-8 removes bytes that are no UTF-8" if broken else "is it complete?"
            said = f"not well-formed XML ({why}); {remedy}"
            raise BadInputError(f"{self.path}:{error.lineno}: {said}") from None
        # Bytes that no event has shown yet;
        # a tag or comment is held in memory until it ends
        self._check(self._fed - max(self._parser.CurrentByteIndex, 0))
        ended, self.ended = self.ended, []
        return ended

    def _refuse(self, *_declared: Any) -> None:
        where = f"{self.path}:{self._parser.CurrentLineNumber}"
        raise BadInputError(f"{where}: a document type, which may declare entities, is refused; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        # each level that is open takes memory too
        self._size += 64 * self._depth + sum(map(len, attributes.values()))
        self._check(self._size)
        if self._depth == 2:
            self._now = Element(self._parser.CurrentLineNumber - 1, name, attributes, [])
            self._size = 0
        elif self._depth == 3:
            self._child, self._text = (name, attributes), []

    def _characters(self, text: str) -> None:
        # Text of elements within a child is part of its own.
        if self._depth >= 3:
            self._text.append(text)
        self._size += len(text)
        self._check(self._size)

    def _end(self, _name: str) -> None:
        if self._depth == 3:
            self._now.children.append((*self._child, "".join(self._text)))
        elif self._depth == 2:
            self.ended.append(self._now)
        self._depth -= 1

    def _check(self, size: int) -> None:
        # an element is held in memory until it ends
        if size > MAX_LINE:
            why = f"an element of more than {MAX_LINE // 2**20} MiB"
            raise BadInputError(f"{self.path}:{self._parser.CurrentLineNumber}: {why}")


def rdf_elements(stream: IO[bytes], path: str) -> Iterator[Element]:
    """Yield the children of the root; raise BadInputError for what is no XML, or has a document type."""
    elements = _Elements(path)
    while content := stream.read(_READ_BYTES):
        yield from elements.feed(content)
    yield from elements.feed(b"", last=True)


def topic_path(topic: str) -> str:
    """Return the path of a topic below the root of the directory."""
    return topic.removeprefix(_ROOT).strip("/") if topic != _ROOT[:-1] else ""


def directory_pages(stream: IO[bytes], path: str) -> Iterator[Found]:
    """Yield the pages of the content of the Open Directory."""
    for element in rdf_elements(stream, path):
        if element.name == "ExternalPage":
            # Versions of the dump differ in the prefix of these names.
            texts = {name.rpartition(":")[2].lower(): text for name, _, text in element.children}
            words = f"{texts.get('title', '')}\n{texts.get('description', '')}"
            labels = [label] if (label := topic_path(texts.get("topic", "").strip())) else []
            yield element.line, Document(words, labels, 1.0, element.attributes.get("about", ""))


_READERS = {"smart": smart_documents, "rdf": directory_pages}


def _documents(item: TextItem, options: DocumentReadOptions) -> Iterator[Found]:
    with damage_described(item.file), item.file.open() as stream:
        # buffered: a plain file reads whole blocks, not lines
        buffered = io.BufferedReader(cast(io.RawIOBase, stream))
        for line, document in _READERS[options.marks](buffered, item.file.path):
            yield line, _checked(document, options)


def _checked(document: Document | Refused, options: DocumentReadOptions) -> Document | Refused:
    if isinstance(document, Refused):
        return document
    try:
        labels = document_records.checked_labels(document.labels) if options.labelled else []
    except Refused as refused:
        return refused
    if options.labelled and not labels and not options.multilabel:
        return Refused(f"the document has no label; {LABELS_ELSEWHERE}")
    return document._replace(labels=labels)


MARKED_READER = document_records.DocumentReader(_documents)
