"""Fit the transform ``impute`` on the training rows: medians, means, most frequent values, columns with gaps."""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np

from distls.facts import counted
from distls.ingestion.formats.column_kinds import first_of
from distls.ingestion.request.source_plan import SourcePlan
from distls.workers.ingestion import imputation_task
from distls.workers.ingestion.assemble_task import AssemblySpec
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions, first_columns
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Ints

_TOGETHER = 256  # columns whose digits are counted at a time, 4 MB of counts
_SHOWN = 10  # columns named in the notice
Step = dict[str, Any]


def impute_steps(plan: SourcePlan, has_gaps: bool) -> tuple[Step, ...]:
    """Return the step that is to be fitted; it stays a transform where it `is_needed`, as some value is missing."""
    read = plan.read
    if not isinstance(read, TableOptions) or not read.gaps:
        return ()
    # of categories the missing value is one already, unless it becomes another
    pairs = zip(read.features, first_columns(read.features), strict=False)
    columns = [(f, at) for f, at in pairs if f.impute]
    how = [[at, f.size, f.name, f.impute, f.is_dense] for f, at in columns]
    whole = [at for f, at in columns if f.categories is not None and "" not in f.categories]
    return ({"name": "impute", "strategies": how, "whole": whole, "is_needed": has_gaps},)


@dataclass(frozen=True)
class Imputed:
    """The fitted step, its array and the notice of it."""

    step: Step
    fill: Doubles
    notice: str
    stand_ins: dict[str, list[float]]  # of columns without gaps: values for one, of a category its place


