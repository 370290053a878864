"""The report of a run: its JSON values, its page, and that nothing from a file is more than text in it."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
from helpers import labelled_rows, printed, refuses, write_dataset

from distls import evaluate, fit, ingest
from distls.reporting.progress_plots import progress_plots
from distls.reporting.run_report import fit_command, read_run
from distls.reporting.run_report import report as report_of
from distls.storage.errors import BadInputError, FormatError, MismatchError, StorageError
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run

EVIL, EVIL_COLUMN = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("reports")
    write_dataset(root / "train", *labelled_rows(600, 40, 4))
    write_dataset(root / "test", *labelled_rows(200, 40, 4, seed=1))
    params = {"loss": "log", "lanes": 2}
    fit("sgd", root / "train", root / "run", params=params, passes=3, eval_data=root / "test", eval_every=1)
    return root


def _page(run, **options):
    out = run.with_name(f"{run.name}.html")
    report_of(run, html=out, **options)
    return out.read_text(encoding="utf-8")


def test_json_has_what_the_run_and_its_model_say(place):
    made = report_of(place / "run", own_data=True).to_json()
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert (made["kind"], made["method"], made["status"]) == ("report", "sgd", "MAX_PASSES")
    assert [event["round"] for event in made["events"]] == [1, 2, 3]
    assert made["versions"].keys() == {"distls", "python", "numpy", "numba"}
    plan = made["costs"]["plan"]
    assert plan["worker_bytes"] == sum(plan["worker_parts"].values())
    found = evaluate(place / "run", place / "test").to_json()
    assert {name: made["evaluation"][name] for name in found} == found
    judged = report_of(place / "run", own_data=True).judged
    assert sum(line["n_rows"] for line in judged.reliability) == 200


def test_seconds_are_those_of_the_rounds(place):
    made = report_of(place / "run").to_json()
    spent, events = made["costs"]["process_seconds"], made["events"]
    assert spent["kernels"] == pytest.approx(sum(event["kernel_seconds"] for event in events))
    assert sum(spent.values()) == pytest.approx(events[-1]["read_seconds"] + events[-1]["train_seconds"])
    costs = made["costs"]
    assert sum(costs["parts"].values()) == pytest.approx(costs["seconds"])
    assert costs["seconds"] >= events[-1]["seconds"]
    assert made["costs"]["worker_peaks"] == events[-1]["worker_peaks"]


def test_the_page_is_whole_and_loads_nothing(place):
    page = _page(place / "run", own_data=True)
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert "default-src 'none'" in page
    for loaded in (r"<(?:script|img|iframe)[^>]*\ssrc=", r"<link\b", r"@import", r"url\("):
        assert re.search(loaded, re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)) is None
    for title in ("Summary", "Progress", "On test", "Strongest features", "Costs", "Provenance"):
        assert f"<h2>{title}</h2>" in page
    error = 100 * evaluate(place / "run", place / "test").error
    assert f"<b>{error:.2f} %</b>" in page
    assert "ROC curve" not in page  # of four classes


def test_names_from_files_are_text(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{'a' if x > 0 else EVIL_COLUMN},{EVIL if x > 0 else 'b'}" for x in rng.normal(size=60)]
    (tmp_path / "t.csv").write_text("\n".join([f"x,{EVIL_COLUMN},y", *rows]))
    folder = tmp_path / "<b>bold<b>"
    folder.mkdir()
    ingest(tmp_path / "t.csv", folder / "train", label_column="y")
    fit("sgd", folder / "train", folder / "run", params={"loss": "log"}, passes=2, eval_data=folder / "train")
    page = _page(folder / "run", own_data=True)
    assert all(title in page for title in ("ROC curve", "Precision and recall"))
    assert "alert(1)&lt;/script&gt;" in page
    assert "&lt;img src=x onerror=alert(2)&gt;" in page
    for raw in ("<script>alert", "<img", "<b>bold"):
        assert raw not in page
    assert page.count("<script") == page.count("</script>") == 3


@pytest.mark.slow
def test_many_classes_are_cut_with_a_word(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(3000, dtype=np.int32) % 1000
    x = rng.normal(size=(3000, 8)).astype(np.float32)
    names = [f"class {i:04d}" for i in range(1000)]
    write_dataset(tmp_path / "train", x, y, classes=names)
    fit(
        "sgd", tmp_path / "train", tmp_path / "run", params={"loss": "log"}, passes=1, eval_data=tmp_path / "train",
    )  # fmt: skip
    page = _page(tmp_path / "run", own_data=True)
    assert "The 100 classes with the most errors of 1,000" in page
    assert "The 26 classes with the most errors, of 1,000" in page
    assert "Of 1,000 classes, 20 with the most errors." in page
    scripts = sum(map(len, re.findall(r"<script>.*?</script>", page, flags=re.DOTALL)))
    assert len(page) - scripts < 200_000


def test_several_settings_and_the_chosen_one(place):
    params = {"loss": "log", "alpha": [1e-4, 1e-2]}
    run = place / "select"
    result = fit("sgd", place / "train", run, params=params, passes=2, select=place / "test")
    made = report_of(run, own_data=True)
    assert [line["params"]["alpha"] for line in made.to_json()["settings"]] == [1e-4, 1e-2]
    assert made.record.events
    assert made.to_json()["versions"]
    assert made.judged.evaluation.criterion == result.record["select_error"]
    page = _page(run)
    assert page.count('class="chosen"') == 1
    assert "Error by strength" in page
    assert f"chosen: {result.selected['alpha']:.6g}" in page


@pytest.mark.slow
def test_paths_of_several_losses(tmp_path):
    data = write_dataset(tmp_path / "train", *labelled_rows(300, 30, 3))
    params = {"loss": ["softmax", "ovr_squared_hinge"], "alpha": "path", "alphas": "1e-2:1e-3", "folds": 2}
    result = fit("sdca", data, tmp_path / "run", params=params, passes=3)
    made = report_of(tmp_path / "run", own_data=True)
    assert [line["params"] for line in made.record.settings] == [
        {"loss": loss, "alpha": alpha} for loss in params["loss"] for alpha in (1e-2, 1e-3)
    ]
    page = _page(tmp_path / "run")
    (chosen,) = re.findall(r'<tr class="chosen">(.*?)</tr>', page)
    assert f">{result.selected['loss']}</td>" in chosen
    assert f">{result.selected['alpha']:.6g}</td>" in chosen
    for loss in params["loss"]:
        assert f"</span>loss={loss}</li>" in page


def test_a_fit_of_numbers(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    np.savez(tmp_path / "t.npz", X=x, y=x @ np.arange(5.0) + 0.1 * rng.normal(size=300))
    ingest(tmp_path / "t.npz", tmp_path / "train", target="continuous")
    fit(
        "gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"}, passes=4,
        eval_data=tmp_path / "train", eval_every=1,
    )  # fmt: skip
    page = _page(tmp_path / "run")
    assert "mean squared error" in page
    assert "the number" in page


@pytest.mark.fast_cases("numbers0")
@pytest.mark.parametrize(("numbers", "drawn"), [((9, 40, 12), True), ((None, None, None), False), ((7,), False)])
def test_features_used_are_drawn_where_rounds_tell_them(numbers, drawn):
    events = [
        {"passes": float(at), "details": number and {"non_zero_rows": number}} for at, number in enumerate(numbers)
    ]
    assert any(plot is not None and plot.title == "Features used" for plot in progress_plots(events)) is drawn


def test_a_run_without_a_model(place):
    config = RunConfig(method="sgd", dataset="gone", dataset_fingerprint="0", seed=0, grid=[{"alpha": 0.1}])
    run = Run.create(place / "begun", config).path
    made = report_of(run, own_data=True)
    assert (made.judged, made.training) == (None, None)
    assert made.remarks == ["the training data gone are no longer there"]
    assert "the training data gone are no longer there" in _page(run, own_data=True)
    refuses(MismatchError, "no model yet; `distls resume", report_of, run, place / "test")


def test_data_that_have_gone_are_named(place, tmp_path):
    write_dataset(tmp_path / "test", *labelled_rows(50, 40, 4, seed=1))
    fit("sgd", place / "train", tmp_path / "run", passes=1, eval_data=tmp_path / "test")
    (tmp_path / "test").rename(tmp_path / "moved")
    made = report_of(tmp_path / "run", own_data=True)
    assert made.judged is None
    (remark,) = made.remarks
    assert remark.startswith(f"the model was not evaluated: {tmp_path}/test: no such file or data set; --data")
    assert report_of(tmp_path / "run", tmp_path / "moved").judged is not None


def test_nothing_that_a_run_names_is_opened_unless_asked(place, tmp_path):
    """Fault: A run whose files name URLs | its data sets, in a report | they are not opened; a note says so"""
    shutil.copytree(place / "run", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    # nobody listens on that port
    url = "http://127.0.0.1:1/"
    config |= {"dataset": f"{url}d", "eval": f"{url}e"}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    opened = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distls.reporting.run_report.open_dataset", opened.append)
        patch.setattr("distls.storage.filesystem.paths.StorePath.read_whole", opened.append)
        made = report_of(tmp_path / "run")
        page = _page(tmp_path / "run")
    assert (opened, made.judged, made.training) == ([], None, None)
    assert f"the run names {url}e, which --own-data would read" in page
    assert report_of(tmp_path / "run", place / "test").judged is not None


def test_only_an_older_report_is_replaced(place, tmp_path):
    out = tmp_path / "report.html"
    report_of(place / "run", html=out)
    report_of(place / "run", html=out)
    (tmp_path / "mine.html").write_text("<!DOCTYPE html> mine")
    with pytest.raises(MismatchError, match=r"mine\.html exists and is no report of distls; choose another name"):
        report_of(place / "run", html=tmp_path / "mine.html")
    with pytest.raises(StorageError, match=r"there is no folder .*; make it first"):
        report_of(place / "run", html=tmp_path / "none" / "report.html")
    refuses(FormatError, "no such run", report_of, place / "none", html=tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_bokeh_is_optional(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    refuses(BadInputError, r"pip install 'distls\[report\]'", report_of, place / "run", html=place / "no.html")
    assert report_of(place / "run").to_json()["events"]


def test_the_command_repeats_the_run(place, tmp_path):
    import shlex

    words = shlex.split(fit_command(read_run(place / "run").config, str(tmp_path / "again")))
    printed(*words[1:], "--executor", "serial", "--quiet")
    digests = [read_run(path).status["weights_sha256"] for path in (place / "run", tmp_path / "again")]
    assert digests[0] == digests[1]


@pytest.mark.fast_cases("objective")
@pytest.mark.parametrize(
    "change",
    [{"objective": "x"}, {"plan": {"worker_bytes": []}}, {"children": 3}, {"details": {"path": [1, 2]}}],
    ids=["objective", "plan", "children", "path"],
)
def test_a_forged_run_is_refused_in_one_line(place, tmp_path, change):
    shutil.copytree(place / "run", tmp_path / "run")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    del status["crc32c"]
    (tmp_path / "run" / "status.json").write_text(json.dumps({**status, **change}))
    refuses(FormatError, "not written by distls", report_of, tmp_path / "run", html=tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_child_run_elsewhere_is_not_read(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run")
    (tmp_path / "run" / "children").mkdir()
    (tmp_path / "run" / "children" / "000").symlink_to(place / "run")
    refuses(FormatError, "children/000", report_of, tmp_path / "run")
