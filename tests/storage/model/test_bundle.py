"""Models and checkpoints on disk: exact, whole, and never code."""

import io
import json
import pickle

import google_crc32c
import numpy as np
import pytest
from helpers import Exploit, examples, raised, refuses
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distls.storage.errors import CorruptDataError, DistlsError, FormatError
from distls.storage.filesystem.atomic import canonical_json
from distls.storage.model import bundle
from distls.storage.model.bundle import read_bundle, write_bundle

ARRAYS = {
    "weights": np.arange(6.0).reshape(2, 3),
    "step_2": np.array(5, np.int32),
    "none": np.empty((0, 4), np.float32),
}
ATTRIBUTES = {"loss": "softmax", "classes": [1, "b", 2.5], "nested": {"a": [None, True]}}


@pytest.fixture
def folder(tmp_path):
    write_bundle(tmp_path / "b", "model", ATTRIBUTES, ARRAYS)
    return tmp_path / "b"


def refusal(folder, error=CorruptDataError, kind="model"):
    return raised(error, read_bundle, folder, kind)


def forge(folder, **changes):
    """Change bundle.json and give it a right checksum."""
    content = json.loads((folder / "bundle.json").read_text()) | changes
    del content["crc32c"]
    content["crc32c"] = google_crc32c.value(canonical_json(content).encode())
    (folder / "bundle.json").write_text(json.dumps(content))


def forge_array(folder, payload, shape, dtype):
    """Replace an array's file and describe it truthfully."""
    (folder / "weights.npy").write_bytes(payload)
    described = {"shape": shape, "dtype": dtype, "crc32c": google_crc32c.value(payload)}
    forge(folder, arrays={"weights": described})


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def test_round_trip(folder):
    attributes, arrays = read_bundle(folder, "model")
    assert attributes == ATTRIBUTES
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()
        assert arrays[name].flags.writeable
        assert arrays[name].flags.aligned


