"""`distls warm`: kernels are compiled before anybody waits for them."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import click

from distls.cli.method_names import METHOD
from distls.cli.output import OK, say, silent
from distls.cli.support import cli, common_options
from distls.storage.filesystem.memory_folder import temporary_folder


@cli.command(short_help="Compile the kernels that first commands need, ahead of them.")
@click.argument("methods", nargs=-1, type=METHOD, metavar="[METHOD...]")
@common_options
def warm(methods: tuple[str, ...], quiet: bool, debug: bool) -> None:
    """Compile what train, evaluate and predict need for tables and svmlight text, and what fit needs for each METHOD.

    They are run on a few rows of two and of three classes in a temporary folder, for the processor of this machine.
    Other losses, penalties and formats are compiled when they are first used.
    """
    from distls.methods.method_registry import method_named

    for method in methods:
        method_named(method)  # refused before anything is compiled
    with temporary_folder("distls-warm-", None) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models of no use
        for classes in (2, 3):
            for source in _sources(folder, classes):
                _use(source, methods)
    if not quiet:
        say("the kernels of first commands are compiled", OK)


def _sources(folder: Path, classes: int) -> list[Path]:
    """Write a table of numbers, one with a category too, and sparse rows; return their files."""
    # quotes, as few rows without them are read without the parser's kernel
    rows = [(1 + i % 7, 1 + i % 5, i % classes) for i in range(60)]
    texts = {
        "numbers.csv": "a,b,label\n" + "".join(f'{a},{b},"{"xyz"[y]}"\n' for a, b, y in rows),
        "mixed.csv": "a,c,label\n" + "".join(f"{a},{'uvwst'[b - 1]},{'xyz'[y]}\n" for a, b, y in rows),
        "sparse.svm": "".join(f"{y} 1:{a} {1 + b}:{b}\n" for a, b, y in rows),
    }
    files = [folder / f"{classes}-{name}" for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    return files


def _use(source: Path, methods: Sequence[str]) -> None:
    from distls.prediction.predict import predict
    from distls.training.fitting import fit
    from distls.training.from_files import train

    model, data = source.with_suffix(""), source.with_suffix(".data")
    train(source, model, test=source, dataset=data, columns=bool(methods), notify=silent)
    predict(model, source, source.with_suffix(".predictions.csv"), labelled=True, notify=silent)
    for method in methods:
        fit(method, data, source.with_suffix(f".{method}"), passes=2)
