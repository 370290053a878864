"""The program ``distls``, and ``python -m distls``: the command line, where it can be loaded."""

import gc
import sys
from typing import NoReturn

from distls.storage.errors import WorkerError
from distls.storage.machine import check_addresses

_OBJECTS_OF_START = 400_000


def _search_later() -> None:
    """Search for garbage as always once there are more objects than a start makes."""
    # they stay: a fifth of a start were searches among them
    usual = gc.get_threshold()

    def restore(phase: str, facts: object) -> None:
        gc.callbacks.remove(restore)
        gc.set_threshold(*usual)

    gc.callbacks.append(restore)
    gc.set_threshold(_OBJECTS_OF_START)


def main() -> NoReturn:
    """Run the command line and exit with its code; below the least limit on addresses, with a line that says so."""
    try:
        check_addresses()
    except WorkerError as error:
        sys.exit(f"distls: {error}")
    _search_later()
    # after the check: it loads NumPy, whose BLAS may not return without addresses
    from distls.cli import main as run

    run()


if __name__ == "__main__":
    main()
