"""Model folders: saved, loaded, verified, identified."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from helpers import raised, refuses

from distls.storage.errors import CorruptDataError, FormatError
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.model.model import LinearModel, load_model, save_model, weights_sha256


def model(dtype="float32"):
    return LinearModel(
        weights=np.arange(6, dtype=dtype).reshape(3, 2) / 8, intercept=np.array([0.5, -1.0], dtype), classes=["a", 2],
        method="mcid", loss="softmax", params={"alpha": 1e-4, "init": None},
        transforms=[{"name": "scale", "divisor": 255.0}], transforms_digest="abc", dataset_fingerprint="f" * 64,
        zero_based=False, source={"format": "text", "recipe": {"ngrams": [1, 2]}},
        features={"idf": np.array([1.0, 2.5, 3.0]), "kept": np.array([0, 2], np.int64)},
    )  # fmt: skip


def same(a, b):
    arrays = all(
        getattr(a, n).tobytes() == getattr(b, n).tobytes() and getattr(a, n).dtype == getattr(b, n).dtype
        for n in ("weights", "intercept")
    )
    none = np.empty((0, 2)), np.empty(2)
    return arrays and str(replace(a, weights=none[0], intercept=none[1])) == str(
        replace(b, weights=none[0], intercept=none[1])
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip(tmp_path, dtype):
    save_model(tmp_path / "model", model(dtype))
    for path in (tmp_path / "model", str(tmp_path)):
        found = load_model(path)
        assert same(found, model(dtype))
        assert found.n_features == 3


def test_what_raw_data_need_is_stored_in_the_described_form(tmp_path):
    save_model(tmp_path / "model", model())
    attributes, arrays = read_bundle(tmp_path / "model", "model")
    assert (attributes["zero_based"], attributes["source"]) == (False, model().source)
    assert sorted(arrays) == ["features_idf", "features_kept", "intercept", "weights"]
    assert arrays["features_idf"].nbytes == 8 * model().n_features
    assert load_model(tmp_path).features["kept"].dtype == np.int64


def test_a_model_replaces_another_at_once(tmp_path):
    save_model(tmp_path / "model", model())
    save_model(tmp_path / "model", replace(model(), method="other"))
    assert load_model(tmp_path).method == "other"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_weights_sha256_by_hand():
    weights, intercept = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([5.0, 6.0], np.float32)
    by_hand = b"".join(
        bytes.fromhex(h) for h in ("0000803f", "00000040", "00004040", "00008040", "0000a040", "0000c040")
    )
    expected = hashlib.sha256(by_hand).hexdigest()
    assert weights_sha256(weights, intercept) == expected
    # layout in memory, byte order and the intercept's type do not matter; the weights' type and every bit do
    assert weights_sha256(np.asfortranarray(weights), intercept.astype(np.float64)) == expected
    assert weights_sha256(weights.astype(">f4"), intercept.astype(">f4")) == expected
    assert weights_sha256(weights.astype(np.float64), intercept) != expected
    assert weights_sha256(np.nextafter(weights, np.float32(9)), intercept) != expected
    assert weights_sha256(weights.T, intercept) != expected
    assert weights_sha256(weights, -intercept) != expected


def test_the_recorded_digest_is_that_of_the_weights(tmp_path):
    save_model(tmp_path / "model", model())
    attributes, arrays = read_bundle(tmp_path / "model", "model")
    assert attributes["weights_sha256"] == model().sha256
    write_bundle(tmp_path / "model", "model", attributes, arrays | {"intercept": arrays["intercept"] + 1})
    message = f"{tmp_path}/model: its weights do not match their recorded weights_sha256"
    assert raised(CorruptDataError, load_model, tmp_path) == message


def refusal(path):
    return raised(FormatError, load_model, path)


def test_what_is_not_a_model(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    write_bundle(tmp_path / "checkpoint", "checkpoint", {}, {})
    start = f"{tmp_path}/"
    assert refusal(tmp_path / "none") == f"{start}none: no such run or model"
    assert refusal(tmp_path / "file") == f"{start}file: a file, not a run or model"
    assert refusal(tmp_path / "empty") == f"{start}empty: no model there (no bundle.json)"
    not_yet = f"{start}run: this run has published no model yet; `distls resume {start}run` continues it"
    assert refusal(tmp_path / "run") == not_yet
    other = f"{start}checkpoint: a checkpoint of version 1, expected a model of version 1"
    assert refusal(tmp_path / "checkpoint") == other


SIZES = "weights, intercept and classes have different sizes"
BAD_ARRAYS = {
    "flat": ({"weights": np.ones(2, np.float32)}, SIZES),
    "deep": ({"weights": np.ones((3, 2, 1), np.float32)}, SIZES),
    "narrow": ({"weights": np.ones((3, 1), np.float32)}, SIZES),
    "longer": ({"intercept": np.ones(3, np.float32)}, SIZES),
    "integers": (
        {"weights": np.ones((3, 2), np.int32)},
        "weights of int32, intercept of float32; not a model of distls",
    ),
    "mixed": ({"intercept": np.ones(2)}, "weights of float32, intercept of float64; not a model of distls"),
}


@pytest.mark.parametrize("kind", sorted(BAD_ARRAYS))
def test_arrays_that_do_not_fit(tmp_path, kind):
    changes, why = BAD_ARRAYS[kind]
    save_model(tmp_path, replace(model(), **changes))
    assert refusal(tmp_path) == f"{tmp_path}: {why}"


@pytest.mark.fast_cases("change0", "change4", "change7", "change10", "change14")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"loss": ...}, "Object missing required field `loss`"),
        ({"classes": ...}, "Object missing required field `classes`"),
        ({"colour": "red"}, "Object contains unknown field `colour`"),
        ({"weights": 5}, "Object contains unknown field `weights`"),
        ({"zero_based": 1}, "Expected `bool | null`, got `int` - at `$.zero_based`"),
        ({"target": "none"}, "Invalid enum value 'none' - at `$.target`"),
        ({"classes": ["a", None]}, "Expected `int | float | str`, got `null` - at `$.classes[1]`"),
        ({"classes": ["a", "a"]}, "a class is there twice"),
        ({"transforms": ["idf"]}, "Expected `object`, got `str` - at `$.transforms[0]`"),
        ({"n_features": -1}, "Expected `int` >= 0 - at `$.n_features`"),
        ({"n_features": 2**40}, "Expected `int` <= 4294967296 - at `$.n_features`"),
        ({"n_features": 9.0}, "Expected `int | null`, got `float` - at `$.n_features`"),
        ({"recipe": {"features": {}}}, "its recipe: Object missing required field `n_features`"),
        ({"recipe": {"n_features": True}}, "its recipe: Expected `int`, got `bool` - at `$.n_features`"),
        (
            {"recipe": {"n_features": 1, "calibration": []}},
            "its recipe: Expected `object`, got `array` - at `$.calibration`",
        ),
    ],
)
def test_attributes_that_a_model_has_not(tmp_path, change, why):
    save_model(tmp_path, model())
    attributes, arrays = read_bundle(tmp_path, "model")
    attributes = {name: value for name, value in (attributes | change).items() if value is not ...}
    write_bundle(tmp_path, "model", attributes, arrays)
    assert refusal(tmp_path) == f"{tmp_path}: not a model written by distls ({why})"


@pytest.mark.parametrize("name", ["weights", "intercept"])
def test_arrays_that_every_model_has(tmp_path, name):
    save_model(tmp_path, model())
    attributes, arrays = read_bundle(tmp_path, "model")
    del arrays[name]
    write_bundle(tmp_path, "model", attributes, arrays)
    assert refusal(tmp_path) == f"{tmp_path}: incomplete model (no array {name})"


def sparse(dtype="float32", n_features=9, rows=(1, 4, 5)):
    weights = np.zeros((n_features, 2), dtype)
    values = np.array([[1.0, 0.0], [-0.0, 0.0], [2.0, -1.0]], dtype)
    weights[np.array(rows, int)] = values[: len(rows)]
    return replace(model(dtype), weights=weights)


@pytest.mark.fast_cases("rows0-float32", "rows2-float32", "rows3-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [(), (8,), (0, 1, 2), (1, 4, 5)])
def test_zero_rows_are_not_stored(tmp_path, dtype, rows):
    """And -0.0 is not zero: the digest is of bytes."""
    made = sparse(dtype, rows=rows)
    save_model(tmp_path / "model", made)
    attributes, arrays = read_bundle(tmp_path / "model", "model")
    assert attributes["n_features"] == 9
    assert arrays["rows"].tolist() == list(rows)
    assert arrays["weights"].shape == (len(rows), 2)
    found = load_model(tmp_path)
    assert same(found, made)
    assert found.n_features == 9


def test_half_of_the_rows_are_stored_alone_and_more_with_the_zeros(tmp_path):
    save_model(tmp_path / "half", sparse(n_features=6))
    assert "rows" in read_bundle(tmp_path / "half", "model")[1]
    made = replace(model(), weights=np.array([[1.0, 0], [0, 2], [0, 0]], np.float32))
    save_model(tmp_path / "more", made)
    assert "rows" not in read_bundle(tmp_path / "more", "model")[1]
    assert same(load_model(tmp_path / "more"), made)


@pytest.mark.fast_cases("rows0", "rows3", "rows6")
@pytest.mark.parametrize(
    ("rows", "n_features"),
    [([1, 1, 2], 9), ([2, 1, 3], 9), ([-1, 0, 1], 9), ([1, 4, 9], 9), ([1, 4], 9), ([1, 4, 5], None),
     ([1, 4, 5], 0)],
)  # fmt: skip
def test_rows_that_are_none_are_refused(tmp_path, rows, n_features):
    save_model(tmp_path / "model", sparse())
    attributes, arrays = read_bundle(tmp_path / "model", "model")
    arrays["rows"] = np.array(rows, np.int64)
    write_bundle(tmp_path / "model", "model", {**attributes, "n_features": n_features}, arrays)
    refuses(FormatError, "its rows of weights are not rows of", load_model, tmp_path)
