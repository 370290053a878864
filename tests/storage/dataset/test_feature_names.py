"""Names of features as arrays: they come back, with the dataset, or are refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distls.storage.dataset.dataset import open_dataset
from distls.storage.dataset.feature_names import pack_names, unpack_names
from distls.storage.errors import CorruptDataError


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
    damaged = (
        {**arrays, "name_ends": np.array([1, 3])}
        if name == "name_ends"
        else {"name_ends": arrays["name_ends"]}
    )
    with pytest.raises(CorruptDataError, match="d: the names of the features cannot be read"):
        unpack_names(damaged, "d")
