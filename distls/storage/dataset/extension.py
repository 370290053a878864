"""A dataset with the rows of another behind its own, which takes its name in one step.

Stored partitions are not copied: the new folder has hard links to the files of both. Only where the last partition of
the one and the first of the other are small they become one.
"""

import os
import shutil
from collections.abc import Sequence
from typing import Any

import msgspec

from distls.storage.dataset.dataset import Dataset, complete, with_counts
from distls.storage.dataset.exchangeability import Deviation, Exchangeability, label_deviation
from distls.storage.dataset.metadata import DatasetMeta, PartitionTable, digest_of
from distls.storage.dataset.partitions import PartitionRecord, partition_folder, write_partition
from distls.storage.dataset.row_origins import (
    OriginFacts,
    OriginRecord,
    joined_facts,
    joined_sources,
    origins_folder,
    write_origins,
)
from distls.storage.errors import MismatchError
from distls.storage.filesystem.atomic import atomic_directory
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import refuse_links
from distls.storage.rows import concatenate_partitions

_SHARED = ("layout", "dtype", "target", "n_features", "n_targets", "transforms_digest", "codecs")


def digest_of_rows(data: Dataset) -> str:
    """Return the sha256 of the checksums of all partitions: the same for the same rows, cut in the same way."""
    return digest_of({}, data.table.to_arrays())


def extend(known: Dataset, new: Dataset, partition_size: int, appended: Sequence[str]) -> None:
    """Replace the folder of `known` by one that has the rows of `new` too.

    Raises MismatchError if they are of different kinds; `known` is then as it was.
    """
    _check_same_kind(known, new)
    join = _Join(known, new, partition_size)
    with atomic_directory(known.path) as folder:
        # who may read the data set is not changed by more rows
        shutil.copymode(str(known.path), str(folder))
        if known.meta.features:
            _link(known.path / "features", folder / "features")
        records = join.write_rows(folder)
        complete(folder, join.meta(records), join.table(records), join.write_origins(folder), join.measured(), appended)


def _check_same_kind(known: Dataset, new: Dataset) -> None:
    if known.meta.weighted != new.meta.weighted:
        named = [str(known.path), "those to append"]
        has, lacks = named if known.meta.weighted else named[::-1]
        raise MismatchError(f"rows of {has} have sample weights, {lacks} have none")
    for name in _SHARED:
        mine, other = getattr(known.meta, name), getattr(new.meta, name)
        if mine != other:
            raise MismatchError(f"{known.path}: {name} of its rows is {mine}, of those to append {other}")
    ids = [data.origins is not None and data.origins.facts.ids for data in (known, new)]
    if ids[0] != ids[1]:
        raise MismatchError(f"{known.path}: only {'its rows' if ids[0] else 'those to append'} have ids")
    for data in (known, new):
        refuse_links(data.path)
    for index in range(len(new)):
        new.read(index)  # an ingest that was resumed after a power failure may have rows that were cut


