"""The experiments of "Constrained SGD for Large-scale Least Squares Problem" (Mu, Ding, Zhou, Tao 2013).

    DISTLS_DATA=FOLDER python -m benchmarks.papers.constrained_sgd [--part simulations,regret,adaline] [--seeds 5]
        [--directory FOLDER] [--out FOLDER]

--part simulations: section 5.1, `distls generate csgd` (10,000 rows of 100 features) and `csgd-wide` (5000 rows of
5000). Excess of the training loss (half the mean squared error) over its minimum after t rows, drawn with
replacement, and the CPU seconds that a lane spent on them, for SGD, the mean of its iterates (ASGD), NCSGD, CSGD,
recursive least squares (2SGD) and plain SGD on data centred by their running means. Steps are eta0/sqrt(t); CSGD's
are the paper's of two phases, which change at m = n/2. eta0 is a power of two over mean|x|^2, for each method the
one with the lowest mean excess at t = n, which is the reported loss; the excess with the eta0 that distls chooses on
a tenth of the rows is also reported. Recursive least squares is skipped if a seed would take longer than two
minutes. Means over seeds of the generator.

--part adaline: Figure 3, MNIST in DISTLS_DATA. Test error after 2^k rows, passes in random order, and CPU seconds,
for C-Adaline with the paper's 2^-4/sqrt(t), Adaline with the paper's constant step 2^-17, and Adaline with the
constant step and with the eta0/sqrt(t) that have the lowest error after 2^14 rows on a held-out fifth of the
training rows. Means over seeds of the orders.

--part regret: the regret of section 4 over rows t, of SGD and CSGD in plain NumPy.

One lane, in memory. Tables are printed, with expectations as PASS or FAIL; numbers go to --out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distls
from benchmarks.papers import least_squares
from distls.execution.serial import SerialExecutor
from distls.solvers.events import Callback, FitStart, RoundEvent
from distls.solvers.solver import State
from distls.solvers.status import Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.rows import DenseRows, Rows, concatenate_rows
from distls.workers.stochastic.constrained_sgd import ConstrainedUpdate
from distls.workers.stochastic.second_order.rls import RlsUpdate
from distls.workers.stochastic.sgd import SgdLearner, SgdUpdate
from distls.workers.stochastic.update import Learner, Update

Numbers = dict[str, Any]

POWERS = tuple(range(-6, 9))  # of two, over mean|x|^2: the grid of eta0
LONGEST = 120.0  # seconds a seed of recursive least squares may take
ALL_ONES = np.zeros(0)
# Binary logarithms of rows: where errors of Figure 3 are taken, and where steps are chosen.
FIRST, TUNED, LAST = 10, 14, 20
CONSTANTS = tuple(2.0**power for power in range(-14, -8))
DECAYING = tuple(2.0**power for power in range(-8, 0))
GOALS = (0.15, 0.145, 0.142)


@dataclass(frozen=True)
class Lab:
    """Where data sets are, and how much is measured.

    Attributes
    ----------
    source : Path or None
        The public sets.
    place : Path
        Datasets made.
    seeds : int
    sets : tuple of str
        Kinds of the simulations.
    rows : int or None
        Of the simulations; the paper's by default.
    last : int
        Figure 3 goes to 2^last rows.
    """

    source: Path | None
    place: Path
    seeds: int
    sets: tuple[str, ...]
    rows: int | None
    last: int

    def simulation(self, kind: str, seed: int) -> Dataset:
        """Return a generated set, made at the first request."""
        path = self.place / f"{kind}-{self.rows or 'all'}-{seed}"
        if not path.exists():
            distls.generate(kind, path, rows=self.rows, seed=seed)
        return distls.open_dataset(path)


@dataclass(frozen=True)
class Points:
    """Models at numbers of rows, side by side, and the seconds until then.

    Attributes
    ----------
    weights : (d, n_points * k)
    intercepts : (n_points * k,)
    seconds : (n_points,)
    """

    weights: NDArray[Any]
    intercepts: NDArray[np.float64]
    seconds: NDArray[np.float64]


def follow(
    update: Update, x: Rows, y: NDArray[Any], order: NDArray[np.int64], stops: Sequence[int], n_features: int,
    *, averaged: bool = False,
) -> Points:  # fmt: skip
    """Train a lane on the rows `order` and keep its models after each of `stops` rows.

    Parameters
    ----------
    averaged : bool
        Take the mean of all iterates.
    """
    k = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    start = update.zeros((n_features, k), np.float32)
    tail_from = 0.0 if averaged else math.inf
    update.start_lane(start, 0.0, tail_from).learn(x, y, ALL_ONES, order[:2])  # compiles
    learner = update.start_lane(start, 0.0, tail_from)
    weights, intercepts, seconds, done, spent = [], [], [], 0, 0.0
    with np.errstate(all="ignore"):  # steps that are too long diverge
        for stop in stops:
            began = time.thread_time()
            learner.learn(x, y, ALL_ONES, order[done:stop])
            spent, done = spent + time.thread_time() - began, stop
            w, b = _model(update, learner, averaged)
            weights.append(w)
            intercepts.append(b)
            seconds.append(spent)
    return Points(np.hstack(weights), np.concatenate(intercepts), np.array(seconds))


def _model(update: Update, learner: Learner, averaged: bool) -> tuple[NDArray[Any], NDArray[np.float64]]:
    if averaged:
        assert isinstance(learner, SgdLearner)
        return update.model(learner.window())
    return update.model(learner.snapshot())


def _all_rows(data: Dataset) -> tuple[Rows, Any]:
    """Return the whole of a dataset in memory."""
    parts = [data.read(index) for index in range(len(data))]
    return concatenate_rows([part.x for part in parts]), np.concatenate([part.y for part in parts])


# -- simulations -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A method of section 5.1.

    Attributes
    ----------
    name : str
    update : callable
        From (eta0, n_rows) to the update.
    averaged : bool
    chosen_by : (str, dict) or None
        Method and parameters of `distls.fit`, to see the eta0 that it chooses.
    powers : tuple of int
        Of eta0; a single one where there is no step.
    """

    name: str
    update: Callable[[float, int], Update]
    averaged: bool = False
    chosen_by: tuple[str, Numbers] | None = None
    powers: tuple[int, ...] = POWERS


