"""Commands that only read what is written load no kernels, no stores and no schedulers."""

import subprocess
import sys

import pytest
from helpers import labelled_rows, write_dataset

from distls.training.fitting import fit

HEAVY = {"numba", "llvmlite", "scipy", "dask", "distributed", "zarr", "sklearn", "pandas", "pyarrow"}
_CODE = """
import sys
sys.argv = ["distls", *sys.argv[1:]]
from distls.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("light")
    data = write_dataset(found / "data", *labelled_rows(60, 8, 2))
    # a method that proves its optimum: its duals are looked for
    fit("newton", data, found / "run", passes=2)
    return found


@pytest.mark.fast_cases("-")
@pytest.mark.parametrize("words", ["--help", "info data", "info run", "methods"])
def test_nothing_heavy_is_loaded(folder, words):
    command = [sys.executable, "-c", _CODE, *words.split()]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert HEAVY & set(ran.stderr.split()) == set()
