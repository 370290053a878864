"""Certificate over true excess, for every method, loss and penalty that has a bound.

    distls generate rcv1-4 DATASET --rows 2000
    python -m benchmarks.quality.certificates DATASET [--methods mcid,sgd] [--losses softmax] [--penalties l2]
        [--alphas 1e-2,1e-3] [--passes 100] [--own] [--out FILE]

Each setting is fitted in float64 and evaluated after every pass; the first evaluation at which the objective is at most
1e-2, and 1e-4, above the optimum is judged. `plain` is the fit without a tolerance, `rtol` the fit whose `--rtol` is
that excess, which is evaluated when it chooses, at the evaluation that ends it, with the share of its seconds that
certificates took. The optimum is the best of a long fit by `sdca` (l2, elasticnet) or `bcd`
(the other penalties, which need `distls columns DATASET`) and of all fits seen. `gls` needs few features
(`distls generate dense`); a method whose matrices do not fit in memory is left out, and said so. With --own `fista` and
`sparsa` have the bounds of their steps' reads alone, as where no columns may be held.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
from pathlib import Path
from typing import Any

from distls.solvers.events import Callback, RoundEvent
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import MemoryPlanError
from distls.training.fitting import fit

TARGETS = (1e-2, 1e-4)
OVR = ("ovr_hinge", "ovr_squared_hinge", "ovr_log")
CLASS = ("softmax", "crammer_singer", *OVR, "squared")
OF_ROWS = ("l2", "l1", "elasticnet", "l1l2", "l1linf", "sparse-group")  # the penalties of `bcd`
SETTINGS = [
    *(("mcid", loss, "l2") for loss in ("softmax", "crammer_singer")),
    ("ovr-pegasos", "ovr_hinge", "l2"),
    ("ovr-logistic", "ovr_log", "l2"),
    *((method, loss, "l2") for method in ("sgd", "asgd") for loss in CLASS),
    *((method, loss, "l2") for method in ("svmsgd2", "sgdqn") for loss in OVR),
    *((method, "squared", "l2") for method in ("csgd", "ncsgd", "c-adaline", "adaline")),
    *(("newton", loss, "l2") for loss in ("softmax", "ovr_log", "ovr_squared_hinge", "squared")),
    *(("olbfgs", loss, "l2") for loss in ("softmax", "ovr_log", "ovr_squared_hinge")),
    *(("sdca", loss, penalty) for loss in CLASS for penalty in ("l2", "elasticnet")),
    *(("gls", loss, "l2") for loss in ("softmax", "ovr_log", "squared")),
    *(
        (method, loss, penalty)
        for method in ("bcd", "fista", "sparsa", "fobos")
        for loss in ("softmax", "multiclass_squared_hinge", "multitask_squared_hinge")
        for penalty in (OF_ROWS if method != "fobos" else OF_ROWS[:-1])
    ),
    *(("fobos", "crammer_singer", penalty) for penalty in ("l2", "elasticnet")),
]
LINKS = {"softmax": "softmax", "ovr_log": "logit", "squared": "identity"}  # the losses of `gls`


class _NearEnoughError(Exception):
    """What follows is not needed."""


class Evaluations(Callback):
    """Keeps objective and certificate of every evaluation, until an objective is low enough."""

    def __init__(self, enough: float) -> None:
        self.found: list[dict[str, Any]] = []
        self._enough = enough

    def on_round(self, event: RoundEvent) -> None:
        """See `Callback`."""
        record = event.record
        if record.get("objective") is not None and "certificate" in record:
            own = {name: record[name] for name in ("passes", "objective", "seconds", "eval_seconds")}
            work = sum(record[name] for name in ("read_seconds", "train_seconds", "eval_seconds"))
            own["share"] = record["eval_seconds"] / max(work, 1e-9)
            self.found.append(own | {"certificate": record["certificate"]["value"]})
            if record["objective"] <= self._enough:
                raise _NearEnoughError


def fitted(
    dataset: Dataset,
    setting: tuple[str, str, str],
    alpha: float,
    passes: float,
    rtol: float | None,
    *,
    eval_every: float | None = 1,
    enough: float = -math.inf,
    own: bool = False,
) -> list[dict[str, Any]]:
    """Return the evaluations of a fit, which ends where the objective is `enough`."""
    method, loss, penalty = setting
    params: dict[str, Any] = {"alpha": alpha, "dtype": "float64", "fit_intercept": False}
    params |= {"link": LINKS[loss]} if method == "gls" else {"loss": loss}
    if method in ("bcd", "fista", "sparsa", "fobos", "sdca"):
        params["penalty"] = penalty
    if method in ("bcd", "fista", "sparsa"):
        params["tau"] = 0.0  # else it ends before 1e-4
    if own and method != "bcd":
        params["active_mib"] = 0
    seen = Evaluations(enough)
    with contextlib.suppress(_NearEnoughError):
        fit(method, dataset, params=params, passes=passes, rtol=rtol, eval_every=eval_every, callbacks=[seen])
    return seen.found


@functools.cache
def optimum(path: str, loss: str, penalty: str, alpha: float) -> float:
    """Return the lowest objective of a long fit."""
    method = "sdca" if penalty in ("l2", "elasticnet") and loss in CLASS else "bcd"
    found = fitted(open_dataset(path), (method, loss, penalty), alpha, 2000, 1e-9, eval_every=50)
    return float(min(each["objective"] for each in found))


def judged(found: list[dict[str, Any]], lowest: float, target: float) -> dict[str, Any] | None:
    """Return the first evaluation near enough, with its certificate over its excess."""
    for each in found:
        excess = each["objective"] - lowest
        if 0.0 < excess <= target * lowest:
            return {**each, "excess": excess / lowest, "ratio": each["certificate"] / excess}
    return None


def measured(dataset: Dataset, setting: tuple[str, str, str], alpha: float, passes: float, own: bool) -> dict[str, Any]:
    """Return what one setting gives, without a tolerance and with each."""
    lowest = optimum(str(dataset.path), setting[1], setting[2], alpha)
    plain = fitted(dataset, setting, alpha, passes, None, enough=lowest * (1.0 + min(TARGETS)), own=own)
    lowest = min(lowest, *(each["objective"] for each in plain))
    found: dict[str, Any] = dict(zip(("method", "loss", "penalty"), setting, strict=True))
    found |= {"alpha": alpha, "optimum": lowest}
    for target in TARGETS:
        found[f"plain_{target:g}"] = judged(plain, lowest, target)
        last = fitted(dataset, setting, alpha, passes, target, eval_every=None, own=own)[-1:]
        ended = [each for each in last if each["certificate"] <= target * each["objective"]]
        found[f"rtol_{target:g}"] = judged(ended, lowest, target)
    return found


def line(found: dict[str, Any]) -> str:
    """Return a row of the table in Markdown."""
    cells = [found["method"], found["loss"], found["penalty"], f"{found['alpha']:g}"]
    for target in TARGETS:
        for kind in ("plain", "rtol"):
            each = found.get(f"{kind}_{target:g}", {})
            if each is None:
                cells.append("not reached")
            else:
                share = f", {each['share']:.0%}" if kind == "rtol" else ""
                cells.append(f"{each['ratio']:.3g}{share}" if each else "")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset")
    for name in ("methods", "losses", "penalties"):
        parser.add_argument(f"--{name}", default="", help="default: all")
    parser.add_argument("--alphas", default="1e-2,1e-3")
    parser.add_argument("--passes", type=float, default=100.0)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    chosen = [set(filter(None, each.split(","))) for each in (given.methods, given.losses, given.penalties)]
    dataset, rows = open_dataset(given.dataset), []
    heads = [f"{target:g}, {kind}" for target in TARGETS for kind in ("plain", "rtol")]
    print(f"| method | loss | penalty | alpha | {' | '.join(heads)} |\n|{' --- |' * (4 + len(heads))}")
    for setting in SETTINGS:
        if not all(name in names or not names for name, names in zip(setting, chosen, strict=True)):
            continue
        for alpha in map(float, given.alphas.split(",")):
            try:
                rows.append(measured(dataset, setting, alpha, given.passes, given.own))
            except MemoryPlanError as error:
                print(f"{' '.join(setting)}: left out: {error}", flush=True)
                continue
            print(line(rows[-1]), flush=True)
            if given.out is not None:
                given.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
