"""What the numbers of a figure say of its paper's claims: a verdict of the run that made them.

Of each figure a list of claims in the paper's sense, the main one first, and whether they hold. `reproduced`: all do,
the printed numbers among them; `in kind`: the main one does; `not`: it does not; `not comparable`: the paper has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

Numbers = dict[str, Any]
Claim = tuple[str, bool]


def verdict_of(name: str, numbers: Numbers) -> tuple[str, list[Claim]]:
    """Return the verdict that the numbers of a figure's script give, and its claims."""
    claims = CLAIMS[name](numbers)
    if not claims:
        return "not comparable", claims
    if all(holds for _, holds in claims):
        return "reproduced", claims
    return ("in kind" if claims[0][1] else "not"), claims


def _none(_: Numbers) -> list[Claim]:
    return []


def _near(value: float, printed: float, share: float = 0.05) -> bool:
    return abs(value - printed) <= share * printed


def _groups(rows: Iterable[Numbers], *keys: str) -> dict[Any, list[Numbers]]:
    found: dict[Any, list[Numbers]] = {}
    for row in rows:
        key = tuple(row[each] for each in keys)
        found.setdefault(key if len(keys) > 1 else key[0], []).append(row)
    return found


# -- least squares ---------------------------------------------------------------------------------------


def _lsr_table_1(numbers: Numbers) -> list[Claim]:
    rows = numbers["table 1"]
    errors = [{r["variant"]: r["error"] for r in group} for group in _groups(rows, "features").values()]
    return [
        ("calibration is ahead of linear fits", all(e["calibrated"] < e["linear"] for e in errors)),
        ("more features, fewer errors", all(a["linear"] > b["linear"] for a, b in pairwise(errors))),
        ("errors within a twentieth of the printed", all(_near(r["error"], r["published"]) for r in rows)),
    ]


def _lsr_table_2(numbers: Numbers) -> list[Claim]:
    sets = {
        name: {r["system"]: r["error"] for r in group} for name, group in _groups(numbers["table 2"], "set").items()
    }
    news, rcv1 = sets["20news, random split"], sets["rcv1-4"]

    def ahead(name: str, errors: dict[str, float], rival: str, room: float, what: str) -> list[Claim]:
        # Vowpal Wabbit may be missing
        return (
            [(f"{name}: {what} {rival}", errors["distls stagewise"] <= errors[rival] + room)] if rival in errors else []
        )

    return [
        *ahead("20 Newsgroups", news, "LIBLINEAR", 0.0, "ahead of"),
        *ahead("20 Newsgroups", news, "Vowpal Wabbit", 0.0, "ahead of"),
        *ahead("RCV1-4", rcv1, "LIBLINEAR", 0.1, "at most a tenth of a point behind"),
        ("20 Newsgroups: 11.7 %", _near(news["distls stagewise"], 11.7)),
    ]


def _lsr_figure_1(numbers: Numbers) -> list[Claim]:
    curves = {(c["block"], c["inner"]): c["points"] for c in numbers["figure 1"]}
    blocks = sorted({block for block, _ in curves})
    ends = {key: points[-1] for key, points in curves.items()}

    def best(block: int, seconds: float) -> float:
        return min((e for s, e in curves[block, "linear"] if s <= seconds), default=math.inf)

    least, most = blocks[0], blocks[-1]
    each = [(ends[b, "logistic"], curves[b, "calibrated"]) for b in blocks]
    sooner = (any(s <= last[0] and e <= last[1] for s, e in curve) for last, curve in each)
    within = min(ends[least, "linear"][0], ends[most, "linear"][0])
    return [
        ("calibrated stages end below linear ones",
         all(ends[b, "calibrated"][1] < ends[b, "linear"][1] for b in blocks)),
        ("calibrated stages have the error of logistic ones sooner", all(sooner)),
        ("small blocks have fewer errors in the same seconds", best(least, within) <= best(most, within)),
    ]  # fmt: skip


def _lsr_spectrum(numbers: Numbers) -> list[Claim]:
    rows = {r["set"]: r for r in numbers["also spectrum"]}
    ratios = [rows[name]["ratio"] for name in ("mnist", "20news", "rcv1-4")]
    return [
        ("images are ill-conditioned, text is less so", ratios == sorted(ratios, reverse=True)),
        ("ratios within a tenth of the printed", all(_near(r["ratio"], r["published"], 0.1) for r in rows.values())),
    ]


