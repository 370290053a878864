"""The rows of a data set in other libraries' forms, and the data set as a zarr hierarchy."""

import warnings

import dask
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import distls
from distls.storage.errors import ParameterError

N_ROWS = 300


def stored(path, x, **targets):
    """Write rows in their order, in several partitions."""
    distls.ingest(x, path, shuffle=False, partition_size=4096, executor="serial", **targets)
    dataset = distls.open_dataset(path)
    assert len(dataset) > 2
    return dataset


@pytest.fixture(params=["dense", "csr"])
def x(request):
    values = np.random.default_rng(0).standard_normal((N_ROWS, 20)).astype(np.float32)
    values[:, 5:][values[:, 5:] < 0.5] = 0.0
    return values if request.param == "dense" else sp.csr_matrix(values)


def dense(values):
    return values.toarray() if sp.issparse(values) else np.asarray(values)


TARGETS = {
    "class": np.array(["no", "yes"])[np.arange(N_ROWS) % 2],
    "continuous": np.linspace(-1.0, 1.0, N_ROWS),
    "several": np.linspace(-1.0, 1.0, 2 * N_ROWS).reshape(N_ROWS, 2),
    "multilabel": sp.csr_matrix((np.arange(N_ROWS)[:, None] + np.arange(3)) % 3 > 0).astype(np.int8),
}


@pytest.mark.fast_cases("dense-class", "csr-multilabel")
@pytest.mark.parametrize("kind", TARGETS)
def test_rows_are_those_that_were_written(tmp_path, x, kind):
    y, target = TARGETS[kind], {"class": "class", "multilabel": "auto"}.get(kind, "continuous")
    weight = np.arange(1, N_ROWS + 1, dtype=np.float32)
    data = stored(tmp_path / "d", x, y=y, sample_weight=weight, target=target)
    forms = {
        "arrays": distls.to_arrays(data),
        "path": distls.to_arrays(tmp_path / "d"),
        "dask": dask.compute(distls.to_dask(data), scheduler="synchronous")[0],
    }
    for given in forms.values():
        assert type(given.X) is type(x)
        assert np.array_equal(dense(given.X), dense(x))
        assert np.array_equal(dense(given.y), dense(y))
        assert np.array_equal(given.sample_weight, weight)
    frame = distls.to_frame(data)
    assert np.array_equal(frame.iloc[:, :20].to_numpy(), dense(x))
    assert np.array_equal(frame["sample_weight"], weight)
    assert (
        list(frame.columns[20:-1])
        == {
            "class": ["label"],
            "continuous": ["target"],
            "several": ["target_0", "target_1"],
            "multilabel": ["label=0", "label=1", "label=2"],
        }[kind]
    )


def test_batches_have_every_row_once(tmp_path, x):
    data = stored(tmp_path / "d", x, y=np.arange(N_ROWS, dtype=float), target="continuous")
    in_order = list(distls.batches(data, 7))
    assert {len(batch.y) for batch in in_order[:3]} == {7}
    assert np.array_equal(np.concatenate([batch.y for batch in in_order]), np.arange(N_ROWS))
    drawn = list(distls.batches(data, 7, random_state=1))
    rows = np.concatenate([batch.y for batch in drawn]).astype(int)
    assert not np.array_equal(rows, np.arange(N_ROWS))
    assert np.array_equal(np.sort(rows), np.arange(N_ROWS))
    assert np.array_equal(dense(drawn[0].X), dense(x)[rows[:7]])
    again = [batch.y for batch in distls.batches(data, 7, random_state=1)]
    assert np.array_equal(np.concatenate(again), rows)
    with pytest.raises(ParameterError, match="size=0"):
        distls.batches(data, 0)


def test_zarr_walks_a_data_set_without_a_warning(tmp_path, x):
    data = distls.add_columns(stored(tmp_path / "d", x, y=TARGETS["class"]).path, executor="serial")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        members = dict(zarr.open_group(str(data.path), mode="r").members(max_depth=None))
    name = "rows/00000000/X" if data.meta.layout == "dense" else "rows/00000000/data"
    found = members[name]
    part = data.read(0).x
    assert np.array_equal(found[:], part.values if data.meta.layout == "dense" else part.data)
