"""Ids of rows that are lines of text, cut out of the lines once they are parsed."""

import csv
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.row_origins import RowIds, pack_ids
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, TextBlock
from distls.workers.ingestion.records.messages import ENCODED, quoted

# The ids of some lines, in order.
LineIds = Callable[[Iterator[str]], Iterator[str]]


class BlockLines:
    """The lines of a block by their numbers in the item, of which the first is `first_line`."""

    def __init__(self, block: TextBlock, first_line: int) -> None:
        self.block = block
        self.first_line = first_line
        newlines = np.flatnonzero(block.text[: block.size] == ord("\n"))
        # The last line need not end.
        self.ends = np.append(newlines, block.size)

    def ids(self, row_line: NDArray[np.int32], ids_of: LineIds, locate: Callable[[int], str]) -> RowIds:
        """Return the ids of rows; raise BadInputError for one that is not UTF-8."""
        return pack_ids(list(ids_of(self._texts(row_line.tolist(), locate))))

    def _texts(self, lines: Sequence[int], locate: Callable[[int], str]) -> Iterator[str]:
        for line in lines:
            place = line - self.first_line
            start = int(self.ends[place - 1]) + 1 if place else 0
            # Cut out of the block's bytes, as the parser keeps no text.
            raw = self.block.text[start : int(self.ends[place])].tobytes()
            try:
                yield raw.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                raise BadInputError(
                    f"{locate(line)}: {quoted(raw)}: a line with an id must be UTF-8 text; {ENCODED}"
                ) from None


def fields_of(separator: str, column: int) -> LineIds:
    """Return the reader of ids in a column of separated text."""

    def ids(lines: Iterator[str]) -> Iterator[str]:
        csv.field_size_limit(MAX_LINE)  # 128 KiB by default
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=separator != " ")
        for row in rows:
            yield row[column].strip()

    return ids


def tag_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield the tags of Vowpal Wabbit's lines: the word that touches the first bar, or begins with an apostrophe."""
    for line in lines:
        head = line.partition("|")[0]
        word = head.split()[-1] if head.strip() else ""
        # A word that touches the bar is a tag, one before a space a label or weight.
        tagged = word.startswith("'") or (word and not head[-1].isspace())
        yield word.removeprefix("'") if tagged else ""


def comment_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield the comments of svmlight lines, what comes after ``#``."""
    for line in lines:
        yield line.partition("#")[2].strip()


def first_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield the first words of lines, of svmlight lines what is in the place of the label."""
    for line in lines:
        yield line.split(maxsplit=1)[0]
