"""What the loss of workers costs: seconds to the next round, and throughput at a kill every few seconds.

    python -m benchmarks.speed.recovery [--methods mcid,fista,gls,bcd] [--seconds 30] [--every 5]
        [--workers 2] [--out FILE]

Each method, of the three ways of distributing work (lanes: `mcid`, statistics: `fista` and `gls`, shards: `bcd`),
trains on small data with worker processes, first undisturbed, then with a worker killed every few seconds. Both are
timed from their third round on, for the same time. (`gls` has steps so small that it does not reach its optimum and
end.) The share is that of rounds per second; rounds take from 10 ms on here, so that what is lost is mostly the start
of workers, which does not depend on the data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.faults.faulty_fit import PARAMS, make_data

_DEADLINE = 300.0  # for the first rounds, and for the one after a kill
_POLL = 0.005
# Other parameters than in the harness of random faults: a fit that reaches its optimum ends.
_PARAMS = {
    **PARAMS,
    "bcd": {**PARAMS["bcd"], "alpha": 1e-5},
    "gls": {**PARAMS["gls"], "lipschitz": 1e7, "accelerate": "none"},
}


def workers_of(driver: int) -> list[psutil.Process]:
    """Return the worker processes of a command: they are forked by the fork server, which is one of its children."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(driver).children()
        return [worker for child in children for worker in child.children() if worker.is_running()]
    return []


class Watched:
    """A fit without end, whose rounds are counted in its events."""

    def __init__(self, method: str, data: Path, run: Path, workers: int) -> None:
        self._events = run / "events.jsonl"
        given = [text for name, value in _PARAMS[method].items() for text in ("-p", f"{name}={value}")]
        command = ["fit", method, data, run, *given, "--passes", 10**7, "--workers", workers, "--threads-per-worker", 1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distls", *map(str, command), "--quiet"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def rounds(self) -> int:
        """Return the number of rounds so far."""
        with contextlib.suppress(FileNotFoundError):
            return self._events.read_bytes().count(b"\n")
        return 0

    def check_alive(self) -> None:
        """Raise RuntimeError if the fit has ended: what follows would count as undisturbed."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the fit ended ({self.process.returncode}) after {self.rounds()} rounds")

    def wait_for(self, number: int) -> float:
        """Wait for a round; return the seconds that it took."""
        started = time.monotonic()
        while self.rounds() < number:
            self.check_alive()
            if time.monotonic() - started > _DEADLINE:
                raise RuntimeError(f"the fit hangs after {self.rounds()} rounds")
            time.sleep(_POLL)
        return time.monotonic() - started

    def end(self) -> None:
        """Kill the fit and all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def watch(fit: Watched, seconds: float, every: float | None, choose: random.Random) -> dict[str, Any]:
    """Count rounds for a time, with a worker killed every so often; return rounds a second and what kills cost."""
    fit.wait_for(3)
    first, started = fit.rounds(), time.monotonic()
    gaps: list[float] = []
    while (elapsed := time.monotonic() - started) < seconds:
        fit.check_alive()
        if every is None or elapsed < every * (len(gaps) + 1):
            time.sleep(_POLL)
            continue
        workers = workers_of(fit.process.pid)
        if not workers:  # the last ones are being started again
            time.sleep(_POLL)
            continue
        before = fit.rounds()
        with contextlib.suppress(psutil.Error):
            choose.choice(workers).kill()
        # the round under way may be done already, the one after it is not
        gaps.append(fit.wait_for(before + 2))
    return {"rate": (fit.rounds() - first) / (time.monotonic() - started), "gaps": gaps}


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measure each method with and without kills; return and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="mcid,fista,gls,bcd")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between kills")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    results = []
    print("| method | rounds a second | with kills | share | kills | s to the next round, median | at most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        data = make_data(Path(folder) / "data")
        for method in given.methods.split(","):
            found = []
            for name, every in (("calm", None), ("killed", given.every)):
                fit = Watched(method, data, Path(folder) / f"{method}-{name}", given.workers)
                try:
                    found.append(watch(fit, given.seconds, every, random.Random(given.seed)))
                finally:
                    fit.end()
            results.append(_row(method, *found))
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=1))
    return results


def _row(method: str, calm: dict[str, Any], killed: dict[str, Any]) -> dict[str, Any]:
    gaps = killed["gaps"]
    median = statistics.median(gaps) if gaps else 0.0
    row = {"method": method, "calm": calm["rate"], "killed": killed["rate"], "seconds": gaps}
    row["share"] = killed["rate"] / calm["rate"]
    print(
        f"| {method} | {calm['rate']:.1f} | {killed['rate']:.1f} | {row['share']:.2f} | {len(gaps)} | {median:.2f} | "
        f"{max(gaps, default=0.0):.2f} |",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
