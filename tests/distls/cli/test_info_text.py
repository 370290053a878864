"""The text of `distls info`: nothing is cut in the middle, and what is left out is counted."""

import json

import numpy as np
import pandas
from helpers import printed
from scipy.sparse import csr_matrix

import distls
from distls.reporting.describe import describe, info_lines


def test_short_values_are_on_the_line_of_their_name():
    described = {
        "kind": "run", "passes": 2.5, "n_rows": 12345, "objective": None, "weighted": False, "transforms": [],
        "certificate": {"kind": "none", "value": None},
    }  # fmt: skip
    assert info_lines(described) == [
        "kind                 run",
        "passes               2.5",
        "n_rows               12,345",
        "objective            none",
        "weighted             no",
        "transforms           none",
        "certificate          kind=none, value=none",
    ]


def test_top_features_of_every_class_are_whole():
    top = {f"class {k}": [[f"feature {j}", 2.0 - j / 7] for j in range(10)] for k in range(20)}
    title, *lines = info_lines({"top_features": top})
    assert title == "top_features"
    assert len(lines) == 20
    assert lines[19].startswith("  class 19           feature 0 2, feature 1 1.86, ")
    assert lines[19].endswith("feature 9 0.714")


def test_what_is_left_out_is_counted():
    assert info_lines({"classes": list(range(2000, 2025))})[0].endswith("2019, and 5 more; --json has all")
    children = [{"params": {"alpha": k / 8, "loss": "log"}, "error": 0.25} for k in range(21)]
    lines = info_lines({"children": children})
    assert lines[:3] == ["children", "  alpha=0, error=0.25", "  alpha=0.125, error=0.25"]
    assert lines[-1] == "  and 1 more; --json has all"


def test_what_has_a_name_alone_is_called_by_it():
    assert info_lines({"transforms": [{"name": "log1p"}, {"name": "idf"}]}) == ["transforms           log1p, idf"]


def test_checksums_are_not_shown_as_sizes():
    lines = info_lines({"features": {"mean": 2370079128, "name_ends": 2989469182}})
    assert lines == ["feature_arrays       mean, name_ends"]


def test_a_line_break_in_a_name_makes_no_other_field():
    assert info_lines({"classes": ["a\nstatus CONVERGED"]}) == ["classes              a\\nstatus CONVERGED"]


def test_of_many_classes_twenty_are_text_unless_all_are_asked_for(tmp_path):
    y = np.arange(120) % 30
    distls.ingest(np.eye(30)[y] + 0.01, tmp_path / "d", y=y, target="class")
    distls.fit("sgd", tmp_path / "d", tmp_path / "r", passes=3)
    for path in (tmp_path / "r", tmp_path / "r" / "model"):
        lines = printed("info", path).splitlines()
        start = lines.index("top_features")
        assert [line.split()[0] for line in lines[start + 1 : start + 21]] == [str(k) for k in range(20)]
        assert lines[start + 21] == "  and 10 more of 30 classes; --all shows them"
        every = printed("info", path, "--all").splitlines()
        assert [line.split()[0] for line in every[start + 1 : start + 31]] == [str(k) for k in range(30)]
        found = json.loads(printed("info", path, "--json"))
        assert found["n_classes"] == len(found["top_features"]) == 30


def test_numbers_have_the_features_of_the_largest_size_by_their_column(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3))
    table = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "cost": x @ [1, -3, 0], "gain": x @ [0, 0, 5]})
    for columns, names in (("cost,gain", ["cost", "gain"]), ("cost", ["the number"])):
        distls.ingest(table.drop(columns="gain" if columns == "cost" else []), tmp_path / columns, label_column=columns)
        distls.fit("gls", tmp_path / columns, tmp_path / f"run-{columns}", params={"alpha": 1e-6})
        found = describe(tmp_path / f"run-{columns}")["top_features"]
        assert list(found) == names
        assert [name for name, _ in found[names[0]]][:2] == ["b", "a"]


def test_the_json_has_the_features_of_a_thousand_classes(tmp_path):
    y = np.arange(1010)
    x = csr_matrix((np.ones(1010, np.float32), (y, y % 7)))
    distls.ingest(x, tmp_path / "d", y=y, target="class")
    distls.fit("sgd", tmp_path / "d", tmp_path / "r", passes=1)
    found = describe(tmp_path / "r")
    assert (found["n_classes"], len(found["top_features"])) == (1010, 1000)
    assert len(describe(tmp_path / "r", None)["top_features"]) == 1010
