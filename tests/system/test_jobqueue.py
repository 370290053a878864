"""The lines of docs/cluster.md for dask-jobqueue, with its local jobs in place of SLURM's."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import SECONDS, labelled_rows, write_dataset

from distls.storage.model.model import load_model
from distls.training.fitting import fit

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
pytestmark = [
    pytest.mark.slow,
    # importing it would change what Ctrl-C does
    pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="needs dask-jobqueue"),
]


def test_workers_that_are_jobs(tmp_path):
    data = write_dataset(tmp_path / "train", *labelled_rows(600, 200, 4)).path
    (block,) = re.findall(r"```python\n(import distls\nfrom dask_jobqueue.*?)```", PAGE.read_text(), re.DOTALL)
    lines = block.replace("from dask_jobqueue import SLURMCluster", "from dask_jobqueue.local import LocalCluster")
    # a job is a process of this machine, which has fewer cores
    lines = re.sub(r"SLURMCluster\(.*?\)", 'LocalCluster(cores=1, processes=1, memory="1GiB")', lines)
    lines = lines.replace("jobs=4", "jobs=2").replace("wait_for_workers(8)", "wait_for_workers(2)")
    script = tmp_path / "script.py"
    script.write_text(lines.replace("/shared", str(tmp_path)))
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=10 * SECONDS
    )
    assert ended.stdout == "CONVERGED\n", ended.stderr
    model = fit(data, executor="serial").model
    assert load_model(tmp_path / "run").sha256 == model.sha256
