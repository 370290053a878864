"""A full disk: one line that says so, nothing half-written is taken for whole, and when room is made it goes on.

The disk is a small tmpfs where this process may mount one (root in a container with that right). The limit of a
file's size is the other way to be refused by a file system, and needs no rights.
"""

import contextlib
import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_helpers import disk
from helpers import distls, labelled_rows, raised, write_dataset

from distls import add_columns, fit, open_dataset
from distls.storage.errors import DistlsError, StorageError
from distls.storage.model.model import load_model
from distls.synthetic.text_export import export_text

__all__ = ["disk"]

KIB = 1024
SERIAL = ("--executor", "serial", "--quiet")
WIDE = 30_000


@contextlib.contextmanager
def files_of_at_most(size):
    """Let this process write no larger file; Python turns the signal into an error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A wide data set: a model of it uses 14,252 of 30,000 features and stores 334 KiB."""
    return write_dataset(tmp_path_factory.mktemp("train") / "d", *labelled_rows(1500, WIDE, 4)).path


@pytest.fixture(scope="module")
def text(train):
    export_text(train, train.with_name("d.svm"))
    return train.with_name("d.svm")


def one_line(ended, start, *parts):
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1), ended.err
    assert ended.err.startswith(f"distls: {start}"), ended.err
    for part in parts:
        assert part in ended.err


def partial_names(folder):
    return [path.name for path in folder.rglob("*.partial*")]


FULL = "the disk is full"
LARGE = "a file grew past the allowed size"


@pytest.mark.slow_cases("0", "1.7")
@pytest.mark.parametrize("share", [0.3, 0.9, 1.3, 1.7])
def test_ingest_stops_and_resumes(disk, text, tmp_path, share):
    """Fault: Disk full in `ingest` | at four points | one line; with more room the same ingest continues | bits"""
    arguments = ("--n-features", WIDE, "--partition-size", "32KiB", "--compress", "none", *SERIAL)
    assert distls("ingest", text, tmp_path / "whole", *arguments).code == 0
    whole = open_dataset(tmp_path / "whole")
    out = disk.path / "d"
    disk.fill(int(whole.stored_bytes.sum() * share))
    one_line(distls("ingest", text, out, *arguments), str(out), FULL, "run the same ingest again to resume it")
    raised(DistlsError, open_dataset, out)
    disk.make_room()
    assert distls("ingest", text, out, *arguments).code == 0
    assert open_dataset(out).fingerprint == whole.fingerprint
    assert not (out / ".ingest").exists()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 1.5])
def test_columns_stop_and_resume(disk, train, tmp_path, share):
    whole = add_columns(shutil.copytree(train, tmp_path / "whole"), shard_size=16 * KIB).columns
    out = shutil.copytree(train, disk.path / "d")
    disk.fill(int(whole.stored_bytes.sum() * share))
    arguments = ("columns", out, "--shard-size", "16KiB", *SERIAL)
    remedy = f"run `distls columns {out}` to go on, or remove {out}/.columns"
    one_line(distls(*arguments), f"{out}: its column shards are incomplete: {FULL}", remedy)
    assert open_dataset(out).columns is None
    disk.make_room()
    assert distls(*arguments).code == 0
    made = open_dataset(out).columns
    assert made.digest == whole.digest
    assert not (out / ".columns").exists()


def _digest(run):
    return str(json.loads((run / "status.json").read_text())["weights_sha256"])


@pytest.fixture(scope="module")
def undisturbed(train):
    return fit("mcid", train, params={"alpha": 1e-4}, passes=6, eval_every=0).model.sha256


@pytest.fixture(scope="module", autouse=True)
def compiled(undisturbed):
    """Kernels are in their disk cache before files are limited."""


def _fit(train, run, *more):
    limits = ("-p", "alpha=1e-4", "--passes", 6, "--eval-every", 0)
    return distls("fit", "mcid", train, run, *limits, *more, *SERIAL)


# 250 KiB do not hold a model; 5 MiB hold one checkpoint (of some 4 MiB) and part of the next
@pytest.mark.slow_cases("256000")
@pytest.mark.parametrize(("left", "every"), [(250 * KIB, 1e9), (250 * KIB, 0), (5 * 1024 * KIB, 0)])
def test_fit_stops_and_resumes(disk, train, undisturbed, left, every):
    run = disk.path / "run"
    disk.fill(left)
    ended = _fit(train, run, "--checkpoint-seconds", every)
    one_line(ended, f"{run}: the fit stopped: {FULL}", f"`distls resume {run}` continues")
    assert not (run / "model").exists()
    assert partial_names(run) == []
    raised(DistlsError, load_model, run)
    disk.make_room()
    resumed = distls("resume", run, *SERIAL)
    assert (resumed.code, resumed.err) == (0, "")
    assert _digest(run) == undisturbed
    assert load_model(run).sha256 == undisturbed


def test_a_run_that_cannot_even_start_says_where(disk, train):
    disk.fill(0)
    one_line(_fit(train, disk.path / "run"), f"cannot write the run {disk.path}/run: {FULL}")


@pytest.mark.slow
def test_text_that_does_not_fit_is_one_line(disk, train):
    """The demonstration writes some."""
    disk.fill(20 * KIB)
    said = raised(StorageError, export_text, train, disk.path / "d.svm")
    remedy = "remove it, make room and write it again"
    assert said == f"cannot write {disk.path}/d.svm: {FULL}; {remedy}"


@pytest.mark.fast_cases("csv")
@pytest.mark.parametrize("ending", ["csv", "zarr"])
def test_predict_writes_all_or_nothing(disk, train, tmp_path, ending):
    """Fault: Disk full in `predict` | CSV and zarr | one line; no file | bits"""
    fit("mcid", train, tmp_path / "run", passes=1, eval_every=0)
    out = disk.path / f"p.{ending}"
    arguments = ("predict", tmp_path / "run", train, out, "--top", 4, *SERIAL)
    disk.fill(20 * KIB)
    one_line(distls(*arguments), f"cannot write {out}: {FULL}", "make room and predict again")
    assert [path.name for path in disk.path.iterdir()] == ["ballast"]
    disk.make_room()
    assert distls(*arguments).code == 0
    assert out.exists()


Case = tuple[str, Callable[[Path, Path, Path], tuple[object, ...]]]
LIMITED = [
    ("ingest", lambda train, text, place: ("ingest", text, place / "out", "--n-features", WIDE)),
    ("fit", lambda train, text, place: ("fit", "mcid", train, place / "out", "--passes", 1, "--eval-every", 0)),
    ("predict", lambda train, text, place: ("predict", place / "run", train, place / "out.csv", "--top", 4)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("command", "arguments"), LIMITED)
def test_a_limit_of_file_size_is_reported_too(train, text, tmp_path, command, arguments):
    if command == "predict":
        fit("mcid", train, tmp_path / "run", passes=1, eval_every=0)
    made = arguments(train, text, tmp_path)
    with files_of_at_most(16 * KIB):
        ended = distls(*made, *SERIAL)
    one_line(ended, "", LARGE)
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "out" / "model").exists()
    raised(DistlsError, open_dataset, tmp_path / "out")
    again = ("resume", tmp_path / "out") if command == "fit" else made
    ended = distls(*again, *SERIAL)
    assert (ended.code, ended.err) == (0, "")
