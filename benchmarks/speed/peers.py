"""Comparison with Vowpal Wabbit in one run: seconds per pass, error, ingest rate, text to model.

    pip install '.[bench]'
    python -m benchmarks.speed.peers [--directory FOLDER] [--rows N] [--repeats 5] [--out FILE]

On `rcv1-4` and `rcv1-53`, both programs read shuffled rows and make passes over their own binary form of the data,
distls from its store (zstd values, the codec is printed) or from its workers' caches, Vowpal Wabbit
from its cache file, hinge against `--loss_function hinge --adaptive --invariant`, softmax against
`--loss_function logistic`; `mcid`'s losses, then those of `sgd` with its defaults, one-versus-rest hinge and softmax.
distls has two processes of one thread, Vowpal Wabbit all of its threads. Runs
alternate; a pass is the median over repeats of (time of several passes - time of one) / (several - 1), so that neither
pays for its start. Machines are noisy: read the ratios.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distls
from distls.execution.dask.local_cluster import start_local
from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.reporting.costs import round_seconds
from distls.synthetic.text_export import export_text
from distls.training.callbacks import History

VW = [sys.executable, "-m", "vowpalwabbit", "--quiet"]
BITS = {4: 18, 53: 22}  # of its hash: no two of the classes' weights share a place
HINGE = ["--loss_function", "hinge", "--adaptive", "--invariant"]
LOGISTIC = ["--loss_function", "logistic"]
ALPHAS = {"hinge": 1e-5, "log": 1e-6}
PASSES = 4  # of the longer of two runs that are subtracted
WORKERS = 2


def run_vw(*arguments: object) -> dict[str, float]:
    """Run Vowpal Wabbit; return its wall and CPU seconds, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([*VW, *map(str, arguments)], check=True, capture_output=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall": wall, "cpu": cpu}


def vw_error(model: Path, test: Path, place: Path) -> float:
    """Return a Vowpal Wabbit model's test error in %."""
    out = place / "predictions"
    run_vw("-t", "-i", model, "-d", test, "-p", out)
    wrong = total = 0
    with out.open() as predictions, test.open() as rows:
        for predicted, row in zip(predictions, rows, strict=True):
            wrong += int(float(predicted)) != int(row.split(" ", 1)[0])
            total += 1
    return 100 * wrong / total


def has_author_of_bcd() -> bool:
    """Tell whether sklearn-contrib-lightning, by an author of the paper of `bcd`, is installed."""
    return importlib.util.find_spec("lightning") is not None


def author_of_bcd(
    x: Any, y: NDArray[Any], alpha: float, *, iterations: int, tol: float = 1e-12, seed: int = 0
) -> tuple[NDArray[np.float64], float, float]:
    """Run its CDClassifier on the objective of Eq. 2; return W, wall and CPU seconds.

    Parameters
    ----------
    x : float64 scipy.sparse.csc_matrix or Fortran-ordered array of shape (n, d)
        In the layout that it uses internally, so that no copy is timed.
    y : array of shape (n,)
    alpha : float
        Its C multiplies a sum over rows, the paper's loss is a mean: C = 1/n.
    iterations : int
        The maximal number of outer iterations.
    tol : float
        It stops when violations fall to this share of the first ones.

    Returns
    -------
    weights : array of shape (d, n_classes)
    wall, cpu : float
    """
    from lightning.classification import CDClassifier

    model = CDClassifier(
        loss="squared_hinge",
        penalty="l1/l2",
        multiclass=True,
        C=1.0 / len(y),
        alpha=alpha,
        max_iter=iterations,
        tol=tol,
        random_state=seed,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(x, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return np.ascontiguousarray(model.coef_.T), wall, cpu


class VwPasses:
    """Passes of Vowpal Wabbit over its cache file."""

    def __init__(self, place: Path, name: str, classes: int, loss: list[str]) -> None:
        self._options = [
            "--oaa",
            classes,
            "-b",
            BITS[classes],
            *loss,
            "--holdout_off",
            "--cache_file",
            place / f"{name}.cache",
        ]
        self._place, self._name = place, name
        if not (place / f"{name}.cache").exists():
            run_vw("-d", place / f"{name}.vw", *self._options)

    def seconds(self) -> float:
        """Return the seconds of one pass from the cache."""
        times = [run_vw(*self._options, "--passes", n)["wall"] for n in (1, PASSES)]
        return (times[1] - times[0]) / (PASSES - 1)

    def error(self) -> float:
        """Return the test error after one pass."""
        model = self._place / f"{self._name}.model"
        run_vw("-d", self._place / f"{self._name}.vw", *self._options[:-2], "-f", model)
        return vw_error(model, self._place / f"{self._name}-test.vw", self._place)


def our_rounds(
    executor: Executor, data: Path, params: dict[str, Any], *, cached: bool, method: str = "mcid"
) -> dict[str, Any]:
    """Return the median seconds of a round after the first, its overhead, and the test errors."""
    history = History()
    budget = MemoryBudget(2048 * MIB, WORKERS, 1, cache_limit=None if cached else 0)
    # the first round fills caches and buffers; a round is a pass here
    settings: dict[str, Any] = {
        "params": {"fit_intercept": False, **params},
        "eval_every": 0,
        "executor": executor,
        "memory": budget,
    }
    result = distls.fit(method, data, passes=PASSES + 2, callbacks=[history], **settings)
    once = distls.fit(method, data, passes=1, **settings)
    read = sum(record["bytes_read"] for record in history.records[1:])
    if bool(read) == cached:
        raise RuntimeError(f"{read} bytes were read from {'caches' if cached else 'the store'}")
    seconds = [
        round_seconds(b) - round_seconds(a) for a, b in zip(history.records[1:], history.records[2:], strict=False)
    ]
    # all that the slowest worker was not busy with: scattering, scheduling, gathering, the driver's own averaging
    busy = [max(r["worker_seconds"].values()) for r in history.records[2:]]
    return {
        "seconds": statistics.median(seconds),
        "kernel": statistics.median([r["kernel_seconds"] for r in history.records[2:]]) / WORKERS,
        "overhead": 1 - statistics.median(b / s for b, s in zip(busy, seconds, strict=True)),
        "error": 100 * distls.evaluate(result.model, f"{data}-test").error,
        "first error": 100 * distls.evaluate(once.model, f"{data}-test").error,
    }


def compare_passes(
    executors: tuple[Executor, Executor], place: Path, name: str, classes: int, repeats: int
) -> list[dict[str, Any]]:
    """Alternate passes of both programs; return one row per comparison.

    The second cluster caches, the first never does: workers keep what they have cached.
    """
    rows = []
    for method, loss, options, floor in (
        ("mcid", "hinge", HINGE, 3.0),
        ("mcid", "log", LOGISTIC, 8.0),
        ("sgd", "ovr_hinge", HINGE, 1 / 0.7),
        ("sgd", "log", LOGISTIC, 5.0),
    ):
        rival = VwPasses(place, name, classes, options)
        params: dict[str, Any] = {"loss": loss}
        if method == "mcid":
            params |= {"alpha": ALPHAS[loss], "average": "none"}
        theirs, store, cache = [], [], []
        for _ in range(repeats):
            theirs.append(rival.seconds())
            store.append(our_rounds(executors[0], place / name, params, cached=False, method=method))
            cache.append(our_rounds(executors[1], place / name, params, cached=True, method=method))
        vw = statistics.median(theirs)
        for where, runs in (("store", store), ("cache", cache)):
            ours = statistics.median(r["seconds"] for r in runs)
            rows.append(
                {
                    "data": name,
                    "method": method,
                    "loss": loss,
                    "from": where,
                    "distls s/pass": ours,
                    "vw s/pass": vw,
                    "ratio": vw / ours,
                    "overhead": statistics.median(r["overhead"] for r in runs),
                    "distls error %": runs[0]["error"],
                    "distls passes": PASSES + 2,
                    "distls error % (1 pass)": runs[0]["first error"],
                    "vw error % (1 pass)": rival.error() if where == "store" else None,
                    "asked": floor if where == "store" else (6.0 if (method, loss) == ("mcid", "hinge") else None),
                }
            )
            _print_pass(rows[-1])
    return rows


def _print_pass(row: dict[str, Any]) -> None:
    theirs = row["vw error % (1 pass)"]
    print(
        f"{row['data']:8} {row['method']:4} {row['loss']:9} from {row['from']:6} "
        f"distls {row['distls s/pass']:.3f} s  vw {row['vw s/pass']:.3f} s  "
        f"{row['ratio']:5.1f} times faster  overhead {100 * row['overhead']:.0f} %  "
        f"error {row['distls error %']:.2f} %, after one pass {row['distls error % (1 pass)']:.2f} % "
        + (f"(vw, one pass, {theirs:.2f} %)" if theirs is not None else ""),
        flush=True,
    )


def compare_ingest(place: Path, written: Path, name: str, repeats: int) -> dict[str, Any]:
    """Return MB of text per CPU second: distls from text to a shuffled, compressed dataset; vw parsing alone."""
    text, rival = place / f"{name}.svm", place / f"{name}.vw"
    ours, theirs, walls = [], [], []
    # neither pays for its start: the rival's interpreter, our kernels
    start = run_vw("--noop", "-d", os.devnull)["cpu"]
    distls.ingest(str(place / f"{name}-test.svm"), written / "first", n_features=47_236)
    for turn in range(repeats):
        theirs.append(rival.stat().st_size / (run_vw("--noop", "-d", rival)["cpu"] - start) / 1e6)
        started, cpu = time.perf_counter(), time.process_time()
        distls.ingest(str(text), written / f"ingested-{turn}", n_features=47_236)
        walls.append(text.stat().st_size / (time.perf_counter() - started) / 1e6)
        ours.append(text.stat().st_size / (time.process_time() - cpu) / 1e6)
        subprocess.run(["rm", "-rf", str(written / f"ingested-{turn}")], check=True)
    row = {
        "distls MB/CPU s": statistics.median(ours),
        "distls MB/s, one process": statistics.median(walls),
        "vw --noop MB/CPU s": statistics.median(theirs),
    }
    row["ratio"] = row["distls MB/CPU s"] / row["vw --noop MB/CPU s"]
    print(f"ingest {name}: " + "  ".join(f"{k} {v:.2f}" for k, v in row.items()), flush=True)
    return row


def compare_text_to_model(place: Path, written: Path, name: str, classes: int, repeats: int) -> dict[str, Any]:
    """Return wall seconds from text to a model after one pass: a Python program, and two command lines.

    The time is that of the whole interpreter, including cluster and imports; the command lines start two clusters,
    the program one.
    """
    ours, program, theirs = [], [], []
    rival = ["--oaa", classes, *HINGE, "-b", BITS[classes], "-d", place / f"{name}.vw", "-f", written / "t2m.model"]
    for turn in range(repeats):
        theirs.append(run_vw(*rival)["wall"])
        data, run = written / f"t2m-{turn}", written / f"t2m-{turn}-run"
        started = time.perf_counter()
        _distls("ingest", place / f"{name}.svm", data, "--workers", WORKERS, "--n-features", 47_236)
        lanes = min(WORKERS, len(distls.open_dataset(data)))
        params = ("-p", "loss=hinge", "-p", "alpha=1e-6", "-p", "fit_intercept=false", "-p", f"lanes={lanes}")
        limits = ("--passes", 1, "--eval-every", 0, "--workers", WORKERS)
        _distls("fit", "mcid", data, run, *params, *limits)
        ours.append(time.perf_counter() - started)
        started = time.perf_counter()
        arguments = [str(place / f"{name}.svm"), str(written / f"t2p-{turn}"), str(WORKERS)]
        subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True)
        program.append(time.perf_counter() - started)
    row = {
        "distls wall s": statistics.median(program),
        "two command lines, wall s": statistics.median(ours),
        "vw wall s": statistics.median(theirs),
        "distls error %": 100 * distls.evaluate(run, f"{place / name}-test").error,
        "vw error %": vw_error(written / "t2m.model", place / f"{name}-test.vw", written),
    }
    row["ratio"] = row["distls wall s"] / row["vw wall s"]
    print(f"text to model {name}: " + "  ".join(f"{k} {v:.2f}" for k, v in row.items()), flush=True)
    return row


def _distls(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "distls", *map(str, arguments), "--quiet"], check=True, capture_output=True)


PROGRAM = """
import sys
import distls
from distls.execution import ClusterOptions, open_executor
from distls.execution.memory_budget import MIB

if __name__ == "__main__":
    text, data, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    cluster, memory = open_executor(ClusterOptions(workers=workers, memory_limit=2048 * MIB))
    distls.ingest(text, data, n_features=47_236, executor=cluster)
    lanes = min(workers, len(distls.open_dataset(data)))
    params = {"loss": "hinge", "alpha": 1e-6, "lanes": lanes, "fit_intercept": False}
    distls.fit("mcid", data, data + "-run", params=params, passes=1, eval_every=0, executor=cluster, memory=memory)
    cluster.close()
"""


def prepare(place: Path, name: str, rows: int | None) -> None:
    """Generate a dataset and its text forms, unless they exist."""
    if not (place / name).exists():
        distls.generate(name, place / name, rows=rows)
    for part in ("", "-test"):
        for style, ending in (("svmlight", "svm"), ("vw", "vw")):
            target = place / f"{name}{part}.{ending}"
            if not target.exists():
                export_text(place / f"{name}{part}", target, style=style)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the requested comparisons, print them, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--rows", type=int, help="training rows; default the paper's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="passes,ingest,text")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="distls-peers-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        # what is written is not what an earlier run in the same directory has left
        with tempfile.TemporaryDirectory(dir=place) as written:
            results = _compare(place, Path(written), options)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


def _compare(place: Path, written: Path, options: argparse.Namespace) -> dict[str, Any]:
    wanted = options.only.split(",")
    results: dict[str, Any] = {"cpus": os.cpu_count(), "load": os.getloadavg()}
    for name in ("rcv1-4", "rcv1-53"):
        prepare(place, name, options.rows)
    codecs = distls.open_dataset(place / "rcv1-4").meta.codecs
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; codecs {codecs}", flush=True)
    if "passes" in wanted:
        executors = start_local(WORKERS), start_local(WORKERS)
        try:
            results["passes"] = compare_passes(executors, place, "rcv1-4", 4, options.repeats)
        finally:
            for executor in executors:
                executor.close()
    if "overhead" in wanted or "passes" in wanted:
        results["overhead"] = _overhead(place)
    if "ingest" in wanted:
        results["ingest"] = compare_ingest(place, written, "rcv1-4", max(1, options.repeats // 2))
    if "text" in wanted:
        results["text"] = compare_text_to_model(place, written, "rcv1-53", 53, max(1, options.repeats // 2))
    return results


def _overhead(place: Path) -> list[dict[str, Any]]:
    """Return the share of driver and scheduler in a round at 53 classes."""
    rows = []
    for cached in (False, True):
        executor = start_local(WORKERS)
        try:
            rows += [_overhead_of(executor, place, loss, cached=cached) for loss in ("hinge", "log")]
        finally:
            executor.close()
    return rows


def _overhead_of(executor: Executor, place: Path, loss: str, *, cached: bool) -> dict[str, Any]:
    params = {"loss": loss, "alpha": ALPHAS[loss], "average": "none"}
    row = our_rounds(executor, place / "rcv1-53", params, cached=cached)
    print(
        f"rcv1-53  {loss:6} from {'cache' if cached else 'store'}  {row['seconds']:.3f} s per pass, kernels "
        f"{row['kernel']:.3f} s, overhead {100 * row['overhead']:.0f} %, error {row['error']:.2f} %",
        flush=True,
    )
    return {"loss": loss, "cached": cached, **row}


if __name__ == "__main__":
    main()
