"""Speed of Gram matrices of random Fourier features, compared with bare `syrk` calls of the same type and size.

    python benchmarks/speed/gram.py [--tiny] [--processes N] [--repeats N] [--widths M,M,...]
        [--sparse] [--out FILE.json]

Each of N single-threaded processes (two by default) alternates between bare calls of `ssyrk` on precomputed features,
4096 rows at a time, into an existing matrix, and the work of a task: generating the features of those rows and summing
their products in float32 and then in float64. Both count as n m^2 operations. Rates are by CPU time, medians over the
repeats; read ratios within a run, since a core that is shared with others has less cache. With --sparse: both ways to
the Gram matrix of sparse rows, by density.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.linalg import blas

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.features.design import Design, Projection, blocks
from distls.workers.linear_algebra.gram import GramSum
from distls.workers.linear_algebra.gram_kernels import add_gram_csr, count_pairs
from distls.workers.linear_algebra.packed_triangle import order_of, packed_size
from distls.workers.runtime.process import peak_rss, resident_bytes, single_threaded_blas

FLOAT32 = np.dtype(np.float32)
SYRK_ROWS = 4096
# Name, width of rows, principal components.
KINDS = (("50 features", 50, None), ("784 features, PCA to 50", 784, 50))


def rows_of(n: int, n_features: int) -> DenseRows:
    """Return random rows whose squared norm is about 1."""
    values = np.random.default_rng(n_features).standard_normal((n, n_features), dtype=np.float32)
    return DenseRows(values / np.float32(np.sqrt(n_features)))


def design_of_width(m: int, n_features: int, pca: int | None) -> Design:
    """Return a block of m random Fourier features."""
    projection = None
    if pca is not None:
        components = np.linalg.qr(np.random.default_rng(0).standard_normal((n_features, pca)))[0]
        projection = Projection(np.zeros(n_features), components)
    return Design("fourier", m, seed=1, bandwidth=1.0, projection=projection, n_features=n_features)


def bare(features: NDArray[np.float32], n: int) -> Callable[[], None]:
    """Return syrk calls over n rows; `features` is one block of them, used repeatedly."""
    product = np.zeros((features.shape[1], features.shape[1]), np.float32)

    def run() -> None:
        for first in range(0, n, len(features)):
            piece = features[: n - first]
            blas.ssyrk(1.0, piece.T, beta=0.0, c=product.T, overwrite_c=1, lower=1)

    return run


def fused(design: Design, x: DenseRows, gram: NDArray[np.float64]) -> Callable[[], None]:
    """Return the accumulation done by a task."""

    def run() -> None:
        pending = GramSum(gram)
        for _, piece in blocks(design, x, FLOAT32):
            pending.add(piece)
        pending.flush()

    return run


def measure_pair(first: Callable[[], None], second: Callable[[], None], repeats: int) -> list[float]:
    """Return the median CPU seconds of each, called in turns."""
    seconds: list[list[float]] = [[], []]
    for run in (first, second):
        run()
    for _ in range(repeats):
        for place, run in enumerate((first, second)):
            start = time.thread_time()
            run()
            seconds[place].append(time.thread_time() - start)
    return [float(np.median(own)) for own in seconds]


def measure(task: tuple[str, int, int | None, int, int, int]) -> dict[str, Any]:
    """Measure one line of the table in this process."""
    name, n_features, pca, m, n, repeats = task
    x, design = rows_of(n, n_features), design_of_width(m, n_features, pca)
    ready = np.concatenate(
        [piece.values.copy() for _, piece in blocks(design, DenseRows(x.values[:SYRK_ROWS]), FLOAT32)]
    )
    gram = np.zeros(packed_size(m))
    with single_threaded_blas():
        before = resident_bytes()
        seconds = measure_pair(bare(ready, n), fused(design, x, gram), repeats)
    rates = [n * m * m / own / 1e9 for own in seconds]
    grown = max(0, peak_rss() - before)
    return {"rows": name, "m": m, "syrk_gflops": rates[0], "fused_gflops": rates[1], "grown_bytes": grown}


def fourier_table(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all lines, each in all processes at once."""
    widths = [int(m) for m in options.widths.split(",")]
    if options.tiny:
        widths = [64]
    results = []
    print(f"{'rows':24} {'m':>5} {'syrk':>7} {'fused':>7} {'ratio':>6}   (10^9 n m^2 / s, a process)")
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for name, n_features, pca in KINDS:
            for m in widths:
                n = 600 if options.tiny else 4 * SYRK_ROWS
                tasks = [(name, n_features, pca, m, n, options.repeats)] * options.processes
                found = pool.map(measure, tasks, chunksize=1)
                row = {**found[0], **{key: float(np.mean([own[key] for own in found])) for key in _RATES}}
                row["ratio"] = row["fused_gflops"] / row["syrk_gflops"]
                results.append(row)
                print(f"{name:24} {m:5} {row['syrk_gflops']:7.1f} {row['fused_gflops']:7.1f} {row['ratio']:6.3f}")
    return results


_RATES = ("syrk_gflops", "fused_gflops")


def sparse_table(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the two ways to the Gram matrix of sparse rows: products of non-zeros, and dense rows."""
    results = []
    print(f"{'m':>5} {'non-zeros per row':>17} {'pairs s':>9} {'dense s':>9} {'break-even cost':>15}")
    for m in (64,) if options.tiny else (500, 1000, 2000, 4000):
        for per_row in (2, 8) if options.tiny else (4, 10, 25, 50, 100, 200):
            n = 200 if options.tiny else 3000
            drawn = sp.random(n, m, per_row / m, "csr", np.float32, random_state=np.random.default_rng(0))
            drawn.sort_indices()
            x = CsrRows(drawn.indptr.astype(np.int64), drawn.indices.astype(np.uint16), drawn.data)
            gram = np.zeros(packed_size(m))
            pairs, dense = _sparse_pair(x, gram, options.repeats)
            cost = (pairs / count_pairs(x.indptr)) / (dense / (n * m * m))
            results.append({"m": m, "per_row": per_row, "pairs_s": pairs, "dense_s": dense, "break_even": cost})
            print(f"{m:5} {per_row:17} {pairs:9.5f} {dense:9.5f} {cost:15.0f}")
    return results


def _sparse_pair(x: CsrRows, gram: NDArray[np.float64], repeats: int) -> list[float]:
    def products() -> None:
        add_gram_csr(x.indptr, x.indices, x.data, np.empty(0), order_of(gram), gram)

    def filled() -> None:
        pending = GramSum(gram)
        pending._add_filled(x, None)
        pending.flush()

    with single_threaded_blas():
        return measure_pair(products, filled, repeats)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the tables, write them as JSON if requested, and return them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few rows: for tests that the script still works")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--widths", default="1024,2048,4096")
    parser.add_argument("--sparse", action="store_true", help="the two ways for sparse rows instead")
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    report = {"sparse": sparse_table(options)} if options.sparse else {"fourier": fourier_table(options)}
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return report


if __name__ == "__main__":
    main()
