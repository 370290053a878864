"""The experiments of "Characterizing Inverse Time Dependency in Multi-class Learning" (Chen, Chen, Yang 2011).

    python -m benchmarks.papers.mcid [--figures 1,2,3,4] [--seeds 10] [--real DIR] [--directory FOLDER]
        [--out FOLDER]

Figures 1 and 2 (RCV1-4 and ODP shapes): for training sets of n rows, each the beginning of the next, the iterations
and seconds to fixed accuracies, and the accuracy after fixed numbers of iterations, for multi-class logistic
regression, SVM and perceptron. Section VII of the paper asks from which n more rows no longer help: the smallest n
whose mean accuracy is within half a point of the best.
The sets are those of the owners' files in --real, where they are there, else generated.
Figure 3: the multi-class methods against K binary ones (`ovr-pegasos`, `ovr-logistic`) with the same alpha.
Figure 4: the SVM against the algorithm of SVM-multiclass, cutting planes of one slack (`opponents`, in NumPy), and
LIBLINEAR's Crammer-Singer solver (scikit-learn's LinearSVC): the same objective, solved to the end; on half of the
rows, as in the paper, in one process.

An iteration is one example (r = 1), one lane, last iterates (`average=none`): the paper's Algorithms 2 to 4. Accuracies
and times are means over seeds. Seconds of Figures 1 and 2 are those of the kernels, as with all rows in memory; those
of Figure 4 are CPU seconds of a whole training with its reads, so that other work on the machine counts for nobody.
Tables are printed, numbers go to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import distls
from benchmarks.papers import opponents
from benchmarks.papers.owners import made
from distls.execution.row_reads import reduce_rows
from distls.execution.serial import SerialExecutor
from distls.problem import loss_form
from distls.solvers.events import Callback, FitStart, RoundEvent
from distls.solvers.solver import State
from distls.solvers.status import Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.rows import CsrRows
from distls.workers.evaluation.class_metrics_task import MetricsTask
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef

BLOCK = 2048  # rows of a partition: accuracy is taken after whole partitions
EVERY = 4 * BLOCK  # iterations between evaluations
MOST = 2**18  # iterations
SIZES = [2**k for k in range(11, 20)]
SHOWN = [2**k for k in range(13, 19)]
NEAR = 0.5  # points of accuracy that count as no gain


@dataclass(frozen=True)
class Algorithm:
    """One of the compared algorithms: a method and its loss."""

    name: str
    method: str
    loss: str | None = None


LR = Algorithm("LR", "mcid", "log")
SVM = Algorithm("SVM", "mcid", "hinge")
PERCEPTRON = Algorithm("perceptron", "mcid", "perceptron")
K_PEGASOS = Algorithm("K-Pegasos", "ovr-pegasos")
K_LOGISTIC = Algorithm("K-binaryLR", "ovr-logistic")


@dataclass(frozen=True)
class Curve:
    """Accuracy (%) and seconds in kernels after each number of iterations, shape (n_seeds, n_points)."""

    iterations: np.ndarray
    accuracy: np.ndarray
    seconds: np.ndarray

    def at(self, iterations: int) -> float:
        """Return the mean accuracy after `iterations`."""
        return float(self.accuracy[:, np.searchsorted(self.iterations, iterations)].mean())

    def first_above(self, accuracy: float) -> tuple[float, float] | None:
        """Return the mean iterations and seconds to `accuracy`; None unless every seed gets there."""
        reached = self.accuracy >= accuracy
        if not reached.any(axis=1).all():
            return None
        first = reached.argmax(axis=1)
        seconds = self.seconds[np.arange(len(first)), first]
        return float(self.iterations[first].mean()), float(seconds.mean())


class Lab:
    """Datasets of a shape, made once, and the runs on them."""

    def __init__(self, place: Path, seeds: int, most: int, rows: int | None, real: Path | None = None) -> None:
        self.place, self.seeds, self.most, self.rows, self.real = place, seeds, most, rows, real

    def data(self, kind: str, rows: int | None = None) -> Path:
        """Return the first `rows` rows of a set (all of them by default), in partitions of BLOCK."""
        rows = self.rows if rows is None else rows
        path = self.place / f"{kind}-{rows or 'all'}"
        row_bytes = 6 * {"odp": 190}.get(kind, 90) + 12
        return made(kind, path, real=self.real, rows=rows, partition_size=BLOCK * row_bytes)

    def test(self, kind: str) -> Path:
        """Return the test set of a kind, which is the same for all sizes."""
        return self.data(kind).with_name(f"{self.data(kind).name}-test")

    def curve(self, kind: str, n: int | None, algorithm: Algorithm, alpha: float) -> Curve:
        """Train with every seed, one lane, one example per step; evaluate every few partitions."""
        data = self.data(kind, n)
        runs = [self._run(data, self.test(kind), algorithm, alpha, seed) for seed in range(self.seeds)]
        points = np.arange(EVERY, self.most + 1, EVERY)
        chosen = [np.searchsorted(done, points - BLOCK // 2).clip(max=len(done) - 1) for done, _, _ in runs]
        accuracy, seconds = (np.array([run[i][k] for run, k in zip(runs, chosen, strict=True)]) for i in (1, 2))
        return Curve(points, accuracy, seconds)

    def _run(
        self, data: Path, test: Path, algorithm: Algorithm, alpha: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return iterations, accuracy and seconds at each evaluation."""
        n_rows = distls.open_dataset(data).meta.n_rows
        watch = Watch(distls.open_dataset(test))
        params = {"alpha": alpha, "lanes": 1, "average": "none", "round_bytes": 1, "fit_intercept": False}
        if algorithm.loss is not None:
            params["loss"] = algorithm.loss
        passes = self.most / n_rows
        # no evaluations of the loop's own: those read all training rows for the objective
        distls.fit(algorithm.method, data, params=params, passes=passes, eval_every=0, seed=seed, callbacks=[watch])
        return np.array(watch.iterations), np.array(watch.accuracy), np.array(watch.seconds)


