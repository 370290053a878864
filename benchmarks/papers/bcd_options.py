"""What `bcd` gains by shrinking, by active sweeps, and by the best constant of a row.

    DISTLS_DATA=FOLDER python -m benchmarks.papers.bcd_options [--part shrinking,constants] [--sets sector,20news]
        [--alphas 1e-3] [--limit 60] [--directory FOLDER]

`shrinking` (section 5.2.4 of the paper): rounds, passes and CPU seconds until tau = 1e-3, l1/l2, one lane, one process,
with and without shrinking and sweeps over active columns.
`constants`: rounds until the relative excess over the lowest objective is 1e-4 and 1e-6, softmax with `l1`, one lane,
with rows of weights at the constant that is best for their penalty and without. `-`: not in --limit seconds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

from benchmarks.papers.bcd import Corpus, Fit, Lab
from distls.solvers.solver import Status

GOALS = (1e-4, 1e-6)


def shrinking(lab: Lab) -> None:
    """Print what every combination takes until tau."""
    for name in lab.sets:
        corpus = lab.corpus(name)
        for alpha in lab.alphas:
            for sweeps in (0, 5):
                for shrink in (False, True):
                    fit = Fit(
                        lab,
                        corpus,
                        "bcd",
                        {"alpha": alpha, "active_sweeps": sweeps, "shrink": shrink, "tau": 1e-3, "lanes": 1},
                    )
                    ended = fit.until(lab.limit, lab.rounds)
                    value = corpus.objective(fit.weights, alpha)
                    print(
                        f"{name} alpha {alpha:g} active_sweeps {sweeps} shrink {shrink!s:5}: {fit.rounds:4d} rounds, "
                        f"{fit.passes:7.1f} passes, {fit.cpu:6.2f} CPU s{'' if ended else ' (limit)'}, "
                        f"objective {value:.6f}",
                        flush=True,
                    )
                    fit.close()


def constants(lab: Lab) -> None:
    """Print the rounds that fits take with and without the best constants."""
    for name in lab.sets:
        corpus = lab.corpus(name)
        for alpha in lab.alphas:
            curves = {with_: _objectives(lab, corpus, alpha, with_) for with_ in (True, False)}
            best = min(min(values) for values in curves.values())
            for with_, values in curves.items():
                reached = [
                    next((str(i + 1) for i, v in enumerate(values) if v <= (1 + goal) * best), "-")
                    for goal in GOALS
                ]
                print(
                    f"{name} alpha {alpha:g} best constants {with_!s:5}: rounds to 1e-4 {reached[0]}, to 1e-6 "
                    f"{reached[1]}; {len(values)} rounds, excess {values[-1] / best - 1:.1e}",
                    flush=True,
                )


def _objectives(lab: Lab, corpus: Corpus, alpha: float, with_: bool) -> list[float]:
    """Return the objective after each round."""
    params = {"alpha": alpha, "loss": "softmax", "penalty": "l1", "lanes": 1}
    fit, values = Fit(lab, corpus, "bcd", params), []
    fit._state.recentres = with_
    x, y = corpus.rows
    while fit.seconds < lab.limit and fit.rounds < lab.rounds and fit.status == Status.RUNNING:
        fit.round()
        scores = x @ fit.weights
        mean = float(np.mean(logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]))
        values.append(mean + alpha * float(np.abs(fit.weights).sum()))
    fit.close()
    return values


PARTS = {"shrinking": shrinking, "constants": constants}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
