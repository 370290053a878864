"""Comparisons of runs: fields, weights and predictions against plain NumPy, and refusals in one line."""

import json

import numpy as np
import pytest
from helpers import distls, labelled_rows, printed, refuses, write_dataset

from distls import compare, fit, load_model
from distls.reporting.comparison_page import render_comparison
from distls.reporting.comparison_text import comparison_lines
from distls.storage.errors import FormatError, MismatchError, ParameterError


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    write_dataset(root / "train", *labelled_rows(500, 40, 4))
    write_dataset(root / "test", *labelled_rows(300, 40, 4, seed=1))
    write_dataset(root / "wide", *labelled_rows(200, 60, 4))
    write_dataset(root / "other", *labelled_rows(200, 40, 4), classes=["a", "b", "c", "d"])
    for name, alpha in (("one", 0.0), ("two", 0.05)):
        params = {"loss": "log", "alpha": alpha}
        fit("sgd", root / "train", root / name, params=params, passes=2, eval_data=root / "test", eval_every=1)
    for name in ("wide", "other"):
        fit("sgd", root / name, root / f"run-{name}", params={"loss": "log"}, passes=1)
    return root


def _predicted(run, x):
    model = load_model(run)
    return (x @ model.weights + model.intercept).argmax(axis=1)


def test_the_numbers_are_those_of_plain_numpy(place):
    made = compare([place / "one", place / "two"], place / "test").to_json()
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["differing"] == {"alpha": [0.0, 0.05]}
    a, b = (np.vstack([m.weights, m.intercept]).astype(float) for m in map(load_model, (place / "one", place / "two")))
    (pair,) = made["weights"]
    assert pair["cosine"] == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-9)
    assert pair["distance"] == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-6)

    x, y = labelled_rows(300, 40, 4, seed=1)
    one, two = (_predicted(place / name, x.toarray()) for name in ("one", "two"))
    found = made["agreement"]
    assert found["errors"] == [(one != y).mean(), (two != y).mean()]
    assert 0 < found["disputed"] == (one != two).sum() == found["pairs"][0]["rows"]
    apart = np.flatnonzero(one != two)[:50]
    assert [row["row"] for row in found["rows"]] == apart.tolist()
    assert [row["class"] for row in found["rows"]] == y[apart].tolist()
    assert [row["predicted"] for row in found["rows"]] == np.stack([one, two], axis=1)[apart].tolist()


def test_three_runs_have_three_pairs(place):
    again = place / "three"
    fit("sgd", place / "train", again, params={"loss": "log", "alpha": 0.0}, passes=2, seed=1)
    made = compare([place / "one", place / "two", again], place / "test")
    assert len(made.weights) == 3
    assert [pair["runs"] for pair in made.agreement["pairs"]] == [["one", "two"], ["one", "three"], ["two", "three"]]
    assert made.differing["seed"] == [0, 0, 1]


def test_lines_of_a_comparison(place):
    lines = comparison_lines(compare([place / "one", place / "two"], place / "test"))
    assert lines[0].split() == [
        "run", "status", "passes", "seconds", "objective", "above", "optimum", "evaluation",
    ]  # fmt: skip
    assert ["alpha", "0", "0.05"] in [line.split() for line in lines]
    assert any(line.startswith("one and two") for line in lines)
    assert any("rows in dispute" in line or "in dispute (" in line for line in lines)


def test_a_run_equals_its_copy(place, tmp_path):
    params = {"loss": "log", "alpha": 0.0}
    options = {"passes": 2, "eval_data": place / "test", "eval_every": 1}
    fit("sgd", place / "train", tmp_path / "one", params=params, **options)
    made = compare([place / "one", tmp_path / "one"], place / "test")
    assert made.names == [str(place / "one"), str(tmp_path / "one")]
    assert made.differing == {}
    assert made.weights[0]["cosine"] == pytest.approx(1.0)
    assert made.weights[0]["distance"] == 0.0
    assert (made.agreement["disputed"], made.agreement["rows"]) == (0, [])
    assert "asked for the same" in "\n".join(comparison_lines(made))


def test_runs_that_cannot_be_compared(place):
    one = place / "one"
    with pytest.raises(MismatchError, match=r"run-wide cannot be compared with .*one: it has 60 features, that 40"):
        compare([one, place / "run-wide"])
    said = r"run-other cannot be .*: it has 4 classes \(a, b, c, d\), that 4 classes \(0, 1, 2, 3\)"
    refuses(MismatchError, said, compare, [one, place / "run-other"])
    refuses(FormatError, "no such run", compare, [one, place / "none"])
    refuses(ParameterError, "one is given twice; name each run once", compare, [one, one])
    refuses(ParameterError, "1 runs were named; name from 2 to 8", compare, [one])
    refuses(MismatchError, "wide has 60 features", compare, [one, place / "two"], place / "wide")


def test_the_page_has_curves_and_tables(place):
    page = render_comparison(compare([place / "one", place / "two"], place / "test"))
    for title in ("Runs", "Curves", "What differs", "Weights", "Predictions"):
        assert f"<h2>{title}</h2>" in page
    assert "Evaluation error by seconds" in page
    assert "rows in dispute" in page


def test_the_command_line(place, tmp_path):

    runs = [place / "one", place / "two"]
    told = printed("compare", *runs, "--data", place / "test", "--json")
    assert json.loads(told) == compare(runs, place / "test").to_json()
    written = printed("compare", *runs, "--html", tmp_path / "c.html")
    assert written == f"comparison in {tmp_path}/c.html\n"
    assert (tmp_path / "c.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    both = distls("compare", *runs, "--json", "--html", tmp_path / "c.html")
    assert both == (2, "", "distls: --html and --json: one of them\n")
