"""Svmlight text to batches of row records: runs the kernel, and finds the rule that a refused token breaks."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.svmlight_kernels import Code, State, line_end, parse_lines
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.records.labels import whole_labels
from distls.workers.ingestion.records.line_ids import LineIds, comment_of, first_of
from distls.workers.ingestion.records.messages import UNLABELLED, label_rule, number_rule, quoted
from distls.workers.ingestion.records.reader import TextReader
from distls.workers.ingestion.records.record_batch import Progress, ReadOptions, RecordBatch

_BATCH_WORDS = 16 * 2**20
_XMC_HEADER = re.compile(rb"[0-9]+ ([0-9]+) [0-9]+[ \t]*\r?\n[^\n:]*:")
_INDEX = re.compile(rb"[0-9]+\Z")


def xmc_width(start: bytes) -> int | None:
    """Return the features of text that begins with the numbers of its rows, features and labels, as XMC data sets do.

    None of other text.
    """
    found = _XMC_HEADER.match(start.removeprefix(BYTE_ORDER_MARK))
    return int(found[1]) if found else None


class SvmlightParser:
    """Parses the blocks of one item into records with `n_extra` reserved words each; updates `progress` as it goes.

    `locate` formats a 0-based line of the item as ``FILE:LINE``, for errors only.
    """

    state_size = int(State.SIZE)

    def __init__(
        self,
        options: ReadOptions,
        n_extra: int,
        progress: Progress,
        locate: Callable[[int], str],
        pool: BufferPool,
    ) -> None:
        self._pool = pool
        self.options = options
        self.n_extra = n_extra
        self.progress = progress
        self.locate = locate
        self._allocate(_BATCH_WORDS)
        self._slow = np.zeros((4096, 3), dtype=np.int64)
        self._state = np.zeros(self.state_size, dtype=np.int64)
        self._label_words: dict[float, str] = {}
        self._restore()

    def _restore(self) -> None:
        """Copy the totals of `progress` to the kernel."""
        state, progress = self._state, self.progress
        state[State.LINE] = progress.lines
        state[State.QIDS] = progress.qids
        state[State.MIN_INDEX], state[State.MIN_LINE] = progress.min_index, progress.min_line
        state[State.MAX_INDEX], state[State.MAX_LINE] = progress.max_index, progress.max_line

    def _allocate(self, n_words: int) -> None:
        # row arrays are sized for the shortest records, as untouched pages cost nothing
        self._words = self._pool.take("words", 4 * n_words).view(np.uint32)
        self._row_at = self._pool.take("row_at", 4 * n_words + 16).view(np.int64)
        self._row_line = self._pool.take("row_line", 2 * n_words + 8).view(np.int32)
        self._weights = self._pool.take("row_weight", 2 * n_words + 8).view(np.float32)

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        """Yield the block's rows; `progress` is up to date at each batch and at the end of the block."""
        state, start = self._state, self.progress.offset
        marked = block.starts_file and block.text[:3].tobytes() == BYTE_ORDER_MARK
        state[State.POSITION] = 3 if marked else 0
        if (
            block.starts_file
            and xmc_width(block.text[int(state[State.POSITION]) :][:4096].tobytes()) is not None
        ):
            state[State.POSITION] = line_end(block.text, int(state[State.POSITION])) + 1
            state[State.LINE] += 1
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
                    self._allocate(2 * len(self._words))
                    continue
                self._note(start + int(state[State.POSITION]))
                yield self._take_batch()
            elif code != Code.SLOW_FULL:
                self._refuse(code, block.text)
        self._note(start + block.size)
        if state[State.ROWS]:
            yield self._take_batch()

    def _run_kernel(self, block: TextBlock) -> int:
        words = self._words
        return parse_lines(
            block.text,
            block.size,
            self.options.mode,
            self.n_extra,
            words,
            words.view(np.float32),
            self._row_at,
            self._row_line,
            self._weights,
            self._slow,
            self._state,
        )

    def _note(self, offset: int) -> None:
        """Copy the kernel's totals into `progress`."""
        state, progress = self._state.tolist(), self.progress
        progress.offset, progress.lines, progress.qids = offset, state[State.LINE], state[State.QIDS]
        progress.min_index, progress.min_line = state[State.MIN_INDEX], state[State.MIN_LINE]
        progress.max_index, progress.max_line = state[State.MAX_INDEX], state[State.MAX_LINE]

    def _take_batch(self) -> RecordBatch:
        n_rows, n_words = int(self._state[State.ROWS]), int(self._state[State.WORDS])
        self._row_at[n_rows] = n_words
        index, value = (
            int(self._state[State.ROUNDED]),
            float(self._state[State.ROUNDED_VALUE :].view(np.float64)[0]),
        )
        column, level = (index, 1) if index >= 0 else (-1 - index, 2)
        rounded = [(column, value, value, level)] if value else []
        self._state[[State.ROWS, State.WORDS, State.NNZ, State.ROUNDED, State.ROUNDED_VALUE]] = 0
        records = self._words[:n_words], self._row_at[: n_rows + 1], self._row_line[:n_rows]
        weights = self._weights[:n_rows] if self.options.weighted else None
        return RecordBatch(*records, weights, self._label_words, rounded=rounded)

    def _convert_slow(self, text: Bytes) -> None:
        """Let Python's float convert the tokens with more digits than the kernel could decide on."""
        n = int(self._state[State.SLOW])
        for start, end, target in self._slow[:n].tolist():
            token = text[start:end].tobytes()
            value = float(token)
            # a negative target is a label, which is always a double
            if target < 0:
                value = self._label_value(token, value)
                self._words[-target - 1 : -target + 1] = np.array([value]).view(np.uint32)
            elif self.options.float64:
                self._words[target : target + 2] = np.array([value]).view(np.uint32)
            else:
                self._words[target : target + 1] = np.array([value], dtype=np.float32).view(np.uint32)
        self._state[State.SLOW] = 0

    def _label_value(self, token: bytes, value: float) -> float:
        """Return the value of a label in a record: of a whole number that float64 does not keep, that of a word."""
        if self.options.continuous or not token.lstrip(b"+-").isdigit():
            return value
        values, words = whole_labels(np.array([int(token)], dtype=object))
        self._label_words |= words
        return float(values[0])

    def _refuse(self, code: int, text: Bytes) -> None:
        """Stop at the offending line, or record and skip it."""
        state = self._state
        position, line = int(state[State.POSITION]), int(state[State.LINE])
        reason = self._reason(code, text, position)
        if not self.options.skip_errors:
            raise BadInputError(f"{self.locate(line)}: {reason}")
        self.progress.skip(line, reason)
        state[State.POSITION] = line_end(text, position) + 1
        state[State.LINE] = line + 1

    def _reason(self, code: int, text: Bytes, position: int) -> str:
        """Return the rule that the token at `position` breaks."""
        found = re.match(rb"[^\s#]*", text[position : position + 4096].tobytes())
        last = int(self._state[State.LAST_INDEX])
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
        Code.SEVERAL_LABELS: "several labels in a row are read with ingest --multilabel only",
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


def _line_ids(options: ReadOptions) -> LineIds:
    return first_of if options.id_column == "label" else comment_of


SVMLIGHT_READER = TextReader(SvmlightParser, _line_ids)
