"""Folders for the data sets that estimators make of arrays."""

import contextlib
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from scipy.sparse import issparse

from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.storage.errors import BadInputError, MismatchError, WorkerError
from distls.storage.filesystem.memory_folder import SHARED_VARIABLE, temporary_place
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import LinearModel, save_model

_ROW_BYTES = 64.0  # of labels, weights and row numbers
_REMEDY = (
    f"arrays are written to a folder for temporary files that every worker must reach: set {SHARED_VARIABLE} to a "
    "shared folder or an s3:// URL, fit a data set that distls.ingest wrote there, or give executor='serial'"
)


@contextlib.contextmanager
def folder_for_rows(X: Any, executor: Executor) -> Iterator[Place]:
    """Yield a folder for a temporary data set of arrays; raise WorkerError with the remedy if a worker has none."""
    n_bytes = math.inf if hasattr(X, "__dask_graph__") else _array_bytes(X)
    with folder_here(n_bytes, executor) as folder:
        try:
            yield folder
        except WorkerError as error:
            if str(folder) not in str(error):
                raise
            raise WorkerError(f"{error}; {_REMEDY}") from None
        except (BadInputError, MismatchError) as error:
            # rows in memory have neither a folder nor options of the command line
            said = re.sub(rf"{re.escape(str(folder))}/data(: partition \d+)?", "X", str(error))
            raise type(error)(said.partition(": ingest with ")[0]) from None


@contextlib.contextmanager
def stored_model(model: LinearModel, executor: Executor) -> Iterator[Place]:
    """Yield a folder with a model to start from, which the refusal of the model does not name."""
    with folder_here(2.0 * model.weights.nbytes, executor) as folder:
        save_model(folder / "init", model)
        try:
            yield folder / "init"
        except MismatchError as error:
            said = str(error).replace(f"init={folder / 'init'}", "warm_start").partition(";")[0]
            raise MismatchError(
                f"{said}, and these rows have others, or other classes: fit with warm_start=False"
            ) from None


def folder_here(n_bytes: float, executor: Executor) -> AbstractContextManager[Place]:
    """Return a temporary folder for this many bytes, in memory if they are few and the fit runs in this process."""
    return temporary_place("distls-fit-", n_bytes, shared=not isinstance(executor, SerialExecutor))


def _array_bytes(X: Any) -> float:
    """Return about the bytes of rows as a data set holds them."""
    own = X.data.nbytes + X.indices.nbytes if issparse(X) else getattr(X, "nbytes", math.inf)
    return float(own) + _ROW_BYTES * X.shape[0]
