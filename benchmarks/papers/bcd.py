"""The experiments of "Block coordinate descent algorithms for large-scale sparse multiclass classification".

(Blondel, Seki, Uehara 2013, section 5.)

    DISTLS_DATA=FOLDER python -m benchmarks.papers.bcd [--part author,figures,losses,lanes,many,passes]
        [--sets sector,rcv1-53] [--alphas 1e-3,1e-5] [--seeds 3] [--real DIR] [--directory FOLDER] [--out FOLDER]

The objective is always Eq. 2, the mean multiclass squared hinge plus alpha times the l1/l2 norm. It is computed here
from the weights after every round, in float64; seconds are those of the rounds alone.

`author`: seconds until `bcd` has the objective that the author's program (CDClassifier of sklearn-contrib-lightning)
has after 10 outer iterations, both alternately, medians over seeds. It has its rows in memory, by columns; `bcd` reads
its own in the first of the runs, and finds them in the workers' caches in the others. One process, two on `rcv1-4`.
CPU seconds of all processes are also given, since they are more reliable on a busy machine. The author's program is
skipped if it is not installed: `pip install cython 'setuptools<70'`, then
`pip install --no-build-isolation sklearn-contrib-lightning`.
`figures` (2 to 4): relative objective, test error and non-zero rows of weights against seconds, for six solvers, for
`bcd` without sweeps over active columns, which is the published algorithm, and for its default. F* is the lowest
objective of all.
`losses` (Table 2, Figure 5): training time, test accuracy and non-zero rows of three losses, logistic with and without
line search, over ten strengths, tau = 1e-3, 200 passes at most, on --seeds stratified splits of 4/5 to 1/5.
`passes`: passes and CPU seconds to a relative objective of 1e-1 to 1e-6 by each of three losses, of the default, which
works on sets of columns, and of Algorithms 1 to 3 as published, with both steps; one lane, one process.
`lanes`: rounds and seconds to a relative objective of 1e-3 in 1, 2, 4 and 8 lanes of two processes.
`many`: a path of strengths on LSHTC1 task 2, 1139 classes, by the command line and two workers: test error, non-zero
rows and peak memory against the plan, compared with scikit-learn's LinearSVC.

DISTLS_DATA holds the public sets under their usual names; `20news-hashed` has its columns hashed to 2^18. Tables are
printed, with expectations as PASS or FAIL; numbers go to --out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import distls
from benchmarks.papers.owners import NEEDED, READERS, SPLIT, are_there, made
from benchmarks.quality.real import SETS, TEXT, arrays_of, ingest_set
from benchmarks.speed import peers
from benchmarks.speed.scale import Watched
from distls.execution import ClusterOptions, open_executor
from distls.execution.executor import Executor
from distls.execution.memory_budget import human
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import method_named
from distls.solvers.status import Status
from distls.training.configuration import Setting
from distls.workers.losses.loss_registry import loss_named

Numbers = dict[str, Any]

DISTRIBUTED = "rcv1-4"  # the set that two processes work on, and its like with more classes
RCV1 = (DISTRIBUTED, "rcv1-53")
# How many times sooner than the author's program, by alpha.
BARS = {True: {1e-5: 10.0, 1e-4: 4.0, 1e-3: 2.0}, False: {1e-5: 4.0, 1e-4: 2.0, 1e-3: 1.5}}
OUTER = 10
SAME = 1e-6
# Both programs' tolerance where they are to converge, and iterations at most.
CONVERGED_AT, MOST = 1e-5, 3000
SOLVERS: dict[str, tuple[str, Numbers]] = {
    "bcd, working sets": ("bcd", {}),
    "bcd, line search": ("bcd", {"algorithm": "sweeps"}),
    "bcd, line search, as published": ("bcd", {"active_sweeps": 0}),
    "bcd, constant": ("bcd", {"step": "constant", "active_sweeps": 0}),
    "fista, line search": ("fista", {}),
    "fista, constant": ("fista", {"step": "constant"}),
    "sparsa": ("sparsa", {}),
    "fobos": ("fobos", {"lanes": 1}),
}
MANY_ALPHAS = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5)
GOALS = (1e-1, 1e-2, 1e-3)
LOSSES: dict[str, Numbers] = {
    "multiclass squared hinge": {"loss": "multiclass_squared_hinge", "algorithm": "sweeps"},
    "multitask squared hinge": {"loss": "multitask_squared_hinge", "algorithm": "sweeps"},
    "logistic, constant": {"loss": "softmax", "step": "constant"},
    "logistic, line search": {"loss": "softmax", "algorithm": "sweeps"},
}
# Of `passes`: Algorithms 1 to 3 as printed, with either step, and the default.
ALGORITHMS: dict[str, Numbers] = {
    "working sets": {},
    "line search, as published": {"rules": "paper", "active_sweeps": 0},
    "constant, as published": {"rules": "paper", "active_sweeps": 0, "step": "constant"},
}
CLOSER = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
STRENGTHS = {"sector": (-2.0, -4.0)}  # decimal logarithms of alpha, of others 1e-3 to 1e-5
LANES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Lab:
    """Where data sets are, and how much is measured.

    Attributes
    ----------
    source : Path or None
        The public sets.
    place : Path
        Datasets made.
    sets : tuple of str
        Empty for those of each part.
    alphas : tuple of float
        Empty for those of each part.
    seeds : int
    rows : int or None
        Of rcv1-4; the paper's by default.
    limit : float
        Seconds that a curve or a fit may take.
    rounds : int
        That they may take.
    real : Path or None
        The owners' files of RCV1, Amazon7, News20 and Sector.
    executors : dict
        Opened so far, by the number of processes.
    """

    source: Path | None
    place: Path
    sets: tuple[str, ...]
    alphas: tuple[float, ...]
    seeds: int
    rows: int | None
    limit: float
    rounds: int
    real: Path | None = None
    executors: dict[int, Executor] = field(default_factory=dict)

    def executor(self, processes: int) -> Executor:
        """Return where fits run; one process is this one."""
        if processes not in self.executors:
            options = ClusterOptions(workers=processes)
            self.executors[processes] = SerialExecutor() if processes == 1 else open_executor(options)[0]
        return self.executors[processes]

    def corpus(self, name: str) -> Corpus:
        """Return a set with its official test set, made at the first request."""
        if self.of_owners(name):
            return self.split(name, 0)
        place = self.place / (f"{name}-{self.rows or 'all'}" if name in RCV1 else name)
        if not (place / "test").exists() and name not in RCV1:
            source = _needed(self.source)
            if name == "20news-hashed":
                _ingest_hashed(source, place)
            else:
                ingest_set(SETS[name], source, place, 16 * 2**20, columns=True)
        if name in RCV1:
            made(name, place, real=self.real, rows=self.rows, columns=True)
            return Corpus(name, place, place.with_name(f"{place.name}-test"))
        return Corpus(name, place / "all", place / "test")

    def of_owners(self, name: str) -> bool:
        """Return whether a set is all of its owner's rows, split anew: where it is nowhere else, or is in --real."""
        return name in SPLIT and (name not in SETS or are_there(name, self.real))

    def split(self, name: str, seed: int) -> Corpus:
        """Return 4/5 of the training rows of a set, and the other fifth to test on."""
        train = self.place / f"{name}-split-{seed}"
        if self.of_owners(name):
            if self.real is None or not are_there(name, self.real):
                sys.exit(f"{name}: needs {', '.join(NEEDED[name])} in the folder of --real")
            if not train.exists():
                READERS[name](self.real, train, {"columns": True, "seed": seed})
        elif not train.exists():
            chosen, source = SETS[name], _needed(self.source)
            distls.ingest(
                str(source / chosen.train),
                train,
                labels=source / chosen.train_labels if chosen.train_labels else None,
                transform=tuple(filter(None, chosen.transform.split(","))),
                split=("test=0.2",),
                seed=seed,
                columns=True,
            )
        return Corpus(name, train, train.with_name(f"{train.name}-test"))


