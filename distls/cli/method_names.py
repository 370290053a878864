"""Methods on the command line: their names in the help, and completed by a shell."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from distls.cli.support import PLACE
from distls.storage.filesystem.paths import Place


class _MethodName(click.ParamType[str]):
    """The name of a method, which is checked with its parameters."""

    name = "method"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the methods that begin so."""
        from distls.methods.method_registry import METHODS

        found = (method for method in METHODS.values() if method.name.startswith(incomplete))
        return [CompletionItem(method.name, help=method.summary) for method in found]


METHOD = _MethodName()


def method_or_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the completions of ``[METHOD] DATASET RUN``: of the first word both, then paths."""
    methods = [] if ctx.params.get("names") else METHOD.shell_complete(ctx, param, incomplete)
    return methods or [CompletionItem(incomplete, type="file")]


class MethodCommand(click.Command):
    """A command whose help lists the methods, which are loaded when it is shown."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the methods, and where their parameters are."""
        from distls.methods.method_registry import METHODS

        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Methods: {', '.join(METHODS)}.")
            formatter.write_text(
                "`distls methods` says what each is for, `distls methods METHOD` lists its parameters."
            )


def parameter_option(help: str) -> Any:
    """Return the option ``-p NAME=VALUE``, whose names a shell completes."""
    return click.option("-p", "pairs", multiple=True, metavar="NAME=VALUE", help=help, shell_complete=_parameter_names)


START = click.option(
    "--from",
    "init",
    type=PLACE,
    metavar="MODEL",
    help="Start from the weights of this model, as -p init=MODEL; classes that it does not have begin at zero.",
)


def started_from(init: Place | None, named: bool) -> dict[str, Any]:
    """Return the parameter that the model of --from is, if one is given; refuse it where a parameter is `named` too."""
    if init is not None and named:
        raise click.UsageError("--from and -p init= name a model to start from: give one of them")
    return {} if init is None else {"init": str(init)}


def _parameter_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from distls.methods.method_registry import METHODS

    # what stands before an option without a value is not parsed
    words = [ctx.params.get("method"), *(ctx.params.get("names") or ()), *ctx.args]
    method = next((METHODS[word] for word in words if word in METHODS), None)
    if method is None or "=" in incomplete:
        return []
    found = (each for each in method.parameters if each.name.startswith(incomplete))
    return [CompletionItem(f"{each.name}=", help=each.description) for each in found]
