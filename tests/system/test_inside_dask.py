"""Fits in tasks of Dask, which must not wait for tasks of their own, and on clusters that start workers on demand."""

import subprocess
import sys

import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster
from helpers import labelled_rows, write_dataset
from sklearn.model_selection import GridSearchCV, cross_val_score

from distls import MCIDClassifier, fit

DEADLINE = 300  # seconds; what deadlocks takes for ever


@pytest.fixture(scope="module")
def client():
    """Two workers of one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as made:
        yield made


ROWS = labelled_rows(120, 10, 3)


def _fit_one(seed, folder):
    model = MCIDClassifier(passes=2, random_state=seed).fit(*ROWS).model_
    data = write_dataset(folder / f"fit-{seed}", *ROWS)
    return model.sha256, list(fit("mcid", data, passes=1, seed=seed).record["worker_seconds"])


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE)
def test_as_many_fits_as_there_are_threads_and_more(client, tmp_path):
    found = client.gather(client.map(_fit_one, range(6), folder=tmp_path, pure=False))
    here = [MCIDClassifier(passes=2, random_state=seed, executor="serial").fit(*ROWS) for seed in range(6)]
    assert [digest for digest, _ in found] == [made.model_.sha256 for made in here]
    assert all(len(processes) == 1 for _, processes in found)


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE)
def test_searches_under_joblib(client):
    alphas = {"alpha": [1e-2, 1e-3, 1e-4]}
    with joblib.parallel_backend("dask"):
        scores = cross_val_score(MCIDClassifier(passes=2), *ROWS, cv=4)
        search = GridSearchCV(MCIDClassifier(passes=2), alphas, cv=2).fit(*ROWS)
    serial = MCIDClassifier(passes=2, executor="serial")
    assert np.array_equal(scores, cross_val_score(serial, *ROWS, cv=4))
    again = GridSearchCV(serial, alphas, cv=2).fit(*ROWS)
    assert np.array_equal(search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"])


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE)
def test_a_cluster_that_starts_workers_on_demand(tmp_path):
    data = write_dataset(tmp_path / "d", *ROWS, partition_rows=30)
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=50)
        with Client(cluster) as client:
            found = fit("mcid", data, passes=2, client=client)
    assert found.model.sha256 == fit("mcid", data, passes=2, executor="serial").model.sha256


@pytest.mark.slow
def test_a_script_without_a_main_part_is_told_so_in_one_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from distls.execution import ClusterOptions, open_executor\n"
        "with open_executor(ClusterOptions(workers=2)):\n    print('started')\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=DEADLINE)
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1] == (
        f"distls.storage.errors.WorkerError: {script}: workers import a script, and this one starts workers again; put "
        'what it does below a line if __name__ == "__main__":'
    )
    assert ended.stderr.count("Traceback") == 1
