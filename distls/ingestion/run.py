"""One ingest from plan to published dataset: the driver of the stages that run on workers.

A source is cut into items; each becomes staged chunks of rows dealt to random buckets (stage 1). The schema, which
needs all of the input, is decided here (stage 2). Runs of buckets become partitions (stage 3); the metadata is
written last. Staged files and partitions are whole or absent, so that the same call resumes a killed ingest.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.ingestion import dataset_facts, transform_fit
from distls.ingestion.dataset_facts import IngestReport
from distls.ingestion.formats.csv import with_line_breaks
from distls.ingestion.imputation_fit import stand_in_notice
from distls.ingestion.label_rules import counted_rows, dropped_rows, rows_record, store_rules
from distls.ingestion.partition_layout import allot_split, chunk_starts, origin_facts, partition_items
from distls.ingestion.plan import check_free, check_no_files, check_same_plan, plan_document
from distls.ingestion.request import source_plan
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.schema import Schema, Survey, asks_for_numbers, decide_schema
from distls.ingestion.survey import surveyed_options
from distls.ingestion.transform_fit import FittedTransforms
from distls.storage.dataset.dataset import STAGING, Dataset, is_dataset, publish
from distls.storage.dataset.feature_names import pack_names
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import PartitionRecord
from distls.storage.dataset.row_origins import ORIGINS, OriginRecord
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.storage.filesystem.atomic import remove_tree
from distls.storage.filesystem.locks import DATASET_LOCK, locked
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import refuse_links
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.assemble_task import AssemblySpec, PartitionItem, assemble
from distls.workers.ingestion.parsing.array_types import Array
from distls.workers.ingestion.parsing.rounding_kernels import EqualValues
from distls.workers.ingestion.records.labels import class_values
from distls.workers.ingestion.records.record_batch import RecordLayout
from distls.workers.ingestion.row_rules import RowRules
from distls.workers.ingestion.stage_task import StageSpec, stage_item
from distls.workers.ingestion.survey_task import SurveySpec, survey_item
from distls.workers.ingestion.transforms import AUTO, centres, has_step, needs_digits
from distls.workers.runtime.buffers import release_buffers

Progress = Callable[[int, int, str], None]


@dataclass
class IngestRun:
    """One ingest: its plan and the state that all stages share."""

    root: Place
    options: IngestOptions
    read: FormatOptions
    plan: SourcePlan
    like: Like | None
    executor: Executor
    progress: Progress

    def __post_init__(self) -> None:
        root = self.root = self.root.absolute()
        # arrays in memory are not sent to workers, who read what was staged of them
        self.reading = SerialExecutor() if self.plan.in_process else self.executor
        self.staging = StagingArea(root)
        self.rules: RowRules | None = None  # until their tables are stored
        self.roots = (root, *(root.with_name(f"{root.name}-{name}") for name, _ in self.options.split))

    def result(self) -> IngestReport:
        """Run the ingest, or the rest of an unfinished one."""
        check_no_files(self.roots)
        with self.staging.guard(), self._write_lock():
            self._claim_outputs()
            try:
                self._survey_columns()
                # Before rows are staged, since workers look them up.
                self.rules = store_rules(self.plan, self.read, self.options, self.like, self.staging)
                survey = self._stage()
                if names := dataset_facts.column_names(survey, self.staging):
                    self.plan = replace(self.plan, feature_names=names)
                schema = decide_schema(survey, self.options, self.like)
                if self.like is None:
                    self.options, schema = transform_fit.completed_transforms(self.options, survey, schema)
                rounded = {} if self.like is not None else survey.rounded()
                return self._finish(self._with_digits(survey) if rounded else survey, schema, rounded)
            except (BadInputError, MismatchError, ParameterError):
                # not resumable: the same call would fail again, and a corrected file is another source
                self._remove_outputs()
                raise

    @property
    def transforms(self) -> tuple[dict[str, Any], ...]:
        """Transforms to apply, in order."""
        return tuple(self.like.meta.transforms) if self.like is not None else self.options.transform

    @contextlib.contextmanager
    def _write_lock(self) -> Iterator[None]:
        # whole but for what a killed process left staged, it is not free either
        if self.staging.read_document("plan") is None or is_dataset(self.root):
            check_free(self.root)
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.root / DATASET_LOCK, str(self.root)):
                yield
        finally:
            with contextlib.suppress(OSError):
                self.root.rmdir()  # fails unless nothing was written

    def _claim_outputs(self) -> None:
        """Claim the output folders, or find the unfinished ingest to resume."""
        fingerprint = None if self.like is None else self.like.fingerprint
        earlier = self.staging.read_document("plan")
        if earlier is not None and earlier.get("line_breaks"):
            self.plan = with_line_breaks(self.plan) or self.plan
        document = plan_document(self.plan, self.read, self.options, fingerprint)
        # tuples become lists, as in the stored document that it is compared with
        document = json.loads(json.dumps(document))
        refuse_links(self.staging.folder, self.root)
        if earlier is not None:
            check_same_plan(self.root, earlier, document)
            return
        for root in self.roots:
            check_free(root)
        self.staging.remove()  # without a plan that is whole nobody knows of what
        self.staging.create()
        for root in self.roots[1:]:
            # marks the split as unfinished until it is published
            (root / STAGING).mkdir(parents=True, exist_ok=True)
        self.staging.write_document("plan", document)

    def _remove_outputs(self) -> None:
        for root in self.roots:
            for name in (STAGING, "rows", ORIGINS):
                remove_tree(root / name)
            with contextlib.suppress(OSError):
                root.rmdir()

    # -- stage 0 -----------------------------------------------------------------------------------------

    @property
    def layout(self) -> RecordLayout:
        """Layout of the row records."""
        plan = self.plan
        return RecordLayout(plan.is_dense, self._has_digits, plan.weighted, bool(self.options.split))

    def _survey_columns(self) -> None:
        """Complete the plan of a table by a survey of its columns."""
        plan, survey = self.plan, self.plan.survey
        if survey is None:
            return

        def run(name: str, limits: dict[int, int], checked: tuple[int, ...]) -> Iterator[dict[str, Any]]:
            spec = SurveySpec(self.staging, name, survey.read, limits, checked, source_plan.RANGE_BYTES)
            results = self.reading.map(survey_item, plan.items, shared=spec)
            return self._watched("survey", results, plan.item_bytes)

        def where(lines: Sequence[int], item: int, line: int) -> str:
            return Survey(plan, [{"lines": n, "chunks": []} for n in lines]).where(item, line)

        read, notices = surveyed_options(survey, self.options.n_features, run, where)
        # what the first rows show, all of them may show again
        notices = tuple(dict.fromkeys((*plan.notices, *notices)))
        facts = {"survey": None, "read": read, "notices": notices, **survey.facts(read)}
        facts["labelled"] = facts["labelled"] or plan.joined is not None
        self.plan = replace(plan, **facts)

    # -- stage 1 -----------------------------------------------------------------------------------------

    @property
    def _has_digits(self) -> bool:
        return self.options.float64 or needs_digits(self.transforms)

    def _with_digits(self, survey: Survey) -> Survey:
        """Stage rows that are to be centred once more, as float64."""
        if self.options.float64 or not self._centred:
            return survey
        steps = [dict(s, float64=True) if s["name"] == "standardize" else s for s in self.transforms]
        self.options = replace(self.options, transform=tuple(steps))
        return self._stage(len(self.plan.items))

    @property
    def _centred(self) -> bool:
        return centres(self.transforms) or (self.plan.is_dense and has_step(self.transforms, "standardize"))

    def _stage(self, first_item: int = 0) -> Survey:
        options, numbers = self.options, asks_for_numbers(self.options, self.like)
        spec = StageSpec(
            staging=self.staging,
            reader=self.plan.reader,
            layout=self.layout,
            read=replace(self.plan.read, float64=self._has_digits, continuous=numbers),
            first_item=first_item,
            n_buckets=self.plan.n_buckets(options),
            shuffle=options.shuffle,
            seed=options.seed,
            block_bytes=source_plan.RANGE_BYTES,
            n_features=self.plan.headers[0].n_features if self.plan.headers else 0,
            keep_fractions=options.target == "class" or options.multilabel,
            origins=options.row_numbers,
            rules=self.rules,
            find_values=has_step((*options.transform, *self.transforms), AUTO, "log1p"),
        )
        results = self.reading.map(stage_item, self.plan.items, shared=spec)
        summaries = list(self._watched("parse", results, self.plan.item_bytes))
        self.reading.each_worker(release_buffers, None)
        survey = Survey(self.plan, summaries)
        if self.rules is not None and self.rules.first_rows:
            counted = counted_rows(survey, self.rules, self.staging)
            if counted != self.rules.first_rows:
                # not all lines are rows: some labels were those of other rows
                self.rules = replace(self.rules, first_rows=counted)
                return self._stage(2 * len(self.plan.items))
        return survey

    def _watched(self, stage: str, results: Iterator[Any], sizes: Sequence[int]) -> Iterator[Any]:
        done, total = 0, sum(sizes)
        self.progress(done, total, stage)
        for size, result in zip(sizes, results, strict=True):
            done += size
            self.progress(done, total, stage)
            yield result

    # -- stages 2 and 3 ----------------------------------------------------------------------------------

    def _finish(self, survey: Survey, schema: Schema, rounded: Mapping[int, EqualValues]) -> IngestReport:
        if schema.target in ("class", "multilabel"):
            self.staging.write_array("classes", class_values(schema.classes))
        if self.options.split:
            allotment, notices = allot_split(survey, schema, self.options)
            self.staging.write_array("allotment", allotment)
            schema = replace(schema, notices=(*schema.notices, *notices))
        spec = self._assembly_spec(survey, schema)
        parts = self._parts(survey, schema, 1.0)
        fitted = self._fit(spec, parts[0])
        # min_count dropped values: fewer partitions of the requested size
        if fitted.share < 1:
            parts = self._parts(survey, schema, fitted.share)
        spec = replace(spec, transforms=fitted.steps, fitted=fitted.names)
        results = self._assemble(spec, [item for part in parts for item in part], survey)
        self.executor.each_worker(release_buffers, None)
        # some rows lose their features to min_count only
        dropped = dropped_rows([*survey.summaries, *results], self.read)
        rows = rows_record(self.plan, self.read, dropped)
        meta = dataset_facts.dataset_meta(self.plan, self.options, schema, fitted, results[0]["codecs"], rows)
        datasets = self._publish(spec, meta, fitted, parts, results)
        counts = [each for result in results for each in result["filled"]]
        missing = fitted.notice or stand_in_notice(getattr(self.plan.read, "features", ()), counts)
        notices = self._notices(datasets[0].meta, survey, schema, missing)
        if self.like is None:
            merged = [result["merged"] for result in results]
            notices += dataset_facts.digit_notices(datasets[0], merged, rounded, self.plan.feature_names, self._centred)
        return dataset_facts.ingest_report(datasets, survey, notices, dropped)

    def _parts(self, survey: Survey, schema: Schema, share: float) -> list[list[PartitionItem]]:
        tables = (self.staging.read_table(chunk) for chunk in survey.chunks)
        return partition_items(tables, self.plan, schema, self.options, share)

    def _assembly_spec(self, survey: Survey, schema: Schema) -> AssemblySpec:
        options = self.options
        return AssemblySpec(
            staging=self.staging,
            roots=self.roots,
            chunks=tuple(chunk["name"] for chunk in survey.chunks),
            n_buckets=self.plan.n_buckets(options),
            layout=self.layout,
            weighted=schema.weighted,
            target=schema.target,
            n_targets=schema.n_targets,
            n_columns=schema.n_columns,
            narrowed=schema.narrowed,
            base=schema.base,
            seed=options.seed,
            shuffle=options.shuffle,
            dtype=options.dtype,
            transforms=self.transforms,
            fitted=(),
            codecs=None,
            compress=options.compress,
            chunk_starts=chunk_starts(survey) if options.row_numbers else (),
            origins=origin_facts(survey, options) if options.row_numbers else None,
            drop_empty="empty" in self.read.drop,
            compared=self.like is None,
        )

    def _fit(self, spec: AssemblySpec, training: list[PartitionItem]) -> FittedTransforms:
        """Fit the transforms on the training rows, or take them over."""
        if self.like is not None:
            return transform_fit.take_over_transforms(spec, self.like)

        def mapped(function: Any, spec: AssemblySpec, groups: list[list[PartitionItem]]) -> Iterator[Any]:
            results = self.executor.map(function, groups, shared=spec)
            return self._watched("fit", results, [len(group) for group in groups])

        return transform_fit.fit_transforms(spec, training, mapped)

    def _assemble(self, spec: AssemblySpec, items: list[PartitionItem], survey: Survey) -> list[Any]:
        """Return the results of all items; the first partition determines the codecs of all."""
        # for the progress: partitions are of about equal size
        sizes = [sum(chunk["bytes"] for chunk in survey.chunks) // len(items)] * len(items)
        results = list(self._watched("write", self.executor.map(assemble, items, shared=spec), sizes))
        # the others ran at the same time and guessed; what a wrong guess has written is written again
        again = replace(spec, codecs=results[0]["codecs"])
        wrong = [n for n, result in enumerate(results) if result["codecs"] != again.codecs]
        if wrong:
            right = self.executor.map(assemble, [items[n] for n in wrong], shared=again)
            for n, result in zip(wrong, right, strict=True):
                results[n] = result
        return results

    def _publish(
        self,
        spec: AssemblySpec,
        meta: DatasetMeta,
        fitted: FittedTransforms,
        parts: list[list[PartitionItem]],
        results: list[dict[str, Any]],
    ) -> list[Dataset]:
        """Write the metadata of the splits, then of the dataset."""
        remaining = iter(results)
        written = [list(itertools.islice(remaining, len(part))) for part in parts]
        features = {**fitted.features, **self._names(fitted)}
        published = []
        # the dataset itself last: its staging area is what a resumed ingest starts from
        for root, part in reversed(list(zip(self.roots, written, strict=True))):
            own = [OriginRecord(**result["origins"]) for result in part if spec.origins is not None]
            origins = None if spec.origins is None else (spec.origins, own)
            records = [PartitionRecord(**result["record"]) for result in part]
            published.append(publish(root, meta, records, features, origins))
        return published[::-1]

    def _names(self, fitted: FittedTransforms) -> dict[str, Array]:
        """Return the names of the stored features as arrays; empty if the source has none."""
        if self.like is not None or not self.plan.feature_names:
            return {}
        names = self.plan.feature_names
        names = (*names, *(f"{names[c]}[missing]" for s in fitted.steps for c in s.get("indicators", ())))
        kept = fitted.features.get("kept")
        return pack_names(names if kept is None else [names[column] for column in kept.tolist()])

    def _notices(self, meta: DatasetMeta, survey: Survey, schema: Schema, missing: str) -> list[str]:
        notices = [*self.plan.notices, *dataset_facts.code_notices(survey), *schema.notices, *filter(None, [missing])]
        notices += dataset_facts.joined_labels(meta, self.plan.read) if self.like is None else ()
        notices += dataset_facts.lost_labels(meta) if self.options.split and self.like is None else ()
        centred = self.plan.is_dense or centres(self.transforms)
        if self.like is None and has_step(self.transforms, "standardize") and not centred:
            notices.append("standardize divides sparse rows by the deviations, without centring them")
        return notices