class _Join:
    """The rows of two datasets as one: partitions `kept` of the first, perhaps one of both, the rest of the second."""

    def __init__(self, known: Dataset, new: Dataset, partition_size: int) -> None:
        self.both = (known, new)
        self.metas = (known.meta, new.meta)
        self.merged = int(known.decoded_bytes[-1] + new.decoded_bytes[0]) <= partition_size
        self.kept = len(known) - self.merged

    def _places(self) -> list[list[tuple[int, int]]]:
        """Return of what each partition consists: (0, i) is partition i of the first dataset, (1, i) of the second."""
        whole = [[(0, index)] for index in range(self.kept)]
        filled = [[(0, self.kept), (1, 0)]] if self.merged else []
        return [*whole, *filled, *([(1, index)] for index in range(self.merged, len(self.both[1])))]

    def write_rows(self, folder: Place) -> list[PartitionRecord]:
        """Link all partitions but the one of both, which is written; return its record."""
        records = []
        for index, parts in enumerate(self._places()):
            if len(parts) == 1:
                ((which, own),) = parts
                _link(partition_folder(self.both[which].path, own), partition_folder(folder, index))
            else:
                rows = concatenate_partitions([self.both[which].read(own) for which, own in parts])
                known, new = self.metas
                written = write_partition(folder, index, rows, known.n_features, len(new.classes), known.codecs)
                records.append(written)
        return records

    def table(self, records: list[PartitionRecord]) -> PartitionTable:
        """Return the partition table."""
        known, new = (data.table for data in self.both)
        return PartitionTable.joined(
            [known.part(0, self.kept), PartitionTable.of(records), new.part(self.merged, None)]
        )

    def meta(self, records: list[PartitionRecord]) -> DatasetMeta:
        """Return the metadata, with the counts of all rows."""
        known, new = self.metas
        files = [file for meta in self.metas for file in meta.source.get("files", ())]
        meta = msgspec.structs.replace(known, classes=new.classes, source={**known.source, "files": files})
        if len(records) == len(self._places()):
            return with_counts(meta, records)  # to the last bit as if all had been ingested together
        n_rows = known.n_rows + new.n_rows
        # Sums of sums: in the last bit they depend on where the partitions are cut.
        norm = known.mean_square_norm * known.n_rows + new.mean_square_norm * new.n_rows
        return msgspec.structs.replace(
            meta,
            n_rows=n_rows,
            nnz=known.nnz + new.nnz,
            label_counts=_sums(known.label_counts, new.label_counts),
            label_weights=_sums(known.label_weights, new.label_weights),
            weight_sum=known.weight_sum + new.weight_sum,
            mean_square_norm=norm / max(n_rows, 1),
        )

    def measured(self) -> Exchangeability | None:
        """Return the largest deviations within both datasets, and that between their classes."""
        found = [data.exchangeability for data in self.both if data.exchangeability is not None]
        labels = [each.labels for each in found if each.labels is not None]
        features = [each.features for each in found if each.features is not None]
        known, new = (meta.label_counts for meta in self.metas)
        counts = [[*known, *[0] * (len(new) - len(known))], new]
        between = label_deviation(counts, [meta.n_rows for meta in self.metas])
        if between is not None and self.metas[0].target == "class":
            labels.append(Deviation(between.times_chance, self.kept))
        if not labels and not features:
            return None
        return Exchangeability(_largest(labels), _largest(features))

    def write_origins(self, folder: Place) -> tuple[OriginFacts, list[OriginRecord]] | None:
        """Write from where each row comes; None where that is not known of both."""
        known, new = (data.origins for data in self.both)
        if known is None or new is None:
            return None
        facts, opened = joined_facts(known.facts, new.facts), (known, new)
        # arrays in memory have no names, and are one file all the same
        first = (0, max(len(known.facts.files), 1))
        # the first dataset names the same files by the same numbers, once it has several
        same = len(known.facts.files) > 1 and facts.dtype == known.facts.dtype
        records = []
        for index, parts in enumerate(self._places()):
            if same and parts == [(0, index)]:
                _link(origins_folder(known.path, index), origins_folder(folder, index))
                records.append(known.record(index))
                continue
            rows = [(opened[which].read(own), first[which]) for which, own in parts]
            records.append(write_origins(folder, index, joined_sources(rows, facts)))
        return facts, records


def _largest(deviations: Sequence[Deviation]) -> Deviation | None:
    return max(deviations, key=lambda each: each.times_chance, default=None)


def _sums(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Add numbers of classes, of which the second has more."""
    # classes that are new come behind those that were known
    padded = [*one, *[0] * (len(other) - len(one))]
    return [a + b for a, b in zip(padded, other, strict=True)]


# Hard links cost no room, and the old folder can go without them; a symbolic link would need it.
def _link(source: Place, target: Place) -> None:
    """Give the files of a folder a second name, or copy them where a file system has no hard links."""
    shutil.copytree(str(source), str(target), copy_function=_link_file)


def _link_file(source: str, target: str) -> None:
    # some shares and most removable disks have none
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
