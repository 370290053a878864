"""Dask arrays to data sets."""

import gc
import weakref

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from helpers import raised
from ingest_helpers import file_bytes, small_ranges  # noqa: F401

from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, IncompleteError, ParameterError
from distls.testing.formats import Dying, Killed, read_all

pytestmark = pytest.mark.usefixtures("small_ranges", "in_this_thread")


@pytest.fixture
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def arrays(n_rows=200, n_features=7, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((n_rows, n_features)).astype(np.float32)
    x[random.random(x.shape) < 0.5] = 0
    return x, random.integers(0, 3, n_rows)


def kept_order(x, path, **options):
    ingest(x, path, shuffle=False, **options)
    return read_all(path)


@pytest.mark.fast_cases("dask-False-7", "numpy-True-7", "other chunks-True-3")
@pytest.mark.parametrize("columns", [7, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["dask", "numpy", "other chunks"])
def test_chunks_of_rows_become_the_same_rows(tmp_path, columns, sparse, kind):
    x, y = arrays()
    lazy = da.from_array(x, chunks=(60, columns))
    lazy = lazy.map_blocks(scipy.sparse.csr_matrix) if sparse else lazy
    labels = y if kind == "numpy" else da.from_array(y, chunks=60 if kind == "dask" else 33)
    got_x, got_y = kept_order(lazy, tmp_path / "d", y=labels, partition_size=1000)
    assert np.array_equal(got_x, x)
    assert np.array_equal(got_y, y)
    data = open_dataset(tmp_path / "d")
    assert (data.meta.layout, data.meta.classes) == ("csr" if sparse else "dense", [0, 1, 2])
    assert len(data) > 2


@pytest.mark.parametrize("kind", ["dask", "numpy"])
def test_unknown_lengths_of_chunks(tmp_path, kind):
    x, y = arrays()
    weights = np.arange(200.0)
    keep = x[:, 0] != 0
    lazy = da.from_array(x, chunks=(60, 3))
    mask = lazy[:, 0] != 0
    unknown = lazy[mask]
    assert np.isnan(unknown.shape[0])
    labels = da.from_array(y, chunks=60)[mask] if kind == "dask" else y[keep]
    got_x, got_y = kept_order(unknown, tmp_path / "d", y=labels, sample_weight=weights[keep])
    assert np.isnan(unknown.shape[0])  # the user's array is as it was
    assert np.array_equal(got_x, x[keep])
    assert np.array_equal(got_y, y[keep])
    assert open_dataset(tmp_path / "d").meta.weight_sum == weights[keep].sum()


def test_words_and_continuous_targets(tmp_path):
    x, y = arrays()
    lazy = da.from_array(x, chunks=60)
    words = np.array(["no", "yes", "perhaps"])[y]
    for name, labels in (("d", words), ("e", da.from_array(words.astype(object), chunks=60))):
        _, codes = kept_order(lazy, tmp_path / name, y=labels)
        classes = open_dataset(tmp_path / name).meta.classes
        assert [classes[code] for code in codes] == words.tolist()
    targets = np.column_stack([y / 2, y * 3.0])
    _, got = kept_order(lazy, tmp_path / "c", y=da.from_array(targets, chunks=(50, 1)))
    assert np.array_equal(got, targets)
    ingest(lazy, tmp_path / "u", unlabelled=True)
    assert open_dataset(tmp_path / "u").meta.target == "none"


def test_one_chunk_is_in_memory_at_a_time_and_x_and_y_share_their_work(tmp_path):
    loaded, blocks = [], []

    def load(block_info=None):
        (first, last), _ = block_info[None]["array-location"]
        loaded.append((first, last))
        if any(block() is not None for block in blocks):
            gc.collect()  # they may hang on cycles; in a process of many tests it takes a second
        assert all(block() is None for block in blocks)
        values = np.full((last - first, 3), first, dtype=float)
        blocks.append(weakref.ref(values))
        return values

    table = da.map_blocks(load, chunks=((50,) * 6, (3,)), dtype=float, meta=np.empty((0, 0)))
    ingest(table[:, :2], tmp_path / "d", y=table[:, 2])
    assert loaded == [(start, start + 50) for start in range(0, 300, 50)]
    assert open_dataset(tmp_path / "d").meta.n_rows == 300


def test_a_stopped_ingest_goes_on_with_the_chunks_that_are_left(tmp_path):
    x, y = arrays()
    computed = []

    def noted(block):
        computed.append(len(block))
        return block

    # named by its content, as what comes from files is
    lazy = da.from_array(x, chunks=(60, 7)).map_blocks(noted, name="noted", meta=np.empty((0, 0), np.float32))
    options = {"y": y, "partition_size": 1000, "transform": "standardize"}
    ingest(lazy, tmp_path / "whole", **options)
    with pytest.raises(Killed):
        ingest(lazy, tmp_path / "d", **options, executor=Dying(2))
    computed.clear()
    ingest(lazy, tmp_path / "d", **options)
    assert computed == []
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")
    with pytest.raises(Killed):
        ingest(lazy, tmp_path / "e", **options, executor=Dying(2))
    assert raised(IncompleteError, ingest, lazy + 1, tmp_path / "e", **options).startswith(
        f"{tmp_path}/e: holds an unfinished ingest, and dask arrays has changed since;"
    )


def lied(block):
    return scipy.sparse.csr_matrix(block)


@pytest.mark.fast_cases("x0", "x3", "x6")
@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (da.ones((9, 2)), None, BadInputError, "y: no labels; give them, or unlabelled=True"),
        (da.ones((9, 2)), np.ones(8), BadInputError, "y: shape (8,) does not go with the 9 rows of X"),
        (da.ones(9), np.ones(9), BadInputError, "X: a dask array of shape (9,) and type float64; rows of real numbers "
         "are needed"),
        (da.ones((9, 2), dtype=complex), np.ones(9), BadInputError, "X: a dask array of shape (9, 2) and type "
         "complex128; rows of real numbers are needed"),
        (da.from_array(np.array([[1.0], [np.nan], [2.0]]), chunks=(1, 1)), np.arange(3), BadInputError,
         "X, row 1: a value is not finite in float32"),
        (da.ones((9, 2), chunks=3).map_blocks(lied, meta=np.empty((0, 0))), np.ones(9), BadInputError,
         "X, chunk 0: a csr_matrix, but its meta is a ndarray; declare it, as in "
         "map_blocks(..., meta=scipy.sparse.csr_matrix((0, 0)))"),
        (da.ones((9, 2)), da.from_array(np.ones(9) * 1j), BadInputError,
         "X, chunk 0: y: values of type complex128; real numbers or words are needed"),
    ],
)  # fmt: skip
def test_refused_arrays(tmp_path, x, y, error, message):
    assert raised(error, ingest, x, tmp_path / "d", y=y) == message
    assert not (tmp_path / "d").exists()


def test_refused_lengths_that_only_the_chunks_show(tmp_path):
    x, y = arrays()
    lazy, labels = da.from_array(x, chunks=60), da.from_array(y, chunks=60)
    unknown = lazy[lazy[:, 0] != 0]
    said = raised(BadInputError, ingest, unknown, tmp_path / "d", y=labels)
    n = int((x[:60, 0] != 0).sum())
    assert said == f"X, chunk 0: y: shape (60,) does not go with the {n} rows of X"
    assert raised(BadInputError, ingest, unknown, tmp_path / "d", y=labels.rechunk(25)) == (
        "y: 8 chunks of rows, but X has 4 and their lengths are not known; "
        "cut both in the same way, or call compute_chunk_sizes() on both"
    )
    raised(ParameterError, ingest, lazy, tmp_path / "d", y=labels, zero_based="yes")
    said = raised(BadInputError, ingest, unknown[:, :1] * np.inf, tmp_path / "d", y=labels[lazy[:, 0] != 0])
    first = "X, chunk 0, row 0: a value is not finite in float32"
    assert said == f"{first}; 28 of 28 rows read are refused for this"
