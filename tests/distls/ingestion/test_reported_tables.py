"""Tables of the kinds that trackers of other programs report: what they hold is read, or named with what helps."""

import numpy as np
import pytest

from distls.ingestion.formats.column_kinds import FeatureMaker, Samples
from distls.ingestion.ingest import ingest
from distls.ingestion.request.format_options import TableColumns
from distls.ingestion.request.options import IngestOptions
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.mixed_columns import date_parts

N = 60


def ingested(folder, cells, **options):
    """Ingest a column "a" beside "x" and the label "y"; return the notices, the features by name, and the classes."""
    rows = [f"{cell};{k % 7};{k % 2}" for k, cell in enumerate(cells)]
    (folder / "a.csv").write_text("\n".join(["a;x;y", *rows]) + "\n")
    report = ingest(folder / "a.csv", folder / "d", **{"label_column": "y", "shuffle": False, **options})
    data = open_dataset(folder / "d")
    names = data.feature_names()
    return "\n".join(report.notices), dict(zip(names, read_all(data)[0].T, strict=True)), data.meta.classes


def test_a_word_that_makes_ids_of_numbers_is_named(tmp_path):
    """As a row of totals does."""
    notices, found, _ = ingested(tmp_path, [f"{k}.5" for k in range(N)] + ["Total"])
    assert [*found] == ["x"]
    assert '"a" has another value in each row and is taken for an id' in notices
    assert (
        f'such as 0.5, but also "Total" ({tmp_path}/a.csv:62): it is no number; --na-values "Total"'
        in notices
    )


def test_ids_that_are_numbers_with_a_unit_are_named(tmp_path):
    notices = ingested(tmp_path, [f"{k} kg" for k in range(N)])[0]
    assert "is taken for an id" in notices
    assert '"a" look like numbers with a unit, such as "0 kg"' in notices


def test_a_table_of_ids_alone_says_what_helps(tmp_path):
    with pytest.raises(
        BadInputError, match=r'no column is left .*; --kind "a=number" or "a=category" makes it one'
    ):
        ingested(tmp_path, [f"10.0.{k}.{k}" for k in range(N)], ignore_columns="x")


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,23,456", 123456), ("12,34,567.5", 1234567.5), ("1,234", 1234), ("1,23,45,678", 12345678)],
)
def test_thousands_as_in_india(tmp_path, text, number):
    notices, found, _ = ingested(tmp_path, [text, "1,234", "2,34,567"] * 5, dtype="float64", decimal=".")
    assert '"a" is numbers with marks' in notices
    assert found["a"].tolist() == [number, 1234, 234567] * 5


def test_days_of_weeks_are_dates():
    assert date_parts("2024-W05-3", "") == date_parts("2024W053", "") == date_parts("2024-01-31", "")
    assert date_parts("2024-W05-8", "") is None


def test_dates_of_zeros_are_named_as_missing_values(tmp_path):
    """MySQL writes them."""
    days = [f"2024-01-{k % 28 + 1:02}" for k in range(N)] + ["0000-00-00"]
    with pytest.raises(
        BadInputError, match=r'"0000-00-00": expected a date.*; --na-values "0000-00-00" if it stands'
    ):
        ingested(tmp_path, days, kind="a=date")
    found = ingested(tmp_path, days, na_values="0000-00-00", transform="auto")[1]
    assert found["a[days][missing]"].argmax() == N


def test_dates_of_the_last_year_are_named(tmp_path):
    days = [f"2024-01-{k % 28 + 1:02}" for k in range(N)] + ["9999-12-31"]
    notices = ingested(tmp_path, days)[0]
    assert (
        'dates in "a" such as 9999-12-31 may stand for no value: --na-values "9999-12-31" reads them so'
        in notices
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("31.12.9999", True),
        ("9999-12-31 10:11:12", True),
        ("2024-01-02 10:11:12.399991", False),
        ("2024-01-02 10:11:12.9999", False),
        ("2024-01-02 10:11:12.99991", False),
    ],
)
def test_only_the_year_is_the_last(text, named):
    maker = FeatureMaker(TableColumns(), IngestOptions(), Samples({"a": [text]}), {})
    maker.feature("a", is_category=True)
    assert any("may stand for no value" in notice for notice in maker.notices()) == named


def test_a_split_needs_a_name(tmp_path):
    with pytest.raises(ParameterError, match=r"a split is NAME=FRACTION .*, not 0\.1"):
        ingested(tmp_path, range(N), split=0.1)


def test_labels_that_are_dates_are_named(tmp_path):
    notices, _, classes = ingested(tmp_path, [f"2024-01-{k % 28 + 1:02}" for k in range(N)], label_column="a")
    assert 'labels look like dates, such as "2024-01-01", and are classes' in notices
    assert len(classes) == 28


@pytest.mark.parametrize("n", [100, 600])
def test_a_decimal_comma_is_found_behind_values_that_options_call_missing(tmp_path, n):
    """Polars took the column for words where many are missing first."""
    cells = ["-"] * 10 + [f"{k % 9},5" for k in range(n - 10)]
    notices, found, _ = ingested(tmp_path, cells, na_values="-", na=-1)
    assert "have a decimal comma" in notices
    assert np.array_equal(found["a"], [-1.0] * 10 + [k % 9 + 0.5 for k in range(n - 10)])
