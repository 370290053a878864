"""Small datasets, written through the storage layer alone, that several test modules share."""

import gc
import inspect
import itertools
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, settings

from distls import facts
from distls.storage.dataset.dataset import Dataset, publish
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import write_partition
from distls.storage.rows import CsrRows, DenseRows, Partition, index_dtype

# A loaded machine must not fail a test: no clocks. The same examples in each run, so that what fails, fails again;
# `--hypothesis-profile=explore` draws others.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, **UNTIMED)
settings.register_profile("tenth", settings.get_profile("repeatable"), max_examples=10)
settings.register_profile("explore", **UNTIMED)
settings.load_profile("repeatable")

# Messages are compared in the words in which they are written; `test_message_options` has those of Python.
facts.as_keywords = False
# Tests read what commands print, whether or not kernels happen to be compiled.
os.environ["DISTLS_COMPILING_NOTICE"] = "0"
# No test pulls the plug, so none waits for the disk: half of the time of those in tests/storage.
os.fsync = lambda descriptor: None
_STARTED = time.monotonic()
collect_ignore = ["outside"]  # a package of its own: test_packaging
# marks of some cases of a test -> whether those are the slow ones
CASES = {"slow_cases": True, "fast_cases": False}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs the slow lane too."""
    parser.addoption("--run-slow", action="store_true", help="run the slow lane too")
    parser.addoption("--slow-seconds", type=float, help="begin no test of the slow lane later than this")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Try properties on a tenth of their examples in the fast lane, before an option chooses another profile."""
    if _is_fast(config):
        settings.load_profile("tenth")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of the slow lane when its time is over."""
    seconds = item.config.getoption("--slow-seconds")
    if seconds is not None and item.get_closest_marker("slow") and time.monotonic() - _STARTED > seconds:
        pytest.skip("no time left; `pytest --run-slow` without --slow-seconds runs it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow lane out of a run of all tests; `-m slow --run-slow` is that lane alone."""
    for item in items:
        # the examples that the fast lane leaves out are the slow lane's
        property_ = not _is_fast(config) and getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if property_ or any(map(partial(_is_slow, item), item.iter_markers())):
            item.add_marker(pytest.mark.slow)
    if not _is_whole(config):
        return
    _refuse_patterns_of_no_case(items)
    if _is_fast(config):
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)


def _is_whole(config: pytest.Config) -> bool:
    """Tell whether all tests were asked for, and not some by name."""
    return {Path(argument).resolve() for argument in config.args} <= {config.rootpath, config.rootpath / "tests"}


def _is_fast(config: pytest.Config) -> bool:
    """Tell whether this is a run of all tests but the slow ones."""
    return _is_whole(config) and not config.getoption("--run-slow")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, obj: object) -> list[Any] | None:
    """Make no cases of slow tests for the fast lane: there are thousands, in each of the processes."""
    if not (inspect.isfunction(obj) or inspect.isclass(obj)) or not _is_fast(collector.config):
        return None
    slow = any(mark.name == "slow" for mark in getattr(obj, "pytestmark", []))
    return [] if slow else None


def pytest_collection_finish() -> None:
    """Keep what has been imported and collected out of the searches of the garbage collector, which never frees it."""
    gc.freeze()


def _is_slow(item: pytest.Item, mark: pytest.Mark) -> bool:
    """Tell whether a mark of a test puts this case into the slow lane."""
    if mark.name not in CASES or not (case := _case(item)):
        return False
    return any(re.match(pattern, case) for pattern in mark.args) == CASES[mark.name]


def _case(item: pytest.Item) -> str:
    """Return the id of the parameters, as between the brackets of the test's name."""
    return item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""


def _refuse_patterns_of_no_case(items: list[pytest.Item]) -> None:
    """What a mark was for may have another name now."""
    marked = [(item.path.name, mark, item) for item in items for mark in item.iter_markers() if mark.name in CASES]
    cases = defaultdict(list)
    for file, mark, item in marked:
        for pattern in mark.args:
            cases[file, pattern].append(bool(re.match(pattern, _case(item))))
    stale = [name for name, matches in cases.items() if not any(matches)]
    if stale:
        raise pytest.UsageError(f"slow_cases and fast_cases that match no case: {stale}")


