"""How soon the optimum is reached: `sdca` and `newton` beside Snap ML, LIBLINEAR and scikit-learn, in one run.

    pip install '.[bench]' snapml liblinear-official
    python -m benchmarks.speed.optimum [--directory FOLDER] [--rows N] [--part binary,hinge,multi,many,lanes]

On generated `rcv1-4` data. `binary`: class 1 against the rest, log loss; `hinge`: the same with the hinge. `multi`:
Crammer-Singer beside LIBLINEAR's ``-s 4``, softmax beside scikit-learn's lbfgs; `many`: the same on so many rows of
`rcv1-53`, 53 classes. `lanes`: passes and network bytes of distls by lanes. distls has two processes of one thread,
with all rows in their caches; the others have the data in memory, as arrays, and two threads where they can use them.
Seconds are those of training: of distls its rounds, not the evaluations in between; of the others the call that fits,
without reading text.

The excess is that of the objective, mean loss plus alpha/2 |w|^2, over the optimum, relative to it; the optimum is the
lower bound that a fit in float64 has proven to 1e-8, or 1e-5 in `many`. Rivals are fitted anew for each number of
passes, or tolerance.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import distls
from distls.execution.dask.local_cluster import start_local
from distls.execution.executor import Executor
from distls.planning.fit_plan import plan_fit
from distls.reporting.costs import round_seconds
from distls.storage.dataset.dataset import open_dataset
from distls.synthetic.generation import generate
from distls.training.callbacks import History
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import DatasetRef, stream

TARGETS = (1e-2, 1e-3, 1e-6)
ALPHAS = (1e-4, 1e-5, 1e-6)
ROWS = 665_265
Curve = list[tuple[float, float]]  # (seconds, objective) or (passes, gap)


def arrays_of(path: Path) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return the rows of a data set as one matrix, and their classes."""
    dataset = open_dataset(str(path))
    ref = DatasetRef(str(path), dataset.fingerprint, prefetch=False)
    width, parts = dataset.meta.n_features, []
    for _, part in stream(ref, range(len(dataset))):
        x = part.x
        matrix = sp.csr_matrix(
            (x.data.copy(), x.indices.astype(np.int32), x.indptr.copy()), (len(part.y), width)
        )
        parts.append((matrix, part.y.copy()))
    return sp.vstack([x for x, _ in parts], format="csr"), np.concatenate([y for _, y in parts])


def curve_of(
    method: str, dataset: Path, loss: str, alpha: float, executor: Executor, **options: Any
) -> tuple[Curve, Curve]:
    """Return seconds and objective after each half pass, and the passes and relative gaps."""
    history, passes = History(), options.pop("passes", 20 if method == "sdca" else 60)
    params = {"loss": loss, "alpha": alpha, "fit_intercept": False, **options}
    distls.fit(
        method, dataset, params=params, passes=passes, eval_every=0.45,
        executor=executor, callbacks=[history],
    )  # fmt: skip
    judged = [record for record in history.records if "objective" in record]
    return [(round_seconds(r), r["objective"]) for r in judged], [
        (r["passes"], r["certificate"]["relative"]) for r in judged
    ]


def optimum_of(dataset: Path, loss: str, alpha: float, executor: Executor, rtol: float = 1e-8) -> float:
    """Return a lower bound of the optimum that is proven to `rtol`, or as near as 300 passes come."""
    params = {"loss": loss, "alpha": alpha, "dtype": "float64", "fit_intercept": False}
    record = distls.fit("sdca", dataset, params=params, rtol=rtol, passes=300, executor=executor).record
    return float(record["objective"] - record["certificate"]["value"])


def timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    """Return the wall seconds of a call, and its result."""
    began = time.perf_counter()
    made = fit()
    return time.perf_counter() - began, made


def binary_objective(x: sp.csr_matrix, signs: np.ndarray, w: np.ndarray, alpha: float, loss: str) -> float:
    """Return mean loss plus alpha/2 |w|^2 of one output."""
    margins = signs * (x @ w)
    values = np.logaddexp(0.0, -margins) if loss == "ovr_log" else np.maximum(0.0, 1.0 - margins)
    return float(values.mean() + alpha / 2 * (w @ w))


