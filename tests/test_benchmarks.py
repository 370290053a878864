"""Every benchmark runs, tiny, and writes the report that it returns, so that none rots. No speed is judged here."""

import gzip
import importlib
import importlib.util
import io
import json
import math
import os
import random
import shutil
import struct
import subprocess
import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows
from paper_files import write_alpha, write_cifar, write_directory, write_rcv1
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import LinearSVC

import distls
from benchmarks.faults import chaos, faulty_fit, storms
from benchmarks.faults.hosts import Hosts
from benchmarks.papers import __main__ as figures
from benchmarks.papers import bcd, constrained_sgd, digit_picture, images, opponents, owners
from benchmarks.papers.panels import PANELS, draw
from benchmarks.papers.verdicts import CLAIMS, verdict_of
from benchmarks.quality import systems
from benchmarks.speed import links, peaks, peers
from distls import generate, ingest
from distls.methods.method_registry import METHODS
from distls.synthetic.text_export import export_text

FEW = {"loss": ["log"], "alpha": [1e-3, 1e-4]}
# words of a command line: module below benchmarks/, then its arguments; {sets} and {tmp} are folders
SCRIPTS = {
    "kernels": "speed.kernels --tiny --repeats 1 --out {tmp}/out.json",
    "kernel_turns": "speed.kernel_turns --kernels scores --k 4 --rows 300 --repeats 1 --out {tmp}/out.json",
    "gram": "speed.gram --tiny --repeats 1 --out {tmp}/out.json",
    "gram of sparse rows": "speed.gram --tiny --repeats 1 --sparse --out {tmp}/out.json",
    "peaks": "speed.peaks --methods gls,csgd --threads 1 --megabytes 4 --out {tmp}/out.json",
    "serving": "speed.serving --tiny --repeats 1 --out {tmp}/out.json",
    "tables": "speed.table_parsing --tiny --repeats 1 --out {tmp}/out.json",
    "ingest": "speed.ingest --megabytes 0.02 --rounds 1 --kinds times,svmlight --directory {tmp} --out {tmp}/out.json",
    "wall": "speed.wall --rows 300 --passes 1 --methods sgd --out {tmp}/out.json",
    "paths": "speed.paths --rows 60 --columns 90 --strengths 3 --out {tmp}/out.json",
    "small_sets": "speed.small_sets --tiny --out {tmp}/out.json",
    "estimators": "speed.estimators --tiny --out {tmp}/out.json",
    "small": "speed.small --tiny --rows 200 --out {tmp}/out.json",
    "peers": "speed.peers --directory {peers} --rows 3000 --repeats 1 --out {tmp}/out.json",
    "scale": "speed.scale --directory {scale} --rows 3000 --text-gb 0.001 --passes 1 --memory-limit 400MiB "
    "--column-rows 2000 --column-limit 900MiB --column-tol 0.02 --out {tmp}/out.json",
    "recovery": "speed.recovery --methods mcid --seconds 2 --every 1 --out {tmp}/out.json",
    "lanes": "speed.lanes --directory {tmp} --rows 3000 --lanes 2,6 --methods mcid --rounds 2 --out {tmp}/out.json",
    "simulation": "speed.simulation --workers 3,6,12 --kinds dense --rounds 2 --out {tmp}/out.json",
    "scheduling": "speed.scheduling --workers 6 --megabytes 5 --rounds 1 --out {tmp}/out.json",
    "endurance": "faults.endurance --methods mcid --clusters local --rounds 6 --out {tmp}/out.json",
    "defaults": "quality.defaults --data {tmp} --sets iris --out {tmp}/out.json",
    "regression": "quality.regression --sets scaled --methods newton --rows 200 --out {tmp}/out.json",
    "few_rows": "quality.few_rows --sets iris --methods newton,gls --draws 2 --out {tmp}/out.json",
    "choose": "quality.choose --tiny --out {tmp}/out.json --pictures {tmp}",
    "classes": "quality.classes --part small,blocks --data {sets} --directory {tmp}/made --rows 9000 "
    "--out {tmp}/out.json",
    "real": "quality.real --data {sets} --sets 20news --passes 2 --out {tmp}/out.json",
    "systems": "quality.systems --data {sets} --sets 20news --out {tmp}/out.json --rivals",
    "mcid": "papers.mcid --rows 6000 --seeds 2 --iterations 16384 --directory {tmp}/sets --figures 1,3,4 "
    "--kinds rcv1-4 --alphas 1e-4 --limit 2 --out {tmp}/out",
    "sgd-qn": "papers.sgd_qn --rows 2000 --seeds 1 --repeats 1 --directory {tmp}/sets --out {tmp}/out",
    "sgd-qn default": "papers.sgd_qn_default --sets delta --rows 2000 --seeds 1 --out {tmp}/out.json",
    "least squares": "papers.least_squares --directory {tmp}/sets --also conditioning,path --share 0.02 "
    "--workers 1 --out {tmp}/out.json",
    "least squares, tables": "papers.least_squares --table 1,2 --seeds 2 --also logits --data {sets} "
    "--directory {sets}/made --share 0.005 --workers 1 --out {tmp}/out.json",
    "least squares, figures": "papers.least_squares --figure 1,2 --also stages,spectrum --data {sets} "
    "--directory {sets}/made --share 0.005 --workers 1 --out {tmp}/out.json",
    "least squares, pictures": "papers.least_squares --figure 3 --also changes,filters,masks,jpeg --data {sets} "
    "--directory {sets}/made --share 0.005 --workers 1 --out {tmp}/out.json",
    "constrained sgd": "papers.constrained_sgd --data {sets} --directory {sets}/made --seeds 2 --sets csgd "
    "--rows 1000 --last 12 --out {tmp}/out",
    "bcd, figures": "papers.bcd --data {sets} --directory {sets}/made-bcd --seeds 2 --part figures,lanes "
    "--sets 20news-hashed --alphas 1e-2 --rounds 40 --out {tmp}/out",
    "bcd, passes": "papers.bcd --data {sets} --directory {sets}/made-bcd --part passes "
    "--sets 20news --alphas 1e-2 --rounds 30 --out {tmp}/out",
    "bcd, many classes": "papers.bcd --data {sets} --directory {sets}/made-bcd --seeds 2 --part many --out {tmp}/out",
    "bcd, extensions": "papers.bcd_extensions --data {sets} --directory {tmp}/made --alphas 1e-2 "
    "--sets 20news --out {tmp}/out.json",
    "bcd, losses": "papers.bcd --data {sets} --directory {sets}/made-bcd --seeds 2 --part losses "
    "--sets mnist --alphas 1e-2,1e-3 --rounds 20 --out {tmp}/out",
}
# arguments with spaces in them
MORE = {"systems": ["distls mcid hinge,LinearSVC"]}
# what is smaller than an argument can make it
SMALLER = {
    "classes": {"WIDTHS": (16,)},
    "real": {"GRIDS": {"mcid": (FEW, None), "sdca": (FEW, 1e-2)}},
    "systems": {"STRENGTHS": {"distls mcid hinge": (1e-3, 1e-4)}},
    "least squares, pictures": {
        "CHANGES": {"as in the table": ((), {}), "wider": (("l2norm",), {"times": 2.0, "dtype": ""})},
        "SPREAD": 2, "FILTER_CHANGES": {"as in the figure": (1.0, {}), "triangle": (0.5, {"rectify": "triangle"})},
    },
    "sgd-qn": {
        "PASSES": (1, 5), "LANES": (1, 8), "SHAPES": {"rcv1": 1e-3, "axis": 1e-4}, "TIMED": ("rcv1", "axis"),
        "NAIVE_ROWS": 100, "OLBFGS_ROWS": 0,
    },
}  # fmt: skip
NEEDS = {"choose": "matplotlib", "least squares, pictures": "PIL", "peers": "vowpalwabbit"}
# figures of the papers whose numbers a script has
FIGURES = {
    "mcid": ("mcid-figure-1", "mcid-figure-3", "mcid-figure-4"),
    "sgd-qn": ("qn-table-5",),
    "least squares, tables": ("lsr-table-1", "lsr-table-2"),
    "least squares, figures": ("lsr-figure-1", "lsr-figure-2", "lsr-spectrum"),
    "least squares, pictures": ("lsr-figure-3",),
    "constrained sgd": ("csgd-figure-2", "csgd-figure-3"),
    "bcd, figures": ("bcd-figures",),
    "bcd, passes": ("bcd-passes",),
    "bcd, extensions": ("bcd-extensions",),
    "bcd, losses": ("bcd-losses",),
}
# names of numbers in reports -> where they lie
RANGES = {"error": (0, 100), "accuracy": (0, 100), "seconds": (0, math.inf), "wall": (0, math.inf)}


