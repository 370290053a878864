"""The documents say what the code does: options, parameters, fields, functions, links."""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import runpy
from pathlib import Path

import click
import pytest

import distls
from distls.cli import cli
from distls.evaluation.metrics import Evaluation
from distls.ingestion.formats.format_registry import option_infos
from distls.memory_plan import Plan
from distls.methods.method_registry import METHODS
from distls.planning.cluster_plan import ClusterPlan
from distls.solvers.solver import RoundReport
from distls.solvers.status import Status
from distls.storage.dataset.dataset import open_dataset
from distls.workers.runtime.rng import Purpose
from distls.workers.synthetic.kinds import KINDS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (".ci", "benchmarks", "deploy", "distls", "docs", "tests")
BUILT = {"_build", "generated"}  # folders of the site that its build writes
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "deploy").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not BUILT & set(path.parts)
)


def _text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def _sections(text):
    """Return the text below each heading, up to the next heading of any level."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _first_cells(section):
    """Return what stands in backticks in the first column of a section's tables."""
    cells = re.findall(r"^\|([^|]+)\|", section, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


# -- the command line ------------------------------------------------------------------------------------


CLI_SECTIONS = _sections(_text("docs/cli.md"))
COMMAND_SECTIONS = {
    title.split()[1]: (title, body) for title, body in CLI_SECTIONS.items() if title.startswith("distls ")
}
SHARED_SECTIONS = ("Reading options", "Source options", "Common options", "Cluster options")
SHARED = {
    f"#{title.lower().replace(' ', '-')}": {name.split()[0] for name in _first_cells(CLI_SECTIONS[title])}
    for title in SHARED_SECTIONS
}


def _documented_options(command):
    body = COMMAND_SECTIONS[command][1]
    options = {name.split()[0] for name in _first_cells(body)}
    return options.union(*(names for anchor, names in SHARED.items() if f"({anchor})" in body))


def _parameters(command, kind):
    return [parameter for parameter in cli.commands[command].params if isinstance(parameter, kind)]


def test_every_command_is_documented():
    assert set(COMMAND_SECTIONS) == set(cli.commands)


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_options_are_the_documented_ones(command):
    options = {name for p in _parameters(command, click.Option) for name in [*p.opts, *p.secondary_opts]}
    assert _documented_options(command) == options


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_arguments_are_the_documented_ones(command):
    arguments = [p.make_metavar(click.Context(cli)) for p in _parameters(command, click.Argument)]
    assert COMMAND_SECTIONS[command][0].split()[2:] == " ".join(arguments).split()


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_choices_are_documented(command):
    body = COMMAND_SECTIONS[command][1]
    shared = "".join(CLI_SECTIONS[title] for title in SHARED_SECTIONS)
    for option in _parameters(command, click.Option):
        if isinstance(option.type, click.Choice):
            row, *_ = [r for r in (body + shared).splitlines() if r.startswith(f"| `{option.opts[-1]} ")]
            missing = [choice for choice in option.type.choices if f"`{choice}`" not in row]
            assert not missing or command == "generate", f"{option.opts[-1]}: {missing}"


def test_exit_codes_are_documented():
    from distls.cli import support as module

    codes = re.findall(r"^\| (\d) \|", CLI_SECTIONS["Exit codes"], flags=re.MULTILINE)
    assert [int(code) for code in codes] == [module.OK, module.FAILED, module.USAGE, module.INTERRUPTED]


def test_generated_kinds_are_documented():
    body = COMMAND_SECTIONS["generate"][1]
    assert [kind for kind in KINDS if f"`{kind}`" not in body] == []
    table = _sections(_text("docs/synthetic.md"))["Synthetic data"]
    for kind in KINDS.values():
        (row,) = [row for row in table.splitlines() if row.startswith(f"| `{kind.name}` |")]
        sizes = [kind.n_train, kind.n_test, kind.n_features]
        assert [cell.split()[0] for cell in row.split("|")[2:5]] == [f"{size:,}" for size in sizes]
        assert row.split("|")[5].strip() == (f"{kind.n_classes} classes" if kind.n_classes else "a number")


@pytest.mark.parametrize(
    "names",
    [
        [field.name for field in dataclasses.fields(Plan)],
        [field.name for field in dataclasses.fields(ClusterPlan) if field.name != "plan"],
        [field.name for field in dataclasses.fields(RoundReport)],
        [f.name for f in dataclasses.fields(Evaluation) if f.name in ("n_rows", "error", "log_loss", "confusion")],
    ],
    ids=["plan", "cluster plan", "round", "evaluation"],
)
def test_json_fields_are_documented(names):
    assert names
    assert [name for name in names if f"`{name}`" not in CLI_SECTIONS["JSON"]] == []


# -- commands that a reader types ------------------------------------------------------------------------


def _typed(text):
    """Return the words of every `distls` command that stands in an indented or fenced block."""
    blocks = re.findall(r"^(?: {4,}|\$ )(?:.*\\\n)*.*$", text, flags=re.MULTILINE)
    commands = []
    for block in blocks:
        line = block.strip().removeprefix("$ ").replace("\\\n", " ")
        for part in re.split(r"&&|;|\||>|\s#\s", line.replace("onnx|sklearn|liblinear|vw|npz|csv", "onnx")):
            words = part.split("2>")[0].split()
            if words[:1] == ["distls"] and words[1:]:
                commands.append([word.strip("'\"") for word in words[1:]])
    return commands


TYPED = [
    pytest.param(words, id=f"{document.relative_to(ROOT)}: {' '.join(words)}"[:100])
    for document in DOCUMENTS
    for words in _typed(document.read_text(encoding="utf-8"))
    if words[0] in cli.commands or document.parent.name == "guides"
]


def test_typed_commands_are_found():
    text = "a\n\n    distls fit a b \\\n      -p c=1 && distls evaluate b c  # no\n\n$ distls info b | head -1\n"
    assert _typed(text) == [["fit", "a", "b", "-p", "c=1"], ["evaluate", "b", "c"], ["info", "b"]]
    assert len(TYPED) > 80
    assert {"text.md", "large-data.md", "cluster.md"} <= {Path(p.id.split(":")[0]).name for p in TYPED if p.id}


STANDS_FOR = {"...": "option", "WxT": "2x2"}


@pytest.mark.parametrize("words", TYPED)
def test_typed_commands_are_understood(words, tmp_path, monkeypatch):
    (tmp_path / "FILE").touch()
    monkeypatch.chdir(tmp_path)
    given = [STANDS_FOR.get(word, word) for word in words[1:]]
    # commands keep the names of their option of help, which are those of the group
    group = click.Context(cli, **cli.context_settings)
    taken = cli.commands[words[0]].make_context(words[0], given, parent=group).params
    method = METHODS.get(taken.get("method") or (taken.get("names") or ("",))[0])
    known = [method] if method is not None else METHODS.values()
    names = {parameter.name for each in known for parameter in each.parameters}
    assert [pair for pair in taken.get("pairs") or () if pair.partition("=")[0] not in names] == []


# -- notation --------------------------------------------------------------------------------------------


WRITERS = runpy.run_path(str(ROOT / "docs" / "parameter_tables.py"))["WRITERS"]


@pytest.mark.parametrize("document", WRITERS)
def test_tables_are_those_of_what_declares_them(document):
    text = _text(f"docs/{document}")
    assert WRITERS[document](text) == text, "python docs/parameter_tables.py writes them"
    damaged = re.sub(r"^(\| `(?:--patience EVALUATIONS|alpha|ncsgd)` \|).*", r"\1", text, flags=re.MULTILINE)
    assert damaged != text
    assert WRITERS[document](damaged) == text


def test_every_method_has_a_table():
    sections = _sections(_text("docs/notation.md"))
    assert [name for name in METHODS if "| parameter | default | meaning |\n" not in sections[name]] == []


def test_losses_and_their_short_names_are_documented():
    section = _sections(_text("docs/notation.md"))["Losses"]
    pairs = {pair for method in METHODS.values() for pair in method.aliases.items()}
    assert [
        (alias, loss)
        for alias, loss in pairs
        if not re.search(rf"^\| `{loss}` \| `{alias}` \|", section, flags=re.MULTILINE)
    ] == []


def test_statuses_and_purposes_are_documented():
    sections = _sections(_text("docs/notation.md"))
    assert _first_cells(sections["Status"]) == {status.value for status in Status}
    assert _first_cells(sections["Randomness"]) == {purpose.name for purpose in Purpose}


# -- names, links, commands ------------------------------------------------------------------------------


def test_public_names_import():
    for name in distls.__all__:
        home = distls._homes().get(name)
        if home is not None:
            # importing a submodule sets it as an attribute of the package, over a lazy name that is the same
            assert importlib.import_module(home).__name__ != f"distls.{name}"
            assert callable(getattr(distls, name))
        assert getattr(distls, name) is getattr(distls, name)


def test_readme_uses_public_names():
    used = set(re.findall(r"\bdistls\.(\w+)\(", _text("README.md")))
    assert used
    assert used <= set(distls.__all__)


@functools.cache
def _names_in(path):
    """Return the top-level names of a module and, dotted, those in its classes."""
    names, functions = set(), (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, (*functions, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, functions)}
    return names


def _found(pattern):
    """Return each document with what it holds of a pattern."""
    found = [(document, match) for document in DOCUMENTS for match in re.findall(pattern, document.read_text("utf-8"))]
    assert found
    return found


def test_named_functions_exist():
    named = _found(r"`([\w/]+\.py)::([\w.]+)`")
    assert [pair for pair in named if pair[1][1] not in _names_in(ROOT / pair[1][0])] == []


def test_named_files_exist():
    named = _found(r"`((?:distls|storage|workers|tests|benchmarks)/[\w/]+(?:\.py|/))`")
    assert [pair for pair in named if not (ROOT / pair[1]).exists()] == []


def test_a_decision_has_a_status_and_the_verdict_of_the_index():
    index = _text("docs/decisions/README.md")
    for record in sorted((ROOT / "docs/decisions").glob("0[0-9]*[1-9]*-*.md")):
        text = record.read_text("utf-8")
        assert re.search(r"^Status: (accepted|replaced by|proposed)", text, flags=re.MULTILINE), record
        verdict = re.search(r"^Verdict: (.+)$", text, flags=re.MULTILINE)
        assert verdict, f"no verdict in {record}"
        rows = re.findall(rf"^\| \[\d+\]\({record.name}\).*\| (.+) \|$", index, re.MULTILINE)
        assert rows == [verdict[1]], record


@functools.cache
def _anchors(path):
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), flags=re.MULTILINE)
    return {heading.lower().replace(" ", "-") for heading in headings}


