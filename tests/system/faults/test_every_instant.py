"""A command that is stopped at any act on its files ends, when it is repeated, with the files of an undisturbed one.

The acts are enumerated: before each rename, removal and sync, before each file is made and in the middle of each write.
Times, and what a machine was measured to do, are the only differences. `fault_process.Steps` strikes. All of them take
the better part of an hour: with DISTLS_INSTANTS=all; without, some of each command.
"""

import os
import runpy
import tempfile
from pathlib import Path

import pytest
from fault_bench import JOBS, UNSYNCED, Bench, check_readable, differing, instants
from fault_helpers import KILLED, faulty

__all__ = ["faulty"]

WHOLE, SOME = os.environ.get("DISTLS_INSTANTS") == "all", 12


@pytest.fixture(scope="module")
def bench(tmp_path_factory, faulty):
    """Folders in memory where that is possible: the acts are many."""
    memory = Path("/dev/shm")
    near = memory if os.access(memory, os.W_OK) else tmp_path_factory.getbasetemp()
    with tempfile.TemporaryDirectory(dir=near) as folder:
        yield Bench(Path(folder), faulty)


def enumerated(bench, name, mode):
    """Strike the job at each instant, yield how that ended, then repeat it and compare all files."""
    job = JOBS[name]
    bench.faulty.warm(*bench.prepared(job))
    command = bench.prepared(job)
    whole, acts = bench.faulty.killed_at(0, bench.work, *command)
    expected, numbers = bench.contents(job), instants(acts, mode)
    assert numbers
    # others in each command and mode, the same in each run
    every = 1 if WHOLE else max(1, len(numbers) // SOME)
    for number in numbers[len(name + mode) % every :: every]:
        bench.prepared(job)
        struck, _ = bench.faulty.killed_at(number, bench.work, *command, mode=mode)
        yield struck, whole.code
        bench.ended(job, command, whole.code)
        assert differing(bench.contents(job), expected) == {}, f"{number}: {acts[number - 1]}"
    print(f"{name}, {mode}: {len(numbers)} instants, every {every}th")  # pytest -rP shows them


@pytest.mark.slow
@pytest.mark.parametrize("name", list(JOBS))
def test_killed(bench, name):
    """Fault: SIGKILL at each act on files | before each file or folder is made, renamed or removed, and in the middle
    of each write: `ingest`, `append`, `columns`, `fit` (by 13 methods and without one, paths, folds, `--select`,
    `--refit`, `--calibrate`, `--threshold-for`, patience), `resume --passes`, `train`, `calibrate`, `predict`,
    `evaluate`, `import`, `export`, `report`; 11,078 instants | the same command, or `resume`, ends with the same
    files | bits"""
    for struck, _ in enumerated(bench, name, "kill"):
        assert (struck.code, struck.err.count("\n")) in ((KILLED, 0), (KILLED, 1)), struck.err
        check_readable(bench.work / (JOBS[name].run or "run"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JOBS if name not in UNSYNCED])
def test_power_is_lost(bench, name):
    """Fault: The power fails at each act on files | before each rename, sync and removal of `fit` but by `sdca` and
    with `--refit`, `calibrate`, `predict`, `evaluate`, `import`, `export`, `report`: what no sync has made durable has
    its old name, or is half there; 2,054 instants | the same command, or `resume`, ends with the same files | bits"""
    for struck, _ in enumerated(bench, name, "lost"):
        assert struck.code == KILLED, struck.err


@pytest.mark.slow
@pytest.mark.parametrize("name", list(JOBS))
def test_disk_is_full(bench, name):
    """Fault: No room on the disk from any act on | from the making of each folder, or the middle of the writing of
    each file, of all these commands; 3,616 instants | one line, exit code 1; the same command, or `resume`, ends with
    the same files | bits"""
    for struck, code in enumerated(bench, name, "full"):
        # what is only tidied up needs no room
        assert struck.code == code or (struck.code, struck.err.count("\n")) == (1, 1), struck.err


# -- the tables of docs/reliability.md are written from the tests that hold them -------------------------


ROOT = Path(__file__).parents[3]
TABLES = runpy.run_path(str(ROOT / "docs" / "fault_tables.py"))
PAGE = TABLES["PAGE"].read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_tests():
    times = TABLES["counts"](PAGE)
    assert len(times) > 80
    assert TABLES["written"](PAGE, times) == PAGE, "python docs/fault_tables.py writes them"
    named = {ROOT / file for file in TABLES["files"](PAGE)}
    told = {file for file in (ROOT / "tests").rglob("test_*.py") if '"""Fault: ' in file.read_text("utf-8")}
    assert told - {Path(__file__)} <= named, "a file whose faults no table of the page has"


@pytest.mark.slow
def test_faults_are_tried_as_often_as_the_page_says():
    times = TABLES["collected"](PAGE)
    assert {test: times.get(test) for test in TABLES["counts"](PAGE)} == TABLES["counts"](PAGE)
