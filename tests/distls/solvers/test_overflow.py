"""Numbers that overflow: a fit has diverged, which its status says, and no warning of NumPy."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from helpers import SECONDS

import distls
from distls.solvers.status import Status
from distls.storage.errors import DistlsError


def _ingest(path, x, y, target):
    report = distls.ingest(x, path, y=y, dtype="float64", target=target, transform=(), partition_size=2000)
    assert report is not None
    return distls.open_dataset(path)


@pytest.fixture(scope="module")
def large_rows(tmp_path_factory):
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 4))
    return _ingest(tmp_path_factory.mktemp("data") / "d", x * 1e140, np.arange(120) % 3, "class")


@pytest.fixture(scope="module")
def large_targets(tmp_path_factory):
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 4))
    return _ingest(tmp_path_factory.mktemp("data") / "d", x, 1e160 * (1 + x[:, 0]), "continuous")


@pytest.mark.fast_cases("cls$")
@pytest.mark.parametrize("method", ["mcid", "olbfgs", "sdca", "fista", "cls", "stagewise"])
def test_rows_that_overflow(large_rows, method):
    given = {"eta0": 0.1} if method == "olbfgs" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = distls.fit(method, large_rows, params={"dtype": "float32", **given}, passes=3)
    assert (result.status, result.model) == (Status.DIVERGED, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_no_gain_of_the_trial_is_finite(large_rows):
    with pytest.raises(DistlsError, match=r"none of eta0=.* keeps the weights finite"):
        distls.fit("olbfgs", large_rows, params={"dtype": "float32"}, passes=3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gls", "sdca"])
def test_targets_whose_squares_overflow(large_targets, method):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = distls.fit(method, large_targets, passes=3)
    assert (result.status, result.model) == (Status.DIVERGED, None)


@pytest.mark.slow
def test_workers_print_no_warnings(large_targets, tmp_path):
    run = tmp_path / "run"
    command = ["fit", "gls", str(large_targets.path), str(run), "--passes", "3", "--workers", "2", "--quiet"]
    ended = subprocess.run(
        [sys.executable, "-m", "distls", *command], capture_output=True, text=True, timeout=SECONDS
    )
    assert (ended.returncode, ended.stderr.splitlines()) == (
        1,
        [f"distls: {run}: the weights are no longer finite; try a larger alpha, or scale the data"],
    )
