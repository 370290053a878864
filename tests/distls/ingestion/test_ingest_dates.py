"""Dates in tables: one line says what became of them, or why they are refused, and what to do."""

import datetime

import pytest

import distls
from distls.workers.ingestion.formats.mixed_columns import is_date


@pytest.mark.fast_cases("2024-01-31$", r"31\.1\.2024", "2024-01-31T10")
@pytest.mark.parametrize("text", ["2024-01-31", "2024/1/31", "31.1.2024", "1/31/24", "2024-01-31T10:00:00Z"])
def test_dates(text):
    assert is_date(text)


@pytest.mark.parametrize("text", ["2024-13", "1.5", "192.168.0.1", "10-20", "2024-01/31", "555-1234", ""])
def test_other_texts(text):
    assert not is_date(text)


def table(path, n_days):
    first = datetime.date(2015, 1, 1)
    days = [first + datetime.timedelta(days=k % n_days) for k in range(2 * n_days)]
    rows = "".join(f"{k % 7},{day.isoformat()},{k % 2}\n" for k, day in enumerate(days))
    path.write_text("a,when,y\n" + rows)
    return path


def test_a_notice_names_the_column(tmp_path):
    report = distls.ingest(table(tmp_path / "t.csv", 60), tmp_path / "d", label_column="y")
    assert any('"when" is dates' in notice for notice in report.notices)
    names = distls.open_dataset(tmp_path / "d").feature_names()
    assert [n for n in names if n.startswith("when")][:2] == ["when[days]", "when[year sin]"]
    # asked for, they are categories without a word
    report = distls.ingest(tmp_path / "t.csv", tmp_path / "e", label_column="y", categorical="when")
    assert not any("dates" in notice for notice in report.notices)