def _read(path):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def _numbers(report, name=""):
    """Yield the numbers of a report, each with the name that is nearest to it."""
    if isinstance(report, dict):
        for key, value in report.items():
            yield from _numbers(value, str(key))
    elif isinstance(report, list):
        for value in report:
            yield from _numbers(value, name)
    elif isinstance(report, (int, float)) and not isinstance(report, bool):
        yield name, report


@pytest.fixture
def run(request, tmp_path, monkeypatch):
    """Return a function that runs a script, and checks and returns the report that it writes."""

    def run(name, *more):
        pytest.importorskip(NEEDS.get(name, "pytest"))
        folders = {key: request.getfixturevalue(f"{key}_place") for key in ("sets", "peers", "scale")
                   if f"{{{key}}}" in SCRIPTS[name]}  # fmt: skip
        module, *arguments = SCRIPTS[name].format(tmp=tmp_path, **folders).split()
        script = importlib.import_module(f"benchmarks.{module}")
        for constant, value in SMALLER.get(name, {}).items():
            monkeypatch.setattr(script, constant, value)
        report = json.loads(json.dumps(script.main([*arguments, *MORE.get(name, []), *more])))
        out = tmp_path / "out"
        assert _read(out / "results.json" if out.is_dir() else tmp_path / "out.json") == report
        return report

    return run


