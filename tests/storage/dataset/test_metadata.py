"""The fingerprint and the metadata: what they cover, and that their definition does not drift."""

import hashlib
import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from helpers import raised

from distls.storage.dataset.metadata import DatasetMeta, PartitionTable, fingerprint_of
from distls.storage.errors import FormatError
from distls.storage.filesystem.atomic import canonical_json

META = DatasetMeta(
    n_rows=3, n_features=2, nnz=6, layout="dense", dtype="float32", target="class", classes=["a", 1.5, 2],
    label_counts=[1, 1, 1], label_weights=[1.0, 1.0, 1.0], weight_sum=3.0, mean_square_norm=0.1,
)  # fmt: skip


def table(**changes):
    made = PartitionTable(
        np.array([1, 2]),
        np.array([2, 4]),
        {"X": np.array([12, 20]), "y": np.array([8, 12])},
        {"X": np.array([5, 6], np.uint32), "y": np.array([7, 8], np.uint32)},
    )
    return replace(made, **changes)


def test_the_fingerprint_by_hand():
    text = (
        '{"classes":["a",1.5,2],"codecs":{},"dtype":"float32","format_version":1,"label_counts":[1,1,1],'
        '"label_weights":[1.0,1.0,1.0],"layout":"dense","mean_square_norm":0.1,"n_features":2,"n_rows":3,'
        '"n_targets":0,"nnz":6,"shuffle_seed":null,"source":{},"target":"class","transforms":[],'
        '"transforms_digest":"","weight_sum":3.0,"weighted":false,"zero_based":null}'
    )
    stream = text.encode()
    for name, numbers, size in [
        ("X.crc32c", [5, 6], 4), ("X.size", [12, 20], 8), ("nnz", [2, 4], 8),
        ("rows", [1, 2], 8), ("y.crc32c", [7, 8], 4), ("y.size", [8, 12], 8),
    ]:  # fmt: skip
        stream += name.encode() + b"".join(n.to_bytes(size, "little") for n in numbers)
    assert fingerprint_of(META, table()) == hashlib.sha256(stream).hexdigest()


CHANGED = {
    "n_rows": 4, "n_features": 3, "nnz": 7, "layout": "csr", "dtype": "float64", "target": "multilabel",
    "classes": ["a", 1.5, 3], "label_counts": [2, 1, 0], "label_weights": [1.0, 1.0, 1.5], "n_targets": 1,
    "weighted": True, "weight_sum": 3.5, "mean_square_norm": np.nextafter(0.1, 1), "transforms": [{"name": "idf"}],
    "transforms_digest": "x", "zero_based": False, "shuffle_seed": 0, "source": {"a": 1}, "codecs": {"X": "zstd"},
    "features": {"idf": 0}, "format_version": 2,
}  # fmt: skip


@pytest.mark.fast_cases("n_rows", "target", "weighted", "zero_based", "format_version")
@pytest.mark.parametrize("name", DatasetMeta.__struct_fields__)
def test_the_fingerprint_covers_every_field(name):
    assert fingerprint_of(msgspec.structs.replace(META, **{name: CHANGED[name]}), table()) != fingerprint_of(
        META, table()
    )


@pytest.mark.fast_cases(r"0-X\.crc32c", r"1-X\.crc32c", r"1-y\.size")
@pytest.mark.parametrize("name", sorted(table().to_arrays()))
@pytest.mark.parametrize("place", [0, 1])
def test_the_fingerprint_covers_every_number_of_the_table(name, place):
    arrays = {key: array.copy() for key, array in table().to_arrays().items()}
    arrays[name][place] += 1
    assert fingerprint_of(META, PartitionTable.from_arrays(arrays)) != fingerprint_of(META, table())


