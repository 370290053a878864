"""Train one competing system on svmlight or Vowpal Wabbit text, as a separate process; print its cost as JSON.

    python -m benchmarks.quality.rivals '{"rival": "LinearSVC", "train": "a.svm", "strength": 1.0, ...}'

`benchmarks.quality.systems` starts these processes. `load` is the time from text to the system's training format,
`train` that of the training, both in wall seconds. `cpu` covers the process and its children, including start-up and
evaluation; so does `peak`, the sum of their resident peaks, which counts shared memory several times. `strength` is C
if the system has it, else alpha; `passes` limits those that make passes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = 2


@dataclass(frozen=True)
class Task:
    """The job of a competing system; the fields of the JSON argument."""

    rival: str
    train: str
    test: str
    n_features: int
    n_classes: int
    strength: float
    passes: int
    place: str


@dataclass(frozen=True)
class Cost:
    """Wall seconds, test error in %, and peak bytes and CPU seconds of its child processes."""

    load: float
    train: float
    error: float
    others: tuple[int, float] = (0, 0.0)


def _arrays(task: Task) -> tuple[Any, np.ndarray, Any, np.ndarray, float]:
    """Load both text files; return X, y, test X, test y, and the seconds for the training file."""
    started = time.perf_counter()
    x, y = _load(task.train, task.n_features)
    seconds = time.perf_counter() - started
    return x, y, *_load(task.test, task.n_features), seconds


def _load(path: str, n_features: int) -> tuple[Any, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    x, y = load_svmlight_file(path, n_features=n_features, dtype=np.float32, zero_based=False)
    # LIBLINEAR and others require this
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    return x, y


def _sklearn(make: Callable[[Task, int], Any]) -> Callable[[Task], Cost]:
    """Return the runner of a scikit-learn classifier; `make` gets the number of rows too."""

    def run(task: Task) -> Cost:
        x, y, test_x, test_y, load = _arrays(task)
        model = make(task, len(y))
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not all converge in the iterations they are given
            model.fit(x, y)
        train = time.perf_counter() - started
        return Cost(load, train, 100 * float(np.mean(model.predict(test_x) != test_y)))

    return run


def _linear_svc(task: Task, n_rows: int) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(C=task.strength, dual=True, max_iter=300)


def _crammer_singer(task: Task, n_rows: int) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(C=task.strength, multi_class="crammer_singer", max_iter=300)


def _logistic(task: Task, n_rows: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=task.strength, max_iter=100)


def _sgd(task: Task, n_rows: int) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(
        alpha=task.strength, average=True, max_iter=task.passes, tol=None, n_jobs=WORKERS, random_state=0
    )


def _dask_ml(task: Task) -> Cost:
    """`Incremental` of scikit-learn's SGDClassifier, dask-ml's way to several classes out of core."""
    import dask.array as da
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier

    x, y, test_x, test_y, load = _arrays(task)
    rows = 20_000
    blocks = [x[i : i + rows] for i in range(0, len(y), rows)]
    lazy = da.concatenate([da.from_array(block, chunks=block.shape, asarray=False) for block in blocks])
    labels = da.from_array(y, chunks=rows)
    model = Incremental(SGDClassifier(alpha=task.strength, average=True, random_state=0), shuffle_blocks=False)
    started = time.perf_counter()
    for _ in range(task.passes):
        model.partial_fit(lazy, labels, classes=np.unique(y))
    train = time.perf_counter() - started
    return Cost(load, train, 100 * float(np.mean(model.estimator_.predict(test_x) != test_y)))


def _spark(task: Task) -> Cost:
    """MLlib's multinomial logistic regression, local mode."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(f"local[{WORKERS}]")
        .config("spark.driver.memory", "12g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    try:
        reader = session.read.format("libsvm").option("numFeatures", str(task.n_features))
        started = time.perf_counter()
        rows = reader.load(task.train).cache()
        n_rows = rows.count()
        load = time.perf_counter() - started
        started = time.perf_counter()
        strength = 1 / (task.strength * n_rows)
        model = LogisticRegression(
            regParam=strength, maxIter=task.passes, standardization=False, family="multinomial"
        ).fit(rows)
        train = time.perf_counter() - started
        found = model.transform(reader.load(task.test)).select("label", "prediction").toPandas()
        return Cost(load, train, 100 * float((found.label != found.prediction).mean()), _others())
    finally:
        session.stop()


def _others() -> tuple[int, float]:
    """Return the resident peaks and the CPU seconds of all processes that this one has started and that still run."""
    import psutil

    family = psutil.Process().children(recursive=True)
    times = [process.cpu_times() for process in family]
    return sum(_high_water(process.pid) for process in family), sum(t.user + t.system for t in times)


def _high_water(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _vw(*options: str) -> Callable[[Task], Cost]:
    """Return the runner of Vowpal Wabbit: text is parsed in the first pass, later ones read its cache file."""

    def run(task: Task) -> Cost:
        bits = max(18, int(np.ceil(np.log2(task.n_features * task.n_classes))))
        place = Path(task.place)
        command = [sys.executable, "-m", "vowpalwabbit", "--quiet", "-b", str(bits), *options]
        train = [*command, "--oaa", str(task.n_classes), "-d", _as_vw(task.train), "-f", str(place / "model")]
        if task.passes > 1:
            train += ["--passes", str(task.passes), "--holdout_off", "-k", "--cache_file", str(place / "cache")]
        started = time.perf_counter()
        subprocess.run(train, check=True, capture_output=True)
        seconds = time.perf_counter() - started
        # in KiB; the largest child
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        scored = ["-t", "-i", str(place / "model"), "-d", _as_vw(task.test), "-p", str(place / "predictions")]
        subprocess.run([*command[:4], *scored], check=True, capture_output=True)
        predicted = np.loadtxt(place / "predictions")
        lines = Path(_as_vw(task.test)).read_text().splitlines()
        labels = [float(line.split(" ", 1)[0]) for line in lines]
        return Cost(0.0, seconds, 100 * float(np.mean(predicted != np.array(labels))), (peak, 0.0))

    return run


def _as_vw(path: str) -> str:
    return str(Path(path).with_suffix(".vw"))


def _distls(method: str, loss: str | None) -> Callable[[Task], Cost]:
    """Return the runner of a method with two worker processes, from text; `sgd` has its defaults but for the loss."""

    def run(task: Task) -> Cost:
        import distls
        from distls.execution import ClusterOptions, open_executor

        data = Path(task.place) / "data"
        started = time.perf_counter()
        # several partitions, so that both workers have work
        size = min(16 * 2**20, max(2**16, os.path.getsize(task.train) // 16))
        executor, memory = open_executor(ClusterOptions(workers=WORKERS, memory_limit=2**31))
        try:
            distls.ingest(task.train, data, n_features=task.n_features, partition_size=size, executor=executor)
            load = time.perf_counter() - started
            started = time.perf_counter()
            strength = {} if method == "sgd" else {"alpha": task.strength}
            result = distls.fit(
                method,
                data,
                params={"loss": loss, **strength},
                passes=task.passes,
                eval_every=0,
                executor=executor,
                memory=memory,
            )
            train = time.perf_counter() - started
            others = _others()
        finally:
            executor.close()
        distls.ingest(task.test, Path(task.place) / "test", like=data)
        error = distls.evaluate(result.model, Path(task.place) / "test", unknown_labels="count").error
        return Cost(load, train, 100 * error, others)

    return run


RIVALS: dict[str, Callable[[Task], Cost]] = {
    "distls mcid hinge": _distls("mcid", "hinge"),
    "distls mcid log": _distls("mcid", "log"),
    "distls sgd": _distls("sgd", None),
    "distls sgd log": _distls("sgd", "log"),
    "distls sgd hinge": _distls("sgd", "hinge"),
    "VW hinge": _vw("--loss_function", "hinge", "--adaptive", "--invariant"),
    "VW logistic": _vw("--loss_function", "logistic"),
    "SGDClassifier": _sklearn(_sgd),
    "LinearSVC": _sklearn(_linear_svc),
    "LinearSVC Crammer-Singer": _sklearn(_crammer_singer),
    "LogisticRegression": _sklearn(_logistic),
    "dask-ml Incremental": _dask_ml,
    "Spark MLlib": _spark,
}


def main(argument: str) -> dict[str, float]:
    """Run one rival; print and return its cost."""
    task = Task(**json.loads(argument))
    Path(task.place).mkdir(parents=True, exist_ok=True)
    try:
        cost = RIVALS[task.rival](task)
    finally:
        shutil.rmtree(task.place, ignore_errors=True)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    row = {
        "load": cost.load,
        "train": cost.train,
        "cpu": sum(each.ru_utime + each.ru_stime for each in usage) + cost.others[1],
        "peak": _high_water(os.getpid()) + cost.others[0],
        "error": cost.error,
    }
    print(json.dumps(row))
    return row


if __name__ == "__main__":
    main(sys.argv[1])