def test_every_module_can_be_imported():
    root = Path(figures.__file__).parents[1]
    for folder in ("faults", "papers", "quality", "speed"):
        for path in sorted((root / folder).glob("[a-z]*.py")):
            importlib.import_module(f"benchmarks.{folder}.{path.stem}")


@pytest.mark.fast_cases("tables$")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_writes_the_report_that_it_returns(name, run, capsys, tmp_path):
    report = run(name)
    for figure in FIGURES.get(name, ()):
        assert verdict_of(figure, report)[0] in ("reproduced", "in kind", "not", "not comparable")
        draw(figure, report, tmp_path / "drawn.svg")
    numbers = list(_numbers(report))
    assert numbers
    for key, value in numbers:
        least, most = RANGES.get(key, (-math.inf, math.inf))
        assert least <= value <= most, key
    assert capsys.readouterr().out.count("\n") > 1


def _write_documents(path, rows, seed):
    """Write counts of words in three classes, each with words of its own."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt") as file:
        for row in range(rows):
            label = row % 3
            own = label * 20 + rng.choice(20, 6, replace=False) + 1
            shared = 61 + rng.choice(40, 6, replace=False)
            words = np.sort(np.concatenate([own, shared]))
            file.write(f"{label} " + " ".join(f"{word}:{rng.integers(1, 5)}" for word in words) + "\n")


def _write_digits(folder, name, rows, seed):
    """Write images of 8 x 8 pixels in ten classes, each around a pattern of its own, as MNIST's files."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(rows) % 10).astype(np.uint8)
    patterns = np.random.default_rng(0).integers(0, 200, (10, 64))
    pixels = (patterns[labels] + rng.integers(0, 56, (rows, 64))).astype(np.uint8)
    folder.mkdir(exist_ok=True)
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">4i", 0x803, rows, 8, 8) + pixels.tobytes())
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">2i", 0x801, rows) + labels.tobytes())


def _write_pictures(folder):
    """Write pictures of 32 x 32 pixels, dark ones and light ones, as the archive of CIFAR-10."""
    from PIL import Image

    rng = np.random.default_rng(0)
    folder.mkdir()
    with tarfile.open(folder / "cifar10_jpegs.tar.xz", "w:xz") as archive:
        for part, count in (("train", 30), ("test", 10)):
            for number in range(count):
                label, content = ("dark", "light")[number % 2], io.BytesIO()
                pixels = rng.integers(0, 128, (32, 32, 3)) * (1 + number % 2)
                Image.fromarray(pixels.astype(np.uint8)).save(content, "JPEG")
                member = tarfile.TarInfo(f"cifar10/{part}/{label}/{number}.jpg")
                member.size = len(content.getvalue())
                content.seek(0)
                archive.addfile(member, content)


@pytest.fixture(scope="module")
def sets_place(tmp_path_factory):
    """Stand-ins for MNIST, 20 Newsgroups and CIFAR-10, in their files' formats."""
    place = tmp_path_factory.mktemp("sets")
    _write_digits(place / "mnist", "train", 1000, 1)
    _write_digits(place / "mnist", "t10k", 100, 2)
    _write_documents(place / "20news" / "20news-counts.train.svm.gz", 600, 0)
    _write_documents(place / "20news" / "20news-counts.test.svm.gz", 90, 1)
    (place / "20news" / "labels.json").write_text('["comp.one", "comp.two", "sci.one"]')
    _write_documents(place / "lshtc1-small" / "task2-rdf.train.svm.gz", 200, 2)
    _write_documents(place / "lshtc1-small" / "task2-rdf.val.svm.gz", 50, 3)
    if importlib.util.find_spec("PIL") is not None:
        _write_pictures(place / "cifar10-jpeg")
    return place


