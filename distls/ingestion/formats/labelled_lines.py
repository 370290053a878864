"""Recognise lines of ``LABEL<TAB>DOCUMENT``, which resemble a table of two columns."""

from __future__ import annotations

import re

__all__ = ["looks_like_labelled_lines"]

_TABLE_NAMES = (".csv", ".tsv")
_SAMPLED = 200
_LABEL = re.compile(r"[^\s|:]{1,100}")  # one word; bars are Vowpal Wabbit's, colons svmlight's
_WORD = re.compile(r"[^\W\d_]{2,}")


def looks_like_labelled_lines(name: str, start: bytes) -> bool:
    """Return whether each line of a file is a label, a tab and several words.

    A file named as a table is one. The first line must have several words too, which no name of a column has.
    """
    if name.endswith(_TABLE_NAMES):
        return False
    text = start.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lines = [line for line in text.split("\n")[:_SAMPLED] if line.strip()]
    if len(start) >= 2**16 and len(lines) > 1:
        lines.pop()  # possibly incomplete
    parts = [line.partition("\t") for line in lines]
    if not parts or not all(tab and _LABEL.fullmatch(label.strip()) for label, tab, _ in parts):
        return False
    documents = [document for _, _, document in parts]
    counts = [len(_WORD.findall(document)) for document in documents]
    if any("\t" in document for document in documents) or counts[0] < 2:
        return False
    return 2 * sum(count > 2 for count in counts) >= len(counts)
