"""Print the sizes of the product: ``python tests/house_numbers.py``.

`test_sizes` and `test_layers` hold the limits; this prints how far below them the product is, and what it takes to add
to it.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

import test_additions
import test_layers
import test_sizes

MOST_MODULES = 15
# Lines of comments that are none: headers for tools, and rules between sections.
_HEADER = re.compile(r"\s*#\s*(mypy:|fmt:|noqa|type:|ruff:|-{2,}|$)")
# An equation, algorithm or the like of a paper, or authors with a year.
_CITATION = re.compile(
    r"Eq\. \d|Equations? \d|Algorithms? \d|Theorems? \d|Figures? \d|[Ss]ections? [\dIVX]|[Aa]ppendix [A-Z]\.|"
    r"[A-Z][a-z]+( et al\.)?,? \(?(19|20)\d\d\b"
)


def module_rows(modules: dict[str, Path]) -> dict[str, object]:
    """Return the counts of modules, and base names that stand for two subjects."""
    named = [path for path in modules if not path.endswith("__init__.py")]
    folders = Counter(path.rpartition("/")[0] for path in named)
    families = {part + ".py" for folder in folders for part in folder.split("/")}
    subjects = defaultdict(set)
    for path in named:
        # a family has the same name in every layer, and so may a file of it
        subjects[path.rpartition("/")[2]].add(_subject(path))
    return {
        "modules": len(named),
        "folders": len(folders),
        "modules per folder, median": statistics.median(folders.values()),
        f"folders of more than {MOST_MODULES} modules": [
            f"{folder}: {count}" for folder, count in folders.most_common() if count > MOST_MODULES
        ],
        "base names with two meanings": sorted(
            name for name, of in subjects.items() if len(of) > 1 and name not in families
        ),
    }


def _subject(path: str) -> str:
    """Return the folder of a module below its layer: `distls`, `distls/workers` or `distls/storage`."""
    parts = path.split("/")[1:-1]
    return "/".join(parts[1:] if parts[:1] in (["storage"], ["workers"]) else parts)


def line_rows(modules: dict[str, Path]) -> dict[str, object]:
    """Return the counts of lines, and files and functions that are long."""
    texts = {path: file.read_text(encoding="utf-8") for path, file in modules.items()}
    n_lines = {path: len(text.splitlines()) for path, text in texts.items()}
    code = {path: test_sizes._code_lines(text) for path, text in texts.items()}
    comments = sum(
        token.type == tokenize.COMMENT
        for text in texts.values()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    documented = {path: _docstring_lines(ast.parse(text)) for path, text in texts.items()}
    n_code = sum(len(code[path] - documented[path]) for path in texts)
    lengths = [(length, kernel, f"{path}: {name}") for path in texts for length, kernel, name in
               _functions(ast.parse(texts[path]), code[path])]  # fmt: skip
    most = test_sizes.MOST_OF_A_FUNCTION
    return {
        "lines": sum(n_lines.values()),
        "of these code, docstrings": f"{n_code}, {sum(map(len, documented.values()))}",
        "comments per 100 lines of code": f"{100 * comments / n_code:.1f}",
        f"files over {test_sizes.MOST_LINES} lines": [p for p, n in n_lines.items() if n > test_sizes.MOST_LINES],
        f"functions over {most} lines, no kernels": [n for length, k, n in lengths if length > most and not k],
        f"kernels over {most} lines": [f"{n} ({length})" for length, k, n in lengths if length > most and k],
    }


def comment_lines(text: str) -> int:
    """Return the lines that hold nothing but a comment for the reader."""
    own = (line for line in text.splitlines() if line.lstrip().startswith("#"))
    return sum(_HEADER.match(line) is None for line in own)


def cites(text: str) -> bool:
    """Return whether a docstring of a module names the source of what it implements."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = (ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    return any(_CITATION.search(" ".join(doc.split())) for doc in docs)


def word_rows(modules: dict[str, Path]) -> dict[str, object]:
    """Return the share of lines that are comments, and the modules that cite what they implement."""
    texts = {path: file.read_text(encoding="utf-8") for path, file in modules.items()}
    n_lines = sum(len(text.splitlines()) for text in texts.values())
    published = [
        text
        for path, text in texts.items()
        if path.split("/")[1] in ("workers", "solvers") and not path.endswith("__init__.py")
    ]
    return {
        "comment lines per 100 lines": f"{100 * sum(map(comment_lines, texts.values())) / n_lines:.2f}",
        "workers and solvers that cite a source": f"{sum(map(cites, published))} of {len(published)}",
    }


def import_rows() -> dict[str, object]:
    """Return the counts of imports between rooms, and of those that run upward."""
    floor = {room: number for number, room in enumerate(test_layers.ROOMS)}
    arrows = test_layers._arrows()
    upward = [line for (source, target), lines in arrows.items() if floor[target] > floor[source] for line in lines]
    return {
        "imports between rooms": f"{sum(map(len, arrows.values()))} in {len(arrows)} pairs of {len(floor)} rooms",
        "upward imports": upward,
    }


def splinter_rows(modules: dict[str, Path]) -> dict[str, object]:
    """Return the modules that one other imports, and of these, which lie beside it and would fit in with it."""
    importers = defaultdict(set)
    for path, file in modules.items():
        for name in test_layers._imports(file):
            importers[test_layers._targets(name)].add(path)
    n_lines = {path: len(file.read_text(encoding="utf-8").splitlines()) for path, file in modules.items()}
    alone = {path: min(importers[path]) for path in modules if len(importers[path]) == 1}
    beside = {path: by for path, by in alone.items() if path.rpartition("/")[0] == by.rpartition("/")[0]}
    fitting = [
        f"{path} ({n_lines[path]} + {n_lines[by]})"
        for path, by in beside.items()
        if n_lines[path] + n_lines[by] <= test_sizes.MOST_LINES and not path.endswith("__init__.py")
    ]
    return {"modules with one importer": len(alone), "of these in its folder, and short enough for it": fitting}


def addition_rows() -> dict[str, object]:
    """Return the literal names of losses and penalties outside their rooms."""
    rows: dict[str, object] = {}
    for room in test_additions.NAMES:
        found = test_additions.literal_names(room)
        rows[f"literal names of {room} elsewhere"] = [f"{path}: {', '.join(found[path])}" for path in found]
    return rows


def _docstring_lines(tree: ast.Module) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            found |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def _functions(tree: ast.Module, code: set[int]) -> list[tuple[int, bool, str]]:
    """Return (lines of code, whether numba compiles it, name) of each function."""
    return [
        (len(code & set(range(body[0].lineno, (node.end_lineno or 0) + 1))), test_sizes._is_kernel(node), node.name)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (body := test_sizes._body(node))
    ]


def main() -> None:
    """Print a row for each number, and the names behind it."""
    modules = test_layers.MODULES
    for name, value in {
        **module_rows(modules),
        **line_rows(modules),
        **word_rows(modules),
        **import_rows(),
        **splinter_rows(modules),
        **addition_rows(),
    }.items():
        print(f"{name:40} {len(value) if isinstance(value, list) else value}")
        for each in value if isinstance(value, list) else ():
            print(f"{'':44}{each}")


if __name__ == "__main__":
    sys.exit(main())