@pytest.fixture
def peers_place(tmp_path, monkeypatch):
    """What `peers.prepare` would make, with a small test set."""
    command = peers._distls

    def in_small_partitions(*arguments):
        command(*arguments, *(("--partition-size", "512KiB") if arguments[0] == "ingest" else ()))

    monkeypatch.setattr(peers, "_distls", in_small_partitions)  # two lanes need two partitions
    for name in ("rcv1-4", "rcv1-53"):
        generate(name, tmp_path / "source" / name, rows=3000)
        for part in ("", "-test"):
            source = tmp_path / "source" / f"{name}{part}"
            text = tmp_path / f"{name}{part}.svm"
            export_text(source, text)
            lines = text.read_text().splitlines(keepends=True)[:3000]
            text.write_text("".join(lines))
            ingest(text, tmp_path / f"{name}{part}", n_features=47_236, like=tmp_path / name if part else None)
            export_text(tmp_path / f"{name}{part}", tmp_path / f"{name}{part}.vw", style="vw")
    return tmp_path


@pytest.fixture
def scale_place(tmp_path):
    generate("rcv1-4", tmp_path / "rcv1-4-3000", rows=3000)
    generate("rcv1-4", tmp_path / "text-source", rows=2000)  # of 100,000 in a real measurement
    return tmp_path


def test_every_figure_of_the_papers_has_a_verdict_a_script_a_budget_and_a_picture():
    found = figures.figures()
    assert len(found) == 20
    assert {each.verdict for each in found.values()} == {"reproduced", "in kind", "not", "not comparable"}
    assert len({each.paper for each in found.values()}) == 5
    for each in found.values():
        assert importlib.util.find_spec(f"benchmarks.papers.{each.module}") is not None
        assert each.why.strip()
        assert "`" not in each.script  # one command
    assert set(found) == set(figures._QUICK) == set(PANELS) == set(CLAIMS)
    assert sum(seconds for seconds, _ in figures._QUICK.values()) < 3600
    page = figures._PAGE.read_text()
    drawn = sorted(figures._PAGE.parent.glob("*.svg"))
    assert [path.name for path in drawn if f"({path.name})" not in page] == []
    assert len(drawn) >= 15
    assert all(path.stat().st_size < 30_000 for path in drawn)


@pytest.mark.parametrize(
    ("first", "second", "verdict", "failing"),
    [
        (1.5, 1.9, "reproduced", []),
        (1.5, 2.2, "in kind", ["C-Adaline: 2"]),
        (3.0, 2.0, "not", ["C-Adaline ahead", "C-Adaline: 2"]),
    ],
)
def test_a_verdict_follows_from_the_claims_of_which_the_first_is_the_main_one(
    monkeypatch, first, second, verdict, failing
):
    def claims(numbers):
        return [("C-Adaline ahead", numbers["a"] < numbers["b"]), ("C-Adaline: 2", numbers["b"] < 2.0)]

    monkeypatch.setitem(CLAIMS, "csgd-figure-4", claims)
    found, held = verdict_of("csgd-figure-4", {"a": first, "b": second})
    assert (found, [claim for claim, holds in held if not holds]) == (verdict, failing)


def _ends(**accuracies):
    rows = [
        {"kind": "rcv1-53", "alpha": 1e-4, "algorithm": name.replace("_", "-"), "accuracy": {"8": 50.0, "16": end}}
        for name, end in accuracies.items()
    ]
    return {"3": rows}


def _spectrum(*ratios):
    names = ("mnist", "20news", "rcv1-4")
    return {"also spectrum": [{"set": s, "ratio": r, "published": r} for s, r in zip(names, ratios, strict=True)]}


_RIVALS = [
    {"system": "distls linear", "features": 9, "error": 2.0},
    {"system": "a", "features": 9, "error": 2.0, "times faster": {"distls linear": 11.0, "distls logistic": None}},
    {"system": "b", "features": 9, "failed": "over 3 s", "times faster": {"distls linear": None}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "numbers", "failing"),
    [
        ("csgd-figure-4", {"counts": {"C-Adaline": [300, 320], "Adaline": [1321]}}, [1]),
        ("csgd-figure-4", {"counts": {"C-Adaline": [205], "Adaline": [1300]}}, []),
        ("lsr-spectrum", _spectrum(9.0, 2.0, 3.0), [0]),
        ("lsr-spectrum", _spectrum(9.0, 3.0, 2.0), []),
        ("mcid-figure-3", _ends(LR=61, K_binaryLR=60, SVM=60, K_Pegasos=61), [0, 1]),
        ("lsr-figure-2", {"figure 2": {"rows": _RIVALS}}, []),
        (
            "lsr-figure-2",
            {"figure 2": {"rows": [*_RIVALS, _RIVALS[1] | {"times faster": {"distls linear": 2.0}}]}},
            [2],
        ),
        ("bcd-passes", {}, []),
    ],
)
def test_the_claims_of_a_figure_that_do_not_hold(name, numbers, failing):
    verdict, claims = verdict_of(name, numbers)
    assert [place for place, (_, holds) in enumerate(claims) if not holds] == failing
    assert (verdict == "not comparable") == (not claims)


