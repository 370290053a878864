"""Settings of Dask and numba in the user's environment and files which these cannot read themselves."""

import os
import subprocess
import sys

import numpy as np
import pytest
from cluster_helpers import cluster

import distls

DASK, NUMBA = ["--workers", "1"], ["--executor", "serial"]
FILES = {
    "no YAML": "distributed: [unclosed\n  a: {",
    "a list": "- just\n- a list\n",
    "values for sections": "distributed:\n  worker: 5\n  scheduler: null\n",
    "a word for a time": "distributed:\n  comm:\n    timeouts:\n      connect: soon\n",
}
VARIABLES = {"DASK_LOGGING": ("{version: 1}", DASK), "NUMBA_NUM_THREADS": ("0", NUMBA)}
CASES = [
    pytest.param(kind, marks=() if kind == "NUMBA_NUM_THREADS" else pytest.mark.slow) for kind in (*FILES, *VARIABLES)
]


@pytest.mark.parametrize("kind", CASES)
def test_one_line(kind, tmp_path):
    """Fault: Settings that Dask or numba cannot read | a file that is no YAML, or a list, or has values for sections or
    words for times; variables of the environment; `fit` | one line, exit code 2 | -"""
    if kind in FILES:
        (tmp_path / "x.yaml").write_text(FILES[kind])
    value, where = VARIABLES.get(kind, (str(tmp_path), DASK))
    _check_one_line(tmp_path, where, {"DASK_CONFIG" if kind in FILES else kind: value})


@pytest.mark.slow
def test_a_time_that_dask_refuses_where_it_connects(tmp_path):
    with cluster(tmp_path) as there:
        _check_one_line(tmp_path, ["--scheduler", there.address], {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "5s"})


def _check_one_line(place, where, environment):
    rows = np.random.default_rng(0).normal(size=(60, 3))
    distls.ingest(rows, place / "D", y=np.arange(60) % 2, executor="serial")
    ended = subprocess.run(
        [sys.executable, "-m", "distls", "fit", "mcid", place / "D", place / "R", "--quiet", *where],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert "cannot be used as it is set" in ended.stderr
