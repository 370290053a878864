"""Vowpal Wabbit text to batches of row records: runs the kernel, explains what it refuses.

Rows are ``[label] [importance] [base] [tag]|namespace[:scale] name[:value] ... |namespace ...``. Names become
columns as in Vowpal Wabbit's default ``--hash strings``, or are the column numbers themselves.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distls.workers.ingestion.formats.svmlight import SvmlightParser
from distls.workers.ingestion.parsing import vw_token_kernels as tokens
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX
from distls.workers.ingestion.parsing.svmlight_kernels import State
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.parsing.vw_kernels import parse_vw_lines
from distls.workers.ingestion.parsing.vw_token_kernels import Code, Line, Rules, VwState
from distls.workers.ingestion.records.messages import SEVERAL_LABELS, UNLABELLED, label_rule, number_rule, quoted
from distls.workers.ingestion.records.reader import LineIds, TextReader, tag_of
from distls.workers.ingestion.records.record_batch import ReadOptions, ReadRun, RecordBatch

_TOKEN = re.compile(rb"\|?[^\s|]*")
_HASH_REMEDY = "to hash names instead, ingest all data with --hash-bits 18, or another number"


@dataclass(frozen=True)
class VwReadOptions(ReadOptions):
    """Options of the reader of Vowpal Wabbit text."""

    hash_bits: int | None = None  # names are hashed to 2**hash_bits columns; None: they are column numbers
    namespace: bytes = b""  # the only one allowed if names are column numbers

    @property
    def mask(self) -> int:
        return -1 if self.hash_bits is None else 2**self.hash_bits - 1


def name_hash(name: bytes, seed: int = 0) -> int:
    """Return Vowpal Wabbit's hash modulo 2**32 of a namespace, or of a feature with its namespace's as `seed`."""
    # the kernel loads eight bytes at a time, also behind the end
    text = np.frombuffer(name + bytes(8), dtype=np.uint8)
    return int(tokens.hash_name(text, 0, len(name), seed))


def only_namespace(text: bytes) -> bytes | None:
    """Return the namespace of whole lines whose names are all column numbers in a single one, else None."""
    features = b"\n".join(line[line.find(b"|") :] for line in text.splitlines() if b"|" in line)
    namespaces = set(re.findall(rb"\|([^\s:|]*)", features))
    names = set(re.findall(rb"[ \t]([^\s:|]+)", features))
    plain = all(name.isdigit() and int(name) <= MAX_INDEX for name in names)
    return namespaces.pop() if plain and len(namespaces) == 1 else None


class VwParser(SvmlightParser):
    """Parses Vowpal Wabbit text, of `VwReadOptions`."""

    totals: ClassVar[dict[int, str]] = {**SvmlightParser.totals, VwState.TAGS: "tags", VwState.BASES: "bases"}

    def __init__(self, run: ReadRun[VwReadOptions]) -> None:
        super().__init__(run, tokens.VW_STATE_SIZE)
        options = run.options
        namespace = -1 if options.hash_bits is not None else name_hash(options.namespace)
        self._rules = Rules(options.mode, options.mask, namespace, run.n_extra)
        slow, known = np.zeros((4096, 2), dtype=np.int64), np.zeros(4096)
        self._line = Line(np.zeros(tokens.ROW_SIZE, dtype=np.int64), *self._features(), slow, known)

    def _features(self) -> tuple[Any, Any]:
        n_words = len(self.records.words)
        return (
            self.pool.take("keys", 4 * n_words).view(np.uint64),
            self.pool.take("values", 4 * n_words).view(np.float64),
        )

    def _enlarge(self) -> None:
        super()._enlarge()
        keys, values = self._features()
        self._line = self._line._replace(keys=keys, values=values)

    def _run_kernel(self, block: TextBlock) -> int:
        # a line is parsed again once its undecided numbers are known
        while (code := self._parse(block)) == Code.SLOW_FULL:
            self._convert(block.text)
        self.state[State.SLOW] = 0
        return code

    def _parse(self, block: TextBlock) -> int:
        return parse_vw_lines(block.text, block.size, self._rules, self.records, self._line, self.state)

    def _convert(self, text: Bytes) -> None:
        """Let Python's float convert the numbers of a line that the kernel could not decide on."""
        n, line = int(self.state[State.SLOW]), self._line
        if n > len(line.slow):
            self._line = line._replace(slow=np.zeros((2 * n, 2), dtype=np.int64), known=np.zeros(2 * n))
            return
        line.known[:n] = [float(text[start:end].tobytes()) for start, end in line.slow[:n].tolist()]
        self.state[VwState.KNOWN] = n

    def _take_batch(self) -> RecordBatch:
        # before super() resets the number of rows
        weights = self.records.row_weight[: int(self.state[State.ROWS])]
        batch = super()._take_batch()
        self.progress.weighted |= bool(np.any(weights != 1))
        return replace(batch, weights=weights)

    def _reason(self, code: int, text: Bytes, position: int) -> str:
        found = _TOKEN.match(text[position : position + 4096].tobytes())
        self.state[VwState.KNOWN] = 0
        last = int(self.state[State.LAST_INDEX])
        return explain(Code(code), found.group() if found else b"", last, self.options)


def explain(code: Code, token: bytes, index: int, options: VwReadOptions) -> str:
    """Return the token and the rule it breaks, for a message after ``FILE:LINE: ``; `index` is the last column."""
    largest = "float64" if options.float64 else "float32"
    if code == Code.SUM:
        return f"column {index}: the sum of its values does not fit into {largest}"
    if code == Code.RETURN:
        return "a carriage return inside the line"
    _, _, value = token.partition(b":")
    rules = {
        Code.NO_BAR: "the line has no | before its features",
        Code.TAB: "a tab before the first |, where Vowpal Wabbit drops what is before it; write a space",
        Code.HEAD: "only label, importance, base and tag may stand before the first |",
        Code.SEVERAL_LABELS: SEVERAL_LABELS,
        Code.REPEATED_LABEL: "a label is given twice",
        Code.NO_LABEL: f"the row has no label (what touches the | is a tag); files {UNLABELLED}",
        Code.UNWANTED_LABEL: "a label, in a file that was declared to have none",
        Code.WEIGHT: "an importance must be a number from 0 on that fits into float32",
        Code.NAMESPACE: "a scale needs a namespace before it",
        Code.OTHER_NAMESPACE: f"names are column numbers, of the namespace {quoted(b'|' + options.namespace)} only; "
        f"{_HASH_REMEDY}",
        Code.NAME: f"names are column numbers here; {_HASH_REMEDY}",
        Code.LARGE_INDEX: f"a column number must not exceed {MAX_INDEX}; {_HASH_REMEDY}",
        Code.OVERFLOW: f"the value does not fit into {largest}",
    }
    if code == Code.LABEL:
        return f"{quoted(token)}: {label_rule(token)}"
    if code == Code.BASE:
        return f"{quoted(token)}: {number_rule(token, 'a base')}"
    if code == Code.SCALE:
        return f"{quoted(token)}: {number_rule(value, 'the scale of a namespace')}"
    if code == Code.VALUE:
        return f"{quoted(token)}: {number_rule(value, 'a value')}"
    return f"{quoted(token)}: {rules[code]}"


def _tags(_options: VwReadOptions) -> LineIds:
    return tag_of


VW_READER = TextReader(VwParser, _tags)
