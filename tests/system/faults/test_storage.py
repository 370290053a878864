"""Storage that fails: damaged between rounds, unsteady, full. One line names it, and `resume` has the same bits."""

import json
import re
import shutil
from pathlib import Path

import fault_process
import pytest
from contract import Rounds
from fault_helpers import chunk_of, digest_of, disk, faulty, left_behind, options_of, rounds_of
from helpers import labelled_rows, raised, write_dataset

from distls import add_columns, fit, generate, open_dataset, resume
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.storage.errors import CorruptDataError, DistlsError, StorageError
from distls.testing.solvers import opened
from distls.training.run_folder import Run
from distls.workers.rounds.block_stream import clear_cache

__all__ = ["disk", "faulty"]

# One solver of each way of distributing, and two more that keep something of every row.
WAYS = {
    "lanes": ("mcid", {"alpha": 1e-3}, {"passes": 5}),
    "statistics": ("gls", {"link": "softmax", "alpha": 1e-3}, {"passes": 5}),
    "shards": ("bcd", {"alpha": 1e-2, "lanes": 3, "tau": 0.0, "active_sweeps": 0}, {"passes": 5}),
    "calibrated": ("cls", {"rounds": 4}, {}),
    "stages": ("stagewise", {"block_size": 100, "stages": 4, "alpha": 1e-2}, {}),
}
ROW_STATE = ["shards", "calibrated", "stages"]


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    path = write_dataset(tmp_path_factory.mktemp("data") / "train", *labelled_rows(900, 400, 4)).path
    add_columns(path)
    return path


@pytest.fixture(scope="module")
def undisturbed(train):
    made = {}

    def digest(way):
        if way not in made:
            method, params, limits = WAYS[way]
            model = fit(method, train, params=params, eval_every=0, **limits).model
            made[way] = model.sha256
        return made[way]

    return digest


def executor_named(name):
    """Return an executor and a budget without a cache, so that every round reads."""
    if name == "serial":
        clear_cache()  # of fits before this one
        return SerialExecutor(), MemoryBudget(2048 * MIB, cache_limit=0)
    return opened("two processes"), MemoryBudget(2048 * MIB, 2, cache_limit=0)


EXECUTORS = pytest.mark.parametrize("where", ["serial", "two workers"])


def fit_way(way, data, run, where, act):
    """Fit, with `act` done after the second round."""
    method, params, limits = WAYS[way]
    executor, memory = executor_named(where)
    watch = [Rounds(lambda event: event.record["round"] == 2 and act())]
    often = {"checkpoint_seconds": 0, "eval_every": 0}
    return fit(method, data, run, params=params, executor=executor, memory=memory, callbacks=watch, **limits, **often)


# -- damage between rounds -------------------------------------------------------------------------------


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


DAMAGE = {
    "flipped": (flip, "its checksum does not match, bytes were changed"),
    "truncated": (cut, r"\d+ bytes on disk, \d+ recorded"),
    "removed": (Path.unlink, "its chunk is missing"),
}
READ_BY = {"lanes": ("rows", "partition"), "statistics": ("rows", "partition"), "shards": ("columns", "column shard")}


@pytest.mark.fast_cases("flipped-shards-serial$")
@EXECUTORS
@pytest.mark.parametrize("way", list(READ_BY))
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_damaged_between_rounds(train, undisturbed, tmp_path, way, damage, where):
    """Fault: A chunk changed, truncated, removed between rounds | rows (`mcid`, `gls`), column shards (`bcd`); in
    one process and on two workers | one line naming block and array; a checkpoint, no model; once the file is
    restored `resume` finishes | bits"""
    data, run = shutil.copytree(train, tmp_path / "train"), tmp_path / "run"
    kind, block = READ_BY[way]
    path = chunk_of(data, 2, "indices", kind)
    sound, (harm, why) = path.read_bytes(), DAMAGE[damage]
    said = raised(CorruptDataError, fit_way, way, data, run, where, lambda: harm(path))
    again = "ingest the data set again" if kind == "rows" else f"remove {data}/columns and run `distls columns {data}`"
    assert re.fullmatch(f"{data}: {block} 2, array indices: {why}; {again}", said)
    assert Run(run).checkpoints()[-1].name == "round-000002"
    assert not (run / "model").exists()
    assert Run(run).status["status"] == "RUNNING"
    path.write_bytes(sound)
    executor, memory = executor_named("serial" if where != "serial" else "two workers")
    result = resume(run, executor=executor, memory=memory)
    assert digest_of(run) == result.model.sha256 == undisturbed(way)
    assert left_behind(run) == []


