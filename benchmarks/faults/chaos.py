"""Random faults of processes and files under random fits: each ends with the right bits, or in one line.

    python -m benchmarks.faults.chaos [--seed 0] [--minutes 10] [--rounds N] [--first 0] [--deadline 240]
        [--out FILE] [--place local|store|network]

Each round trains a random method on small data, with worker processes. Meanwhile processes of the command's tree
(driver, fork server, workers) are killed, or stopped and continued, or files of the data set, the run and the cache
of kernels have bytes flipped, are truncated or removed. An end is right if it comes within the deadline, nothing of
the tree survives it, no traceback is printed, and

* the exit code is 0 and the weights are those of an undisturbed fit in one process; or
* the exit code is 1 or 3, with one line on stderr; or the driver itself was killed.

What was not finished is resumed without faults: if no file was damaged, with the right weights at the end, and no
half-written file left in the run; otherwise so, or with one line. A model that was damaged or removed after the
command had written it is resumed as well: the round counts as `unread`, not as other weights. Duals of `sdca` that were
damaged are recomputed from the weights, as documented: other weights are right where the run has the note that says so.
In some rounds the fit has a low limit on open files, addresses or the size of files, from its start.
With `--place store` data set and run are in an object store that fails; with `--place network` scheduler, workers and
command are on hosts whose links are cut (needs root).
Python's resource tracker is spared: its successor prints tracebacks of its own.
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
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import distls
from benchmarks.faults.faulty_fit import OWN_END, PARAMS, PASSES, Round, make_data, survivors
from benchmarks.faults.network_faults import network_rounds
from benchmarks.faults.store_faults import store_rounds
from distls.workers.compilation.kernel_cache import kernel_folder

_KILLED = -signal.SIGKILL
NO_WEIGHTS, OTHER_WEIGHTS = "no weights to compare", "other weights"
_RECOMPUTED = b"were lost and recomputed from the weights"
# What is said on the way of files that were damaged, or could not be written, and cost nothing but time.
_NOTES = (
    ": read again, and well, after: ",
    ": a damaged file among compiled kernels; they are compiled again",
    "compiled kernels are not kept: ",
)
PLACES: dict[str, Callable[[], AbstractContextManager[Callable[..., Round]]]] = {
    "local": lambda: contextlib.nullcontext(Round),
    "store": store_rounds,
    "network": network_rounds,
}


def _end(process: subprocess.Popen[str], deadline: float) -> tuple[int | None, str]:
    """Return how a command ended, None if it hangs, and what it wrote."""
    try:
        _, written = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, written = process.communicate()
        return None, written
    return process.returncode, written


def trouble_of(code: int | None, written: str, digest: str | None, right: str, *, killed: bool) -> list[str]:
    """Return what is wrong with an end."""
    lines = [line for line in written.splitlines() if line and not any(note in line for note in _NOTES)]
    found = []
    if code is None:
        found.append("hangs")
    elif code == 0 and digest is None:
        found.append(NO_WEIGHTS)
    elif code == 0 and digest != right:
        found.append(OTHER_WEIGHTS)
    elif code in (1, 3) and len(lines) != 1:
        found.append(f"{len(lines)} lines")
    elif code not in (0, 1, 3) and not (code == _KILLED and killed):
        found.append(f"exit code {code}")
    if "Traceback" in written:
        found.append("a traceback")
    return found


def run_round(made: Round, right: str, deadline: float) -> dict[str, Any]:
    """Fit with faults, resume without; return what was done and what was wrong."""
    started = time.monotonic()
    process = made.fit()
    made.strike(process)
    code, written = _end(process, deadline)
    trouble = trouble_of(code, written, made.digest(), right, killed=made.killed_driver)
    made.heal()
    trouble += [f"{len(left)} processes survive" for left in [survivors(process.pid)] if left]
    codes = [code]
    if (code not in (0, None) or NO_WEIGHTS in trouble) and made.written("config.json") is not None:
        process = made.resume()
        code, again = _end(process, deadline)
        codes.append(code)
        written += again
        trouble += [] if code == 0 or made.touched_files else [f"resume ends with {code}"]
        trouble += trouble_of(code, again, made.digest(), right, killed=False)
    if code == 0:
        trouble += [f"left behind: {name}" for name in made.left_behind()]
    if OTHER_WEIGHTS in trouble and made.touched_files and _RECOMPUTED in (made.written("events.jsonl") or b""):
        trouble.remove(OTHER_WEIGHTS)
    # what was damaged after it was written is no fault of the command that wrote it
    unread = made.touched_files and NO_WEIGHTS in trouble
    return {
        "method": made.method,
        "faults": made.faults,
        "codes": codes,
        "seconds": round(time.monotonic() - started, 1),
        "unread": unread,
        "trouble": [each for each in trouble if not (unread and each == NO_WEIGHTS)],
        "stderr": written[-2000:] if trouble or codes[0] else "",
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run rounds until the time is over; return what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=10**9, help="at most so many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first, to repeat a round")
    parser.add_argument("--deadline", type=float, default=240.0, help="seconds of a command")
    parser.add_argument("--place", choices=sorted(PLACES), default="local")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    results: list[dict[str, Any]] = []
    digests: dict[str, str] = {}
    until = time.monotonic() + 60 * given.minutes
    # the addresses of sockets are short
    with PLACES[given.place]() as make, tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        data = make_data(Path(folder) / "data")
        while len(results) < given.rounds and time.monotonic() < until:
            number = given.first + len(results)
            choose = random.Random(f"{given.seed}, {number}")
            place = Path(folder) / str(number)
            made = make(place, data, kernel_folder(), choose)
            if made.method not in digests:
                digests[made.method] = _undisturbed(made.method, data)
            result = run_round(made, digests[made.method], given.deadline)
            results.append({"round": number, **result})
            print(_row(results[-1]), flush=True)
            if result["trouble"]:
                print(result["stderr"], flush=True)
            shutil.rmtree(place, ignore_errors=True)
    report = {
        "seed": given.seed,
        "rounds": results,
        "trouble": sum(bool(each["trouble"]) for each in results),
        "unread": sum(each["unread"] for each in results),
    }
    print(f"{len(results)} rounds, seed {given.seed}: {report['trouble']} with trouble, {report['unread']} unread")
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
    found = "; ".join(result["trouble"]) or (NO_WEIGHTS if result["unread"] else "right")
    head = f"{result['round']:4d} {result['method']:12s} {result['seconds']:6.1f} s"
    return f"{head}  {result['codes']}  {faults}: {found}"


if __name__ == "__main__":
    raise SystemExit(bool(main()["trouble"]))
