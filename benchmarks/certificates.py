"""Certificate over true excess, for every method, loss and penalty that has a bound.

    distls generate rcv1-4 DATASET --rows 2000
    python -m benchmarks.certificates DATASET [--methods mcid,sgd] [--alphas 1e-2,1e-3] [--passes 100] [--out FILE]

Each setting is fitted in float64 and evaluated after every pass; the first evaluation at which the objective is at most
1e-2, and 1e-4, above the optimum is judged. `plain` is the fit without a tolerance, `rtol` the fit whose `--rtol` is
that excess, at the evaluation that ends it. The optimum is the best of a long fit by `sdca` (l2, elasticnet) or `bcd`
(the other penalties, which need `distls columns DATASET`) and of all fits seen.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from distls.solvers.events import Callback, RoundEvent
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.training.fitting import fit

TARGETS = (1e-2, 1e-4)
OVR = ("ovr_hinge", "ovr_squared_hinge", "ovr_log")
SETTINGS = [
    *((method, loss, "l2") for method in ("mcid", "sgd", "asgd") for loss in ("softmax", "crammer_singer")),
    ("ovr-pegasos", "ovr_hinge", "l2"),
    ("ovr-logistic", "ovr_log", "l2"),
    *((method, loss, "l2") for method in ("svmsgd2", "sgdqn") for loss in OVR),
    *(("fobos", loss, "elasticnet") for loss in ("softmax", "crammer_singer")),
    *(("sdca", loss, "l2") for loss in ("softmax", "crammer_singer", *OVR)),
    *((method, "softmax", penalty) for method in ("bcd", "fista") for penalty in ("l2", "l1", "l1l2", "elasticnet")),
]  # fmt: skip


class Evaluations(Callback):
    """Keeps objective and certificate of every evaluation."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def on_round(self, event: RoundEvent) -> None:
        """See `Callback`."""
        record = event.record
        if record.get("objective") is not None and "certificate" in record:
            names = ("passes", "objective", "seconds", "eval_seconds")
            own = {name: record[name] for name in names}
            self.found.append(own | {"certificate": record["certificate"]["value"]})


def fitted(
    dataset: Dataset, setting: tuple[str, str, str], alpha: float, passes: float, rtol: float | None
) -> list[dict[str, Any]]:
    """Return the evaluations of a fit, one a pass."""
    method, loss, penalty = setting
    params: dict[str, Any] = {"loss": loss, "alpha": alpha, "dtype": "float64"}
    if penalty != "l2" or method in ("bcd", "fista", "sdca"):
        params["penalty"] = penalty
    seen = Evaluations()
    fit(method, dataset, params=params, passes=passes, rtol=rtol, eval_every=1, callbacks=[seen])
    return seen.found


def optimum(dataset: Dataset, loss: str, penalty: str, alpha: float) -> float:
    """Return the lowest objective of a long fit."""
    method = "sdca" if penalty in ("l2", "elasticnet") else "bcd"
    found = fitted(dataset, (method, loss, penalty), alpha, 2000, 1e-9)
    return float(min(each["objective"] for each in found))


def judged(found: list[dict[str, Any]], lowest: float, target: float) -> dict[str, Any] | None:
    """Return the first evaluation near enough, with its certificate over its excess."""
    for each in found:
        excess = each["objective"] - lowest
        if 0.0 < excess <= target * lowest:
            return {**each, "excess": excess / lowest, "ratio": each["certificate"] / excess}
    return None


def measured(dataset: Dataset, setting: tuple[str, str, str], alpha: float, passes: float) -> dict[str, Any]:
    """Return what one setting gives, without a tolerance and with each."""
    lowest = optimum(dataset, setting[1], setting[2], alpha)
    plain = fitted(dataset, setting, alpha, passes, None)
    lowest = min(lowest, *(each["objective"] for each in plain))
    found: dict[str, Any] = dict(zip(("method", "loss", "penalty"), setting, strict=True))
    found |= {"alpha": alpha, "optimum": lowest}
    for target in TARGETS:
        last = fitted(dataset, setting, alpha, passes, target)[-1:]
        ended = [each for each in last if each["certificate"] <= target * each["objective"]]
        found[f"plain_{target:g}"] = judged(plain, lowest, target)
        found[f"rtol_{target:g}"] = judged(ended, lowest, target)
    return found


def line(found: dict[str, Any]) -> str:
    """Return a row of the table in Markdown."""
    cells = [found["method"], found["loss"], found["penalty"], f"{found['alpha']:g}"]
    for target in TARGETS:
        for kind in ("plain", "rtol"):
            each = found[f"{kind}_{target:g}"]
            cells.append("not reached" if each is None else f"{each['ratio']:.3g}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--methods", default=None, help="default: all")
    parser.add_argument("--alphas", default="1e-2,1e-3")
    parser.add_argument("--passes", type=float, default=100.0)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    chosen = None if given.methods is None else given.methods.split(",")
    dataset, rows = open_dataset(given.dataset), []
    heads = [f"{target:g}, {kind}" for target in TARGETS for kind in ("plain", "rtol")]
    print(f"| method | loss | penalty | alpha | {' | '.join(heads)} |\n|{' --- |' * (4 + len(heads))}")
    for setting in SETTINGS:
        if chosen is not None and setting[0] not in chosen:
            continue
        for alpha in map(float, given.alphas.split(",")):
            rows.append(measured(dataset, setting, alpha, given.passes))
            print(line(rows[-1]), flush=True)
            if given.out is not None:
                given.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
