"""The table of docs/reliability.md: every command is of tests that there are, and tries a fault as often as it says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _rows() -> list[list[str]]:
    faults, _, _ = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").partition("## Long runs")
    lines = faults.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if len(row) == 7 and row[0] not in ("fault", "---")]


def _collected(arguments: list[str]) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    return [line for line in ended.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_every_row_is_of_tests_that_there_are() -> None:
    rows = _rows()
    assert len(rows) > 10
    commands = [shlex.split(row[-1].strip("`")) for row in rows]
    assert all(command[0] == "pytest" for command in commands)
    # one collection serves all rows: it costs seconds
    there = _collected(sorted({command[1] for command in commands}))
    for row, command in zip(rows, commands, strict=True):
        assert command[2:3] in ([], ["-k"]), command
        found = [
            name for name in there if _is_of(name, command[1]) and all(word in name for word in command[3:])
        ]
        assert row[2].split()[0] == str(len(found)), f"{row[0]}: {len(found)} cases of {command}"
        assert row[4] == "none", row[0]
        assert row[5] in ("yes", "-"), row[0]


def _is_of(name: str, asked: str) -> bool:
    return name == asked or name.startswith((f"{asked}[", f"{asked}::"))


@pytest.mark.parametrize("name", ["tests/a.py::test_b[1]", "tests/a.py::test_b"])
def test_cases_are_told_apart(name: str) -> None:
    assert _is_of(name, "tests/a.py::test_b")
    assert not _is_of(name, "tests/a.py::test")
