"""What a shell completes, and the names of the methods in the help."""

import os
import re
import shutil
import subprocess
import sys

import click
import pytest
from helpers import labelled_rows, printed, write_dataset

from distls.cli import cli
from distls.methods.method_registry import METHODS
from distls.training.fitting import fit


def completed(*words, incomplete=""):
    """What bash would be given for these words."""
    line = ["distls", *words, incomplete]
    asked = {"_DISTLS_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    command = [sys.executable, "-c", "from distls.cli import cli; cli(prog_name='distls')"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    return [entry.split(",", 1)[1] for entry in done.stdout.splitlines()]


def test_methods_and_their_parameters_are_completed():
    assert completed("fit", incomplete="sgd") == ["sgd", "sgdqn"]
    assert completed("fit", "sgd", "data", "run", "-p", incomplete="sch") == ["schedule="]
    assert "completion" in completed(incomplete="comp")


@pytest.mark.fast_cases("bash")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_the_shell(shell, tmp_path):
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("asks bash for its version")
    script = printed("completion", shell)
    assert "_DISTLS_COMPLETE" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.fast_cases("fit")
@pytest.mark.parametrize("command", ["fit", "plan", "train"])
def test_the_help_names_the_methods(command):
    shown = printed(command, "--help")
    assert "`distls methods METHOD`" in " ".join(shown.split())
    assert all(name in shown for name in METHODS)


def manual():
    return printed("man")


def test_the_manual_has_all_commands_and_options():
    page = manual()
    context = click.Context(cli)
    for name in cli.list_commands(context):
        assert f".SS distls {name}" in page
        for parameter in cli.get_command(context, name).params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0].replace("-", r"\-") in page
    # every line with a dot or an apostrophe at its start is a macro of ours
    requests = {line.split()[0] for line in page.splitlines() if line[:1] in (".", "'")}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I"}


def test_the_manual_is_formatted_without_warnings():
    if not shutil.which("groff"):
        pytest.skip("groff is not installed: apt install groff")
    command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=100n"]
    done = subprocess.run(command, input=manual(), capture_output=True, text=True, check=True)
    assert "--partition-size" in re.sub("\x1b\\[[0-9]*m|.\b", "", done.stdout)
    assert done.stderr == ""


# -- commands that only read what is written load no kernels, no stores and no schedulers ----------------


HEAVY = {"numba", "llvmlite", "scipy", "dask", "distributed", "zarr", "sklearn", "pandas", "pyarrow"}
_CODE = """
import sys
sys.argv = ["distls", *sys.argv[1:]]
from distls.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("light")
    data = write_dataset(found / "data", *labelled_rows(60, 8, 2))
    # a method that proves its optimum: its duals are looked for
    fit("newton", data, found / "run", passes=2)
    return found


@pytest.mark.fast_cases("-")
@pytest.mark.parametrize("words", ["--help", "info data", "info run", "methods"])
def test_nothing_heavy_is_loaded(folder, words):
    command = [sys.executable, "-c", _CODE, *words.split()]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert HEAVY & set(ran.stderr.split()) == set()