def test_the_command_says_so_in_one_line(faulty, train, undisturbed, tmp_path):
    """Damaged before a resume: exit code 1, as often as it is tried, until the file is put back.

    Fault: A partition damaged before `resume` | on the command line | exit code 1, one line; checkpoints kept |
    bits
    """
    data, run = shutil.copytree(train, tmp_path / "train"), tmp_path / "run"
    method, params, limits = WAYS["lanes"]
    options = options_of(params, **limits, eval_every=0, checkpoint_seconds=0, executor="serial")
    faulty("fit", method, data, run, *options, "--quiet", saves={"number": 2})
    path = chunk_of(data, 5)
    sound = path.read_bytes()
    flip(path)
    for _ in range(2):
        ended = faulty("resume", run, "--executor", "serial", "--quiet")
        why = "its checksum does not match, bytes were changed; ingest the data set again"
        assert ended == (1, "", f"distls: {data}: partition 5, array data: {why}\n")
        assert len(Run(run).checkpoints()) == 2
    path.write_bytes(sound)
    ended = faulty("resume", run, "--executor", "serial", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert digest_of(run) == undisturbed("lanes")


@pytest.mark.fast_cases("shards-serial")
@EXECUTORS
@pytest.mark.parametrize("way", ROW_STATE)
def test_what_is_kept_of_each_row_is_made_anew(train, undisturbed, tmp_path, way, where):
    """It follows from the weights: damaged or gone, nobody notices.

    Fault: Row state (RUN/state) changed, truncated, removed | `bcd`, `cls`, `stagewise`; in one process and on
    two workers; 18 files | nothing: it is recomputed | bits
    """
    for name, harm in {"flipped": flip, "truncated": cut, "removed": Path.unlink}.items():
        run, harmed = tmp_path / name, []

        def act(run=run, harm=harm, harmed=harmed):
            for path in (run / "state").rglob("*.npy"):
                harm(path)
                harmed.append(path)

        result = fit_way(way, train, run, where, act)
        assert harmed
        assert result.model.sha256 == undisturbed(way)


# -- storage that fails now and then ---------------------------------------------------------------------

UNSTEADY = {
    "EIO now and then": ({"every": 7, "number": fault_process.EIO, "times": 1}, "[Errno 5] Input/output error"),
    "ESTALE twice": ({"every": 9, "number": fault_process.ESTALE, "times": 2}, "[Errno 116] Stale file handle"),
    "torn reads": ({"every": 5, "number": 0, "times": 1, "torn": True}, "its checksum does not match"),
}  # fmt: skip


def _command(way, data, run, *more):
    method, params, limits = WAYS[way]
    options = options_of(params, **limits, eval_every=0, checkpoint_seconds=0)
    return ["fit", method, data, run, *options, "--quiet", *more]


def check_notes(err, data, why):
    """Nothing is said but what was read again."""
    assert err
    for line in err.splitlines():
        assert line.startswith(str(data)), line
        assert ": read again, and well, after: " in line
        assert why in line


@pytest.mark.slow
@pytest.mark.parametrize("way", ["lanes", "statistics", "shards"])
@pytest.mark.parametrize("how", list(UNSTEADY))
def test_unsteady_storage_is_read_again(faulty, train, undisturbed, tmp_path, way, how):
    """Fault: Reads that occasionally fail or are torn | every 5th to 9th read; `mcid`, `gls`, `bcd` | a note for
    each repeated read | bits"""
    fault, why = UNSTEADY[how]
    below = str(train / ("columns/0" if way == "shards" else "rows/0"))
    run = tmp_path / "run"
    arguments = _command(way, train, run, "--executor", "serial")
    ended = faulty(*arguments, reads={"below": below, **fault})
    assert ended.code == 0, ended.err
    check_notes(ended.err, train, why)
    assert digest_of(run) == undisturbed(way)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["lanes", "statistics"])
def test_storage_that_goes_on_failing_ends_the_fit(faulty, train, undisturbed, tmp_path, way):
    """Fault: A file that always fails | `mcid`, `gls` | exit code 1, one line with partition, array, cause and file;
    `resume` finishes | bits"""
    run = tmp_path / "run"
    path = chunk_of(train, 4)
    fault = {"below": str(path), "every": 1, "number": fault_process.EIO, "times": 1}
    ended = faulty(*_command(way, train, run, "--executor", "serial"), reads=fault)
    why = f"it cannot be read: Input/output error ({path}); check the disk"
    assert ended == (1, "", f"distls: {train}: partition 4, array data: {why}\n")
    assert not (run / "model").exists()
    ended = faulty("resume", run, "--executor", "serial", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert digest_of(run) == undisturbed(way)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True])