def _needed(source: Path | None) -> Path:
    if source is None:
        sys.exit("set DISTLS_DATA to the folder of the data sets")
    return source


def _ingest_hashed(source: Path, place: Path) -> None:
    """Ingest counts of 20 Newsgroups with columns hashed to 2^18, as the paper's Amazon7 is."""
    from sklearn.datasets import load_svmlight_file

    for name, file in (("all", SETS["20news"].train), ("test", SETS["20news"].test)):
        x, y = load_svmlight_file(str(source / file), dtype=np.float32)
        columns = (x.indices.astype(np.uint64) * 2654435761 % 2**32) >> 14
        hashed = sp.csr_matrix((x.data, columns.astype(np.int32), x.indptr), (len(y), 2**18))
        hashed.sum_duplicates()
        options: Numbers = {"transform": TEXT, "columns": True} if name == "all" else {"like": place / "all"}
        distls.ingest(hashed, place / name, y=y.astype(np.int64), **options)


@dataclass(frozen=True)
class Corpus:
    """A training set with column shards, its test set, and both in memory to evaluate weights."""

    name: str
    train: Path
    test: Path

    @property
    def processes(self) -> int:
        """Processes that work on it."""
        return 2 if self.name in RCV1 else 1

    @cached_property
    def rows(self) -> tuple[Any, NDArray[np.int64]]:
        """Training rows in float64 and codes of their classes."""
        return self._rows(self.train)

    @cached_property
    def test_rows(self) -> tuple[Any, NDArray[np.int64]]:
        """Those of the test set."""
        return self._rows(self.test)

    def _rows(self, path: Path) -> tuple[Any, NDArray[np.int64]]:
        x, labels = arrays_of(path)
        order = np.argsort(classes := np.array(distls.open_dataset(self.train).meta.classes))
        return x.astype(np.float64), order[np.searchsorted(classes, labels, sorter=order)]

    def objective(self, w: NDArray[Any], alpha: float) -> float:
        """Return F(W) of Eq. 2."""
        x, y = self.rows
        scores = x @ w.astype(np.float64)
        slack = np.maximum(scores - scores[np.arange(len(y)), y][:, None] + 1.0, 0.0)
        slack[np.arange(len(y)), y] = 0.0
        rows = np.sqrt(np.square(w, dtype=np.float64).sum(axis=1))
        return float(np.vdot(slack, slack) / len(y) + alpha * rows.sum())

    def error(self, w: NDArray[Any]) -> float:
        """Return the test error in %."""
        x, y = self.test_rows
        return 100 * float(np.mean((x @ w.astype(np.float64)).argmax(axis=1) != y))


