"""The binary batches of CIFAR-10 and CIFAR-100: of each picture its labels and its pixels, a byte each."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats import arrays
from distls.workers.ingestion.parsing.text_blocks import SourceFile, damage_described
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import ArrayHeader, Progress, ReadOptions, RowBlock

_PIXELS = 3 * 32 * 32  # of a picture: red, green and blue, each line by line
# The classes of each label before the pixels: CIFAR-10 has one, CIFAR-100 a group of classes before the class.
_KINDS = ((10,), (20, 100))


def labels_of_picture(content: bytes) -> int:
    """Return the labels of each picture in a file of CIFAR that begins so, 0 if it is none."""
    for classes in _KINDS:
        # Pixels take all values: where labels should be, those of a file of another kind are soon too large.
        columns = [content[place :: len(classes) + _PIXELS] for place in range(len(classes))]
        if all(column and max(column) < n for column, n in zip(columns, classes, strict=True)):
            return len(classes)
    return 0


def cifar_header(file: SourceFile) -> ArrayHeader:
    """Return the number of pictures in a file; raise BadInputError if it has none, or a part of one."""
    with damage_described(file), arrays.open_array(file) as stream:
        start = stream.read(2**16)
        # Only reading tells the length of a packed file.
        size = len(start) + sum(map(len, iter(lambda: stream.read(2**20), b"")))
    n_labels = labels_of_picture(start)
    n_rows, rest = divmod(size, n_labels + _PIXELS)
    if not n_labels or rest:
        raise BadInputError(
            f"{file.path}: its {size:,} bytes are no pictures of CIFAR, {_PIXELS:,} bytes with their labels; "
            "is it complete, and of the binary version?"
        )
    return ArrayHeader(n_rows, _PIXELS, False, labelled=True)


def _blocks(item: arrays.ArrayItem, _: ReadOptions, progress: Progress, n_bytes: int) -> Iterator[RowBlock]:
    given = arrays.item_labels(item)
    with damage_described(item.file), arrays.open_array(item.file) as stream:
        # The start tells again what the plan has found: items hold paths alone.
        n = labels_of_picture(stream.read(2**16))
        stream.seek(0)
        shape = item.stop, n + _PIXELS
        for block in arrays.stream_blocks(stream, shape, np.dtype(np.uint8), None, progress.offset, n_bytes):
            pictures, first = np.asarray(block.values), block.first_row
            # The last label is the class.
            own = pictures[:, n - 1 : n].astype(np.int64)
            y = own if given is None else arrays.as_targets(given, first, first + len(own))
            yield replace(block, values=pictures[:, n:], labels=y)


CIFAR_READER = BlockReader(_blocks)
