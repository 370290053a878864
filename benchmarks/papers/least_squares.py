"""The experiments of "Least Squares Revisited" (Agarwal, Kakade, Karampatziakis, Song, Valiant 2014).

    DISTLS_DATA=FOLDER python -m benchmarks.papers.least_squares [--table 1,2] [--figure 1,2,3]
        [--also logits,changes,filters,orders,claims,stages,conditioning,path,spectrum,masks,jpeg] [--seeds 3]
        [--no-tuning] [--share 1] [--rows N] [--limit 600] [--sizes 512,1024] [--settings 1,2] [--filters 1]
        [--cells PATTERN] [--directory FOLDER] [--out FILE]

--table 1: MNIST, linear, logistic and calibrated least squares on pixels and on random Fourier features, means over
seeds, with the bandwidth of the median trick and with one chosen on a validation split. `logits`: random logits
against twice as many Fourier features; `changes`: the table's cells with one thing changed at a time.
--table 2: 20 Newsgroups (split at random and by date) and RCV1-4, stagewise in the order of the gradient, against
LIBLINEAR and Vowpal Wabbit; `orders`: an order for each block against one for a pass. --figure 1: MNIST, error against
seconds for blocks of several sizes and three inner updates. --figure 2: error and seconds by the number of features,
against LIBLINEAR's six solvers at their own tolerances, scikit-learn's LogisticRegression and Vowpal Wabbit on
precomputed features of the same kind, by CPU seconds. --figure 3: CIFAR-10, convolutional features, k-means filters
with Coates' triangle encoding and no contrast normalisation too; `filters`: the first of them with one thing changed
at a time; `masks`: with 1,600 filters; `jpeg`: what compression costs, by MNIST and by CIFAR's images compressed
again. `spectrum`: Figure 1(b) and the ratios of section 3.3. `stages`: 200 calibrated stages of 1024 features against
200 bare syrk calls of that size. `conditioning`: objectives on X and on X A, against first-order methods. `path`:
twenty strengths by five folds in one read, against one fit.

DISTLS_DATA holds the public sets under their usual names. Seconds are those of training, evaluation not counted, on
two processes of one thread unless stated otherwise. --share makes everything smaller, to try the command.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import distls
from benchmarks.papers import images, opponents
from benchmarks.papers.owners import made
from benchmarks.quality.real import arrays_of
from distls.execution import ClusterOptions, open_executor
from distls.execution.executor import Executor
from distls.reporting.costs import round_seconds

Numbers = dict[str, Any]

FOURIER = {"features": "fourier", "pca": 50}
# Published, then what a plain implementation of the equations measured: the errors of Table 1.
TABLE_1 = {
    "pixels": {"linear": (14.1, 13.97), "logistic": (7.8, 7.4), "calibrated": (8.1, 8.4)},
    "4000 features": {"linear": (1.83, 2.0), "logistic": (1.48, 1.48), "calibrated": (1.54, 1.6)},
    "8000 features": {"linear": (1.48, 1.55), "logistic": (1.33, 1.45), "calibrated": (1.36, 1.45)},
}
# Times the median trick's.
BANDWIDTHS = (0.5, 1.0, 2.0)
# Ridges of Table 2, in the paper's sum form, of rows of unit length.
STRENGTHS = (0.3, 1.0, 3.0)


# What may differ from the paper in Table 1: changes of the rows, then of the parameters, `times` of the bandwidth.
CHANGES: dict[str, tuple[tuple[str, ...], Numbers]] = {
    "as in the table": ((), {}),
    **{f"ridge {alpha:g}": ((), {"alpha": alpha}) for alpha in (1e-6, 1e-5, 1e-3, 1e-2)},
    **{f"bandwidth x {times:g}": ((), {"times": times}) for times in (0.5, 1.5, 2.0, 3.0)},
    **{f"{pca} components": ((), {"pca": pca}) for pca in (30, 40, 75, 100)},
    "no intercept": ((), {"fit_intercept": False}),
    "the other precision": ((), {"dtype": ""}),
    "standardised pixels": (("standardize",), {}),
    "rows of unit length": (("l2norm",), {}),
    "unit length, bandwidth x 2": (("l2norm",), {"times": 2.0}),
}
OF_ROUNDS = {"logistic": ("inner_rounds", (15, 60)), "calibrated": ("rounds", (5, 20))}
# Measured in every cell; the rest of linear fits to 4,000 features alone.
OF_ALL = ("as in the table", "bandwidth x 2", "rows of unit length", "unit length, bandwidth x 2")

SPREAD = 10  # seeds of linear fits to 4,000 features as they are, which tell what one run may have

# Settings of Figure 3: name, stages and models of 400 filters each, whether with polynomials.
CIFAR = (
    ("400 filters", 1, 1, False),
    ("400 filters and polynomials", 1, 1, True),
    ("4 stages of these", 4, 1, True),
    ("mean of 4 models of these", 1, 4, True),
)
# Chosen on 5000 of the training rows, held out.
CIFAR_PARAMS: Numbers = {"image": "32x32x3", "inner": "calibrated", "alpha": 3e-3}
# Filters: values of a region, and parameters. Two signs of a response, in 2 x 2 regions; of a triangle one.
FILTERS: dict[str, tuple[int, Numbers]] = {
    "random": (8, {"features": "random-masks", "contrast": True, "threshold": 0.25}),
    "k-means": (8, {"features": "kmeans-masks", "contrast": True, "threshold": 0.25}),
    "k-means, triangle, no contrast": (
        4, {"features": "kmeans-masks", "contrast": False, "threshold": 0.0, "rectify": "triangle"}),
}  # fmt: skip
# What may matter of the first setting of Figure 3, as parameters of the k-means filters and times their number.
FILTER_CHANGES: dict[str, tuple[float, Numbers]] = {
    "as in the figure": (1.0, {}),
    "triangle": (0.5, {"rectify": "triangle", "threshold": 0.0}),
    "triangle, no contrast": (0.5, {"rectify": "triangle", "threshold": 0.0, "contrast": False}),
    "no contrast": (1.0, {"contrast": False}),
    "no threshold": (1.0, {"threshold": 0.0}),
    **{f"{side} x {side} pixels": (1.0, {"mask_side": side}) for side in (4, 8)},
    "3 x 3 regions": (2.25, {"pool": 3}),
    "linear": (1.0, {"inner": "linear"}),
    **{f"ridge {alpha:g}": (1.0, {"alpha": alpha}) for alpha in (1e-3, 1e-2)},
    "twice the filters": (2.0, {}),
    "four times the filters": (4.0, {}),
}


@dataclass(frozen=True)
class Lab:
    """Where data sets are and what runs the fits.

    Attributes
    ----------
    source, place : Path
        The public sets, and datasets made of them.
    executor : Executor
    seeds : int
    share : float
        Of rows, stages and features, less than 1 for a try.
    tune : bool
        Choose bandwidths of Table 1 on a validation split too.
    limit : float
        Time limit of a competing solver of Figure 2, in CPU seconds.
    rows : int or None
        Of RCV1-4; the paper's by default.
    cells : str
        Of `changes`, a pattern of features, variant and change.
    sizes : sequence of int
        Features of the others in Figure 2.
    settings, filters : sequence of int
        Of Figure 3, from 1 on.
    real : Path or None
        The owners' files of RCV1-4 and CIFAR-10.
    """

    source: Path
    place: Path
    executor: Executor
    seeds: int
    share: float
    tune: bool = True
    limit: float = 600.0
    rows: int | None = None
    cells: str = ""
    sizes: Sequence[int] = ()
    settings: Sequence[int] = ()
    filters: Sequence[int] = ()
    real: Path | None = None

    def fit(self, method: str, data: Path, params: Mapping[str, Any], **options: Any) -> Any:
        """Train on the benchmark's executor."""
        options = {"eval_every": 0, "executor": self.executor, **options}
        return distls.fit(method, data, params=dict(params), **options)

    def error(self, model: Any, test: Path) -> float:
        """Return the test error in %."""
        return 100 * distls.evaluate(model, test, executor=self.executor).error

    def scaled(self, number: int) -> int:
        """Return `number`, or less of it in a try."""
        return max(int(number * self.share), 2)

    def set_of(self, name: str, make: Callable[[Path], Any]) -> Path:
        """Return the dataset `name`, made at the first request."""
        path = self.place / name
        if not path.exists():
            make(path)
        return path


