"""Temporary folders: in memory while they are small and there is room, gone at the end, and after a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distls.storage.filesystem import memory_folder
from distls.storage.filesystem.memory_folder import LARGEST_IN_MEMORY, temporary_folder

_HOLDER = """
from distls.storage.filesystem.memory_folder import temporary_folder
with temporary_folder("held-", 1) as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def memory(tmp_path, monkeypatch):
    """Let a folder stand for the file system in memory."""
    made = tmp_path / "memory"
    made.mkdir()
    monkeypatch.setattr(memory_folder, "_MEMORY", made)
    memory_folder._sweep.cache_clear()
    return made


def test_small_files_are_in_memory(memory):
    with temporary_folder("a-", LARGEST_IN_MEMORY / memory_folder._ROOM) as folder:
        assert folder.parent == memory
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("x")
    assert not list(memory.iterdir())


@pytest.mark.parametrize("n_bytes", [None, LARGEST_IN_MEMORY + 1])
def test_others_are_on_the_disk(n_bytes, memory, tmp_path):
    with temporary_folder("a-", n_bytes) as folder:
        assert folder.is_dir()
        assert memory not in folder.parents
    assert not folder.exists()


def test_without_room_or_without_such_a_file_system(memory, monkeypatch):
    monkeypatch.setattr(memory_folder, "_ROOM", 1e30)
    with temporary_folder("a-", 1) as folder:
        assert memory not in folder.parents
    monkeypatch.setattr(memory_folder, "_MEMORY", memory / "none")
    with temporary_folder("a-", 1) as folder:
        assert memory not in folder.parents


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no file system in memory")
def test_what_a_killed_process_left_is_swept_and_what_is_in_use_is_not(monkeypatch):
    monkeypatch.setattr(memory_folder, "_MEMORY", Path("/dev/shm"))
    held = [
        subprocess.Popen([sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = [Path((each.stdout or sys.stdin).readline().strip()) for each in held]
    held[0].send_signal(signal.SIGKILL)
    held[0].wait()
    assert all(folder.is_dir() for folder in folders)
    with temporary_folder("a-", 1):
        assert not folders[0].exists()
        assert folders[1].is_dir()
    held[1].communicate("\n")
    assert not folders[1].exists()


def test_what_a_killed_process_left_on_the_disk_is_swept_too(tmp_path, monkeypatch):
    place = tmp_path / "temporary"
    place.mkdir()
    holder = _HOLDER.replace('"held-", 1', '"held-", None')
    held = [
        subprocess.Popen(
            [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(place)},
        )
        for _ in range(2)
    ]  # fmt: skip
    folders = [Path((each.stdout or sys.stdin).readline().strip()) for each in held]
    assert all(folder.parent == place for folder in folders)
    held[0].send_signal(signal.SIGKILL)
    held[0].wait()
    # of a machine that shares the folder
    other = place / f"{memory_folder._own()}01234567-held-x"
    other.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with temporary_folder("a-", None):
        assert not folders[0].exists()
        assert folders[1].is_dir()
    held[1].communicate("\n")
    assert list(place.iterdir()) == [other]
