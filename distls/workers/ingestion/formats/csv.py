"""Separated text (CSV, TSV) to batches of row records: runs the kernel, converts and explains what it cannot."""

import contextlib
import csv
import math
import re
from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from distls.workers.ingestion.formats import table_columns
from distls.workers.ingestion.formats.table_columns import Dialect, Feature, TableOptions
from distls.workers.ingestion.parsing.array_types import Bytes, Ints
from distls.workers.ingestion.parsing.csv_field_kernels import SCRATCH, Answers, Code, Kind, Markers, Mode, Rules, State
from distls.workers.ingestion.parsing.csv_kernels import FEATURES, LABEL, WEIGHT, Slots, parse_rows
from distls.workers.ingestion.parsing.rounding_kernels import no_rounding, take_rounded
from distls.workers.ingestion.parsing.svmlight_kernels import line_end
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.parsing.word_table import WordTable
from distls.workers.ingestion.records import messages
from distls.workers.ingestion.records.few_rows import FewRows, NotPlainError, kernel_is_ready
from distls.workers.ingestion.records.labels import value_labels
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.records.reader import KernelParser, LineIds, TextReader, fields_of, records_in
from distls.workers.ingestion.records.record_batch import ReadRun, RecordBatch, RowError

_SEPARATOR_LINE = re.compile(rb'"?[sS][eE][pP]=([\x01-\x7f])"?\r?\n')


def separator_line(start: bytes) -> str:
    """Return the separator that a first line ``sep=;`` names, as Excel writes it; empty if there is none."""
    found = _SEPARATOR_LINE.match(start)
    return found.group(1).decode() if found else ""


# from here on the table is read by records, whose fields may have line breaks
UNCLOSED = "no closing quote on the line"


