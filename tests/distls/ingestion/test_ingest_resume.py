"""Killed, full, changed: an ingest resumes to the same bits or says why not."""

import gzip
import os
import shutil

import pytest
from helpers import raised, refuses
from ingest_helpers import file_bytes, make_text, small_ranges  # noqa: F401

import distls.ingestion.request.source_plan
import distls.ingestion.run
import distls.workers.ingestion.stage_task
from distls import ingest, open_dataset
from distls.execution.serial import SerialExecutor
from distls.storage.errors import BadInputError, FormatError, IncompleteError, StorageError
from distls.testing.formats import Dying, Killed

pytestmark = pytest.mark.usefixtures("small_ranges")


OPTIONS = {"partition_size": 4000, "split": ["test=0.25"], "transform": "idf", "seed": 1}


def test_what_is_staged_is_not_staged_again(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())
    ingest(tmp_path / "a.svm", tmp_path / "whole", **OPTIONS)
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS, executor=Dying(6))
    for name in ("d", "d-test"):
        assert raised(IncompleteError, open_dataset, tmp_path / name) == (
            f"{tmp_path}/{name}: an ingest into it did not finish; run the same ingest again to resume it, or remove it"
        )
    staged = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "d" / ".ingest" / "chunks").glob("*.bin")}
    assert len(staged) == 6
    ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS, executor=Checking(tmp_path / "d", staged))
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")


class Checking(SerialExecutor):
    """Asserts that the chunks staged earlier are not written again."""

    def __init__(self, root, staged):
        self.root, self.staged = root, staged

    def map(self, function, items, *, shared=None):
        for result in super().map(function, items, shared=shared):
            for name, mtime in self.staged.items():
                assert (self.root / ".ingest" / "chunks" / name).stat().st_mtime_ns == mtime
            yield result


def test_killed_between_the_two_publications_it_resumes(tmp_path, monkeypatch):
    (tmp_path / "a.svm").write_text(make_text())
    ingest(tmp_path / "a.svm", tmp_path / "whole", **OPTIONS)
    publish = distls.ingestion.run.publish

    def dies_at_the_second(root, *args):
        if root.name == "d":
            raise Killed
        return publish(root, *args)

    monkeypatch.setattr(distls.ingestion.run, "publish", dies_at_the_second)
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS)
    monkeypatch.undo()
    monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", 2000)
    ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS)
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")
    assert file_bytes(tmp_path / "d-test") == file_bytes(tmp_path / "whole-test")


def test_a_compressed_file_resumes_inside(tmp_path, monkeypatch):
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress(make_text().encode()))
    ingest(tmp_path / "a.svm.gz", tmp_path / "whole")
    write = distls.workers.ingestion.stage_task._write_batch

    def dies_at_the_fourth(spec, item, part, *rest):
        if part == 3:
            raise Killed
        return write(spec, item, part, *rest)

    monkeypatch.setattr(distls.workers.ingestion.stage_task, "_write_batch", dies_at_the_fourth)
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm.gz", tmp_path / "d")
    parts = []
    monkeypatch.setattr(
        distls.workers.ingestion.stage_task, "_write_batch", lambda *call: parts.append(call[2]) or write(*call)
    )
    ingest(tmp_path / "a.svm.gz", tmp_path / "d")
    assert parts[0] == 3
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")


def test_other_arguments_or_sources_do_not_resume(tmp_path):
    source = tmp_path / "a.svm"
    source.write_text(make_text())
    with pytest.raises(Killed):
        ingest(source, tmp_path / "d", seed=1, executor=Dying(4))

    def refusal(*sources, **options):
        return raised(IncompleteError, ingest, list(sources), tmp_path / "d", **{"seed": 1, **options})

    tail = f"give the same arguments to resume it, or remove {tmp_path}/d to start over"
    start = f"{tmp_path}/d: holds an unfinished ingest, and"
    assert refusal(source, seed=2) == f"{start} its seed was 1, not 2; {tail}"
    shutil.copy(source, tmp_path / "b.svm")
    assert refusal(source, tmp_path / "b.svm") == f"{start} its sources were a.svm; {tail}"
    os.utime(source, (1, 1))
    assert refusal(source) == f"{start} {source} has changed since; {tail}"
    source.unlink()
    refuses(BadInputError, "no such file", ingest, source, tmp_path / "d", seed=1)
    assert (tmp_path / "d" / ".ingest").exists()


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())

    def change(done, total, stage):
        if done > 3000 and stage == "parse":
            with (tmp_path / "a.svm").open("a") as file:
                file.write("1 1:1\n")

    assert raised(BadInputError, ingest, tmp_path / "a.svm", tmp_path / "d", progress=change) == (
        f"{tmp_path}/a.svm: changed while it was being ingested; ingest it again from the start"
    )
    raised(FormatError, open_dataset, tmp_path / "d")


@pytest.mark.parametrize("step", ["write_chunk", "write_record"])
def test_a_full_disk_is_reported_and_the_ingest_resumes(tmp_path, monkeypatch, step):
    (tmp_path / "a.svm").write_text(make_text())
    ingest(tmp_path / "a.svm", tmp_path / "whole")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"distls.storage.temporary.ingest_staging.StagingArea.{step}", full)
    assert raised(StorageError, ingest, tmp_path / "a.svm", tmp_path / "d") == (
        f"{tmp_path}/d: the ingest stopped: the disk is full; the output is incomplete: run the same ingest again "
        f"to resume it, or remove {tmp_path}/d"
    )
    monkeypatch.undo()
    monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", 2000)
    ingest(tmp_path / "a.svm", tmp_path / "d")
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")
