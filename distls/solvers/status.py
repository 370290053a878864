"""How a fit stands, and the records that say so: apart from solvers, so that reading a run loads no kernels."""

from enum import StrEnum
from typing import Any

Record = dict[str, Any]  # JSON values by name, as files of a run hold them


class Status(StrEnum):
    """How a fit stands or ended. Only DIVERGED is a failure."""

    RUNNING = "RUNNING"
    CONVERGED = "CONVERGED"
    MAX_PASSES = "MAX_PASSES"
    MAX_SECONDS = "MAX_SECONDS"
    EARLY_STOPPED = "EARLY_STOPPED"
    DIVERGED = "DIVERGED"
    INTERRUPTED = "INTERRUPTED"
