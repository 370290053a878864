"""Every benchmark runs, tiny, and reports what it promises, so that none rots. No speed is judged here."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import math
import random
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distls
from benchmarks.faults import chaos, endurance, faulty_fit
from benchmarks.faults.hosts import Hosts
from benchmarks.papers import bcd, constrained_sgd, digit_picture, least_squares, mcid, sgd_qn
from benchmarks.quality import choose, classes, defaults, real, systems
from benchmarks.speed import (
    gram,
    kernels,
    peaks,
    peers,
    recovery,
    scale,
    serving,
    simulation,
    small,
    table_parsing,
)
from distls.ingestion.ingest import ingest
from distls.methods.method_registry import METHODS
from distls.synthetic.generation import generate
from distls.synthetic.text_export import export_text


def _read(path: Path) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.mark.slow
def test_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = kernels.main(["--tiny", "--repeats", "1", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert len(report["results"]) == len(kernels.cases(tiny=True))
    assert all(row["m_nnz_s"] > 0 for row in report["results"])
    assert {row["kernel"] for row in report["results"]} == {
        "mcid", "mcid tail", "mcid r=10", "scores", "evaluate", "gradient", "sdca", "sdca late"
    }  # fmt: skip
    assert capsys.readouterr().out.count("\n") == 2 + len(report["results"])


@pytest.mark.slow
def test_gram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = gram.main(["--tiny", "--repeats", "1", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert [row["rows"] for row in report["fourier"]] == [name for name, _, _ in gram.KINDS]
    assert all(min(row["ratio"], row["fused_gflops"]) > 0 for row in report["fourier"])
    assert capsys.readouterr().out.count("\n") == 1 + len(report["fourier"])
    sparse = gram.main(["--tiny", "--repeats", "1", "--sparse"])["sparse"]
    assert [row["per_row"] for row in sparse] == [2, 8]
    assert all(row["break_even"] > 0 for row in sparse)


@pytest.mark.slow
def test_peaks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(peaks.METHODS) == sorted(METHODS), "every method has a row"
    arguments = ["--methods", "gls,csgd", "--threads", "1", "--megabytes", "4"]
    report = peaks.main([*arguments, "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert [(row["method"], row["threads"]) for row in report] == [("gls", 1), ("csgd", 1)]
    for row in report:
        assert row["plan"] == sum(row["parts"].values())
        assert 0 < row["cached_bytes"] < 3 * 2**20
        assert 0 < row["ratio"] == row["peak"] / row["plan"] <= 1
        assert row["without_reserve"] > row["ratio"]
    assert capsys.readouterr().out.count("\n") == 2 + len(report)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_serving(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = serving.main(["--tiny", "--repeats", "1", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert [row["rows_of"] for row in report["results"][::2]] == list(serving.KINDS)
    assert all(row[program] > 0 for row in report["results"] for program in ("distls", "sklearn"))
    assert capsys.readouterr().out.count("\n") == 1 + len(report["results"])


def test_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(tmp_path), "--sets", "iris", "--out", str(tmp_path / "out.json")]
    report = defaults.main(arguments)
    assert _read(tmp_path / "out.json") == report
    row = report["iris"]
    assert (row["rows"], row["features"], row["distls"]["transforms"]) == (105, 4, ["standardize"])
    assert row["behind"] == row["distls"]["error"] - min(row[rival]["error"] for rival in defaults.RIVALS)
    assert row["distls"]["error"] < 10
    assert "gls softmax" in capsys.readouterr().out


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = table_parsing.main(["--tiny", "--repeats", "1", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert [row["table"] for row in report["results"]] == [shape.name for shape in table_parsing.SHAPES]
    assert all(row[way] > 0 for row in report["results"] for way in table_parsing.WAYS)
    assert capsys.readouterr().out.count("\n") == 1 + len(report["results"])


@pytest.mark.slow
def test_choose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    report = choose.main(["--tiny", "--out", str(tmp_path / "out.json"), "--pictures", str(tmp_path)])
    assert _read(tmp_path / "out.json") == report
    assert [curve["method"] for curve in report["documents"]] == ["sgd", "mcid", "sdca", "fista"]
    assert [curve["method"] for curve in report["correlated"]] == ["sgd", "sdca", "gls"]
    assert all(min(curve["distance"]) >= 0 for name in ("documents", "correlated") for curve in report[name])
    assert [row["features"] for row in report["features"]] == sorted(
        row["features"] for row in report["features"]
    )
    pictures = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert set(pictures) == {"choose-documents.svg", "choose-correlated.svg", "choose-features.svg"}
    assert all("<svg" in text for text in pictures.values())
    assert capsys.readouterr().out.count("\n") == 12 + len(pictures)


@pytest.mark.slow
def test_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = small.main(["--tiny", "--rows", "200", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert all(min(row["warm"], row["cpu"]) > 0 and row["cold"] is None for row in report["results"])
    assert [row["kind"] for row in report["results"]] == ["shell"] * 6 + ["python"] * 4 + ["search"] * 5
    assert all(row["accuracy"] > 0.7 for row in report["results"] if "accuracy" in row)
    assert capsys.readouterr().out.count("\n") == 1 + len(report["results"])


@pytest.fixture
def peers_place(tmp_path: Path) -> Path:
    """What `peers.prepare` would make, with a small test set."""
    for name in ("rcv1-4", "rcv1-53"):
        generate(name, tmp_path / "source" / name, rows=3000)
        for part in ("", "-test"):
            source = tmp_path / "source" / f"{name}{part}"
            text = tmp_path / f"{name}{part}.svm"
            export_text(source, text)
            lines = text.read_text().splitlines(keepends=True)[:3000]
            text.write_text("".join(lines))
            ingest(
                text, tmp_path / f"{name}{part}", n_features=47_236, like=tmp_path / name if part else None
            )
            export_text(tmp_path / f"{name}{part}", tmp_path / f"{name}{part}.vw", style="vw")
    return tmp_path


@pytest.mark.slow
def test_peers(peers_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("vowpalwabbit") is None:
        pytest.skip("the rival is not installed: pip install '.[bench]'")
    command = peers._distls

    def in_small_partitions(*arguments: object) -> None:
        command(*arguments, *(("--partition-size", "512KiB") if arguments[0] == "ingest" else ()))

    monkeypatch.setattr(peers, "_distls", in_small_partitions)  # two lanes need two partitions
    out = peers_place / "out.json"
    results = peers.main(
        ["--directory", str(peers_place), "--rows", "3000", "--repeats", "1", "--out", str(out)]
    )
    assert set(_read(out)) == set(results) >= {"cpus", "load", "passes", "overhead", "ingest", "text"}
    assert [(row["method"], row["loss"], row["from"]) for row in results["passes"]] == [
        (method, loss, where)
        for method, losses in (("mcid", ("hinge", "log")), ("sgd", ("ovr_hinge", "log")))
        for loss in losses
        for where in ("store", "cache")
    ]
    for row in results["passes"]:
        assert 0 < row["distls error %"] < 75
        assert math.isfinite(row["ratio"])
    assert 0 < results["text"]["distls error %"] < 98
    assert results["ingest"]["ratio"] > 0
    assert all(row["overhead"] < 1 for row in results["overhead"])


@pytest.mark.slow
def test_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rows", "3000", "--text-gb", "0.001", "--passes", "1", "--memory-limit", "400MiB"]
    generate("rcv1-4", tmp_path / "rcv1-4-3000", rows=3000)
    generate("rcv1-4", tmp_path / "text-source", rows=2000)  # of 100,000 in a real measurement
    options += ["--column-rows", "2000", "--column-limit", "900MiB", "--column-tol", "0.02"]
    results = scale.main(["--directory", str(tmp_path), *options, "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == results
    for part in (results["fit"], results["ingest"]):
        assert len(part["peaks"]) >= 2
        assert all(0 < peak < part["limit"] for peak in part["peaks"])
    assert results["fit"]["plan"] < results["fit"]["limit"]
    assert results["ingest"]["text bytes"] >= 1_000_000
    assert results["ingest"]["rows"] > 100
    fitted = results["columns"]
    assert all(0 < peak < fitted["plan"] for peak in fitted["peaks"])
    assert fitted["certified"] is not None
    assert fitted["certificates"][-1][-1] <= 0.01
    assert fitted["refused"] is None
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line[0] != " "] == ["fit", "ingest", "columns"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["store", "network"])
def test_chaos_elsewhere(place: str) -> None:
    for package in ("obstore", "moto", "flask", "flask_cors"):
        pytest.importorskip(package)
    if place == "network":
        tried = Hosts(1)
        obstacle = tried.build()
        tried.remove()
        if obstacle:
            pytest.skip(obstacle)
    report = chaos.main(
        ["--place", place, "--seed", "1", "--rounds", "1", "--minutes", "60"],
    )
    assert [each["trouble"] for each in report["rounds"]] == [[]], report
    assert report["rounds"][0]["faults"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_chaos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten minutes of it: some 50 rounds."""
    report = chaos.main(["--seed", "1", "--minutes", "10", "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == report
    assert [each for each in report["rounds"] if each["trouble"]] == []
    assert sum(bool(each["faults"]) for each in report["rounds"]) > 5
    assert capsys.readouterr().out.endswith(
        f"{len(report['rounds'])} rounds, seed 1: 0 with trouble, 0 unread\n"
    )


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
        (
            1,
            "compiled kernels are not kept: disk full\ncompiled kernels are not kept: disk full\nan end\n",
            False,
            [],
        ),
        (3, "", False, ["0 lines"]),
        (-9, "", False, ["exit code -9"]),
        (0, "Traceback (most recent call last):\n", False, ["a traceback"]),
    ],
)
def test_chaos_finds(code: int | None, written: str, killed: bool | str | None, trouble: list[str]) -> None:
    digest = {None: "others", "removed": None}.get(killed, "right")
    assert chaos.trouble_of(code, written, digest, "right", killed=killed is True) == trouble