class Fit:
    """A method at work on a corpus, round by round.

    Attributes
    ----------
    seconds, cpu : float
        Of rounds so far, by the clock and of all processes.
    rounds : int
    weights : array of shape (n_features, k)
        After the last round.
    status : Status
    """

    def __init__(self, lab: Lab, corpus: Corpus, method: str, params: Mapping[str, Any], **options: Any) -> None:
        chosen = method_named(method)
        self._executor = lab.executor(options.get("processes", corpus.processes))
        own = {} if method == "fobos" else {"tau": 0.0}
        given = {**own, "fit_intercept": False, **params}
        setting = Setting.of(chosen, given, distls.open_dataset(corpus.train), options.get("seed", 0))
        self._folder = tempfile.TemporaryDirectory(prefix="run-", dir=lab.place)
        slots = self._executor.slots
        self._solver = setting.solver(slots=slots, memory=None, state=self._folder.name)
        self._state = self._solver.init()
        self._solver.prepare(self._executor)
        self.seconds, self.cpu, self.rounds, self.status = 0.0, 0.0, 0, Status.RUNNING
        self.weights = self._solver.weights(self._state).predictor.coefficients

    def round(self) -> None:
        """Do one."""
        cpu, began = _cpu_seconds(self._executor), time.perf_counter()
        self._state, _ = self._solver.step(self._state, self._executor)
        self.seconds += time.perf_counter() - began
        self.cpu += _cpu_seconds(self._executor) - cpu
        self.rounds += 1
        self.status = self._solver.status(self._state)
        self.weights = self._solver.weights(self._state).predictor.coefficients

    def until(self, limit: float, rounds: int) -> bool:
        """Do rounds until the method ends by itself; tell whether it has, within limits."""
        while self.status == Status.RUNNING and self.rounds < rounds and self.seconds < limit:
            self.round()
        return self.status == Status.CONVERGED

    def close(self) -> None:
        """Remove the cached files."""
        self._folder.cleanup()

    @property
    def passes(self) -> float:
        """Reads of the data so far."""
        return float(self._state.passes)


def _cpu_seconds(executor: Executor) -> float:
    own = time.process_time()
    if isinstance(executor, SerialExecutor):
        return own
    return own + sum(executor.each_worker(_process_time, None).values())