def mnist(lab: Lab, *more: str) -> Path:
    """Ingest MNIST once, maybe with more transforms: mnist and mnist-test; rows split: mnist-part, mnist-part-val."""
    folder, name = lab.source / "mnist", "-".join(("mnist", *more))

    def make(path: Path) -> None:
        for out, split in ((path, ()), (path.with_name(f"{name}-part"), ("val=0.2",)))[: 1 if more else 2]:
            distls.ingest(
                str(folder / "train-images-idx3-ubyte.gz"),
                out,
                labels=folder / "train-labels-idx1-ubyte.gz",
                transform=("scale=255", *more),
                split=split,
            )
        labels = folder / "t10k-labels-idx1-ubyte.gz"
        images_of_test = str(folder / "t10k-images-idx3-ubyte.gz")
        distls.ingest(images_of_test, path.with_name(f"{name}-test"), labels=labels, like=path)

    return lab.set_of(name, make)


# -- Table 1 ---------------------------------------------------------------------------------------------


def table_1(lab: Lab) -> list[Numbers]:
    """Measure Table 1: mean test error, with the bandwidth of the median trick and with one that is chosen.

    It is chosen for 4000 features, separately for each variant, and also used for 8000.
    """
    rows, chosen = [], {}
    data = mnist(lab)
    for features in TABLE_1:
        for variant, (published, plain) in TABLE_1[features].items():
            method, params = _variant(features, variant, lab)
            seeds = 1 if features == "pixels" else lab.seeds
            error, seconds = _mean_error(lab, data, method, params, seeds)
            shown = features if lab.share == 1 else f"{lab.share:g} of {features}"
            row = {"features": shown, "variant": variant, "published": published, "plain": plain,
                   "error": error, "seconds": seconds}  # fmt: skip
            print(_line_1(row), flush=True)
            if lab.tune and features != "pixels":
                if variant not in chosen:
                    chosen[variant] = _best_bandwidth(lab, method, params)
                own = {**params, "bandwidth": chosen[variant]}
                tuned, _ = _mean_error(lab, data, method, own, seeds)
                row |= {"tuned": tuned, "bandwidth": chosen[variant]}
                print(f"{'':26} {tuned:5.2f} % at s = {chosen[variant]:.1f}", flush=True)
            rows.append(row)
    return rows


