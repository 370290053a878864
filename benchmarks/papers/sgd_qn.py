"""The experiments of "SGD-QN: Careful Quasi-Newton Stochastic Gradient Descent" (Bordes, Bottou, Gallinari 2009).

    python -m benchmarks.papers.sgd_qn [--part passes,curves,lanes,rounds] [--seeds 3]
        [--sets rcv1,alpha,delta,axis] [--rows N] [--directory FOLDER] [--out FOLDER]

`passes` (Table 5): seconds of a pass of one core over rows in memory, each partition's rows in random order: medians
of five passes after one that is not counted. "naive SGD" is `svmsgd2` with skip=1; on sparse rows it and oLBFGS are
timed on a few of them and scaled. "SVMSGD2, sparse rows" are the dense ones as pairs of index and value (section 4).
`curves` (Figures 3 and 4): the relative excess of the primal cost, P/P* - 1, and the test error after 1, 2, 5 and 10
passes, each a separate `distls.fit` with the default trials of t0 and eta0; means over seeds. "paper" is as printed.
P = alpha/2 |w|^2 + mean 1/2 max(0, 1 - y w x)^2 is computed from the model; P* is LIBLINEAR's primal solver's
(scikit-learn's LinearSVC, C = 1/(2 alpha n)). Seconds are those of training, reading and trying included, in one
process; lanes take turns there. LIBLINEAR's dual solver and SGDClassifier are measured in the same run, after as many
passes, on rows in memory, with one seed. oLBFGS, whose vectors are dense, makes one pass over more than 20,000 sparse
rows.
`lanes`: the objective and the test error (mean squared error of `csgd`) after 1, 2, 5 and 10 passes in 1 to 16 lanes.
`rounds`: the same of 8 lanes after 1, 2 and 5 passes, averaged at most 1, 2, 4 or 8 times per pass.

The sparse set is class 1 of `distls generate rcv1-4` against the rest; alpha, delta and axis are dense, 500 features.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distls
from benchmarks.papers.owners import are_there, made
from benchmarks.quality.real import arrays_of
from distls.reporting.costs import round_seconds
from distls.storage.rows import CsrRows, Rows
from distls.workers.stochastic.second_order.olbfgs import OlbfgsUpdate
from distls.workers.stochastic.second_order.sgdqn import SgdqnUpdate
from distls.workers.stochastic.update import Update

Numbers = dict[str, Any]

SHAPES = {"rcv1": 1e-4, "alpha": 1e-5, "delta": 1e-4, "axis": 1e-5}  # and the paper's lambda
TIMED = ("rcv1", "alpha")  # of them in Table 5
PASSES = (1, 2, 5, 10)
LANES = (1, 2, 4, 8, 16)
LANES_ROWS = 2**17
DIAGONALS = ("gauss-newton", "secant", "paper")
SKIP = 16  # times the share of non-zeros: the paper's c
NAIVE_ROWS = 2000  # of sparse rows
OLBFGS_ROWS = 20_000  # of sparse rows: a step takes some 40 times as many operations as there are features
IN_PAIRS = "SVMSGD2, sparse rows"
# Nanoseconds a non-zero of a plain C++ program on the sparse set, and how much more is allowed.
PLAIN = {"SVMSGD2": 1.43, "SGD-QN gauss-newton": 1.58}
ALLOWED = 1.3


@dataclass(frozen=True)
class Method:
    """A method of `distls`, and the parameters that make it one of the compared ones."""

    name: str
    method: str
    params: Mapping[str, Any]


SVMSGD2 = Method("SVMSGD2", "svmsgd2", {})
QN = Method("SGD-QN default", "sgdqn", {})
SGD_QN = tuple(Method(f"SGD-QN {diagonal}", "sgdqn", {"diagonal": diagonal}) for diagonal in DIAGONALS)
HINGE = {"loss": "ovr_squared_hinge"}
SGD = Method("sgd adaptive", "sgd", HINGE)
ASGD = Method("asgd", "asgd", HINGE)
OLBFGS = Method("oLBFGS", "olbfgs", {})
# its gains and its damping as published, of twice the objective
OLBFGS_PAPER = Method("oLBFGS paper", "olbfgs", {"eta0": 0.1, "tau": 1e4, "damping": 0.2})
IN_LANES = (
    Method("mcid log", "mcid", {"loss": "log"}),
    Method("sgd adaptive log", "sgd", {"loss": "log"}),
    SGD_QN[0],
    SVMSGD2,
    Method("csgd", "csgd", {"alpha": 0.0}),
)


class Lab:
    """Datasets of a shape, made once, and the runs on them."""

    def __init__(
        self,
        place: Path,
        seeds: int,
        rows: int | None,
        repeats: int,
        sets: Sequence[str],
        real: Path | None = None,
        lanes: Sequence[int] = (1, 8),
    ) -> None:
        self.place, self.seeds, self.rows, self.repeats, self.sets = place, seeds, rows, repeats, sets
        self.real, self.lanes = real, lanes

    def made(self, kind: str, rows: int | None) -> Path:
        """Return a set of the owners' files or a generated one, in partitions small enough for 16 lanes."""
        path = self.place / f"{kind}-{rows or 'all'}"
        row_bytes = {"rcv1-4": 550, "rcv1": 550, "csgd": 400}.get(kind, 2000)
        size = min((rows or 100_000) * row_bytes // 64, 2**21)
        return made(kind, path, real=self.real, rows=rows, partition_size=size)

    def pair(self, shape: str) -> tuple[Path, Path]:
        """Return the training and the test set of one of `SHAPES`."""
        if shape != "rcv1":
            train = self.made(shape, self.rows)
            return train, train.with_name(f"{train.name}-test")
        if are_there("rcv1", self.real):
            train = self.made("rcv1", self.rows)
            return train, train.with_name(f"{train.name}-test")
        source = self.made("rcv1-4", self.rows)
        train, test = (self.place / f"rcv1-binary-{self.rows or 'all'}{part}" for part in ("", "-test"))
        for path, part in ((train, ""), (test, "-test")):
            if not path.exists():
                x, y = arrays_of(source.with_name(f"{source.name}{part}"))
                size = min(x.nnz * 6 // 64, 2**21)
                distls.ingest(x, path, y=(y == 1).astype(np.int64), partition_size=size, shuffle=False)
        return train, test

    def optimum(self, train: Path, alpha: float, x: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weights of LIBLINEAR's primal solver, solved once."""
        from sklearn.svm import LinearSVC

        kept = self.place / f"{train.name}.{alpha:g}.optimum.npy"
        if not kept.exists():
            model = LinearSVC(dual=False, C=1 / (2 * alpha * len(y)), fit_intercept=False, tol=1e-6)
            np.save(kept, model.fit(x, y).coef_[0])
        return np.asarray(np.load(kept))


def _say(found: list[Numbers], claim: str, measured: float, bar: float, *, least: bool = False) -> None:
    """Print whether a claim holds, and keep it."""
    holds = bool(measured >= bar if least else measured <= bar)  # a NaN fails
    found.append({"claim": claim, "measured": float(measured), "bar": bar, "holds": holds})
    print(f"{'PASS' if holds else 'FAIL'}: {claim}: {measured:.4g}, {'at least' if least else 'at most'} {bar:g}")


# -- Table 5 ---------------------------------------------------------------------------------------------


def passes(lab: Lab) -> Numbers:
    """Measure Table 5: seconds per pass."""
    rows: list[Numbers] = []
    claims: list[Numbers] = []
    for shape in TIMED:
        train, _ = lab.pair(shape)
        data = distls.open_dataset(train)
        meta, parts = data.meta, [data.read(i) for i in range(len(data))]
        # copies: what was read may be a view of a file
        blocks = [(_copy(part.x), np.array(part.y, np.int32)) for part in parts]
        skip = max(round(SKIP * meta.n_rows * meta.n_features / meta.nnz), 1)
        print(f"\n{shape}: {meta.n_rows} rows, {meta.nnz} non-zeros, skip {skip}: a pass")
        for name, update in _updates(SHAPES[shape], skip, meta.mean_square_norm).items():
            if name == IN_PAIRS and shape == "rcv1":
                continue  # as its rows are
            few = NAIVE_ROWS if name in ("naive SGD", "oLBFGS") and shape == "rcv1" else meta.n_rows
            given = _in_pairs(blocks) if name == IN_PAIRS else blocks
            seconds, learned = _seconds_a_pass(update, meta.n_features, given, few, lab.repeats)
            seconds *= meta.n_rows / learned
            row = {"set": shape, "name": name, "seconds": seconds, "rows timed": learned}
            row |= {"ns a non-zero": 1e9 * seconds / meta.nnz, "M non-zeros/s": meta.nnz / seconds / 1e6}
            rows.append(row)
            scaled = f"  (timed on {learned} rows)" if learned < meta.n_rows else ""
            print(
                f"{name:>20}  {seconds:8.4f} s  {row['ns a non-zero']:7.2f} ns a non-zero"
                f"  {row['M non-zeros/s']:7.1f} M non-zeros/s{scaled}",
                flush=True,
            )
        took = {row["name"]: row["seconds"] for row in rows if row["set"] == shape}
        if shape == "rcv1":
            _say(claims, "rcv1, naive SGD over SVMSGD2", took["naive SGD"] / took["SVMSGD2"], 100.0, least=True)
            for name, plain in PLAIN.items():
                here = 1e9 * took[name] / meta.nnz
                _say(claims, f"rcv1, {name} over plain C++, ns a non-zero", here / plain, ALLOWED)
        ratio = took["SGD-QN gauss-newton"] / took["SVMSGD2"]
        _say(claims, f"{shape}, SGD-QN gauss-newton over SVMSGD2", ratio, 2.0)
    return {"rows": rows, "claims": claims}


def _copy(x: Rows) -> Any:
    return type(x)(*(np.array(array) for array in x))


def _in_pairs(blocks: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return dense rows with an index for each value; sparse ones as they are."""
    return [(x if isinstance(x, CsrRows) else _pairs(x.values), y) for x, y in blocks]


def _pairs(values: NDArray[Any]) -> CsrRows:
    n, d = values.shape
    return CsrRows(np.arange(n + 1) * d, np.tile(np.arange(d, dtype=np.uint16), n), values.reshape(-1))


def _updates(alpha: float, skip: int, mean_square_norm: float) -> dict[str, Update]:
    common: Numbers = {"loss": "binary_squared_hinge", "alpha": alpha, "fit_intercept": False}
    t0 = 10 * mean_square_norm / alpha
    named: dict[str, Update] = {
        "naive SGD": SgdqnUpdate(**common, t0=t0, skip=1),
        "SVMSGD2": SgdqnUpdate(**common, t0=t0, skip=skip),
        IN_PAIRS: SgdqnUpdate(**common, t0=t0, skip=skip),
    }
    for diagonal in DIAGONALS:
        named[f"SGD-QN {diagonal}"] = SgdqnUpdate(**common, t0=t0, skip=skip, metric=diagonal)
    named["oLBFGS"] = OlbfgsUpdate(**common, eta0=0.1, tau=1e4, damping=0.1, rank=10)
    return named


def _seconds_a_pass(
    update: Update, n_features: int, blocks: list[tuple[Any, Any]], most: int, repeats: int
) -> tuple[float, int]:
    """Return the median over passes, and the rows of a pass."""
    rng, every = np.random.default_rng(0), np.empty(0)
    orders = [rng.permutation(len(y))[: max(most - before, 0)] for (_, y), before in _starts(blocks)]
    learner = update.start_lane(update.zeros((n_features, 1), np.float32), 0.0)
    learner.learn(*blocks[0], every, orders[0][:10])  # compiled now, if it is not yet
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        for (x, y), order in zip(blocks, orders, strict=True):
            if len(order):
                learner.learn(x, y, every, order)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[1:])), sum(map(len, orders))


def _starts(blocks: list[tuple[Any, Any]]) -> list[tuple[tuple[Any, Any], int]]:
    ends = np.cumsum([len(y) for _, y in blocks])
    return [(block, int(end) - len(block[1])) for block, end in zip(blocks, ends, strict=True)]


# -- Figures 3 and 4 -------------------------------------------------------------------------------------


def curves(lab: Lab) -> Numbers:
    """Measure Figures 3 and 4: excess and test error against passes and seconds."""
    rows: list[Numbers] = []
    claims: list[Numbers] = []
    for shape in lab.sets:
        alpha = SHAPES[shape]
        train, test = lab.pair(shape)
        scale = Scale(lab, train, test, alpha)
        print(
            f"\n{shape}, alpha {alpha:g}: P* {scale.least:.6f}, test error {scale.error:.2f} %;"
            f" excess / test error % (seconds) after {', '.join(map(str, PASSES))} passes"
        )
        for lanes in lab.lanes:
            for method in (SVMSGD2, QN, *SGD_QN, SGD, ASGD, OLBFGS, OLBFGS_PAPER):
                long = method.method == "olbfgs" and shape == "rcv1" and scale.n_rows > OLBFGS_ROWS
                if (lanes == 1 or method.method != "olbfgs") and not (long and method is OLBFGS_PAPER):
                    asked = PASSES[: 1 if long else None]
                    points = [_point(lab, method, train, alpha, lanes, n, scale, not long) for n in asked]
                    rows.append({"set": shape, "name": method.name, "lanes": lanes, "points": points})
                    _print_points(f"{method.name}, {lanes} lane{'s'[: lanes > 1]}", points)
        for name, make in _rivals(alpha, scale.n_rows).items():
            points = [_rival_point(make, n, scale) for n in PASSES]
            rows.append({"set": shape, "name": name, "lanes": None, "points": points})
            _print_points(name, points)
        rows.append({"set": shape, "name": "optimum", "P": scale.least, "test error": scale.error})
        _curve_claims(claims, shape, rows, scale.error, lab.lanes)
    return {"rows": rows, "claims": claims}


class Scale:
    """The rows of a set in memory and its optimum, to evaluate models."""

    def __init__(self, lab: Lab, train: Path, test: Path, alpha: float) -> None:
        self.alpha = alpha
        (self.x, y), (self.test_x, test_y) = arrays_of(train), arrays_of(test)
        self.codes = y
        self.signs, self.test_signs = (np.where(labels == 1, 1.0, -1.0) for labels in (y, test_y))
        self.n_rows = len(y)
        best = lab.optimum(train, alpha, self.x, y)
        self.least, self.error = self._primal(best), self._error(best)

    def of(self, w: NDArray[Any]) -> tuple[float, float]:
        """Return the excess and the test error in %."""
        return self._primal(w) / self.least - 1, self._error(w)

    def _primal(self, w: NDArray[Any]) -> float:
        short = np.maximum(1 - self.signs * (self.x @ w.astype(np.float32)), 0)
        return float(
            self.alpha / 2 * np.sum(np.square(w, dtype=np.float64)) + np.mean(np.square(short, dtype=np.float64)) / 2
        )

    def _error(self, w: NDArray[Any]) -> float:
        return 100 * float(np.mean((self.test_x @ w.astype(np.float32) > 0) != (self.test_signs > 0)))


def _point(
    lab: Lab, method: Method, train: Path, alpha: float, lanes: int, n_passes: int, scale: Scale, twice: bool
) -> Numbers:
    """Return means over seeds; the first run of a method may be done twice, as it loads code."""
    # the binary squared hinge has no 1/2 here: twice the paper's objective
    params = {**method.params, "alpha": 2.0 * alpha, "lanes": lanes, "fit_intercept": False}
    found = []
    for seed in [0] * (twice and n_passes == PASSES[0]) + list(range(lab.seeds)):
        fitted = distls.fit(method.method, train, params=params, passes=n_passes, eval_every=0, seed=seed)
        if fitted.model is None:
            return {"passes": n_passes, "excess": None, "error": None, "seconds": None}
        w = fitted.model.weights[:, 0]
        found.append((*scale.of(w), round_seconds(fitted.record)))
    return _mean_point(n_passes, found[-lab.seeds :])


def _mean_point(n_passes: int, found: list[tuple[float, float, float]]) -> Numbers:
    excess, error, seconds = (float(value) for value in np.mean(found, axis=0))
    return {"passes": n_passes, "excess": excess, "error": error, "seconds": seconds}


def _rivals(alpha: float, n_rows: int) -> dict[str, Callable[[int, int], Any]]:
    from sklearn.linear_model import SGDClassifier
    from sklearn.svm import LinearSVC

    return {
        "LIBLINEAR dual": lambda n, seed: LinearSVC(
            C=1 / (2 * alpha * n_rows), fit_intercept=False, max_iter=n, tol=1e-9, random_state=seed
        ),
        "SGDClassifier": lambda n, seed: SGDClassifier(
            "squared_hinge", alpha=2 * alpha, fit_intercept=False, max_iter=n, tol=None, random_state=seed
        ),
    }


def _rival_point(make: Callable[[int, int], Any], n_passes: int, scale: Scale) -> Numbers:
    model = make(n_passes, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is not to converge
        began = time.perf_counter()
        model.fit(scale.x, scale.codes)
        seconds = time.perf_counter() - began
    return _mean_point(n_passes, [(*scale.of(model.coef_[0]), seconds)])


def _print_points(name: str, points: list[Numbers]) -> None:
    shown = (
        "diverged"
        if point["excess"] is None
        else f"{point['excess']:8.1e} / {point['error']:5.2f} ({point['seconds']:5.2f} s)"
        for point in points
    )
    print(f"{name:>29}  " + "  ".join(shown), flush=True)


def _curve_claims(
    claims: list[Numbers], shape: str, rows: list[Numbers], optimal_error: float, measured: Sequence[int]
) -> None:
    def at(name: str, lanes: int, n_passes: int, what: str = "excess") -> float:
        points = next(
            row["points"] for row in rows if (row["set"], row["name"], row.get("lanes")) == (shape, name, lanes)
        )
        value = next(point[what] for point in points if point["passes"] == n_passes)
        return float("inf") if value is None else float(value)

    default = QN.name
    if shape == "rcv1":
        for lanes, bars in ((1, {1: 5e-3, 5: 1e-3}), (8, {1: 1e-2, 5: 2e-3})):
            if lanes not in measured:
                continue
            for n_passes, bar in bars.items():
                name = f"rcv1, {default}, excess after {n_passes} passes, lanes {lanes}"
                _say(claims, name, at(default, lanes, n_passes), bar)
            off = abs(at(default, lanes, 5, "error") - optimal_error)
            _say(claims, f"rcv1, {default}, points from the optimum's test error, lanes {lanes}", off, 0.1)
    if shape == "axis":
        ratio = at(default, 1, 1) / at("SVMSGD2", 1, 1)
        _say(claims, f"axis, {default} over SVMSGD2, excess after a pass", ratio, 0.3)


# -- lanes -----------------------------------------------------------------------------------------------


def in_lanes(lab: Lab) -> Numbers:
    """Measure the cost of lanes: objective and test error by lanes and passes."""
    rows = []
    n_rows = lab.rows or LANES_ROWS
    for method in IN_LANES:
        train = lab.made("csgd" if method.method == "csgd" else "rcv1-4", n_rows)
        test = train.with_name(f"{train.name}-test")
        params = {"alpha": SHAPES["rcv1"], "fit_intercept": False, **method.params}
        what = "test mean square" if method.method == "csgd" else "test error %"
        print(f"\n{method.name}, {n_rows} rows: objective / {what} after {', '.join(map(str, PASSES))} passes")
        for lanes in LANES:
            points = [_lane_point(lab, method, params, train, test, lanes, n) for n in PASSES]
            rows.append({"name": method.name, "lanes": lanes, "points": points})
            shown = (
                "diverged" if point["objective"] is None else f"{point['objective']:.5f} / {point['error']:.4g}"
                for point in points
            )
            print(f"{lanes:>4} lane{'s'[: lanes > 1]:1}  " + "   ".join(shown), flush=True)
        one, eight = (_objective_after(rows, method.name, lanes, 5) for lanes in (1, 8))
        if one is not None and eight is not None:
            near = "within" if abs(eight / one - 1) <= 0.01 else "not within"
            print(f"8 lanes after 5 passes: {100 * (eight / one - 1):+.2f} %, {near} 1 % of one lane's")
    return {"n_rows": n_rows, "rows": rows}


def _lane_point(
    lab: Lab, method: Method, params: Numbers, train: Path, test: Path, lanes: int, n_passes: int
) -> Numbers:
    found = []
    for seed in range(lab.seeds):
        fitted = distls.fit(
            method.method, train, params={**params, "lanes": lanes}, passes=n_passes, eval_data=test, seed=seed
        )
        if fitted.model is None:
            return {"passes": n_passes, "objective": None, "error": None}
        record = fitted.record
        error = record["eval_mse"] if "eval_mse" in record else 100 * record["eval_error"]
        found.append((record["objective"], error))
    objective, error = (float(value) for value in np.mean(found, axis=0))
    return {"passes": n_passes, "objective": objective, "error": error, "rounds": record["round"]}


def _objective_after(rows: list[Numbers], name: str, lanes: int, n_passes: int) -> float | None:
    points = next(row["points"] for row in rows if (row["name"], row["lanes"]) == (name, lanes))
    value: float | None = next(point["objective"] for point in points if point["passes"] == n_passes)
    return value


def in_rounds(lab: Lab) -> Numbers:
    """Measure the gain of averaging 8 lanes more often than once per pass, at fixed and adapted intervals."""
    rows = []
    train = lab.made("rcv1-4", lab.rows or LANES_ROWS)
    test = train.with_name(f"{train.name}-test")
    pass_bytes = int(distls.open_dataset(train).stored_bytes.sum()) // 8
    print("\n8 lanes, averagings per pass: objective / test error %, rounds after 1, 2, 5 passes")
    for method in IN_LANES[:-1]:
        params = {"alpha": SHAPES["rcv1"], "fit_intercept": False, **method.params}
        for often in (1, 2, 4, 8):
            sync = {"sync_bytes": pass_bytes // often + pass_bytes // 64}
            for name, cut in (("fixed", {"round_bytes": sync["sync_bytes"]}), ("adapted", {})):
                if often == 1 and not cut:
                    continue
                settings = {**params, **sync, **cut}
                points = [_lane_point(lab, method, settings, train, test, 8, n) for n in PASSES[:3]]
                rows.append({"name": method.name, "averagings": often, "interval": name, "points": points})
                shown = "   ".join(
                    f"{point['objective']:.5f} / {point['error']:.4g}, {point['rounds']}" for point in points
                )
                print(f"{method.name:>25} {often} {name:>8}  {shown}", flush=True)
    return {"rows": rows}


# -- command ---------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Lab], Numbers]] = {
    "passes": passes,
    "curves": curves,
    "lanes": in_lanes,
    "rounds": in_rounds,
}


def main(argv: Sequence[str] | None = None) -> Numbers:
    """Run the requested parts, print their tables, write numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", default=",".join(SHAPES), help=f"of curves, some of {','.join(SHAPES)}")
    parser.add_argument("--rows", type=int, help="training rows; default the papers', of lanes 131,072")
    parser.add_argument("--repeats", type=int, default=5, help="of a pass")
    parser.add_argument("--one-lane", action="store_true", help="curves in one lane, as the paper's, not in 8 too")
    parser.add_argument("--real", type=Path, help="folder of the owners' files; see docs/papers/real-files.md")
    parser.add_argument("--directory", type=Path, help="where generated sets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    options = parser.parse_args(argv)
    for option, named, known in (("part", options.part, PARTS), ("sets", options.sets, SHAPES)):
        unknown = set(named.split(",")) - set(known)
        if unknown:
            parser.error(f"--{option} {','.join(sorted(unknown))}: there are {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="distls-sgd-qn-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        sets = options.sets.split(",")
        lab = Lab(
            place, options.seeds, options.rows, options.repeats, sets, options.real, (1, 8)[: 2 - options.one_lane]
        )
        results: Numbers = {"cpus": os.cpu_count(), "seeds": lab.seeds}
        for part in options.part.split(","):
            results[part] = PARTS[part](lab)
            if options.out:  # after each
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / "results.json").write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
