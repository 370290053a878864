"""Beyond memory: the measured peaks of two workers and of the driver, against the limit and the plan."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import SECONDS, labelled_rows, workers_of, write_dataset

from distls import generate, open_dataset
from distls.execution.memory_budget import parse_bytes
from distls.memory_plan import BASE_BYTES

LIMIT = "280MiB"
OPTIONS = ("-p", "loss=hinge", "--passes", "2", "--workers", "2", "--memory-limit", LIMIT)


def high_water(pid):
    """Return the highest resident size a process has had, 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


class Watched:
    """A `distls` command whose processes' peaks are sampled from outside."""

    def __init__(self, *arguments):
        self.driver, self.workers = 0, dict[int, int]()
        command = [sys.executable, "-m", "distls", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        try:
            self.out, self.error = self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
            watcher.join()
        self.code = self._process.returncode

    def _watch(self):
        while self._process.poll() is None:
            self.driver = max(self.driver, high_water(self._process.pid))
            for worker in workers_of(self._process.pid):
                self.workers[worker.pid] = max(self.workers.get(worker.pid, 0), high_water(worker.pid))
            time.sleep(0.05)


def check_peaks(workers, plan):
    """No worker takes more than planned, and one at least half of it: a busy machine may leave the other waiting."""
    peaks = [peak / plan["worker_bytes"] for peak in workers.values()]
    assert 0.5 <= max(peaks) <= 1.0, f"{peaks} of {plan['worker_parts']}"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """300,000 documents: 160 MiB decoded."""
    path = tmp_path_factory.mktemp("large") / "train"
    generate("rcv1-4", path, rows=300_000, partition_size=4 * 2**20, compress="none")
    return path


@pytest.fixture(scope="module")
def plan(large):
    made = Watched("plan", "mcid", large, *OPTIONS, "--json", "--no-probe")
    assert made.code == 0, made.error
    return dict(json.loads(made.out))


@pytest.mark.slow
def test_peaks_stay_below_the_limit_and_near_the_plan(large, plan, tmp_path):
    limit = parse_bytes(LIMIT)
    assert plan["worker_limit"] == limit
    assert 0 < plan["cached_fraction"] < 0.8, "the test is about data that the caches cannot hold"
    fitted = Watched("fit", "mcid", large, tmp_path / "run", *OPTIONS, "--quiet")
    assert (fitted.code, fitted.error) == (0, "")
    assert len(fitted.workers) == 2, "no worker was ended for its memory"
    assert max(fitted.workers.values()) < limit
    check_peaks(fitted.workers, plan)
    assert 0 < fitted.driver < plan["driver_bytes"], f"{fitted.driver / 2**20:.0f} MiB"
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    reported = sorted(events[-1]["worker_peaks"].values())
    assert len(reported) == 2
    assert max(reported) <= max(fitted.workers.values())
    stored = open_dataset(large).stored_bytes.sum()
    assert all(0.2 * stored < event["bytes_read"] for event in events), "read from the store in every round"
    assert events[1]["cached_bytes"] > 0


def test_what_the_plan_refuses_is_refused_at_once(large, tmp_path):
    refused = Watched("fit", "mcid", large, tmp_path / "run", *OPTIONS[:-1], "150MiB")
    assert (refused.code, refused.out, refused.workers) == (1, "", {})
    assert refused.error.startswith(f"distls: {large}: a worker needs ")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_columns_stay_below_the_limit(large, tmp_path):
    train, limit = tmp_path / "train", parse_bytes(LIMIT)
    shutil.copytree(large, train, copy_function=os.link)
    made = Watched("columns", train, "--shard-size", "4MiB", "--workers", 2, "--memory-limit", LIMIT, "--quiet")
    assert (made.code, made.error) == (0, "")
    assert len(made.workers) == 2, "no worker was ended for its memory"
    assert all(peak < limit for peak in made.workers.values()), made.workers
    assert 0 < made.driver < limit
    assert open_dataset(train).decoded_bytes.sum() > 2 * (limit - BASE_BYTES), "the test is about more"


@pytest.mark.slow
def test_descent_over_shards_stays_below_the_plan(large, tmp_path):
    train = tmp_path / "train"
    shutil.copytree(large, train, copy_function=os.link)
    assert Watched("columns", train, "--shard-size", "4MiB", "--workers", 2, "--quiet").code == 0
    asked = ["-p", "dtype=float32", "-p", "alpha=1e-4", "-p", "active_mib=1", "--passes", "3", "--workers", 2]
    limit = ["--memory-limit", "380MiB"]
    plan = json.loads(Watched("plan", "bcd", train, *asked, *limit, "--json", "--no-probe").out)
    assert open_dataset(train).columns is not None
    assert plan["cached_fraction"] < 0.5, "shards are to be streamed"
    fitted = Watched("fit", "bcd", train, tmp_path / "run", *asked, *limit, "--quiet")
    assert (fitted.code, fitted.error) == (0, "")
    assert len(fitted.workers) == 2, "no worker was ended for its memory"
    check_peaks(fitted.workers, plan)


@pytest.mark.slow
def test_descent_by_rows_stays_below_the_plan(large, tmp_path):
    """Of the same rows as those of `test_peaks...`, without column shards; of scores nothing is kept."""
    asked = [
        "-p", "algorithm=row-blocks", "-p", "alpha=1e-2", "-p", "active_mib=8", "--passes", "5", *OPTIONS[4:],
    ]  # fmt: skip
    plan = json.loads(Watched("plan", "bcd", large, *asked, "--json", "--no-probe").out)
    assert "rows" not in plan["worker_parts"]
    fitted = Watched("fit", "bcd", large, tmp_path / "run", *asked, "--quiet")
    assert (fitted.code, fitted.error) == (0, "")
    assert len(fitted.workers) == 2, "no worker was ended for its memory"
    check_peaks(fitted.workers, plan)
    event = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])
    assert event["certificate"]["relative"] <= 5e-4
    assert len(event["worker_seconds"]) == 2, "both workers train"
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.slow
def test_columns_that_cannot_fit_are_refused_at_once(large):
    refused = Watched("columns", large, "--workers", 2, "--memory-limit", "150MiB")
    assert (refused.code, refused.out, refused.workers) == (1, "", {})
    assert refused.error.startswith(f"distls: {large}: a worker needs ")
    assert not (large / ".columns").exists()


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """4000 rows of 2000 numbers, two of them the same: a Gram matrix of theirs takes 31 MiB."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("wide") / "train"
    x = rng.standard_normal((4000, 2000)).astype(np.float32)
    x[:, 1] = x[:, 0]  # the softmax wants another basis where alpha is next to nothing
    write_dataset(path, x, rng.integers(0, 5, len(x)), partition_rows=250)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("gls", ["link=identity", "alpha=path", "folds=4", "dtype=float32"]),
        ("gls", ["link=softmax", "alpha=1e-9"]),
        ("cls", ["rounds=2", "features=fourier", "block_size=3000", "pca=20"]),
        ("stagewise", ["block_size=1500", "stages=3", "inner=calibrated"]),
        ("stagewise", ["block_size=3000", "stages=2", "inner=linear", "features=fourier", "pca=20"]),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_peaks_of_the_least_squares_methods_stay_below_the_plan(wide, tmp_path, method, params):
    asked = [*(word for each in params for word in ("-p", each)), "--workers", "2", "--memory-limit", "2GiB"]
    passes = ["--passes", "4"] if method == "gls" else []
    planned = Watched("plan", method, wide, *asked, "--json", "--no-probe")
    assert planned.code == 0, planned.error
    plan = json.loads(planned.out)
    fitted = Watched("fit", method, wide, tmp_path / "run", *asked, *passes, "--quiet")
    assert fitted.code == 0, fitted.error
    assert len(fitted.workers) == 2
    for peak in fitted.workers.values():
        assert 0.4 <= peak / plan["worker_bytes"] <= 1.0, f"{peak / 2**20:.0f} MiB of {plan['worker_parts']}"
    share = fitted.driver / plan["driver_bytes"]
    assert 0.4 <= share <= 1.0, f"{fitted.driver / 2**20:.0f} of {plan['driver_bytes'] / 2**20:.0f} MiB"


@pytest.fixture(scope="module")
def many_classes(tmp_path_factory):
    """500 documents in 800 classes with 150,000 features: dense weights take 458 MiB."""
    path = tmp_path_factory.mktemp("many") / "train"
    rng = np.random.default_rng(0)
    y = rng.integers(0, 800, 500)
    columns = rng.integers(800, 150_000, (500, 10))
    columns[:, 0] = y
    x = sp.csr_matrix((np.ones(5000, np.float32), columns.ravel(), np.arange(0, 5001, 10)), (500, 150_000))
    x.sum_duplicates()
    write_dataset(path, x, y, partition_rows=100, n_classes=800)
    return path


@pytest.mark.slow
def test_classes_whose_weights_do_not_fit_are_trained_and_scored_in_blocks(many_classes, tmp_path):
    limit, run = parse_bytes("450MiB"), tmp_path / "run"
    options = ["--workers", "2", "--memory-limit", "450MiB"]
    data = open_dataset(many_classes)
    dense = 4 * data.meta.n_features * len(data.meta.classes)
    assert dense > limit
    refused = Watched("fit", "sdca", many_classes, run, "-p", "loss=squared_hinge", *options)
    assert refused.code == 1
    assert refused.error.startswith(f"distls: {many_classes}: a worker needs ")
    planned = Watched("plan", "ovr-sdca", many_classes, *options, "--json", "--no-probe")
    plan = json.loads(planned.out)
    assert plan["lanes"] > 8, "blocks of fewer classes than the largest"
    fitted = Watched("fit", "ovr-sdca", many_classes, run, "-p", "prune=0.01", *options, "--quiet")
    assert (fitted.code, fitted.error) == (0, "")
    assert len(fitted.workers) == 2, "no worker was ended for its memory"
    for peak in fitted.workers.values():
        assert 0.4 <= peak / plan["worker_bytes"] <= 1.0, f"{peak / 2**20:.0f} MiB of {plan['worker_parts']}"
    assert fitted.driver < plan["driver_bytes"]
    evaluated = Watched("evaluate", run, many_classes, "--json", *options)
    assert json.loads(evaluated.out)["error"] < 0.1
    predicted = Watched("predict", run, many_classes, tmp_path / "out.csv", "--top", "5", *options)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 501
    for watched in (evaluated, predicted):
        assert watched.code == 0, watched.error
        assert max(watched.driver, *watched.workers.values()) < limit < dense


# -- commands on machines that give them little ----------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "train", *labelled_rows(300, 40, 3)).path


def _fit(data, run, limit=":", options=("--workers", "2"), **environment):
    """Fit after a command of the shell that sets a limit; return the exit code and the lines on stderr."""
    own = ["fit", "gls", str(data), str(run), "--quiet", "--passes", "2", *options]
    command = ["bash", "-c", f'{limit}; exec "$0" "$@"', sys.executable, "-m", "distls", *own]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environment})
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.slow
def test_a_temporary_folder_that_cannot_be_written(data, tmp_path):
    place = tmp_path / "file" / "folder"
    (tmp_path / "file").touch()
    code, lines = _fit(data, tmp_path / "run", DASK_TEMPORARY_DIRECTORY=str(place))
    assert (code, lines) == (
        1,
        [
            f"distls: the workers on this machine (2) did not start: [Errno 20] Not a directory: '{place}'; mend "
            f"temporary-directory ({place}) of Dask's configuration; use fewer --workers, or --executor serial"
        ],
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [16, 32])
def test_few_open_files(data, tmp_path, number):
    assert _fit(data, tmp_path / "run", f"ulimit -n {number}") == (
        1,
        [
            f"distls: at most {number} files may be open here (ulimit -n), and these workers need 64; raise the limit, "
            "use fewer --workers, or --executor serial"
        ],
    )


@pytest.mark.slow
def test_a_limit_on_open_files_that_can_be_raised_is(data, tmp_path):
    assert _fit(data, tmp_path / "run", "ulimit -S -n 32") == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize("size", [40, 150, 200, 1000])  # below 150 NumPy cannot be loaded
@pytest.mark.parametrize("executor", ["dask", "serial"])
def test_few_addresses(data, tmp_path, size, executor):
    options = ["--workers", "2"] if executor == "dask" else ["--executor", "serial"]
    assert _fit(data, tmp_path / "run", f"ulimit -v {size * 1024}", options) == (
        1,
        [
            f"distls: this process may use {size} MiB of addresses (ulimit -v), and libraries reserve more than that: "
            "allow 2 GiB, and limit memory with --memory-limit"
        ],
    )


@pytest.mark.slow
def test_few_open_files_are_enough_for_one_process(data, tmp_path):
    assert _fit(data, tmp_path / "run", "ulimit -n 32", ["--executor", "serial"]) == (0, [])
