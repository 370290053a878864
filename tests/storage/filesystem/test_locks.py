"""Locks of real processes: one holder, named to whoever comes second, and none once it is killed."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys

import pytest
from helpers import raised, refuses

from distls.storage.errors import StorageError
from distls.storage.filesystem.locks import is_held, locked

HOLD = """
import sys, time
from pathlib import Path
from distls.storage.filesystem.locks import locked
with locked(Path(sys.argv[1]), "the run"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def acquire(path):
    with locked(path, "the run"):
        assert path.exists()


def test_the_second_is_told_who_holds_it(tmp_path, holder):
    path = tmp_path / "lock"
    said = raised(StorageError, acquire, path)
    who = f"process {holder.pid} on {socket.gethostname()}"
    assert said == f"the run is being written by {who}; wait until it has ended, or stop it ({path})"
    holder.communicate("\n")
    assert not path.exists()
    acquire(path)
    assert not path.exists()


def test_a_killed_holder_is_in_nobodys_way(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "lock").exists()
    acquire(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


def test_one_holder_in_a_process_too(tmp_path):
    with locked(tmp_path / "lock", "the run"), pytest.raises(StorageError, match=f"by process {os.getpid()} on "):
        acquire(tmp_path / "lock")
    acquire(tmp_path / "lock")


def test_an_error_lets_go(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "lock", "the run"):
        raise KeyError
    acquire(tmp_path / "lock")


def test_a_lock_removed_while_it_was_opened_is_not_one(tmp_path, monkeypatch):
    """Between open and flock its holder ends, and a third process makes the lock anew."""
    path, true, calls = tmp_path / "lock", fcntl.flock, []

    def flock(file, how):
        calls.append(how)
        if len(calls) == 1:
            path.unlink()
            path.touch()
        true(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(path, "the run"):
        assert len(calls) == 2
        raised(StorageError, acquire, path)


def test_a_file_of_another_program_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text("mine")
    refuses(StorageError, "not a lock of distls", acquire, tmp_path / "lock")
    assert (tmp_path / "lock").read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"process": "x", "host": 1}', b"[" * 4096])
def test_a_holder_that_has_not_signed(tmp_path, content):
    with (tmp_path / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(content)
        file.flush()
        refuses(StorageError, r"^the run is being written by another process; ", acquire, tmp_path / "lock")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refused(file, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    acquire(tmp_path / "lock")


def test_who_may_hold_a_lock_is_read_without_taking_it(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    with locked(path, "this"):
        assert is_held(path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = socket.gethostname()
    for signed, held in [
        (f'{{"process": {gone.pid}, "host": "{here}"}}', False),
        (f'{{"process": {gone.pid}, "host": "not-{here}"}}', True),
        (f'{{"process": 1, "host": "{here}"}}', True),
        ("half", True),
    ]:
        path.write_text(signed)
        assert is_held(path) is held
