"""Storage that fails now and then: how often a read is tried, and what is said of it."""

import errno
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from distls.storage.dataset import chunks
from distls.storage.dataset.chunks import BufferPool, read_array, write_array
from distls.storage.errors import CorruptDataError, StorageError
from distls.storage.filesystem import safe_read as untrusted
from distls.storage.filesystem.safe_read import read_with_retries
from distls.storage.temporary.row_state import RowState

FILE = Path("/data/c/0")


@pytest.fixture(autouse=True)
def waited(monkeypatch):
    """Seconds that would have been waited."""
    seconds = []
    monkeypatch.setattr(untrusted.time, "sleep", seconds.append)
    return seconds


def failing(*failures):
    """Return a read that fails in these ways, one after the other, and then succeeds."""
    left = list(failures)

    def read():
        if left:
            raise left.pop(0)
        return "read"

    return read


def os_error(number):
    return OSError(number, os.strerror(number), str(FILE))


EIO, ESTALE, DAMAGE = os_error(errno.EIO), os_error(errno.ESTALE), CorruptDataError("array data: torn")


def test_a_store_that_lists_only_some_of_its_objects_is_waited_for(waited):
    assert read_with_retries(failing(DAMAGE, DAMAGE), FILE, of_store=True) == "read"
    assert waited == [0.05, 0.5]
    with pytest.raises(CorruptDataError):
        read_with_retries(failing(DAMAGE, DAMAGE, DAMAGE), FILE, of_store=True)


@pytest.mark.parametrize(
    "failures", [[EIO], [ESTALE, EIO], [DAMAGE], [EIO, DAMAGE], [DAMAGE, ESTALE]], ids=lambda f: str(len(f))
)
def test_passing_trouble_is_noted_once(failures, waited, caplog):
    with caplog.at_level(logging.WARNING, "distls"):
        assert read_with_retries(failing(*failures), FILE) == "read"
    assert caplog.messages == [f"{FILE}: read again, and well, after: {failures[-1]}"]
    assert waited == [wait for wait, why in zip([0.05, 0.5], failures, strict=False) if why is not DAMAGE]


@pytest.mark.parametrize(
    ("failures", "attempts"),
    [
        ([EIO, EIO, ESTALE], 3),
        ([DAMAGE, DAMAGE], 2),
        ([EIO, DAMAGE, DAMAGE], 3),
        ([DAMAGE, EIO, DAMAGE], 3),
        *([[os_error(number)], 1] for number in (errno.ENOENT, errno.EACCES, errno.EISDIR)),
    ],
)
def test_lasting_trouble_is_raised_and_not_noted(failures, attempts, waited, caplog):
    with pytest.raises(type(failures[-1])) as caught:
        read_with_retries(failing(*failures), FILE)
    assert caught.value is failures[-1]
    assert len(waited) == sum(why is not DAMAGE for why in failures[: attempts - 1])
    assert caplog.messages == []


class Unsteady:
    """Has the first `n` files of a module opened in vain, or only a torn copy of them."""

    def __init__(self, monkeypatch, module, n, torn=False):
        self.left, self.opened, self.torn, self.true = n, 0, torn, module.open_regular
        monkeypatch.setattr(module, "open_regular", self.open)

    def open(self, path, within=None):
        self.opened += 1
        if self.opened > self.left:
            return self.true(path, within)
        if self.torn:
            path.with_name("torn").write_bytes(path.read_bytes()[:-9] + bytes(9))
            return self.true(path.with_name("torn"), within)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("torn", [False, True])
def test_a_chunk_is_read_again(tmp_path, monkeypatch, torn):
    array = np.arange(1000.0)
    expected = write_array(tmp_path / "a", array, "zstd")
    storage = Unsteady(monkeypatch, chunks, 1, torn)
    read = read_array(tmp_path, "a", array.shape, array.dtype, "zstd", expected, BufferPool(), "D: partition 0")
    assert read.tobytes() == array.tobytes()
    assert storage.opened == 2


def test_a_chunk_that_cannot_be_read_is_one_line(tmp_path, monkeypatch):
    array = np.arange(1000.0)
    expected = write_array(tmp_path / "a", array, "none")
    storage = Unsteady(monkeypatch, chunks, 9)
    with pytest.raises(StorageError) as caught:
        read_array(tmp_path, "a", array.shape, array.dtype, "none", expected, BufferPool(), "D: partition 0")
    start = "D: partition 0, array a: it cannot be read: Input/output error"
    assert str(caught.value) == f"{start} ({tmp_path}/a/c/0); check the disk"
    assert storage.opened == 3


def test_what_a_solver_keeps_is_read_again(tmp_path, monkeypatch):
    state = RowState(tmp_path)
    state.write(0, 1, np.arange(5.0))
    storage = Unsteady(monkeypatch, untrusted, 2)
    assert state.read(0, 1).tolist() == [0, 1, 2, 3, 4]
    assert storage.opened == 3


def test_metadata_is_read_again(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("[1]")
    storage = Unsteady(monkeypatch, untrusted, 2)
    assert untrusted.read_json(tmp_path / "a.json", object) == [1]
    assert storage.opened == 3
