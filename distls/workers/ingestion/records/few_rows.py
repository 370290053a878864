"""A few plain rows of separated text, read without the kernel, whose compilation takes many times as long as they do.

What is done to the parser's state, table and buffers is what `parse_rows` does, to the last bit.
"""

import contextlib
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from distls.workers.compilation.kernel_cache import is_stored
from distls.workers.ingestion.parsing import csv_field_kernels as csv_fields
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints
from distls.workers.ingestion.parsing.csv_field_kernels import Answers, Code, Kind, Mode, Rules, State
from distls.workers.ingestion.parsing.csv_kernels import FEATURES, LABEL, WEIGHT, Slots, parse_rows
from distls.workers.ingestion.parsing.record_kernels import Records
from distls.workers.ingestion.parsing.rounding_kernels import EXACT, note_rows
from distls.workers.ingestion.parsing.word_table import Words, has_room, insert_words
from distls.workers.ingestion.records.labels import value_labels

_MOST_BYTES = 10 * 2**20  # of all that a process reads so: a table of 4 MiB is surveyed, and then stored
_NUMERIC = b"0123456789+-.eE"
_CODE, _LABEL_CODE = re.compile(rb"0[0-9]"), re.compile(rb"[+-]?(0[0-9]|[0-9]{16})")
_TRUTHS = {b"true": 1.0, b"false": 0.0}


def kernel_is_ready() -> bool:
    """Return whether the kernel is compiled, here or in the cache."""
    return bool(parse_rows.overloads) or is_stored(parse_rows)  # type: ignore[attr-defined]


class NotPlainError(Exception):
    """The kernel has to read this text."""