def snap_curve(
    x: sp.csr_matrix, y: np.ndarray, alpha: float, loss: str
) -> Iterator[tuple[str, float, float]]:
    """Yield setting, seconds and objective of Snap ML's fits with ever more epochs."""
    import snapml

    kind = snapml.LogisticRegression if loss == "ovr_log" else snapml.SupportVectorMachine
    own = {"dual": True} if loss == "ovr_log" else {"loss": "hinge"}
    signs = np.where(y == 1, 1.0, -1.0)
    for epochs in (1, 2, 3, 5, 8, 12, 20, 40):
        model = kind(
            regularizer=alpha * len(y), fit_intercept=False, n_jobs=2, max_iter=epochs, tol=0.0, **own
        )
        seconds, fitted = timed(lambda model=model: model.fit(x, y))
        w = np.asarray(fitted.coef_, np.float64).reshape(-1)
        yield f"Snap ML, {epochs} epochs", seconds, binary_objective(x, signs, w, alpha, loss)


def liblinear_curve(
    x: sp.csr_matrix, y: np.ndarray, alpha: float, loss: str
) -> Iterator[tuple[str, float, float]]:
    """Yield setting, seconds and objective of LIBLINEAR's dual solvers with ever smaller tolerances."""
    from liblinear import liblinearutil

    solver, signs = 7 if loss == "ovr_log" else 3, np.where(y == 1, 1.0, -1.0)
    problem = liblinearutil.problem(signs, x)
    for tolerance in (1.0, 0.1, 0.01, 0.001):
        options = f"-s {solver} -c {1.0 / (alpha * len(y))} -e {tolerance} -q"
        seconds, model = timed(lambda options=options: liblinearutil.train(problem, options))
        w = np.array(model.w[: x.shape[1]]) * (1 if model.get_labels()[0] == 1 else -1)
        yield f"LIBLINEAR -s {solver} -e {tolerance:g}", seconds, binary_objective(x, signs, w, alpha, loss)


def multi_objective(x: sp.csr_matrix, y: np.ndarray, w: np.ndarray, alpha: float, loss: str) -> float:
    """Return the objective of weights (n_features, k)."""
    total = 0.0
    for first in range(0, len(y), 65536):
        z, own = x[first : first + 65536] @ w, y[first : first + 65536]
        rows = np.arange(len(own))
        mine = z[rows, own].copy()
        if loss == "softmax":
            top = z.max(axis=1)
            total += float((np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - mine).sum())
        else:
            z[rows, own] = -np.inf
            total += float(np.maximum(0.0, 1.0 + z.max(axis=1) - mine).sum())
    return total / len(y) + alpha / 2 * float((w * w).sum())