def test_a_picture_has_curves_and_the_papers_numbers(tmp_path):
    curve = {"block": 300, "inner": "linear", "points": [[1.0, 3.0], [20.0, 2.5], [30.0, None], [0.0, 1.0]]}
    draw("lsr-figure-1", {"figure 1": [curve]}, tmp_path / "curve.svg")
    cell = {"features": "pixels", "variant": "linear", "published": 14.1, "error": 13.97, "seconds": 2.0}
    draw("lsr-table-1", {"table 1": [cell]}, tmp_path / "table.svg")
    parts = [ET.parse(tmp_path / name).getroot() for name in ("curve.svg", "table.svg")]
    count = [[len(part.findall(f"{{*}}{kind}")) for kind in ("circle", "polygon")] for part in parts]
    assert count == [[0, 0], [2, 2]]  # two panels have the cell, one the paper's number, and so has the legend
    fit = {"set": "a", "loss": "b", "solver": "c", "reached": {"0.1": [3.0, 0.5], "1e-06": None}}
    rank = {"loss": "b", "rows": 1.0, "precision": {"1": 90.0}}
    cut = {"set": "a", "penalty": "l1", "rows": 1.0, "weights": 0.1, "accuracy": 80.0}
    own = {"system": "x", "features": 512, "seconds": 1.0, "error": 2.0}
    image = {"setting": "400 filters", "filters": "random", "accuracy": 66.0}
    for name, numbers in (
        ("bcd-passes", {"passes": {"rows": [fit]}}),
        ("bcd-extensions", {"penalties": [cut], "ranking": [rank]}),
        ("lsr-figure-2", {"figure 2": {"rows": [own, {"system": "y", "features": 512, "failed": "over 1 s"}]}}),
        ("lsr-figure-3", {"figure 3": [image]}),
    ):
        draw(name, numbers, tmp_path / "other.svg")
        assert ET.parse(tmp_path / "other.svg").getroot().findall("{*}circle")
    (line,) = [e for e in parts[0].findall("{*}polyline") if e.get("stroke") and len(e.get("points").split()) == 2
               and float(e.get("points").split()[0].split(",")[0]) > 50]  # fmt: skip
    (left, _), (right, _) = (map(float, place.split(",")) for place in line.get("points").split())
    assert left < right


@pytest.mark.slow
def test_a_figure_is_whole_cut_failed_or_left_out_and_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DISTLS_DATA", raising=False)
    known = figures.figures()
    quick = {name: (0, arguments) for name, (_, arguments) in figures._QUICK.items()}
    monkeypatch.setattr(figures, "_QUICK", {**quick, "csgd-figure-2": (1, "--sets csgd --seeds 1 --rows 300")})
    out = ["--out", str(tmp_path)]
    assert figures.main(["csgd-figure-2", "lsr-table-1", "--budget", "600", *out]) == 0
    reports = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("csgd-figure-2", "lsr-table-1")}
    assert reports["csgd-figure-2"]["status"] == "whole"
    assert reports["csgd-figure-2"]["cpu"] > 0.0
    assert len(reports["csgd-figure-2"]["claims"]) == 2
    assert reports["csgd-figure-2"]["measured"] != "none"
    assert reports["lsr-table-1"]["measured"] == "none"
    assert (tmp_path / "csgd-figure-2.svg").stat().st_size > 1000
    assert "DISTLS_DATA" in reports["lsr-table-1"]["status"]
    assert figures.main(["csgd-figure-2", "--budget", "0.5", *out]) == 1
    assert "left out: it takes about 1 s" in capsys.readouterr().out
    failing = known["mcid-figure-1"]._replace(script="mcid --figures 9")
    assert figures.run(failing, tmp_path / "none", None, []).status == "failed"
    assert figures.run(known["csgd-figure-2"], tmp_path / "none", 0.01, []).status == "cut"
    with pytest.raises(SystemExit):
        figures.main(["lsr-figure-9", *out])


@pytest.mark.slow
def test_every_method_has_a_peak():
    assert sorted(peaks.METHODS) == sorted(METHODS)


@pytest.mark.slow
def test_cutting_planes_reach_the_optimum_of_the_crammer_singer_svm():
    rng = np.random.default_rng(0)
    x, codes = sp.random(60, 12, 0.4, "csr", rng=rng), rng.integers(0, 3, 60)
    planes = opponents.cutting_planes(x, codes, 0.02)
    _, w, gap = next(found for found in planes if found[2] < 1e-3)
    scores = x @ w
    margins = scores - scores[np.arange(60), codes][:, None] + 1.0
    margins[np.arange(60), codes] = 0.0
    value = 0.01 * float(np.vdot(w, w)) + float(margins.max(axis=1).mean())
    model = LinearSVC(multi_class="crammer_singer", C=1 / (0.02 * 60), fit_intercept=False, tol=1e-8, max_iter=10**5)
    best = model.fit(x, codes).coef_.T
    other = x @ best - (x @ best)[np.arange(60), codes][:, None] + 1.0
    other[np.arange(60), codes] = 0.0
    least = 0.01 * float(np.vdot(best, best)) + float(other.max(axis=1).mean())
    assert 0.0 <= gap < 1e-3
    assert least - 1e-6 <= value <= least * (1 + 1e-3)