class FewRows:
    """The rows of text[state[POSITION]:stop]; `read` is the first of what `parse_rows` is given.

    `missing` are texts that stand for no value.
    """

    n_bytes = 0  # that this process has read so

    def __init__(
        self, read: tuple[Bytes, int, Rules, Ints, Words, Answers], state: Ints, missing: Sequence[str]
    ) -> None:
        text, stop, rules, columns, self._words, self._answers = read
        self._rules, self._columns, self._state = rules, columns, state
        self._missing = {b"", *(text.encode("utf-8", "surrogatepass") for text in missing)}
        self._kinds, self._n_gaps = columns[:, csv_fields.KIND].tolist(), 0
        at, separator = int(state[State.POSITION]), bytes([rules.separator])
        if not 0 < stop - at <= _MOST_BYTES - FewRows.n_bytes or rules.mode & (Mode.COMMA | Mode.MARKED):
            raise NotPlainError
        content = text[at:stop].tobytes().removesuffix(b"\n")
        mark = re.escape(separator)
        blank = rb'["\0]|\r(?!\n|\Z)|[ \t](?:%b|\r|\n|\Z)|(?:%b|\n|\A)[ \t\r\n]|\n\Z' % (mark, mark)
        if rules.separator == csv_fields.SPACE or re.search(blank, content):
            raise NotPlainError
        self._sizes = np.array([len(line) + 1 for line in content.split(b"\n")])
        lines = content.replace(b"\r", b"").split(b"\n")
        if {line.count(separator) for line in lines} != {len(columns) - 1}:
            raise NotPlainError
        fields = separator.join(lines).split(separator)
        self._fields = [fields[c :: len(columns)] for c in range(len(columns))]

    def survey(self) -> Code:
        """Note which columns are not numeric, and the values of those to collect, up to a word where a number was."""
        n, column = self._numeric_rows()
        position = int(self._state[State.POSITION] + self._sizes[:n].sum())
        if column >= 0:
            start = position + sum(len(fields[n]) + 1 for fields in self._fields[:column])
            known = self._answers.starts[: self._state[State.ANSWERS]]
            if self._fields[column][n] in self._missing or start in known:
                raise NotPlainError
        self._collect(n)
        first = -int(self._state[State.ROWS]) % 16
        for c, kind in enumerate(self._kinds):
            looked_at = self._fields[c][first : n + (c <= column) : 16] if kind == Kind.CHECK else []
            if any(map(_CODE.match, looked_at)):
                self._columns[c, csv_fields.NA] = csv_fields.CODED
        self._finish(n, position)
        if column < 0:
            return Code.DONE
        places = [State.COLUMN, State.START, State.END]
        self._state[places] = column, start, start + len(self._fields[column][n])
        return Code.ASK

    def _numeric_rows(self) -> tuple[int, int]:
        """Return the rows before the first word among numbers, and its column, -1 if there is none."""
        n, column = len(self._sizes), -1
        for c, kind in enumerate(self._kinds):
            if kind not in (Kind.CHECK, Kind.CHECK_LABEL):
                continue
            numeric = len(self._numbers(c))
            if kind == Kind.CHECK_LABEL:
                coded = map(_LABEL_CODE.match, self._fields[c][:numeric])
                numeric = next((row for row, found in enumerate(coded) if found), numeric)
            if numeric < n:
                n, column = numeric, c
        return n, column

    def _collect(self, n: int) -> None:
        found: list[tuple[int, int, bytes]] = []
        lacking = []
        for c, kind in enumerate(self._kinds):
            if kind == Kind.COLLECT:
                first = {field: row for row, field in reversed([*enumerate(self._fields[c][:n])])}
                lacking += [c] * any(field in self._missing for field in first)
                known = self._missing | {*self._values(c)}
                found += [(row, c, field) for field, row in first.items() if field not in known]
        texts = [field for *_, field in sorted(found)]
        room = has_room.py_func  # type: ignore[attr-defined]
        if (lacking and math.isnan(self._rules.na)) or not room(self._words, len(texts), sum(map(len, texts))):
            raise NotPlainError
        self._columns[lacking, csv_fields.NA] = 1
        rows, columns = np.array([each[:2] for each in sorted(found)], np.int64).reshape(-1, 2).T
        if texts:
            lines = rows + self._state[State.LINE]
            ends = np.cumsum([*map(len, texts)], dtype=np.int64)
            text = np.array(np.frombuffer(b"".join(texts) + bytes(8), np.uint8))
            insert_words(self._words, 2 * columns, lines, text, ends)

    def _values(self, c: int) -> dict[bytes, float]:
        """Return the known words of a column and their values."""
        starts, text = self._words.starts.tolist(), self._words.text
        entries = np.flatnonzero(self._words.keys[: self._words.size[0]] == 2 * c).tolist()
        return {
            text[starts[entry] : starts[entry + 1]].tobytes(): float(self._words.values[entry]) for entry in entries
        }

    def _numbers(self, c: int) -> list[float]:
        """Return the numbers of a column up to the first field that is none."""
        fields, kind, na = self._fields[c], self._kinds[c], self._rules.na
        if not b"".join(fields).translate(None, _NUMERIC):
            with contextlib.suppress(ValueError):
                return [*map(float, fields)]
        may_miss = kind == Kind.GAPPED or (kind in (Kind.NUMBER, Kind.CHECK) and not math.isnan(na))
        truths = _TRUTHS if kind in (Kind.NUMBER, Kind.GAPPED, Kind.CHECK) else {}
        values: list[float] = []
        with contextlib.suppress(ValueError):
            for field in fields:
                if may_miss and field in self._missing:
                    self._n_gaps += 1
                    values.append(na)
                elif (truth := truths.get(field.lower())) is not None:
                    values.append(truth)
                elif field.translate(None, _NUMERIC):
                    break
                else:
                    values.append(float(field))
        return values

    def store(self, slots: Slots, records: Records, label_words: dict[float, str]) -> Code:
        """Store the rows as records; words of labels are added to `label_words`."""
        state, mode, n = self._state, self._rules.mode, len(self._sizes)
        values = np.tile(slots.values, (n, 1))
        indices = np.tile(slots.indices[FEATURES:], (n, 1))
        named: dict[float, str] = {}
        for c, (kind, slot, _) in enumerate(self._columns.tolist()):
            if kind == Kind.LABEL_WORD:
                values[:, slot] = self._labels(c, named)
            elif kind == Kind.CATEGORY:
                indices[:, slot - FEATURES], values[:, slot] = self._categories(c)
            elif kind != Kind.SKIP:
                values[:, slot] = self._sound(c, kind)
        # where they may be too many for the buffers, the kernel stores a part
        if state[State.ROWS] or n * (4 + self._rules.n_extra + 3 * indices.shape[1]) > len(records.words):
            raise NotPlainError
        words, row_at = self._packed(values, indices)
        features = np.ascontiguousarray(values[:, FEATURES:])
        if not mode & Mode.FLOAT64 and np.any(features.astype(np.float32) != features):
            note_rows(features, slots.rounding)
        records.words[: len(words)] = words
        records.row_at[:n] = row_at[:-1]
        records.row_line[:n] = np.arange(state[State.LINE], state[State.LINE] + n)
        records.row_weight[:n] = values[:, WEIGHT]
        state[State.WORDS] = len(words)
        state[State.GAPS] += self._n_gaps
        label_words |= named
        self._finish(n, int(state[State.POSITION] + self._sizes.sum()))
        return Code.DONE

    def _sound(self, c: int, kind: int) -> Doubles:
        """Return the numbers of a column, all of which are in its range."""
        values = np.array(self._numbers(c))
        sizes = np.abs(values)
        exact = kind in (Kind.NUMBER, Kind.GAPPED)
        largest = EXACT if exact else math.inf if kind == Kind.LABEL else csv_fields.LARGEST_FLOAT32
        inside = (sizes < largest) | ((kind == Kind.GAPPED) & np.isnan(values))
        wrong = kind > Kind.WEIGHT or not inside.all() or (kind == Kind.WEIGHT and (values < 0.0).any())
        if wrong or len(values) < len(self._sizes):
            raise NotPlainError
        return values

    def _labels(self, c: int, named: dict[float, str]) -> Doubles:
        fields = self._fields[c]
        if not self._missing.isdisjoint(fields):
            raise NotPlainError
        try:
            values, words = value_labels([field.decode() for field in fields])
        except UnicodeDecodeError:
            raise NotPlainError from None
        named |= words
        return values

    def _categories(self, c: int) -> tuple[Sequence[int], Sequence[float]]:
        """Return feature and value of each row's category, all of which are known."""
        known, fields, own = self._values(c), self._fields[c], float(self._columns[c, csv_fields.NA])
        n_gaps = sum(field in self._missing for field in fields)
        self._n_gaps += n_gaps
        found = [own if field in self._missing else known.get(field, -1.0) for field in fields]
        if -1.0 in found:
            raise NotPlainError
        # what is missing, though no row of the training data lacks one, has a value to be imputed
        return [int(max(v, -2.0 - v)) for v in found], [1.0 if v >= 0.0 else math.nan for v in found]

    def _packed(self, values: Doubles, indices: Ints) -> tuple[Any, Ints]:
        """Return the words of records, and where each begins and the last ends."""
        mode, n, n_values = self._rules.mode, len(values), values.shape[1] - FEATURES
        dtype = np.float64 if mode & Mode.FLOAT64 else np.float32
        stored = values[:, FEATURES:].astype(dtype)
        labels = (values[:, [LABEL]] + 0.0).view(np.uint32)  # minus zero is zero
        head = np.zeros((n, 2 + self._rules.n_extra), np.uint32)
        parts = stored.view(np.uint32).reshape(n, n_values, stored.itemsize // 4)
        kept = np.ones(stored.shape, bool)
        if not mode & Mode.DENSE:
            parts = np.concatenate([indices.astype(np.uint32)[:, :, None], parts], axis=2)
            kept = stored != 0.0
        head[:, 0], head[:, 1] = kept.sum(axis=1), bool(mode & Mode.LABELLED)
        front = np.hstack([head, labels]) if mode & Mode.LABELLED else head
        whole = np.hstack([front, parts.reshape(n, -1)])
        mask = np.hstack([np.ones(front.shape, bool), np.repeat(kept, parts.shape[2], axis=1)])
        return whole[mask], np.concatenate([[0], np.cumsum(mask.sum(axis=1))])

    def _finish(self, n: int, position: int) -> None:
        state = self._state
        FewRows.n_bytes += position - int(state[State.POSITION])
        state[State.POSITION] = position
        state[State.LINE] += n
        state[State.ROWS] += n
        if n:
            state[State.ANSWERS] = 0
