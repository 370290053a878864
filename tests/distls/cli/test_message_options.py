"""Messages name options that the commands have which may print them."""

import ast
import functools
import inspect
import re
from pathlib import Path

import click
import pytest

import distls
from distls import export, facts
from distls.cli import cli
from distls.ingestion.formats.format_registry import option_infos
from distls.storage.errors import BadInputError
from distls.workers.rounds import worker_checks
from distls.workers.rounds.block_stream import DatasetRef

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
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FOREIGN = ("distls/interchange/vw_model.py", "distls/workers/losses/", "distls/reporting/page_tables.py")


def commands():
    """Return the options of every command."""
    return {
        name: {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        for name, command in cli.commands.items()
        if isinstance(command, click.Command)
    }


def texts(path):
    """Yield the string literals of a module but its docstrings, f-strings with ``{}`` for their values."""
    code = path.read_text(encoding="utf-8")
    nodes = [*ast.walk(ast.parse(code))] if OPTION.search(code) else []
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [] if id(node) in inside else [node]
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


@functools.cache
def mentions():
    """Return (module, text, option) for each option in a text of several words."""
    paths = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "distls").rglob("*.py"))}
    return [
        (module, text, option)
        for module, path in paths.items()
        for text in (() if module.startswith(FOREIGN) else texts(path))
        for option in (OPTION.findall(text) if " " in text else ())
    ]


def of_python():
    """Return the texts that callers in Python may read."""
    return {text for module, text, _ in mentions() if not module.startswith("distls/cli/")}


def says_of_which(text, option, known):
    """Return whether a text names a command with the option, before it, or after it as in "--na of ingest"."""
    before, _, after = text.partition(option)
    said = re.findall(r"\b(" + "|".join(known) + r")\b", before)
    said += re.findall(r" (?:of|to|at the) (?:distls )?(\w+)", after.partition(";")[0])
    return any(option in known.get(name, ()) for name in said)


@pytest.fixture
def in_python(monkeypatch):
    monkeypatch.setattr(facts, "as_keywords", True)


# of the command line alone are workers, networks and output
ELSEWHERE = {
    "--all", "--allow-anyone", "--host", "--json", "--memory-limit", "--own-data", "--quiet", "--scheduler",
    "--threads-per-worker", "--tls", "--tls-ca", "--tls-cert", "--tls-directory", "--tls-key", "--workers",
}  # fmt: skip
FREE = {  # values of options that have no list of them
    "drop": {"unknown", "several"}, "separator": {"space"}, "threshold_for": {"f1"}, "transform": {"standardize"},
    "weight_column": {"label"},
}  # fmt: skip
SPOKEN = {
    'a:3: --kind "a b=date", --kind NAME=id, --na VALUE': 'a:3: kind="a b=date", kind="NAME=id", na=VALUE',
    "a: --header yes if; --decimal , reads; --decimal . if": 'a: header="yes" if; decimal="," reads; decimal="." if',
    "a: --ignore-columns leaves it out, --unknown-features ignore all like it": (
        'a: ignore_columns leaves it out, unknown_features="ignore" all like it'
    ),
    "--to must be one of; without --no-shuffle; --hash-bits 18 hashes; --hash-bits chooses how many": (
        "to must be one of; without shuffle=False; hash_bits=18 hashes; hash_bits chooses how many"
    ),
    "a: ingest with --transform idf,l2norm, or --list-columns INDICES,VALUES": (
        'a: ingest with transform="idf,l2norm", or list_columns="INDICES,VALUES"'
    ),
    "no parameter 'x'; the tolerance is --tol X, or --again": "no parameter 'x'; the tolerance is tol=X, or again=True",
    'a: "x" (--kind NAME=duration: of time)': 'a: "x" (kind="NAME=duration": of time)',
    "a: -p lanes=3 fits, and -p algorithm=row-blocks does": (
        'a: params={"lanes": 3} fits, and params={"algorithm": "row-blocks"} does'
    ),
    "RUN 40; ingest it with --like the training data": "RUN 40; ingest it with like=the training data",
}
KEPT = [
    "a worker needs --memory-limit 3MiB and --tls-ca", "well-formed -- yes", "x --split: no data set",
    "a: `fit sgd -p alpha=1` goes on",
    "data x --split has 3 features", "1 line skipped; the first: x --split:3: no number", "--like: no such file",
    "a: --like.csv, --like/a and a--like",
    'a:1: "--none--" and "x --split y" and "a "--kind" b": no number', "a: `predict --proba`, or `--to csv` lists",
    "it has no line Checksum; make it with --readable_model or --invert_hash", "a: 'x --split': not known",
]  # fmt: skip


