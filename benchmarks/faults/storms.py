"""Storms: random commands, settings and data, struck at random instants several times in a row, with fresh seeds.

    python -m benchmarks.faults.storms [--seed 0] [--minutes 120] [--first 0] [--rounds N]

A round is a command (`ingest`, `columns`, `fit` by any method with random options, paths, folds, grids, `resume`,
`train`, `calibrate`, `predict`, `evaluate`, `export`, `report`) in a process that is killed, loses the power or has
no room on its disk at up to three random acts on its files, the later ones while it is continued. Then it is
finished, and every file must be that of the undisturbed command. Every `WORLD` rounds the data are other ones, and
rounds of `chaos` (processes and files of fits with workers) and trials of `damages` (files changed, moved, replaced)
follow. A round is repeated by its seed and number; lines with `TROUBLE` are what is looked for.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults import chaos, damages
from distls.methods.method_registry import METHODS

# the processes that commands are struck in are those of the tests
sys.path.append(str(Path(__file__).parents[2] / "tests"))
from fault_bench import FIT, JOBS, UNSYNCED, Bench, Job, differing, given
from fault_helpers import Faulty

WORLD = 60
_STRENGTH = {"csgd", "ncsgd", "adaline", "c-adaline"}  # trained without alpha
_ALONE = {"cls", "stagewise", "ovr-sdca"}  # with an end of their own
_OWN: dict[str, list[dict[str, Any]]] = {
    "cls": [{"rounds": 2}, {"rounds": 3, "alpha": 0.01}],
    "stagewise": [{"stages": 2, "block_size": 6}, {"stages": 3, "block_size": 5, "inner": "logistic"}],
    "ovr-sdca": [{"class_block": 1}, {"class_block": 2, "sweeps": 3}],
    "bcd": [{}, {"algorithm": "sweeps"}, {"algorithm": "sweeps", "lanes": 2}, {"debias": True}],
    "sdca": [{}, {"lanes": 2}, {"lanes": 3, "loss": "hinge"}, {"fit_intercept": False}],
    "newton": [{}, {"start": "zero"}, {"lanes": 2}],
}


def random_fit(choose: random.Random) -> tuple[str, Job]:
    """Return a fit by any method, with its name."""
    method = choose.choice(sorted(METHODS))
    params = dict(choose.choice(_OWN.get(method, [{}, {"lanes": 2}])))
    options: list[object] = [] if method in _ALONE else ["--passes", choose.choice([1, 2, 3, 5])]
    names, grid = {item.name for item in METHODS[method].parameters}, False
    if "alpha" in names and method not in _ALONE | _STRENGTH and choose.random() < 0.8:
        form = choose.choice(["one", "one", "grid", "path", "folds"])
        params["alpha"] = choose.choice([0.1, 0.01, 0.001])
        if form == "grid":
            params["alpha"], grid = "0.1,0.01", True
        elif form != "one" and "alphas" in names:
            params |= {"alpha": "path", "alphas": "0.1:0.02"}
            grid = form == "path" or "folds" not in names
            params |= {} if grid else {"folds": 2}
    if grid:
        options += ["--select", "{data}/T"] + (["--refit"] if choose.random() < 0.3 else [])
    elif choose.random() < 0.4:
        options += ["--eval", "{data}/T"] + (["--patience", 1] if choose.random() < 0.3 else [])
    if choose.random() < 0.2:
        options += ["--rtol", choose.choice([0.3, 0.05])]
    if choose.random() < 0.2:
        options += ["--calibrate", "{data}/T2"]
    if choose.random() < 0.2:
        options += ["--seed", choose.randrange(100)]
    saved = (*FIT[:-1], choose.choice([0, 0, 9]))
    # blocks of classes that were finished before are not read again
    measured = frozenset({"n_rows"} if method == "ovr-sdca" else ())
    return method, Job(("fit", method, "{data}/D", "run", *saved, *options, *given(**params)), (), "run", measured)


def random_job(choose: random.Random) -> tuple[str, Job]:
    """Return a command and its name: most are fits."""
    if choose.random() < 0.7:
        return random_fit(choose)
    name = choose.choice([name for name in JOBS if name != "sgd, seconds"])
    return name, JOBS[name]


def storm(bench: Bench, job: Job, choose: random.Random) -> tuple[str, list[str]]:
    """Strike a command some times, finish it; return what was done and what is wrong."""
    bench.faulty.warm(*bench.prepared(job))
    command = bench.prepared(job)
    whole, acts = bench.faulty.killed_at(0, bench.work, *command)
    if not acts or whole.code not in (0, 2):
        return f"refused: {whole.err.strip()[-160:]}", ["a traceback"] if "Traceback" in whole.err else []
    expected = bench.contents(job)
    bench.prepared(job)
    # half a description of a zarr folder does not say that it is of predictions: it stays
    named = map(JOBS.get, UNSYNCED | {"predict, zarr"})
    unsynced = job.arguments[1] == "sdca" or "--refit" in job.arguments or job in named
    done, wrong = list[str](), list[str]()
    for _ in range(choose.choice([1, 1, 2, 3])):
        mode = choose.choice(["kill", "full"] if unsynced else ["kill", "full", "lost"])
        step = choose.randint(1, len(acts))
        now = bench.following(job, command)
        struck, seen = bench.faulty.killed_at(step, bench.work, *now, mode=mode)
        done.append(f"{mode} {now[0]} {step}/{len(acts)} {seen[step - 1] if step <= len(seen) else 'not reached'}")
        if "Traceback" in struck.err or struck.err.count("\n") > 2:
            wrong.append(f"says {struck.err[-500:]!r}")
    try:
        bench.ended(job, command, whole.code)
    except AssertionError as error:
        return "; ".join(done), [*wrong, f"does not end: {error}"[:500]]
    wrong += [f"{name}: {str(pair)[:300]}" for name, pair in differing(bench.contents(job), expected).items()]
    return "; ".join(done), wrong


def _in_a_world(place: Path, seed: int, numbers: range, until: float, seen: Counter[str]) -> int:
    """Storm over some data until the time is over; return the number of rounds with trouble."""
    (place / "faulty").mkdir()
    faulty, trouble = Faulty(place / "faulty"), 0
    bench = Bench(place, faulty, seed=seed + numbers.start // WORLD)
    for number in numbers:
        choose = random.Random(f"{seed}, {number}")
        name, job = random_job(choose)
        done, wrong = storm(bench, job, choose)
        seen["refused" if done.startswith("refused") else name] += 1  # before anything is written
        trouble += bool(wrong)
        told = f"TROUBLE {wrong} by {' '.join(map(str, job.arguments))}" if wrong else "right"
        print(f"{number:5d} {name:20s} {done}: {told}", flush=True)
        if time.monotonic() > until:
            break
    faulty.close()
    return trouble


def main(arguments: Sequence[str] | None = None) -> int:
    """Storm until the time is over; return the number of rounds with trouble."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first round, to repeat it")
    parser.add_argument("--rounds", type=int, default=10**9)
    asked = parser.parse_args(arguments)
    until, first, trouble, seen = time.monotonic() + 60 * asked.minutes, asked.first, 0, Counter[str]()
    last = asked.first + asked.rounds
    while time.monotonic() < until and first < last:
        end = min((first // WORLD + 1) * WORLD, last)
        with tempfile.TemporaryDirectory(prefix="storms-") as folder:
            trouble += _in_a_world(Path(folder), asked.seed, range(first, end), until, seen)
        first = end
        if time.monotonic() < until and first % WORLD == 0:
            seed = str(asked.seed + first)
            trouble += chaos.main(["--seed", seed, "--rounds", "6"])["trouble"]
            trouble += len(damages.main(["--seed", seed, "--minutes", "2", "--trials", "5"])["trouble"])
        print(f"{sum(seen.values())} rounds to {first}, {trouble} with trouble; {dict(seen)}", flush=True)
    return trouble


if __name__ == "__main__":
    raise SystemExit(bool(main()))
