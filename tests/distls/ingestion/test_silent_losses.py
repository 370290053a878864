"""What tables have, and what becomes of it: nothing is lost without a word."""

import numpy as np
import pandas as pd
import pytest

from distls.estimators.stochastic import StochasticClassifier
from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")


def read(text, folder, label_column="y", **options):
    """Ingest the text of a file; return the notices, joined, the features by name, and the labels."""
    (folder / "a.csv").write_text(text)
    report = ingest(folder / "a.csv", folder / "d", label_column=label_column, shuffle=False, **options)
    x, y = read_all(open_dataset(folder / "d"))
    return (
        "\n".join(report.notices),
        dict(zip(open_dataset(folder / "d").feature_names(), x.T, strict=True)),
        y,
    )


def test_numbers_may_be_members_of_sets(tmp_path):
    rows = "".join(f"{k % 3}|{k % 5},{k % 2}\n" for k in range(40))
    _, found, _ = read("tags,y\n" + rows, tmp_path, kind="tags=set:|")
    assert [*found] == [f"tags={k}" for k in range(5)]
    assert found["tags=4"].tolist() == [k % 5 == 4 for k in range(40)]


X = np.arange(24.0).reshape(12, 2)
WITH_GAPS = {
    "objects": np.array(["a", "b", None] * 4, dtype=object),
    "list": ["a", "b", float("nan")] * 4,
    "categories": pd.Series(["a", "b", None] * 4, dtype="category"),
    "numbers": np.array([0, 1, None] * 4, dtype=object),
    "truths": pd.Series([True, False, pd.NA] * 4, dtype=object),
    "masked": np.ma.masked_array([0, 1, 2] * 4, mask=[0, 0, 1] * 4),
    "masked-words": np.ma.masked_array(["a", "b", "c"] * 4, mask=[0, 0, 1] * 4),
}


@pytest.mark.parametrize("y", WITH_GAPS.values(), ids=WITH_GAPS)
def test_labels_in_memory_may_be_missing(y, tmp_path):
    with pytest.raises(BadInputError, match=r"X, row 2: the (row has no label|label is empty)"):
        ingest(X, tmp_path / "a", y=y)
    report = ingest(X, tmp_path / "d", y=y, drop=["unknown"])
    assert report.dropped == {"unknown": 4}
    classes = open_dataset(tmp_path / "d").meta.classes
    assert len(classes) == 2
    assert not {*classes} & {"nan", "None", 2}
    with pytest.raises(ValueError, match=r"no label in 4 of 12 places, the first at 2|[Ii]nput.* NaN"):
        StochasticClassifier().fit(X, y)


def test_objects_are_labels_by_their_values(tmp_path):
    ingest(X, tmp_path / "d", y=np.array([0, 1, 2**60] * 4, dtype=object), target="class")
    assert {*open_dataset(tmp_path / "d").meta.classes} == {"0", "1", str(2**60)}
    with pytest.raises(BadInputError, match="values of type object"):
        ingest(X, tmp_path / "e", y=np.array([0, "a", None] * 4, dtype=object))


def test_classes_that_were_missing_labels_are_named(tmp_path):
    report = ingest(X, tmp_path / "d", y=np.array(["a", "None", "b"] * 4))
    assert any(notice.startswith('y: "None" is a class') for notice in report.notices)


def test_masked_values_are_missing(tmp_path):
    x = np.ma.masked_array(X, mask=X == 4)
    with pytest.raises(BadInputError, match="X, row 2: a value is not finite"):
        ingest(x, tmp_path / "d", y=[0, 1] * 6)
    with pytest.raises(ValueError, match="NaN"):
        StochasticClassifier().fit(x, [0, 1] * 6)


def rows(*columns):
    return "".join(
        ",".join(map(str, (*row, k % 2))) + "\n" for k, row in enumerate(zip(*columns, strict=True))
    )


NOTICES = {
    "documents-late": (
        [f"12 Main street{k % 1900}" for k in range(2500)],
        'column "a" has many values and is taken for documents: words are hashed into 262,144 features',
    ),
    "lists-of-numbers": (
        [f'"[0.{k}, 0.{7 * k}, {k % 5}]"' for k in range(1, 1900)],
        "taken for documents, though they are lists, whose numbers need a column each",
    ),
    "month-first": (
        [f"01/{k % 12 + 1:02}/2024" for k in range(60)],
        '01/02/2024 is read with the month first; --kind "a=date:dmy" reads them the other way',
    ),
    "day-first": (
        [f"01-{k % 12 + 1:02}-2024" for k in range(60)],
        '01-02-2024 is read with the day first; --kind "a=date:mdy" reads them the other way',
    ),
    "percent": (
        ["10%", "0.1"] * 30,
        'numbers in "a" have different marks, which are left out: 10% and 0.1 are',
    ),
    "currencies": (["$5", "€6", "$7"] * 20, "$5 and €6 are read as they are without"),
    "small": (
        [f"1e-{k}" for k in range(40, 70)],
        'different values of column "a" become equal in float32, such as 1e-69 and 1e-46; --dtype float64 keeps them',
    ),
}


@pytest.mark.parametrize(("cells", "notice"), NOTICES.values(), ids=NOTICES)
def test_what_a_column_is_taken_for_is_said(cells, notice, tmp_path):
    assert notice in read("a,x,y\n" + rows(cells, range(len(cells))), tmp_path)[0]


QUIET = {
    "decided": [f"01/{k % 12 + 1:02}/2024" for k in range(60)] + ["13/01/2024"],
    "same-day": ["03/03/2024", "04/04/2024"] * 30,
    "dollars": ["$5", "6", "$7"] * 20,
    "all-percent": ["10%", "0.1%"] * 30,
    "hours": [f"2024-01-{k % 28 + 1:02} {k % 24:02}:00:00" for k in range(200)],
}


@pytest.mark.parametrize("cells", QUIET.values(), ids=QUIET)
def test_what_is_certain_is_not_doubted(cells, tmp_path):
    notices = read("a,x,y\n" + rows(cells, range(len(cells))), tmp_path, transform="auto")[0]
    assert "columns by their values" in notices
    assert not any(doubt in notices for doubt in ("tells day", "different marks", "become equal"))


def test_ids_of_the_first_rows_are_called_so(tmp_path):
    notices = read("customer_id,x,y\n" + rows([k % 700 for k in range(1300)], range(1300)), tmp_path)[0]
    assert (
        'column "customer_id" has another value in each of the first rows and is taken for an id' in notices
    )


def test_a_file_that_is_given_twice_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + rows(range(4)))
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    options = {"label_column": "y", "shuffle": False}
    for number, second in enumerate(("a.csv", "b.csv")):
        report = ingest([tmp_path / "a.csv", tmp_path / second], tmp_path / f"{number}", **options)
        assert any("the same file as" in notice and "read twice" in notice for notice in report.notices)
        assert open_dataset(tmp_path / f"{number}").meta.n_rows == 8
