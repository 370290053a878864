"""Which method to take: errors and distances from the optimum by pass, and errors by features used, on generated data.

    python -m benchmarks.quality.choose [--tiny] [--out FILE.json] [--pictures docs/images]

``documents`` are sparse rows (`rcv1-4`), ``correlated`` dense rows whose features are ill-conditioned (`alpha`). Every
method minimises the same objective, softmax with l2. The distance is from a lower bound that a long fit of
`sdca` proves. Passes, not seconds: the results are the same on every machine. Pictures need matplotlib.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.choose_pictures import draw
from distls.reporting.run_report import report as report_of
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.synthetic.generation import generate
from distls.training.fitting import fit

_DOCUMENTS = {
    "sgd": {"loss": "log", "fit_intercept": False},
    "mcid": {"loss": "log", "fit_intercept": False},
    "sdca": {"loss": "log", "fit_intercept": False},
    "fista": {"loss": "log", "penalty": "l2", "fit_intercept": False},
}
_CORRELATED = {
    "sgd": {"loss": "log", "fit_intercept": True},
    "sdca": {"loss": "log", "fit_intercept": True},
    "gls": {"link": "softmax", "fit_intercept": True},
}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print, and return what is in the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tiny", action="store_true", help="small data, for a test")
    parser.add_argument("--out", type=Path, help="write the numbers to this file")
    parser.add_argument("--pictures", type=Path, help="write the pictures into this folder")
    chosen = parser.parse_args(arguments)
    rows, passes = (800, 3) if chosen.tiny else (30_000, 20)
    with tempfile.TemporaryDirectory() as place:
        report = {
            "documents": _curves(Path(place, "documents"), "rcv1-4", rows, _DOCUMENTS, 1e-5, passes),
            "correlated": _curves(Path(place, "correlated"), "alpha", rows, _CORRELATED, 1e-5, passes),
            "features": _features(Path(place, "features"), rows // 5, tiny=chosen.tiny),
        }
    _print(report)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if chosen.pictures is not None:
        draw(report, chosen.pictures)
    return report


def _curves(
    folder: Path, kind: str, rows: int, methods: dict[str, dict[str, Any]], alpha: float, passes: int
) -> list[dict[str, Any]]:
    """Return error and objective of each method after each pass, and the distance from the optimum."""
    generate(kind, folder / "train", rows=rows)
    train = open_dataset(folder / "train")
    curves = []
    for method, params in methods.items():
        limits = {"passes": passes, "rtol": 1e-7 if method == "sdca" else None}
        fit(
            method, train, folder / method, params={**params, "alpha": alpha}, eval_data=folder / "train-test",
            eval_every=1, **limits,
        )  # fmt: skip
        rounds = [e for e in report_of(folder / method).to_json()["events"] if "objective" in e]
        columns = {"passes": "passes", "error": "eval_error", "objective": "objective"}
        curves.append({"method": method} | {name: [e[key] for e in rounds] for name, key in columns.items()})
    bound = _bound(train, methods["sdca"] | {"alpha": alpha, "init": str(folder / "sdca")}, 20 * passes)
    for curve in curves:
        curve["distance"] = [(objective - bound) / bound for objective in curve["objective"]]
    return curves


def _bound(train: Dataset, params: dict[str, Any], passes: float) -> float:
    """Return the lower bound of the optimum that a long fit of `sdca` proves."""
    record = fit("sdca", train, params=params, passes=passes, rtol=1e-6).record
    return float(record["objective"] - record["certificate"]["value"])


def _features(folder: Path, rows: int, *, tiny: bool) -> list[dict[str, Any]]:
    """Return error and number of features of a path of sparse models."""
    generate("rcv1-4", folder / "train", rows=rows, columns=True)
    params = {
        "alpha": [1e-2, 1e-3] if tiny else [3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4],
        "penalty": "l1l2",
        "fit_intercept": False,
    }
    fit("bcd", folder / "train", folder / "run", params=params, passes=20, select=folder / "train-test")
    settings = report_of(folder / "run").to_json()["settings"]
    return [{"alpha": s["params"]["alpha"], "features": s["non_zero_rows"], "error": s["error"]} for s in settings]


def _print(report: dict[str, Any]) -> None:
    for name in ("documents", "correlated"):
        print(f"{name}: error % and distance from the optimum after 1 pass, and at the end")
        for curve in report[name]:
            ends = ((curve["error"][i], curve["distance"][i]) for i in (0, -1))
            text = "   ".join(f"{100 * error:6.2f} {distance:9.2e}" for error, distance in ends)
            print(f"  {curve['method']:6} {text}   {curve['passes'][-1]:g} passes")
    print("features: alpha, features, error %")
    for row in report["features"]:
        print(f"  {row['alpha']:g} {row['features']} {100 * row['error']:.2f}")


if __name__ == "__main__":
    main()