@pytest.mark.slow
def test_steps_of_gls_are_those_of_the_paper_however_bad_the_condition(run):
    for row in run("least squares")["also conditioning"]:
        assert row["steps"] == len(row["gls"]) == 100
        assert row["difference"] < 1e-6
        assert np.all(np.diff(row["gls"]) < 0)


@pytest.mark.slow
def test_solvers_of_the_sparse_problem_reach_one_objective(run):
    curves = {curve["solver"]: curve for curve in run("bcd, figures")["figures"]["curves"]}
    for solver in ("bcd, line search", "bcd, line search, as published", "fista, constant", "sparsa"):
        assert curves[solver]["reached"]["0.001"] is not None


@pytest.mark.slow
def test_owners_pictures_and_sets_of_parts_are_those_of_the_experiments(tmp_path):
    write_cifar(tmp_path)
    shutil.copy(tmp_path / "data_batch_2.bin", tmp_path / "test_batch.bin")
    train, test = images.cifar(tmp_path / "none", tmp_path, tmp_path)
    pixels = owners.arrays_of(train)[0]
    assert len(pixels) == 2 * len(owners.arrays_of(test)[0]) == 60
    assert pixels.max() <= 1.0
    x, y = labelled_rows(100, 12, 4)
    for name in ("news20", "sector"):
        for part, rows in (("scale", slice(70)), ("t.scale", slice(70, 100))):
            dump_svmlight_file(x[rows], y[rows], str(tmp_path / f"{name}.{part}"))
    lab = bcd.Lab(None, tmp_path / "sets", ("news20",), (), 1, None, 1.0, 1, tmp_path)
    with pytest.raises(SystemExit, match=r"amazon7/x.npz, amazon7/y.npy in the folder of --real"):
        lab.corpus("amazon7")
    (tmp_path / "amazon7").mkdir()
    sp.save_npz(tmp_path / "amazon7" / "x.npz", x)
    np.save(tmp_path / "amazon7" / "y.npy", y)
    for name in ("news20", "amazon7", "sector"):
        found = [lab.corpus(name), lab.split(name, 1)]
        sizes = [(len(each.rows[1]), len(each.test_rows[1])) for each in found]
        assert [sum(size) for size in sizes] == [100, 100]
        assert all(len(np.unique(each.rows[1])) == 4 for each in found)
        assert abs(found[0].rows[0]).sum() != abs(found[1].rows[0]).sum()  # of each seed another


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "classes"),
    [("rcv1-4", 160, 2), ("rcv1-53", 80, 2), ("rcv1", 200, 2), ("odp", 200, 2), ("alpha", 300, 2)],
)
def test_sets_are_made_of_the_owners_files(kind, rows, classes, tmp_path):
    for write in (write_rcv1, write_directory, write_alpha):
        write(tmp_path)
    vectors = tmp_path / "lyrl2004_vectors_train.dat"
    shutil.copy(vectors, tmp_path / "lyrl2004_vectors_test_pt0.dat")
    if kind.startswith("rcv1"):
        rows *= 2  # the files of training and of test have the same rows
    train = owners.made(kind, tmp_path / "set", real=tmp_path, rows=None, partition_size=10_000)
    found = [distls.open_dataset(path) for path in (train, train.with_name("set-test"))]
    assert sum(data.meta.n_rows for data in found) == rows
    assert len(found[0].meta.classes) == classes
    few = owners.made(kind, tmp_path / "few", real=tmp_path, rows=20, partition_size=10_000)
    assert distls.open_dataset(few).meta.n_rows == 20
    assert distls.open_dataset(tmp_path / "few-test").meta.n_rows == found[1].meta.n_rows


@pytest.mark.fast_cases(r"quality\.real", r"papers\.sgd_qn", r"papers\.bcd-arguments8")
@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("quality.real", [], "set DISTLS_DATA to the folder of the data sets"),
        ("papers.least_squares", ["--table", "1"], "set DISTLS_DATA to the folder of the data sets"),
        ("papers.least_squares", ["--table", "3"], "unknown: --table 3"),
        ("papers.least_squares", [], "nothing asked for: --table 1"),
        ("papers.sgd_qn", ["--part", "passes,figures"], "there are passes, curves, lanes, rounds"),
        ("papers.constrained_sgd", ["--part", "adaline"], "set DISTLS_DATA to the folder of the data sets"),
        ("papers.constrained_sgd", ["--part", "figures"], "there are simulations, regret, adaline"),
        ("papers.bcd", ["--part", "losses"], "set DISTLS_DATA to the folder of the data sets"),
        ("papers.bcd", ["--part", "tables"], "there are author, figures, losses, passes, lanes"),
    ],
)
def test_it_says_what_it_needs(
    module, arguments, message, tmp_path,
    monkeypatch, capsys
):  # fmt: skip
    monkeypatch.delenv("DISTLS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{module}").main(arguments)
    assert message in f"{ended.value}" + capsys.readouterr().err


