"""Columns that lanes store for a descent, which the process that has stored them need not read."""

import numpy as np
import pytest
from helpers import raised

from distls.storage.errors import StateLostError
from distls.storage.rows import DenseRows
from distls.workers.coordinate_descent.active_columns import (
    Active,
    KnownProducts,
    SlopeProducts,
    read_active,
    store_active,
)
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
    raised(StateLostError, read_active, str(tmp_path), 1, 0, Meta, alone=True)
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2)], alone=True)
    raised(StateLostError, read_active, str(tmp_path), 2, 0, Meta, alone=True)


def test_columns_in_memory_do_not_outlive_their_files(tmp_path):
    store_active(str(tmp_path), 1, 0, [columns_of(1, 2)])
    for path in (tmp_path / "active").iterdir():
        path.unlink()
    raised(StateLostError, read_active, str(tmp_path), 1, 0, Meta)


def test_products_are_within_what_earlier_ones_tell():
    """Slopes that are about a combination of two earlier ones, with products of some columns alone."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((20, 50)).astype(np.float32)
    turns = rng.standard_normal((3, 50, 1))
    turns = [*turns[:2], 0.7 * turns[0] - 0.2 * turns[1] + 1e-3 * turns[2], 2.0 * turns[2]]
    known = KnownProducts(None, SlopeProducts(np.zeros((50, 1))))
    known.measure(3, DenseRows(values))
    for number, slopes in enumerate(turns):
        before, known = known, known.after(slopes, screened=True)
        kept = [each.copy() for each in before.newest.of(3, 20)]
        own, wanted = known.newest.of(3, 20), values.astype(float) @ slopes
        bounds = known.bounds(3, 20)
        some = np.arange(20) % 4 != 2 * (number == 1)  # of each slopes every fourth is not computed
        assert (np.abs(wanted[:, 0]) <= bounds).all()
        if number == 2:
            np.testing.assert_array_less(bounds[1::2] - np.abs(wanted[1::2, 0]), 0.1)
        own.found[some], own.unknown[some] = wanted[some], 0.0
        known.newest.read.add(3)
        # a task of another fit goes on with what it has
        assert all(np.array_equal(*pair) for pair in zip(kept, before.newest.of(3, 20), strict=True))
    # the oldest have made way, so that nothing of them counts
    newest = known.newest
    known = known.after(turns[0], screened=True)
    assert [each.slopes is turn for each, turn in zip(known.earlier[3], turns[:0:-1], strict=True)] == [True] * 3
    assert known.newest.of(3, 20).unknown.all()
    assert known.bounds(3, 20).min() > 0.0
    # those of columns in memory alone count no more than if there were none
    again = known.after(turns[1], screened=True)
    assert again.earlier[3] == known.earlier[3]
    assert again.recent[0] is newest
    # of these slopes, and not of those before them
    assert (np.abs(values.astype(float) @ turns[1])[:, 0] <= again.bounds(3, 20)).all()
    assert again.bounds(3, 20).min() < 1e3
    # nor what was read too long ago, or of other shards
    for _ in range(4):
        again.newest.read.add(5)
        again = again.after(turns[1], screened=True)
    assert again.bounds(3, 20).min() == KnownProducts(None, newest).bounds(3, 20).min() > 1e200
