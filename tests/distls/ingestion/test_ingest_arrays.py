"""IDX, npy, npz and arrays in memory to data sets."""

import gzip
import shutil
import struct

import numpy as np
import pytest
import scipy.sparse
from helpers import raised, refuses
from ingest_helpers import small_ranges  # noqa: F401

import distls.ingestion.request.source_plan
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError
from distls.testing.formats import read_all

pytestmark = pytest.mark.usefixtures("small_ranges")


def write_idx(path, array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def arrays(seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (60, 5, 4)).astype(np.uint8), random.integers(0, 4, 60).astype(np.uint8)


@pytest.mark.fast_cases("idx$", "memory$")
@pytest.mark.parametrize("kind", ["idx", "idx.gz", "npy", "npz", "npz-y", "memory"])
def test_dense_sources(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", 800)
    x, y = arrays()
    options = {"labels": tmp_path / "labels.npy"}
    source = tmp_path / f"x.{kind}"
    np.save(tmp_path / "labels.npy", y)
    if kind.startswith("idx"):
        write_idx(source, x)
        write_idx(tmp_path / "labels.idx.gz", y)
        options = {"labels": tmp_path / "labels.idx.gz"}
    elif kind == "npy":
        np.save(source, x)
    elif kind == "npz":
        source = tmp_path / "x.npz"
        np.savez(source, X=x)
    elif kind == "npz-y":
        source = tmp_path / "x.npz"
        np.savez_compressed(source, data=x, y=y)
        options = {}
    else:
        source, options = x.reshape(60, 20), {"y": y}
    ingest(source, tmp_path / "d", **options, shuffle=False, transform="scale=255", partition_size=700)
    meta = open_dataset(tmp_path / "d").meta
    got_x, got_y = read_all(tmp_path / "d")
    assert np.array_equal(got_x, x.reshape(60, 20).astype(np.float32) / np.float32(255))
    assert np.array_equal(got_y, y)
    assert (meta.layout, meta.dtype, meta.zero_based, len(open_dataset(tmp_path / "d"))) == (
        "dense", "float32", None, 8,
    )  # fmt: skip
    shutil.rmtree(tmp_path / "d")
    ingest(source, tmp_path / "d", **options, split=["t=0.5"], transform="log1p,idf,l2norm", partition_size=700)
    assert open_dataset(tmp_path / "d-t").meta.label_counts == [round(n / 2) for n in np.bincount(y)]


@pytest.mark.parametrize("kind", ["npz", "memory"])
def test_sparse_sources(tmp_path, monkeypatch, kind):
    x = scipy.sparse.random_array((80, 30), density=0.2, rng=np.random.default_rng(0), format="csr")
    y = np.arange(80) % 3
    np.save(tmp_path / "y.npy", y)
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    source, options = (tmp_path / "x.npz", {"labels": tmp_path / "y.npy"}) if kind == "npz" else (x, {"y": y})
    ingest(source, tmp_path / "d", **options, shuffle=False, partition_size=1000, dtype="float64")
    got_x, got_y = read_all(tmp_path / "d")
    assert np.array_equal(got_x, x.toarray())
    assert np.array_equal(got_y, y)
    assert open_dataset(tmp_path / "d").meta.layout == "csr"


def test_memory_arrays_with_weights_and_targets(tmp_path):
    x = np.arange(12.0).reshape(6, 2)
    targets, weight = np.arange(12.0).reshape(6, 2) / 3, np.array([0, 1, 2, 0.5, 1, 1])
    ingest(x, tmp_path / "d", y=targets, sample_weight=weight)
    data = open_dataset(tmp_path / "d")
    part = data.read(0)
    assert (data.meta.target, data.meta.n_targets, data.meta.weighted) == ("continuous", 2, True)
    order = np.argsort(part.x.values[:, 0])
    assert np.array_equal(part.y[order], targets)
    assert np.array_equal(part.sample_weight[order], weight.astype(np.float32))
    assert data.meta.weight_sum == 5.5


def test_unsorted_and_repeated_columns_of_a_matrix_are_put_in_order(tmp_path):
    x = scipy.sparse.csr_matrix((np.array([1.0, 2, 3, 0, 4]), np.array([2, 0, 2, 1, 1]), np.array([0, 3, 5])), (2, 3))
    ingest(x, tmp_path / "d", y=np.array([0, 1]), shuffle=False)
    part = open_dataset(tmp_path / "d").read(0)
    assert part.x.indices.tolist() == [0, 2, 1]
    assert part.x.data.tolist() == [2, 4, 4]


def test_dense_rows_are_as_wide_as_those_they_are_to_be_like(tmp_path):
    ingest(np.ones((4, 3)), tmp_path / "d", y=[0, 1, 0, 1])
    for width in (2, 4):
        said = raised(MismatchError, ingest, np.ones((2, width)), tmp_path / "e", y=[0, 1], like=tmp_path / "d")
        assert said == f"X: {width} columns, but {tmp_path}/d has 3 features"
        assert not (tmp_path / "e").exists()


def test_an_archive_whose_directory_leads_before_its_start_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, X=np.ones((3, 2)), y=np.arange(3))
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    # the directory's own place, by which all places are shifted
    path.write_bytes(content[: end + 16] + b"\xff\xff\xff\x7f" + content[end + 20 :])
    refuses(BadInputError, r"x\.npz: not a readable npz file \(its directory leads out", ingest, path, tmp_path / "d")
