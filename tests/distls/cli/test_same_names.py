"""Commands and functions of Python are the same, by the same names."""

import inspect

import pytest

import distls
from distls.cli import cli
from distls.ingestion.formats.format_registry import option_infos

# What they are called where a command's name is a package, or a word of the language.
RENAMED = {"columns": "add_columns", "import": "import_model", "methods": "list_methods"}
# Servers until Ctrl-C, a tour, what prepares a machine, and the shell's own business.
OF_THE_SHELL = {"cluster", "demo", "warm", "completion", "man"}
COMMANDS = sorted(set(cli.commands) - OF_THE_SHELL)

# Options by the names of parameters; "" of those that say how a command prints, or reaches a scheduler, which a client
# does in Python.
ALIKE = {
    "pairs": "params", "threads_per_worker": "threads", "no_probe": "probe", "shape": "cluster", "n_bytes": "bytes",
    "every": "all", "page": "html", "init": "params", "source": "source",
    "discard_dataset": "keep_dataset", "executor_kind": "executor",
    **dict.fromkeys(("as_json", "quiet", "debug", "live", "port", "scheduler", "tls_ca", "tls_cert", "tls_key"), ""),
}  # fmt: skip
# Of one command: the page of a fit is that of `report`, `evaluate --all` is about text, a plan is made in this process.
PRINTED = {("fit", "page"), ("evaluate", "every"), ("plan", "executor_kind")}
# What only a program can give: objects, and functions that are called back.
OF_PROGRAMS = {
    "executor", "client", "memory", "callbacks", "notify", "progress", "y", "sample_weight", "read", "name", "beside",
}  # fmt: skip
# Arguments of commands, which are positional in Python too.
PLACES = {
    "sources", "dataset", "run", "model", "data", "out", "method", "names", "paths", "runs", "path", "kind", "file",
}  # fmt: skip


def _function(command):
    return inspect.signature(getattr(distls, RENAMED.get(command, command)))


@pytest.mark.fast_cases("append", "compare", "fit", "ingest", "predict", "train")
@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_a_command_are_arguments_of_its_function(command):
    taken = _function(command).parameters
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    names = {
        ALIKE.get(option.name or "", option.name)
        for option in cli.commands[command].params
        if option.param_type_name == "option" and (command, option.name) not in PRINTED
    } - {""}
    own = set(inspect.signature(distls.ingest).parameters) if command == "train" else set()
    of_sources = {*own, *option_infos(), "labelled", "format", "on_error", "unknown_features"} if open_ended else set()
    assert names - set(taken) - of_sources == set()


@pytest.mark.fast_cases("append", "compare", "fit", "ingest", "predict", "train")
@pytest.mark.parametrize("command", COMMANDS)
def test_arguments_of_a_function_are_options_of_its_command(command):
    options = {ALIKE.get(each.name or "", each.name) for each in cli.commands[command].params}
    named = {n for n, p in _function(command).parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD}
    assert named - options - OF_PROGRAMS - PLACES == set()
