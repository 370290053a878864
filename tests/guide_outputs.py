"""The commands of a guide and what they print: ``python tests/guide_outputs.py docs/start.md`` runs and rewrites them.

A block of a guide that begins with three backticks and ``console`` has commands after ``$ `` and below each what it
prints to stdout; a ``python`` block whose first line is ``# NAME.py`` is a file that the commands use.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Command", "Script", "differences", "output_of", "steps"]

_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")

_SHARE, _PERCENT, _BELOW_ONE = 0.02, 0.02, 0.002  # of larger numbers, in percent, of numbers below one


class Script(NamedTuple):
    """A file that the reader saves."""

    name: str
    text: str


class Command(NamedTuple):
    """A line of the shell, what it prints in the guide, and where that stands."""

    line: str
    printed: str
    span: tuple[int, int]


def steps(text: str) -> Iterator[Script | Command]:
    """Yield the files and commands of a guide in their order."""
    for block in _BLOCK.finditer(text):
        kind, body = block.groups()
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", body)
            if name is not None:
                yield Script(name[1], body)
            continue
        for command in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
            first, last = command.span(2)
            yield Command(command[1], command[2], (block.start(2) + first, block.start(2) + last))


def output_of(command: Command, folder: Path) -> str:
    """Run a command in a folder and return its stdout; what goes wrong is an AssertionError."""
    # the program of the environment that runs this, whatever PATH says
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-c", command.line], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command.line}: exit code {ended.returncode}\n{ended.stderr}"
    # a guide shows no folder of the machine that it was written on
    return ended.stdout.replace(f"{folder.resolve()}/", "")


def differences(printed: str, expected: str) -> list[str]:
    """Return the words that differ; numbers may as docs/guides/index.md says, seconds and passes by anything."""
    ours, theirs = _words(printed), _words(expected)
    if len(ours) != len(theirs):
        return [f"{len(ours)} words, {len(theirs)} in the guide:\n{printed}"]
    near = [_PERCENT if after == "%" else _BELOW_ONE for after in [*theirs, ""][1:]]
    pairs = zip(ours, theirs, near, strict=True)
    return [f"{a}, in the guide {b}" for a, b, least in pairs if not _alike(a, b, least)]


def _words(text: str) -> list[str]:
    digests: dict[str, str] = {}  # another processor has others, in the same places
    text = re.sub(r"((?:CONVERGED|MAX_PASSES) +\d+ +)[\d.]+", r"\1", text)  # seconds of a table of `compare`
    text = re.sub("[0-9a-f]{64}", lambda d: digests.setdefault(d[0], f"DIGEST{len(digests)}"), text)
    text = re.sub(r"( s): start .*", r"\1", text)  # what took a tenth of a second, and is named, depends on the day
    return re.sub(r"[\d.,]+ (s|passes)\b", r"MANY \1", text).replace(",", " ").split()


def _alike(word: str, other: str, least: float) -> bool:
    if _NUMBER.sub("", word) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(word), _NUMBER.findall(other), strict=True)
    return all(_near(float(a), float(b), least) for a, b in pairs)


def _near(number: float, other: float, least: float) -> bool:
    # shares and losses below one are printed with four digits
    share = _SHARE if least == _PERCENT or abs(other) >= 1.0 else 0.0
    return math.isclose(number, other, rel_tol=share, abs_tol=least)


def rewrite(guide: Path) -> None:
    """Run a guide in an empty folder, and put what its commands print in place of what it had."""
    text, spans = guide.read_text(encoding="utf-8"), []
    with tempfile.TemporaryDirectory() as folder:
        for step in steps(text):
            if isinstance(step, Script):
                Path(folder, step.name).write_text(step.text, encoding="utf-8")
            else:
                spans.append((step.span, output_of(step, Path(folder))))
    for (first, last), printed in reversed(spans):
        text = text[:first] + printed + text[last:]
    guide.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
