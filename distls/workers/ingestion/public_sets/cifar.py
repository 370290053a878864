"""The binary batches of CIFAR-10 and CIFAR-100: of each picture its labels and its pixels, a byte each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.arrays import row_ranges
from distls.workers.ingestion.parsing.text_blocks import SourceFile, damage_described, discard
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import Progress, ReadOptions
from distls.workers.ingestion.records.row_block import FileRows, RowBlock

PIXELS = 3 * 32 * 32  # of a picture: red, green and blue, each line by line
# The classes of each label before the pixels: CIFAR-10 has one, CIFAR-100 a group of classes before the class.
_KINDS = ((10,), (20, 100))


@dataclass(frozen=True)
class CifarItem(FileRows):
    """The pictures of a file."""

    number: int
    file: SourceFile
    n_labels: int
    stop: int
    start: int = 0


def labels_of_picture(content: bytes) -> int:
    """Return the labels of each picture in a file of CIFAR that begins so, 0 if it is none."""
    for classes in _KINDS:
        # Pixels take all values: where labels should be, those of a file of another kind are soon too large.
        columns = [content[place :: len(classes) + PIXELS] for place in range(len(classes))]
        if all(column and max(column) < n for column, n in zip(columns, classes, strict=True)):
            return len(classes)
    return 0


def cifar_item(number: int, file: SourceFile) -> CifarItem:
    """Return the pictures of a file; raise BadInputError if it has none, or a part of one."""
    with damage_described(file), file.open() as stream:
        start = stream.read(2**16)
        # Only reading tells the length of a packed file.
        size = len(start) + sum(map(len, iter(lambda: stream.read(2**20), b"")))
    n_labels = labels_of_picture(start)
    n_rows, rest = divmod(size, n_labels + PIXELS)
    if not n_labels or rest:
        raise BadInputError(
            f"{file.path}: its {size:,} bytes are no pictures of CIFAR, {PIXELS:,} bytes with their labels; "
            "is it complete, and of the binary version?"
        )
    return CifarItem(number, file, n_labels, n_rows)


def _blocks(
    item: CifarItem, options: ReadOptions, progress: Progress, block_bytes: int
) -> Iterator[RowBlock]:
    width = item.n_labels + PIXELS
    with damage_described(item.file), item.file.open() as stream:
        # A packed stream cannot seek, so what was staged is read once more.
        discard(stream, progress.offset * width)
        for first, stop in row_ranges(progress.offset, item.stop, PIXELS, block_bytes):
            content = bytearray()
            # A plain file is opened without a buffer, and may return less than was asked for.
            while len(content) < (stop - first) * width and (
                more := stream.read((stop - first) * width - len(content))
            ):
                content += more
            if len(content) < (stop - first) * width:
                raise BadInputError(f"{item.file.path}: cut short while it was being ingested")
            pictures = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
            # The last label is the class.
            y = pictures[:, item.n_labels - 1 : item.n_labels].astype(np.int64) if options.labelled else None
            yield RowBlock(first, pictures[:, item.n_labels :], None, y)


CIFAR_READER = BlockReader(_blocks)
