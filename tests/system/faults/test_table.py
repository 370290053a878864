"""The tables of docs/reliability.md are written from the tests that hold them."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLES = runpy.run_path(str(ROOT / "docs" / "fault_tables.py"))
PAGE = TABLES["PAGE"].read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_tests():
    times = TABLES["counts"](PAGE)
    assert len(times) > 80
    assert TABLES["written"](PAGE, times) == PAGE, "python docs/fault_tables.py writes them"
    named = {ROOT / file for file in TABLES["files"](PAGE)}
    told = {file for file in (ROOT / "tests").rglob("test_*.py") if '"""Fault: ' in file.read_text("utf-8")}
    assert told - {Path(__file__)} <= named, "a file whose faults no table of the page has"


@pytest.mark.slow
def test_faults_are_tried_as_often_as_the_page_says():
    times = TABLES["collected"](PAGE)
    assert {test: times.get(test) for test in TABLES["counts"](PAGE)} == TABLES["counts"](PAGE)
