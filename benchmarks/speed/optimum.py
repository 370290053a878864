"""How soon the optimum is reached and proven: `sdca` and `newton` beside LIBLINEAR, Snap ML and scikit-learn.

    pip install '.[bench]' liblinear-official && pip install --no-deps snapml
    [DISTLS_DATA=FOLDER] python -m benchmarks.speed.optimum [--directory FOLDER] [--rows N] [--out FILE]
        [--sets rcv1-4,kddcup99,covtype] [--part log,squared_hinge,hinge,multi,many,lanes] [--alphas 1e-4:1e-5:1e-6]
        [--limit SECONDS] [--minutes M] [--skip PROGRAMS]

Two classes: class 1 of generated `rcv1-4` against the rest, normal connections of kddcup99 against attacks (494,021
rows), class 2 of Covertype against the rest (its first 20,000 rows), the last two with columns of unit spread. `log`,
`squared_hinge` and `hinge` are losses of two classes. `multi`: Crammer-Singer beside LIBLINEAR's ``-s 4``, softmax
beside scikit-learn's lbfgs, on `rcv1-4`; `many`: the same on `rcv1-53`. `lanes`: `log` by lanes, in small partitions.

Seconds of distls are those of the whole command ``distls fit METHOD DATA RUN --rtol TARGET`` with the loss, alpha, no
intercept and at most 300 passes: start, reading, certificates and the written model are among them; kernels are
compiled before. It ends with a proof, or the row says `missed`. Rows of `newton` have the reads that were `shortened`:
of points whose objective was too high, so that the step to them was halved.
CPU seconds, of all threads and processes together, are beside them: other work on the machine distorts them less.
Those of the others are the call that fits arrays in memory, without reading or a proof, at the loosest tolerance whose
objective is good enough; a fit of more than ``--limit`` CPU seconds is the last of its program. Snap ML has two
threads.
After ``--minutes`` no comparison is begun; at the end all that were are printed as a table.
Objectives are mean loss plus alpha/2 |w|^2, without an intercept; the excess is that over the optimum, which a fit of
distls in float64 bounds, relative to it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import distls
from benchmarks.papers.sgd_qn_default import rows_of
from benchmarks.quality.real import arrays_of
from benchmarks.speed import small
from benchmarks.speed.small import Spent
from distls.planning.fit_plan import plan_fit
from distls.storage.dataset.dataset import open_dataset
from distls.synthetic.generation import generate

TARGETS = (1e-3, 1e-6)
ALPHAS = (1e-4, 1e-5, 1e-6)
ROWS = 665_265
SETS = {"rcv1-4": "", "kddcup99": "kddcup99", "covtype": "covtype20k"}  # of two classes: folder of DISTLS_DATA
LOSSES = ("log", "squared_hinge", "hinge")
TOLERANCES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
LANES = (1, 2, 4, 8, 32, 128)
Fits = Iterator[tuple[str, Spent, np.ndarray]]  # program and setting, seconds, weights (n_features[, k])


def timed(fit: Callable[[], Any], *, command: bool = False) -> tuple[Spent, Any]:
    """Return the seconds of a call, or of a command that it runs, and its result."""
    made: list[Any] = []
    return small.timed(lambda: made.append(fit()), command=command), made[0]


class Report:
    """Prints a line for each measurement and keeps all for the JSON file."""

    def __init__(self, out: str | None) -> None:
        self._out, self.rows = out, []  # type: tuple[str | None, list[dict[str, Any]]]

    def table(self) -> Iterator[str]:
        """Yield the lines of a table: seconds, and passes of distls, to each target, by problem and program."""
        places: dict[tuple[str, ...], dict[str, dict[float, str]]] = {}
        for row in (each for each in self.rows if "loss" in each):
            systems = places.setdefault((row["set"], row["loss"], f"{row['alpha']:g}"), {})
            passes = f" ({row['passes']:g} passes)" if "passes" in row else ""
            text = "-" if row.get("missed") else f"{row['seconds']:.2f} / {row['cpu']:.2f}{passes}"
            systems.setdefault(row["system"].partition(",")[0], {})[row["target"]] = text
        targets = " | ".join(f"s / CPU s to {target:g}" for target in TARGETS)
        yield f"| set, loss, alpha | program | {targets} |"
        yield "| --- | --- |" + " --- |" * len(TARGETS)
        for place, systems in places.items():
            for system, found in systems.items():
                yield f"| {', '.join(place)} | {system} | {' | '.join(found.get(t, '-') for t in TARGETS)} |"

    def add(self, **row: Any) -> None:
        """Print and keep a row."""
        self.rows.append(row)
        texts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in row.values())
        print(", ".join(f"{key} {text}" for key, text in zip(row, texts, strict=True)), flush=True)
        if self._out:
            Path(self._out).write_text(json.dumps(self.rows, indent=1))


def objective_of(x: Any, y: np.ndarray, w: np.ndarray, alpha: float, loss: str) -> float:
    """Return mean loss plus alpha/2 |w|^2 of weights (n_features,) of two classes, or (n_features, k) of more."""
    total = 0.0
    for first in range(0, len(y), 65536):
        z, own = x[first : first + 65536] @ w, y[first : first + 65536]
        if loss in LOSSES:
            margins = np.where(own == 1, z, -z)
            slack = np.maximum(0.0, 1.0 - margins)
            values = {"log": np.logaddexp(0.0, -margins), "hinge": slack, "squared_hinge": np.square(slack)}[loss]
        else:
            rows = np.arange(len(own))
            mine = z[rows, own].copy()
            if loss == "softmax":
                top = z.max(axis=1)
                values = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - mine
            else:
                z[rows, own] = -np.inf
                values = np.maximum(0.0, 1.0 + z.max(axis=1) - mine)
        total += float(values.sum())
    return total / len(y) + alpha / 2 * float(np.square(w).sum())


def liblinear_fits(x: Any, y: np.ndarray, alpha: float, solver: int) -> Fits:
    """Yield one of LIBLINEAR's solvers with ever smaller tolerances."""
    from liblinear import liblinearutil

    several = solver == 4
    problem = liblinearutil.problem(y.astype(float) if several else np.where(y == 1, 1.0, -1.0), x)
    for tolerance in TOLERANCES:
        options = f"-s {solver} -c {1.0 / (alpha * len(y))} -e {tolerance} -q"
        seconds, model = timed(lambda options=options: liblinearutil.train(problem, options))
        k = int(y.max()) + 1 if several else 1
        w = np.array(model.w[: x.shape[1] * k]).reshape(x.shape[1], k)
        w = w[:, np.argsort(model.get_labels())] if several else w[:, 0] * model.get_labels()[0]
        yield f"LIBLINEAR -s {solver}, -e {tolerance:g}", seconds, w


