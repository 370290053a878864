"""Nothing half-written appears under a name that is read."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers import raised, refuses

from distls.storage.errors import StorageError
from distls.storage.filesystem import atomic
from distls.storage.filesystem.atomic import (
    SyncedTogether,
    atomic_directory,
    describe_os_error,
    sync_file,
    write_bytes,
    write_json,
)
from distls.storage.filesystem.safe_read import read_json


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch):
    """Replace folders in one act, and as where the kernel cannot."""
    if request.param == "two renames":
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    return request.param


def test_json_survives(tmp_path):
    value = {"b": [1, 2.5, None, "é"], "a": True}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json", object) == value
    assert names(tmp_path) == ["x.json"]


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "", "{"])
def test_what_is_not_json_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    raised(ValueError, read_json, tmp_path / "x.json", object)


def test_nan_is_not_written_and_the_old_file_stays(tmp_path):
    write_json(tmp_path / "x.json", 1)
    raised(ValueError, write_json, tmp_path / "x.json", [float("nan")])
    assert read_json(tmp_path / "x.json", object) == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "x"
    write_bytes(path, b"old")

    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*{"fsync": (os, "fsync", fail), "replace": (Path, "replace", fail)}[step])
    refuses(OSError, "No space left", write_bytes, path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("known", [True, False])
def test_many_files_are_made_durable_together(tmp_path, monkeypatch, known):
    """By one call for the file system where the system has it; before the folder has its name."""
    calls = []

    def sync(*descriptor):
        calls.append((tmp_path / "d").exists())
        return 0

    library = type("Library", (), {"syncfs": staticmethod(sync)} if known else {})
    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda *given, **options: library)
    monkeypatch.setattr(atomic.os, "sync", sync)
    monkeypatch.setattr(atomic, "_MANY", 2)
    for number, expected in ((2, []), (3, [False])):
        with atomic_directory(tmp_path / "d") as folder:
            for name in range(number):
                (folder / str(name)).write_text("x")
        assert calls == expected
        assert len(list((tmp_path / "d").iterdir())) == number
        atomic.shutil.rmtree(tmp_path / "d")


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 6), (3600.0, 1)])
def test_small_files_are_made_durable_together(tmp_path, monkeypatch, seconds, expected):
    """All of the file system, where a file or a folder is to be durable after so many seconds; else at the end."""
    one, whole = [], []
    library = type("Library", (), {"syncfs": staticmethod(lambda descriptor: whole.append(descriptor))})
    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda *given, **options: library)
    monkeypatch.setattr(os, "fsync", one.append)
    together = SyncedTogether(seconds)
    with together.writing():
        for name in "ab":
            write_bytes(tmp_path / name, b"1")
        with atomic_directory(tmp_path / "d") as folder:
            write_bytes(folder / "c", b"2", sync=False)
        sync_file(tmp_path / "a")
    together.sync(tmp_path, now=True)
    assert (one, len(whole)) == ([], expected)
    write_bytes(tmp_path / "b", b"3")
    assert len(one) == 2


def test_a_file_system_that_cannot_sync_folders_is_good_enough(tmp_path, monkeypatch):
    real = os.fsync

    def files_only(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    write_bytes(tmp_path / "x", b"1")
    with atomic_directory(tmp_path / "d") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "y").write_bytes(b"2")
    assert (tmp_path / "x").read_bytes() == b"1"
    assert (tmp_path / "d" / "inner" / "y").read_bytes() == b"2"


def test_a_folder_appears_whole(tmp_path):
    target = tmp_path / "deep" / "d"
    with atomic_directory(target) as folder:
        (folder / "a").write_bytes(b"1")
        assert not target.exists()
    assert names(target) == ["a"]
    assert names(target.parent) == ["d"]


def test_a_folder_replaces_another(tmp_path, way):
    for content in ("a", "b", "c"):
        with atomic_directory(tmp_path / "d") as folder:
            (folder / content).write_bytes(b"")
    assert names(tmp_path / "d") == ["c"]
    assert names(tmp_path) == ["d"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_block_changes_nothing(tmp_path, error):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").write_bytes(b"")

    def interrupted():
        with atomic_directory(tmp_path / "d") as folder:
            (folder / "new").write_bytes(b"")
            raise error

    raised(error, interrupted)
    assert names(tmp_path / "d") == ["old"]
    assert names(tmp_path) == ["d"]


def test_a_rename_that_fails_restores_the_old_folder(tmp_path, monkeypatch):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").write_bytes(b"")
    real = Path.rename

    def fail(self, target):
        if self.name.endswith(".partial"):
            raise OSError(errno.EIO, "Input/output error")
        return real(self, target)

    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"), atomic_directory(tmp_path / "d"):
        pass
    assert names(tmp_path / "d") == ["old"]
    assert names(tmp_path) == ["d"]


def test_the_name_never_goes_missing_while_it_is_replaced(tmp_path):
    probe = [tmp_path / "one", tmp_path / "other"]
    for path in probe:
        path.mkdir()
    if not atomic._exchange(*probe):
        pytest.skip("this file system cannot exchange two names")
    target, missing, done = tmp_path / "d", [], threading.Event()
    target.mkdir()

    def watch():
        while not done.is_set():
            if not target.exists():
                missing.append(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(60):
        with atomic_directory(target) as folder:
            (folder / "x").write_bytes(b"")
    done.set()
    watcher.join()
    assert not missing


def test_killed_in_the_middle(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").write_bytes(b"")
    script = (
        "import os, signal, sys, pathlib\n"
        "from distls.storage.filesystem.atomic import atomic_directory\n"
        "with atomic_directory(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'new').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "d")], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert names(tmp_path / "d") == ["old"]
    assert [name.endswith(".partial") for name in names(tmp_path)] == [False, True]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "x", "/a/b"), "writing: the disk is full (/a/b); make room"),
        (OSError(errno.EDQUOT, "x"), "writing: the disk quota is used up; make room"),
        (PermissionError(errno.EACCES, "x", "/a"), "writing: permission denied (/a); make room"),
        (OSError(errno.EROFS, "x"), "writing: the file system is read-only; make room"),
        (FileNotFoundError(errno.ENOENT, "x", "/a"), "writing: no such file or directory (/a); make room"),
        (OSError(errno.EIO, "Input/output error"), "writing: Input/output error; make room"),
        (OSError("odd"), "writing: odd; make room"),
    ],
)
def test_what_the_system_refuses_is_one_line(error, expected):
    described = describe_os_error(error, "writing", "make room")
    assert isinstance(described, StorageError)
    assert str(described) == expected