class RowReader(KernelParser):
    """Runs the kernel over the blocks of one item.

    Columns and `mode` are as of `parse_rows`; a row's scratch has `n_slots`, the buffers `n_words` of records.
    """

    options: TableOptions

    def __init__(self, run: ReadRun[TableOptions], columns: Ints, mode: int, n_slots: int, n_words: int = 0) -> None:
        super().__init__(run, State.SIZE, n_words)
        options = run.options
        # A field without a value is NaN unless `na` says otherwise, and NaN is refused later.
        na = float(options.na) if options.na else 0.0 if options.gaps and mode & Mode.SURVEY else math.nan
        # int: numba treats a member of Mode as another type, and would compile the kernel again
        self.dialect = dialect = options.dialect
        mode = int(mode) | Mode.COMMA * (dialect.decimal == ",") | Mode.MARKED * bool(dialect.numbers)
        markers, scratch = _markers(dialect), np.zeros(SCRATCH, dtype=np.uint8)
        self.rules = Rules(ord(dialect.separator), int(mode), na, run.n_extra, markers, scratch)
        self.columns = columns
        self.table = WordTable()
        indices, values = np.zeros(n_slots, dtype=np.int64), np.zeros(n_slots)
        self.slots = Slots(indices, values, no_rounding(n_slots - FEATURES), np.zeros(64))
        self.answers = Answers(np.zeros(64, dtype=np.int64), np.zeros(64))

    def begin(self, block: TextBlock) -> None:
        # Answers are of places in the block before.
        self.state[State.ANSWERS] = 0
        if separator_line(self.begin_block(block)):
            self.skip_line(block.text)
        found = not (block.starts_file and self.dialect.header)
        # Blank lines before the header are no header.
        while not found and (start := int(self.state[State.POSITION])) < block.size:
            self.skip_line(block.text)
            found = bool(block.text[start : self.state[State.POSITION]].tobytes().strip())

    def run(self, block: TextBlock) -> Code:
        """Parse on until the block is done or the records are full; return which."""
        while True:
            # The kernel returns for whatever is rare, and goes on at the same field.
            code = Code(self._run_kernel(block))
            if code in (Code.DONE, Code.FULL):
                return code
            if code == Code.ASK:
                self._add_answer(self.answer(self._token(block.text)))
            elif code == Code.WORDS_FULL:
                self.make_room()
            elif code == Code.NEW_WORD:
                self._name_words(block.text)
            elif code == Code.UNCLOSED:
                # A row with an unclosed quote has no known end, so it cannot be skipped.
                raise RowError(int(self.state[State.LINE]), self._reason(code, block.text))
            else:
                self.refuse(block.text, self._reason(code, block.text))

    def _run_kernel(self, block: TextBlock) -> int:
        read = block.text, block.size, self.rules, self.columns, self.table.words, self.answers
        if not kernel_is_ready():  # seconds of compilation
            with contextlib.suppress(NotPlainError):
                few = FewRows(read, self.state, self.dialect.missing)
                if self.rules.mode & Mode.SURVEY:
                    return few.survey()
                return few.store(self.slots, self.records, self.label_words)
        return parse_rows(*read, self.slots, self.records, self.state)

    def answer(self, token: bytes) -> float:
        """Return the value of a field that the kernel could not decide."""
        # Python's own float decides what the kernel's fast path cannot.
        return float(self.dialect.plain(token.decode("latin-1")))

    def make_room(self) -> None:
        self.table.grow()

    def _token(self, text: Bytes) -> bytes:
        start, end = self.state[[State.START, State.END]].tolist()
        return text[start:end].tobytes()

    def _add_answer(self, value: float) -> None:
        n = int(self.state[State.ANSWERS])
        if n == len(self.answers.values):  # full: double the arrays
            starts, values = self.answers
            self.answers = Answers(np.resize(starts, 2 * n), np.resize(values, 2 * n))
        self.answers.starts[n], self.answers.values[n] = self.state[State.START], value
        self.state[State.ANSWERS] = n + 1

    def _name_words(self, text: Bytes) -> None:
        entries = list(self.table.unvalued())
        try:
            # A label that is no UTF-8 text has no name in the model.
            values, words = value_labels(map(self.table.text, entries))
        except UnicodeDecodeError:
            self.refuse(text, f"{self._field(text)}: a label must be UTF-8 text; {messages.ENCODED}")
            return
        self.table.words.values[entries] = values
        self.label_words |= words

    def refuse(self, text: Bytes, reason: str) -> None:
        super().refuse(text, reason)
        self.state[State.ANSWERS] = 0

    def _field(self, text: Bytes) -> str:
        column = self.options.columns[int(self.state[State.COLUMN])]
        return f"column {quoted(column.encode())}: {quoted(self._token(text))}"

    def _reason(self, code: Code, text: Bytes) -> str:
        """Return the offending text and the rule it breaks."""
        if code in (Code.FEW, Code.MANY):
            start = int(self.state[State.POSITION])
            line = text[start : line_end(text, start)].tobytes().rstrip(b"\r")
            found, wanted = self._n_fields(line), len(self.options.columns)
            return f"{quoted(line)}: {found} field{'s' * (found > 1)} where there should be {wanted}"
        after = "text after a closing quote; a quote between quotes is doubled"
        rules = {Code.UNCLOSED: UNCLOSED, Code.AFTER_QUOTE: after}
        return f"{self._field(text)}: {rules[code] if code in rules else self._value_rule(text)}"

    def _n_fields(self, line: bytes) -> int:
        text, separator = line.decode("latin-1").replace("\r", " "), self.dialect.separator
        try:
            return len(next(csv.reader([text.strip(" ")], delimiter=separator, skipinitialspace=True)))
        except csv.Error:  # a field of more than 128 KiB
            return text.count(separator) + 1

    def _value_rule(self, text: Bytes) -> str:
        column, token = self.options.columns[int(self.state[State.COLUMN])], self._token(text)
        missing = self.dialect.is_missing(token.decode("utf-8", "replace"))
        if column == self.options.label:
            return messages.NO_LABEL if missing else messages.number_rule(token, "a label")
        if column == self.options.weight:
            return "a sample weight must be a number that is finite and not negative"
        if missing:
            return messages.MISSING_VALUE
        token = self.dialect.plain(token.decode("latin-1")).encode("latin-1")
        if _is_plain(token):
            largest = "float64" if self.options.float64 else "float32"
            return f"the value does not fit into {largest}{messages.too_large(float(token))}"
        return messages.number_rule(token, "a value", messages.NO_NUMBER)


def _markers(dialect: Dialect) -> Markers:
    """Return the texts that stand for no value in the form of the kernel."""
    texts = [text.encode("utf-8", "surrogatepass") for text in dialect.missing if text]
    sizes = np.zeros(256, dtype=np.uint64)
    for text in texts:
        sizes[text[0]] |= np.uint64(1) << np.uint64(min(len(text), 63))
    joined = b"".join(bytes([len(text)]) + text for text in texts)
    # a copy: frombuffer is read-only, for which the kernel would be compiled once more
    return Markers(sizes, np.array(np.frombuffer(joined, dtype=np.uint8)), np.array(dialect.numbers))


def _is_plain(token: bytes) -> bool:
    """Return whether a refused field is a number that is too large."""
    try:
        return token.strip().lower().lstrip(b"+-")[:1] in b"0123456789." and abs(float(token)) > 3e38
    except ValueError:
        return False


