"""One ingest from plan to published dataset: the driver of the stages that run on workers.

A source is cut into items; each becomes staged chunks of rows dealt to random buckets (stage 1); what only the
whole input shows is decided here (stage 2); runs of buckets become partitions (stage 3); the metadata comes
last. Staged files and partitions are whole or absent: the same call again goes on where one was killed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.base import Executor
from distls.execution.serial import SerialExecutor
from distls.ingestion.options import IngestOptions
from distls.ingestion.plan import SourcePlan, check_same_plan, plan_document
from distls.ingestion.schema import Schema, Survey, allot_split, decide_schema, partition_items
from distls.storage.dataset import STAGING, Dataset, is_dataset, open_dataset, publish
from distls.storage.errors import BadInputError, MismatchError, ParameterError, StorageError
from distls.storage.format import DatasetMeta
from distls.storage.staging import StagingArea
from distls.workers.assembly import AssemblySpec, PartitionItem, assemble, column_counts, record_of
from distls.workers.buffers import release_buffers
from distls.workers.ingest import RecordLayout, StageSpec, stage_item
from distls.workers.svmlight import TextOptions
from distls.workers.transforms import idf_weights, needs_counts, transforms_digest

__all__ = ["IngestReport", "IngestRun", "Progress"]

Progress = Callable[[int, int, str], None]

_COUNTED_TOGETHER = 8


@dataclass(frozen=True)
class IngestReport:
    """What an ingest wrote.

    Attributes
    ----------
    paths : tuple of Path
        DATASET, then DATASET-NAME for each split.
    rows, nnz, bytes : int
        Over all of them; `bytes` as stored.
    skipped : int
        Refused lines (rows, for arrays) that were left out.
    skipped_lines : tuple of str
        The first few of them, ``FILE:LINE: "text": rule``.
    notices : tuple of str
        What the user should know, one line each.
    """

    paths: tuple[Path, ...]
    rows: int
    nnz: int
    bytes: int
    skipped: int
    skipped_lines: tuple[str, ...]
    notices: tuple[str, ...]


class IngestRun:
    """One ingest: its plan and the few things that every stage needs."""

    def __init__(
        self, root: Path, options: IngestOptions, plan: SourcePlan, executor: Executor, progress: Progress
    ) -> None:
        self.root = root.absolute()
        self.options = options
        self.plan = plan
        self.executor = executor
        self.progress = progress
        self.staging = StagingArea(self.root)
        self.like: Dataset | None = open_dataset(options.like) if options.like else None
        self.roots = (
            self.root,
            *(self.root.with_name(f"{self.root.name}-{name}") for name, _ in options.split),
        )
        self.n_buckets = plan.n_buckets(options)
        self.layout = RecordLayout(plan.is_dense, options.float64, plan.weighted, bool(options.split))

    def result(self) -> IngestReport:
        """Do the work, or what is left of it."""
        with self.staging.guard():
            self._begin()
            try:
                survey = self._stage()
                schema = decide_schema(survey, self.options, self.like)
                return self._finish(survey, schema)
            except (BadInputError, MismatchError, ParameterError):
                # the same call would fail again, and a corrected file could not be resumed with
                self._remove()
                raise

    @property
    def recipe(self) -> tuple[dict[str, Any], ...]:
        """Transforms to apply, in order."""
        return tuple(self.like.meta.transforms) if self.like is not None else self.options.transform

    # -- before ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Claim the output folders, or find the unfinished ingest to go on with."""
        document = plan_document(
            self.plan, self.options, None if self.like is None else self.like.fingerprint
        )
        document = json.loads(json.dumps(document))
        earlier = self.staging.read_document("plan")
        if earlier is not None:
            check_same_plan(self.root, earlier, document)
            return
        for root in self.roots:
            _check_free(root)
        self.staging.create()
        for root in self.roots[1:]:
            # marks it as unfinished until it is published
            (root / STAGING).mkdir(parents=True, exist_ok=True)
        self.staging.write_document("plan", document)

    def _remove(self) -> None:
        for root in self.roots:
            for name in (STAGING, "rows"):
                shutil.rmtree(root / name, ignore_errors=True)
            with contextlib.suppress(OSError):
                root.rmdir()

    # -- stage 1 -----------------------------------------------------------------------------------------

    def _stage(self) -> Survey:
        options = self.options
        spec = StageSpec(
            staging=self.staging,
            layout=self.layout,
            text=TextOptions(
                labelled=self.plan.labelled,
                multilabel=options.multilabel,
                one_based=options.zero_based == "no",
                float64=options.float64,
                skip_errors=options.on_error == "skip",
            ),
            n_buckets=self.n_buckets,
            shuffle=options.shuffle,
            seed=options.seed,
            block_bytes=self.plan.block_bytes,
            n_features=self.plan.headers[0].n_features if self.plan.headers else 0,
            keep_fractions=options.target == "class",
            find_minimum=any(step["name"] == "log1p" for step in self.recipe),
        )
        # arrays in memory stay in this process; what they become travels as files
        executor = SerialExecutor() if self.plan.format == "memory" else self.executor
        results = executor.map(stage_item, self.plan.items, shared=spec)
        summaries = list(self._watched("parse", results, self.plan.item_bytes))
        executor.each_worker(release_buffers, None)
        return Survey(self.plan, summaries)

    def _watched(self, stage: str, results: Iterator[Any], sizes: Sequence[int]) -> Iterator[Any]:
        """Pass results on, reporting the bytes they stand for."""
        done, total = 0, sum(sizes)
        self.progress(done, total, stage)
        for size, result in zip(sizes, results, strict=True):
            done += size
            self.progress(done, total, stage)
            yield result

    # -- stages 2 and 3 ----------------------------------------------------------------------------------

    def _finish(self, survey: Survey, schema: Schema) -> IngestReport:
        if schema.target in ("class", "multilabel"):
            self.staging.write_array("classes", schema.class_values)
        if self.options.split:
            self.staging.write_array("allotment", allot_split(survey, schema, self.options))
        tables = (self.staging.read_table(chunk["name"]) for chunk in survey.chunks)
        parts = partition_items(tables, self.plan, schema, self.options)
        spec = self._assembly_spec(survey, schema)
        features = self._fit(spec, parts[0])
        spec = replace(spec, fitted=tuple(features))
        results = self._assemble(spec, [item for part in parts for item in part], survey)
        self.executor.each_worker(release_buffers, None)
        datasets = self._publish(schema, features, parts, results)
        return self._report(datasets, survey, schema)

    def _assembly_spec(self, survey: Survey, schema: Schema) -> AssemblySpec:
        options = self.options
        return AssemblySpec(
            staging=self.staging,
            roots=self.roots,
            chunks=tuple(chunk["name"] for chunk in survey.chunks),
            n_buckets=self.n_buckets,
            layout=self.layout,
            target=schema.target,
            n_targets=schema.n_targets,
            n_features=schema.n_features,
            base=schema.base,
            seed=options.seed,
            shuffle=options.shuffle,
            transforms=self.recipe,
            fitted=(),
            codecs=None,
            compress=options.compress,
        )

    def _fit(self, spec: AssemblySpec, training: list[PartitionItem]) -> dict[str, NDArray[Any]]:
        """Fit the transforms on the training rows, or take them over; store them where the workers find them."""
        if self.like is not None:
            features = self.like.features() if needs_counts(self.recipe) else {}
            for name, array in features.items():
                self.staging.write_array(name, array)
            return features
        if not needs_counts(self.recipe):
            return {}
        if not self.staging.has_array("idf"):
            self.staging.write_array("idf", self._idf(spec, training))
        return {"idf": np.array(self.staging.read_array("idf"))}

    def _idf(self, spec: AssemblySpec, training: list[PartitionItem]) -> NDArray[np.float64]:
        groups = [training[i : i + _COUNTED_TOGETHER] for i in range(0, len(training), _COUNTED_TOGETHER)]
        counts, n_rows = np.zeros(spec.n_features, dtype=np.int64), 0
        results = self.executor.map(column_counts, groups, shared=spec)
        for group_counts, group_rows in self._watched("fit", results, [len(group) for group in groups]):
            counts += group_counts
            n_rows += group_rows
        return idf_weights(counts, n_rows)

    def _assemble(
        self, spec: AssemblySpec, items: list[PartitionItem], survey: Survey
    ) -> list[dict[str, Any]]:
        total = sum(chunk["bytes"] for chunk in survey.chunks)
        sizes = [total // len(items)] * len(items)
        return list(self._watched("write", self._assembled(spec, items), sizes))

    def _assembled(self, spec: AssemblySpec, items: list[PartitionItem]) -> Iterator[dict[str, Any]]:
        """Yield the results of all items; the first one chooses the codecs of the others."""
        first = next(iter(self.executor.map(assemble, items[:1], shared=spec)))
        yield first
        yield from self.executor.map(assemble, items[1:], shared=replace(spec, codecs=first["codecs"]))

    def _publish(
        self,
        schema: Schema,
        features: dict[str, NDArray[Any]],
        parts: list[list[PartitionItem]],
        results: list[dict[str, Any]],
    ) -> list[Dataset]:
        """Write the metadata of the splits and then, as the last act, of the dataset itself."""
        meta = self._meta(schema, features, results[0]["codecs"])
        remaining = iter(results)
        records = [[record_of(next(remaining)) for _ in part] for part in parts]
        pairs = list(zip(self.roots, records, strict=True))
        published = [publish(root, meta, part, features) for root, part in reversed(pairs)]
        return published[::-1]

    def _meta(self, schema: Schema, features: dict[str, NDArray[Any]], codecs: dict[str, str]) -> DatasetMeta:
        return DatasetMeta(
            n_rows=0,
            n_features=schema.n_features,
            nnz=0,
            layout="dense" if self.plan.is_dense else "csr",
            dtype=self.options.dtype,
            target=schema.target,
            classes=list(schema.classes),
            n_targets=schema.n_targets,
            weighted=self.plan.weighted,
            transforms=[dict(step) for step in self.recipe],
            transforms_digest=transforms_digest(self.recipe, features),
            zero_based=schema.zero_based,
            shuffle_seed=self.options.seed if self.options.shuffle else None,
            source={"format": self.plan.format, "files": [Path(file.path).name for file in self.plan.files]},
            codecs=codecs,
        )

    def _report(self, datasets: list[Dataset], survey: Survey, schema: Schema) -> IngestReport:
        skipped, lines = survey.skipped()
        notices = list(schema.notices)
        if skipped:
            notices.append(f"{skipped} line{'s' * (skipped > 1)} skipped; the first: {lines[0]}")
        return IngestReport(
            paths=self.roots,
            rows=sum(data.meta.n_rows for data in datasets),
            nnz=sum(data.meta.nnz for data in datasets),
            bytes=sum(int(data.stored_bytes.sum()) for data in datasets),
            skipped=skipped,
            skipped_lines=tuple(lines),
            notices=tuple(notices),
        )


def _check_free(root: Path) -> None:
    """Refuse to write into anything but a new or empty folder."""
    if is_dataset(root):
        # killed between its last two acts: whole, with some staged files left
        shutil.rmtree(root / STAGING, ignore_errors=True)
        raise StorageError(f"{root}: exists already; remove it or choose another name")
    if root.exists() and (not root.is_dir() or any(entry.name != STAGING for entry in root.iterdir())):
        raise StorageError(
            f"{root}: exists and is not an unfinished ingest; remove it or choose another name"
        )
