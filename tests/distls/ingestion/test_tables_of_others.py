"""Tables as other programs write them, from reports to such programs: spellings, padding, gaps, other shapes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import distls
from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError, MismatchError
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")


def columns_of(source, place, **options):
    report = ingest(source, place, **{"label_column": "y", "shuffle": False} | options)
    data = open_dataset(place)
    return read_all(data)[0].tolist(), data.feature_names(), report.notices


@pytest.mark.parametrize("trained", ["1", "1.0"])
def test_whole_numbers_as_categories_may_have_a_point(tmp_path, trained):
    """As pandas writes them where a column lacks values."""
    text = "c,y\n" + "".join(f"{k % 3}{trained[1:]},{k % 2}\n" for k in range(12))
    (tmp_path / "a.csv").write_text(text)
    x, names, _ = columns_of(tmp_path / "a.csv", tmp_path / "a", categorical="c")
    assert names == [f"c={k}{trained[1:]}" for k in range(3)]
    other = text.replace(".0", "") if trained == "1.0" else "\n".join(
        line.replace(",", ".0,") if "y" not in line else line for line in text.splitlines())  # fmt: skip
    (tmp_path / "b.csv").write_text(other)
    frame = pd.DataFrame({"c": [k % 3 for k in range(12)], "y": [0, 1] * 6})
    frame.astype({"c": float}).to_parquet(tmp_path / "b.parquet")
    for number, source in enumerate(
        (tmp_path / "b.csv", frame, frame.astype({"c": float}), tmp_path / "b.parquet")
    ):
        found, _, notices = columns_of(source, tmp_path / f"{number}", like=tmp_path / "a", label_column=None)
        assert (found, notices) == (x, ())


def test_whole_numbers_of_two_spellings_are_one_category(tmp_path):
    (tmp_path / "a.csv").write_text("c,y\n" + "1,0\n2,1\n" * 4)
    (tmp_path / "b.csv").write_text("c,y\n" + "1.0,0\n,1\n3.0,1\n" * 4)
    options = {"categorical": "c", "na": -1}
    x, names, _ = columns_of([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "d", **options)
    assert names == ["c=-1", "c=1", "c=2", "c=3.0"]
    assert x[0] == x[8] == [0, 1, 0, 0]


def test_one_column_of_several_is_there(tmp_path):
    frame = pd.DataFrame({"a": range(12), "b": range(12), "y": [0, 1] * 6})
    ingest(frame, tmp_path / "d", label_column="y")
    for text in ("a\n1\n", '"a"\n1\n'):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(MismatchError, match='no column "b"'):
            ingest(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "d", unlabelled=True)


def test_names_with_line_breaks_are_named(tmp_path):
    (tmp_path / "a.csv").write_text('x,"te\nst",y\n1,2,0\n2,3,1\n')
    with pytest.raises(BadInputError, match="line breaks"):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")


def test_padded_values_of_svmlight_text(tmp_path):
    """As in LIBSVM's data set protein."""
    (tmp_path / "a.svm").write_text("0   1:1.00   3: .50\n1 2:  2\n")
    ingest(tmp_path / "a.svm", tmp_path / "d", shuffle=False)
    assert read_all(tmp_path / "d")[0].tolist() == [[1, 0, 0.5], [0, 2, 0]]
    (tmp_path / "b.svm").write_text("0 1:1\n1 2: 2:1\n0 1: \n")
    with pytest.raises(BadInputError, match=r'b.svm:2: "2:": .*2 of 3 lines'):
        ingest(tmp_path / "b.svm", tmp_path / "e")


@pytest.mark.parametrize(("late", "names"), [(("u", "v"), ["a", "n=", "n=u", "n=v"]), ((1, 2), ["a", "n"])])
def test_a_field_that_is_null_at_first(tmp_path, late, names):
    rows = [{"a": k, "n": None if k < 510 else late[k % 2], "y": k % 2} for k in range(520)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    x, found, _ = columns_of(tmp_path / "a.jsonl", tmp_path / "d", impute="constant:0")
    assert [name.replace("n=0", "n=") for name in found] == names
    assert x[511][-1] == (1 if late == ("u", "v") else 2)


def test_dates_of_another_order_name_the_option(tmp_path):
    rows = [f"{1 + k % 12}/{1 + k % 12}/2024,{k % 2}\n" for k in range(600)]
    (tmp_path / "a.csv").write_text("day,y\n" + "".join(rows) + "13/1/2024,1\n")
    with pytest.raises(BadInputError, match=r"602: .*NAME=date:dmy"):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", kind="day=date:dmy")


def test_a_model_of_numbered_categories_predicts_frames_with_gaps(tmp_path):
    frame = pd.DataFrame({"c": [1, 2, 3] * 10, "b": range(30)})
    frame["y"] = (frame["c"] == 2).astype(int)
    options = {
        "categorical": "c",
        "impute": "c=category",
        "method": "gls",
        "passes": 3,
        "notify": lambda _: None,
    }
    distls.train(frame, tmp_path / "m", label_column="y", **options)
    model = distls.load_model(tmp_path / "m")
    new = pd.DataFrame({"c": [1, 2, 3], "b": [0, 1, 2]})
    assert np.array_equal(model.predict(new), model.predict(new.astype({"c": float})))


@pytest.mark.parametrize("dtype", [object, "category"])
def test_values_of_several_types_are_those_of_their_csv_file(tmp_path, dtype):
    values = pd.Series(["a", "b", 1, None, 2.5, True] * 3, dtype=object).astype(dtype)
    frame = pd.DataFrame({"c": values, "y": [0, 1] * 9})
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = columns_of(tmp_path / "a.csv", tmp_path / "a", impute="category")
    assert columns_of(frame, tmp_path / "b", impute="category")[:2] == expected[:2]
    with pytest.raises(BadInputError, match='"c"'):
        ingest(frame.assign(c=[{1}, "a"] * 9), tmp_path / "c", label_column="y")


def test_numbers_with_leading_zeros_are_named(tmp_path):
    (tmp_path / "a.csv").write_text(
        "zip,n,y\n" + "".join(f"{k * 37:05},{k}.05,{k % 2}\n" for k in range(1, 30))
    )
    notices = columns_of(tmp_path / "a.csv", tmp_path / "a")[2]
    assert [n for n in notices if "begin with zeros" in n and '"zip"' in n and '"n"' not in n]
    _, names, notices = columns_of(tmp_path / "a.csv", tmp_path / "b", kind="zip=category")
    assert "zip=00037" in names
    assert not any("begin with zeros" in notice for notice in notices)
