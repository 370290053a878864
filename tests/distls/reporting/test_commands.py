"""`distls report` and `distls fit --report` on the command line."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest
from helpers import SECONDS, distls, labelled_rows, write_dataset

from distls.reporting.run_report import report as report_of
from distls.training.fitting import fit


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("commands")
    write_dataset(root / "train", *labelled_rows(400, 40, 4))
    write_dataset(root / "test", *labelled_rows(200, 40, 4, seed=1))
    fit("sgd", root / "train", root / "run", params={"loss": "log"}, passes=2, eval_data=root / "test")
    return root


def test_json_and_page(place, tmp_path):
    code, out, _ = distls("report", place / "run", "--json", "--own-data")
    assert (code, json.loads(out)) == (0, report_of(place / "run", own_data=True).to_json())
    code, out, _ = distls("report", place / "run", "--json", "--data", place / "train")
    assert json.loads(out)["evaluation"]["dataset"] == str(place / "train")
    plain = distls("report", place / "run", "--json")
    assert json.loads(plain.out)["evaluation"] is None
    asked = f"the model was not evaluated: the run names {place}/test, which --own-data would read"
    assert plain.err == f"note: {asked}\n"
    page = tmp_path / "report.html"
    assert distls("report", place / "run", "--html", page, "--own-data") == (0, f"report in {page}\n", "")
    assert "<h2>On test</h2>" in page.read_text(encoding="utf-8")
    assert distls("report", place / "run").out.startswith("sgd on ")


@pytest.mark.slow
def test_a_fit_writes_its_report(place, tmp_path):
    page = tmp_path / "report.html"
    options = ("-p", "loss=log", "--passes", 1, "--executor", "serial", "--quiet", "--report", page)
    code, out, err = distls("fit", "sgd", place / "train", tmp_path / "run", *options)
    assert (code, err) == (0, f"note: report in {page}\n")
    assert out.endswith(f"model in {tmp_path}/run\n")
    assert "<h2>Provenance</h2>" in page.read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_is_refused_before_the_fit(place, tmp_path):
    (tmp_path / "mine.html").write_text("mine")
    fit_it = ("fit", "sgd", place / "train", tmp_path / "run", "--executor", "serial", "--report")
    said = f"distls: {tmp_path}/mine.html exists and is no report of distls; choose another name\n"
    assert distls(*fit_it, tmp_path / "mine.html") == (1, "", said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--json", "--live"), "--html, --json and --live: one of them"),
        (("--json", "--data", "x", "--no-data"), "--data and --no-data: one of them"),
        (("--live", "--data", "x"), "--data and --live: one of them"),
        (("--data", "x"), "--data is for --html and --json; `distls evaluate` scores a model in text"),
    ],
)
def test_options_that_contradict_each_other(place, options, said):
    assert distls("report", place / "run", *options) == (2, "", f"distls: {said}\n")


@pytest.mark.slow
def test_a_live_report_ends_with_code_0(place):
    command = [sys.executable, "-m", "distls", "report", str(place / "run"), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            assert b"<h2>Strongest features</h2>" in answer.read()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, f"{address} ends\n")
