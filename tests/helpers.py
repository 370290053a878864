"""Small datasets and clusters that several test modules share."""

import contextlib
import csv
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from hypothesis import settings

from distls.cli import cli
from distls.storage.dataset.dataset import Dataset, publish
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import write_partition
from distls.storage.rows import CsrRows, DenseRows, Partition, index_dtype

# After this much time a command hangs, however slow and busy the machine.
SECONDS = 240


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until `condition()`, failing when the process that is to bring it about ends first."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process is None or process.poll() is None, f"ended early: {process.communicate()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def free_port() -> int:
    """Return the number of a port of loopback that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def examples(number: int) -> settings:
    """Try a property on so many examples in the slow lane, on a tenth of them in the fast one."""
    return settings(max_examples=max(3, number * settings.default.max_examples // 100))


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def distls(*arguments: object) -> Ended:
    """Run a command in this process."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def printed(*arguments: object) -> str:
    """Run a command that succeeds; return what it prints."""
    ended = distls(*arguments)
    assert ended.code == 0, ended
    return ended.out


def raised(error: type[Exception], call: Callable[..., Any], /, *given: Any, **options: Any) -> str:
    """Return the message, which has one line, of the error of this type that a call raises."""
    with pytest.raises(error) as caught:
        call(*given, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refuses(error: type[Exception], keyword: str, call: Callable[..., Any], /, *given: Any, **options: Any) -> None:
    """Hold a call to raise an error of this type, in whose message the pattern is found."""
    with pytest.raises(error, match=keyword):
        call(*given, **options)


class Exploit:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self._marker), "w")


def labelled_rows(n_rows: int, n_features: int, n_classes: int, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return sparse unit rows that a linear model can tell apart, and their class codes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows).astype(np.int32)
    x = sp.random(
        n_rows, n_features, density=min(1.0, 12 / n_features), format="lil", random_state=rng, dtype=np.float32,
    )  # fmt: skip
    own = (y * (n_features // n_classes) + rng.integers(0, max(n_features // n_classes // 2, 1), n_rows)) % n_features
    x[np.arange(n_rows), own] = 1.0
    x = x.tocsr()
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    x = sp.diags(1 / np.maximum(norms, 1e-12)) @ x
    x = sp.csr_matrix(x.astype(np.float32))
    x.sort_indices()
    return x, y


def rows_with_mistakes(k: int, seed: int = 0, n: int = 60, d: int = 6) -> tuple[Any, Any, Any]:
    """Return small numbers with zeros, the class of the largest of the first k with some mistakes, and weights."""
    rng = np.random.default_rng([seed, k])
    x = np.round(rng.standard_normal((n, d)), 2) * (rng.random((n, d)) < 0.7)
    y = np.abs(x[:, :k]).argmax(axis=1)
    y[rng.random(n) < 0.1] = 0
    y[:k] = np.arange(k)
    return x, y.astype(np.int32), rng.random(n).astype(np.float32) + 0.2


def read_csv(path: Path) -> list[list[str]]:
    """Return the records of a file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def write_dataset(
    path: Path, x: Any, y: np.ndarray | None, *, partition_rows: int = 100, n_classes: int | None = None,
    sample_weight: np.ndarray | None = None, classes: list[Any] | None = None, shard_size: int = 0,
) -> Dataset:  # fmt: skip
    """Write rows in the given order as a dataset of partitions of `partition_rows`, asked to with column shards."""
    n_rows, n_features = x.shape
    k = 0 if y is None else (n_classes or int(y.max()) + 1)
    records = []
    for index, start in enumerate(range(0, max(n_rows, 1), partition_rows)):
        rows = slice(start, min(start + partition_rows, n_rows))
        part = Partition(
            as_rows(x[rows]),
            None if y is None else np.ascontiguousarray(y[rows], dtype=np.int32),
            None if sample_weight is None else np.ascontiguousarray(sample_weight[rows], dtype=np.float32),
        )
        records.append(write_partition(path, index, part, n_features, k, {}))
    meta = DatasetMeta(
        n_rows=n_rows, n_features=n_features, nnz=0, layout="csr" if sp.issparse(x) else "dense",
        dtype="float32" if x.dtype == np.float32 else "float64", target="none" if y is None else "class",
        classes=classes or list(range(k)), weighted=sample_weight is not None,
    )  # fmt: skip
    made = publish(path, meta, records, {})
    if not shard_size:
        return made
    from distls.columns.sharding import add_columns  # with it numba, which most tests need not load

    return add_columns(path, shard_size=shard_size, executor="serial")


def stored_rows(*shape: int, seed: int = 0, arrays: bool = False, **options: Any) -> Any:
    """Return a module's fixture: a data set of `labelled_rows`, or it, its dense rows and their classes as arrays."""

    @pytest.fixture(scope="module")
    def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
        x, y = labelled_rows(*shape, seed=seed)
        dataset = write_dataset(tmp_path_factory.mktemp("stored") / "train", x, y, **options)
        return (dataset, x.toarray().astype(float), y) if arrays else dataset

    return stored


def as_rows(x: Any, layout: str = "", dtype: Any = None, index: Any = None) -> CsrRows | DenseRows:
    """Return an array or a sparse matrix as workers read rows, by default in its own layout; rows may be empty."""
    dtype = dtype or x.dtype
    if layout == "dense" or not (layout or sp.issparse(x)):
        return DenseRows(np.ascontiguousarray(x, dtype))
    rows = sp.csr_matrix(x)
    indices = rows.indices.astype(index or index_dtype(x.shape[1]))
    return CsrRows(rows.indptr.astype(np.int64), indices, rows.data.astype(dtype))


def workers_of(driver: int) -> list[psutil.Process]:
    """Return the worker processes of a local cluster, those forked by the process that the driver has started."""
    try:
        family = psutil.Process(driver).children(recursive=True)
    except psutil.Error:
        return []
    parents = {process.pid: _parent(process) for process in family}
    forking = {process.pid for process in family if parents[process.pid] == driver and _forks(process)}
    return [process for process in family if parents[process.pid] in forking]


def _parent(process: psutil.Process) -> int:
    """Return the parent's number, 0 when the process has just ended."""
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return 0


def _forks(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "forkserver" in " ".join(process.cmdline())
    return False
