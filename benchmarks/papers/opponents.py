"""What the papers compare with: LIBLINEAR, scikit-learn, Vowpal Wabbit, scipy, bare BLAS, cutting planes in NumPy."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp
from numpy.typing import NDArray

import distls
from benchmarks.quality.real import arrays_of
from benchmarks.speed.peers import run_vw, vw_error
from distls.storage.model.model import LinearModel
from distls.storage.rows import DenseRows
from distls.synthetic.text_export import export_text
from distls.workers.features.design import blocks
from distls.workers.features.design_recipe import design_of
from distls.workers.runtime.process import single_threaded_blas

Numbers = dict[str, Any]

_VW = "Vowpal Wabbit logistic"


def features_of(model: LinearModel, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the random features that a model of one stage has, for rows in memory."""
    (design,) = design_of(model.recipe["features"], model.arrays)
    out = np.empty((len(x), design.size), np.float32)
    for rows, block in blocks(design, DenseRows(x), np.dtype(np.float32)):
        assert isinstance(block, DenseRows)
        out[rows] = block.values
    return out


def singular_values(matrix: Any, count: int) -> NDArray[np.float64]:
    """Return the largest singular values, descending."""
    if sp.issparse(matrix):
        from scipy.sparse.linalg import svds

        return np.sort(svds(matrix.astype(np.float64), k=count, return_singular_vectors=False))[::-1]
    gram = matrix.T.astype(np.float64) @ matrix
    return np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1][:count], 0.0))


# -- on precomputed features (Figure 2) ------------------------------------------------------------------


