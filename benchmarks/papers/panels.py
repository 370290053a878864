"""What the picture of each figure shows: ``python -m benchmarks.papers.panels FOLDER/FIGURE.json...`` draws them again.

A FIGURE.json is that of ``python -m benchmarks.papers``; the picture lies beside it, FIGURE.svg.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.pictures import Panel, Point, picture

Numbers = dict[str, Any]

# What the papers print where a script's numbers do not have it beside them.
_TABLE_2 = {
    ("20news", "distls stagewise"): 11.7, ("20news", "LIBLINEAR"): 13.8, ("20news", "Vowpal Wabbit"): 12.4,
    ("rcv1-4", "distls stagewise"): 2.77, ("rcv1-4", "LIBLINEAR"): 2.73, ("rcv1-4", "Vowpal Wabbit"): 2.75,
}  # fmt: skip
_CIFAR = {"400 filters and polynomials": 80.0, "mean of 4 models of these": 85.0}
_TABLE_5 = {
    ("alpha", "naive SGD"): 0.13, ("alpha", "SVMSGD2"): 0.10, ("alpha", "SGD-QN paper"): 0.21,
    ("rcv1", "naive SGD"): 36.8, ("rcv1", "SVMSGD2"): 0.20, ("rcv1", "SGD-QN paper"): 0.37,
}  # fmt: skip


def _table(title: str, x: str, cells: Iterable[tuple[str, str, float | None, float | None]], log: str = "") -> Panel:
    """Return a table as a panel: row, column, here, the paper's."""
    cells = list(cells)
    rows = list(dict.fromkeys(row for row, *_ in cells))
    curves: dict[str, list[Point]] = {}
    paper: dict[str, list[Point]] = {}
    for row, column, here, printed in cells:
        if here is not None:
            curves.setdefault(column, []).append((here, rows.index(row)))
        if printed is not None:
            paper.setdefault(column, []).append((printed, rows.index(row)))
    return Panel(title, x, "", curves, paper, log, rows)


def _kinds(rows: Iterable[Numbers], *keys: str) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(tuple(row.get(key) for key in keys) for row in rows))


def _over(points: Iterable[Numbers], x: str, y: str, factor: float = 1.0) -> list[Point]:
    return [(p[x], factor * p[y]) for p in points if p.get(x) is not None and p.get(y) is not None]


# -- least squares ---------------------------------------------------------------------------------------


def _lsr_table_1(numbers: Numbers) -> list[Panel]:
    rows = numbers["table 1"]
    own = [(r["features"], r["variant"], r["error"], r["published"]) for r in rows]
    return [_table("MNIST", "test error %", own, "x"), _table("MNIST", "seconds", [
        (r["features"], r["variant"], r["seconds"], None) for r in rows], "x")]  # fmt: skip


def _lsr_table_2(numbers: Numbers) -> list[Panel]:
    rows = numbers["table 2"]
    cells = [(r["set"], r["system"], r["error"], _TABLE_2.get((r["set"].split(",")[0], r["system"]))) for r in rows]
    return [_table("documents", "test error %", cells)]


def _lsr_figure_1(numbers: Numbers) -> list[Panel]:
    found = numbers["figure 1"]
    return [
        Panel(f"MNIST, {inner} stages", "seconds", "test error %", {
            f"blocks of {c['block']}": c["points"] for c in found if c["inner"] == inner}, log="xy")
        for (inner,) in _kinds(found, "inner")
    ]  # fmt: skip


