"""The kernels of a fit are compiled by the driver: workers, whose plan has no room for it, load them."""

import json
import os
import subprocess
import sys

import pytest
from helpers import labelled_rows, write_dataset

from distls.columns.sharding import add_columns

# Prints the variants of kernels that a fit adds to those of its warm-up.
PROGRAM = """
import json, sys
from distls import fit
from distls.training import setting_fit
from distls.workers.compilation.kernel_cache import KernelCache

found, solve, load = [], setting_fit.solve, KernelCache.load_overload

def warm(*args, **options):
    print([name for name in found if "merge_mean" in name or "add_scaled" in name])
    found.clear()
    return solve(*args, **options)

def seen(self, signature, context):
    found.append(f"{self._name} {signature}")
    return load(self, signature, context)

setting_fit.solve, KernelCache.load_overload = warm, seen
given = json.loads(sys.argv[3])
fit(sys.argv[1], sys.argv[2], params=given["params"], executor="serial", **given["limits"])
print(found)
"""
PARAMS = {
    "mcid": {},
    "sgd": {},
    "csgd": {},
    "sgdqn": {},
    "svmsgd2": {},
    "adaline": {},
    "olbfgs": {},
    "rls": {"loss": "squared"},
    "fobos": {"alpha": 1e-3},
    "sdca": {"alpha": 1e-2},
    "ovr-sdca": {"alpha": 1e-2},
    "bcd": {"dtype": "float32", "alpha": 1e-3, "tau": 0},
    "bcd:rows": {"dtype": "float32", "alpha": 1e-3, "tau": 0, "algorithm": "row-blocks"},
    "fista": {"alpha": 1e-3, "tau": 0},
    "sparsa": {"alpha": 1e-3, "tau": 0},
    "gls": {},
    "cls": {"rounds": 2},
    "stagewise": {"block_size": 10, "stages": 2},
}
OWN_END = {"ovr-sdca", "cls", "stagewise"}


@pytest.mark.fast_cases("sdca-sparse")
@pytest.mark.skipif(os.environ.get("DISTLS_NUMBA_CACHE") == "0", reason="kernels are not cached")
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("method", PARAMS)  # of several settings, the name of one is after a colon
def test_a_fit_needs_no_other_kernels(method, layout, tmp_path):
    x, y = labelled_rows(60, 40, 3)
    data = write_dataset(tmp_path / "d", x if layout == "sparse" else x.toarray(), y, partition_rows=20)
    given = {"params": PARAMS[method], "limits": {} if method in OWN_END else {"passes": 2}}
    path = add_columns(data.path, shard_size=1000).path if method == "bcd" else data.path
    assert _compiled(method.partition(":")[0], path, given)[1] == "[]"


@pytest.mark.skipif(os.environ.get("DISTLS_NUMBA_CACHE") == "0", reason="kernels are not cached")
@pytest.mark.slow_cases("params[12]")
@pytest.mark.parametrize(
    ("params", "merged"),
    [({}, False), ({"lanes": 2}, True), ({"average": "tail", "schedule": "sqrt", "eta0": 0.1}, True)],
)
def test_one_lane_needs_no_kernels_to_merge(params, merged, tmp_path):
    x, y = labelled_rows(60, 40, 3)
    data = write_dataset(tmp_path / "d", x.toarray(), y, partition_rows=30 if "lanes" in params else 60)
    averaged, others = _compiled("sgd", data.path, {"params": params, "limits": {"passes": 2}})
    assert (averaged != "[]", others) == (merged, "[]")


def _compiled(method, data, given):
    """Return the kernels of averages that the warm-up of a fit has loaded, and all that the fit has loaded after it."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, method, str(data), json.dumps(given)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