@dataclass
class ImputeFit:
    """The passes over the training rows."""

    spec: AssemblySpec
    run: Callable[[Any], Any]  # task of (spec, partitions) -> results of all groups of partitions, in order
    step: Step
    fill: Doubles = field(init=False)
    moved: list[list[int]] = field(default_factory=list)

    def result(self) -> Imputed:
        """Return what was fitted, from an earlier attempt if there was one."""
        found = self.spec.staging.read_document("impute")
        if found is None:
            found = self._fitted()
            self.spec.staging.write_document("impute", found)
        return Imputed(found["step"], np.array(found["fill"]), found["notice"], found["stand_ins"])

    def _fitted(self) -> dict[str, Any]:
        entries = self.step["strategies"]
        numbers = [entry for entry in entries if entry[4]]
        columns = np.array([start + k for start, size, *_ in numbers for k in range(size)], np.int64)
        parts = self.run(partial(imputation_task.column_gaps, columns))
        gaps, sums, counts, n_rows = (reduce(operator.add, each) for each in zip(*parts, strict=True))
        self.fill = np.zeros(self.spec.n_columns)
        how = [entry[3] for entry in numbers for _ in range(entry[1])]
        self._fill_numbers(columns, how, gaps, sums, n_rows)
        for start, size, _, strategy, is_dense in entries:
            # the category of missing values, the first, becomes the most frequent one of the others
            if not is_dense and strategy == "most_frequent" and size > 1:
                self.moved.append([start, start + 1 + int(np.argmax(counts[start + 1 : start + size]))])
        # only where training rows have gaps, as elsewhere it would be zero;
        # of a date, which lacks all its numbers at once, one indicator
        first = {entry[0] for entry in numbers if entry[3].endswith("+indicator")}
        marked = [int(c) for c, n in zip(columns, gaps, strict=True) if n and c in first]
        step = {"name": "impute", "columns": self.spec.n_columns, "kept": self.spec.n_columns + len(marked)}
        step |= {"indicators": marked, **({"moved": self.moved} if self.moved else {})}
        by_column = dict(zip(columns.tolist(), gaps.tolist(), strict=True))
        fill, notice = ([*self.fill.tolist()] + [0.0] * len(marked), _notice(numbers, by_column, self.fill, n_rows))
        return {"stand_ins": self._stand_ins(by_column, counts), "step": step, "fill": fill, "notice": notice}

    def _stand_ins(self, gaps: dict[int, int], counts: Ints) -> dict[str, list[float]]:
        found = {}
        for start, size, name, how, is_dense in self.step["strategies"]:
            if is_dense and not gaps[start]:
                found[name] = self.fill[start : start + size].tolist()
            elif start in self.step["whole"] and not how.startswith("constant:"):
                found[name] = [int(np.argmax(counts[start : start + size]))]
        return found

    def _fill_numbers(self, columns: Ints, how: list[str], gaps: Ints, sums: Doubles, n_rows: int) -> None:
        base = np.array([each.removesuffix("+indicator") for each in how], dtype=object)
        known = n_rows - gaps
        # a column without any value is filled with zeros
        means = sums / np.maximum(known, 1)
        for k, each in enumerate(base):
            if each == "mean":
                self.fill[columns[k]] = means[k]
            elif each.startswith("constant:"):
                self.fill[columns[k]] = float(each.removeprefix("constant:"))
        places = np.flatnonzero((base == "median") & (known > 0))
        for start in range(0, len(places), _TOGETHER):
            some = places[start : start + _TOGETHER]
            self.fill[columns[some]] = self._medians(columns[some], known[some])
        places = np.flatnonzero((base == "most_frequent") & (known > 0))
        if len(places):
            values = reduce(_joined, self.run(partial(imputation_task.column_values, columns[places])))
            for column, found in zip(columns[places], values, strict=True):
                # of equally frequent ones the smallest
                self.fill[column] = float(found[0][np.argmax(found[1])])

    def _medians(self, columns: Ints, known: Ints) -> Doubles:
        # the two values in the middle, of which an odd number of rows has one
        # found digit by digit, of all columns at once: three passes however many rows there are
        ranks = np.concatenate([(known - 1) // 2, known // 2])
        both = np.concatenate([columns, columns])
        prefixes = np.zeros(len(both), np.int64)
        done: int = 0
        for bits in imputation_task.DIGITS:
            counts = self.run(
                partial(imputation_task.column_digits, imputation_task.Digits(both, prefixes, done, bits))
            )
            ends = np.cumsum(reduce(np.add, counts), axis=1)
            digits = (ends <= ranks[:, None]).sum(axis=1)
            # the rank among the values that begin alike
            before = np.take_along_axis(ends, np.maximum(digits - 1, 0)[:, None], axis=1)[:, 0]
            ranks = ranks - np.where(digits > 0, before, 0)
            prefixes = (prefixes << bits) | digits
            done += bits
        values = imputation_task.number_of_bits(prefixes.astype(np.uint32))
        return (values[: len(columns)] + values[len(columns) :]) / 2.0


def _joined(a: list[Any], b: list[Any]) -> list[Any]:
    # counts are added: the order of the parts does not matter
    return [
        imputation_task.value_counts(np.concatenate([x[0], y[0]]), np.concatenate([x[1], y[1]]))
        for x, y in zip(a, b, strict=True)
    ]


def _notice(numbers: Sequence[Sequence[Any]], gaps: dict[int, int], fill: Array, n_rows: int) -> str:
    found = [(name, how, start) for start, _, name, how, _ in numbers if gaps[start]]
    if not found:
        return ""
    shown = []
    for name, how, start in found:
        rows = "all rows" if gaps[start] == n_rows else counted(gaps[start], "row")
        value = f"{how.removesuffix('+indicator').replace('constant:', '')} {fill[start]:.6g}"
        shown.append(f'"{name}" ({rows}: {value})')
    marked = ", with a feature that says where" * any(how.endswith("+indicator") for _, how, *_ in found)
    return f"missing values are filled in{marked}: {first_of(shown, _SHOWN)}; --impute says otherwise"


def stand_in_notice(features: Sequence[Feature], counts: Iterable[Sequence[int]]) -> str:
    """Say which columns lack values here that they had in training, and what stands for them; empty if none do.

    `counts` has numbers of rows by feature. What the user has chosen for a column needs no word.
    """
    gaps: Counter[int] = Counter()
    for column, n in counts:
        gaps[column] += n
    found = [
        f'"{f.name}" ({counted(most, "row")}: {strategy.replace("_", " ")}{_shown(f, text)})'
        for f, start in zip(features, first_columns(features), strict=False)
        if (most := max((gaps[column] for column in range(start, start + f.size)), default=0))
        for strategy, _, text in [f.impute.partition(":")]
        if strategy != "constant"
    ]
    if not found:
        return ""
    return f"values are missing that no row lacked in training, and are filled in: {first_of(found, _SHOWN)}"


def _shown(feature: Feature, text: str) -> str:
    """Return a value as the notice has it; the days of a date say nothing to anybody."""
    if feature.kind == "date":
        return ""
    return f" {text}" if feature.categories is not None else f" {float(text):.6g}"
