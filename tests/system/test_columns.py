"""Column shards by real processes: killed, interrupted, in little memory; the shards are those of a quiet run."""

import shutil
import signal

import pytest

from distls.columns.sharding import add_columns
from distls.storage.dataset.dataset import open_dataset

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
    code, out, error = command(
        "columns", train, "--shard-size", SIZE, "--executor", "serial", "--quiet"
    ).end()
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