@pytest.mark.slow
def test_digit_picture_counts(sets_place, tmp_path, capsys):
    options = ["--data", str(sets_place), "--directory", str(tmp_path), "--seeds", "1"]
    found = digit_picture.main([*options, "--ended", "20000"])
    for name in digit_picture.UPDATES:
        # what is left out is wrong at the end, not before
        assert found["counts"][name] == [int((found["wrong"][name] & found["kept"]).sum())]
    assert capsys.readouterr().out.count("wrong after 16384 rows") == len(digit_picture.UPDATES)


@pytest.mark.slow
def test_constrained_sgd_paper_leaves_out_what_takes_too_long(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(constrained_sgd, "LONGEST", 0.0)
    options = ["--part", "simulations", "--sets", "csgd", "--rows", "200", "--seeds", "1"]
    (found,) = constrained_sgd.main([*options, "--directory", str(tmp_path)])["simulations"]
    assert "2SGD" not in found["methods"]
    assert "left out: 2SGD" in capsys.readouterr().out


@pytest.mark.slow
def test_systems_say_what_failed_and_what_is_missing(sets_place, monkeypatch, capsys):
    monkeypatch.setitem(systems.NEEDS, "Spark", "a_module_that_nobody_has")
    arguments = ["--data", str(sets_place), "--sets", "20news", "--rivals", "SGDClassifier,Spark MLlib"]
    results = systems.main([*arguments, "--limit", "0.01"])
    assert [row["failed"] for row in results["sets"]["20news"]] == ["over 0 s"]
    assert "not installed, left out: Spark MLlib\n" in capsys.readouterr().out


@pytest.mark.slow
def test_bcd_paper_beside_the_author_s_program(sets_place, tmp_path, monkeypatch, capsys):
    def zeros(x, y, alpha, **options):
        return np.zeros((x.shape[1], int(y.max()) + 1)), 1e3, 1e3

    asked = ["--part", "author", "--sets", "20news", "--alphas", "1e-4", "--seeds", "2"]
    asked += ["--data", str(sets_place), "--directory", str(tmp_path)]
    monkeypatch.setattr(peers, "has_author_of_bcd", lambda: False)
    assert bcd.main(asked)["author"] == {"rows": [], "claims": []}
    assert "sklearn-contrib-lightning is not installed" in capsys.readouterr().out
    monkeypatch.setattr(peers, "has_author_of_bcd", lambda: True)
    monkeypatch.setattr(peers, "author_of_bcd", zeros)
    found = bcd.main(asked)["author"]
    # no weights: a loss of 1 for each of the other classes
    assert found["rows"][0]["first"]["goal"] == pytest.approx(2.0)
    assert found["rows"][0]["rounds"] == 1
    assert [claim["bar"] for claim in found["claims"]] == [2.0]
    assert capsys.readouterr().out.count("PASS: 20news") == 1


@pytest.mark.slow
def test_links(tmp_path, capsys):
    tried = Hosts(1)
    obstacle = tried.build()
    tried.remove()
    if obstacle:
        pytest.skip(obstacle)
    options = "--workers 6 --megabytes 1 --rounds 1 --ways straight,2,actors --out"
    straight, *others = links.main([*options.split(), str(tmp_path / "out.json")])
    assert straight["driver"][1] > 6
    for row in others:
        assert max(row["driver"]) < 1.5
    assert capsys.readouterr().out.count("busiest worker") == 3
    # a fit moves over each link what the model has, and the messages around it; never more than is planned
    for row in links.main(["--fits", "sgd,newton", "--workers", "5", "--rate", "1gbit"]):
        for counted, modelled, planned in (row["driver out"], row["driver in"], row["workers in"]):
            assert modelled < counted < 1.1 * modelled
            assert modelled <= 1.01 * planned
        assert row["furthest"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("place", ["store", "network"])
def test_chaos_elsewhere(place):
    for package in ("obstore", "moto", "flask", "flask_cors"):
        pytest.importorskip(package)
    if place == "network":
        tried = Hosts(1)
        obstacle = tried.build()
        tried.remove()
        if obstacle:
            pytest.skip(obstacle)
    report = chaos.main(["--place", place, "--seed", "1", "--rounds", "1", "--minutes", "60"])
    assert [each["trouble"] for each in report["rounds"]] == [[]], report
    assert report["rounds"][0]["faults"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_chaos(tmp_path, capsys):
    """Ten minutes of it: some 50 rounds."""
    report = chaos.main(["--seed", "1", "--minutes", "10", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert [each for each in report["rounds"] if each["trouble"]] == []
    assert sum(bool(each["faults"]) for each in report["rounds"]) > 5
    # what is damaged after it was written is a matter of moments
    assert capsys.readouterr().out.endswith(
        f"{len(report['rounds'])} rounds, seed 1: 0 with trouble, {report['unread']} unread\n"
    )


def test_chaos_bears_that_others_remove_files_and_folders(tmp_path, monkeypatch):
    for name in ("data/gone", "kernels/folder"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/there", "kernels/gone"):
        (tmp_path / name).touch()

    def without(name, act):
        def acting(path, *given):
            if Path(path).name == name:
                raise FileNotFoundError(path)
            return act(path, *given)

        return acting

    monkeypatch.setattr(faulty_fit, "_link", without("gone", os.link))
    made = faulty_fit.Round(tmp_path / "round", tmp_path / "data", str(tmp_path / "kernels"), random.Random(0))
    monkeypatch.setattr(os, "scandir", without("gone", os.scandir))
    for _ in range(20):
        made.do_fault("remove", subprocess.Popen(["true"]))
    assert made.faults[-1] == "remove data/there"


@pytest.mark.fast_cases("0--False", "None", "1-two\\\\nlines\\\\n", "1-compiled", "0-Traceback")
@pytest.mark.parametrize(
    ("code", "written", "killed", "trouble"),
    [
        (0, "", False, []),
        (1, "distls: one line\n", False, []),
        (-9, "", True, []),
        (None, "", False, ["hangs"]),
        (0, "", None, ["other weights"]),
        (0, "", "removed", ["no weights to compare"]),
        (1, "two\nlines\n", False, ["2 lines"]),
        (1, "here: read again, and well, after: there\nan end\n", False, []),
        (1, "a.nbi: a damaged file among compiled kernels; they are compiled again\nan end\n", False, []),
        (1, "compiled kernels are not kept: disk full\ncompiled kernels are not kept: disk full\nan end\n", False, []),
        (3, "", False, ["0 lines"]),
        (-9, "", False, ["exit code -9"]),
        (0, "Traceback (most recent call last):\n", False, ["a traceback"]),
    ],
)  # fmt: skip
def test_chaos_finds(code, written, killed, trouble):
    digest = {None: "others", "removed": None}.get(killed, "right")
    assert chaos.trouble_of(code, written, digest, "right", killed=killed is True) == trouble


@pytest.mark.slow
@pytest.mark.parametrize(
    ("removed", "trouble", "unread"),
    [("status.json", [], False), ("model", [], True), (None, [], False), ("other weights", ["other weights"], False)],
)
def test_chaos_reads_the_weights_of_the_model(tmp_path, removed, trouble, *, unread):
    """What is removed once it was written is neither other weights nor unseen."""
    data = faulty_fit.make_data(tmp_path / "data")
    made = faulty_fit.Round(tmp_path / "round", data, None, random.Random(0))
    right = str(distls.fit("cls", data, made.run, params=faulty_fit.PARAMS["cls"]).model.sha256)
    for path in [Path(made.run) / (removed or "none")]:
        made.touched_files = path.exists()
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    made.fit = made.resume = lambda: subprocess.Popen(
        ["true"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    result = chaos.run_round(made, "others" if removed == "other weights" else right, 60)
    assert (result["trouble"], result["unread"]) == (trouble, unread), result
    assert result["codes"] == ([0, 0] if unread else [0])


@pytest.mark.slow
@pytest.mark.parametrize(("noted", "trouble"), [(True, []), (False, ["other weights"])])
def test_chaos_takes_other_weights_where_duals_were_recomputed_and_it_is_said(tmp_path, noted, trouble):
    made = faulty_fit.Round(tmp_path / "round", faulty_fit.make_data(tmp_path / "data"), None, random.Random(0))
    limits = {"passes": 2, "checkpoint_seconds": 0, "params": faulty_fit.PARAMS["sdca"]}
    distls.fit("sdca", tmp_path / "data", made.run, **limits)
    if noted:
        for duals in (Path(made.run) / "state").glob("*.npy"):
            duals.unlink()
        distls.resume(made.run, passes=3)
    made.touched_files = True
    made.fit = lambda: subprocess.Popen(["true"], stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert chaos.run_round(made, "others", 60)["trouble"] == trouble


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_storms(capsys):
    assert storms.main(["--seed", "5", "--rounds", "20"]) == 0
    assert capsys.readouterr().out.count(": right\n") > 10