def _leads_somewhere(document, target):
    file, _, anchor = target.partition("#")
    path = document.parent / file if file else document
    return path.exists() and (not anchor or anchor in _anchors(path))


def test_links_lead_somewhere():
    links = [pair for pair in _found(r"\]\(([^)\s]+)\)") if "://" not in pair[1]]
    assert [pair for pair in links if not _leads_somewhere(*pair)] == []


def test_the_readme_has_the_two_commands_that_ci_runs():
    commands = re.findall(r"^    (pip install .+)$", _text("README.md"), flags=re.MULTILINE)
    assert commands == ["pip install . && distls demo", "pip install -e '.[test]' && pytest"]
    ci = _text(".ci/run")
    assert f'within test "{commands[1]}"' in ci
    assert "distls demo" in ci
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_ingest_options_of_python_and_of_the_command_line_agree():
    function = importlib.import_module(distls._homes()["ingest"]).ingest
    accepted = set(inspect.signature(function).parameters) | set(option_infos())
    cluster = {
        "workers", "threads_per_worker", "memory_limit", "scheduler", "tls_ca", "tls_cert", "tls_key",
        "executor_kind", "quiet", "debug",
    }  # fmt: skip
    given = {parameter.name for parameter in cli.commands["ingest"].params} - cluster
    assert given <= accepted


