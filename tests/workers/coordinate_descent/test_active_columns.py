"""Columns that lanes store for a descent, which the process that has stored them need not read."""

import numpy as np
import pytest

from distls.storage.errors import StateLostError
from distls.storage.rows import DenseRows
from distls.workers.coordinate_descent.active_columns import Active, read_active, store_active
from distls.workers.runtime.buffers import job_memory, release_buffers


class Meta:
    n_rows, n_features = 3, 9


def columns_of(*numbers):
    return Active(np.array(numbers), DenseRows(np.array(numbers, float)[:, None] * np.ones(3)))


@pytest.fixture(autouse=True)
def _forget():
    yield
    release_buffers()


def test_columns_are_those_that_were_stored(tmp_path):
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2), columns_of(5)])
    for _ in range(2):  # from memory, then from the files
        (found,) = read_active(str(tmp_path), 1, 0, Meta)
        assert found.columns.tolist() == [1, 2, 5]
        np.testing.assert_array_equal(found.x.values, columns_of(1, 2, 5).x.values)


def test_later_columns_of_another_process_replace_those_in_memory(tmp_path):
    """A search for a certificate begins with the first round again, and its lanes run anywhere."""
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2)])
    kept = dict(job_memory)
    store_active(str(tmp_path), 1, 0, [columns_of(3, 4)])
    job_memory.update(kept)
    (found,) = read_active(str(tmp_path), 1, 0, Meta)
    assert found.columns.tolist() == [3, 4]


def test_one_process_keeps_them_in_memory_alone(tmp_path):
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2), columns_of(5)], alone=True)
    assert not any(tmp_path.iterdir())
    found = read_active(str(tmp_path), 1, 0, Meta, alone=True)
    assert [each.columns.tolist() for each in found] == [[1, 2], [5]]
    # given once, and to its own round
    with pytest.raises(StateLostError):
        read_active(str(tmp_path), 1, 0, Meta, alone=True)
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2)], alone=True)
    with pytest.raises(StateLostError):
        read_active(str(tmp_path), 2, 0, Meta, alone=True)


def test_columns_in_memory_do_not_outlive_their_files(tmp_path):
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2)])
    for path in (tmp_path / "active").iterdir():
        path.unlink()
    with pytest.raises(StateLostError):
        read_active(str(tmp_path), 1, 0, Meta)