def snap_fits(x: Any, y: np.ndarray, alpha: float, loss: str) -> Fits:
    """Yield Snap ML with ever more epochs."""
    import snapml

    kind = snapml.LogisticRegression if loss == "log" else snapml.SupportVectorMachine
    own = {"dual": True} if loss == "log" else {"loss": "hinge"}
    for epochs in (1, 2, 3, 5, 8, 12, 20, 40, 80, 160):
        model = kind(regularizer=alpha * len(y), fit_intercept=False, n_jobs=2, max_iter=epochs, tol=0.0, **own)
        signs = np.where(y == 1, 1.0, -1.0)
        seconds, fitted = timed(lambda model=model, signs=signs: model.fit(x, signs))
        yield f"Snap ML, {epochs} epochs", seconds, np.asarray(fitted.coef_, np.float64).reshape(-1)


def lbfgs_fits(x: Any, y: np.ndarray, alpha: float) -> Fits:
    """Yield scikit-learn's lbfgs with ever more iterations."""
    from sklearn.linear_model import LogisticRegression

    for iterations in (20, 60, 200, 600, 2000):
        model = LogisticRegression(
            C=1.0 / (alpha * len(y)), fit_intercept=False, tol=1e-12, max_iter=iterations, solver="lbfgs"
        )
        seconds, _ = timed(lambda model=model: model.fit(x, y))
        w = model.coef_.T
        yield f"lbfgs, {iterations} iterations", seconds, w[:, 0] if w.shape[1] == 1 else w