def test_unsteady_storage_of_workers(command, train, undisturbed, tmp_path, monkeypatch, lasting):
    """Fault: Reads of workers that fail occasionally, or always | two workers | a note, or one line; `resume`
    finishes | bits"""
    run, path = tmp_path / "run", chunk_of(train, 4)
    fault = {"below": str(train / "rows"), "every": 7, "number": fault_process.EIO, "times": 1}
    if lasting:
        fault |= {"below": str(path), "every": 1}
    monkeypatch.setenv("DISTLS_TEST_FAULTS", json.dumps({"reads": fault}))
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PRELOAD", json.dumps([fault_process.__file__]))
    code, _, error = command(*_command("lanes", train, run, "--workers", 2)).end()
    if lasting:
        why = f"it cannot be read: Input/output error ({path}); check the disk"
        assert (code, error) == (1, f"distls: {train}: partition 4, array data: {why}\n")
        monkeypatch.delenv("DASK_DISTRIBUTED__WORKER__PRELOAD")
        executor, memory = executor_named("two workers")
        resume(run, executor=executor, memory=memory)
    else:
        assert code == 0, error
        check_notes(error, train, "[Errno 5] Input/output error")
    assert digest_of(run) == undisturbed("lanes")
    assert rounds_of(run) == [1, 2, 3, 4, 5]


# -- a full disk -----------------------------------------------------------------------------------------

KIB = 1024


@pytest.mark.slow
@EXECUTORS
@pytest.mark.parametrize("way", list(WAYS))
def test_full_in_a_checkpoint_or_in_what_is_kept_of_rows(disk, train, undisturbed, way, where):
    """Fault: Disk full in a checkpoint or in RUN/state | `mcid`, `gls`, `bcd`, `cls`, `stagewise`; in one process
    and on two workers; four sizes; 40 disks | one line, no model; with more room `resume` finishes | bits"""
    method, params, limits = WAYS[way]
    executor, memory = executor_named(where)
    stopped = 0
    options = {"params": params, "checkpoint_seconds": 0, "eval_every": 0, **limits}
    for left in (12 * KIB, 40 * KIB, 100 * KIB, 200 * KIB):
        run = disk.path / f"run-{left}"
        disk.fill(left)
        error = failure(lambda run=run: fit(method, train, run, executor=executor, memory=memory, **options))
        disk.make_room()
        if error is not None:
            stopped += 1
            assert error.startswith(f"{run}: the fit stopped: the disk is full"), error
            assert error.endswith(f"`distls resume {run}` continues")
            assert "\n" not in error
            assert not (run / "model").exists()
            resume(run, executor=executor, memory=memory)
        assert digest_of(run) == undisturbed(way)
        assert left_behind(run) == []
        shutil.rmtree(run)
    assert stopped >= 2


def failure(act):
    """Return how storage failed `act`, if it did."""
    try:
        act()
    except StorageError as error:
        return str(error)
    return None


@pytest.mark.slow
def test_full_in_a_transposition_by_workers(disk, train, tmp_path):
    """Fault: Disk full in a transposition | two workers; 2 disks | one line, no half-made shards; the same call
    continues | bits"""
    whole = add_columns(shutil.copytree(train, tmp_path / "whole"), shard_size=4 * KIB).columns
    executor, memory = executor_named("two workers")
    for number, share in enumerate([0.5, 1.5]):
        out = shutil.copytree(train, disk.path / f"d{number}")
        shutil.rmtree(out / "columns")
        disk.fill(int(whole.stored_bytes.sum() * share))
        said = raised(StorageError, add_columns, out, shard_size=4 * KIB, executor=executor, memory=memory)
        remedy = f"run `distls columns {out}` to go on, or remove {out}/.columns"
        assert said.startswith(f"{out}: its column shards are incomplete: the disk is full")
        assert said.endswith(remedy)
        assert open_dataset(out).columns is None
        disk.make_room()
        made = add_columns(out, shard_size=4 * KIB, executor=executor, memory=memory).columns
        assert made.digest == whole.digest
        assert sorted(path.name for path in out.iterdir()) == [
            "columns", "partitions", "rows", "zarr.json",
        ]  # fmt: skip


@pytest.mark.slow
@EXECUTORS
@pytest.mark.parametrize("left", [100 * KIB, 2 * MIB])
def test_full_in_generate(disk, tmp_path, left, where):
    """In the training set, or in the test set: neither half-written one opens.

    Fault: Disk full in `generate` | training and test set | one line; half-written data sets do not open | bits
    """
    out, executor = disk.path / "d", executor_named(where)[0]
    disk.fill(left)
    said = raised(StorageError, generate, "csgd", out, rows=2000, partition_size=64 * KIB, executor=executor)
    assert said.startswith(f"cannot write {out}: the disk is full")
    assert said.endswith(f"{out} is incomplete: make room, remove it and generate again")
    raised(DistlsError, open_dataset, disk.path / "d-test")
    if left < MIB:
        raised(DistlsError, open_dataset, out)
    disk.make_room()
    # another name: a worker may just be writing the last of what was asked of it
    made, _ = generate("csgd", disk.path / "again", rows=2000, partition_size=64 * KIB, executor=executor)
    whole, _ = generate("csgd", tmp_path / "d", rows=2000, partition_size=64 * KIB)
    assert made.fingerprint == whole.fingerprint
