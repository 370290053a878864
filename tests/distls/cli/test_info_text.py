"""The text of `distls info`: nothing is cut in the middle, and what is left out is counted."""

from __future__ import annotations

from distls.cli.info_text import info_lines


def test_short_values_are_on_the_line_of_their_name() -> None:
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


def test_top_features_of_every_class_are_whole() -> None:
    top = {f"class {k}": [[f"feature {j}", 2.0 - j / 7] for j in range(10)] for k in range(20)}
    title, *lines = info_lines({"top_features": top})
    assert title == "top_features"
    assert len(lines) == 20
    assert lines[19].startswith("  class 19           feature 0 2, feature 1 1.86, ")
    assert lines[19].endswith("feature 9 0.714")


def test_what_is_left_out_is_counted() -> None:
    assert info_lines({"classes": list(range(2000, 2025))})[0].endswith("2019, and 5 more; --json has all")
    children = [{"params": {"alpha": k / 8, "loss": "log"}, "error": 0.25} for k in range(21)]
    lines = info_lines({"children": children})
    assert lines[:3] == ["children", "  alpha=0, error=0.25", "  alpha=0.125, error=0.25"]
    assert lines[-1] == "  and 1 more; --json has all"


def test_a_line_break_in_a_name_makes_no_other_field() -> None:
    assert info_lines({"classes": ["a\nstatus CONVERGED"]}) == ["classes              a\\nstatus CONVERGED"]