class Watch(Callback):
    """Scores the weights on the test set every EVERY iterations."""

    def __init__(self, test: Dataset) -> None:
        self._test, self._codes = test, np.arange(len(test.meta.classes), dtype=np.int32)
        self._done, self._kernels = 0, 0.0
        self.iterations: list[int] = []
        self.accuracy: list[float] = []
        self.seconds: list[float] = []

    def on_start(self, start: FitStart) -> None:
        """Nothing to do."""

    def on_round(self, event: RoundEvent) -> None:
        """Score if it is time."""
        before, self._done = self._done, self._done + event.record["n_rows"]
        self._kernels += event.record["kernel_seconds"]
        if self._done // EVERY == before // EVERY:
            return
        state: Any = event.state
        predictor = LinearPredictor(*state.lane[:2])
        k = len(self._codes)
        # the loss does not matter, errors are counted; but its number of outputs
        loss = loss_form("crammer_singer", "class", k)
        task = MetricsTask(DatasetRef.of(self._test, 2**31), loss, self._codes, k, weighted=False)
        total = reduce_rows(SerialExecutor(), self._test, predictor.compact(), task)
        self.iterations.append(self._done)
        self.accuracy.append(100 * float(total.right.sum()) / total.ledger.n_rows)
        self.seconds.append(self._kernels)

    def on_end(self, status: Status, state: State) -> None:
        """Nothing to do."""


# -- Figures 1 and 2 -------------------------------------------------------------------------------------


def inverse_dependency(lab: Lab, kind: str, alpha: float) -> dict[str, Any]:
    """Measure one of Figures 1 and 2; return its numbers."""
    whole = distls.open_dataset(lab.data(kind)).meta.n_rows
    sizes = [n for n in SIZES if n < whole] + [whole]
    found: dict[str, Any] = {"kind": kind, "alpha": alpha, "sizes": sizes, "algorithms": {}}
    for algorithm in (LR, SVM, PERCEPTRON):
        curves = [lab.curve(kind, None if n == whole else n, algorithm, alpha) for n in sizes]
        found["algorithms"][algorithm.name] = _dependency(sizes, curves, lab.most)
        _print_dependency(kind, algorithm.name, sizes, found["algorithms"][algorithm.name])
    return found


def _dependency(sizes: list[int], curves: list[Curve], most: int) -> dict[str, Any]:
    shown = [t for t in SHOWN if t <= most]
    best = max(curve.at(shown[-1]) for curve in curves)
    goals = [float(np.floor(best - gap)) for gap in (4, 2, 1)]
    return {
        "accuracy": {t: [curve.at(t) for curve in curves] for t in shown},
        "to accuracy": {goal: [curve.first_above(goal) for curve in curves] for goal in goals},
        "gain stops at n": {t: _plateau(sizes, [curve.at(t) for curve in curves]) for t in shown},
    }


def _plateau(sizes: list[int], accuracy: list[float]) -> int:
    """Return the smallest n such that no larger one is better by more than NEAR."""
    return next(n for n, a in zip(sizes, accuracy, strict=True) if a >= max(accuracy) - NEAR)