@examples(60)
@given(array=hnp.arrays(st.sampled_from("?bBhHiIlLefdFD"), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_any_array_of_numbers(tmp_path_factory, array):
    folder = tmp_path_factory.mktemp("bundles") / "b"
    write_bundle(folder, "checkpoint", {}, {"a": array})
    found = read_bundle(folder, "checkpoint")[1]["a"]
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    plain = np.load(folder / "a.npy", allow_pickle=False)  # and they are .npy files like any other
    assert (plain.dtype, plain.shape, plain.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_order_and_endianness_are_those_of_the_format(tmp_path):
    arrays = {
        "turned": np.arange(6.0).reshape(2, 3).T,
        "big": np.arange(3, dtype=">i4"),
        "strided": np.arange(9.0)[::2],
    }
    write_bundle(tmp_path / "b", "model", {}, arrays)
    found = read_bundle(tmp_path / "b", "model")[1]
    assert all(found[name].tolist() == array.tolist() for name, array in arrays.items())
    assert all(a.flags.c_contiguous and a.dtype.str[0] == "<" for a in found.values())


@pytest.mark.fast_cases(r"\.\./up", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", r"\.\.$")
@pytest.mark.parametrize("name", ["../up", "a/b", "", "a.b", "x" * 65, "é", "a\n", ".."])
def test_names_are_names_when_written(tmp_path, name):
    with pytest.raises(ValueError, match="a bundle holds arrays of numbers, named by letters and digits"):
        write_bundle(tmp_path / "b", "model", {}, {name: np.ones(1)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("array", [np.array([{}, 1], object), np.array(["a"]), np.zeros(2, "f8,i4"), np.array([b"a"])])
def test_only_numbers_are_written(tmp_path, array):
    refuses(ValueError, "a bundle holds arrays of numbers", write_bundle, tmp_path / "b", "model", {}, {"a": array})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_bundle(folder, monkeypatch):
    def full_disk(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "write_json", full_disk)
    refuses(OSError, "No space left", write_bundle, folder, "model", {}, {"other": np.ones(3)})
    assert read_bundle(folder, "model")[0] == ATTRIBUTES
    assert [path.name for path in folder.parent.iterdir()] == ["b"]


def test_a_bundle_replaces_another(folder):
    write_bundle(folder, "checkpoint", {"round": 2}, {"b": np.ones(2)})
    attributes, arrays = read_bundle(folder, "checkpoint")
    assert attributes == {"round": 2}
    assert list(arrays) == ["b"]
    assert sorted(p.name for p in folder.iterdir()) == ["b.npy", "bundle.json"]


# -- what is refused -------------------------------------------------------------------------------------


def test_other_kinds_and_versions(folder):
    message = f"{folder}: a model of version 1, expected a checkpoint of version 1"
    assert refusal(folder, FormatError, "checkpoint") == message
    forge(folder, version=2)
    assert refusal(folder, FormatError) == f"{folder}: a model of version 2, expected a model of version 1"


def test_no_bundle(tmp_path):
    assert refusal(tmp_path / "b", FormatError) == f"{tmp_path}/b: no model there (no bundle.json)"
    (tmp_path / "f").write_text("")
    assert refusal(tmp_path / "f", FormatError) == f"{tmp_path}/f: no model there (no bundle.json)"


@pytest.mark.fast_cases("$", '\\{"kind": "model"\\}', '\\{"kind": NaN\\}')
@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"kind": "model"}', "[" * 9, "null", '{"kind": NaN}'])
def test_not_a_bundle(folder, text):
    (folder / "bundle.json").write_text(text)
    message = refusal(folder, FormatError)
    assert message.startswith(f"{folder}: bundle.json is not a model written by distls (")


def test_every_bit_of_every_array_file(folder):
    for name in ARRAYS:
        path = folder / f"{name}.npy"
        content = path.read_bytes()
        message = f"{path}: its bytes do not match bundle.json"
        for position in range(len(content)):
            changed = bytearray(content)
            changed[position] ^= 1 << position % 8
            path.write_bytes(changed)
            assert refusal(folder) == message
        for changed in (content[:-1], content[:20], b"", content + b"\0"):
            path.write_bytes(changed)
            assert refusal(folder) == message
        path.unlink()
        assert refusal(folder) == f"{path}: missing"
        path.write_bytes(content)
    assert read_bundle(folder, "model")[0] == ATTRIBUTES


def test_every_bit_of_the_description(folder):
    path = folder / "bundle.json"
    content = path.read_bytes()
    for position in range(len(content)):
        for bit in (0, 5):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            path.write_bytes(changed)
            try:
                assert read_bundle(folder, "model")[0] == ATTRIBUTES  # white space
            except DistlsError:
                continue


@pytest.mark.parametrize("form", ["npy of objects", "bare pickle", "npz"])
def test_nothing_is_unpickled(folder, tmp_path, form):
    marker = tmp_path / "executed"
    objects = np.array([Exploit(marker)], object)
    if form == "npy of objects":
        payload = npy(objects, allow_pickle=True)
    elif form == "bare pickle":
        payload = pickle.dumps(objects)
    else:
        file = io.BytesIO()
        np.savez(file, weights=objects)
        payload = file.getvalue()
    forge_array(folder, payload, [1], "|O")
    assert refusal(folder) == f"{folder}/weights.npy: its bytes do not match bundle.json"
    assert not marker.exists()
    if form == "npy of objects":  # it would have worked
        np.load(folder / "weights.npy", allow_pickle=True)
        assert marker.exists()


@pytest.mark.fast_cases(r"\.\./weights", r"\.\.$", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
@pytest.mark.parametrize("name", ["../weights", "/etc/passwd", "a/b", "", "..", "a\0", "a\n", "x" * 65])
def test_names_that_lead_elsewhere(folder, tmp_path, name):
    content = npy(np.ones(2))
    (tmp_path / "weights.npy").write_bytes(content)
    forge(folder, arrays={name: {"shape": [2], "dtype": "<f8", "crc32c": google_crc32c.value(content)}})
    assert refusal(folder, FormatError) == f"{folder}: illegal array name {name!r}"


LIES = {
    "larger": ((2**40, 2**40), "<f8"),
    "smaller": ((5,), "<f8"),
    "negative": ((-6,), "<f8"),
    "wider": ((6,), "<c16"),
    "objects": ((6,), "|O"),
    "text": ((6,), "<U2"),
}


@pytest.mark.parametrize("lie", sorted(LIES))
def test_lying_headers(folder, lie):
    shape, dtype = LIES[lie]
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": shape, "fortran_order": False, "descr": dtype})
    payload = header.getvalue() + np.arange(6.0).tobytes()
    forge_array(folder, payload, list(shape), dtype)
    assert refusal(folder) == f"{folder}/weights.npy: its bytes do not match bundle.json"


@pytest.mark.parametrize(
    ("shape", "dtype"), [([3, 2], "<f8"), ([6], "<f8"), ([2, 3], "<i8"), ([2, 3], "<f4"), (None, None)]
)
def test_a_description_of_another_array(folder, shape, dtype):
    forge_array(folder, npy(ARRAYS["weights"]), shape, dtype)
    assert refusal(folder) == f"{folder}/weights.npy: its bytes do not match bundle.json"
    forge_array(folder, npy(ARRAYS["weights"]), [2, 3], "<f8")
    assert read_bundle(folder, "model")[1]["weights"].tolist() == ARRAYS["weights"].tolist()


@pytest.mark.parametrize("payload", [npy(np.asfortranarray(np.ones((2, 3)))), npy(np.ones((2, 3)), version=(2, 0))])
def test_other_forms_of_npy_are_not_ours(folder, payload):
    forge_array(folder, payload, [2, 3], "<f8")
    assert refusal(folder) == f"{folder}/weights.npy: its bytes do not match bundle.json"


@pytest.mark.parametrize("described", [{}, [], 3, None, {"crc32c": 5}, {"weights": 3}])
def test_descriptions_that_make_no_sense(folder, described):
    forge(folder, arrays={"weights": described})
    refusal(folder, CorruptDataError if isinstance(described, dict) else FormatError)


@examples(150)
@given(payload=st.binary(max_size=80), magic=st.booleans(), length=st.integers(0, 90))
def test_garbage_with_a_right_checksum(tmp_path_factory, payload, magic, length):
    folder = tmp_path_factory.mktemp("garbage") / "b"
    write_bundle(folder, "model", {}, {"weights": np.ones(1)})
    payload = b"\x93NUMPY\1\0" + length.to_bytes(2, "little") + payload if magic else payload
    forge_array(folder, payload, [1], "<f8")
    assert refusal(folder) == f"{folder}/weights.npy: its bytes do not match bundle.json"
