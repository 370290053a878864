"""A fit with random faults in a folder of its own, and what is seen of it from outside: `benchmarks.faults.chaos`."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

import distls
from distls.storage.errors import DistlsError
from distls.storage.model.model import load_model

ROWS, FEATURES, CLASSES, NON_ZEROS = 1200, 80, 4, 8
PASSES = 40
PARAMS: dict[str, dict[str, Any]] = {
    "mcid": {"alpha": 1e-2, "lanes": 3},
    "sgd": {"alpha": 1e-2, "lanes": 3},
    "asgd": {"alpha": 1e-2},
    "sgdqn": {"alpha": 1e-2},
    "ovr-pegasos": {"alpha": 1e-2},
    "olbfgs": {"alpha": 1e-2},
    "fobos": {"alpha": 1e-2},
    "gls": {"alpha": 1e-2},
    "fista": {"alpha": 1e-2, "tau": 0.0},
    "sparsa": {"alpha": 1e-2, "tau": 0.0},
    "bcd": {"alpha": 1e-2, "lanes": 3, "tau": 0.0},
    "cls": {"rounds": 20},
    "stagewise": {"block_size": 17, "stages": 12, "alpha": 1e-2},
    "svmsgd2": {"alpha": 1e-2},
    "csgd": {"lanes": 3},
    "sdca": {"alpha": 1e-2, "lanes": 3},
    "ovr-sdca": {"alpha": 1e-2},
    "newton": {"alpha": 1e-2},
    "rls": {"alpha": 1e-2},
    "ncsgd": {},
    "adaline": {"lanes": 3},
    "c-adaline": {},
    "ovr-logistic": {"alpha": 1e-2, "lanes": 2},
}
OWN_END = {"cls", "stagewise", "ovr-sdca"}
PROCESS_FAULTS, FILE_FAULTS = ("kill", "stop", "kill all workers"), ("flip", "truncate", "remove")
# The least and the most of each; what is written past a limit on files is refused, as on a full disk.
LIMITS = {
    "open files": (resource.RLIMIT_NOFILE, 8, 100),
    "addresses": (resource.RLIMIT_AS, 2**26, 2**33),
    "size of files": (resource.RLIMIT_FSIZE, 2**7, 2**20),
}
_LIMITED = 0.15  # part of the rounds
# Seconds in which what is left of a tree ends by itself.
_END_SECONDS = 30.0


def make_data(path: Path) -> Path:
    """Write a small sparse data set of some ten partitions, with column shards."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(ROWS), NON_ZEROS)
    columns = rng.integers(0, FEATURES, len(rows))
    values = np.abs(rng.standard_normal(len(rows))).astype(np.float32)
    x = sp.csr_matrix((values, (rows, columns)), shape=(ROWS, FEATURES))
    y = columns.reshape(ROWS, NON_ZEROS)[:, 0] % CLASSES
    distls.ingest(x, path, y=y, partition_size=x.data.nbytes // 5)
    distls.add_columns(path, shard_size=x.data.nbytes // 3)
    return path


def options(method: str) -> list[str]:
    """Return the options of a fit."""
    given = [text for name, value in PARAMS[method].items() for text in ("-p", f"{name}={value}")]
    return given if method in OWN_END else [*given, "--passes", str(PASSES)]


class Round:
    """One fit with faults, in a folder of its own.

    Attributes
    ----------
    place : Path
        Its folder.
    data, run : Path or str
        Of the fit; URLs where they are in a store.
    method : str
        What trains.
    faults : list of str
        What was done so far.
    touched_files, killed_driver : bool
        Whether the run need not be complete after `resume`; whether the command may have ended by SIGKILL.
    """

    def __init__(self, place: Path, data: Path, kernels: str | None, choose: random.Random) -> None:
        self.place, self._choose = place, choose
        self.method = choose.choice(sorted(PARAMS))
        self._workers, self._threads = choose.randint(1, 3), choose.randint(1, 2)
        self.faults: list[str] = []
        self.touched_files = self.killed_driver = False
        self._begun = choose.random() < 0.8
        self._kinds = choose.choice([PROCESS_FAULTS, PROCESS_FAULTS, FILE_FAULTS])
        self._limit = self._limit_of(choose) if choose.random() < _LIMITED else None
        self.data: Path | str = place / "data"
        self.run: Path | str = place / "run"
        place.mkdir()
        self.bring(data)
        self._temporary, self._cache = place / "tmp", place / "cache"
        self._temporary.mkdir()
        if kernels is not None:
            # its own, to be damaged: what is damaged becomes a file of its own first; other processes write and
            # remove kernels meanwhile, and what is missing is compiled
            with contextlib.suppress(shutil.Error):
                shutil.copytree(kernels, self._cache / "distls" / "kernels", copy_function=_link)
            for folder in (self._cache, self._cache / "distls", self._cache / "distls" / "kernels"):
                folder.chmod(0o700)

    def _limit_of(self, choose: random.Random) -> tuple[int, int]:
        name = choose.choice(sorted(LIMITS))
        number, least, most = LIMITS[name]
        value = int(least * (most / least) ** choose.random())
        self.faults.append(f"{value} {name}")
        return number, value

    def bring(self, data: Path) -> None:
        """Make the round's own copy of the data set."""
        shutil.copytree(data, self.data)

    def environment(self) -> dict[str, str]:
        """Return what a command has in its environment."""
        return {**os.environ, "TMPDIR": str(self._temporary), "NUMBA_CACHE_DIR": str(self._cache)}

    def prefix(self) -> list[str]:
        """Return what stands before a command."""
        return []

    def cluster(self) -> list[str]:
        """Return the options of a fit, and of its resumption, that say where it runs."""
        return []

    def start(self, *arguments: object, limit: tuple[int, int] | None = None) -> subprocess.Popen[str]:
        """Start a command as a process group of its own, under a limit of resources."""
        return subprocess.Popen(
            [*self.prefix(), sys.executable, "-m", "distls", *map(str, arguments), "--quiet"],
            preexec_fn=None if limit is None else lambda: resource.setrlimit(limit[0], (limit[1], limit[1])),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            start_new_session=True,
        )

    def fit(self) -> subprocess.Popen[str]:
        """Start the fit."""
        size = self.cluster() or ["--workers", self._workers, "--threads-per-worker", self._threads]
        return self.start(
            "fit", self.method, self.data, self.run, *options(self.method), "--checkpoint-seconds", 0, *size,
            limit=self._limit,
        )  # fmt: skip

    def resume(self) -> subprocess.Popen[str]:
        """Go on with the fit, without faults."""
        return self.start("resume", self.run, *self.cluster())

    def heal(self) -> None:
        """End the faults that last."""

    def written(self, name: str) -> bytes | None:
        """Return a file of the run, None if there is none."""
        with contextlib.suppress(OSError):
            return (Path(self.run) / name).read_bytes()
        return None

    def left_behind(self) -> list[str]:
        """Return what a finished run should not have."""
        return [path.name for path in Path(self.run).rglob("*.partial")]

    def digest(self) -> str | None:
        """Return the digest of the run's weights, as the model has them; None if it cannot be read."""
        with contextlib.suppress(DistlsError, OSError):
            return load_model(self.run).sha256
        return None

    def strike(self, process: subprocess.Popen[str]) -> None:
        """Do some faults, until the command ends."""
        # most of them in rounds, some while it starts
        while self._begun and self.written("events.jsonl") is None and lasts(process, 0.05):
            pass
        for _ in range(self._choose.randint(1, 4)):
            if not lasts(process, self._choose.uniform(0.05, 1.5)):
                return
            self.do_fault(self._choose.choice(self._kinds), process)

    def do_fault(self, kind: str, process: subprocess.Popen[str]) -> None:
        """Do one fault of a kind."""
        if kind in FILE_FAULTS:
            self._damage(kind)
        else:
            self._hit(kind, process)

    def _hit(self, kind: str, process: subprocess.Popen[str]) -> None:
        tree = tree_of(process.pid)
        if kind == "kill all workers":
            victims = [each for each in tree if each.pid != process.pid]
        else:
            victims = [self._choose.choice(tree)] if tree else []
        self.faults.append(f"{kind} {len(victims)} of {len(tree)}")
        number = signal.SIGSTOP if kind == "stop" else signal.SIGKILL
        for victim in victims:
            self.killed_driver |= victim.pid == process.pid and number == signal.SIGKILL
            with contextlib.suppress(psutil.Error):
                victim.send_signal(number)
        if kind == "stop":
            lasts(process, self._choose.uniform(0.2, 4.0))
            for victim in victims:
                with contextlib.suppress(psutil.Error):
                    victim.send_signal(signal.SIGCONT)

    def _damage(self, kind: str) -> None:
        root = self._choose.choice([Path(self.data), Path(self.run), self._cache])
        # the command removes folders meanwhile, over which `rglob` stumbles
        files = sorted(Path(folder, name) for folder, _, names in os.walk(root) for name in names)
        with contextlib.suppress(OSError):
            if files:
                path = self._choose.choice(files)
                self.faults.append(f"{kind} {path.relative_to(self.place)}")
                self.touched_files = True
                _damage(path, kind, self._choose)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def _damage(path: Path, kind: str, choose: random.Random) -> None:
    if path.stat().st_nlink > 1:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    size = path.stat().st_size
    if kind == "remove":
        path.unlink()
    elif kind == "truncate":
        os.truncate(path, choose.randrange(size + 1))
    elif size:
        with path.open("r+b") as file:
            at = choose.randrange(size)
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << choose.randrange(8)]))


def lasts(process: subprocess.Popen[str], seconds: float) -> bool:
    """Wait; return whether the command still runs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    return True


def tree_of(driver: int) -> list[psutil.Process]:
    """Return the processes of a command but for Python's resource tracker."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(driver)
        return [each for each in (root, *root.children(recursive=True)) if not _tracks(each)]
    return []


def _tracks(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "resource_tracker" in " ".join(process.cmdline())
    return True


def survivors(group: int) -> list[int]:
    """Return the processes of a group that do not end by themselves; they are killed."""
    deadline = time.monotonic() + _END_SECONDS
    while left := [each.pid for each in psutil.process_iter() if _belongs(each, group)]:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):  # they have ended by now
                os.killpg(group, signal.SIGKILL)
            return left
        time.sleep(0.1)
    return []


def _belongs(process: psutil.Process, group: int) -> bool:
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    return False