def _variant(features: str, variant: str, lab: Lab) -> tuple[str, Numbers]:
    """Return method and parameters of one cell of the table."""
    if features == "pixels":
        return {
            "linear": ("gls", {"link": "identity", "alpha": 1e-5}),
            "logistic": ("gls", {"link": "softmax", "alpha": 1e-5}),
            "calibrated": ("cls", {"alpha": 1e-3, "rounds": lab.scaled(50)}),
        }[variant]
    size = int(features.split()[0])
    block: Numbers = {**FOURIER, "block_size": lab.scaled(size), "lanes": _two_lanes(mnist(lab)), "alpha": 1e-4}
    stage = {"stages": 1, "inner": "linear"}
    steps = {"inner": "logistic", "inner_rounds": lab.scaled(30), "accelerate": "nesterov"}
    # more rounds than these overfit
    rounds = {"rounds": 10 if size < 8000 else 4, "dtype": "float32"}
    return {
        "linear": ("stagewise", block | stage),
        "logistic": ("stagewise", block | stage | steps),
        "calibrated": ("cls", block | rounds),
    }[variant]


def _two_lanes(data: Path) -> int:
    """Return two, one for each process: every lane has its own Gram matrix."""
    return min(2, len(distls.open_dataset(data)))


def _mean_error(lab: Lab, data: Path, method: str, params: Numbers, seeds: int) -> tuple[float, float]:
    """Return mean test error and mean seconds over seeds."""
    test = data.with_name(f"{data.name}-test")
    fits = [lab.fit(method, data, params, seed=seed) for seed in range(seeds)]
    errors = [lab.error(fit.model, test) for fit in fits]
    return float(np.mean(errors)), float(np.mean([round_seconds(fit.record) for fit in fits]))


def _best_bandwidth(lab: Lab, method: str, params: Numbers) -> float:
    """Choose among multiples of the median trick's bandwidth by the error on the validation split."""
    part, held = lab.place / "mnist-part", lab.place / "mnist-part-val"
    middle = _median_bandwidth(lab, part)
    grid = {**params, "bandwidth": [factor * middle for factor in BANDWIDTHS]}
    return float(lab.fit(method, part, grid, select=held).selected["bandwidth"])


def _median_bandwidth(lab: Lab, data: Path, **params: Any) -> float:
    small = {**FOURIER, "block_size": 8, "stages": 1, "inner": "linear", **params}
    return float(lab.fit("stagewise", data, small).model.recipe["features"]["bandwidth"])


def changes(lab: Lab) -> list[Numbers]:
    """Measure the cells of Table 1 with one thing changed at a time: what a difference from the paper may be of."""
    rows = []
    for features in list(TABLE_1)[1:]:
        for variant in TABLE_1[features]:
            for name, (rows_as, change) in _changes_of(features, variant).items():
                if re.search(lab.cells, f"{features} {variant} {name}") is None:
                    continue
                data = mnist(lab, *rows_as)
                method, params = _variant(features, variant, lab)
                own = dict(change)
                if times := own.pop("times", None):
                    own["bandwidth"] = times * _median_bandwidth(lab, data)
                if "dtype" in own:
                    own["dtype"] = "float32" if params.get("dtype") == "float64" else "float64"
                test = data.with_name(f"{data.name}-test")
                spread = (features, variant, name) == ("4000 features", "linear", "as in the table")
                seeds = max(lab.seeds, SPREAD) if spread else lab.seeds
                errors = [lab.error(lab.fit(method, data, params | own, seed=seed).model, test)
                          for seed in range(seeds)]  # fmt: skip
                rows.append({"features": features, "variant": variant, "change": name, "errors": errors})
                shown = " ".join(f"{error:5.2f}" for error in errors)
                print(f"{features} {variant:11} {name:28} {np.mean(errors):5.2f} % ({shown})", flush=True)
    return rows


def _changes_of(features: str, variant: str) -> dict[str, tuple[tuple[str, ...], Numbers]]:
    """Return the changes of a cell: all of linear fits to 4000 features, fewer of others."""
    every = variant == "linear" and features == "4000 features"
    found = {name: own for name, own in CHANGES.items() if every or name in OF_ALL}
    name, numbers = OF_ROUNDS.get(variant, ("", ()))
    return found | {f"{name} {number}": ((), {name: number}) for number in numbers}


def _line_1(row: Numbers) -> str:
    return (
        f"{row['features']:14} {row['variant']:11} {row['error']:5.2f} % in {row['seconds']:7.1f} s; published "
        f"{row['published']:.2f}, plain {row['plain']:.2f}"
    )


