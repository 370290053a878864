"""The commands of the guides are run as they are written, and print what the guides show."""

from __future__ import annotations

from pathlib import Path

import pytest
from guide_outputs import Command, Script, differences, output_of, steps

DOCS = Path(__file__).resolve().parents[1] / "docs"
_PAGES = [DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md"))]
GUIDES = [path for path in _PAGES if "```console" in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_commands_print_what_the_guide_shows(guide: Path, tmp_path: Path) -> None:
    for step in steps(guide.read_text(encoding="utf-8")):
        if isinstance(step, Script):
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
        else:
            assert differences(output_of(step, tmp_path), step.printed) == [], step.line


def test_every_guide_has_commands_but_the_one_on_methods() -> None:
    without = {path.stem for path in (DOCS / "guides").glob("*.md")} - {path.stem for path in GUIDES}
    assert without == {"index", "choose"}
    assert sum(isinstance(step, Command) for step in steps(GUIDES[0].read_text("utf-8"))) >= 7


def test_files_and_commands_are_found_in_their_order() -> None:
    text = "# T\n\n```python\n# a.py\nprint(1)\n```\n\n```console\n$ python a.py\n1\n$ echo \\\n  2\n2\n```\n"
    first, second, third = steps(text)
    assert first == Script("a.py", "# a.py\nprint(1)\n")
    assert isinstance(second, Command)
    assert (second.line, second.printed) == ("python a.py", "1\n")
    assert isinstance(third, Command)
    assert (third.line, third.printed) == ("echo \\\n  2", "2\n")
    assert text[slice(*second.span)] == "1\n"


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("260 rows, error 1.54 %, 7 passes, 0.1 s", True),
        ("260 rows, error 1.55 %, 9 passes, 2.5 s", True),
        ("260 rows, error 1.94 %, 7 passes, 0.1 s", False),
        ("299 rows, error 1.54 %, 7 passes, 0.1 s", False),
        ("260 rows, mistakes 1.54 %, 7 passes, 0.1 s", False),
        ("260 rows, error 1.54 %, 7 passes", False),
    ],
)
def test_numbers_may_differ_a_little_and_words_not_at_all(printed: str, same: bool) -> None:
    assert (differences(printed, "260 rows, error 1.54 %, 7 passes, 0.1 s") == []) == same


def test_equal_digests_must_stay_equal() -> None:
    one, two, three = ("".join(letters * 32) for letters in ("ab", "cd", "ef"))
    assert differences(f"{two} {two}", f"{one} {one}") == []
    assert differences(f"{two} {three}", f"{one} {one}") != []


def test_a_command_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 3"):
        output_of(Command("exit 3", "", (0, 0)), tmp_path)