@pytest.mark.parametrize(
    ("removed", "trouble", "unread"),
    [
        ("status.json", [], False),
        ("model", [], True),
        (None, [], False),
        ("other weights", ["other weights"], False),
    ],
)
def test_chaos_reads_the_weights_of_the_model(
    tmp_path: Path, removed: str | None, trouble: list[str], *, unread: bool
) -> None:
    """What is removed once it was written is neither other weights nor unseen."""
    data = faulty_fit.make_data(tmp_path / "data")
    made = faulty_fit.Round(tmp_path / "round", data, None, random.Random(0))
    right = str(distls.fit("cls", data, made.run, params=faulty_fit.PARAMS["cls"]).model.sha256)
    for path in [Path(made.run) / (removed or "none")]:
        made.touched_files = path.exists()
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    made.fit = made.resume = lambda: subprocess.Popen(  # type: ignore[method-assign]
        ["true"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    result = chaos.run_round(made, "others" if removed == "other weights" else right, 60)
    assert (result["trouble"], result["unread"]) == (trouble, unread), result
    assert result["codes"] == ([0, 0] if unread else [0])


@pytest.mark.parametrize(("noted", "trouble"), [(True, []), (False, ["other weights"])])
def test_chaos_takes_other_weights_where_duals_were_recomputed_and_it_is_said(
    tmp_path: Path, noted: bool, trouble: list[str]
) -> None:
    made = faulty_fit.Round(
        tmp_path / "round", faulty_fit.make_data(tmp_path / "data"), None, random.Random(0)
    )
    limits = {"passes": 2, "checkpoint_seconds": 0, "params": faulty_fit.PARAMS["sdca"]}
    distls.fit("sdca", tmp_path / "data", made.run, **limits)
    if noted:
        for duals in (Path(made.run) / "state").glob("*.npy"):
            duals.unlink()
        distls.resume(made.run, passes=3)
    made.touched_files = True
    made.fit = lambda: subprocess.Popen(  # type: ignore[method-assign]
        ["true"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert chaos.run_round(made, "others", 60)["trouble"] == trouble


@pytest.mark.slow
def test_recovery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--methods", "mcid", "--seconds", "2", "--every", "1", "--out", str(tmp_path / "out.json")]
    results = recovery.main(options)
    assert _read(tmp_path / "out.json") == results
    (found,) = results
    assert found["calm"] > 0
    assert found["killed"] > 0
    assert found["share"] == found["killed"] / found["calm"]
    assert len(found["seconds"]) >= 1
    assert "| mcid | " in capsys.readouterr().out


@pytest.mark.slow
def test_endurance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--methods",
        "mcid",
        "--clusters",
        "local",
        "--rounds",
        "6",
        "--out",
        str(tmp_path / "out.json"),
    ]
    results = endurance.main(options)
    assert _read(tmp_path / "out.json") == results
    (found,) = results
    assert (found["method"], found["rounds"], found["tasks"], found["left"]) == ("mcid", 6, 1, [])
    assert set(found) >= {"driver", "worker 0", "worker 1", "files"}
    assert "| mcid, local | 6 | in the driver |" in capsys.readouterr().out


@pytest.mark.slow
def test_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--workers", "3,6,12", "--kinds", "dense", "--rounds", "2", "--dask", "2"]
    results = simulation.main([*small, "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == results
    assert [(each["kind"], each["method"]) for each in results["rounds"]] == [
        ("dense", "mcid"),
        ("dense", "gls"),
    ]
    for each in results["rounds"]:
        assert [(row["workers"], row["lanes"], row["rounds"]) for row in each["rows"]] == [
            (3, 3, 2), (6, 6, 2), (12, 12, 2)
        ]  # fmt: skip
        assert [row["partitions"] for row in each["rows"]] == [48, 96, 192]
        for row in each["rows"]:
            assert row["seconds"] > 0
            # every lane returns as much, whoever holds it
            assert row["returned"] / row["lanes"] == pytest.approx(
                each["rows"][0]["returned"] / each["rows"][0]["lanes"], rel=0.1
            )
    assert results["dask"][0]["task"] > 0
    assert capsys.readouterr().out.count("\n") == 2 * 7 + 1


def _write_documents(path: Path, rows: int, seed: int) -> None:
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


def test_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few: dict[str, Any] = {"loss": ["log"], "alpha": [1e-3, 1e-4]}
    monkeypatch.setattr(real, "GRIDS", {"mcid": (few, None), "sdca": (few, 1e-2)})
    _write_documents(tmp_path / "20news" / "20news-counts.train.svm.gz", 1500, 0)
    _write_documents(tmp_path / "20news" / "20news-counts.test.svm.gz", 90, 1)
    arguments = ["--data", str(tmp_path), "--sets", "20news", "--passes", "2"]
    results = real.main([*arguments, "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == results
    rows = results["20news"]
    assert list(rows) == [
        "bar", "default lanes, 16 MiB partitions", "one lane", "sdca", "sdca, tuned on the test set",
        "eight lanes, small partitions", "rivals",
    ]  # fmt: skip
    for name, row in rows.items():
        if name not in ("bar", "rivals"):
            assert row["error"] < 5
            assert row["alpha"] in (1e-3, 1e-4)
    assert rows["rivals"]["LinearSVC"]["error"] < 5
    assert capsys.readouterr().out.count("\n") == 7


def test_real_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTLS_DATA", raising=False)
    with pytest.raises(SystemExit, match="set DISTLS_DATA to the folder of the data sets"):
        real.main([])


@pytest.mark.slow
def test_table_of_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systems, "STRENGTHS", {"distls mcid hinge": (1e-3, 1e-4)})
    _write_documents(tmp_path / "20news" / "20news-counts.train.svm.gz", 1500, 0)
    _write_documents(tmp_path / "20news" / "20news-counts.test.svm.gz", 90, 1)
    arguments = ["--data", str(tmp_path), "--sets", "20news", "--rivals", "distls mcid hinge,LinearSVC"]
    results = systems.main([*arguments, "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json") == results
    rows = results["sets"]["20news"]
    assert [row["rival"] for row in rows] == ["distls mcid hinge", "LinearSVC"]
    for row in rows:
        assert row["error"] < 5
        assert min(row["load"], row["train"], row["cpu"]) > 0
        assert row["peak"] > 50 * 2**20
    assert capsys.readouterr().out.count("\n") == 3


@pytest.mark.slow
def test_table_says_what_failed_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_documents(tmp_path / "20news" / "20news-counts.train.svm.gz", 60, 0)
    _write_documents(tmp_path / "20news" / "20news-counts.test.svm.gz", 30, 1)
    monkeypatch.setitem(systems.NEEDS, "Spark", "a_module_that_nobody_has")
    arguments = ["--data", str(tmp_path), "--sets", "20news", "--rivals", "SGDClassifier,Spark MLlib"]
    results = systems.main([*arguments, "--limit", "0.01"])
    assert [row["failed"] for row in results["sets"]["20news"]] == ["over 0 s"]
    assert "not installed, left out: Spark MLlib\n" in capsys.readouterr().out


@pytest.mark.slow
def test_mcid_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--rows", "6000", "--seeds", "2", "--iterations", "16384", "--directory", str(tmp_path / "sets")]
    figures = ["--figures", "1,3,4", "--kinds", "rcv1-4", "--alphas", "1e-4"]
    results = mcid.main([*small, *figures, "--out", str(tmp_path / "out")])
    assert _read(tmp_path / "out" / "results.json") == json.loads(json.dumps(results))
    first = results["1"]
    assert first["sizes"] == [2048, 4096, 6000]
    for found in first["algorithms"].values():
        assert list(found["accuracy"]) == [8192, 16384]
        # more rows are better, after as many iterations
        assert found["accuracy"][16384][-1] > found["accuracy"][16384][0] > 60
        assert found["gain stops at n"][16384] in first["sizes"]
    assert [row["algorithm"] for row in results["3"]] == ["LR", "K-binaryLR", "SVM", "K-Pegasos"]
    assert {row["solver"] for row in results["4"]} == {"distls", "LIBLINEAR"}
    for row in results["4"]:
        assert row["seconds"] > 0
        assert row["accuracy"] > (60 if row["kind"] == "rcv1-4" else 15)
    drawn = (tmp_path / "out" / "figure1.png").exists()
    assert drawn == (importlib.util.find_spec("matplotlib") is not None)
    assert ("no plots" in capsys.readouterr().out) != drawn


# ---------------------------------------------------------------- SGD-QN


@pytest.mark.slow
def test_sgd_qn_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sgd_qn, "PASSES", (1, 5))
    monkeypatch.setattr(sgd_qn, "LANES", (1, 8))
    monkeypatch.setattr(sgd_qn, "IN_LANES", sgd_qn.IN_LANES[2:])
    monkeypatch.setattr(sgd_qn, "SHAPES", {"rcv1": 1e-3, "axis": 1e-4})
    monkeypatch.setattr(sgd_qn, "TIMED", ("rcv1", "axis"))
    monkeypatch.setattr(sgd_qn, "NAIVE_ROWS", 100)
    monkeypatch.setattr(sgd_qn, "OLBFGS_ROWS", 0)
    # each diagonal is two more kernels to compile
    monkeypatch.setattr(sgd_qn, "DIAGONALS", sgd_qn.DIAGONALS[:1])
    monkeypatch.setattr(sgd_qn, "SGD_QN", sgd_qn.SGD_QN[:1])
    small = ["--rows", "2000", "--seeds", "1", "--repeats", "1", "--directory", str(tmp_path / "sets")]
    results = sgd_qn.main([*small, "--out", str(tmp_path / "out")])
    assert _read(tmp_path / "out" / "results.json") == json.loads(json.dumps(results))
    timed = results["passes"]["rows"]
    assert [(row["set"], row["rows timed"]) for row in timed if row["name"] == "naive SGD"] == [
        ("rcv1", 100), ("axis", 2000)
    ]  # fmt: skip
    assert [row["set"] for row in timed if row["name"] == "oLBFGS"] == ["axis"]
    assert all(row["seconds"] > 0 for row in timed)
    curves = [row for row in results["curves"]["rows"] if "points" in row]
    # as many methods and rivals, in one lane and eight; oLBFGS on dense rows, in one
    assert (
        [row["set"] for row in curves].count("rcv1") == [row["set"] for row in curves].count("axis") - 1 == 10
    )
    for row in curves:
        first, last = (point["excess"] for point in row["points"])
        assert min(first, last) > -1e-5
        if row["name"] in ("SGD-QN gauss-newton", "sgd adaptive", "LIBLINEAR dual"):
            assert last < first
    lanes = results["lanes"]["rows"]
    assert [row["lanes"] for row in lanes] == 3 * [1, 8]
    rounds = results["rounds"]["rows"]
    assert [row["averagings"] for row in rounds] == 2 * [1, 2, 2, 4, 4, 8, 8]
    assert all(row["points"][0]["rounds"] <= row["points"][-1]["rounds"] for row in rounds)
    assert all(point["error"] < 60 for row in lanes for point in row["points"])
    out = capsys.readouterr().out
    assert out.count("PASS: ") + out.count("FAIL: ") == len(results["passes"]["claims"]) + 7


def test_sgd_qn_paper_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sgd_qn.main(["--part", "passes,figures"])
    assert "--part figures: there are passes, curves, lanes, rounds" in capsys.readouterr().err


# ---------------------------------------------------------------- least squares revisited


@pytest.mark.slow
def test_least_squares_paper_without_data_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--directory", str(tmp_path / "sets"), "--out", str(tmp_path / "out.json")]
    results = least_squares.main(
        [*options, "--also", "conditioning,path", "--share", "0.02", "--workers", "1"]
    )
    assert _read(tmp_path / "out.json") == results
    for row, condition in zip(results["also conditioning"], (1.0, 1e2, 1e8), strict=True):
        assert row["condition"] == condition
        # the paper's claim, step by step
        assert row["steps"] == len(row["gls"]) == 100
        assert row["difference"] < 1e-6
        assert min(row["L-BFGS"], row["SAGA"]) >= 0
        assert np.all(np.diff(row["gls"]) < 0)
    assert all(row["wall one"] > 0 and row["wall path"] > 0 for row in results["also path"])
    assert capsys.readouterr().out.count("\n") == 5 + len(results["also path"])


def test_least_squares_paper_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISTLS_DATA", raising=False)
    with pytest.raises(SystemExit, match="set DISTLS_DATA to the folder of the data sets"):
        least_squares.main(["--table", "1"])
    for arguments, message in (
        (["--table", "3"], "unknown: --table 3"),
        ([], "nothing asked for: --table 1"),
    ):
        with pytest.raises(SystemExit):
            least_squares.main(arguments)
        assert message in capsys.readouterr().err


def _write_digits(folder: Path, name: str, rows: int, seed: int) -> None:
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


def _write_pictures(folder: Path) -> None:
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
def small_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins for MNIST, 20 Newsgroups and CIFAR-10, in their files' formats."""
    place = tmp_path_factory.mktemp("sets")
    _write_digits(place / "mnist", "train", 1000, 1)
    _write_digits(place / "mnist", "t10k", 100, 2)
    _write_documents(place / "20news" / "20news-counts.train.svm.gz", 600, 0)
    _write_documents(place / "20news" / "20news-counts.test.svm.gz", 90, 1)
    _write_documents(place / "lshtc1-small" / "task2-rdf.train.svm.gz", 200, 2)
    _write_documents(place / "lshtc1-small" / "task2-rdf.val.svm.gz", 50, 3)
    if importlib.util.find_spec("PIL") is not None:
        _write_pictures(place / "cifar10-jpeg")
    return place


@pytest.mark.slow
def test_many_classes(small_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "WIDTHS", (16,))
    options = ["--data", str(small_sets), "--directory", str(tmp_path / "made"), "--rows", "9000"]
    results = classes.main(["--part", "small,blocks", *options, "--out", str(tmp_path / "out.json")])
    assert _read(tmp_path / "out.json").keys() == results.keys() == {"small", "blocks"}
    assert all(row["error"] < 95 and row["weights"] > 0 for row in results["small"])
    assert results["small"][-1]["weights"] > results["small"][1]["weights"], (
        "an intercept makes weights sparse"
    )
    assert results["blocks"][16] > 0


def _paper(small_sets: Path, tmp_path: Path, *asked: str, share: str = "0.005") -> Any:
    options = ["--data", str(small_sets), "--directory", str(small_sets / "made"), "--share", share]
    out = ["--out", str(tmp_path / "out.json"), "--workers", "1"]
    results = least_squares.main([*asked, *options, *out])
    assert _read(tmp_path / "out.json") == json.loads(json.dumps(results))
    return results


@pytest.mark.slow
def test_least_squares_paper_tables(small_sets: Path, tmp_path: Path) -> None:
    results = _paper(small_sets, tmp_path, "--table", "1,2", "--seeds", "2", "--also", "logits")
    rows = results["table 1"]
    assert [(row["features"], row["variant"]) for row in rows] == [
        (features, variant) for features, variants in least_squares.TABLE_1.items() for variant in variants
    ]
    for row in rows:
        assert row["seconds"] > 0
        assert row["error"] < (20 if row["features"] == "pixels" else 60)
        assert ("tuned" in row) == ("bandwidth" in row) == (row["features"] != "pixels")
    # chosen once
    assert len({row["bandwidth"] for row in rows if row["variant"] == "linear" and "tuned" in row}) == 1
    for row in results["table 2"]:
        assert 0 <= row["error"] < (10 if row["set"].startswith("20news") else 76)
    assert {row["system"] for row in results["table 2"]} >= {"distls stagewise", "LIBLINEAR"}
    assert [row["size"] for row in results["also logits"]] == [1000, 2000, 4000]


@pytest.mark.slow
def test_least_squares_paper_figures(small_sets: Path, tmp_path: Path) -> None:
    results = _paper(small_sets, tmp_path, "--figure", "1,2", "--also", "stages,spectrum")
    curves = results["figure 1"]
    assert [(curve["block"], curve["inner"]) for curve in curves] == [
        (block, inner) for block in (300, 512, 1024) for inner in ("linear", "calibrated", "logistic")
    ]
    for curve in curves:
        assert all(seconds > 0 and 0 <= error <= 100 for seconds, error in curve["points"])
        assert curve["points"]
    rivals = {row["system"]: row for row in results["figure 2"]["rivals"]}
    assert len(rivals) == 8
    for row in rivals.values():
        assert ("failed" in row) or 0 <= row["error"] < 95
        assert set(row["times faster"]) == {"linear", "calibrated"}
    assert results["also stages"]["ratio"] > 0
    for row in results["also spectrum"]:
        assert row["ratio"] >= 1
        assert row["share"][-1] == pytest.approx(1.0)


@pytest.mark.slow
def test_least_squares_paper_on_pictures(small_sets: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="pictures are decoded with Pillow: pip install '.[bench]'")
    results = _paper(small_sets, tmp_path, "--figure", "3", "--also", "masks")
    rows = results["figure 3"]
    assert results["also masks"]["block_size"] % 8 == 0
    assert 0 <= results["also masks"]["accuracy"] <= 100
    assert len(rows) == 2 * len(least_squares.CIFAR)
    assert all(0 <= row["accuracy"] <= 100 and row["seconds"] > 0 for row in rows)
    assert max(row["accuracy"] for row in rows) > 70


# ---------------------------------------------------------------- constrained SGD


@pytest.mark.slow
def test_constrained_sgd_paper(small_sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(small_sets), "--directory", str(small_sets / "made"), "--seeds", "2"]
    small = ["--sets", "csgd", "--rows", "1000", "--last", "12"]
    results = constrained_sgd.main([*options, *small, "--out", str(tmp_path / "out")])
    assert _read(tmp_path / "out" / "results.json") == json.loads(json.dumps(results))
    (found,) = results["simulations"]
    assert found["shown"] == [100, 500, 1000, 2000]
    assert list(found["methods"]) == [contender.name for contender in constrained_sgd.CONTENDERS]
    for name, row in found["methods"].items():
        assert row["excess"][-1] < row["excess"][0]
        assert np.all(np.diff(row["seconds"]) > 0)
        if name != "2SGD":
            # what distls chooses is of the grid, and no better than the best of it
            at_n = row["at n by power"]
            assert at_n[str(row["power"])] == min(value for value in at_n.values() if value is not None)
            assert set(map(str, row["chosen powers"])) <= set(at_n)
    ratios = {check["what"]: check["value"] for check in found["checks"]}
    assert ratios["CSGD's excess over SGD's"] < 0.5
    figure = results["adaline"]
    assert figure["stops"] == [1024, 2048, 4096]
    for name, row in figure["methods"].items():
        assert row["error"][-1] < (0.95 if name == "Adaline, 2^-17" else 0.2)
        assert all(value is None or value[0] in figure["stops"] for value in row["reached"].values())
    drawn = {path.name for path in (tmp_path / "out").glob("*.png")}
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    assert drawn == ({"csgd.png", "adaline.png"} if has_matplotlib else set())
    printed = capsys.readouterr().out
    assert ("no plots" in printed) != has_matplotlib
    assert printed.count("PASS") + printed.count("FAIL") == len(ratios)


@pytest.mark.slow
def test_digit_picture_counts(small_sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(small_sets), "--directory", str(small_sets / "made"), "--seeds", "1"]
    found = digit_picture.main([*options, "--ended", "20000"])
    for name in digit_picture.UPDATES:
        # what is left out is wrong at the end, not before
        assert found["counts"][name] == [int((found["wrong"][name] & found["kept"]).sum())]
    assert capsys.readouterr().out.count("wrong after 16384 rows") == len(digit_picture.UPDATES)


@pytest.mark.slow
def test_constrained_sgd_paper_leaves_out_what_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constrained_sgd, "LONGEST", 0.0)
    options = ["--part", "simulations", "--sets", "csgd", "--rows", "200", "--seeds", "1"]
    (found,) = constrained_sgd.main([*options, "--directory", str(tmp_path)])["simulations"]
    assert "2SGD" not in found["methods"]
    assert "left out: 2SGD" in capsys.readouterr().out


@pytest.mark.slow
def test_constrained_sgd_paper_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISTLS_DATA", raising=False)
    with pytest.raises(SystemExit, match="set DISTLS_DATA to the folder of the data sets"):
        constrained_sgd.main(["--part", "adaline", "--directory", str(tmp_path)])
    with pytest.raises(SystemExit):
        constrained_sgd.main(["--part", "figures"])
    assert "there are simulations and adaline" in capsys.readouterr().err


# ---------------------------------------------------------------- block coordinate descent


def _bcd(small_sets: Path, tmp_path: Path, *asked: str) -> Any:
    options = ["--data", str(small_sets), "--directory", str(small_sets / "made-bcd"), "--seeds", "2"]
    results = bcd.main([*options, *asked, "--out", str(tmp_path / "out")])
    assert _read(tmp_path / "out" / "results.json") == json.loads(json.dumps(results))
    return results


@pytest.mark.slow
def test_bcd_paper_figures_and_lanes(small_sets: Path, tmp_path: Path) -> None:
    results = _bcd(
        small_sets, tmp_path, "--part", "figures,lanes", "--sets", "20news-hashed", "--alphas", "1e-2",
        "--rounds", "40",
    )  # fmt: skip
    curves = {curve["solver"]: curve for curve in results["figures"]["curves"]}
    assert list(curves) == list(bcd.SOLVERS)
    for curve in curves.values():
        first, last = curve["points"][0], curve["points"][-1]
        assert curve["least"] <= last["objective"] <= first["objective"]
        assert 0 <= last["error"] <= 100
        assert 0 < last["rows"] <= 100
    # all have the same objective
    for solver in ("bcd, line search", "bcd, line search, as published", "fista, constant", "sparsa"):
        assert curves[solver]["reached"]["0.001"] is not None
    assert curves["bcd, line search"]["points"][-1]["error"] < 10
    rows = results["lanes"]["rows"]
    assert [(row["active sweeps"], row["lanes"]) for row in rows] == [
        (sweeps, lanes) for sweeps in (5, 0) for lanes in bcd.LANES
    ]
    for row in rows:
        assert np.all(np.diff(row["objectives"]) <= 1e-9)
        assert row["reached"]["0.1"][0] >= 1
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "out" / "20news-hashed-0.01.png").exists() == has_matplotlib


@pytest.mark.slow
def test_bcd_paper_many_classes(small_sets: Path, tmp_path: Path) -> None:
    found = _bcd(small_sets, tmp_path, "--part", "many")["many"]
    assert [row["alpha"] for row in found["rows"]] == list(bcd.MANY_ALPHAS)
    assert found["rows"][0]["rows"] <= found["rows"][-1]["rows"]
    assert min(row["error"] for row in found["rows"]) < 50
    assert len(found["peaks"]) >= 2
    assert [rival["penalty"] for rival in found["rivals"]] == ["l2", "l1"]


@pytest.mark.slow
def test_bcd_paper_losses(small_sets: Path, tmp_path: Path) -> None:
    asked = ["--part", "losses", "--sets", "mnist", "--alphas", "1e-2,1e-3", "--rounds", "20"]
    results = _bcd(small_sets, tmp_path, *asked)
    rows = results["losses"]["rows"]
    assert [(row["loss"], row["alpha"]) for row in rows] == [
        (loss, alpha) for loss in bcd.LOSSES for alpha in (1e-2, 1e-3)
    ]
    for row in rows:
        assert row["seconds"] > 0
        assert row["accuracy"] > 80
        assert row["converged"] == 1 or row["rounds"] <= 20
    for stronger, weaker in zip(rows[::2], rows[1::2], strict=True):
        assert stronger["rows used"] <= weaker["rows used"]


def test_bcd_paper_beside_the_author_s_program(
    small_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def zeros(x: Any, y: Any, alpha: float, **options: Any) -> Any:
        return np.zeros((x.shape[1], int(y.max()) + 1)), 1e3, 1e3

    asked = ["--part", "author", "--sets", "20news", "--alphas", "1e-4"]
    monkeypatch.setattr(peers, "has_author_of_bcd", lambda: False)
    assert _bcd(small_sets, tmp_path, *asked)["author"] == {"rows": [], "claims": []}
    assert "sklearn-contrib-lightning is not installed" in capsys.readouterr().out
    monkeypatch.setattr(peers, "has_author_of_bcd", lambda: True)
    monkeypatch.setattr(peers, "author_of_bcd", zeros)
    found = _bcd(small_sets, tmp_path, *asked)["author"]
    # no weights: a loss of 1 for each of the other classes
    assert found["rows"][0]["first"]["goal"] == pytest.approx(2.0)
    assert found["rows"][0]["rounds"] == 1
    assert [claim["bar"] for claim in found["claims"]] == [2.0]
    assert capsys.readouterr().out.count("PASS: 20news") == 1


def test_bcd_paper_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISTLS_DATA", raising=False)
    with pytest.raises(SystemExit, match="set DISTLS_DATA to the folder of the data sets"):
        bcd.main(["--part", "losses", "--directory", str(tmp_path)])
    with pytest.raises(SystemExit):
        bcd.main(["--part", "tables"])
    assert "there are author, figures, losses, lanes" in capsys.readouterr().err