def logits(lab: Lab) -> list[Numbers]:
    """Measure appendix A.2.1: random logits against twice as many Fourier features, and polynomials; one block."""
    data, rows = mnist(lab), []
    for size in (1000, 2000, 4000):
        row: Numbers = {"size": size}
        for kind, count in (("fourier", size), ("logits", size // 2), ("polynomials", size)):
            params = _variant(f"{count} features", "linear", lab)[1] | {"features": kind}
            row[kind], _ = _mean_error(lab, data, "stagewise", params, lab.seeds)
        rows.append(row)
        print(
            f"{size:5} Fourier features {row['fourier']:5.2f} %, {size // 2} logits {row['logits']:5.2f} %, "
            f"polynomials {row['polynomials']:5.2f} %",
            flush=True,
        )
    return rows


# -- Figure 1 --------------------------------------------------------------------------------------------


def figure_1(lab: Lab) -> list[Numbers]:
    """Measure Figure 1(a): test error against seconds of training, by block size and inner update."""
    data = mnist(lab)
    curves = []
    plans = {"linear": 64, "calibrated": 64, "logistic": 8}
    for size in (300, 512, 1024):
        for inner, stages in plans.items():
            params = {**FOURIER, "block_size": lab.scaled(size), "inner": inner, "alpha": 1e-3}
            params["stages"] = lab.scaled(stages * 512 // size)
            if inner == "logistic":
                params["inner_rounds"] = 25
            curve = _curve(lab, data, params, points=8)
            curves.append({"block": size, "inner": inner, "points": curve})
            shown = ", ".join(f"{s:.1f} s {e:.2f} %" for s, e in curve)
            print(f"block {size:5}  {inner:10}  {shown}", flush=True)
    return curves


def _curve(lab: Lab, data: Path, params: Numbers, points: int) -> list[tuple[float, float]]:
    """Return (seconds, test error %) along a fit."""
    reads = params["stages"] * params.get("inner_rounds", 1)
    run = Path(tempfile.mkdtemp(dir=lab.place)) / "run"
    lab.fit(
        "stagewise",
        data,
        params,
        run=run,
        eval_data=data.with_name(f"{data.name}-test"),
        eval_every=max(reads // points, 1),
    )
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [(round_seconds(e), 100 * e["eval_error"]) for e in events if "eval_error" in e]


def spectrum(lab: Lab) -> list[Numbers]:
    """Measure Figure 1(b): the share of the largest 1000 singular values, and s_2 / s_1000 (section 3.3)."""
    published = {"20news": 19.8, "rcv1-4": 14.0, "mnist": 72000.0}
    rows = []
    for name, matrix in (
        ("mnist", _fourier(lab, lab.scaled(3000))),
        ("20news", _documents(lab)),
        ("rcv1-4", _rcv1(lab)),
    ):
        values = opponents.singular_values(matrix, min(lab.scaled(1000), min(matrix.shape) - 1))
        share = np.cumsum(values) / values.sum()
        ratio = float(values[1] / values[-1])
        rows.append({"set": name, "ratio": ratio, "published": published[name], "share": share.tolist()})
        print(f"{name:8} s_2 / s_{len(values)} = {ratio:9.1f}  published {published[name]:g}", flush=True)
    return rows


def _fourier(lab: Lab, size: int, test: bool = False) -> NDArray[np.float32]:
    """Return MNIST as random Fourier features in memory, for the others: the features that `stagewise` would have."""
    data = mnist(lab)
    params = {**FOURIER, "block_size": size, "stages": 1, "inner": "linear", "lanes": 1}
    model = lab.fit("stagewise", data, params).model
    x, _ = arrays_of(data.with_name("mnist-test") if test else data)
    return opponents.features_of(model, x)


def _documents(lab: Lab) -> sp.csr_matrix:
    return arrays_of(_news(lab, "by date")[0])[0]


def _rcv1(lab: Lab) -> sp.csr_matrix:
    data = made("rcv1-4", lab.place / "rcv1-4-part", real=lab.real, rows=lab.scaled(60_000))
    return arrays_of(data)[0]


# -- Figure 2 --------------------------------------------------------------------------------------------


def figure_2(lab: Lab) -> Numbers:
    """Measure Figure 2: error and seconds by the number of features, distls and others on features of the same kind."""
    data = mnist(lab)
    rows: list[Numbers] = []
    for inner, stages in (("linear", 32), ("calibrated", 32), ("logistic", 8)):
        size, steps = lab.scaled(512), 25 if inner == "logistic" else 1
        # as many stages as ever: with blocks that are shorter by the share, features shrink as those of the others do
        params = {**FOURIER, "block_size": size, "inner": inner, "alpha": 1e-3, "stages": stages}
        if inner == "logistic":
            params["inner_rounds"] = steps
        before = _cpu_seconds(lab.executor)
        curve = _curve(lab, data, params, points=params["stages"])
        # Evaluations are among these, but not among the seconds, in which a process can spend no more than these.
        share = min(
            (_cpu_seconds(lab.executor) - before) / curve[-1][0],
            1.0 + len(lab.executor.each_worker(_process_time, None)),
        )
        rows += [
            {"system": f"distls {inner}", "features": (i + 1) * size, "seconds": s, "cpu": s * share, "error": e}
            for i, (s, e) in enumerate(curve)
        ]
    labels, test_y = arrays_of(data)[1], arrays_of(data.with_name("mnist-test"))[1]
    for size in map(lab.scaled, lab.sizes):
        given = _fourier(lab, size), labels, _fourier(lab, size, test=True), test_y
        for row in opponents.on_features(*given, limit=lab.limit):
            row |= {"features": size, "times faster": {
                name: _times_faster(row, [r for r in rows if r["system"] == name])
                for name in ("distls linear", "distls calibrated", "distls logistic")}}  # fmt: skip
            rows.append(row)
            print(opponents.line(row), flush=True)
    return {"rows": rows}


def _times_faster(row: Numbers, curve: Sequence[Numbers]) -> float | None:
    """Return how many times fewer CPU seconds a curve takes to a rival's error; None if it does not reach it."""
    reached = [point["cpu"] for point in curve if point["error"] <= row.get("error", 0.0)]
    return row["cpu"] / reached[0] if reached and "cpu" in row else None


# -- Table 2 ---------------------------------------------------------------------------------------------


def table_2(lab: Lab) -> list[Numbers]:
    """Measure Table 2: stagewise in the order of the gradient, LIBLINEAR and Vowpal Wabbit on the same rows."""
    rows = []
    sets: dict[str, Any] = {
        "20news, random split": (_news(lab, "random"), 500, 2),
        "20news, by date": (_news(lab, "by date"), 500, 2),
        "rcv1-4": (_rcv1_sets(lab), 2000, 1),
    }
    for name, ((train, test), size, passes) in sets.items():
        meta = distls.open_dataset(train).meta
        params = {"order": "gradient", "block_size": lab.scaled(size), "inner": "linear", "fit_intercept": False}
        blocks = -(-meta.n_features // params["block_size"])
        params["stages"] = passes * blocks if name != "rcv1-4" else lab.scaled(10)
        strength = _strength(lab, train, params)
        fitted = lab.fit("stagewise", train, {**params, "alpha": strength / meta.n_rows})
        error = lab.error(fitted.model, test)
        own = {
            "system": "distls stagewise",
            "error": error,
            "seconds": round_seconds(fitted.record),
            "lambda": strength,
        }
        for row in [own, *opponents.on_documents(train, test, name)]:
            rows.append({"set": name, **row})
            print(f"{name:22} {row['system']:18} {row['error']:6.2f} % {row['seconds']:8.1f} s", flush=True)
    return rows


def orders(lab: Lab) -> list[Numbers]:
    """Measure appendix A.2.2: one order of the columns for a pass of blocks, and an order for each block."""
    sets = {
        "20news, by date": (_news(lab, "by date"), 500, (5, 10, 20)),
        "rcv1-4": (_rcv1_sets(lab), 2000, (2, 10)),  # the paper: two blocks of 2000, an order for each
    }
    return [
        row
        for name, (paths, size, counts) in sets.items()
        for order in ("gradient", "block-gradient")
        for row in _ordered_blocks(lab, name, paths, {"order": order, "block_size": lab.scaled(size)}, counts)
    ]


def claims(lab: Lab) -> dict[str, list[Numbers]]:
    """Measure what is said in passing: frequent words first, PCA for free, a first-order method before `gls`."""
    news, blocks = _news(lab, "by date"), {"block_size": lab.scaled(500)}
    words = [
        row
        for order in ("frequency", "random", "rareness")
        for row in _ordered_blocks(lab, "20news, by date", news, {"order": order, **blocks}, (10, 40))
    ]
    data = mnist(lab)
    test, own = data.with_name("mnist-test"), {"stages": 4, "alpha": 1e-4, "lanes": _two_lanes(data)}
    components: list[Numbers] = []
    for pca in ({"pca": 50}, {}):
        params = {"features": "fourier", "block_size": lab.scaled(1000), **own, **pca}
        fitted = lab.fit("stagewise", data, params)
        found = {"error": lab.error(fitted.model, test), "seconds": fitted.seconds}
        components.append({"system": f"pca={pca.get('pca', 'none')}", **found})
    run = lab.place / "sgd"
    if not run.exists():
        lab.fit("sgd", data, {}, run=run, passes=1)
    steps: list[Numbers] = []
    for passes in (5, 20):
        for start, init in (("zero", {}), ("a pass of sgd", {"init": str(run)})):
            fitted = lab.fit("gls", data, {"link": "softmax", "alpha": 1e-5, **init}, passes=passes, eval_every=5)
            row = {"objective": fitted.record["objective"], "error": lab.error(fitted.model, test)}
            steps.append({"system": f"gls from {start}", "passes": passes, **row})
    for row in components + steps:
        print({name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}, flush=True)
    return {"frequent words first": words, "PCA": components, "hybrid": steps}


def _ordered_blocks(
    lab: Lab, name: str, paths: tuple[Path, Path], own: Numbers, counts: Sequence[int]
) -> list[Numbers]:
    """Return a row for each number of blocks, with the ridge chosen for the largest of them."""
    train, test = paths
    rows, n_rows = [], distls.open_dataset(train).meta.n_rows
    params = {**own, "fit_intercept": False, "stages": counts[-1]}
    strength = _strength(lab, train, params)
    for stages in counts:
        fitted = lab.fit("stagewise", train, {**params, "stages": stages, "alpha": strength / n_rows})
        row = {"set": name, **own, "stages": stages, "lambda": strength, "seconds": round_seconds(fitted.record)}
        row["error"] = lab.error(fitted.model, test)
        rows.append(row)
        print(
            "{set:16} {order:15} {stages:3} blocks {error:6.2f} % in {seconds:.1f} s, lambda {lambda:g}".format(**row),
            flush=True,
        )
    return rows


def _strength(lab: Lab, train: Path, params: Numbers) -> float:
    """Choose the paper's lambda, that of a sum over rows, by the error on a fifth of at most 20,000 training rows."""
    part, held = (train.with_name(f"{train.name}-{name}") for name in ("part", "part-val"))
    if not part.exists():
        x, y = arrays_of(train)
        chosen = np.random.default_rng(0).permutation(x.shape[0])[:20_000]
        fifth = len(chosen) // 5
        distls.ingest(x[chosen[fifth:]], part, y=y[chosen[fifth:]], partition_size=2**19)
        distls.ingest(x[chosen[:fifth]], held, y=y[chosen[:fifth]], like=part)
    n_rows = distls.open_dataset(part).meta.n_rows
    grid = {**params, "alpha": [strength / n_rows for strength in STRENGTHS]}
    return float(lab.fit("stagewise", part, grid, select=held).selected["alpha"]) * n_rows


def _news(lab: Lab, split: str) -> tuple[Path, Path]:
    """Ingest 20 Newsgroups: log(1 + count), unit rows, words in at least three documents, split as asked."""
    folder = lab.source / "20news"
    train, test = (str(folder / f"20news-counts.{part}.svm.gz") for part in ("train", "test"))
    common: Numbers = {"transform": ("log1p", "l2norm"), "min_count": 3, "partition_size": 2**19}

    def by_date(path: Path) -> None:
        distls.ingest(train, path, **common)
        distls.ingest(test, path.with_name(f"{path.name}-test"), like=path)

    def random(path: Path) -> None:
        distls.ingest([train, test], path, split=("test=0.2041",), **common)

    path = lab.set_of(f"news-{split.replace(' ', '-')}", by_date if split == "by date" else random)
    return path, path.with_name(f"{path.name}-test")


def _rcv1_sets(lab: Lab) -> tuple[Path, Path]:
    rows = lab.rows or (None if lab.share == 1 else lab.scaled(665_265))
    path = made("rcv1-4", lab.place / f"rcv1-4-{rows or 'all'}", real=lab.real, rows=rows)
    return path, path.with_name(f"{path.name}-test")


# -- Figure 3 --------------------------------------------------------------------------------------------


def figure_3(lab: Lab) -> list[Numbers]:
    """Measure Figure 3: CIFAR-10 with convolutions, also joined with polynomials, in stages and averaged."""
    train, test = images.cifar(lab.source, lab.place, lab.real)
    rows = []
    for name, stages, models, beside in (CIFAR[number - 1] for number in lab.settings):
        for filters, (each, kind) in (list(FILTERS.items())[number - 1] for number in lab.filters):
            size = each * lab.scaled(400)
            params = {**CIFAR_PARAMS, **kind, "block_size": size, "stages": stages, "models": models}
            if beside:
                expand = lab.scaled(4992)
                params |= {"block_size": size + expand, "expand": expand}
            rows.append({"setting": name, "filters": filters, **_pictured(lab, train, test, params)})
            print(f"{name:28} {filters:32} " + "{accuracy:6.2f} % in {seconds:.0f} s".format(**rows[-1]), flush=True)
    return rows


def _pictured(lab: Lab, train: Path, test: Path, params: Numbers) -> Numbers:
    fitted = lab.fit("stagewise", train, params)
    return {**params, "accuracy": 100 - lab.error(fitted.model, test), "seconds": round_seconds(fitted.record)}


def filter_changes(lab: Lab) -> list[Numbers]:
    """Measure what matters of the first setting of Figure 3, one thing changed at a time."""
    train, test = images.cifar(lab.source, lab.place, lab.real)
    rows, size = [], 8 * lab.scaled(400)
    for name, (times, change) in FILTER_CHANGES.items():
        params = {**CIFAR_PARAMS, **FILTERS["k-means"][1], "stages": 1, **change, "block_size": int(times * size)}
        rows.append({"change": name, **_pictured(lab, train, test, params)})
        print(f"{name:24} " + "{accuracy:6.2f} % in {seconds:.0f} s".format(**rows[-1]), flush=True)
    return rows


def masks(lab: Lab) -> Numbers:
    """Measure four times the filters of Figure 3 in one block."""
    train, test = images.cifar(lab.source, lab.place, lab.real)
    size = 8 * lab.scaled(1600)
    params = {**CIFAR_PARAMS, **FILTERS["k-means"][1], "stages": 1, "lanes": 1, "block_size": size}
    row = _pictured(lab, train, test, params)
    print(f"{size // 8} filters: {row['accuracy']:.2f} % in {row['seconds']:.0f} s", flush=True)
    return row


def jpeg(lab: Lab) -> list[Numbers]:
    """Measure 400 k-means filters on images as they are and compressed as those of CIFAR-10 are, rows of both sets.

    MNIST's are exact, and lose shades; those of CIFAR-10 were compressed before and lose once more, as their 8 x 8
    blocks are others now.
    """
    rows, digits = [], (mnist(lab), lab.place / "mnist-test")
    side = math.isqrt(distls.open_dataset(digits[0]).meta.n_features)
    kinds = {"mnist": (digits, f"{side}x{side}x1"), "cifar": (images.cifar(lab.source, lab.place, lab.real), "32x32x3")}
    for name, (sets, image) in kinds.items():
        again = images.compressed(*sets, image, lab.place / f"{name}-jpeg")
        for state, (train, test) in (("as it is", sets), ("JPEG of quality 75", again)):
            params = {**CIFAR_PARAMS, **FILTERS["k-means"][1], "image": image, "block_size": 8 * lab.scaled(400)}
            rows.append({"set": name, "images": state, **_pictured(lab, train, test, {**params, "stages": 1})})
            print(f"{name:6} {state:20} " + "{accuracy:6.2f} %".format(**rows[-1]), flush=True)
    return rows


# -- claims ----------------------------------------------------------------------------------------------


def stages(lab: Lab) -> Numbers:
    """Measure 200 calibrated stages of 1024 features on MNIST, and as many bare syrk calls of that size."""
    data = mnist(lab)
    count, size = lab.scaled(200), lab.scaled(1024)
    params = {**FOURIER, "block_size": size, "inner": "calibrated", "alpha": 1e-3, "stages": count}
    params["lanes"] = _two_lanes(data)
    fitted = lab.fit("stagewise", data, params)
    error = lab.error(fitted.model, data.with_name("mnist-test"))
    bare = opponents.syrk_seconds(distls.open_dataset(data).meta.n_rows, size + 10, processes=2) * count
    seconds = round_seconds(fitted.record)
    ratio = seconds / bare
    print(f"{count} stages of {size}: {error:.2f} %, {seconds:.1f} s, bare syrk {bare:.1f} s, ratio {ratio:.2f}")
    return {
        "stages": count,
        "block": size,
        "error": error,
        "seconds": round_seconds(fitted.record),
        "syrk": bare,
        "ratio": ratio,
    }


def conditioning(lab: Lab) -> list[Numbers]:
    """Measure the objective after each of 100 steps on X and on X A, and that of L-BFGS and SAGA.

    Steps are compared, not rounds: where X A is ill-conditioned, a read for another basis precedes the first one.
    """
    rng = np.random.default_rng(0)
    n, d, k = lab.scaled(5000), 20, 4
    x = rng.standard_normal((n, d))
    y = (x @ rng.standard_normal((d, k)) + rng.gumbel(size=(n, k))).argmax(axis=1)
    rows = []
    for condition in (1.0, 1e2, 1e8):
        left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
        a = left * np.geomspace(1.0, 1.0 / condition, d) @ right
        row = {"condition": condition, "gls": _objectives(lab, x @ a, y)}
        row |= opponents.first_order(x @ a, y, rounds=100)
        rows.append(row)
    for row in rows:
        steps = min(len(rows[0]["gls"]), len(row["gls"]))
        first, own = np.array(rows[0]["gls"][:steps]), np.array(row["gls"][:steps])
        row["difference"], row["steps"] = float(np.abs(own / first - 1).max()), steps
        others = "  ".join(f"{name} {row[name]:.6f}" for name in ("L-BFGS", "SAGA"))
        print(
            f"condition {row['condition']:7.0e}  gls {own[-1]:.6f} (largest relative difference in {steps} steps "
            f"{row['difference']:.1e})  {others}",
            flush=True,
        )
    return rows


def _objectives(lab: Lab, x: NDArray[np.float64], y: NDArray[Any]) -> list[float]:
    place = Path(tempfile.mkdtemp(dir=lab.place))
    distls.ingest(x, place / "data", y=y, dtype="float64", shuffle=False)
    params = {"link": "softmax", "alpha": 0.0, "accelerate": "none", "lipschitz": "sharp"}
    # the first read, and one for a basis, take no step
    lab.fit("gls", place / "data", params, run=place / "run", passes=102)
    events = [json.loads(line) for line in (place / "run" / "events.jsonl").read_text().splitlines()]
    details = [event["details"] for event in events]
    return [each["best_objective"] for each in details if "best_objective" in each][:100]


def path_cost(lab: Lab) -> list[Numbers]:
    """Measure one read for twenty strengths by five folds against one fit, at 2000 features, by the number of rows."""
    rows = []
    for n in (50_000, 100_000, 200_000):
        data = lab.set_of(f"path-{n}", lambda path, n=n: _normal_rows(lab.scaled(n), lab.scaled(2000), path))
        for dtype in ("float64", "float32"):
            rows.append({"rows": n, "dtype": dtype, **_path_beside_one(lab, data, dtype)})
            print(_line_path(rows[-1]), flush=True)
    return rows


def _normal_rows(n: int, d: int, path: Path) -> None:
    """Ingest n normal rows of d features and ten classes, float32, made block by block."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(path.with_suffix(".npy"), mode="w+", dtype=np.float32, shape=(n, d))
    y = np.empty(n, np.int64)
    for first in range(0, n, 5000):
        piece = rng.standard_normal((min(5000, n - first), d), dtype=np.float32)
        x[first : first + len(piece)] = piece
        y[first : first + len(piece)] = (piece[:, :10] + rng.standard_normal((len(piece), 10))).argmax(axis=1)
    distls.ingest(x, path, y=y)
    path.with_suffix(".npy").unlink()


def _path_beside_one(lab: Lab, data: Path, dtype: str) -> Numbers:
    """Return medians of three: seconds, and seconds of CPU of all processes."""
    wall: dict[str, list[float]] = {"one": [], "path": []}
    cpu: dict[str, list[float]] = {"one": [], "path": []}
    for _ in range(3):
        for name, params in (("one", {"alpha": 1e-3}), ("path", {"alpha": "path", "folds": 5})):
            before = _cpu_seconds(lab.executor)
            common = {"link": "identity", "dtype": dtype, "lanes": _two_lanes(data)}
            fitted = lab.fit("gls", data, common | params)
            cpu[name].append(_cpu_seconds(lab.executor) - before)
            wall[name].append(round_seconds(fitted.record))
    row: Numbers = {}
    for kind, seconds in (("wall", wall), ("cpu", cpu)):
        one, path = (float(np.median(seconds[name])) for name in ("one", "path"))
        row |= {f"{kind} one": one, f"{kind} path": path, f"{kind} ratio": path / one}
    return row


def _cpu_seconds(executor: Executor) -> float:
    """Return the CPU seconds of this process and the workers."""
    return time.process_time() + sum(executor.each_worker(_process_time, None).values())


def _process_time(_: None) -> float:
    return time.process_time()


def _line_path(row: Numbers) -> str:
    return f"{row['rows']:7} rows  {row['dtype']}  " + "  ".join(
        f"{kind}: one fit {row[f'{kind} one']:.2f} s, path of folds {row[f'{kind} path']:.2f} s, "
        f"ratio {row[f'{kind} ratio']:.2f}"
        for kind in ("wall", "cpu")
    )


# -- command ---------------------------------------------------------------------------------------------

PARTS: dict[str, dict[str, Callable[[Lab], Any]]] = {
    "table": {"1": table_1, "2": table_2},
    "figure": {"1": figure_1, "2": figure_2, "3": figure_3},
    "also": {
        "logits": logits,
        "changes": changes,
        "filters": filter_changes,
        "orders": orders,
        "claims": claims,
        "spectrum": spectrum,
        "masks": masks,
        "jpeg": jpeg,
        "stages": stages,
        "conditioning": conditioning,
        "path": path_cost,
    },
}


def main(argv: Sequence[str] | None = None) -> Numbers:
    """Measure the requested tables, figures and claims, print them, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    for part, table in PARTS.items():
        parser.add_argument(f"--{part}", default="", help=f"some of {','.join(table)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-tuning", action="store_true", help="Table 1 with the median trick only")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--real", type=Path, help="folder of the owners' files; see docs/papers/real-files.md")
    parser.add_argument("--cells", default="", help="of `changes`, a pattern such as '4000 .* linear'; default all")
    parser.add_argument("--rows", type=int, help="of RCV1-4 in Table 2; default the paper's")
    parser.add_argument("--limit", type=float, default=600.0, help="CPU seconds that a rival of Figure 2 may take")
    for name, default, what in (
        ("sizes", "512,1024,2048", "features of the others in Figure 2, times the share"),
        ("settings", ",".join(map(str, range(1, len(CIFAR) + 1))), "of Figure 3, counted from 1"),
        ("filters", ",".join(map(str, range(1, len(FILTERS) + 1))), "of Figure 3, counted from 1"),
    ):
        parser.add_argument(f"--{name}", default=default, help=f"{what}; default {default}")
    parser.add_argument("--directory", type=Path, help="where datasets are kept; default a temporary folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    asked = [(part, name) for part in PARTS for name in getattr(options, part).split(",") if name]
    unknown = [f"--{part} {name}" for part, name in asked if name not in PARTS[part]]
    if unknown or not asked:
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "nothing asked for: --table 1, for example")
    if options.data is None and any(name not in ("conditioning", "path") for _, name in asked):
        sys.exit("set DISTLS_DATA to the folder of the data sets")
    results: Numbers = {"cpus": os.cpu_count()}
    executor, _ = open_executor(ClusterOptions(workers=options.workers))
    with tempfile.TemporaryDirectory(prefix="distls-lsr-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        lab = Lab(
            options.data or place, place, executor, options.seeds, options.share, not options.no_tuning,
            options.limit * options.share, options.rows, options.cells,
            *([int(n) for n in each.split(",")] for each in (options.sizes, options.settings, options.filters)),
            options.real,
        )  # fmt: skip
        try:
            for part, name in asked:
                print(f"-- {part} {name}", flush=True)
                began = time.perf_counter()
                results[f"{part} {name}"] = PARTS[part][name](lab)
                results[f"{part} {name} took"] = time.perf_counter() - began
                if options.out:  # after each
                    options.out.write_text(json.dumps(results, indent=1))
        finally:
            executor.close()
    return results


if __name__ == "__main__":
    main()
