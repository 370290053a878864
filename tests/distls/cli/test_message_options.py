"""Messages name options that the commands have which may print them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from distls import facts
from distls.cli import cli
from distls.storage.errors import BadInputError

ROOT = Path(__file__).resolve().parents[3]
READERS, FITS = {"ingest", "append", "train", "evaluate", "predict", "calibrate"}, {"fit", "resume", "train"}
NEW = {"ingest", "train"}  # of data that are not read like others
# Module or folder -> commands that print its messages; the longest entry counts.
PRINTED_BY = {
    "distls/": set(), "distls/ingestion/": READERS, "distls/ingestion/append.py": {"append"},
    "distls/ingestion/survey.py": NEW, "distls/ingestion/dataset_facts.py": NEW,
    "distls/ingestion/schema.py": NEW, "distls/ingestion/imputation_fit.py": NEW,
    "distls/ingestion/formats/column_kinds.py": NEW, "distls/ingestion/formats/vw.py": NEW,
    "distls/workers/ingestion/": READERS,
    "distls/training/": FITS, "distls/training/from_files.py": {"train"}, "distls/methods/": FITS | {"plan"},
    "distls/solvers/": FITS, "distls/memory_plan.py": FITS, "distls/evaluation/": READERS | FITS,
    "distls/evaluation/evaluate.py": {"evaluate"}, "distls/evaluation/calibrate.py": {"calibrate"},
    "distls/prediction/": {"predict"}, "distls/interchange/": {"export"},
    "distls/interchange/import_model.py": {"import"}, "distls/storage/dataset/partitions.py": READERS,
}  # fmt: skip
FOREIGN = ("distls/interchange/vw_model.py", "distls/workers/losses/", "distls/reporting/page_tables.py")


def commands() -> dict[str, set[str]]:
    """Return the options of every command."""
    return {
        name: {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        for name, command in cli.commands.items()
        if isinstance(command, click.Command)
    }


def texts(path: Path) -> Iterator[str]:
    """Yield the string literals of a module but its docstrings, f-strings with ``{}`` for their values."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [] if id(node) in inside else [node]
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def mentions() -> Iterator[tuple[str, str, str]]:
    """Yield (module, text, option) for each option in a text of several words."""
    for path in sorted((ROOT / "distls").rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        for text in () if module.startswith(FOREIGN) else texts(path):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if " " in text else ():
                yield module, text, option


def says_of_which(text: str, option: str, known: dict[str, set[str]]) -> bool:
    """Return whether a text names a command with the option, before it, or after it as in "--na of ingest"."""
    before, _, after = text.partition(option)
    said = re.findall(r"\b(" + "|".join(known) + r")\b", before)
    said += re.findall(r" (?:of|to|at the) (?:distls )?(\w+)", after.partition(";")[0])
    return any(option in known.get(name, ()) for name in said)


def test_callers_in_python_read_keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "as_keywords", True)
    spoken = {
        '3: --kind "a b=date", --kind NAME=id, --na VALUE': '3: kind="a b=date", kind="NAME=id", na=VALUE',
        "--header yes if; --decimal , reads; --decimal . if": 'header="yes" if; decimal="," reads; decimal="." if',
        "leaves it out with --ignore-columns leaves, --unknown-features ignore all": (
            'leaves it out with ignore_columns leaves, unknown_features="ignore" all'
        ),
        "ingest with --transform idf,l2norm, or": 'ingest with transform="idf,l2norm", or',
        "--to must be one of; without --no-shuffle; --hash-bits 18 hashes": (
            "to must be one of; without shuffle=False; hash_bits=18 hashes"
        ),
        "a worker needs --memory-limit 3MiB and --tls-ca": "a worker needs --memory-limit 3MiB and --tls-ca",
        "well-formed -- yes, -p alpha=1": "well-formed -- yes, -p alpha=1",
    }
    for text, keywords in spoken.items():
        assert str(BadInputError(text)) == keywords
    # of the command line alone are workers, networks and output
    named = {f"--{found}" for _, text, _ in mentions() for found in re.findall(r"--([a-z][a-z-]+)", text)}
    kept = {name for name in named if name in str(BadInputError(f"x {name}"))}
    assert kept == {
        "--all", "--allow-anyone", "--host", "--json", "--memory-limit", "--own-data", "--quiet", "--scheduler",
        "--threads-per-worker", "--tls", "--tls-ca", "--tls-cert", "--tls-directory", "--tls-key", "--workers",
    } & named  # fmt: skip


def test_every_option_that_is_named_is_one_of_the_command_that_names_it() -> None:
    known, wrong = commands(), []
    assert len({option for *_, option in mentions()}) > 50
    for module, text, option in mentions():
        theirs = PRINTED_BY[max((name for name in PRINTED_BY if module.startswith(name)), key=len)]
        lacking = sorted(name for name in theirs if option not in known[name])
        unknown = option != "--help" and not any(option in flags for flags in known.values())
        if unknown or (lacking and not says_of_which(text, option, known)):
            wrong.append(f"{module}: {option} is not of {', '.join(lacking) or 'any command'}: {text}")
    assert not wrong, "\n".join(wrong)
