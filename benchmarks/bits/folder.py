"""A folder of recorded cases: its data sets, runs and entries."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cases import BASES
from sources import arrays, lazy_arrays

Entry = dict[str, Any] | str

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite", "zarr", "numcodecs", "dask", "distributed")
# Sources whose bytes are a function of what is in them; the others hold times, or versions of libraries.
PLAIN = (".svm", ".vw", ".csv", ".tsv", ".txt", ".jsonl", ".npy", ".idx", ".gz", ".bz2")
# Fields of `distls info RUN --json` and of a line of events.jsonl that do not depend on clocks, caches or places.
OF_RUN = ("status", "passes", "objective", "certificate", "eval_error", "select_error", "weights_sha256")
OF_ROUND = (
    "round", "passes", "n_rows", "running_loss", "running_error", "averaging", "details", "notes", "preliminary",
    "objective", "certificate", "eval_error", "eval_log_loss", "best",
)  # fmt: skip
OF_EVALUATION = ("n_rows", "error", "log_loss", "hamming_loss", "micro_f1", "macro_f1", "mse", "r2")
OF_PLAN = (
    "worker_bytes", "worker_parts", "driver_bytes", "bytes_per_pass", "passes", "rounds_per_pass", "lanes",
    "network_bytes_per_round", "shared_bytes", "result_bytes", "reductions",
)  # fmt: skip
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Ends a fit in one of its rounds, as Ctrl-C does, or as if its process were killed.

    Parameters
    ----------
    rounds : int
    error : type of exception
    """

    def __init__(self, rounds: int, error: type[BaseException]) -> None:
        self._left, self._error = rounds, error

    def on_start(self, start: Any) -> None:
        """Ignore the start."""

    def on_round(self, event: Any) -> None:
        """Count down."""
        self._left -= 1
        if self._left == 0:
            raise self._error

    def on_end(self, status: Any, state: Any) -> None:
        """Ignore the end."""


class Killed(Exception):
    """A fit that ends without a word of it in its run."""


# name of an entry -> how its fit is ended
ENDS: dict[str, type[BaseException]] = {"interrupted": KeyboardInterrupt, "killed": Killed}


class Book:
    """A folder of inputs and results, and the entries of its cases.

    Parameters
    ----------
    folder : Path
        Where sources, data sets and runs are looked up, and made where `out` is not given.
    out : Path, optional
        Where to make new ones.
    entries : dict, optional
        What is known already.
    """

    def __init__(
        self,
        cases: Mapping[str, Callable[[Book], Entry]],
        folder: Path,
        out: Path | None = None,
        entries: dict[str, Entry] | None = None,
    ) -> None:
        self.cases = cases
        self.folder = folder.resolve()
        self.out = self.folder if out is None else out.resolve()
        self.entries: dict[str, Entry] = {} if entries is None else entries
        for name in ("sources", "data", "runs", "processes", "attempts", *ENDS):
            (self.out / name).mkdir(parents=True, exist_ok=True)

    def entry(self, name: str) -> Entry:
        """Return the entry of a case, which is run unless it is known."""
        if name not in self.entries:
            began = time.perf_counter()
            try:
                found: Entry = self.cases[name](self)
            except Exception as error:
                if os.environ.get("BITS_DEBUG"):
                    traceback.print_exc()
                found = self.plain(f"{type(error).__name__}: {error}")
            self.entries[name] = found
            print(f"{time.perf_counter() - began:7.1f} s  {name}", file=sys.stderr, flush=True)
        return self.entries[name]

    def plain(self, text: str) -> str:
        """Return a text without the places of folders."""
        for place in (self.out, self.folder):
            text = text.replace(str(place), "FOLDER")
        return text

    def path(self, kind: str, name: str) -> Path:
        """Return where something is, or where it is to be made: anew in `out`."""
        there = self.folder / kind / name
        return there if there.exists() else self.out / kind / name

    def needed(self, kind: str, name: str) -> Path:
        """Return the path of a data set or run, which is made unless it is there."""
        case = f"ingest/{name.removesuffix('-test')}" if kind == "data" else f"fit/{name}"
        path = self.path(kind, name)
        if not path.exists() and isinstance(found := self.entry(case), str):
            raise RuntimeError(f"{case} failed: {found}")
        return self.path(kind, name)

    def resolved(self, value: Any) -> Any:
        """Return a value with what its "@..." stand for."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.resolved, value))
        if not isinstance(value, str) or not value.startswith("@"):
            return value
        kind, _, name = value[1:].partition("/")
        if kind == "array":
            return (arrays() | lazy_arrays())[name] if name.startswith("lazy") else arrays()[name]
        if kind == "source":
            return self.path("sources", name)
        return self.needed({"data": "data", "run": "runs"}[kind], name)

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with what their "@..." stand for."""
        return {name: self.resolved(value) for name, value in given.items()}

    def held_out(self, dataset: str) -> Path:
        """Return the data that models of a data set are scored on: its test set, or itself."""
        return self.needed("data", f"{dataset}-test" if dataset in BASES else dataset)

    @contextlib.contextmanager
    def copied(self, path: Path) -> Iterator[Path]:
        """Yield a copy of a folder that may be written to."""
        with tempfile.TemporaryDirectory(prefix="bits-", dir=self.out) as scratch:
            yield Path(shutil.copytree(path, Path(scratch) / path.name))


def command(*arguments: object, code: int = 0) -> str:
    """Run ``python -m distls`` in this process, where all is loaded, and return what it prints.

    Raises
    ------
    RuntimeError
        It ends with another exit code.
    """
    out, err, before, ended = io.StringIO(), io.StringIO(), sys.argv, 0
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        sys.argv = ["distls", *map(str, arguments)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("distls", run_name="__main__")
    except SystemExit as end:
        ended = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if ended != code:
        raise RuntimeError(f"distls {arguments[0]}: exit code {ended}: {err.getvalue().strip()}")
    return out.getvalue() if code == 0 else err.getvalue()


def processes(*arguments: object) -> None:
    """Run ``python -m distls`` on a cluster of two processes.

    Raises
    ------
    RuntimeError, TimeoutExpired
        It fails, or hangs.
    """
    line = [sys.executable, "-m", "distls", *map(str, arguments), "--workers", "2", "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise RuntimeError(f"distls {arguments[0]}: exit code {done.returncode}: {done.stderr.strip()}")


def digest(*values: Any) -> str:
    """Return the SHA-256 of arrays, with their shapes and types, and of JSON values."""
    total = hashlib.sha256()
    for value in values:
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fiub":
            array = np.ascontiguousarray(value)
            total.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        else:
            listed = value.tolist() if isinstance(value, np.ndarray) else value
            total.update(json.dumps(listed, sort_keys=True).encode())
    return total.hexdigest()


def tree_digest(root: Path, without: Sequence[str] = (".lock", "lock")) -> str:
    """Return the SHA-256 of the names and bytes of the files in a folder but for some, or of one file."""
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    total = hashlib.sha256()
    for path in files:
        if path.name not in without:
            total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def exact(value: Any) -> Any:
    """Return a JSON value in which numbers that JSON has no words for are texts."""
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
