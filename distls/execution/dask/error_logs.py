"""Which messages of Dask and its event loop reach the user."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from distributed import Client
from distributed.client import AllExit

from distls.execution.dask.connection import CUT


def watch_loop(client: Client, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]) -> None:
    """Set the handler of unhandled errors in the event loop of a client, and of a local cluster."""
    # The client's loop is that of a local cluster as well.
    client.loop.asyncio_loop.set_exception_handler(handler)


def report_defects(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report errors outside of any call, except connections cut by an interrupt or `close`, and what that ends."""
    # AllExit: of the parts of a `gather` that was given up
    if not isinstance(context.get("exception"), (*CUT, AllExit)):
        loop.default_exception_handler(context)


def ignore_defects(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """Keep silent."""


def set_log_level(level: int) -> None:
    """Let Dask's own messages of `level` and above through, and those of the event loop that it runs on."""
    # Dask's configuration gives some loggers a level of their own
    for name in ("distributed", "distributed.client", "distributed.gc", "tornado.application"):
        logging.getLogger(name).setLevel(level)
