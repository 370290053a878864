"""One row as a dict or a frame: the scores, warnings and refusals of the way that all rows go."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import distls
from distls.serving import row_encoder
from distls.storage.errors import DistlsError

TOWNS = ["Bern", "Rome", "1", "true", "false"]
NUMBERS = [
    1.5, -0.0, 0, 7, True, None, float("nan"), float("inf"), 1e300, 2**53, 2**60 + 1, "1.5", "NA", "", "x",
    Decimal("0.1"),
    np.float32(0.1), np.float64(0.1), np.int8(-3), np.uint64(2**63), np.bool_(1), np.datetime64("2020-01-01"),
]  # fmt: skip
CATEGORIES = [*TOWNS, "1.0", "True", "Oslo", "NA", "", "?", None, 1, 1.0, True, float("nan"), datetime.date(2020, 1, 1)]


def _model(root, categories, gaps=False, **options):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "b": rng.integers(0, 9, 80)})
    if categories:
        frame["town"] = np.array(TOWNS)[rng.integers(0, len(TOWNS), 80)]
    if gaps:
        frame.loc[::9, "a"] = np.nan
    frame["label"] = (frame["b"] > 4).astype(int)
    frame.to_csv(root / "train.csv", index=False)
    distls.ingest(root / "train.csv", root / "data", label_column="label", **options)
    distls.fit("mcid", root / "data", root / "run", params={"loss": "log"}, passes=1)
    return root / "run"


@pytest.fixture(scope="module", params=["numbers", "categories", "gaps", "float64"])
def model(request, tmp_path_factory):
    options = {
        "numbers": {"categories": False, "transform": "standardize"},
        "categories": {"categories": True, "transform": "standardize"},
        "gaps": {"categories": True, "gaps": True, "transform": "auto"},
        "float64": {"categories": True, "dtype": "float64"},
    }
    return _model(tmp_path_factory.mktemp("one"), **options[request.param])


def outcome(run, row):
    """Return the scores, or what is said instead, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = run.scores(row).tobytes()
        except (
            DistlsError,
            ValueError,
            TypeError,
            OverflowError,
            pa.ArrowException,
            pl.exceptions.PolarsError,
        ) as error:
            found = f"{type(error).__name__}: {error}"
    return found, [str(each.message) for each in caught]


def forms(row):
    yield row
    yield [row]
    yield {name: [value] for name, value in row.items()}
    yield pd.DataFrame([row])
    yield pd.DataFrame([row], index=[7]).astype("object")
    for make in (lambda: pl.DataFrame([row], strict=False), lambda: pa.table({n: [v] for n, v in row.items()})):
        try:
            yield make()
        except (TypeError, ValueError, pa.ArrowException, pl.exceptions.PolarsError):
            continue


def rows_of(run):
    named = "town" in distls.load_model(run).feature_names_in_
    usual = {"b": 3, "a": 0.25, "label": 1} | ({"town": "Rome"} if named else {})
    yield usual
    yield from ({**usual, "a": value} for value in NUMBERS)
    yield from ({**usual, "town": value} for value in CATEGORIES if named)
    yield {"b": 3}


def test_one_row_is_read_as_all_rows_are(model, monkeypatch):
    loaded = distls.load_model(model)
    one = [outcome(loaded, form) for row in rows_of(model) for form in forms(row)]
    monkeypatch.setattr(row_encoder, "_singles", lambda table, labels: [])
    loaded = distls.load_model(model)
    assert one == [outcome(loaded, form) for row in rows_of(model) for form in forms(row)]
    assert any(isinstance(found, bytes) for found, _ in one)


def test_usual_rows_are_read_without_arrow(model, monkeypatch):
    loaded = distls.load_model(model)
    row = next(iter(rows_of(model)))
    usual = [form for form in forms(row) if not isinstance(form, pa.Table)]
    expected = [loaded.predict_proba(form) for form in usual]
    monkeypatch.setattr(row_encoder, "record_batch", None)
    monkeypatch.setattr(row_encoder, "plain_numbers", None)
    for form, scores in zip(usual, expected, strict=True):
        np.testing.assert_array_equal(loaded.predict_proba(form), scores)


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [1.0], "b": [2.0, 3.0]},
        {"a": [1.0], "b": []},
        {"a": {1.0}, "b": [2.0]},
        {"a": [1.0], "b": [2.0], "label": [1, 2]},
        {"a": [np.timedelta64(5, "s")], "b": [2.0]},
        {"a": [10**400], "b": [2.0]},
    ],
)
def test_columns_that_are_no_row_go_the_way_of_all_rows(columns, monkeypatch, tmp_path):
    run = _model(tmp_path, categories=False)
    found = outcome(distls.load_model(run), columns)
    monkeypatch.setattr(row_encoder, "_singles", lambda table, labels: [])
    assert found == outcome(distls.load_model(run), columns)


def test_small_types_are_compared_as_floats(tmp_path):
    run = distls.load_model(_model(tmp_path, categories=False))
    found, said = outcome(run, {"a": [np.float16(0.5)], "b": [np.int8(-128)]})
    assert (found, said) == (run.scores({"a": [0.5], "b": [-128]}).tobytes(), [])