def _solvers() -> dict[str, Callable[[], Any]]:
    """Return LIBLINEAR's six solvers of the paper's Figure 2, each with its own default tolerance and C = 1."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    return {
        "LIBLINEAR L2 logistic": lambda: OneVsRestClassifier(LogisticRegression(solver="liblinear", tol=0.01)),
        "LIBLINEAR L2 L2-SVC dual": lambda: LinearSVC(dual=True, tol=0.1),
        "LIBLINEAR L2 L2-SVC primal": lambda: LinearSVC(dual=False, tol=0.01),
        "LIBLINEAR L2 L1-SVC dual": lambda: LinearSVC(loss="hinge", dual=True, tol=0.1),
        "LIBLINEAR Crammer-Singer": lambda: LinearSVC(multi_class="crammer_singer", tol=0.1),
        "LIBLINEAR L1 L2-SVC": lambda: LinearSVC(penalty="l1", dual=False, tol=0.01),
        "LogisticRegression lbfgs": lambda: LogisticRegression(C=10.0, max_iter=200),
    }


def on_features(
    x: NDArray[np.float32], y: NDArray[Any], test_x: NDArray[np.float32], test_y: NDArray[Any], limit: float
) -> list[Numbers]:
    """Train every baseline on features in memory, two at a time, each in a process of `limit` CPU seconds at most."""
    given = (x, y, test_x, test_y)
    found = _limited({name: (make, *given) for name, make in _solvers().items()}, limit)
    return [*({"system": name, **row} for name, row in found.items()), {"system": _VW, **_vw(*given)}]


def _limited(fits: dict[str, tuple[Any, ...]], limit: float) -> dict[str, Numbers]:
    """Return what `_fit_and_score` gives with each of the arguments, or why it does not."""
    context = multiprocessing.get_context("fork")  # shares the features
    waiting, running = list(fits), {}
    found: dict[str, Numbers] = {name: {} for name in fits}
    while waiting or running:
        while waiting and len(running) < min(2, os.cpu_count() or 1):
            answers: Any = context.SimpleQueue()
            work = lambda given=fits[waiting[0]], answers=answers: answers.put(_fit_and_score(*given))  # noqa: E731
            process = context.Process(target=work)
            process.start()
            running[waiting.pop(0)] = psutil.Process(process.pid), process, answers
        for name, (used, process, answers) in list(running.items()):
            process.join(0.1)
            # of the processor, so that other work on the machine ends nobody
            if process.is_alive() and sum(used.cpu_times()[:2]) > limit:
                process.kill()
                found[name] = {"failed": f"over {limit:.0f} CPU s"}
            elif not process.is_alive():
                code = process.exitcode
                found[name] = found[name] or (dict(answers.get()) if code == 0 else {"failed": f"exit code {code}"})
                del running[name]
    return found


def _fit_and_score(make: Callable[[], Any], x: Any, y: Any, test_x: Any, test_y: Any) -> Numbers:
    import warnings

    warnings.simplefilter("ignore")  # not all converge in the iterations they are given
    model = make()
    started, spent = time.perf_counter(), time.process_time()
    with single_threaded_blas():
        model.fit(x, y)
    seconds, cpu = time.perf_counter() - started, time.process_time() - spent
    return {"seconds": seconds, "cpu": cpu, "error": 100 * float(np.mean(model.predict(test_x) != test_y))}


def _vw(x: Any, y: Any, test_x: Any, test_y: Any) -> Numbers:
    """Train Vowpal Wabbit from its cache, so that parsing text is not counted."""
    if importlib.util.find_spec("vowpalwabbit") is None:
        return {"failed": "not installed"}
    classes = np.unique(y)
    with tempfile.TemporaryDirectory(prefix="distls-vw-") as folder:
        place = Path(folder)
        for name, rows, labels in (("train", x, y), ("test", test_x, test_y)):
            codes = np.searchsorted(classes, labels) + 1
            distls.ingest(sp.csr_matrix(rows), place / name, y=codes, shuffle=False)
            export_text(place / name, place / f"{name}.vw", style="vw")
        # room for a weight of each feature and class
        common = ("--oaa", len(classes), "--loss_function", "logistic", "-b", 22, "-d", place / "train.vw", "-c")
        run_vw(*common)  # writes the cache
        spent = run_vw(*common, "--passes", 10, "-f", place / "model")
        error = vw_error(place / "model", place / "test.vw", place)
        return {"seconds": spent["wall"], "cpu": spent["cpu"], "error": error}


def line(row: Numbers) -> str:
    """Write the row of one baseline."""
    if "failed" in row:
        return f"{row['features']:5} {row['system']:28} {row['failed']}"
    faster = ", ".join(
        f"{name} {'-' if ratio is None else f'{ratio:.1f}'}" for name, ratio in row["times faster"].items()
    )
    return (
        f"{row['features']:5} {row['system']:28} {row['error']:6.2f} % {row['cpu']:8.1f} CPU s; distls "
        f"times faster: {faster}"
    )


# -- on documents (Table 2) ------------------------------------------------------------------------------


def on_documents(train: Path, test: Path, name: str) -> list[Numbers]:
    """Train LIBLINEAR (best of four strengths on the test set, which favours it) and Vowpal Wabbit."""
    from sklearn.svm import LinearSVC

    x, y = arrays_of(train)
    test_x, test_y = arrays_of(test)
    best: Numbers = {"error": 100.0}
    for strength in (0.003, 0.03, 0.3, 3.0):
        found = _fit_and_score(lambda c=strength: LinearSVC(C=c), x, y, test_x, test_y)
        best = found if found["error"] < best["error"] else best
    rows = [{"system": "LIBLINEAR", **best}]
    found = _vw(x, y, test_x, test_y)
    return rows if "failed" in found else [*rows, {"system": "Vowpal Wabbit", **found}]


# -- first-order methods, and BLAS -----------------------------------------------------------------------


def first_order(x: NDArray[np.float64], y: NDArray[Any], rounds: int) -> Numbers:
    """Return the mean softmax loss after `rounds` gradients of L-BFGS and of passes of SAGA, unpenalised."""
    import warnings

    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore")
    scale = np.abs(x).max()
    found = {}
    for name, solver in (("L-BFGS", "lbfgs"), ("SAGA", "saga")):
        model = LogisticRegression(solver=solver, C=np.inf, max_iter=rounds, tol=1e-14)
        model.fit(x / scale, y)
        p = model.predict_proba(x / scale)[np.arange(len(y)), y]
        found[name] = float(-np.log(np.maximum(p, 1e-300)).mean())
    return found


def syrk_seconds(n_rows: int, size: int, processes: int, repeats: int = 3) -> float:
    """Return the median seconds of one float32 syrk over `n_rows` rows, shared by processes of one thread."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        share = -(-n_rows // processes)
        pool.starmap(_syrk, [(64, 64)] * processes)  # starts the processes
        return float(np.median([max(pool.starmap(_syrk, [(share, size)] * processes)) for _ in range(repeats)]))


