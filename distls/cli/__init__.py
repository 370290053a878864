"""The command line. Results go to stdout, progress and errors to stderr; docs/cli.md lists the exit codes.

Imports of the machinery stand inside the commands: this package loads with every ``dask`` command.
"""

import sys
from typing import NoReturn

# importing a module of commands adds them to the group
from distls.cli import cluster, completion, data, reporting, scoring, train, training, warm  # noqa: F401
from distls.cli.interrupts import INTERRUPTED, leave, refuse_interrupts
from distls.cli.support import cli
from distls.clock import begin_with_process


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    begin_with_process()
    try:
        cli(prog_name="distls")
    except SystemExit as end:
        refuse_interrupts()
        if end.code == INTERRUPTED:
            sys.stdout.flush()
            # the interpreter would wait for threads, which may be doing anything
            leave(INTERRUPTED)
        raise
    finally:
        refuse_interrupts()
    raise AssertionError("unreachable: click exits")
