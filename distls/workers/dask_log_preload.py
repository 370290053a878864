"""Preloaded into the workers of a local cluster, whose stderr is the user's."""

import logging


def dask_setup(_worker: object) -> None:
    """Keep connections that end with the cluster to ourselves: what matters of a worker reaches the driver."""
    for name in ("asyncio", "distributed", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
