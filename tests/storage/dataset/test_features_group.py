"""Fitted transforms and column statistics: stored exactly, verified when read."""

import shutil

import numpy as np
import pytest

from distls.storage.dataset.chunks import write_array
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import CorruptDataError


@pytest.fixture
def copied(small_csr, tmp_path):
    return small_csr(tmp_path / "d", rows=(5, 4), features={"idf": np.arange(37.0)}).path


def test_features_are_verified(copied):
    dataset = open_dataset(copied)
    chunk = copied / "features" / "idf" / "c" / "0"
    content = chunk.read_bytes()
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 16
        chunk.write_bytes(changed)
        assert_no_features(dataset, "features cannot be read (")
    chunk.unlink()  # zarr would read zeros
    assert_no_features(dataset, "features cannot be read ([Errno 2]")
    why = "features, array idf: its checksum does not match the metadata; ingest the data set again"
    write_array(copied / "features" / "idf", np.zeros(37), "none")
    assert_no_features(dataset, why)
    shutil.rmtree(copied / "features")
    assert_no_features(dataset, "features, array idf: it is missing; ingest the data set again")


def assert_no_features(dataset, why):
    with pytest.raises(CorruptDataError) as caught:
        dataset.features()
    assert str(caught.value).startswith(f"{dataset.path}: {why}")
    assert "\n" not in str(caught.value)


def test_all_kinds_of_features(small_csr):
    features = {
        "zeros": np.zeros(9),
        "none": np.empty(0),
        "pairs": np.arange(6, dtype=np.int64).reshape(2, 3),
    }
    found = open_dataset(small_csr(features=features).path).features()
    assert found.keys() == features.keys()
    assert all(found[n].dtype == a.dtype and found[n].tolist() == a.tolist() for n, a in features.items())
