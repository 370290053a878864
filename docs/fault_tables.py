"""Write the tables of reliability.md from the tests that hold them: ``python docs/fault_tables.py [LOG]``.

The docstring of such a test has a paragraph ``Fault: FAULT | WHERE IT IS INJECTED | WHAT THE USER SEES``, at its end
``| bits`` if the weights are compared with those of the undisturbed run. The page names the files of each table.
LOG is what ``pytest -rP --durations=0`` has printed of `test_every_instant`; from it the table of instants is written.
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
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider", *files(text)]
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
    return f"| {what} | {where} | {times} | {seen} | {'yes' if bits == ['bits'] else '-'} | `pytest {test}` |\n"


_TABLE_OF_INSTANTS = re.compile(r"(<!-- instants -->\n\n)(?:\|.*\n)*")
_MODES = {"kill": "killed", "lost": "power lost", "full": "no room"}


def instants(log: str) -> str:
    """Return the table of the instants of each command that a run of the tests has counted, with their sums."""
    counts, seconds = Counter[tuple[str, str]](), Counter[str]()
    for name, mode, count in re.findall(r"^(.+), (\w+): (\d+) instants", log, re.MULTILINE):
        for each in (name, "all"):
            counts[each, mode] += int(count)
    calls = r"^([\d.]+)s call .*test_every_instant.py::\w+\[(.+)\]$"
    for spent, name in re.findall(calls, log, re.MULTILINE):
        seconds.update({name: float(spent), "all": float(spent)})
    lines = [["command", *_MODES.values(), "seconds of the slow lane"], ["---"] * (len(_MODES) + 2)]
    for name in dict.fromkeys(name for name, _ in sorted(counts, key=lambda each: each[0] == "all")):
        found = [f"{counts[name, mode]:,}" if counts[name, mode] else "-" for mode in _MODES]
        lines.append([name, *found, f"{seconds[name]:.0f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    if sys.argv[1:]:
        table = instants(Path(sys.argv[1]).read_text(encoding="utf-8"))
        page = _TABLE_OF_INSTANTS.sub(rf"\g<1>{table}", page)
    PAGE.write_text(written(page, collected(page)), encoding="utf-8")
