"""The commands of the guides are run as they are written, and print what the guides show."""

import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from guide_outputs import Command, Script, differences, output_of, steps
from sklearn.datasets import dump_svmlight_file

import distls

DOCS = Path(__file__).resolve().parents[1] / "docs"
_PAGES = [DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md"))]
GUIDES = [path for path in _PAGES if "```console" in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_commands_print_what_the_guide_shows(guide, tmp_path):
    for step in steps(guide.read_text(encoding="utf-8")):
        if isinstance(step, Script):
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
        else:
            assert differences(output_of(step, tmp_path), step.printed) == [], step.line


def test_every_guide_has_commands_but_the_one_on_methods():
    without = {path.stem for path in (DOCS / "guides").glob("*.md")} - {path.stem for path in GUIDES}
    assert without == {"index", "choose"}
    assert sum(isinstance(step, Command) for step in steps(GUIDES[0].read_text("utf-8"))) >= 6


def test_files_and_commands_are_found_in_their_order():
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
        ("AUC 0.9951", True),
        ("AUC 0.98", False),
    ],
)
def test_numbers_may_differ_a_little_and_words_not_at_all(printed, same):
    shown = "AUC 0.9963" if printed.startswith("AUC") else "260 rows, error 1.54 %, 7 passes, 0.1 s"
    assert (differences(printed, shown) == []) == same


def test_equal_digests_must_stay_equal():
    one, two, three = ("".join(letters * 32) for letters in ("ab", "cd", "ef"))
    assert differences(f"{two} {two}", f"{one} {one}") == []
    assert differences(f"{two} {three}", f"{one} {one}") != []


def test_a_command_that_fails_is_said(tmp_path):
    with pytest.raises(AssertionError, match="exit code 3"):
        output_of(Command("exit 3", "", (0, 0)), tmp_path)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_guide_says_how_long_it_takes(guide):
    text = " ".join(guide.read_text(encoding="utf-8").split())
    assert re.search(r"(takes|took|followed in) [^.]*\b(seconds|minutes?)\b", text)


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    """All but those that install and test; the files that they name are made here."""
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    rng = np.random.default_rng(0)
    x = rng.random((400, 6)).round(3)
    y = np.where(x[:, 0] > x[:, 1], "up", "down")
    rows = [",".join(map(str, row)) for row in x.tolist()]
    labelled = [f"{row},{label}" for row, label in zip(rows, y, strict=True)]
    for name, lines in (("train.csv", labelled[:300]), ("test.csv", labelled[300:])):
        (tmp_path / name).write_text("\n".join(["a,b,c,d,e,f,y", *lines]) + "\n")
    (tmp_path / "new.csv").write_text("\n".join(["a,b,c,d,e,f", *rows[:5]]) + "\n")
    for name in ("docs-1.svm.gz", "docs-2.svm.gz", "test.svm.gz", "docs.svm.gz"):
        with gzip.open(tmp_path / name, "wb") as file:
            dump_svmlight_file(x, y == "up", file, zero_based=False)
    commands = re.findall(r"^    (distls .+)$", text, re.MULTILINE)
    assert len(commands) >= 8
    for line in commands:
        output_of(Command(line, "", (0, 0)), tmp_path)
    (script,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    # in a folder of its own, where there is no data set yet
    (tmp_path / "python").mkdir()
    shutil.copy(tmp_path / "docs.svm.gz", tmp_path / "python")
    given = "import numpy as np\nX, y = np.eye(6), np.arange(6) % 2\n"
    (tmp_path / "python" / "readme.py").write_text(given + script)
    output_of(Command("python readme.py", "", (0, 0)), tmp_path / "python")


@pytest.mark.slow
def test_the_loader_of_pytorch_on_the_page_has_every_row(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="pip install torch to test its DataLoader")
    text = (DOCS / "guides" / "other-libraries.md").read_text(encoding="utf-8")
    (page,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (script,) = (step for step in steps(text) if isinstance(step, Script) and step.name == "make_data.py")
    monkeypatch.chdir(tmp_path)
    exec(script.text, {})
    counted = page.replace("    ...", "    seen.append((len(X), int(y.sum())))")
    found = {"torch": torch, "distls": distls, "seen": []}
    exec(counted, found)
    assert sum(rows for rows, _ in found["seen"]) == 5000
    assert sum(spam for _, spam in found["seen"]) == 2155