# The constant feature that Theorem 2.1 needs is among the rows; centred rows have an intercept in its place.
_PLAIN: Numbers = {"loss": "squared", "alpha": 0.0, "fit_intercept": False}
_FIT: Numbers = {"loss": "squared", "fit_intercept": False}
CONTENDERS = (
    Contender(
        "SGD",
        lambda eta0, n: SgdUpdate(**_PLAIN, schedule="sqrt", eta0=eta0),
        chosen_by=("sgd", {**_FIT, "schedule": "sqrt", "average": "none"}),
    ),
    Contender(
        "ASGD",
        lambda eta0, n: SgdUpdate(**_PLAIN, schedule="sqrt", eta0=eta0, averaging=True),
        averaged=True,
        chosen_by=("sgd", {**_FIT, "schedule": "sqrt", "average": "all"}),
    ),
    Contender(
        "NCSGD",
        lambda eta0, n: ConstrainedUpdate(**_PLAIN, schedule="sqrt", eta0=eta0),
        chosen_by=("ncsgd", {"fit_intercept": False}),
    ),
    Contender(
        "CSGD",
        lambda eta0, n: ConstrainedUpdate(**_PLAIN, schedule="two-phase", eta0=eta0, switch=n / 2),
        chosen_by=("csgd", {"fit_intercept": False}),
    ),
    Contender(
        "centred SGD",
        lambda eta0, n: ConstrainedUpdate(
            **{**_PLAIN, "fit_intercept": True}, mode="centre", schedule="sqrt", eta0=eta0
        ),
        chosen_by=("sgd", {**_FIT, "schedule": "sqrt", "average": "none", "center": "running", "fit_intercept": True}),
    ),
    Contender("2SGD", lambda eta0, n: RlsUpdate(**{**_PLAIN, "alpha": 1e-6}, n_rows=n), powers=(0,)),
)