def _lsr_figure_2(numbers: Numbers) -> list[Claim]:
    rivals = [r for r in numbers["figure 2"]["rows"] if "times faster" in r]
    best = [max((t for t in r["times faster"].values() if t is not None), default=None) for r in rivals]
    last = max(r["features"] for r in rivals)
    at_last = [t for r, t in zip(rivals, best, strict=True) if r["features"] == last and "error" in r]
    return [
        (
            "with the most features stages are ahead of all that ended",
            bool(at_last) and all((t or 0) > 1 for t in at_last),
        ),
        ("stages have every rival's error", None not in [t for r, t in zip(rivals, best, strict=True) if "error" in r]),
        ("ten times sooner than all of them", bool(at_last) and all((t or 0) >= 10 for t in at_last)),
    ]


def _lsr_figure_3(numbers: Numbers) -> list[Claim]:
    best: dict[str, float] = {}
    for row in numbers["figure 3"]:
        best[row["setting"]] = max(row["accuracy"], best.get(row["setting"], 0.0))
    plain, joined, *more = best.values()
    return [
        ("over 80 % with filters and polynomials", joined > 80.0),
        ("over 85 % with means of models", max(more, default=0.0) > 85.0),
        ("polynomials of filters help", joined > plain),
        ("more filters help", max(more, default=0.0) > joined),
    ]


# -- MCID ------------------------------------------------------------------------------------------------


def _mcid_dependency(numbers: Numbers) -> list[Claim]:
    found = numbers.get("1") or numbers["2"]
    claims = []
    for name, own in found["algorithms"].items():
        last = list(own["accuracy"].values())[-1]
        claims.append((f"{name}: more rows, more accuracy after the same steps", last[-1] > last[0] + 1.0))
        reached = [cell[0] for cell in next(iter(own["to accuracy"].values())) if cell is not None]
        fewer = len(reached) > 1 and reached[-1] <= reached[0]
        claims.append((f"{name}: more rows, no more steps to an accuracy", fewer))
    stops = [list(own["gain stops at n"].values())[-1] for own in found["algorithms"].values()]
    return [*claims, ("the gain has no end", all(n == found["sizes"][-1] for n in stops))]


def _mcid_figure_3(numbers: Numbers) -> list[Claim]:
    groups = _groups(numbers["3"], "kind", "alpha")
    ends = {key: {r["algorithm"]: list(r["accuracy"].values())[-1] for r in group} for key, group in groups.items()}
    pairs = (("SVM", "K-Pegasos"), ("LR", "K-binaryLR"))
    many = [e for (kind, _), e in ends.items() if kind == "rcv1-53"]
    return [
        (
            "53 classes: multi-class losses ahead of K binary ones",
            bool(many) and all(e[a] > e[b] for e in many for a, b in pairs),
        ),
        ("all sets and strengths: they are", all(e[a] > e[b] for e in ends.values() for a, b in pairs)),
    ]


def _mcid_figure_4(numbers: Numbers) -> list[Claim]:
    claims = []
    for rival in ("cutting planes", "LIBLINEAR"):
        ahead = []
        for group in _groups(numbers["4"], "kind").values():
            theirs = max((r for r in group if r["solver"] == rival), key=lambda r: r["accuracy"])
            ours = [r for r in group if r["solver"] == "distls" and r["accuracy"] >= theirs["accuracy"] - 0.1]
            ahead.append(any(r["seconds"] < theirs["seconds"] for r in ours))
        claims.append((f"the best of {rival}, to a tenth of a point, in fewer seconds", all(ahead)))
    found = [r["accuracy"] for r in numbers["4"] if (r["kind"], r["solver"]) == ("rcv1-4", "distls")]
    return [*claims, ("RCV1-4: 97.2 %, to a hundredth", bool(found) and _near(max(found), 97.2, 0.01))]


# -- block coordinate descent ----------------------------------------------------------------------------


def _bcd_figures(numbers: Numbers) -> list[Claim]:
    search, constant, fobos = [], [], []
    for group in _groups(numbers["figures"]["curves"], "set", "alpha").values():
        to = {curve["solver"]: curve["reached"]["0.01"] or math.inf for curve in group}
        own = to["bcd, line search, as published"]
        others = (s for name, s in to.items() if not name.startswith("bcd") and name != "fobos")
        search.append(own < min(others))
        constant.append(math.isfinite(own) and to["bcd, constant"] <= 3 * own)
        fobos.append(math.isfinite(own) and to["fobos"] <= 3 * own)
    return [
        ("line search is ahead of FISTA and SpaRSA to 1e-2", all(search)),
        ("constant steps are close to it", all(constant)),
        ("FOBOS is comparable somewhere", any(fobos)),
    ]