def _print_dependency(kind: str, name: str, sizes: list[int], found: dict[str, Any]) -> None:
    print(f"\n{kind}, {name}: accuracy % after iterations, and iterations (seconds) to an accuracy")
    goals = found["to accuracy"]
    print(f"{'n':>8}  " + "  ".join(f"{t:>7}" for t in found["accuracy"]) + "".join(f"{g:>18g} %" for g in goals))
    for row, n in enumerate(sizes):
        accuracies = "  ".join(f"{values[row]:7.2f}" for values in found["accuracy"].values())
        times = "".join(f"{_reached(values[row]):>20}" for values in goals.values())
        print(f"{n:>8}  {accuracies}{times}")
    stops = ", ".join(f"{n} rows after {t}" for t, n in found["gain stops at n"].items())
    print(f"no gain of more than {NEAR} points beyond: {stops}", flush=True)


def _reached(value: tuple[float, float] | None) -> str:
    return "-" if value is None else f"{value[0]:.0f} ({1e3 * value[1]:.0f} ms)"


# -- Figure 3 --------------------------------------------------------------------------------------------


def against_binary(lab: Lab, kinds: Iterable[str], alphas: Iterable[float]) -> list[dict[str, Any]]:
    """Measure Figure 3: multi-class methods against K binary ones, the same alpha for all."""
    rows = []
    for kind in kinds:
        for alpha in alphas:
            print(f"\n{kind}, alpha {alpha:g}: accuracy % after iterations")
            for algorithm in (LR, K_LOGISTIC, SVM, K_PEGASOS):
                curve = lab.curve(kind, None, algorithm, alpha)
                accuracy = {t: curve.at(t) for t in SHOWN if t <= lab.most}
                rows.append({"kind": kind, "alpha": alpha, "algorithm": algorithm.name, "accuracy": accuracy})
                shown = "  ".join(f"{t}: {a:.2f}" for t, a in accuracy.items())
                print(f"{algorithm.name:>12}  {shown}", flush=True)
    return rows


# -- Figure 4 --------------------------------------------------------------------------------------------


def against_batch_solvers(lab: Lab, kinds: Iterable[str], alpha: float, limit: float) -> list[dict[str, Any]]:
    """Measure Figure 4: accuracy against CPU seconds, beside two solvers of the same objective, on half of the rows."""
    rows = []
    for kind in kinds:
        half = distls.open_dataset(lab.data(kind)).meta.n_rows // 2
        data, test = lab.data(kind, half), lab.test(kind)
        print(f"\n{kind}, {half} rows, alpha {alpha:g}: test accuracy % and CPU seconds of training")
        found = [
            *_our_svm(data, test, alpha, lab.seeds),
            *_liblinear(data, test, alpha),
            *_cutting_planes(data, test, alpha, limit),
        ]
        for row in found:
            rows.append({"kind": kind, "rows": half, **row})
            print(f"{row['solver']:>14}  {row['effort']:>14}  {row['accuracy']:6.2f} %  {row['seconds']:8.2f} s")
        _print_verdict(found)
    return rows


def _our_svm(data: Path, test: Path, alpha: float, seeds: int) -> list[dict[str, Any]]:
    found = []
    params = {"loss": "hinge", "alpha": alpha, "lanes": 1, "round_bytes": 2**24, "fit_intercept": False}
    distls.fit("mcid", data, params=params, passes=0.25, eval_every=0)  # loads code
    for passes in (0.25, 0.5, 1, 2, 5, 10):
        started = time.process_time()
        runs = [distls.fit("mcid", data, params=params, passes=passes, eval_every=0, seed=s) for s in range(seeds)]
        seconds = (time.process_time() - started) / seeds
        errors = [distls.evaluate(run.model, test).error for run in runs]
        accuracy = 100 * (1 - float(np.mean(errors)))
        found.append({"solver": "distls", "effort": f"{passes:g} passes", "accuracy": accuracy, "seconds": seconds})
    return found


def _liblinear(data: Path, test: Path, alpha: float) -> list[dict[str, Any]]:
    from sklearn.svm import LinearSVC

    x, y = _arrays(data)
    test_x, test_y = _arrays(test)
    found = []
    for tolerance in (3.0, 1.0, 0.3, 0.1, 0.01):  # its Crammer-Singer solver knows no limit of iterations
        model = LinearSVC(multi_class="crammer_singer", C=1 / (alpha * len(y)), fit_intercept=False, tol=tolerance)
        started = time.process_time()
        model.fit(x, y)
        seconds = time.process_time() - started
        accuracy = 100 * float(np.mean(model.predict(test_x) == test_y))
        effort = f"tolerance {tolerance:g}"
        found.append({"solver": "LIBLINEAR", "effort": effort, "accuracy": accuracy, "seconds": seconds})
    return found


