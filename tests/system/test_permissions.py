"""Files are as open as the user's mask says and no wider; what is temporary is closed to others."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from helpers import SECONDS

from distls import add_columns, open_dataset

# Everything that is kept, and what is there meanwhile, with the mode that it had.
PROGRAM = """
import json, os, stat, sys
from pathlib import Path
from distls.execution.dask.local_cluster import start_local
from distls.training.fitting import fit
from distls.synthetic.generation import generate
from distls.ingestion.ingest import ingest
from distls.prediction.predict import predict
from distls.columns.sharding import add_columns

folder, modes = Path(sys.argv[1]), {}

def look(*_):
    for path in folder.rglob("*"):
        try:
            modes[str(path.relative_to(folder))] = path.lstat().st_mode
        except FileNotFoundError:
            pass

executor = start_local(1)
try:
    (folder / "text.svm").write_text("1 1:1 2:3\\n2 2:1\\n" * 500)
    ingest([str(folder / "text.svm")], folder / "ingested", executor=executor, progress=look)
    generate("rcv1-4", folder / "train", rows=2000, partition_size=2**18, executor=executor)
    add_columns(folder / "train", executor=executor, progress=look)
    fit("mcid", folder / "train", folder / "run", params={"loss": "hinge", "alpha": 1e-4}, passes=2,
        executor=executor, checkpoint_seconds=0)
    predict(folder / "run", [folder / "train-test"], folder / "out.zarr", executor=executor, progress=look)
    predict(folder / "run", [folder / "train-test"], folder / "out.csv", executor=executor, progress=look)
    look()
finally:
    executor.close()
print(json.dumps(modes))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_no_file_is_wider_than_the_mask(mask):
    # the names of sockets must be short
    with tempfile.TemporaryDirectory(prefix="distls-", dir="/tmp") as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder], env={**os.environ, "TMPDIR": str(temporary)}, umask=mask,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    modes = {Path(name): mode for name, mode in json.loads(done.stdout).items()}
    kept = {name: mode for name, mode in modes.items() if name.parts[0] != "tmp"}
    assert {name.parts[0] for name in kept} >= {
        "train", "train-test", "ingested", "run", "out.zarr", "out.csv",
    }  # fmt: skip
    assert {".ingest", ".columns"} <= {part for name in kept for part in name.parts}
    for name, mode in kept.items():
        widest = 0o777 if stat.S_ISDIR(mode) else 0o666
        assert oct(stat.S_IMODE(mode)) == oct(widest & ~mask), name
    # Dask's own files among them, which its processes import from
    private = {name: mode for name, mode in modes.items() if name.parent == Path("tmp")}
    assert f"distls-{os.geteuid()}" in {name.name for name in private}
    assert {stat.S_IMODE(mode) for mode in private.values()} == {0o700}


# -- column shards by real processes ---------------------------------------------------------------------


# a thousand shards or more, which take a while to write
SIZE = 2**13


@pytest.fixture(scope="module")
def undisturbed(documents, tmp_path_factory):
    path = shutil.copytree(documents, tmp_path_factory.mktemp("quiet") / "train")
    return add_columns(path, shard_size=SIZE).columns.digest


@pytest.fixture
def train(documents, tmp_path):
    return shutil.copytree(documents, tmp_path / "train")


def _digest(path):
    shards = open_dataset(path).columns
    return None if shards is None else shards.digest


def _started(command, train, what):
    """Start a transposition with two workers; return when something of it is done."""
    started = command("columns", train, "--shard-size", SIZE, "--workers", 2, "--quiet")
    started.when(lambda: any((train / ".columns" / what).glob("*.*n")))
    return started


@pytest.mark.slow
@pytest.mark.parametrize("what", ["groups", "records"])
def test_killed_it_goes_on(command, train, undisturbed, what):
    started = _started(command, train, what)
    started.interrupt(signal.SIGKILL)
    started.end()
    assert _digest(train) is None
    code, out, error = command("columns", train, "--shard-size", SIZE, "--executor", "serial", "--quiet").end()
    assert (code, error) == (0, "")
    assert out.startswith(f"{train}: ")
    assert _digest(train) == undisturbed
    assert sorted(p.name for p in train.iterdir()) == [
        "columns", "partitions", "rows", "zarr.json",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(command, train, undisturbed):
    started = _started(command, train, "records")
    started.workers()[0].send_signal(signal.SIGKILL)
    assert _digest(train) is None, "killed too late to matter"
    code, _, error = started.end()
    assert (code, error) == (0, "")
    assert _digest(train) == undisturbed


@pytest.mark.slow
def test_interrupted_it_goes_on(command, train, undisturbed):
    started = _started(command, train, "records")
    started.interrupt(signal.SIGINT)
    assert started.end() == (3, "", "interrupted\n")
    assert _digest(train) is None
    assert command("columns", train, "--shard-size", SIZE, "--workers", 2, "--quiet").end()[0] == 0
    assert _digest(train) == undisturbed
