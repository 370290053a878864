"""What `bcd` gains by shrinking, by active sweeps, and by the best constant of a row.

    DISTLS_DATA=FOLDER python -m benchmarks.papers.bcd_options [--part shrinking,iterations,constants]
        [--sets sector,20news] [--alphas 1e-3] [--limit 60] [--directory FOLDER]

`shrinking` (section 5.2.4 of the paper): rounds, passes and CPU seconds until tau = 1e-3, l1/l2, one lane, one process,
with and without shrinking and sweeps over active columns.
`iterations`: rounds until tau = 1e-3 of the multi-class and the multi-task squared hinge, l1/l2.
`constants`: rounds (and passes) until the relative excess over the lowest objective is 1e-4 and 1e-6, one lane, one or
five active sweeps, with rows of weights at the constant that is best for their penalty and without, for losses that
ignore constants and penalties that do not; the set `normal` is of 2000 rows of 20 normal features. `-`: not in --limit
seconds or --rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import distls
from benchmarks.papers.bcd import Corpus, Fit, Lab
from distls.problem import l1_share
from distls.solvers.status import Status
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import penalty_named

Numbers = dict[str, Any]

GOALS = (1e-4, 1e-6)
LOSSES = ("softmax", "multiclass_squared_hinge")
PENALTIES = ("l1", "elasticnet", "l1linf", "sparse-group")


def shrinking(lab: Lab) -> None:
    """Print what every combination takes until tau."""
    for name in lab.sets:
        corpus = lab.corpus(name)
        for alpha in lab.alphas:
            for sweeps in (0, 5):
                for shrink in (False, True):
                    params = {"alpha": alpha, "active_sweeps": sweeps, "shrink": shrink, "tau": 1e-3, "lanes": 1}
                    fit = Fit(lab, corpus, "bcd", {**params, "algorithm": "sweeps"})
                    ended = fit.until(lab.limit, lab.rounds)
                    value = corpus.objective(fit.weights, alpha)
                    print(
                        f"{name} alpha {alpha:g} active_sweeps {sweeps} shrink {shrink!s:5}: {fit.rounds:4d} rounds, "
                        f"{fit.passes:7.1f} passes, {fit.cpu:6.2f} CPU s{'' if ended else ' (limit)'}, "
                        f"objective {value:.6f}",
                        flush=True,
                    )
                    fit.close()


def iterations(lab: Lab) -> None:
    """Print the rounds that the two squared hinges take until tau, without what the paper does not have."""
    for name in lab.sets:
        corpus = lab.corpus(name)
        for alpha, loss in product(lab.alphas, ("multiclass_squared_hinge", "multitask_squared_hinge")):
            params = {"alpha": alpha, "loss": loss, "active_sweeps": 0, "tau": 1e-3, "lanes": 1}
            fit = Fit(lab, corpus, "bcd", params)
            ended = fit.until(lab.limit, lab.rounds)
            limit = "" if ended else " (limit)"
            print(f"{name} alpha {alpha:g} {loss}: {fit.rounds} rounds, {fit.cpu:.1f} CPU s{limit}", flush=True)
            fit.close()


def constants(lab: Lab) -> None:
    """Print the rounds that fits take with and without the best constants."""
    for name in lab.sets:
        corpus = _normal(lab) if name == "normal" else lab.corpus(name)
        for alpha, loss, penalty, sweeps in product(lab.alphas, LOSSES, PENALTIES, (1, 5)):
            params = {"alpha": alpha, "loss": loss, "penalty": penalty, "active_sweeps": sweeps, "lanes": 1}
            params["algorithm"] = "sweeps"
            curves = {with_: _objectives(lab, corpus, params, with_) for with_ in (True, False)}
            best = min(value for curve in curves.values() for _, value in curve)
            shown = "; ".join(
                f"{'with' if with_ else 'without'} {', '.join(_reached(curve, best))}"
                for with_, curve in curves.items()
            )
            print(f"{name} alpha {alpha:g} {loss} {penalty} active_sweeps {sweeps}: {shown}", flush=True)


def _reached(curve: list[tuple[float, float]], best: float) -> list[str]:
    """Return the rounds, and the passes, until each of the goals."""
    found = []
    for goal in GOALS:
        first = next((i for i, (_, value) in enumerate(curve) if value <= (1 + goal) * best), None)
        found.append("-" if first is None else f"{first + 1} ({curve[first][0]:.0f})")
    return found


def _normal(lab: Lab) -> Corpus:
    """Return 2000 rows of 20 normal features and five classes."""
    path = lab.place / "normal"
    if not path.exists():
        rng = np.random.default_rng(1)
        x, w = rng.standard_normal((2000, 20)), rng.standard_normal((20, 5)) * (rng.random((20, 5)) < 0.5)
        y = (x @ w + rng.gumbel(size=(2000, 5))).argmax(axis=1)
        distls.ingest(x, path, y=y, dtype="float64", columns=True)
    return Corpus("normal", path, path)


def _objectives(lab: Lab, corpus: Corpus, params: Numbers, with_: bool) -> list[tuple[float, float]]:
    """Return passes and objective after each round."""
    fit, curve = Fit(lab, corpus, "bcd", {**params, "dtype": "float64"}), []
    fit._state.recentres = with_
    x, y = corpus.rows
    loss, penalty = loss_named(params["loss"]), penalty_named(params["penalty"])
    while fit.seconds < lab.limit and fit.rounds < lab.rounds and fit.status == Status.RUNNING:
        fit.round()
        w = fit.weights.astype(np.float64)
        mean = float(np.mean(loss.values(x @ w, y)))
        share = l1_share(params["penalty"], params.get("l1_ratio"))
        curve.append((fit.passes, mean + params["alpha"] * float(penalty.value(w, share))))
    fit.close()
    return curve


PARTS = {"shrinking": shrinking, "iterations": iterations, "constants": constants}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--part", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--sets", default="sector,20news")
    parser.add_argument("--alphas", default="1e-3")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a fit may take")
    parser.add_argument("--rounds", type=int, default=3000, help="that it may take")
    parser.add_argument("--directory", type=Path, help="where datasets are kept; default a temporary folder")
    options = parser.parse_args(argv)
    if unknown := set(options.part.split(",")) - set(PARTS):
        parser.error(f"--part {','.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="distls-bcd-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        sets, alphas = tuple(options.sets.split(",")), tuple(map(float, options.alphas.split(",")))
        lab = Lab(options.data, place, sets, alphas, 1, None, options.limit, options.rounds)
        for part in options.part.split(","):
            print(f"-- {part}", flush=True)
            PARTS[part](lab)


if __name__ == "__main__":
    main()