def test_the_table_survives_its_arrays():
    made = table(sizes={"y/indices": np.array([1, 2])}, checksums={"y/indices": np.array([3, 4], np.uint32)})
    arrays = made.to_arrays()
    assert list(arrays) == ["nnz", "rows", "y.indices.crc32c", "y.indices.size"]
    back = PartitionTable.from_arrays(arrays)
    assert back.sizes["y/indices"].tolist() == [1, 2]
    assert back.checksums["y/indices"].tolist() == [3, 4]
    assert made.stored_bytes.tolist() == [1, 2]
    assert len(made) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.array([1, 2, 3])},
        {"nnz": np.array([1.0, 2.0])},
        {"X.size": np.array([1, 2], np.int32)},
        {"X.crc32c": np.array([1, 2])},
        {"X.crc32c": np.array([[1], [2]], np.uint32)},
        {"other": np.array([1, 2])},
        {"other.crc32c": np.array([1, 2], np.uint32)},
    ],
)
def test_arrays_of_another_kind_are_no_table(change):
    raised(ValueError, PartitionTable.from_arrays, table().to_arrays() | change)


@pytest.mark.parametrize("name", ["rows", "nnz", "y.crc32c"])
def test_an_incomplete_table(name):
    arrays = table().to_arrays()
    del arrays[name]
    raised(KeyError, PartitionTable.from_arrays, arrays)


def test_metadata_survives_json():
    assert DatasetMeta.from_json(json.loads(canonical_json(META.to_json())), "d") == META
    listed = msgspec.structs.replace(META, features={"idf": 5})
    assert DatasetMeta.from_json(json.loads(canonical_json(listed.to_json())), "d") == listed
    assert "features" not in META.to_json()


@pytest.mark.fast_cases(
    "n_rows--1", "n_features", "target", "classes-value12", "n_targets", "transforms-value21", "shuffle_seed",
    "features-value29",
)  # fmt: skip
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_rows", -1), ("n_rows", True), ("n_rows", 3.0), ("n_rows", 2**63), ("n_features", 2**32 + 1), ("nnz", 5),
        ("layout", "coo"), ("dtype", "float16"), ("target", None), ("classes", "abc"), ("classes", ["a", "a", "b"]),
        ("classes", ["a", None, 2]), ("classes", [1.0, 2.0]), ("label_counts", [1, 1, 2]), ("label_counts", [3]),
        ("label_weights", [1.0, -1.0, 1.0]), ("label_weights", [float("nan")] * 3), ("n_targets", 1), ("weighted", 1),
        ("weight_sum", float("inf")), ("mean_square_norm", float("nan")), ("transforms", ["idf"]), ("source", []),
        ("transforms_digest", None), ("zero_based", 0), ("shuffle_seed", "0"), ("codecs", {"X": "gzip"}),
        ("codecs", {"y/indices": "zstd"}), ("features", {"idf": 2**32}), ("features", []),
    ],
)  # fmt: skip
def test_absurd_metadata_is_refused(field, value):
    start, end = "DATA: metadata out of range or inconsistent (", "); it was not written by distls"
    message = raised(FormatError, DatasetMeta.from_json, {**META.to_json(), field: value}, "DATA")
    assert message.startswith(start)
    assert message.endswith(end)
    # a rule between fields names the first that it has found wrong
    assert f"$.{field}" in message or message.removeprefix(start).removesuffix(end) in (field, "nnz", "label_counts")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ("é\n\"\\\u2028😀/", '"\\u00e9\\n\\"\\\\\\u2028\\ud83d\\ude00/"'),
        ([1, 1.0, -0.0, 0.1, 5e-324], "[1,1.0,-0.0,0.1,5e-324]"),
        ([1e16, 1e15, 1e-5, 0.0001], "[1e+16,1000000000000000.0,1e-05,0.0001]"),
        ({"Z": {}, "a": [], "_": "\x7f\x00"}, '{"Z":{},"_":"\\u007f\\u0000","a":[]}'),
    ],
)  # fmt: skip
def test_canonical_json(value, text):
    assert canonical_json(value) == text


def test_canonical_json_has_no_nan():
    raised(ValueError, canonical_json, [float("nan")])
