"""What is kept for every row: as it was written, or lost and said so; two versions, no more."""

import numpy as np
import pytest
from helpers import raised, refuses

from distls.storage.errors import StateLostError
from distls.storage.filesystem.safe_read import read_array_file
from distls.storage.temporary.row_state import RowState


@pytest.fixture
def state(tmp_path):
    (tmp_path / "run").mkdir()
    return RowState(tmp_path / "run" / "state")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(7, 3), (1, 1), (0, 3), (5, 0)])
def test_read_as_written(state, dtype, shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    state.write(3, 1, values)
    found = state.read(3, 1)
    assert found.dtype == values.dtype
    assert found.shape == shape
    assert np.array_equal(found, values)
    found[...] = 0.0  # the reader's own
    assert np.array_equal(state.read(3, 1), values)
    assert state.holds(3, 1)


def test_a_transposed_array_is_kept_in_its_own_order(state):
    values = np.arange(6.0).reshape(2, 3)
    state.write(0, 1, values.T)
    assert np.array_equal(state.read(0, 1), values.T)


def test_the_version_before_stays_and_older_ones_go(state):
    for version in range(1, 6):
        state.write(0, version, np.full(2, float(version)))
        state.write(1, version, np.full(2, -float(version)))
    assert sorted(path.name for path in state.folder.iterdir()) == [
        "00000000-000004.npy", "00000000-000005.npy", "00000001-000004.npy", "00000001-000005.npy",
    ]  # fmt: skip
    assert state.read(0, 4).tolist() == [4.0, 4.0]
    assert state.read(1, 5).tolist() == [-5.0, -5.0]


def test_a_version_written_again_replaces_the_file(state):
    state.write(0, 1, np.zeros(3))
    state.write(0, 1, np.ones(4))
    assert state.read(0, 1).tolist() == [1.0] * 4
    assert len(list(state.folder.iterdir())) == 1


def test_missing(state):
    assert raised(StateLostError, state.read, 2, 1) == f"{state.folder / '00000002-000001.npy'}: missing"
    assert not state.holds(2, 1)


@pytest.mark.parametrize("damage", ["flipped", "header", "cut", "cut to the checksum", "empty", "longer"])
def test_damaged(state, damage):
    state.write(0, 1, np.arange(12.0))
    path = state.folder / "00000000-000001.npy"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-20] ^= 1
    elif damage == "header":
        content[10] ^= 1
    content = {"cut": content[:-9], "cut to the checksum": content[-4:], "empty": b""}.get(damage, content)
    path.write_bytes(bytes(content) + b"x" * (damage == "longer"))
    assert raised(StateLostError, state.read, 0, 1) == f"{path}: its bytes do not match its checksum"
    assert not state.holds(0, 1)


def test_a_torn_read_is_repeated(state, monkeypatch):
    state.write(0, 1, np.arange(12.0))
    reads = []

    def torn(path, within):
        whole = read_array_file(path, within)
        reads.append(len(whole))
        return whole[: len(whole) // 2] if len(reads) == 1 else whole

    monkeypatch.setattr("distls.storage.model.bundle.read_array_file", torn)
    assert state.read(0, 1).tolist() == list(range(12))
    assert len(reads) == 2


def test_nothing_half_written_stays(state, monkeypatch):
    state.write(0, 1, np.zeros(3))

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fails)
    refuses(OSError, "No space left", state.write, 0, 2, np.ones(3))
    monkeypatch.undo()
    assert [path.name for path in state.folder.iterdir()] == ["00000000-000001.npy"]
    assert state.holds(0, 1)
