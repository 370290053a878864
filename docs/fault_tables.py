"""Write the tables of reliability.md from the tests that hold them: ``python docs/fault_tables.py``.

The docstring of such a test has a paragraph ``Fault: FAULT | WHERE IT IS INJECTED | WHAT THE USER SEES``, at its end
``| bits`` if the weights are compared with those of the undisturbed run. The page names the files of each table.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
_TABLE = re.compile(r"(<!-- faults of: ([^>]*?) -->\n\n)(?:\|.*\n)*")
_FAULT = re.compile(r"^Fault: (.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*?\|.*?\| (\d+) \|.*`pytest (\S+)` \|$", re.MULTILINE)
_HEAD = """\
| fault | where injected | times tried | what the user sees, what is on disk | bits equal | command |
| --- | --- | --- | --- | --- | --- |
"""


def faults_of(file: str) -> dict[str, list[str]]:
    """Return the faults of a file of tests: test -> fault, where, what is seen, ``bits`` if they are compared."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    found = {f"{file}::{test.name}": _FAULT.search(ast.get_docstring(test) or "") for test in tests}
    return {test: " ".join(fault[1].split()).split(" | ") for test, fault in found.items() if fault}


def files(text: str) -> list[str]:
    """Return the files that the page names."""
    return [f"tests/{name}.py" for _, names in _TABLE.findall(text) for name in names.split()]


def counts(text: str) -> dict[str, str]:
    """Return how many cases the page says that each test has."""
    return {test: times for times, test in _ROW.findall(text)}


def collected(text: str) -> dict[str, str]:
    """Return how many cases each test has."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        *files(text),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    cases = (line.partition("[")[0] for line in ended.stdout.splitlines() if "::" in line)
    return {test: str(count) for test, count in Counter(cases).items()}


def written(text: str, times: dict[str, str]) -> str:
    """Return the page with its tables as the tests have them."""

    def table(match: re.Match[str]) -> str:
        found = {t: f for name in match[2].split() for t, f in faults_of(f"tests/{name}.py").items()}
        rows = (_row(fault, times.get(test, "0"), test) for test, fault in found.items())
        return f"{match[1]}{_HEAD}{''.join(rows)}"

    return _TABLE.sub(table, text)


def _row(fault: list[str], times: str, test: str) -> str:
    what, where, seen, *bits = fault
    return (
        f"| {what} | {where} | {times} | {seen} | {'yes' if bits == ['bits'] else '-'} | `pytest {test}` |\n"
    )


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(written(page, collected(page)), encoding="utf-8")
