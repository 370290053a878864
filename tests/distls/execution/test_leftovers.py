"""What killed processes leave in the folder of temporary files is swept by the next one; what is in use stays."""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from helpers import SECONDS, wait_until

_CLUSTER = """
import sys
from distls.execution.dask.local_cluster import start_local
if __name__ == "__main__":
    executor = start_local(1)
    print("started", flush=True)
    sys.stdin.read()
    executor.close()
"""


def _start(script, temporary):
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout.readline() == b"started\n"
    return process


def _left(temporary):
    """Return the folders of workers, schedulers and sockets."""
    kinds = ("worker-", "scheduler-", "pymp-")
    return {path.name for path in temporary.rglob("*-*") if path.is_dir() and path.name.startswith(kinds)}


def _runs(process):
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def temporary():
    """A folder whose name is short: addresses of sockets are."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.slow
def test_the_folders_of_a_killed_driver_are_swept_at_the_next_start(tmp_path, temporary):
    """Fault: What a killed driver leaves among temporary files | Dask's scratch, sockets | nothing; swept at the
    next start, what is in use is not"""
    (tmp_path / "script.py").write_text(_CLUSTER)
    killed = _start(tmp_path / "script.py", temporary)
    family = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    killed.wait()
    left = _left(temporary)
    assert {name.split("-")[0] for name in left} == {"worker", "scheduler", "pymp"}
    wait_until(lambda: not any(map(_runs, family)))
    living = _start(tmp_path / "script.py", temporary)
    own = _left(temporary)
    assert not own & left
    other = _start(tmp_path / "script.py", temporary)
    assert own < _left(temporary), "what is in use stays"
    for process in (living, other):
        process.communicate(timeout=SECONDS)
    assert _left(temporary) == set()