@dataclass(frozen=True)
class Simulation:
    """A generated set with its least-squares solution, and the rows drawn from it.

    Attributes
    ----------
    data : Dataset
    x : DenseRows
    y : (n, 1)
    fitted : (n,)
        Predictions of the minimiser.
    order : (2 n,)
    """

    data: Dataset
    x: DenseRows
    y: NDArray[np.float64]
    fitted: NDArray[np.float64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, data: Dataset, seed: int) -> Simulation:
        """Solve it and draw rows."""
        x, y = _all_rows(data)
        assert isinstance(x, DenseRows)
        wide = x.values.astype(np.float64)
        n, d = wide.shape
        # of as many features as rows the same, in a tenth of the time
        best = np.linalg.solve(wide, y) if n == d else np.linalg.lstsq(wide, y)[0]
        order = np.random.default_rng(seed).integers(0, n, 2 * n)
        return cls(data, x, y, (wide @ best)[:, 0], order)

    @property
    def optimum(self) -> float:
        """The lowest training loss."""
        return float(np.mean((self.y[:, 0] - self.fitted) ** 2)) / 2

    def excess(self, points: Points) -> NDArray[np.float64]:
        """Return the excess of each model; its gradient at the minimiser is 0."""
        with np.errstate(all="ignore"):
            scores = self.x.values @ points.weights + points.intercepts
            found = ((scores - self.fitted[:, None]) ** 2).mean(axis=0) / 2
        return np.where(np.isfinite(found), found, np.inf)

    def chosen_power(self, method: str, params: Numbers) -> float:
        """Return the binary logarithm of the eta0 that `distls.fit` chooses, times mean|x|^2."""
        watch = _Step()
        distls.fit(
            method, self.data, params={"lanes": 1, **params}, passes=1, eval_every=0,
            executor=SerialExecutor(), callbacks=[watch],
        )  # fmt: skip
        return math.log2(watch.chosen * self.data.meta.mean_square_norm)


class _Step(Callback):
    """Remembers the step that a fit chose."""

    chosen = math.nan

    def on_start(self, start: FitStart) -> None:
        """Nothing to do."""

    def on_round(self, event: RoundEvent) -> None:
        """Take it from the trials reported by the round."""
        self.chosen = event.record["details"]["tried"]["chosen"]["eta0"]

    def on_end(self, status: Status, state: State) -> None:
        """Nothing to do."""


def simulations(lab: Lab) -> list[Numbers]:
    """Measure both simulations of section 5.1."""
    return [_simulate(lab, kind) for kind in lab.sets]


def _simulate(lab: Lab, kind: str) -> Numbers:
    curves: dict[str, list[Numbers]] = {}
    norms, optima, left_out, n = [], [], None, 0
    for seed in range(lab.seeds):
        made = Simulation.of(lab.simulation(kind, seed), seed)
        n = len(made.y)
        norms.append(made.data.meta.mean_square_norm)
        optima.append(made.optimum)
        for contender in CONTENDERS:
            if contender.name == "2SGD":
                left_out = left_out if seed else _too_long(contender, made)
                if left_out:
                    continue
            curves.setdefault(contender.name, []).append(_curves(contender, made, _stops(n)))
    found: Numbers = {
        "kind": kind, "rows": n, "features": made.data.meta.n_features, "stops": _stops(n), "shown": _shown(n),
        "mean|x|^2": float(np.mean(norms)), "optimum": float(np.mean(optima)), "left out": left_out,
        "methods": {name: _summary(runs, _stops(n).index(n)) for name, runs in curves.items()},
    }  # fmt: skip
    found["checks"] = _checks(found)
    _print_simulation(found)
    return found