def _cutting_planes(data: Path, test: Path, alpha: float, limit: float) -> list[dict[str, Any]]:
    """Return accuracies after planes of which each took at least a tenth of the seconds so far."""
    (x, y), (test_x, test_y) = _arrays(data), _arrays(test)
    found, due = [], 0.0
    for number, (seconds, w, gap) in enumerate(opponents.cutting_planes(x, y, alpha)):
        last = seconds > limit or gap < 1e-3
        if seconds >= due or last:
            due = 1.1 * seconds
            accuracy = 100 * float(np.mean((test_x @ w).argmax(axis=1) == test_y))
            found.append(
                {"solver": "cutting planes", "effort": f"{number} planes", "accuracy": accuracy, "gap": gap,
                 "seconds": seconds}
            )  # fmt: skip
        if last:
            break
    return found


def _arrays(path: Path) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return a whole dataset as (X, class codes) in memory, in the 64-bit form that LIBLINEAR works on."""
    data = distls.open_dataset(path)
    blocks, codes = [], []
    for index in range(len(data)):
        part = data.read(index)
        assert isinstance(part.x, CsrRows)
        shape = len(part.x.indptr) - 1, data.meta.n_features
        arrays = (part.x.data.astype(np.float64), part.x.indices.astype(np.int32), part.x.indptr.astype(np.int32))
        blocks.append(sp.csr_matrix(arrays, shape=shape))
        codes.append(part.y.copy())
    return sp.vstack(blocks, format="csr"), np.concatenate(codes)


def _print_verdict(found: list[dict[str, Any]]) -> None:
    for solver in ("LIBLINEAR", "cutting planes"):
        theirs = max((row for row in found if row["solver"] == solver), key=lambda row: row["accuracy"])
        ours = [row for row in found if row["solver"] == "distls" and row["accuracy"] >= theirs["accuracy"]]
        if ours:
            ratio = theirs["seconds"] / ours[0]["seconds"]
            print(f"the best accuracy of {solver} in {ratio:.1f} times less time", flush=True)
        else:
            print(f"the best accuracy of {solver} is not reached", flush=True)


# -- command ---------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the requested figures, print their tables, write numbers and plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", default="1,2,3,4")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--alpha", type=float, default=1e-5, help="of figures 1, 2 and 4")
    parser.add_argument("--alphas", default="1e-4,1e-5", help="of figure 3")
    parser.add_argument("--kinds", default="rcv1-4,rcv1-53,odp", help="of figure 3")
    parser.add_argument("--iterations", type=int, default=MOST)
    parser.add_argument("--rows", type=int, help="training rows of the whole sets; default the papers'")
    parser.add_argument("--limit", type=float, default=120.0, help="CPU seconds of cutting planes, of figure 4")
    parser.add_argument("--real", type=Path, help="folder of the owners' files; see docs/papers/real-files.md")
    parser.add_argument("--directory", type=Path, help="where generated sets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path, help="folder for results.json")
    options = parser.parse_args(argv)
    unknown = set(options.figures.split(",")) - {"1", "2", "3", "4"}
    if unknown:
        parser.error(f"--figures {','.join(sorted(unknown))}: there are 1, 2, 3 and 4")
    with tempfile.TemporaryDirectory(prefix="distls-mcid-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        lab = Lab(place, options.seeds, options.iterations, options.rows, options.real)
        results: dict[str, Any] = {"cpus": os.cpu_count(), "seeds": lab.seeds}
        for figure in options.figures.split(","):
            results[figure] = _measure(lab, figure, options)
            if options.out:  # after each: all of them take hours
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / "results.json").write_text(json.dumps(results, indent=1))
    return results


def _measure(lab: Lab, figure: str, options: argparse.Namespace) -> Any:
    if figure in ("1", "2"):
        return inverse_dependency(lab, {"1": "rcv1-4", "2": "odp"}[figure], options.alpha)
    if figure == "3":
        alphas = [float(alpha) for alpha in options.alphas.split(",")]
        return against_binary(lab, options.kinds.split(","), alphas)
    return against_batch_solvers(lab, ("rcv1-4", "rcv1-53"), options.alpha, options.limit)


if __name__ == "__main__":
    main()
