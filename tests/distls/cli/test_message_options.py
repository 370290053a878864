"""Messages name options that the commands have which may print them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from distls.cli import cli

ROOT = Path(__file__).resolve().parents[3]
READERS = {"ingest", "train", "evaluate", "predict", "calibrate"}
FITS = {"fit", "resume", "train"}
NEW = {"ingest", "train"}  # of data that are not read like others
# Module or folder -> commands whose messages it has; the longest entry counts. Others belong to one command.
PRINTED_BY = {
    "distls/": set(),
    "distls/cli/": set(),
    "distls/ingestion/": READERS,
    "distls/ingestion/survey.py": NEW,
    "distls/ingestion/schema.py": NEW,
    "distls/ingestion/formats/vw.py": NEW,
    "distls/workers/ingestion/": READERS,
    "distls/training/": FITS,
    "distls/training/from_files.py": {"train"},
    "distls/methods/": FITS | {"plan"},
    "distls/solvers/": FITS,
    "distls/evaluation/": READERS | FITS,
    "distls/evaluation/evaluate.py": {"evaluate"},
    "distls/evaluation/calibrate.py": {"calibrate"},
    "distls/prediction/": {"predict"},
    "distls/interchange/": {"export"},
    "distls/interchange/import_model.py": {"import"},
    "distls/memory_plan.py": FITS,
    "distls/storage/dataset/partitions.py": READERS,
}
# Of other programs, and of CSS.
FOREIGN = {"distls/interchange/vw_model.py", "distls/workers/losses/", "distls/reporting/page_tables.py"}


def commands() -> dict[str, set[str]]:
    """Return the options of every command."""
    context = click.Context(cli)
    return {
        name: {flag for parameter in cli.get_command(context, name).params for flag in parameter.opts}
        | {flag for parameter in cli.get_command(context, name).params for flag in parameter.secondary_opts}
        for name in cli.list_commands(context)
    }


def texts(path: Path) -> Iterator[str]:
    """Yield the string literals of a module, docstrings excepted, and f-strings with ``{}`` for their values."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def mentions() -> Iterator[tuple[str, str, str]]:
    """Yield (module, text, option) for each option that a text other than its declaration has."""
    for path in sorted((ROOT / "distls").rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if any(module.startswith(name) for name in FOREIGN):
            continue
        for text in texts(path):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if " " in text else ():
                yield module, text, option


def is_named(text: str, option: str, known: dict[str, set[str]]) -> bool:
    """Return whether a text says of which command an option is, before or after it."""
    before, _, after = text.partition(option)
    said = re.findall(r"\b(" + "|".join(known) + r")\b", before)
    said += re.findall(r" (?:of|to|at the) (?:distls )?(\w+)", after.partition(";")[0])
    return any(option in known.get(name, ()) for name in said)


def test_every_option_that_is_named_is_one_of_the_command_that_names_it() -> None:
    known = commands()
    wrong = []
    for module, text, option in mentions():
        place = max((name for name in PRINTED_BY if module.startswith(name)), key=len)
        theirs = PRINTED_BY[place]
        if option != "--help" and not any(option in flags for flags in known.values()):
            wrong.append(f"{module}: {option} is of no command: {text}")
        elif not all(option in known[name] for name in theirs) and not is_named(text, option, known):
            lacking = ", ".join(sorted(name for name in theirs if option not in known[name]))
            wrong.append(f"{module}: {option} is not of {lacking}: {text}")
    assert not wrong, "\n".join(wrong)
