"""Speed of the kernels on one core, in million non-zeros per second, compared with the memory bandwidth.

    python benchmarks/speed/kernels.py [--tiny] [--kernels sdca] [--k 2] [--data DATASET]
        [--repeats N] [--out FILE.json]

Times are CPU times of the thread, which a busy machine distorts less (cache and memory are still shared: read
ratios within a run). Rates are medians over the repeats; `compile_seconds` is the additional time of the first
call: run with NUMBA_CACHE_DIR at an empty folder to measure a cold start.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.dataset import open_dataset
from distls.storage.rows import CsrRows, DenseRows, concatenate_rows, take_rows
from distls.workers.dual_ascent.ascent_kernels import AscentSettings, Totals, ascend_rows
from distls.workers.evaluation.loss_sums import add_gradient, evaluate_rows
from distls.workers.linear_algebra import score_kernels as linear
from distls.workers.losses.loss_registry import LOSSES, binary_form, loss_named, losses_with
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.stochastic.sgd_kernels import SgdSettings, new_clock, sgd_block

NO_WEIGHT = np.empty(0)
NO_CLASSES = np.empty(0, np.int32)
N_FEATURES = 47_236  # RCV1
BLOCK_ROWS = 30_000  # about 16 MiB decoded: rows are shuffled within a partition, as in a fit
RUN_ROWS = 16  # of dual ascent
ALPHA = 1e-5
OVR_DUALS = ("ovr_log", "ovr_hinge", "ovr_squared_hinge")
_PASSES_BEFORE = 5  # of "sdca late": most duals of hinges are at rest then


class Case(NamedTuple):
    """One line of the table."""

    kernel: str
    layout: str
    k: int
    dtype: str
    loss: str


class Block(NamedTuple):
    """Rows with classes and an order to visit them in."""

    rows: Any
    y: NDArray[np.int32]
    order: NDArray[np.int64]
    n_features: int
    nnz: int


def text_block(n: int, k: int, d: int = N_FEATURES) -> Block:
    """Rows like RCV1: about 90 Zipf columns, a quarter from the class's own vocabulary; unit length."""
    rng = np.random.default_rng(k)
    cdf = np.cumsum(1.0 / np.arange(1, d + 1))
    y = rng.integers(0, k, n)
    columns = np.minimum(np.searchsorted(cdf / cdf[-1], rng.random((n, 110))), d - 1)
    shift = rng.integers(0, d, k)[y][:, None]  # a class's vocabulary is a rotation of the shared one
    columns = np.where(rng.random(columns.shape) < 0.25, (columns * 7919 + shift) % d, columns)
    columns.sort(axis=1)
    first = np.diff(columns, axis=1, prepend=-1) > 0
    indptr = np.concatenate([[0], np.cumsum(first.sum(axis=1))]).astype(np.int64)
    data = 1.0 + np.log(rng.geometric(0.6, indptr[-1]))
    data /= np.repeat(np.sqrt(np.add.reduceat(data**2, indptr[:-1])), np.diff(indptr))
    rows = CsrRows(indptr, columns[first].astype(np.uint16), data.astype(np.float32))
    return Block(rows, y.astype(np.int32), _order(n, rng), d, len(data))