@pytest.mark.parametrize(("text", "read"), [*SPOKEN.items(), *zip(KEPT, KEPT, strict=True)])
def test_callers_in_python_read_keywords(in_python, text, read):
    assert str(BadInputError(text)) == read
    assert facts.said(read) == read


def test_every_option_in_a_message_has_a_keyword(in_python):
    read = [facts.said(f"x: {re.sub(r'(?<![a-z]){}', '7', text)}") for text in of_python()]
    assert len(read) > 80
    for text in read:
        bare = re.sub(r'`.*?`|(?<!\w)".*?"(?=\W)', "", text)
        assert set(OPTION.findall(bare)) <= ELSEWHERE, text


def test_keywords_are_those_of_functions_and_values_those_of_options(in_python):
    options = {flag: each for command in cli.commands.values() for each in command.params for flag in each.opts}
    functions = (
        distls.ingest, distls.append, distls.fit, distls.resume, distls.evaluate, distls.predict, distls.plan,
        distls.generate, distls.import_model, distls.add_columns, export,
    )  # fmt: skip
    theirs = {name for function in functions for name in inspect.signature(function).parameters} | {*option_infos()}
    values = dict(FREE)
    for name, keyword in facts._KEYWORDS.items():
        option = options.get(f"--{name}")
        assert keyword.partition("=")[0] in theirs
        assert (option is None or bool(getattr(option, "is_flag", False))) == ("=" in keyword), name
        values[keyword] = {*getattr(option and option.type, "choices", ())} or FREE.get(keyword, set())
    for text in of_python():
        read = facts.said(f"x: {text}")
        assert all(value in values[keyword] for keyword, value in re.findall(r'(\w+)="([a-z]\w*)"', read)), text
        for name, word in re.findall(r"--([a-z-]+) ([a-z]\w*|[.,])(?!\S)", text.partition("`")[0]):
            keyword = facts._KEYWORDS.get(name, "")
            assert (word in values.get(keyword, ())) == (f'{keyword}="{word}"' in read), text


def test_workers_leave_options_to_the_process_of_the_caller(in_python, monkeypatch):
    def refuse(path):
        raise BadInputError("x: --kind NAME=id")

    monkeypatch.setattr(worker_checks, "open_dataset", refuse)
    assert worker_checks.access_error((DatasetRef("x", "0"), None)) == "x: --kind NAME=id"


def test_notices_and_skipped_lines_of_reports_have_keywords(in_python, tmp_path):
    (tmp_path / "a --split.svm").write_text("1 1:2\n0 1:3\n" * 5 + "--kind:3 1:2\n")
    report = distls.ingest(tmp_path / "a --split.svm", tmp_path / "d", on_error="skip", format="svmlight")
    (line,) = report.skipped_lines
    assert line.startswith(f'{tmp_path}/a --split.svm:11: "--kind:3')
    assert line.endswith("unlabelled=True, and predict")
    assert report.notices == (f"1 line skipped; the first: {line}",)


def test_every_option_that_is_named_is_one_of_the_command_that_names_it():
    known, wrong = commands(), []
    assert len({option for *_, option in mentions()}) > 50
    for module, text, option in mentions():
        theirs = PRINTED_BY[max((name for name in PRINTED_BY if module.startswith(name)), key=len)]
        lacking = sorted(name for name in theirs if option not in known[name])
        unknown = option != "--help" and not any(option in flags for flags in known.values())
        if unknown or (lacking and not says_of_which(text, option, known)):
            wrong.append(f"{module}: {option} is not of {', '.join(lacking) or 'any command'}: {text}")
    assert not wrong, "\n".join(wrong)