def _shown(n: int) -> list[int]:
    """Return the numbers of rows of the tables."""
    return sorted({t for t in (100, 1000) if t < n // 2} | {n // 2, n, 2 * n})


def _stops(n: int) -> list[int]:
    """Return those of the curves too."""
    steps = {base * 10**power for power in range(1, 8) for base in (1, 2, 3, 5)}
    return sorted({t for t in steps if t < 2 * n} | set(_shown(n)))


def _too_long(contender: Contender, made: Simulation) -> str | None:
    """Return why recursive least squares is not run, from the time of some rows."""
    update, rows = contender.update(1.0, len(made.y)), 10
    few = follow(update, made.x, made.y, made.order, [rows], made.x.values.shape[1])
    each = few.seconds[-1] / rows
    whole = each * len(made.order)
    return f"2SGD: {each * 1e3:.2f} ms per row, {whole:.0f} s for {len(made.order)}" if whole > LONGEST else None


def _curves(contender: Contender, made: Simulation, stops: list[int]) -> Numbers:
    """Return excess and seconds with every eta0, shape (n_powers, n_stops), and the power that distls chooses."""
    n, d = made.x.values.shape
    runs = [
        follow(
            contender.update(2.0**power / made.data.meta.mean_square_norm, n),
            made.x, made.y, made.order, stops, d, averaged=contender.averaged,
        )
        for power in contender.powers
    ]  # fmt: skip
    together = Points(
        np.hstack([run.weights for run in runs]), np.concatenate([run.intercepts for run in runs]), np.zeros(0)
    )
    chosen = made.chosen_power(*contender.chosen_by) if contender.chosen_by else None
    return {
        "excess": made.excess(together).reshape(len(runs), len(stops)),
        "seconds": np.array([run.seconds for run in runs]),
        "powers": contender.powers,
        "chosen": None if chosen is None else round(chosen),
    }


def _summary(runs: list[Numbers], at_n: int) -> Numbers:
    """Return a method's means over seeds: with the best eta0, with all at t = n, and with that of distls."""
    powers = runs[0]["powers"]
    excess = np.array([run["excess"] for run in runs])
    mean = excess.mean(axis=0)
    best = int(np.argmin(mean[:, at_n]))
    found: Numbers = {
        "power": powers[best] if len(powers) > 1 else None,
        "excess": [_finite(value) for value in mean[best]],
        "spread at n": _finite(excess[:, best, at_n].std()),
        "seconds": [float(value) for value in np.mean([run["seconds"][best] for run in runs], axis=0)],
        "at n by power": {str(power): _finite(value) for power, value in zip(powers, mean[:, at_n], strict=True)},
    }
    if len(powers) > 1:
        chosen = [run["chosen"] for run in runs]
        own = [run["excess"][powers.index(power), at_n] for run, power in zip(runs, chosen, strict=True)]
        found |= {"chosen powers": chosen, "chosen excess at n": _finite(np.mean(own))}
    return found


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _at(found: Numbers, name: str, t: int) -> float:
    value = found["methods"][name]["excess"][found["stops"].index(t)]
    return math.inf if value is None else float(value)


def _checks(found: Numbers) -> list[Numbers]:
    """Compare excesses at t = n."""
    n = found["rows"]
    sgd, projected = _at(found, "SGD", n), {name: _at(found, name, n) for name in ("NCSGD", "CSGD")}
    checks = []
    if found["kind"] == "csgd":
        checks.append(_check("CSGD's excess over SGD's", projected["CSGD"] / sgd, 0.1))
    else:
        checks += [_check(f"{name}'s excess over SGD's", value / sgd, 0.6) for name, value in projected.items()]
    if "2SGD" in found["methods"]:
        checks.append(_check("CSGD's excess over 2SGD's", projected["CSGD"] / _at(found, "2SGD", n), 2.0))
    centred = _at(found, "centred SGD", n) / min(projected.values())
    checks.append(_check("centred SGD's excess over the better projection's", centred, 1.0))
    return checks


def _check(what: str, value: float, most: float, least: float = -math.inf) -> Numbers:
    bound = f"at most {most:g}" if math.isinf(least) else f"{least:g} to {most:g}"
    return {"what": what, "value": value, "bound": bound, "passed": bool(least <= value <= most)}


def _print_checks(checks: list[Numbers]) -> None:
    for check in checks:
        print(
            f"{'PASS' if check['passed'] else 'FAIL'}  {check['what']}: {check['value']:.3f} ({check['bound']})",
            flush=True,
        )


def _print_simulation(found: Numbers) -> None:
    n, shown = found["rows"], found["shown"]
    print(
        f"\n{found['kind']}, {n} rows of {found['features']} features, mean|x|^2 {found['mean|x|^2']:.1f}, lowest loss "
        f"{found['optimum']:.3g}: excess after t rows; CPU time until t = n, and until SGD's and CSGD's excess "
        "there; distls' own eta0"
    )
    columns = "".join(f"{f't={t}':>10}" for t in shown)
    heads = "".join(f"{head:>11}" for head in ("ms to n", "ms to SGD", "ms to CSGD", "own at n"))
    print(f"{'method':12} {'eta0':>5}{columns}{heads}  own eta0")
    for name, row in found["methods"].items():
        values = "".join(f"{_short(_at(found, name, t)):>10}" for t in shown)
        to_n = 1e3 * row["seconds"][found["stops"].index(n)]
        reached = "".join(f"{_short(_ms_to(found, name, _at(found, goal, n))):>11}" for goal in ("SGD", "CSGD"))
        power = "" if row["power"] is None else f"2^{row['power']}"
        own = row.get("chosen excess at n", "")
        print(
            f"{name:12} {power:>5}{values}{to_n:>11.2f}{reached}{_short(own) if own != '' else '':>11}  "
            + ",".join(f"2^{chosen}" for chosen in row.get("chosen powers", []))
        )
    print("excess at t = n by the binary logarithm of eta0 mean|x|^2")
    for name, row in found["methods"].items():
        if row["power"] is not None:
            pairs = "  ".join(f"{power}: {_short(value)}" for power, value in row["at n by power"].items())
            print(f"{name:12} {pairs}")
    if found["left out"]:
        print(f"left out: {found['left out']}")
    _print_checks(found["checks"])


def _ms_to(found: Numbers, name: str, goal: float) -> float | None:
    """Return the milliseconds until the first point of a method's curve that is at `goal` or below."""
    seconds = found["methods"][name]["seconds"]
    reached = (s for t, s in zip(found["stops"], seconds, strict=True) if _at(found, name, t) <= goal)
    first = next(reached, None)
    return None if first is None else 1e3 * float(first)


def _short(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


# -- Figure 3 --------------------------------------------------------------------------------------------

_DIGITS: Numbers = {"loss": "squared", "alpha": 0.0, "fit_intercept": True}


@dataclass(frozen=True)
class Digits:
    """Training rows, and those that errors are taken on."""

    x: Rows
    y: NDArray[np.int32]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int32]

    @classmethod
    def of(cls, train: Path, test: Path) -> Digits:
        """Read both."""
        x, y = _all_rows(distls.open_dataset(train))
        test_x, test_y = _all_rows(distls.open_dataset(test))
        return cls(x, y, _dense(test_x, distls.open_dataset(train).meta.n_features), test_y)

    def errors(self, update: Update, seed: int, stops: list[int]) -> tuple[list[float], list[float]]:
        """Return errors and seconds after `stops` rows; every pass has its own order."""
        generator, n, d = np.random.default_rng(seed), len(self.y), self.test_x.shape[1]
        passes = -(-stops[-1] // n)
        order = np.concatenate([generator.permutation(n) for _ in range(passes)])
        points = follow(update, self.x, self.y, order, stops, d)
        scores = self.test_x @ points.weights.astype(np.float32) + points.intercepts
        best = scores.reshape(len(self.test_y), len(stops), -1).argmax(axis=2)
        return [float(e) for e in (best != self.test_y[:, None]).mean(axis=0)], list(points.seconds)


def _dense(x: Rows, n_features: int) -> NDArray[np.float32]:
    if isinstance(x, DenseRows):
        return x.values
    dense = np.zeros((len(x.indptr) - 1, n_features), np.float32)
    dense[np.repeat(np.arange(len(dense)), np.diff(x.indptr)), x.indices] = x.data
    return dense


def _adaline(schedule: str, eta0: float) -> Update:
    return SgdUpdate(**_DIGITS, schedule=schedule, eta0=eta0)


def adaline(lab: Lab) -> Numbers:
    """Measure Figure 3."""
    if lab.source is None:
        sys.exit("set DISTLS_DATA to the folder of the data sets")
    data = least_squares.mnist(least_squares.Lab(lab.source, lab.place, SerialExecutor(), lab.seeds, share=1.0))
    parts = Digits.of(data.with_name("mnist-part"), data.with_name("mnist-part-val"))
    constant = _tuned(parts, lab, "constant", CONSTANTS)
    decaying = _tuned(parts, lab, "sqrt", DECAYING)
    whole = Digits.of(data, data.with_name("mnist-test"))
    stops = [2**k for k in range(FIRST, lab.last + 1)]
    updates: dict[str, Update] = {
        "C-Adaline, 2^-4/sqrt(t)": ConstrainedUpdate(**_DIGITS, schedule="sqrt", eta0=2.0**-4),
        "Adaline, 2^-17": _adaline("constant", 2.0**-17),
        f"Adaline, 2^{math.log2(constant):.0f} (tuned)": _adaline("constant", constant),
        f"Adaline, 2^{math.log2(decaying):.0f}/sqrt(t) (tuned)": _adaline("sqrt", decaying),
    }
    found: Numbers = {"stops": stops, "tuned": {"constant": constant, "sqrt": decaying}, "methods": {}}
    for name, update in updates.items():
        runs = [whole.errors(update, seed, stops) for seed in range(lab.seeds)]
        each, seconds = (np.array([run[part] for run in runs]) for part in (0, 1))
        error, spent = ([float(v) for v in values.mean(axis=0)] for values in (each, seconds))
        reached = {
            str(goal): next(([t, s] for t, s, e in zip(stops, spent, error, strict=True) if e <= goal), None)
            for goal in GOALS
        }
        found["methods"][name] = {
            "error": error, "spread": [float(v) for v in each.std(axis=0)], "seconds": spent, "reached": reached
        }  # fmt: skip
    found["checks"] = _adaline_checks(found)
    _print_adaline(found)
    return found


def _tuned(parts: Digits, lab: Lab, schedule: str, values: Sequence[float]) -> float:
    """Return the step with the lowest mean error on held-out rows."""
    stop = 2 ** min(TUNED, lab.last)

    def error(eta0: float) -> float:
        runs = [parts.errors(_adaline(schedule, eta0), seed, [stop])[0][0] for seed in range(lab.seeds)]
        return float(np.mean(runs))

    return min(values, key=error)


def _adaline_checks(found: Numbers) -> list[Numbers]:
    checks = []
    for name, k, most, least in (
        ("C-Adaline, 2^-4/sqrt(t)", 14, 0.150, -math.inf),
        ("Adaline, 2^-17", 20, 0.144, 0.138),
    ):
        if 2**k in found["stops"]:
            error = found["methods"][name]["error"][found["stops"].index(2**k)]
            checks.append(_check(f"test error of {name} after 2^{k} rows", error, most, least))
    return checks


def _print_adaline(found: Numbers) -> None:
    print("\nMNIST: test error after 2^k rows")
    print(f"{'method':30}" + "".join(f"{f'2^{math.log2(t):.0f}':>7}" for t in found["stops"]) + "  us per row")
    for name, row in found["methods"].items():
        each = 1e6 * row["seconds"][-1] / found["stops"][-1]
        print(f"{name:30}" + "".join(f"{error:7.4f}" for error in row["error"]) + f"{each:10.2f}")
    print("rows (CPU seconds) to a test error")
    print(f"{'method':30}" + "".join(f"{goal:>20}" for goal in GOALS))
    for name, row in found["methods"].items():
        print(f"{name:30}" + "".join(f"{_reached(value):>20}" for value in row["reached"].values()))
    _print_checks(found["checks"])


def _reached(value: list[float] | None) -> str:
    return "-" if value is None else f"2^{math.log2(value[0]):.0f} ({value[1]:.3f} s)"


# -- the regret ------------------------------------------------------------------------------------------


def regret(lab: Lab) -> Numbers:
    """Measure the regret of section 4 on rows of section 5.1, with noise and without, which the theorem needs."""
    found: Numbers = {}
    for name, noise in (("noise of variance 0.2", math.sqrt(0.2)), ("no noise", 0.0)):
        runs = [_regrets(lab.rows or 10_000, noise, seed) for seed in range(lab.seeds)]
        stops = [int(t) for t in np.unique(np.geomspace(10, len(runs[0]["SGD, sqrt"]), 30).astype(int))]
        mean = {m: np.mean([run[m] for run in runs], axis=0)[np.array(stops) - 1] for m in runs[0]}
        found[name] = {
            "stops": stops, "methods": {m: [_finite(value) for value in values] for m, values in mean.items()}
        }  # fmt: skip
        print(f"\nregret, {name}: after {stops[9]}, {stops[19]} and {stops[-1]} rows")
        for method, values in mean.items():
            print(f"{method:16} " + " ".join(f"{values[i]:10.1f}" for i in (9, 19, -1)), flush=True)
    return found


def _regrets(n: int, noise: float, seed: int) -> dict[str, NDArray[np.float64]]:
    """Return the regret after each row: sums of l_t(w_t) - l_t(w*), with the best steps of Figure 2."""
    rng = np.random.default_rng(seed)
    x = np.hstack([np.ones((n, 1)), rng.uniform(0.0, 1.0, (n, 100))])
    y = x @ rng.standard_normal(101) + noise * rng.standard_normal(n)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    square = float(np.square(x).sum(axis=1).mean())
    steps: dict[str, Callable[[int], float]] = {
        "sqrt": lambda t: t**-0.5, "two-phase": lambda t: t**-0.5 if t < n / 2 else math.sqrt(n / 2) / t,
    }  # fmt: skip
    return {
        f"{method}, {schedule}": _walked(x, y, best, lambda t, s=schedule, e=eta0: e / square * steps[s](t), project)
        for method, eta0, project in (("SGD", 4.0, False), ("CSGD", 16.0, True))
        for schedule in steps
    }


def _walked(
    x: NDArray[Any], y: NDArray[Any], best: NDArray[Any], eta: Callable[[int], float], project: bool
) -> NDArray[np.float64]:
    """Take Algorithm 1 as printed over the rows, each once."""
    w, mean_x, mean_y, lost = np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0.0, np.empty(len(y))
    for t, (row, target) in enumerate(zip(x, y, strict=True), start=1):
        off = row @ w - target
        lost[t - 1] = 0.5 * off**2 - 0.5 * (row @ best - target) ** 2
        mean_x, mean_y = mean_x + (row - mean_x) / t, mean_y + (target - mean_y) / t
        w = w - eta(t) * off * row
        if project:
            w = w - mean_x * ((mean_x @ w - mean_y) / (mean_x @ mean_x))
    return np.cumsum(lost)


# -- command ---------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Lab], Any]] = {"simulations": simulations, "regret": regret, "adaline": adaline}


def main(argv: Sequence[str] | None = None) -> Numbers:
    """Run the requested parts, print their tables, write numbers and plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--part", default=",".join(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", default="csgd,csgd-wide", help="of the simulations")
    parser.add_argument("--rows", type=int, help="of the simulations; default the paper's")
    parser.add_argument("--last", type=int, default=LAST, help="Figure 3 goes to 2^LAST rows")
    parser.add_argument("--directory", type=Path, help="where datasets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    options = parser.parse_args(argv)
    asked = options.part.split(",")
    unknown = set(asked) - set(PARTS)
    if unknown:
        parser.error(f"--part {','.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="distls-csgd-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        sets = tuple(options.sets.split(","))
        lab = Lab(options.data, place, options.seeds, sets, options.rows, options.last)
        results: Numbers = {"cpus": os.cpu_count(), "seeds": lab.seeds}
        for part in asked:
            results[part] = PARTS[part](lab)
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / "results.json").write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