def image_block(n: int, k: int, d: int = 784) -> Block:
    """Dense rows like MNIST: a fifth of the pixels, in runs, are non-zero."""
    rng = np.random.default_rng(d)
    y = rng.integers(0, k, n)
    ink = rng.random((n, d // 8)) + 0.4 * rng.random((k, d // 8))[y] > 0.96
    values = np.repeat(ink, 8, axis=1) * rng.random((n, d))
    return Block(DenseRows(values.astype(np.float32)), y.astype(np.int32), _order(n, rng), d, int((values != 0).sum()))


def _order(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    starts = range(0, n, BLOCK_ROWS)
    return np.concatenate([start + rng.permutation(min(BLOCK_ROWS, n - start)) for start in starts])


def training(case: Case, block: Block, **options: Any) -> Callable[[], object]:
    """Return one pass of MCID from zero weights."""
    settings = SgdSettings(LOSSES[case.loss], ALPHA, **options)
    u = np.zeros((block.n_features, case.k), case.dtype)
    q = np.zeros_like(u) if np.isfinite(settings.tail_from) else u[:0]

    def run() -> object:
        u.fill(0)
        q.fill(0)
        b, qb = np.zeros(case.k), np.zeros(case.k)
        return sgd_block(block.rows, block.y, NO_WEIGHT, block.order, u, q, b, qb, new_clock(), settings)

    return run


def ascending(case: Case, block: Block, passes: int = 0) -> Callable[[], object]:
    """Return a pass of dual ascent: the first from zero duals, or the one after so many passes.

    Two classes are one output.
    """
    outputs = case.k if case.k > 2 else 1
    form = loss_named(case.loss) if outputs > 1 else binary_form(loss_named(case.loss))
    settings = AscentSettings(1.0 / (ALPHA * len(block.y)), 0.0, 0.0, form)
    start = np.zeros((block.n_features, outputs), case.dtype), np.zeros((len(block.y), outputs), case.dtype)
    state = tuple(each.copy() for each in start)
    b, up, down, totals = (np.zeros(n) for n in (outputs, outputs, outputs, len(Totals())))
    starts = np.random.default_rng(0).permutation(len(block.y) // RUN_ROWS) * RUN_ROWS
    order = (starts[:, None] + np.arange(RUN_ROWS)).reshape(-1)  # as in a fit

    def climb() -> None:
        w, duals = state
        ascend_rows(
            block.rows, block.y, NO_WEIGHT, order, w, w[:0], b, duals, up, down, totals, settings
        )  # fmt: skip

    def run() -> None:
        for each, first in zip(state, start, strict=True):
            np.copyto(each, first)
        climb()

    for _ in range(passes):
        climb()
    start = tuple(each.copy() for each in state)
    return run


def evaluation(case: Case, block: Block) -> Callable[[], object]:
    """Return one read of the block with fixed weights: scores, losses, or losses and the gradient."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((block.n_features, case.k)).astype(case.dtype)
    b = np.zeros(case.k)
    if case.kernel == "scores":
        out = np.empty((len(block.y), case.k), case.dtype)
        return lambda: linear.scores(block.rows, w, b, out)
    if case.kernel == "evaluate":
        return lambda: evaluate_rows(block.rows, block.y, NO_WEIGHT, LOSSES[case.loss], w, b, NO_CLASSES)
    grad, grad_b = np.zeros(w.shape), np.zeros(case.k)
    return lambda: add_gradient(block.rows, block.y, NO_WEIGHT, LOSSES[case.loss], w, b, grad, grad_b)


def runner(case: Case, block: Block) -> Callable[[], object]:
    """Return the function to time."""
    if case.kernel == "mcid":
        return training(case, block)
    if case.kernel == "mcid tail":
        return training(case, block, tail_from=len(block.y) // 2)
    if case.kernel == "mcid r=10":
        return training(case, block, batch_size=10, fit_intercept=True)
    if case.kernel.startswith("sdca"):
        return ascending(case, block, _PASSES_BEFORE if case.kernel == "sdca late" else 0)
    return evaluation(case, block)


def cases(tiny: bool) -> list[Case]:
    """Return the lines of the table."""
    ks, types = ([4, 53], ["float32"]) if tiny else ([4, 10, 53, 1139], ["float32", "float64"])
    out = [
        Case("mcid", "csr", k, dtype, loss)
        for k in ks
        for dtype in types
        for loss in losses_with(target="class", stochastic=True)
        if k < 1000 or dtype == "float32"
    ]
    out += [Case("mcid", "dense", 10, "float32", loss) for loss in ("crammer_singer", "softmax")]
    for k in ks[:3]:
        out += [Case("mcid tail", "csr", k, "float32", loss) for loss in ("crammer_singer", "softmax")]
        out += [Case("mcid r=10", "csr", k, "float32", "crammer_singer")]
        out += [Case(kernel, "csr", k, "float32", "softmax") for kernel in ("scores", "evaluate", "gradient")]
    for k in (2, *ks[:3]):
        losses = OVR_DUALS if k == 2 else (*OVR_DUALS, "softmax", "crammer_singer")
        out += [Case(kernel, "csr", k, "float32", loss) for loss in losses for kernel in ("sdca", "sdca late")]
    return out


def measure(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return (median seconds, seconds the first call took beyond the median)."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.thread_time()
        run()
        seconds.append(time.thread_time() - start)
    typical = float(np.median(seconds[1:]))
    return typical, max(0.0, seconds[0] - typical)


def bandwidth(tiny: bool) -> float:
    """Return GB/s of summing an array much larger than the caches."""
    array = np.ones((1 << 20) if tiny else (1 << 26), np.float32)
    return array.nbytes / measure(array.sum, 5)[0] / 1e9


def stored_block(folder: str, most: int = 60_000) -> Block:
    """Return the first rows of a stored data set, which has sparse rows."""
    dataset = open_dataset(folder)
    rows, labels, left = [], [], most
    for _, part in stream(DatasetRef(folder, dataset.fingerprint, prefetch=False), range(len(dataset))):
        count = min(left, len(part.y))
        if count:
            rows.append(take_rows(part.x, np.arange(count)))  # a copy: the stream reuses its memory
            labels.append(part.y[:count].astype(np.int32))
        left -= count
    x, y = concatenate_rows(rows), np.concatenate(labels)
    return Block(x, y, _order(len(y), np.random.default_rng(0)), dataset.meta.n_features, len(x.data))


def block_of(case: Case, tiny: bool, data: str | None = None) -> Block:
    """Return the data of a case; fewer rows for many classes, for which a row costs more."""
    if data is not None:
        return stored_block(data)
    if case.layout == "dense":
        return image_block(300 if tiny else 20_000, case.k)
    return text_block(300 if tiny else {2: 150_000, 4: 150_000, 10: 120_000, 53: 60_000}.get(case.k, 6_000), case.k)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the table, write it as JSON if requested, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="300 rows: for tests that the script still works")
    parser.add_argument("--kernels", default="", help="only those whose names begin so, as in sdca")
    parser.add_argument("--data", help="the first 60,000 rows of this data set instead of generated ones")
    parser.add_argument("--k", type=int, help="only with so many classes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    report: dict[str, Any] = {"bandwidth_gb_s": bandwidth(options.tiny), "results": []}
    print(f"memory: {report['bandwidth_gb_s']:.1f} GB/s (sum of a large array)")
    print(f"{'kernel':10} {'layout':6} {'k':>5} {'dtype':8} {'loss':15} {'M nnz/s':>8} {'compile s':>10}")
    blocks: dict[tuple[str, int], Block] = {}
    chosen = [
        case for case in cases(options.tiny) if case.kernel.startswith(options.kernels) and options.k in (None, case.k)
    ]
    for case in chosen:
        key = (case.layout, case.k)
        if key not in blocks:
            blocks[key] = block_of(case, options.tiny, options.data)
        seconds, compiling = measure(runner(case, blocks[key]), options.repeats)
        rate = blocks[key].nnz / seconds / 1e6
        report["results"].append({**case._asdict(), "m_nnz_s": rate, "compile_seconds": compiling})
        name = f"{case.kernel:10} {case.layout:6} {case.k:5} {case.dtype:8} {case.loss:15}"
        print(f"{name} {rate:8.1f} {compiling:10.2f}")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return report


if __name__ == "__main__":
    main()