# -- what must not be in the repository ------------------------------------------------------------------

# written apart so that this file does not hold what it looks for
FORBIDDEN = {
    "a machine's path": r"(?<![\w.~-])/(?:" + "|".join(["home", "root", "Users", "work", "mnt", "opt"]) + r")/\w",
    "a package registry": r"(?:pypi|pythonhosted|anaconda)" + r"\.(?:org|com)",
    "a conflict marker": r"^(?:<{7}|>{7}) ",
    "a placeholder": r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b|@" + r"@",
}


def _tracked_text():
    files = [path for path in ROOT.iterdir() if path.suffix in (".md", ".toml", ".txt", ".cfg", ".yaml", ".yml")]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file() and not path.is_symlink()]
    skipped = {"__pycache__", "results", *BUILT}
    return sorted(path for path in files if not skipped & set(path.parts) and path.suffix != ".pyc")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_that_does_not_belong(what):
    pattern = re.compile(FORBIDDEN[what], flags=re.MULTILINE)
    found = []
    for path in _tracked_text():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in pattern.finditer(text)]
    assert found == []


def test_the_documented_error_for_a_missing_data_set_is_the_real_one(tmp_path):
    assert "no such data set" in _text("docs/cluster.md")
    with pytest.raises(distls.DistlsError, match="no such data set"):
        open_dataset(tmp_path / "nowhere")
