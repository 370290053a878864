"""What the parsers of text by a kernel share: buffers of records, the kernel's state, refused lines."""

from typing import Any

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.workers.ingestion.parsing.array_types import Bytes, Ints, UInts
from distls.workers.ingestion.parsing.record_kernels import Records
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.svmlight_kernels import State, line_end
from distls.workers.ingestion.parsing.text_blocks import TextBlock
from distls.workers.ingestion.records.record_batch import ReadRun

_BATCH_WORDS = 16 * 2**20


class KernelParser:
    """Parses the blocks of one item, in order, and keeps the progress up to date.

    The first entries of the kernel's state, of `state_size` in all, are those of `State` in every format.
    """

    def __init__(self, run: ReadRun[Any], state_size: int, n_words: int = 0) -> None:
        self.options: Any = run.options
        self.progress, self.n_extra, self.pool = run.progress, run.n_extra, run.pool
        self.records = records_in(run.pool, n_words or _BATCH_WORDS)
        self.label_words: dict[float, str] = {}
        self.state = np.zeros(state_size, dtype=np.int64)
        # Line numbers go on where an earlier attempt has stopped.
        self.state[State.LINE] = self.progress.lines

    def begin_block(self, block: TextBlock) -> bytes:
        """Go to the block's first line, behind a byte order mark; of the file's first block return the beginning."""
        self.state[State.POSITION] = 0
        if not block.starts_file:
            return b""
        start = block.text[: min(block.size, 4096)].tobytes()
        self.state[State.POSITION] = 3 * start.startswith(BYTE_ORDER_MARK)
        return start.removeprefix(BYTE_ORDER_MARK)

    def skip_line(self, text: Bytes) -> None:
        """Go to the next line."""
        self.state[State.POSITION] = line_end(text, int(self.state[State.POSITION])) + 1
        self.state[State.LINE] += 1

    def refuse(self, text: Bytes, reason: str) -> None:
        """Count a refused line, and go to the next one, where the kernel starts anew."""
        self.progress.skip(int(self.state[State.LINE]), reason)
        self.skip_line(text)

    def take_records(self) -> tuple[UInts, Ints, Any]:
        """Return the rows that were parsed since the last call: words, first words and the end, and lines."""
        n_rows, n_words = self.state[[State.ROWS, State.WORDS]].tolist()
        self.state[[State.ROWS, State.WORDS]] = 0
        # The end of the last record closes the table.
        self.records.row_at[n_rows] = n_words
        return self.records.words[:n_words], self.records.row_at[: n_rows + 1], self.records.row_line[:n_rows]


def records_in(pool: BufferPool, n_words: int) -> Records:
    """Return buffers for records of `n_words` words, from `pool`."""
    words = pool.take("words", 4 * n_words).view(np.uint32)
    return Records(
        words=words,
        floats=words.view(np.float32),
        # sized for the shortest records, as untouched pages cost nothing
        row_at=pool.take("row_at", 4 * n_words + 16).view(np.int64),
        row_line=pool.take("row_line", 2 * n_words + 8).view(np.int32),
        row_weight=pool.take("row_weight", 2 * n_words + 8).view(np.float32),
    )
