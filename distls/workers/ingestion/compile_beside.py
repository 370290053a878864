"""What a first ingest compiles behind the reader of its format, compiled by a second process meanwhile.

Numba compiles on one core, and most of the seconds of a first command are kernels, the parser's above all. Those that
this process calls behind it are then in the cache, whose locks have it wait for one that is not ready: none is compiled
twice.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from distls.storage.machine import available_cores
from distls.workers.compilation.kernel_cache import is_stored
from distls.workers.ingestion.parsing.record_kernels import (
    count_entries,
    gather_dense,
    gather_pairs,
    locate_records,
    read_labels,
    sort_records,
    value_facts,
)

# gather_pairs, of sparse rows, comes last: most tables have no use for it
_KERNELS = (count_entries, read_labels, value_facts, sort_records, locate_records, gather_dense)
_PROGRAM = "from distls.workers.ingestion.compile_beside import compile_records; compile_records()"


def compiled_beside(here: bool) -> contextlib.AbstractContextManager[None]:
    """Have the kernels of row records compiled while the block runs, if it ingests `here` and has a core to spare."""
    wanted = here and not all(map(is_stored, _KERNELS))
    return beside(_PROGRAM) if wanted else contextlib.nullcontext()


@contextlib.contextmanager
def beside(program: str) -> Iterator[None]:
    """Run lines of Python that compile kernels in another process while the block runs, given a core to spare."""
    if available_cores() < 2:
        yield
        return
    # the line about compiling is this process's to say
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    changed = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "DISTLS_COMPILING_NOTICE": "0"}
    silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    other = None
    with contextlib.suppress(OSError):  # without another process, this one compiles them
        other = subprocess.Popen([sys.executable, "-c", program], **silent, env={**os.environ, **changed})
    try:
        yield
    finally:
        if other is not None:
            other.terminate()
            other.wait()


def compile_records() -> None:
    """Call each kernel with two records without values, of the types that an ingest calls it with."""
    words = np.zeros(4, dtype=np.uint32)
    row_at, offsets = np.array([0, 2, 4]), np.zeros(3, dtype=np.int64)
    buckets, extra = np.zeros(2, dtype=np.uint32), np.zeros((0, 2), dtype=np.uint32)
    count_entries(words, row_at[:-1])
    read_labels(words, row_at[:-1], 0, np.zeros(0), offsets)
    value_facts(words, row_at[:-1], 0, 1, True)
    sort_records(words, row_at, buckets, extra, np.zeros((2, 3), dtype=np.uint32), words.copy())
    locate_records(words, 0, 1, row_at)
    gather_dense(words, row_at[:-1], 0, np.zeros((2, 0), dtype=np.float32))
    gather_pairs(words, row_at[:-1], 0, 0, offsets, np.zeros(0, np.uint16), np.zeros(0, np.float32))
