"""Random faults of processes and files under random fits: each ends with the right bits, or in one line.

    python -m benchmarks.chaos [--seed 0] [--minutes 10] [--rounds N] [--deadline 240] [--out FILE]

Each round trains a random method on small data, with worker processes. Meanwhile processes of the command's tree
(driver, fork server, workers) are killed, or stopped and continued, or files of the data set, the run and the cache
of kernels have bytes flipped, are truncated or removed. An end is right if it comes within the deadline, nothing of
the tree survives it, no traceback is printed, and

* the exit code is 0 and the weights are those of an undisturbed fit in one process; or
* the exit code is 1 or 3, with one line on stderr; or the driver itself was killed.

What was not finished is resumed without faults: if no file was damaged, with the right weights at the end, and no
half-written file left in the run. Python's resource tracker is spared: its successor prints tracebacks of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

import distls
from distls.workers.compilation.kernel_cache import kernel_folder

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
    "bcd": {"alpha": 1e-2, "lanes": 3, "tau": 0.0, "active_sweeps": 0},
    "cls": {"rounds": 20},
    "stagewise": {"block_size": 17, "stages": 12, "alpha": 1e-2},
}
OWN_END = {"cls", "stagewise"}
PROCESS_FAULTS, FILE_FAULTS = ("kill", "stop", "kill all workers"), ("flip", "truncate", "remove")
# Seconds in which what is left of a tree ends by itself.
_END_SECONDS = 30.0
_KILLED = -signal.SIGKILL


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


def _options(method: str) -> list[str]:
    given = [text for name, value in PARAMS[method].items() for text in ("-p", f"{name}={value}")]
    return given if method in OWN_END else [*given, "--passes", str(PASSES)]


class Round:
    """One fit with faults, in a folder of its own."""

    def __init__(self, place: Path, data: Path, kernels: str | None, choose: random.Random) -> None:
        self.place, self._choose = place, choose
        self.method = choose.choice(sorted(PARAMS))
        self._workers, self._threads = choose.randint(1, 3), choose.randint(1, 2)
        self.faults: list[str] = []
        self.touched_files = self.killed_driver = False
        self._begun = choose.random() < 0.8
        self._kinds = choose.choice([PROCESS_FAULTS, PROCESS_FAULTS, FILE_FAULTS])
        self.data, self.run = place / "data", place / "run"
        shutil.copytree(data, self.data)
        self._temporary, self._cache = place / "tmp", place / "cache"
        self._temporary.mkdir()
        if kernels is not None:
            # its own, to be damaged: what is damaged becomes a file of its own first
            shutil.copytree(kernels, self._cache / "distls" / "kernels", copy_function=_link)
            for folder in (self._cache, self._cache / "distls", self._cache / "distls" / "kernels"):
                folder.chmod(0o700)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start a command as a process group of its own."""
        environment = {**os.environ, "TMPDIR": str(self._temporary), "NUMBA_CACHE_DIR": str(self._cache)}
        return subprocess.Popen(
            [sys.executable, "-m", "distls", *map(str, arguments), "--quiet"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def fit(self) -> subprocess.Popen[str]:
        """Start the fit."""
        size = ("--workers", self._workers, "--threads-per-worker", self._threads)
        return self.start(
            "fit", self.method, self.data, self.run, *_options(self.method), "--checkpoint-seconds", 0, *size
        )

    def strike(self, process: subprocess.Popen[str]) -> None:
        """Do some faults, until the command ends."""
        # most of them in rounds, some while it starts
        events = self.run / "events.jsonl"
        while self._begun and not events.exists() and _lasts(process, 0.05):
            pass
        for _ in range(self._choose.randint(1, 4)):
            if not _lasts(process, self._choose.uniform(0.05, 1.5)):
                return
            kind = self._choose.choice(self._kinds)
            if kind in FILE_FAULTS:
                self._damage(kind)
            else:
                self._hit(kind, process)

    def _hit(self, kind: str, process: subprocess.Popen[str]) -> None:
        tree = _tree(process.pid)
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
            _lasts(process, self._choose.uniform(0.2, 4.0))
            for victim in victims:
                with contextlib.suppress(psutil.Error):
                    victim.send_signal(signal.SIGCONT)

    def _damage(self, kind: str) -> None:
        root = self._choose.choice([self.data, self.run, self._cache])
        files = sorted(path for path in root.rglob("*") if path.is_file()) if root.exists() else []
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


def _lasts(process: subprocess.Popen[str], seconds: float) -> bool:
    """Wait; return whether the command still runs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    return True


def _tree(driver: int) -> list[psutil.Process]:
    """Return the processes of a command but for Python's resource tracker."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(driver)
        return [each for each in (root, *root.children(recursive=True)) if not _tracks(each)]
    return []


def _tracks(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "resource_tracker" in " ".join(process.cmdline())
    return True


def _survivors(group: int) -> list[int]:
    """Return the processes of a group that do not end by themselves; they are killed."""
    deadline = time.monotonic() + _END_SECONDS
    while left := [each.pid for each in psutil.process_iter() if _belongs(each, group)]:
        if time.monotonic() > deadline:
            os.killpg(group, signal.SIGKILL)
            return left
        time.sleep(0.1)
    return []


def _belongs(process: psutil.Process, group: int) -> bool:
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    return False


def _end(process: subprocess.Popen[str], deadline: float) -> tuple[int | None, str]:
    """Return how a command ended, None if it hangs, and what it wrote."""
    try:
        _, written = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, written = process.communicate()
        return None, written
    return process.returncode, written


def trouble_of(code: int | None, written: str, digest: str, run: Path, *, killed: bool) -> list[str]:
    """Return what is wrong with an end."""
    lines = [line for line in written.splitlines() if line]
    found = []
    if code is None:
        found.append("hangs")
    elif code == 0 and _digest_of(run) != digest:
        found.append("other weights")
    elif code in (1, 3) and len(lines) != 1:
        found.append(f"{len(lines)} lines")
    elif code not in (0, 1, 3) and not (code == _KILLED and killed):
        found.append(f"exit code {code}")
    if "Traceback" in written:
        found.append("a traceback")
    return found


def _digest_of(run: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads((run / "status.json").read_text()).get("weights_sha256"))
    return None


def run_round(made: Round, digest: str, deadline: float) -> dict[str, Any]:
    """Fit with faults, resume without; return what was done and what was wrong."""
    started = time.monotonic()
    process = made.fit()
    made.strike(process)
    code, written = _end(process, deadline)
    trouble = trouble_of(code, written, digest, made.run, killed=made.killed_driver)
    trouble += [f"{len(left)} processes survive" for left in [_survivors(process.pid)] if left]
    codes = [code]
    if code not in (0, None) and not made.touched_files and (made.run / "config.json").exists():
        process = made.start("resume", made.run)
        code, again = _end(process, deadline)
        codes.append(code)
        written += again
        trouble += [] if code == 0 else [f"resume ends with {code}"]
        trouble += trouble_of(code, again, digest, made.run, killed=False)
    if code == 0:
        trouble += [f"left behind: {path.name}" for path in made.run.rglob("*.partial")]
    return {
        "method": made.method,
        "faults": made.faults,
        "codes": codes,
        "seconds": round(time.monotonic() - started, 1),
        "trouble": trouble,
        "stderr": written[-2000:] if trouble or codes[0] else "",
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run rounds until the time is over; return what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=10**9, help="at most so many")
    parser.add_argument("--deadline", type=float, default=240.0, help="seconds of a command")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    results: list[dict[str, Any]] = []
    digests: dict[str, str] = {}
    until = time.monotonic() + 60 * given.minutes
    # the addresses of sockets are short
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        data = make_data(Path(folder) / "data")
        while len(results) < given.rounds and time.monotonic() < until:
            number = len(results)
            choose = random.Random(f"{given.seed}, {number}")
            place = Path(folder) / str(number)
            made = Round(place, data, kernel_folder(), choose)
            if made.method not in digests:
                digests[made.method] = _undisturbed(made.method, data)
            result = run_round(made, digests[made.method], given.deadline)
            results.append({"round": number, **result})
            print(_row(results[-1]), flush=True)
            shutil.rmtree(place, ignore_errors=True)
    report = {
        "seed": given.seed,
        "rounds": results,
        "trouble": sum(bool(each["trouble"]) for each in results),
    }
    print(f"{len(results)} rounds, seed {given.seed}: {report['trouble']} with trouble")
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1))
    return report


def _undisturbed(method: str, data: Path) -> str:
    limits = {} if method in OWN_END else {"passes": PASSES}
    model = distls.fit(method, data, params=PARAMS[method], **limits).model
    assert model is not None
    return str(model.sha256)


def _row(result: dict[str, Any]) -> str:
    faults = "; ".join(result["faults"]) or "none in time"
    found = "; ".join(result["trouble"]) or "right"
    head = f"{result['round']:4d} {result['method']:12s} {result['seconds']:6.1f} s"
    return f"{head}  {result['codes']}  {faults}: {found}"


if __name__ == "__main__":
    raise SystemExit(bool(main()["trouble"]))