def _syrk(n_rows: int, size: int) -> float:
    from scipy.linalg import blas

    values = np.random.default_rng(0).standard_normal((n_rows, size), dtype=np.float32)
    with single_threaded_blas():
        blas.ssyrk(1.0, values[:256].T, lower=1)
        started = time.perf_counter()
        blas.ssyrk(1.0, values.T, lower=1)
        return time.perf_counter() - started


# -- cutting planes (Figure 4 of the MCID paper) ---------------------------------------------------------


def cutting_planes(
    x: sp.csr_matrix, codes: NDArray[Any], alpha: float
) -> Iterator[tuple[float, NDArray[np.float64], float]]:
    """Yield CPU seconds, weights and the relative gap after each plane: SVM-multiclass (Joachims 2009, one slack).

    Of alpha/2 |W|^2 + xi, where a plane b - <G, W> <= xi is the mean of what every row is most wrong about: each next
    plane is that of the best W under those so far, a mean of their G over alpha.
    """
    n, rows, k = len(codes), np.arange(len(codes)), int(codes.max()) + 1
    w = np.zeros((x.shape[1], k))
    gradients, offsets, gram, a = [w], [0.0], np.zeros((1, 1)), np.ones(1)
    spent, began = 0.0, time.process_time()
    while True:
        scores = x @ w
        own = scores[rows, codes].copy()
        scores += 1.0
        scores[rows, codes] = own
        worst = scores.argmax(axis=1)
        primal = alpha / 2 * float(np.vdot(w, w)) + float((scores[rows, worst] - own).mean())
        dual = float(a @ offsets) - alpha / 2 * float(np.vdot(w, w))
        spent += time.process_time() - began
        yield spent, w, (primal - dual) / primal
        began = time.process_time()
        turned = sp.csr_matrix((np.full(n, 1.0 / n), (rows, codes)), (n, k))
        turned -= sp.csr_matrix((np.full(n, 1.0 / n), (rows, worst)), (n, k))
        gradients.append((x.T @ turned).toarray())
        offsets.append(float(np.mean(worst != codes)))
        products = np.array([np.vdot(each, gradients[-1]) for each in gradients])
        gram = np.block([[gram, products[:-1, None]], [products[None]]])
        a = _on_simplex(np.array(offsets), gram / alpha, np.append(a, 0.0))
        w = sum(share * each for share, each in zip(a, gradients, strict=True) if share > 0.0) / alpha


def _on_simplex(b: NDArray[Any], h: NDArray[Any], a: NDArray[Any]) -> NDArray[Any]:
    """Maximise a b - a H a / 2 over the simplex, by pairs: from where the slope is least to where it is most."""
    slope = b - h @ a
    for _ in range(20_000):
        most, least = int(slope.argmax()), int(np.where(a > 0.0, slope, np.inf).argmin())
        curvature = h[most, most] + h[least, least] - 2.0 * h[most, least]
        if slope[most] - slope[least] < 1e-7 or curvature <= 0.0:
            break
        step = min((slope[most] - slope[least]) / curvature, a[least])
        a[most], a[least] = a[most] + step, a[least] - step
        slope -= step * (h[:, most] - h[:, least])
    return a