def _process_time(_: None) -> float:
    return time.process_time()


def _finite(value: Any) -> Any:
    """Return a JSON value; null for a non-finite one, which was not reached."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _say(found: list[Numbers], claim: str, measured: float, bar: float, *, least: bool = False) -> None:
    """Print whether a claim holds, and keep it."""
    holds = bool(measured >= bar if least else measured <= bar)  # a NaN fails
    found.append({"claim": claim, "measured": float(measured), "bar": bar, "holds": holds})
    print(
        f"{'PASS' if holds else 'FAIL'}: {claim}: {measured:.4g}, {'at least' if least else 'at most'} {bar:g}",
        flush=True,
    )


# -- the author's program --------------------------------------------------------------------------------


def author(lab: Lab) -> Numbers:
    """Measure seconds to the objective of the author's program, and whether both converge to the same."""
    if not peers.has_author_of_bcd():
        print("the author's program is left out: sklearn-contrib-lightning is not installed")
        return {"rows": [], "claims": []}
    rows: list[Numbers] = []
    claims: list[Numbers] = []
    for name in lab.sets or (DISTRIBUTED, "sector", "20news", "mnist"):
        corpus = lab.corpus(name)
        x = corpus.rows[0]
        columns = sp.csc_matrix(x) if sp.issparse(x) else np.asfortranarray(x)
        for alpha in lab.alphas or (1e-3, 1e-4, 1e-5):
            found = [_beside_author(lab, corpus, columns, alpha, seed) for seed in range(lab.seeds)]
            row: Numbers = {"set": name, "alpha": alpha, "first": found[0], "runs": found}
            for key in ("author s", "author cpu", "s", "cpu", "rounds"):
                row[key] = float(np.median([each[key] for each in found]))
            row["ratio"] = float(np.median([each["author s"] / each["s"] for each in found]))
            rows.append(row)
            print(_author_line(row), flush=True)
            bar = BARS[name == DISTRIBUTED].get(alpha)
            if bar is not None:
                claim = f"{name}, alpha {alpha:g}, times sooner than the author's program"
                _say(claims, claim, row["ratio"], bar, least=True)
    if lab.sets == () or "sector" in lab.sets:
        _same_optimum(lab, claims)
    return {"rows": rows, "claims": claims}


def _beside_author(lab: Lab, corpus: Corpus, columns: Any, alpha: float, seed: int) -> Numbers:
    """Run the author's program for `OUTER` iterations, and `bcd` until it is as good."""
    w, seconds, cpu = peers.author_of_bcd(columns, corpus.rows[1], alpha, iterations=OUTER, seed=seed)
    goal = corpus.objective(w, alpha)
    fit = Fit(lab, corpus, "bcd", {"alpha": alpha, "lanes": corpus.processes}, seed=seed)
    objectives: list[float] = []
    while not objectives or (objectives[-1] > goal and fit.seconds < max(10 * seconds, lab.limit)):
        fit.round()
        objectives.append(corpus.objective(fit.weights, alpha))
    fit.close()
    reached = objectives[-1] <= goal
    return {
        "goal": goal, "author s": seconds, "author cpu": cpu, "author rows": _rows_used(w),
        "s": fit.seconds if reached else math.inf, "cpu": fit.cpu, "rounds": fit.rounds, "objectives": objectives,
        "rows": _rows_used(fit.weights),
    }  # fmt: skip


def _rows_used(w: NDArray[Any]) -> int:
    return int(w.any(axis=1).sum())


def _author_line(row: Numbers) -> str:
    first = row["first"]
    return (
        f"{row['set']:8} alpha {row['alpha']:g}  objective {first['goal']:.6f}  author {row['author s']:7.2f} s "
        f"(CPU {row['author cpu']:7.2f}), bcd {row['s']:7.2f} s (CPU {row['cpu']:7.2f}; first {first['s']:.2f} s), "
        f"{row['rounds']:.0f} rounds: {row['ratio']:.2f} times sooner, CPU {row['author cpu'] / row['cpu']:.2f}"
    )