class DelimitedParser(RowReader):
    """Parses separated text."""

    def __init__(self, run: ReadRun[TableOptions]) -> None:
        options = run.options
        bits = {Mode.DENSE: options.dense, Mode.FLOAT64: options.float64, Mode.LABELLED: bool(options.label)}
        mode = sum(int(bit) for bit, given in bits.items() if given)
        columns = _kernel_columns(options)
        firsts = zip(options.features, table_columns.first_columns(options.features), strict=False)
        # Each slot knows its column, that of a category the first of several.
        places = [first + k for feature, first in firsts for k in range(_n_slots(feature))]
        super().__init__(run, columns, mode, FEATURES + len(places))
        self.slots.indices[FEATURES:] = places
        # A row without a weight counts one.
        self.slots.values[WEIGHT] = 1.0
        self._enter_categories()

    def _enter_categories(self) -> None:
        starts = table_columns.first_columns(self.options.features)
        place = {name: c for c, name in enumerate(self.options.columns)}
        for feature, start in zip(self.options.features, starts, strict=False):
            if feature.categories is not None:
                twins = table_columns.whole_twins(feature.categories)
                numbers = [start + k for k in (*range(len(feature.categories)), *twins.values())]
                self.table.add(place[feature.name], (*feature.categories, *twins), numbers)
                # a missing value is read as what stands for it: its category if there is one
                stand_in = table_columns.missing_category(feature, self.options.na)
                if stand_in in feature.categories:
                    missing = start + feature.categories.index(stand_in)
                    told = table_columns.fills_usual(feature, self.options.na)
                    self.columns[place[feature.name], 2] = -2 - missing if told else missing

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        yield from self.full_batches(block)
        if self.state[State.ROWS]:
            yield self.take_batch()

    def full_batches(self, block: TextBlock) -> Iterator[RecordBatch]:
        """Yield the block's rows as long as they fill a batch; the rest is there to be taken."""
        start = self.progress.offset
        self.begin(block)
        while self.run(block) == Code.FULL:
            self._note(block, start + int(self.state[State.POSITION]))
            # Twice the size: rows have no limit but memory.
            # full without a row: a single row is larger than the buffers
            if self.state[State.ROWS]:
                yield self.take_batch()
            else:
                self.records = records_in(self.pool, 2 * len(self.records.words))
        self._note(block, start + block.size)

    def _note(self, block: TextBlock, offset: int) -> None:
        """Copy the kernel's totals into `progress`."""
        state, progress = self.state, self.progress
        progress.offset, progress.lines = offset, int(state[State.LINE])
        # The first one only: an example is enough for the notice.
        if state[State.UNSEEN] and progress.unseen_first is None:
            start, end, column = state[[State.UNSEEN_START, State.UNSEEN_END, State.UNSEEN_COLUMN]].tolist()
            name = quoted(self.options.columns[column].encode())
            where = int(state[State.UNSEEN_LINE])
            progress.unseen_first = (where, f"column {name}: {quoted(block.text[start:end].tobytes())}")
        progress.gaps += int(state[State.GAPS])
        state[State.GAPS] = 0
        progress.unseen += int(state[State.UNSEEN])
        state[State.UNSEEN] = 0  # counted above

    def take_batch(self) -> RecordBatch:
        weights = self.records.row_weight[: self.state[State.ROWS]] if self.options.weight else None
        # by feature, of which a category has several
        starts = self.slots.indices[FEATURES:].tolist()
        rounded = [(starts[found[0]], *found[1:]) for found in take_rounded(self.slots.rounding)]
        return RecordBatch(*self.take_records(), weights, self.label_words, rounded=rounded)


def _n_slots(feature: Feature) -> int:
    """Return the values that a row has of a feature: of a category one, the indicator of its own."""
    return feature.size if feature.kind == "date" else 1


def _kernel_columns(options: TableOptions) -> Ints:
    """Return kind, slot and missing category of each column."""
    ends = accumulate(map(_n_slots, options.features), initial=FEATURES)
    slots = {feature.name: slot for feature, slot in zip(options.features, ends, strict=False)}
    kind_of = {feature.name: Kind.GAPPED if feature.impute else Kind.NUMBER for feature in options.features}
    kind_of |= {f.name: Kind.CATEGORY for f in options.features if f.categories is not None}
    kind_of |= {f.name: Kind.DATE for f in options.features if f.kind == "date"}

    def entry(name: str) -> tuple[int, int, int]:
        if name == options.label:
            return (Kind.LABEL_WORD if options.label_words else Kind.LABEL), LABEL, -1
        if name == options.weight:
            return Kind.WEIGHT, WEIGHT, -1
        if name in slots:
            return kind_of[name], slots[name], -1
        # Columns that are not asked for are parsed, to find the end of the row, and dropped.
        return Kind.SKIP, LABEL, -1

    return np.array([entry(name) for name in options.columns], dtype=np.int64)


def _line_ids(options: TableOptions) -> LineIds:
    return fields_of(options.dialect.separator, options.columns.index(options.id_column))


CSV_READER = TextReader(DelimitedParser, _line_ids)
