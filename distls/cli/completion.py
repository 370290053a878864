"""`distls completion`: the script by which a shell completes commands, options, methods and parameters."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from distls.cli.support import cli


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
def completion(shell: str) -> None:
    """Print what makes SHELL (bash, zsh or fish) complete commands, options, methods and parameters.

    For bash: echo 'eval "$(distls completion bash)"' >> ~/.bashrc
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "distls", "_DISTLS_COMPLETE").source())
