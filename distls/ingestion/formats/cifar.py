"""Format of CIFAR's binary batches; an item is a file."""

from __future__ import annotations

from collections.abc import Sequence

from distls.ingestion.formats.arrays import ARRAY_REFUSES
from distls.ingestion.request.format import Format, SourceStart
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, file_identity, shared_options
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.public_sets.cifar import CIFAR_READER, PIXELS, cifar_item, labels_of_picture
from distls.workers.ingestion.records.record_batch import ReadOptions
from distls.workers.ingestion.records.row_block import ArrayHeader


class CifarFormat(Format[FormatOptions]):
    """The binary version of CIFAR-10 and CIFAR-100; plain or packed."""

    name = "cifar"
    options = FormatOptions
    refuses = ARRAY_REFUSES

    def recognises(self, start: SourceStart) -> bool:
        """Return whether it has the name of such a file, and classes where its labels are."""
        # the bytes alone could be anything
        return start.name.endswith(".bin") and labels_of_picture(start.content) > 0

    def plan(
        self, files: Sequence[SourceFile], read: FormatOptions, options: IngestOptions, like: Like | None
    ) -> SourcePlan:
        """Count the pictures of each file."""
        items = tuple(cifar_item(number, file) for number, file in enumerate(files))
        sizes = tuple(item.stop * PIXELS for item in items)
        return SourcePlan(
            self.name,
            CIFAR_READER,
            tuple(files),
            items,
            sizes,
            ReadOptions(**shared_options(options)),
            tuple(ArrayHeader(item.stop, PIXELS, False, labelled=True) for item in items),
            labelled=not options.unlabelled,
            # bytes become floats
            estimate=(8.0 if options.float64 else 4.0) * sum(sizes),
            identity=[file_identity(file) for file in files],
        )
