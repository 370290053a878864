"""`distls completion` and `distls man`: what the shell completes, and the manual page, both made from the parser."""

from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from distls import __version__
from distls.cli.output import show
from distls.cli.support import cli


@cli.command(short_help="Print the shell completion script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion(shell: str) -> None:
    """Print a script that makes SHELL (bash, zsh or fish) complete commands, options, methods and parameters.

    For bash: echo 'eval "$(distls completion bash)"' >> ~/.bashrc
    """
    kind = get_completion_class(shell)
    assert kind is not None
    show(kind(cli, {}, "distls", "_DISTLS_COMPLETE").source().split("\n"))


@cli.command(short_help="Print the manual page of distls and all its commands.")
def man() -> None:
    """Print the manual page of distls and all its commands, for `man`.

    distls man > ~/.local/share/man/man1/distls.1
    """
    show(manual_lines())


def manual_lines() -> Iterator[str]:
    """Yield the lines of the manual page, in the macros of man(7)."""
    root = click.Context(cli, info_name="distls")
    yield f'.TH DISTLS 1 "" "distls {__version__}" "User Commands"'
    yield from (".SH NAME", "distls \\- out-of-core, distributed training of linear models")
    yield from (".SH SYNOPSIS", ".B distls", ".I COMMAND", "[OPTION]... ARGUMENT...")
    yield from (".SH DESCRIPTION", *_paragraphs(cli.help))
    yield ".SH COMMANDS"
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        yield from _command_lines(command, click.Context(command, info_name=name, parent=root))


def _command_lines(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS distls {_escaped(f'{command.name} {usage}')}"
    yield from _paragraphs(command.help)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", f"\\fB{_escaped(record[0])}\\fR", _escaped(record[1]) or "\\&")


def _paragraphs(text: str | None) -> Iterator[str]:
    for paragraph in (text or "").replace("\b", "").split("\n\n"):
        yield from (".PP", _escaped(" ".join(paragraph.split())))


def _escaped(text: str) -> str:
    """Return text that roff prints as it is: no line of it is a request."""
    plain = " ".join(text.replace("\\", "\\e").replace("-", "\\-").split())
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