def _lsr_spectrum(numbers: Numbers) -> list[Panel]:
    curves = {
        r["set"]: [(i + 1, share) for i, share in enumerate(r["share"])][:: max(len(r["share"]) // 40, 1)]
        for r in numbers["also spectrum"]
    }
    return [Panel("singular values", "largest x of them", "share of the sum", curves)]


def _lsr_figure_2(numbers: Numbers) -> list[Panel]:
    rows = numbers["figure 2"]["rows"]
    names = [name for (name,) in _kinds(rows, "system")]
    return [
        Panel("MNIST, random Fourier features", "features", y, {
            name: _over((r for r in rows if r["system"] == name), "features", key) for name in names}, log=log)
        for key, y, log in (("error", "test error %", "xy"), ("cpu", "CPU seconds", "xy"))
    ]  # fmt: skip


def _lsr_figure_3(numbers: Numbers) -> list[Panel]:
    rows = numbers["figure 3"]
    cells = [(r["setting"], r["filters"], r["accuracy"], _CIFAR.get(r["setting"])) for r in rows]
    again = [(r["set"], r["images"], r["accuracy"], None) for r in numbers.get("also jpeg", [])]
    return [_table("CIFAR-10", "test accuracy %", cells)] + [
        _table(name, "test accuracy %", [cell for cell in again if cell[0] == name])
        for name in dict.fromkeys(cell[0] for cell in again)
    ]


# -- MCID ------------------------------------------------------------------------------------------------


def _mcid_dependency(numbers: Numbers) -> list[Panel]:
    """Figures 1 and 2: seconds to an accuracy, and accuracy after iterations, by the number of rows."""
    found = numbers.get("1") or numbers["2"]
    panels = []
    for name, own in found["algorithms"].items():
        reached = {
            f"to {float(goal):g} %": [(n, r[1]) for n, r in zip(found["sizes"], row, strict=True) if r is not None]
            for goal, row in own["to accuracy"].items()
        }
        after = {
            f"after 2^{int(t).bit_length() - 1}": list(zip(found["sizes"], row, strict=True))
            for t, row in own["accuracy"].items()
        }
        title = f"{found['kind']}, {name}"
        panels.append(
            (
                Panel(title, "training rows", "seconds", reached, log="xy"),
                Panel(title, "training rows", "accuracy %", after, log="x"),
            )
        )
    return [first for first, _ in panels] + [second for _, second in panels]


def _mcid_figure_3(numbers: Numbers) -> list[Panel]:
    rows = numbers["3"]
    return [
        Panel(f"{kind}, lambda {alpha:g}", "iterations", "accuracy %", {
            r["algorithm"]: [(int(t), a) for t, a in r["accuracy"].items()]
            for r in rows if (r["kind"], r["alpha"]) == (kind, alpha)}, log="x")
        for kind, alpha in _kinds(rows, "kind", "alpha")
    ]  # fmt: skip


def _mcid_figure_4(numbers: Numbers) -> list[Panel]:
    rows, printed = numbers["4"], {"distls": [(7.28, 97.2)], "cutting planes": [(77.88, 97.2)]}
    return [
        Panel(f"{kind}, half of the rows", "CPU seconds", "accuracy %", {
            solver: _over((r for r in rows if (r["kind"], r["solver"]) == (kind, solver)), "seconds", "accuracy")
            for (solver,) in _kinds(rows, "solver")}, printed if kind == "rcv1-4" else {}, "x")
        for (kind,) in _kinds(rows, "kind")
    ]  # fmt: skip


# -- block coordinate descent ----------------------------------------------------------------------------


def _bcd_figures(numbers: Numbers) -> list[Panel]:
    found = numbers["figures"]["curves"]
    panels = []
    for name, alpha in _kinds(found, "set", "alpha"):
        here = [curve for curve in found if (curve["set"], curve["alpha"]) == (name, alpha)]
        for key, y, log in (
            ("objective", "excess", "xy"), ("error", "accuracy %", "x"), ("rows", "non-zero rows %", "xy"),
        ):  # fmt: skip
            curves = {curve["solver"]: _over(curve["points"], "cpu", key) for curve in here}
            if key == "objective":
                least = here[0]["least"]
                curves = {s: [(t, v / least - 1) for t, v in c if v > least] for s, c in curves.items()}
            if key == "error":
                curves = {s: [(t, 100 - v) for t, v in c] for s, c in curves.items()}
            panels.append(Panel(f"{name}, lambda {alpha:g}", "CPU seconds", y, curves, log=log))
    return panels


def _bcd_losses(numbers: Numbers) -> list[Panel]:
    rows = numbers["losses"]["rows"]
    return [
        Panel(name, x, "accuracy %", {
            loss: _over((r for r in rows if (r["set"], r["loss"]) == (name, loss)), key, "accuracy")
            for (loss,) in _kinds(rows, "loss")}, log="x")
        for (name,) in _kinds(rows, "set")
        for key, x in (("rows used", "non-zero rows %"), ("seconds", "seconds"))
    ]  # fmt: skip


def _bcd_passes(numbers: Numbers) -> list[Panel]:
    rows = numbers["passes"]["rows"]
    return [
        Panel(f"{name}, {loss}", x, "excess", {
            solver: [(spent[place], float(goal)) for r in rows for goal, spent in r["reached"].items()
                     if (r["set"], r["loss"], r["solver"]) == (name, loss, solver) and spent]
            for (solver,) in _kinds(rows, "solver")}, log="xy")
        for place, x in ((0, "passes"), (1, "CPU seconds"))
        for name, loss in _kinds(rows, "set", "loss")
    ]  # fmt: skip


def _bcd_extensions(numbers: Numbers) -> list[Panel]:
    rows = numbers["penalties"]
    penalties = [
        Panel(name, x, "accuracy %", {
            penalty: _over((r for r in rows if (r["set"], r["penalty"]) == (name, penalty)), key, "accuracy")
            for (penalty,) in _kinds(rows, "penalty")}, log="x")
        for (name,) in _kinds(rows, "set")
        for key, x in (("rows", "non-zero rows %"), ("weights", "non-zero weights %"))
    ]  # fmt: skip
    ranked = {
        loss: [(r["rows"], r["precision"]["1"]) for r in numbers["ranking"] if r["loss"] == loss]
        for (loss,) in _kinds(numbers["ranking"], "loss")
    }
    return [*penalties, Panel("label ranking", "non-zero rows %", "precision at 1 %", ranked, log="x")]


# -- constrained SGD -------------------------------------------------------------------------------------


def _csgd_figure_2(numbers: Numbers) -> list[Panel]:
    panels = [
        Panel(found["kind"], x, "excess loss", {
            name: list(zip(found["stops"] if x == "rows" else row["seconds"], row["excess"], strict=True))
            for name, row in found["methods"].items()}, log="xy")
        for found in numbers.get("simulations", [])
        for x in ("rows", "CPU seconds")
    ]  # fmt: skip
    return panels + [
        Panel(f"regret, {name}", "rows t", "regret", {
            method: list(zip(found["stops"], row, strict=True)) for method, row in found["methods"].items()
        }, log="xy")
        for name, found in numbers.get("regret", {}).items()
    ]  # fmt: skip


def _csgd_figure_3(numbers: Numbers) -> list[Panel]:
    found = numbers["adaline"]
    printed = {"C-Adaline, 2^-4/sqrt(t)": [(2.0**14, 0.14)], "Adaline, 2^-17": [(2.0**20, 0.14)]}
    return [
        Panel("MNIST", x, "test error", {
            name: list(zip(found["stops"] if x == "rows" else row["seconds"], row["error"], strict=True))
            for name, row in found["methods"].items()}, printed if x == "rows" else {}, "x")
        for x in ("rows", "CPU seconds")
    ]  # fmt: skip


def _csgd_figure_4(numbers: Numbers) -> list[Panel]:
    printed = {"C-Adaline": 212.0, "Adaline": 1248.0}
    cells = [
        (name, "test rows that are wrong", sum(counts) / len(counts), printed.get(name))
        for name, counts in numbers["counts"].items()
    ]
    return [_table("MNIST, 2^14 rows", "wrong", cells)]


# -- SGD-QN ----------------------------------------------------------------------------------------------


def _qn_table_5(numbers: Numbers) -> list[Panel]:
    rows = numbers["passes"]["rows"]
    return [
        _table(name, "seconds of a pass", [
            (r["name"], "here", r["seconds"], _TABLE_5.get((name, r["name"]))) for r in rows if r["set"] == name
        ], "x")
        for (name,) in _kinds(rows, "set")
    ]  # fmt: skip


def _qn_curves(key: str, y: str, log: str) -> Callable[[Numbers], list[Panel]]:
    def panels(numbers: Numbers) -> list[Panel]:
        rows = [r for r in numbers["curves"]["rows"] if r.get("lanes") == 1 or r["name"] == "LIBLINEAR dual"]
        return [
            Panel(name, x, y, {
                r["name"]: _over((p for p in r["points"] if (p["excess"] or 9.0) < 1.0), x, key)
                for r in rows if r["set"] == name}, log=log)
            for (name,) in _kinds(rows, "set")
            for x in ("passes", "seconds")
        ]  # fmt: skip

    return panels


PANELS: dict[str, Callable[[Numbers], list[Panel]]] = {
    "lsr-table-1": _lsr_table_1, "lsr-table-2": _lsr_table_2, "lsr-figure-1": _lsr_figure_1,
    "lsr-spectrum": _lsr_spectrum, "lsr-figure-2": _lsr_figure_2, "lsr-figure-3": _lsr_figure_3,
    "mcid-figure-1": _mcid_dependency, "mcid-figure-2": _mcid_dependency, "mcid-figure-3": _mcid_figure_3,
    "mcid-figure-4": _mcid_figure_4, "bcd-figures": _bcd_figures, "bcd-losses": _bcd_losses,
    "bcd-passes": _bcd_passes, "bcd-extensions": _bcd_extensions, "csgd-figure-2": _csgd_figure_2,
    "csgd-figure-3": _csgd_figure_3, "csgd-figure-4": _csgd_figure_4, "qn-table-5": _qn_table_5,
    "qn-figure-3": _qn_curves("excess", "P / P* - 1", "xy"),
    "qn-figure-4": _qn_curves("error", "test error %", "x"),
}  # fmt: skip


def draw(name: str, numbers: Numbers, path: Path) -> None:
    """Draw a figure of the numbers that its script has written."""
    path.write_text(picture(PANELS[name](numbers)), encoding="utf-8")


def main(paths: Sequence[str]) -> None:
    """Draw each file's figure beside it."""
    for path in map(Path, paths):
        report = json.loads(path.read_text())
        draw(report["name"], report["numbers"], path.with_suffix(".svg"))


if __name__ == "__main__":
    main(sys.argv[1:])
