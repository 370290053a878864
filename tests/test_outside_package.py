"""What another package adds passes the suites of `distls.testing` there, without an edit or a test of this one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "outside"


@pytest.mark.parametrize(
    ("suites", "tests"),
    [
        ("TestPenalty", 6),
        pytest.param("TestLoss or TestFormat", 11, marks=pytest.mark.slow),
        pytest.param("TestMethod", 7, marks=pytest.mark.slow),
    ],
)
def test_a_package_of_its_own_passes_the_suites(tmp_path, suites, tests):
    for name in ("toys.py", "test_toys.py"):
        shutil.copy(PACKAGE / name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    # its modules are on the path of the process that starts a local cluster, which hands the path on
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", suites],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) >= tests