def _same_optimum(lab: Lab, claims: list[Numbers]) -> None:
    """Have both converge on the smallest set."""
    corpus, alpha = lab.corpus("sector"), 1e-3
    columns = sp.csc_matrix(corpus.rows[0])
    w, seconds, _ = peers.author_of_bcd(columns, corpus.rows[1], alpha, iterations=MOST, tol=CONVERGED_AT)
    fit = Fit(lab, corpus, "bcd", {"alpha": alpha, "tau": CONVERGED_AT, "lanes": 1})
    fit.until(math.inf, MOST)
    fit.close()
    theirs, ours = corpus.objective(w, alpha), corpus.objective(fit.weights, alpha)
    print(
        f"sector alpha {alpha:g}, both converged: author {theirs:.9f} in {seconds:.1f} s ({_rows_used(w)} rows), "
        f"bcd {ours:.9f} in {fit.seconds:.1f} s ({_rows_used(fit.weights)} rows)"
    )
    _say(claims, "sector, relative difference of converged objectives", abs(ours / theirs - 1), SAME)


# -- Figures 2 to 4 --------------------------------------------------------------------------------------


def figures(lab: Lab) -> Numbers:
    """Measure Figures 2 to 4."""
    curves: list[Numbers] = []
    claims: list[Numbers] = []
    for name in lab.sets or ("sector", "20news-hashed", "mnist", DISTRIBUTED):
        corpus = lab.corpus(name)
        for alpha in lab.alphas or (1e-3, 1e-5):
            here: list[Numbers] = []
            for solver, (method, params) in SOLVERS.items():
                points = _curve(lab, corpus, method, {**params, "alpha": alpha})
                here.append({"set": name, "alpha": alpha, "solver": solver, "points": points})
            least = min(point["objective"] for curve in here for point in curve["points"])
            print(f"\n{name}, alpha {alpha:g}: F* {least:.6f}; seconds to a relative objective, and at the end")
            for curve in here:
                curve["least"] = least
                curve["reached"] = {str(goal): _reached(curve, goal) for goal in GOALS}
                print(_curve_line(curve), flush=True)
            _figure_claims(claims, here)
            curves += here
    return {"curves": curves, "claims": claims}


def _curve(lab: Lab, corpus: Corpus, method: str, params: Numbers) -> list[Numbers]:
    """Return measurements after rounds: after each at first, later after each tenth of the elapsed seconds."""
    lanes = {"lanes": corpus.processes} if method == "bcd" else {}
    first = Fit(lab, corpus, method, {**params, **lanes})
    first.round()  # loads code and reads the data
    first.close()
    fit, points, due = Fit(lab, corpus, method, {**params, **lanes}), [], 0.0
    while fit.seconds < lab.limit and fit.rounds < lab.rounds and fit.status == Status.RUNNING:
        fit.round()
        if fit.status == Status.DIVERGED:
            break
        if fit.seconds >= due or fit.seconds >= lab.limit:
            due = 1.1 * fit.seconds
            points.append(
                {
                    "seconds": fit.seconds,
                    "cpu": fit.cpu,
                    "passes": fit.passes,
                    "objective": corpus.objective(fit.weights, params["alpha"]),
                    "error": corpus.error(fit.weights),
                    "rows": 100 * _rows_used(fit.weights) / len(fit.weights),
                }
            )
    fit.close()
    return points


def _reached(curve: Numbers, goal: float) -> float | None:
    """Return the seconds to a relative objective, None where it is not reached."""
    good = (p["seconds"] for p in curve["points"] if p["objective"] <= (1 + goal) * curve["least"])
    return next(good, None)


def _curve_line(curve: Numbers) -> str:
    times = "  ".join(
        f"{goal}: {'-':>8}  " if seconds is None else f"{goal}: {seconds:8.2f} s"
        for goal, seconds in curve["reached"].items()
    )
    last = curve["points"][-1]
    return (
        f"{curve['solver']:31} {times}  after {last['seconds']:6.1f} s {last['objective'] / curve['least'] - 1:8.1e}, "
        f"error {last['error']:5.2f} %, rows {last['rows']:6.2f} %"
    )


def _figure_claims(claims: list[Numbers], curves: list[Numbers]) -> None:
    """The paper's: block coordinate descent is ahead of the others."""
    seconds = {curve["solver"]: curve["reached"][str(1e-2)] or math.inf for curve in curves}
    ours = seconds.pop("bcd, working sets")
    fastest = min(value for solver, value in seconds.items() if not solver.startswith("bcd"))
    name = f"{curves[0]['set']}, alpha {curves[0]['alpha']:g}"
    ratio = ours / fastest if math.isfinite(ours) else math.inf
    _say(claims, f"{name}, seconds to 1e-2, bcd over the fastest of the others", ratio, 1.0)


