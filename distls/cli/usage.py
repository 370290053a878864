"""What is typed wrongly on the command line, or set wrongly around it: a line that says what is meant."""

import traceback

import click

_LAST = "the last argument"
# What is said here for what other programs call so, beside the hints about parameters.
_SAID = {
    "--label-column": "class-column target-column y", "--passes": "epoch epochs iter iterations",
    "--separator": "delimiter sep", "--target continuous": "regression",
    "--test FILE": "test-size validation-split", "--workers or --threads-per-worker": "j jobs",
    "-p eta0=X, of methods with steps to choose": "learning-rate lr step-size",
    "-p alpha=path and -p folds=N": "cv", _LAST: "o out output output-dir", "--help": "help",
}  # fmt: skip
_COMMANDS = {"eval": "evaluate", "score": "evaluate", "test": "evaluate", "help": "--help"}
_MEANT = {word: here for here, words in _SAID.items() for word in words.split()}


def meant(error: click.UsageError) -> click.UsageError:
    """Return the error with what is wrong and what to type instead in one line."""
    said, context = " ".join(error.format_message().split()), error.ctx
    known = [] if context is None else context.command.get_params(context)
    if isinstance(error, click.NoSuchOption):
        remedy = _option_for(error.option_name, known)
        said = f"No such option '{error.option_name}'; {remedy}" if remedy else said
    elif said.startswith("No such command") and (word := said.split("'")[1]) in _COMMANDS:
        said = f"No such command '{word}'; it is distls {_COMMANDS[word]}"
    elif isinstance(error, click.BadParameter) and error.param in known:
        if isinstance(error, click.MissingParameter) and error.param.nargs < 0:
            # the last words go to the arguments behind it, so that another one may be what is missing
            said = f"Missing argument; there must be {' '.join(_places(known))}"
        elif error.param.name == "target":
            said += " --label-column names the column of labels."
    return click.UsageError(said, context)


def _option_for(word: str, known: list[click.Parameter]) -> str:
    """Return what is meant by an option that a command does not have, empty if nobody knows."""
    from distls.methods.method import HINTS
    from distls.methods.method_registry import METHODS

    name, options = word.lstrip("-"), {spelling for each in known for spelling in each.opts}
    if f"--{name}-column" in options:
        return f"it is --{name}-column"
    own = name.replace("-", "_")
    if "-p" in options and any(own == each.name for method in METHODS.values() for each in method.parameters):
        return f"it is -p {own}=VALUE"
    if "-p" in options and own in HINTS:
        return HINTS[own]
    here, places = _MEANT.get(name, ""), _places(known)
    if here == _LAST:
        return f"it is {here}, {places[-1]}" if len(places) > 1 and not places[-1].endswith("...") else ""
    return f"it is {here}" if here.partition(" ")[0] in {*options, "--help"} else ""


def _places(known: list[click.Parameter]) -> list[str]:
    return " ".join(each.human_readable_name for each in known if isinstance(each, click.Argument)).split()


def misled(error: BaseException) -> str | None:
    """Return the library that an error comes from while it reads the user's settings, most of it in its import."""
    frames = [
        (str(frame.f_globals.get("__name__")), frame.f_code.co_name)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    module, function = frames[-1]
    library = module.partition(".")[0]
    imported = any(name.startswith(library) and code == "<module>" for name, code in frames)
    readers = ("parse_timedelta", "parse_bytes", "set_tcp_timeout")
    reads = imported or module == "dask.config" or function in readers
    return library if reads and library in ("numba", "dask", "distributed") else None