def rivals_of(loss: str, x: Any, y: np.ndarray, alpha: float) -> dict[str, Fits]:
    """Return the programs at hand that solve a problem."""
    solvers = {"log": (0, 7), "squared_hinge": (2, 1), "hinge": (3,), "crammer_singer": (4,)}.get(loss, ())
    found: dict[str, Fits] = {}
    if importlib.util.find_spec("liblinear"):
        found |= {f"LIBLINEAR -s {solver}": liblinear_fits(x, y, alpha, solver) for solver in solvers}
    if loss in ("log", "hinge") and importlib.util.find_spec("snapml"):
        found["Snap ML"] = snap_fits(x, y, alpha, loss)
    return found | ({"lbfgs": lbfgs_fits(x, y, alpha)} if loss in ("log", "softmax") else {})


def whole_fit(method: str, path: Path, params: dict[str, Any], rtol: float) -> dict[str, Any]:
    """Return the wall seconds of a whole command, the passes, objective and gap of its fit."""
    run = path.with_name(f"{path.name}-run")
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "distls", "fit", method, str(path), str(run), "--rtol", str(rtol), "--quiet"]
    for name, value in {**params, "fit_intercept": "false"}.items():
        command += ["-p", f"{name}={value}"]
    # a fit that ends without the proof has exit code 0 and says so
    command += ["--passes", "300"]
    seconds, _ = timed(lambda: subprocess.run(command, check=True, capture_output=True), command=True)
    record = distls.info(run)
    gap = record["certificate"]["relative"]
    found = {"seconds": seconds.wall, "cpu": seconds.cpu, "passes": record["passes"]}
    found |= {"objective": record["objective"], "proven": gap}
    if method == "newton":
        found["shortened"] = _shortened(run)
    return found | ({"missed": True} if gap > rtol else {})


def _shortened(run: Path) -> int:
    """Return how many reads of a run of `newton` were followed by a shorter step to read again."""
    rounds = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    told = [each["details"] for each in rounds if (each.get("details") or {}).get("steps")]
    return sum(each["stage"] == "search" or (each["stage"] == "gradient" and each["share"] < 1.0) for each in told)


def compare(
    report: Report, name: str, path: Path, loss: str, alpha: float, rtol: float, given: argparse.Namespace
) -> None:
    """Report the seconds of distls to each target, and those of its rivals."""
    limit, skipped = given.limit, given.skip.split(",")
    params = {"loss": loss, "alpha": alpha, "dtype": "float64", "fit_intercept": False}
    methods = ("sdca",) if loss in ("hinge", "crammer_singer") else ("sdca", "newton")
    record = distls.fit(methods[-1], path, params=params, rtol=rtol, passes=500).record
    best = float(record["objective"] - record["certificate"]["value"])
    of = {"set": name, "loss": loss, "alpha": alpha}
    for method in (each for each in methods if each not in skipped):
        whole_fit(method, path, {"loss": loss, "alpha": alpha}, 0.5)  # kernels are compiled
        for target in TARGETS:
            found = whole_fit(method, path, {"loss": loss, "alpha": alpha}, target)
            excess = found.pop("objective") / best - 1.0
            report.add(**of, system=f"distls {method}", target=target, **found, excess=excess)
            if "missed" in found:  # and so are those that follow
                break
    x, y = arrays_of(path)
    rivals = rivals_of(loss, x, y, alpha)
    for fits in (rivals[each] for each in rivals if each not in skipped):
        missing, found = set(TARGETS), {}
        for setting, seconds, w in fits:
            excess = objective_of(x, y, w, alpha, loss) / best - 1.0
            found = {"system": setting, "seconds": seconds.wall, "cpu": seconds.cpu, "excess": excess}
            reached = sorted((target for target in missing if excess <= target), reverse=True)
            for target in reached:
                report.add(**of, target=target, **found)
            missing -= set(reached)
            if not missing or seconds.cpu > limit:
                break
        if missing and found:
            report.add(**of, target=max(missing), **found, missed=True)


