"""What others may have written of an ingest: good recipes pass, each member of another type is refused by its name."""

import numpy as np
import pytest
from helpers import raised, refuses

from distls.ingestion.request.like import check_source, check_transforms

TABLE = {
    "columns": ["a", "b", "y"], "label": "y", "weight": "", "na": "",
    "features": [{"name": "a"}, {"name": "b", "categories": ["u", "v"]}, {"name": "c", "width": 3, "indices": "d"}],
}  # fmt: skip
TEXT = {
    "n_features": 2**18, "analyzer": "word", "lowercase": True, "alternate_sign": False, "binary": False,
    "ngrams": [1, 2], "text_column": "", "label_column": "", "weight_column": "",
}  # fmt: skip
GOOD = {
    "csv": TABLE,
    "parquet": TABLE,
    "text": TEXT,
    "vw": {"hash_bits": 18, "namespace": "f"},
    "anndata": {"label": "y", "weight": ""},
}
BAD = [
    ("csv", "columns", ["a", 1]), ("csv", "label", None), ("csv", "na", 0), ("parquet", "features", [{}]),
    ("parquet", "features", [{"name": "a", "categories": "uv"}]), ("parquet", "features", [{"name": "a", "width": -1}]),
    ("parquet", "features", [{"name": "a", "width": True}]), ("csv", "features", [{"name": "a", "indices": 1}]),
    ("text", "n_features", 0), ("text", "n_features", 2**60), ("text", "n_features", 8.0), ("text", "analyzer", "os"),
    ("text", "lowercase", 1), ("text", "ngrams", [2, 1]), ("text", "ngrams", [0, 1]), ("text", "ngrams", [1]),
    ("text", "ngrams", [1, 2**17]), ("text", "text_column", None), ("vw", "hash_bits", 0), ("vw", "hash_bits", 33),
    ("csv", "dialect", {"separator": "ab"}), ("csv", "dialect", {"separator": "\n"}),
    ("text", "dialect", {"decimal": ""}), ("csv", "dialect", {"missing": ["x" * 61]}), ("vw", "hash_bits", "8"),
    ("vw", "namespace", []), ("anndata", "weight", 1),
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_sources_as_they_are_written(name):
    check_source({"format": name, "files": ["a"], "recipe": GOOD[name]})
    for member in GOOD[name]:
        recipe = {key: value for key, value in GOOD[name].items() if key != member}
        with pytest.raises(ValueError, match=f"its source recipe: Object missing required field `{member}`"):
            check_source({"format": name, "recipe": recipe})


@pytest.mark.fast_cases(
    "csv-columns", "parquet-features-value4", "csv-features", "text-analyzer", "text-ngrams-value15",
    "vw-hash_bits-33", "text-dialect", "anndata",
)  # fmt: skip
@pytest.mark.parametrize(("name", "member", "value"), BAD)
def test_sources_with_a_member_of_another_type(name, member, value):
    refuses(ValueError, "its source recipe: ", check_source, {"format": name, "recipe": GOOD[name] | {member: value}})


def test_sources_of_other_formats():
    for source in ({}, {"format": "svmlight"}, {"format": "vw", "recipe": GOOD["vw"] | {"hash_bits": None}}):
        check_source(source)
    refuses(ValueError, "field `columns`", check_source, {"format": "svmlight", "recipe": {"features": []}})
    for source in ({"format": 1}, {"recipe": []}):
        refuses(ValueError, "its source: Expected", check_source, source)


FITTED = {"idf": np.ones(3), "std": np.ones(3), "mean": np.zeros(3), "kept": np.array([0, 2, 5])}
STEPS = [
    {"name": "min_count", "columns": 6, "kept": 3}, {"name": "log1p"}, {"name": "idf"}, {"name": "l2norm"},
    {"name": "scale", "divisor": 2}, {"name": "scale", "divisor": 0.5}, {"name": "standardize"},
]  # fmt: skip


def test_transforms_as_they_are_written():
    check_transforms(STEPS, FITTED, 3)
    check_transforms([], {}, 3)


@pytest.mark.fast_cases("steps0", "steps3", "steps7", "steps10", "steps14", "steps17", "steps21", "steps24")
@pytest.mark.parametrize(
    ("steps", "arrays"),
    [
        ([{"name": "os.system"}], {}), ([{}], {}), (["idf"], {}), ([{"name": "scale"}], {}),
        ([{"name": "scale", "divisor": 0}], {}), ([{"name": "scale", "divisor": -1.0}], {}),
        ([{"name": "scale", "divisor": float("nan")}], {}), ([{"name": "scale", "divisor": float("inf")}], {}),
        ([{"name": "scale", "divisor": True}], {}), ([{"name": "idf"}] * 2, {}), ([STEPS[0]] * 2, {}),
        ([{"name": "idf"}], {"idf": None}), ([{"name": "idf"}], {"idf": np.ones(4)}),
        ([{"name": "standardize"}], {"std": np.ones(3, np.int64)}), ([], {"mean": np.zeros((3, 1))}),
        ([STEPS[0]], {"kept": None}), ([STEPS[0]], {"kept": np.array([0, 2, 6])}),
        ([STEPS[0]], {"kept": np.array([2, 0, 5])}),
        ([STEPS[0]], {"kept": np.array([-1, 0, 5])}), ([STEPS[0]], {"kept": np.array([0.0, 2.0, 5.0])}),
        ([STEPS[0] | {"kept": 2}], {}), ([STEPS[0] | {"columns": 5}], {}), ([STEPS[0] | {"columns": 2**40}], {}),
        ([], {"name_ends": np.zeros(2, np.int64)}), ([], {"name_ends": np.zeros(3)}),
    ],
)  # fmt: skip
def test_transforms_of_other_rows(steps, arrays):
    fitted = {name: array for name, array in (FITTED | arrays).items() if array is not None}
    raised(ValueError, check_transforms, steps, fitted, 3)
