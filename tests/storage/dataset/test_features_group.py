"""Fitted transforms and column statistics: stored exactly, verified when read."""

import json
import shutil

import numpy as np
import pytest
from helpers import raised
from hypothesis import given
from hypothesis import strategies as st

from distls.storage.dataset.chunks import write_array
from distls.storage.dataset.dataset import open_dataset
from distls.storage.dataset.feature_names import pack_names, unpack_names
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
    assert raised(CorruptDataError, dataset.features).startswith(f"{dataset.path}: {why}")


def test_all_kinds_of_features(small_csr):
    features = {"zeros": np.zeros(9), "none": np.empty(0), "pairs": np.arange(6, dtype=np.int64).reshape(2, 3)}
    found = open_dataset(small_csr(features=features).path).features()
    assert found.keys() == features.keys()
    assert all(found[n].dtype == a.dtype and found[n].tolist() == a.tolist() for n, a in features.items())


# -- names of features as arrays -------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)))
def test_names_come_back(names):
    assert unpack_names(pack_names(names), "d") == names


def test_they_are_numbers_that_any_reader_of_the_format_can_read(small_csr):
    names = [f"café {k}" for k in range(37)]
    written = small_csr(features={**pack_names(names), "idf": np.ones(37)})
    assert open_dataset(written.path).feature_names() == names
    assert small_csr(features={"idf": np.ones(37)}).dataset.feature_names() is None
    # docs/format.md, section 5, by hand
    folder = written.path / "features"
    ends = np.frombuffer((folder / "name_ends" / "c" / "0").read_bytes()[:-4], dtype="<i8")
    joined = (folder / "name_bytes" / "c" / "0").read_bytes()[:-4]
    assert json.loads((folder / "name_bytes" / "zarr.json").read_text())["data_type"] == "uint8"
    assert [joined[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)] == names


@pytest.mark.parametrize("name", ["name_bytes", "name_ends"])
def test_damaged_names_are_refused(name):
    arrays = pack_names(["é", "b"])
    damaged = {**arrays, "name_ends": np.array([1, 3])} if name == "name_ends" else {"name_ends": arrays["name_ends"]}
    with pytest.raises(CorruptDataError, match="d: the names of the features cannot be read"):
        unpack_names(damaged, "d")
