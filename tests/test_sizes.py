"""Files and functions stay small enough to be read: the sizes of CONTRIBUTING.md."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES, MOST_OF_A_FUNCTION, MOST_OF_A_KERNEL = 400, 40, 62

# of lines with nothing but a comment per 100 lines, and of modules of workers and solvers that cite a source
LEAST_COMMENTS, LEAST_CITING = 4.0, 0.35

LONG_FILES = {}  # file -> why it is longer
# what numba compiles is one function where others would be several
KERNEL_DECORATORS = {"kernel", "helper"}
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def _sources():
    yield from sorted((ROOT / "distls").rglob("*.py"))


def _code_lines(text):
    """Return the numbers of lines with code: no comment, no blank."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT and token.type != tokenize.COMMENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines


def _body(function):
    """Return the statements after the docstring."""
    documented = ast.get_docstring(function, clean=False) is not None
    return function.body[1:] if documented else function.body


def _is_kernel(function):
    return any(isinstance(d, ast.Name) and d.id in KERNEL_DECORATORS for d in function.decorator_list)


def test_files_are_short_or_listed_with_their_reason():
    long = {
        path.relative_to(ROOT).as_posix()
        for path in _sources()
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert long == set(LONG_FILES)


def test_functions_are_short():
    found = []
    for path in _sources():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not _body(node):
                continue
            lines = range(_body(node)[0].lineno, (node.end_lineno or 0) + 1)
            most = MOST_OF_A_KERNEL if _is_kernel(node) else MOST_OF_A_FUNCTION
            # few are as long with their comments: of these the lines with code are counted
            if len(lines) > most and (length := len(_code_lines(text).intersection(lines))) > most:
                found.append(f"{path.relative_to(ROOT)}: {node.name} has {length} lines")
    assert found == []


@pytest.mark.slow
def test_the_numbers_of_the_house_are_printed(capsys):
    import house_numbers

    house_numbers.main()
    printed = {line[:40].strip(): line[40:].strip() for line in capsys.readouterr().out.splitlines()}
    assert printed["upward imports"] == printed["functions over 40 lines, no kernels"] == "0"
    assert printed["files over 400 lines"] == str(len(LONG_FILES))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _sources())
    assert printed["lines"] == str(lines)


def test_comments_say_why_and_what_is_published_is_cited():
    import house_numbers

    rows = house_numbers.word_rows(house_numbers.test_layers.MODULES)
    assert float(str(rows["comment lines per 100 lines"])) >= LEAST_COMMENTS
    citing, published = str(rows["workers and solvers that cite a source"]).split(" of ")
    assert int(citing) / int(published) >= LEAST_CITING


def test_comments_and_citations_are_told_from_others():
    import house_numbers

    text = "# mypy: strict\n# why\nx = 1  # what\n# ---- rows\n    # why not\n#\n"
    assert house_numbers.comment_lines(text) == 2
    cited = (
        '"""The step of Eq. 7."""',
        '"""As Algorithm 1 has it."""',
        '"""By Ma et al. (2015)."""',
        '"""Zou and Hastie 2005."""',
    )
    assert all(map(house_numbers.cites, cited))
    assert not house_numbers.cites('"""A step; see docs/decisions/0020."""\nx = 2005  # Hastie 2005\n')