# -- Table 2 and Figure 5 --------------------------------------------------------------------------------


def losses(lab: Lab) -> Numbers:
    """Measure Table 2 and Figure 5."""
    rows: list[Numbers] = []
    claims: list[Numbers] = []
    for name in lab.sets or ("sector", "20news", "mnist"):
        splits = [lab.split(name, seed) for seed in range(lab.seeds)]
        alphas = lab.alphas or tuple(np.logspace(*STRENGTHS.get(name, (-3.0, -5.0)), 10).tolist())
        print(f"\n{name}, means over {lab.seeds} splits: accuracy % at non-zero rows % (seconds), alpha descending")
        here: dict[str, list[Numbers]] = {}
        for loss, params in LOSSES.items():
            here[loss] = [_mean_fit(lab, splits, {**params, "alpha": alpha}) for alpha in alphas]
            rows += [{"set": name, "loss": loss, **each} for each in here[loss]]
            print(f"{loss:25} " + "  ".join(map(_loss_text, here[loss])), flush=True)
        print("training seconds (CPU): least, median, most")
        for loss, found in here.items():
            print(f"{loss:25} " + "  ".join(_spread(found, key) for key in ("seconds", "cpu")), flush=True)
        ratio = _middle(here["logistic, constant"]) / _middle(here["multiclass squared hinge"])
        _say(claims, f"{name}, median CPU seconds of logistic over squared hinge", ratio, 6.0, least=True)
    return {"rows": rows, "claims": claims}


def _mean_fit(lab: Lab, splits: list[Corpus], params: Numbers) -> Numbers:
    """Return means over splits."""
    found = []
    for seed, corpus in enumerate(splits):
        fit = Fit(lab, corpus, "bcd", {"tau": 1e-3, "lanes": 1, **params}, seed=seed)
        ended = fit.until(lab.limit, min(200, lab.rounds))
        fit.close()
        share = 100 * _rows_used(fit.weights) / len(fit.weights)
        found.append((fit.seconds, fit.cpu, fit.rounds, 100 - corpus.error(fit.weights), share, ended))
    names = ("seconds", "cpu", "rounds", "accuracy", "rows used", "converged")
    means = dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))
    return {"alpha": params["alpha"], **means}


def _loss_text(row: Numbers) -> str:
    late = "" if row["converged"] == 1 else "*"
    return f"{row['accuracy']:5.2f} at {row['rows used']:.2f} ({row['seconds']:.1f}){late}"


def _spread(found: list[Numbers], key: str) -> str:
    values = [row[key] for row in found]
    return f"{min(values):8.2f} {float(np.median(values)):8.2f} {max(values):8.2f}"


def _middle(found: list[Numbers]) -> float:
    return float(np.median([row["cpu"] for row in found]))


# -- passes to the optimum -------------------------------------------------------------------------------


def passes(lab: Lab) -> Numbers:
    """Measure what the default and the published algorithms take to the optimum, by loss."""
    rows: list[Numbers] = []
    for name in lab.sets or ("sector", "20news"):
        corpus = lab.corpus(name)
        for alpha in lab.alphas or (1e-3,):
            for loss in ("multiclass_squared_hinge", "multitask_squared_hinge", "softmax"):
                here = [
                    {"set": name, "alpha": alpha, "loss": loss, "solver": solver, "points": _excesses(
                        lab, corpus, {**params, "alpha": alpha, "loss": loss, "lanes": 1})}
                    for solver, params in ALGORITHMS.items()
                ]  # fmt: skip
                least = min(point[2] for row in here for point in row["points"])
                print(f"\n{name}, alpha {alpha:g}, {loss}: F* {least:.7f}; passes (CPU seconds) to an excess of")
                for row in here:
                    row["least"] = least
                    row["reached"] = {f"{goal:g}": _first(row["points"], goal, least) for goal in CLOSER}
                    print(_passes_line(row), flush=True)
                rows += here
    return {"rows": rows}


