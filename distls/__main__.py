"""The program ``distls``, and ``python -m distls``: the command line, where it can be loaded."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

from distls.storage.errors import WorkerError
from distls.storage.machine import check_addresses


def main() -> NoReturn:
    """Run the command line and exit with its code; below the least limit on addresses, with a line that says so."""
    try:
        check_addresses()
    except WorkerError as error:
        sys.exit(f"distls: {error}")
    # a start makes some hundred thousand objects that stay: a seventh of it were searches for garbage among them
    gc.set_threshold(100_000)
    # after the check: it loads NumPy, whose BLAS may not return without addresses
    from distls.cli import main as run

    run()


if __name__ == "__main__":
    main()