class Written(NamedTuple):
    """A dataset and the rows that went into it."""

    dataset: Dataset
    partitions: list[Partition]

    @property
    def path(self) -> Path:
        return self.dataset.path

    @property
    def matrix(self) -> Any:
        """All rows as one matrix of SciPy, or array."""
        blocks, width = [part.x for part in self.partitions], self.dataset.meta.n_features
        if self.dataset.meta.layout == "dense":
            return np.concatenate([block.values for block in blocks])
        shapes = [(len(block.indptr) - 1, width) for block in blocks]
        rows = zip(blocks, shapes, strict=True)
        return sp.vstack([sp.csr_matrix((b.data, b.indices, b.indptr), shape) for b, shape in rows], format="csr")


def _csr(rng: np.random.Generator, n_rows: int, n_features: int, dtype: str) -> CsrRows:
    counts = rng.integers(0, min(n_features, 6) + 1, n_rows)
    columns = [np.sort(rng.choice(n_features, count, replace=False)) for count in counts]
    indices = np.concatenate([*columns, np.empty(0, int)]).astype(index_dtype(n_features))
    data = rng.integers(1, 9, len(indices)).astype(dtype) / 4
    return CsrRows(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), indices, data)


def _targets(rng: np.random.Generator, target: str, n_rows: int) -> Any:
    if target == "class":
        return rng.integers(0, 3, n_rows).astype(np.int32)
    if target == "continuous":
        return rng.standard_normal((n_rows, 2))
    if target == "multilabel":
        codes = _csr(rng, n_rows, 3, "float32")
        return CsrRows(codes.indptr, codes.indices.astype(np.uint32), np.ones(len(codes.data), np.float32))
    return None


def _partition(
    rng: np.random.Generator, layout: str, n_rows: int, n_features: int, dtype: str, target: str, weighted: bool,
) -> Partition:  # fmt: skip
    dense = layout == "dense"
    x = DenseRows(rng.standard_normal((n_rows, n_features)).astype(dtype)) if dense else None
    x = x or _csr(rng, n_rows, n_features, dtype)
    weight = (rng.integers(0, 9, n_rows) / 4).astype(np.float32) if weighted else None
    return Partition(x, _targets(rng, target, n_rows), weight)


def _write(
    root: Path, layout: str, *, rows: tuple[int, ...] = (5, 7, 4), n_features: int = 37, dtype: str = "float32",
    target: str = "class", weighted: bool = False, codec: str = "none", features: dict[str, Any] | None = None,
    seed: int = 0,
) -> Written:  # fmt: skip
    rng = np.random.default_rng(seed)
    partitions = [_partition(rng, layout, n, n_features, dtype, target, weighted) for n in rows]
    classes: list[Any] = ["a", "é", "z"] if target in ("class", "multilabel") else []
    codecs = {"X" if layout == "dense" else "data": codec}
    records = [write_partition(root, i, p, n_features, len(classes), codecs) for i, p in enumerate(partitions)]
    meta = DatasetMeta(
        n_rows=0, n_features=n_features, nnz=0, layout="dense" if layout == "dense" else "csr", dtype=dtype,
        target=target, classes=classes, n_targets=2 if target == "continuous" else 0, weighted=weighted,
        shuffle_seed=seed, source={"format": "made", "files": ["größe.svm"]}, codecs=codecs,
    )  # fmt: skip
    return Written(publish(root, meta, records, features or {}), partitions)


def _factory(folders: pytest.TempPathFactory, layout: str) -> Callable[..., Written]:
    root, numbers = folders.mktemp(f"small-{layout}"), itertools.count()

    def make(path: Path | None = None, **options: Any) -> Written:
        return _write(path or root / f"{next(numbers)}", layout, **options)

    return make


@pytest.fixture(scope="session")
def small_csr(tmp_path_factory):
    """Return a function that writes a small sparse dataset; for its options see `_write`."""
    return _factory(tmp_path_factory, "csr")


@pytest.fixture(scope="session")
def small_dense(tmp_path_factory):
    """Return a function that writes a small dense dataset; for its options see `_write`."""
    return _factory(tmp_path_factory, "dense")