def _excesses(lab: Lab, corpus: Corpus, params: Numbers) -> list[tuple[float, float, float]]:
    """Return passes, CPU seconds and the objective of each round."""
    fit, points = Fit(lab, corpus, "bcd", {**params, "dtype": "float64"}), []
    loss = loss_named(params["loss"])
    x, y = corpus.rows
    while fit.status == Status.RUNNING and fit.cpu < lab.limit and fit.rounds < lab.rounds:
        fit.round()
        w = fit.weights.astype(np.float64)
        value = float(np.mean(loss.values(x @ w, y))) + params["alpha"] * float(np.linalg.norm(w, axis=1).sum())
        points.append((fit.passes, fit.cpu, value))
        if len(points) > 20 and points[-20][2] <= value * (1 + 1e-12):
            break  # at the rounding level
    fit.close()
    return points


def _first(points: list[tuple[float, float, float]], goal: float, least: float) -> tuple[float, float] | None:
    return next((point[:2] for point in points if point[2] <= (1 + goal) * least), None)


def _passes_line(row: Numbers) -> str:
    cells = (
        f"{goal}: {'-':>15}" if spent is None else f"{goal}: {spent[0]:6.1f} ({spent[1]:5.2f} s)"
        for goal, spent in row["reached"].items()
    )
    return f"{row['solver']:26} " + "  ".join(cells)


# -- lanes -----------------------------------------------------------------------------------------------


def in_lanes(lab: Lab) -> Numbers:
    """Measure rounds and seconds to a relative objective of 1e-3, by the number of lanes."""
    rows = []
    for name in lab.sets or (DISTRIBUTED, "sector"):
        corpus = lab.corpus(name)
        for alpha in lab.alphas or (1e-3,):
            here = [_lane_curve(lab, corpus, alpha, lanes, sweeps) for sweeps in (5, 0) for lanes in LANES]
            least = min(min(row["objectives"]) for row in here)
            print(f"\n{name}, alpha {alpha:g}: F* {least:.6f}; rounds (seconds, CPU) to a relative objective")
            for row in here:
                row |= {"least": least, "reached": {str(goal): _in_rounds(row, goal, least) for goal in GOALS}}
                print(_lane_line(row), flush=True)
            rows += here
    return {"rows": rows}


def _lane_curve(lab: Lab, corpus: Corpus, alpha: float, lanes: int, sweeps: int) -> Numbers:
    """Follow a fit until it has come close to its end; every round must descend."""
    params = {"alpha": alpha, "lanes": lanes, "active_sweeps": sweeps, "algorithm": "sweeps", "tau": 1e-5}
    fit = Fit(lab, corpus, "bcd", params, processes=2)
    objectives: list[float] = []
    spent: list[tuple[float, float]] = []
    while fit.status == Status.RUNNING and fit.seconds < lab.limit and fit.rounds < lab.rounds:
        fit.round()
        objectives.append(corpus.objective(fit.weights, alpha))
        spent.append((fit.seconds, fit.cpu))
        if len(objectives) > 1 and objectives[-1] > objectives[-2] * (1 + 1e-9):
            raise RuntimeError(f"{corpus.name}, {lanes} lanes: round {fit.rounds} does not descend")
    fit.close()
    return {"set": corpus.name, "alpha": alpha, "lanes": lanes, "active sweeps": sweeps, "spent": spent,
            "objectives": objectives}  # fmt: skip


def _in_rounds(row: Numbers, goal: float, least: float) -> tuple[int, float, float] | None:
    for number, (value, (seconds, cpu)) in enumerate(zip(row["objectives"], row["spent"], strict=True), 1):
        if value <= (1 + goal) * least:
            return number, seconds, cpu
    return None


def _lane_line(row: Numbers) -> str:
    cells = (
        f"{goal}: {'-':>26}" if found is None else f"{goal}: {found[0]:4} ({found[1]:7.2f} s, {found[2]:7.2f} s)"
        for goal, found in row["reached"].items()
    )
    return f"active sweeps {row['active sweeps']}, lanes {row['lanes']}  " + "  ".join(cells)


# -- many classes ----------------------------------------------------------------------------------------