def _bcd_losses(numbers: Numbers) -> list[Claim]:
    sets = _groups(numbers["losses"]["rows"], "set").values()
    accurate, cheaper, constant = [], [], []
    for rows in sets:
        best = {loss: max(r["accuracy"] for r in own) for loss, own in _groups(rows, "loss").items()}
        cpu = {loss: sorted(r["cpu"] for r in own)[len(own) // 2] for loss, own in _groups(rows, "loss").items()}
        hinge, logistic = "multiclass squared hinge", "logistic, constant"
        accurate.append(best[hinge] > best[logistic] - 1.0)
        cheaper.append(cpu[logistic] >= 5 * cpu[hinge])
        constant.append(cpu[logistic] < cpu["logistic, line search"])
    return [
        ("the squared hinge is as accurate as logistic, to a point", all(accurate)),
        ("it is five times cheaper, by the median", all(cheaper)),
        ("constant steps are the faster ones for logistic", all(constant)),
    ]


# -- constrained SGD -------------------------------------------------------------------------------------


def _csgd_figure_2(numbers: Numbers) -> list[Claim]:
    # what subtracting means gives is no claim of the paper
    checks = [c for found in numbers["simulations"] for c in found["checks"] if "centred" not in c["what"]]
    return [(f"{check['what']} {check['bound']}", check["passed"]) for check in checks]


def _csgd_figure_3(numbers: Numbers) -> list[Claim]:
    found = numbers["adaline"]
    constrained, plain, *_ = (row["error"][:-3] for row in found["methods"].values())
    last = [(c["what"] + " " + c["bound"], c["passed"]) for c in found["checks"]]
    ahead = all(a < b for a, b in zip(constrained, plain, strict=True))
    return [("C-Adaline is ahead of Adaline, until the last three points", ahead), *last]


def _csgd_figure_4(numbers: Numbers) -> list[Claim]:
    wrong = {name: sum(counts) / len(counts) for name, counts in numbers["counts"].items()}
    return [
        ("less than half as many are wrong", wrong["C-Adaline"] < wrong["Adaline"] / 2),
        ("212 and 1248, to a tenth", _near(wrong["C-Adaline"], 212, 0.1) and _near(wrong["Adaline"], 1248, 0.1)),
    ]


# -- SGD-QN ----------------------------------------------------------------------------------------------


def _qn_table_5(numbers: Numbers) -> list[Claim]:
    sets = {
        name: {r["name"]: r["seconds"] for r in rows}
        for name, rows in _groups(numbers["passes"]["rows"], "set").items()
    }
    rcv1 = sets["rcv1"]
    return [
        ("RCV1: regularising seldom is ten times faster", rcv1["naive SGD"] > 10 * rcv1["SVMSGD2"]),
        ("SGD-QN takes less than twice the time of SVMSGD2, and a tenth",
         all(s["SGD-QN paper"] < 2.2 * s["SVMSGD2"] for s in sets.values())),
        ("RCV1: 180 times, to a fifth", _near(rcv1["naive SGD"] / rcv1["SVMSGD2"], 180, 0.2)),
    ]  # fmt: skip


def _qn_curves(key: str, rivals: Sequence[str], *sets: str) -> Callable[[Numbers], list[Claim]]:
    """Return claims on what is ahead of SVMSGD2 after a pass: `rivals` are beginnings of names, their best counts."""

    def claims(numbers: Numbers) -> list[Claim]:
        rows = [r for r in numbers["curves"]["rows"] if r.get("lanes") == 1]

        def first(name: str, rival: str) -> float:
            points = [
                r["points"][0][key] for r in rows if r["set"] == name and r["name"].startswith(rival.split(",")[0])
            ]
            return min((value for value in points if value is not None), default=math.inf)

        return [
            (f"{name}: {rival} ahead of SVMSGD2 after a pass, by {key}", first(name, rival) < first(name, "SVMSGD2"))
            for name in sets
            for rival in rivals
        ]

    return claims


CLAIMS: dict[str, Callable[[Numbers], list[Claim]]] = {
    "lsr-table-1": _lsr_table_1, "lsr-table-2": _lsr_table_2, "lsr-figure-1": _lsr_figure_1,
    "lsr-spectrum": _lsr_spectrum, "lsr-figure-2": _lsr_figure_2, "lsr-figure-3": _lsr_figure_3,
    "mcid-figure-1": _mcid_dependency, "mcid-figure-2": _mcid_dependency, "mcid-figure-3": _mcid_figure_3,
    "mcid-figure-4": _mcid_figure_4, "bcd-figures": _bcd_figures, "bcd-losses": _bcd_losses,
    "bcd-passes": _none, "bcd-extensions": _none, "csgd-figure-2": _csgd_figure_2,
    "csgd-figure-3": _csgd_figure_3, "csgd-figure-4": _csgd_figure_4, "qn-table-5": _qn_table_5,
    "qn-figure-3": _qn_curves("excess", ("SGD-QN paper", "oLBFGS"), "alpha"),
    "qn-figure-4": _qn_curves("error", ("SGD-QN, its best diagonal,", "SGD-QN paper", "oLBFGS"), "rcv1", "delta"),
}  # fmt: skip