def crammer_rival(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Iterator[tuple[str, float, float]]:
    """Yield LIBLINEAR's Crammer-Singer at its default tolerance."""
    from liblinear import liblinearutil

    problem = liblinearutil.problem(y.astype(float), x)
    seconds, model = timed(lambda: liblinearutil.train(problem, f"-s 4 -c {1.0 / (alpha * len(y))} -q"))
    k = int(y.max()) + 1
    w = np.array(model.w[: x.shape[1] * k]).reshape(x.shape[1], k)
    order = np.argsort(model.get_labels())
    yield "LIBLINEAR -s 4 -e 0.1", seconds, multi_objective(x, y, w[:, order], alpha, "crammer_singer")


def softmax_rival(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Iterator[tuple[str, float, float]]:
    """Yield scikit-learn's lbfgs with ever more iterations."""
    from sklearn.linear_model import LogisticRegression

    for iterations in (20, 60, 200):
        model = LogisticRegression(
            C=1.0 / (alpha * len(y)), fit_intercept=False, tol=1e-12, max_iter=iterations, solver="lbfgs"
        )
        seconds, _ = timed(lambda model=model: model.fit(x, y))
        yield (
            f"lbfgs, {iterations} iterations",
            seconds,
            multi_objective(x, y, model.coef_.T, alpha, "softmax"),
        )


def reached(curve: Curve, best: float) -> dict[str, float | None]:
    """Return the seconds to each relative excess, None where it is not reached."""
    return {
        f"{target:g}": next((seconds for seconds, value in curve if value <= best * (1.0 + target)), None)
        for target in TARGETS
    }


class Report:
    """Prints a line for each measurement and keeps all for the JSON file."""

    def __init__(self, out: str | None) -> None:
        self._out, self.rows = out, []  # type: tuple[str | None, list[dict[str, Any]]]

    def add(self, **row: Any) -> None:
        """Print and keep a row."""
        self.rows.append(row)
        texts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in row.values())
        print(", ".join(f"{key} {text}" for key, text in zip(row, texts, strict=True)), flush=True)
        if self._out:
            Path(self._out).write_text(json.dumps(self.rows, indent=1))


def compare(
    report: Report,
    dataset: Path,
    loss: str,
    alpha: float,
    executor: Executor,
    rivals: list[Any],
    factor: float = 1.0,
    rtol: float = 1e-8,
) -> None:
    """Report distls's curve and that of each rival; `factor` is distls's objective over the rivals'."""
    best = optimum_of(dataset, loss, alpha, executor, rtol) / factor
    x, y = arrays_of(dataset)
    for method in ("sdca", "newton") if loss_named(loss).smooth else ("sdca",):
        curve, gaps = curve_of(method, dataset, loss, alpha, executor)
        curve = [(seconds, value / factor) for seconds, value in curve]
        report.add(
            loss=loss, alpha=alpha, system=f"distls {method}", optimum=best, **reached(curve, best),
            gap=gaps[-1][1],
        )  # fmt: skip
    for rival in rivals:
        found = list(rival(x, y, alpha))
        for name, seconds, value in found:
            report.add(loss=loss, alpha=alpha, system=name, seconds=seconds, excess=value / best - 1.0)
        report.add(
            loss=loss, alpha=alpha, system=found[0][0].split(",")[0].split(" -e")[0],
            **reached([(seconds, value) for _, seconds, value in found], best),
        )  # fmt: skip


def by_lanes(report: Report, dataset: Path, alpha: float, executor: Executor) -> None:
    """Report passes to relative gaps of 1e-3 and 1e-5, and bytes between processes, by lanes."""
    for method, lanes in itertools.product(("sdca", "newton"), (1, 2, 4, 8, 32, 128)):
        if lanes > len(open_dataset(str(dataset))):
            continue
        _, gaps = curve_of(method, dataset, "ovr_log", alpha, executor, lanes=lanes, passes=60)
        params = {"loss": "ovr_log", "alpha": alpha, "lanes": lanes, "fit_intercept": False}
        plan = plan_fit(method, str(dataset), params, probe=False)
        passes = {f"{t:g}": next((at for at, gap in gaps if gap <= t), None) for t in (1e-3, 1e-5)}
        network = plan.network_bytes_per_round * plan.rounds_per_pass
        report.add(method=method, alpha=alpha, lanes=lanes, **passes, network=network)


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


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", default=f"{tempfile.gettempdir()}/distls-optimum")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--part", default="binary,hinge,multi,lanes")
    parser.add_argument("--alphas", default=":".join(map(str, ALPHAS)))
    parser.add_argument("--losses", default="crammer_singer,softmax", help="of `multi` and `many`")
    parser.add_argument("--out")
    given = parser.parse_args()
    folder, parts, report = Path(given.directory), given.part.split(","), Report(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    multi, binary, small = prepared(folder, given.rows)
    has = {name for name in ("snapml", "liblinear", "sklearn") if importlib.util.find_spec(name)}
    with contextlib.closing(start_local(2)) as executor:
        for alpha in map(float, given.alphas.split(":")):
            for part, loss in (("binary", "ovr_log"), ("hinge", "ovr_hinge")):
                if part in parts:
                    rivals = [
                        *([lambda x, y, a, loss=loss: snap_curve(x, y, a, loss)] if "snapml" in has else []),
                        *(
                            [lambda x, y, a, loss=loss: liblinear_curve(x, y, a, loss)]
                            if "liblinear" in has
                            else []
                        ),
                    ]
                    compare(report, binary, loss, alpha, executor, rivals, factor=2.0)
            for part, data, rtol in (
                ("multi", multi, 1e-8),
                ("many", folder / f"rcv1-53-{given.rows}", 1e-5),
            ):
                if part not in parts:
                    continue
                if not data.exists():
                    generate("rcv1-53", str(data), rows=given.rows)
                for loss, rival, module in (
                    ("crammer_singer", crammer_rival, "liblinear"), ("softmax", softmax_rival, "sklearn"),
                ):  # fmt: skip
                    if loss in given.losses.split(","):
                        rivals = [rival] if module in has else []
                        compare(report, data, loss, alpha, executor, rivals, rtol=rtol)
            if "lanes" in parts:
                by_lanes(report, small, alpha, executor)


if __name__ == "__main__":
    main()