def many(lab: Lab) -> Numbers:
    """Measure a path of strengths on many classes."""
    corpus = lab.corpus("lshtc2")
    run = lab.place / f"many-{time.time_ns()}"
    given = [corpus.train, "-p", "alpha=path", "-p", "alphas=" + ":".join(map(str, MANY_ALPHAS))]
    workers = ["--workers", 2]
    plan = json.loads(Watched("plan", "bcd", *given[:1], "--json", *workers).out)
    fitted = Watched("fit", "bcd", given[0], run, *given[1:], "--select", corpus.test, *workers, "--quiet")
    rows = [
        {
            "alpha": child["params"]["alpha"],
            "error": 100 * child["error"],
            "rows": 100 * child["non_zero_rows"] / corpus.rows[0].shape[1],
            "status": child["status"],
        }
        for child in json.loads((run / "status.json").read_text())["children"]
    ]
    print(
        f"\nlshtc2: {len(distls.open_dataset(corpus.train).meta.classes)} classes, {corpus.rows[0].shape[1]} features"
    )
    for row in rows:
        print(f"alpha {row['alpha']:8.2e}  error {row['error']:5.2f} %  rows {row['rows']:6.2f} %  {row['status']}")
    peaks, limit = sorted(fitted.peaks.values()), plan["worker_bytes"]
    print(f"{fitted.seconds:.0f} s; plan {human(limit)} per worker, peaks {', '.join(map(human, peaks))}", flush=True)
    rivals = [_linear_svc(corpus, penalty) for penalty in ("l2", "l1")]
    claims: list[Numbers] = []
    _say(claims, "lshtc2, peak memory over the plan", max(peaks) / limit, 1.0)
    return {"rows": rows, "seconds": fitted.seconds, "peaks": peaks, "plan": limit, "rivals": rivals, "claims": claims}


def _linear_svc(corpus: Corpus, penalty: str) -> Numbers:
    """Fit scikit-learn's LinearSVC at the best of some strengths by the test error, which favours it."""
    from sklearn.svm import LinearSVC

    warnings.simplefilter("ignore")  # not all converge in the iterations they are given
    best: Numbers = {"error": math.inf}
    for strength in (0.3, 1.0, 3.0, 10.0):
        model = LinearSVC(C=strength, penalty=penalty, dual=penalty == "l2")
        began = time.perf_counter()
        model.fit(*corpus.rows)
        seconds, w = time.perf_counter() - began, model.coef_.T
        error = 100 * float(np.mean(model.predict(corpus.test_rows[0]) != corpus.test_rows[1]))
        if error < best["error"]:
            share = 100 * _rows_used(w) / len(w)
            best = {"penalty": penalty, "C": strength, "error": error, "rows": share, "seconds": seconds}
    print(
        f"LinearSVC {penalty}, C {best['C']:g}: error {best['error']:5.2f} %  rows {best['rows']:6.2f} %  "
        f"{best['seconds']:.1f} s",
        flush=True,
    )
    return best


# -- command ---------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Lab], Numbers]] = {
    "author": author,
    "figures": figures,
    "losses": losses,
    "passes": passes,
    "lanes": in_lanes,
    "many": many,
}


def main(argv: Sequence[str] | None = None) -> Numbers:
    """Run the requested parts, print their tables, write numbers and plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--part", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--real", type=Path, help="folder of the owners' files; see docs/papers/real-files.md")
    parser.add_argument("--sets", default="", help="default: those of each part")
    parser.add_argument("--alphas", default="", help="default: those of each part")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="of rcv1-4; default the paper's")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a curve or a fit may take")
    parser.add_argument("--rounds", type=int, default=MOST, help="that they may take")
    parser.add_argument("--directory", type=Path, help="where datasets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    options = parser.parse_args(argv)
    asked = options.part.split(",")
    if unknown := set(asked) - set(PARTS):
        parser.error(f"--part {','.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="distls-bcd-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        sets = tuple(filter(None, options.sets.split(",")))
        alphas = tuple(map(float, filter(None, options.alphas.split(","))))
        lab = Lab(
            options.data, place, sets, alphas, options.seeds, options.rows, options.limit, options.rounds, options.real
        )
        results: Numbers = {"cpus": os.cpu_count(), "seeds": lab.seeds}
        try:
            for part in asked:
                print(f"-- {part}", flush=True)
                results[part] = _finite(PARTS[part](lab))
                if options.out:  # after each
                    options.out.mkdir(parents=True, exist_ok=True)
                    (options.out / "results.json").write_text(json.dumps(results, indent=1))
        finally:
            for executor in lab.executors.values():
                executor.close()
    return results


if __name__ == "__main__":
    main()