def by_lanes(report: Report, name: str, path: Path, alpha: float) -> None:
    """Report passes and seconds of whole commands, and bytes between processes a pass, by lanes."""
    for method in ("sdca", "newton"):
        for lanes in (each for each in LANES if each <= len(open_dataset(str(path)))):
            params = {"loss": "log", "alpha": alpha, "lanes": lanes}
            plan = plan_fit(method, str(path), {**params, "fit_intercept": False}, probe=False)
            network = plan.network_bytes_per_round * plan.rounds_per_pass
            for target in TARGETS:
                found = whole_fit(method, path, params, target)
                report.add(set=name, system=f"distls {method}", alpha=alpha, lanes=lanes, target=target,
                           **found, network=network)  # fmt: skip
                if "missed" in found:
                    break
            # what takes too many passes takes more with more lanes
            if target == TARGETS[0]:
                break


def prepared(folder: Path, rows: int) -> tuple[Path, Path, Path]:
    """Return the data set of all classes, that of class 1 against the rest, and the same in small partitions."""
    multi, binary, small = (folder / f"{name}-{rows}" for name in ("rcv1-4", "class-1", "small"))
    if not multi.exists():
        generate("rcv1-4", str(multi), rows=rows)
    if not binary.exists():
        x, y = arrays_of(multi)
        distls.ingest(x, str(binary), y=(y == 1).astype(int))
        distls.ingest(x, str(small), y=(y == 1).astype(int), partition_size=2 * 2**20)
    return multi, binary, small


def two_classes(name: str, folder: Path, rows: int) -> tuple[Path, Path]:
    """Return a set of two classes, and the same in small partitions."""
    if name == "rcv1-4":
        return prepared(folder, rows)[1:]
    whole, small = folder / f"{name}-{rows}", folder / f"{name}-{rows}-small"
    if not small.exists():
        x, y = rows_of(name, Path(os.environ["DISTLS_DATA"]), folder, rows)
        distls.ingest(x, str(whole), y=y.astype(int))
        distls.ingest(x, str(small), y=y.astype(int), partition_size=x.nbytes // 140)
    return whole, small


def several_classes(name: str, folder: Path, rows: int) -> Path:
    """Return a generated set of several classes."""
    path = folder / f"{name}-{rows}"
    if not path.exists():
        generate(name, str(path), rows=rows)
    return path


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=f"{tempfile.gettempdir()}/distls-optimum")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--part", default="log,squared_hinge,hinge,multi,lanes")
    parser.add_argument("--alphas", default=":".join(map(str, ALPHAS)))
    parser.add_argument("--losses", default="crammer_singer,softmax", help="of `multi` and `many`")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--skip", default="", help="programs to leave out: sdca,newton,LIBLINEAR -s 7,lbfgs...")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no comparison is begun after these")
    parser.add_argument("--out")
    given = parser.parse_args()
    folder, parts, report = Path(given.directory), given.part.split(","), Report(given.out)
    if unknown := set(parts) - {*LOSSES, "multi", "many", "lanes"}:
        parser.error(f"no part named {', '.join(sorted(unknown))}")
    folder.mkdir(parents=True, exist_ok=True)
    last = time.monotonic() + 60.0 * given.minutes
    for compared in _comparisons(report, folder, parts, given):
        if time.monotonic() > last:
            print("the minutes are over: what follows was not compared", flush=True)
            break
        compared()
    print("\n".join(report.table()))


def _comparisons(
    report: Report, folder: Path, parts: list[str], given: argparse.Namespace
) -> Iterator[Callable[[], None]]:
    """Yield what is to be compared, each part to be called, the first strength of every set before the second."""
    names = [name for name in given.sets.split(",") if not SETS[name] or "DISTLS_DATA" in os.environ]
    for alpha in map(float, given.alphas.split(":")):
        for name in names:
            whole, small = two_classes(name, folder, given.rows)
            for loss in (loss for loss in LOSSES if loss in parts):
                yield partial(compare, report, name, whole, loss, alpha, 1e-8, given)
            if "lanes" in parts:
                yield partial(by_lanes, report, name, small, alpha)
        for part, name, rtol in (("multi", "rcv1-4", 1e-8), ("many", "rcv1-53", 1e-5)):
            for loss in given.losses.split(",") if part in parts else ():
                path = several_classes(name, folder, given.rows)
                yield partial(compare, report, name, path, loss, alpha, rtol, given)


if __name__ == "__main__":
    main()
