"""Svmlight text to batches of row records: runs the kernel, and finds the rule that a refused token breaks."""

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.svmlight_kernels import Code, State, parse_lines
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.records import reader
from distls.workers.ingestion.records.labels import whole_labels
from distls.workers.ingestion.records.messages import SEVERAL_LABELS, UNLABELLED, label_rule, number_rule, quoted
from distls.workers.ingestion.records.record_batch import ReadOptions, ReadRun, RecordBatch

# totals of the kernel -> their names in the progress
_TOTALS: dict[int, str] = {
    State.LINE: "lines",
    State.QIDS: "qids",
    State.MIN_INDEX: "min_index",
    State.MIN_LINE: "min_line",
    State.MAX_INDEX: "max_index",
    State.MAX_LINE: "max_line",
}
_XMC_HEADER = re.compile(rb"[0-9]+ ([0-9]+) [0-9]+[ \t]*\r?\n[^\n:]*:")
_INDEX = re.compile(rb"[0-9]+\Z")


def xmc_width(start: bytes) -> int | None:
    """Return the features of text that begins with the numbers of its rows, features and labels, as XMC data sets do.

    None of other text.
    """
    found = _XMC_HEADER.match(start.removeprefix(BYTE_ORDER_MARK))
    return int(found[1]) if found else None


class SvmlightParser(reader.KernelParser):
    """Parses svmlight text."""

    totals: ClassVar[dict[int, str]] = _TOTALS

    def __init__(self, run: ReadRun[Any], state_size: int = int(State.SIZE)) -> None:
        super().__init__(run, state_size)
        self._slow = np.zeros((4096, 3), dtype=np.int64)
        # The kernel goes on with the totals of an earlier attempt.
        for entry, name in self.totals.items():
            self.state[entry] = vars(self.progress)[name]

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        state, start = self.state, self.progress.offset
        if xmc_width(self.begin_block(block)) is not None:
            self.skip_line(block.text)
        while True:
            code = self._run_kernel(block)
            if code == Code.SLOW_FULL and not state[State.SLOW]:
                # one line alone fills the list
                self._slow = np.zeros((2 * len(self._slow), 3), dtype=np.int64)
            self._convert_slow(block.text)
            if code == Code.DONE:
                break
            if code == Code.FULL:
                # a single row is larger than the buffer
                if not state[State.ROWS]:
                    self._enlarge()
                    continue
                self._note(start + int(state[State.POSITION]))
                yield self._take_batch()
            elif code != Code.SLOW_FULL:
                self.refuse(block.text, self._reason(code, block.text, int(state[State.POSITION])))
        self._note(start + block.size)
        if state[State.ROWS]:
            yield self._take_batch()

    def _run_kernel(self, block: TextBlock) -> int:
        text, mode = (block.text, block.size), self.options.mode
        return parse_lines(*text, mode, self.n_extra, self.records, self._slow, self.state)

    def _enlarge(self) -> None:
        self.records = reader.records_in(self.pool, 2 * len(self.records.words))

    def _note(self, offset: int) -> None:
        self.progress.offset = offset
        for entry, name in self.totals.items():
            setattr(self.progress, name, int(self.state[entry]))

    def _take_batch(self) -> RecordBatch:
        state, n_rows = self.state, int(self.state[State.ROWS])
        index, value = int(state[State.ROUNDED]), float(state[State.ROUNDED_VALUE :].view(np.float64)[0])
        column, level = (index, 1) if index >= 0 else (-1 - index, 2)
        rounded = [(column, value, value, level)] if value else []
        state[[State.NNZ, State.ROUNDED, State.ROUNDED_VALUE]] = 0
        weights = self.records.row_weight[:n_rows] if self.options.weighted else None
        return RecordBatch(*self.take_records(), weights, self.label_words, rounded=rounded)

    def _convert_slow(self, text: Bytes) -> None:
        """Let Python's float convert the tokens with more digits than the kernel could decide on."""
        n = int(self.state[State.SLOW])
        for start, end, target in self._slow[:n].tolist():
            token = text[start:end].tobytes()
            value = float(token)
            # a negative target is a label, which is always a double
            if target < 0:
                value = self._label_value(token, value)
                self.records.words[-target - 1 : -target + 1] = np.array([value]).view(np.uint32)
            elif self.options.float64:
                self.records.words[target : target + 2] = np.array([value]).view(np.uint32)
            else:
                self.records.words[target : target + 1] = np.array([value], dtype=np.float32).view(np.uint32)
        self.state[State.SLOW] = 0

    def _label_value(self, token: bytes, value: float) -> float:
        """Return the value of a label in a record: of a whole number that float64 does not keep, that of a word."""
        if self.options.continuous or not token.lstrip(b"+-").isdigit():
            return value
        values, words = whole_labels(np.array([int(token)], dtype=object))
        self.label_words |= words
        return float(values[0])

    def _reason(self, code: int, text: Bytes, position: int) -> str:
        found = re.match(rb"[^\s#]*", text[position : position + 4096].tobytes())
        last = int(self.state[State.LAST_INDEX])
        return explain(Code(code), found.group() if found else b"", last, self.options)


def _pair_rule(token: bytes, options: ReadOptions) -> str:
    index, colon, value = token.partition(b":")
    if not colon:
        hint = " (no label is expected: leave out --unlabelled of ingest, or give --labelled to predict)"
        return "expected index:value" + ("" if options.labelled else hint)
    if not _INDEX.match(index):
        return f"an index must be a whole number from {1 if options.one_based else 0} to {MAX_INDEX}"
    return number_rule(value, "a value")


def _order_rule(token: bytes, last: int) -> str:
    index = int(token.partition(b":")[0])
    if index == 0 and last == 0:
        return "index 0 in a file that was declared to count from 1 (--zero-based no)"
    if index == last:
        return f"index {index} is given twice; indices must increase within a row"
    return f"index {index} comes after index {last}; indices must increase within a row"


def explain(code: Code, token: bytes, last: int, options: ReadOptions) -> str:
    """Return the token and the rule it breaks, for a message after ``FILE:LINE: ``; `last` is the index before it."""
    largest = "float64" if options.float64 else "float32"
    rules = {
        Code.SEVERAL_LABELS: SEVERAL_LABELS,
        Code.NO_LABEL: "--weight-column label reads LABEL:WEIGHT; if it is a feature, the row has no label; files "
        + UNLABELLED,
        Code.WEIGHT: "a sample weight must be a number that is finite and not negative",
        Code.REPEATED_LABEL: "a label is given twice",
        Code.QID: "expected qid:NUMBER",
        Code.LARGE_INDEX: f"an index must not exceed {MAX_INDEX}",
        Code.OVERFLOW: f"the value does not fit into {largest}",
    }
    if code == Code.LABEL:
        rule = label_rule(token)
    elif code == Code.PAIR:
        rule = _pair_rule(token, options)
    elif code == Code.ORDER:
        rule = _order_rule(token, last)
    else:
        rule = rules[code]
    return f"{quoted(token)}: {rule}"


def _line_ids(options: ReadOptions) -> reader.LineIds:
    return reader.first_of if options.id_column == "label" else reader.comment_of


SVMLIGHT_READER = reader.TextReader(SvmlightParser, _line_ids)
