"""The command line: exit codes, exact one-line messages, JSON fields, what goes to which stream."""

import csv
import json
import shutil
import subprocess
import sys

import pytest
from helpers import distls, labelled_rows, write_dataset

from distls import fit, open_dataset
from distls.cli import cli

SERIAL = ("--executor", "serial")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data sets of one kind and of others, and a run."""
    root = tmp_path_factory.mktemp("place")
    x, y = labelled_rows(600, 40, 4)
    write_dataset(root / "train", x, y)
    write_dataset(root / "test", *labelled_rows(200, 40, 4, seed=1))
    write_dataset(root / "other", *labelled_rows(200, 40, 4, seed=1), classes=[0, 1, 2, "new"])
    write_dataset(root / "wide", *labelled_rows(200, 60, 4))
    write_dataset(root / "bare", x, None)
    (root / "file").write_text("1 1:1\n")
    (root / "full").mkdir()
    (root / "full" / "thesis.tex").write_text("mine")
    fit("mcid", root / "train", root / "run", params={"alpha": 1e-3}, passes=2, eval_data=root / "test")
    (root / "scaled.svm").write_text("0 1:1\n1 2:1\n" * 5)
    assert distls("ingest", root / "scaled.svm", root / "scaled", "--n-features", 40, "--transform", "l2norm",
                  "--quiet", *SERIAL) == (0, _described(root / "scaled"), "")  # fmt: skip
    return root


def _described(path):
    return f"{path}: 10 rows x 40 features, 1.0 non-zeros a row, 2 classes, 1 partition, " + (
        f"{open_dataset(path).stored_bytes.sum()} B stored\n"
    )


FIT = ("fit", "mcid", "{0}/train", "{0}/new", *SERIAL)
REFUSED = [
    (1, ("fit", "mcid", "{0}/none", "{0}/new", *SERIAL), "{0}/none: no such data set"),
    (1, ("fit", "mcid", "{0}/file", "{0}/new", *SERIAL), "{0}/file: a file, not a distls data set; "
     "ingest it first, or let `distls train` do both"),
    (1, ("fit", "mcid", "{0}/full", "{0}/new", *SERIAL), "{0}/full: not a distls data set (no zarr.json)"),
    (1, ("fit", "mcid", "{0}/bare", "{0}/new", *SERIAL), "{0}/bare has no labels; this method needs class targets"),
    (2, ("fit", "mcdi", "{0}/train", "{0}/new", *SERIAL), "no method 'mcdi'; did you mean 'mcid'?"),
    (2, ("fit", "SDG", "{0}/train", "{0}/new", *SERIAL), "no method 'SDG'; did you mean 'sgd'?"),
    (2, (*FIT, "-p", "max_iter=3"), "mcid has no parameter 'max_iter'; the number of passes is --passes N"),
    (2, (*FIT, "-p", "C=1"), "mcid has no parameter 'C'; C of n rows is alpha = 1/(C n)"),
    (2, (*FIT, "-p", "alhpa=1"), "mcid has no parameter 'alhpa'; did you mean 'alpha'?"),
    (2, (*FIT, "-p", "alpha"), "-p alpha: expected NAME=VALUE"),
    (2, (*FIT, "-p", "=1"), "-p =1: expected NAME=VALUE"),
    (2, (*FIT, "-p", "alpha=x"), "mcid: alpha=x: expected a number, or path"),
    (2, (*FIT, "-p", "alpha=0"), "mcid: alpha=0: must be greater than 0, or path"),
    (2, (*FIT, "-p", "alpha=-1"), "mcid: alpha=-1: must be greater than 0, or path"),
    (2, (*FIT, "-p", "lanes=2.5"), "mcid: lanes=2.5: expected a whole number"),
    (2, (*FIT, "-p", "lanes=7"), "lanes=7: the data set has only 6 partitions; ingest it with a smaller "
     "--partition-size"),
    (2, (*FIT, "-p", "loss=x"), "mcid: loss=x: expected one of softmax, crammer_singer, perceptron, log, hinge"),
    (2, (*FIT, "-p", 'class_weight={{"9": 2}}'), "class_weight: '9' is not a class of {0}/train"),
    (2, (*FIT, "-p", "loss=log", "-p", "loss=hinge"), "-p loss is given twice; list several values as loss=A,B"),
    (2, (*FIT, "-p", "alpha=1e-3,1e-4"), "2 settings are given; fit --select DATASET chooses among them"),
    (1, (*FIT, "-p", "init={0}/none"), "{0}/none: no such run or model"),
    (2, (*FIT, "--passes", "nan"), "passes=nan: must be greater than 0 and finite"),
    (2, (*FIT, "--eval-every", "inf"), "eval_every=inf: must be at least 0 and finite"),
    (2, (*FIT, "--tol", "1", "--eval-every", "0"), "eval_every=0 evaluates nothing, which tol, rtol and patience need; "
     "drop one of them"),
    (2, (*FIT, "--tol", "1", "-p", "loss=perceptron"), "tol: this loss has no certificate to compare it with; limit "
     "passes or seconds"),
    (2, (*FIT, "--patience", "1"), "patience needs held-out rows: give --eval DATASET"),
    (2, (*FIT, "--workers", "2"), "--executor serial has no workers; drop --workers and --threads-per-worker, or use "
     "--executor dask"),
    (2, ("fit", "mcid", "{0}/train", "{0}/new", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"),
     "--scheduler uses the cluster's own workers and limits; drop the other cluster options"),
    (1, (*FIT, "--eval", "{0}/wide"), "{0}/wide has 60 features, {0}/train 40; ingest it with --like the training "
     "data"),
    (1, (*FIT, "--select", "{0}/scaled"), "{0}/scaled has transforms l2norm, {0}/train none; ingest it with --like the "
     "training data"),
    (1, ("fit", "mcid", "{0}/train", "{0}/run", *SERIAL), "{0}/run is a run already; `distls resume {0}/run` continues "
     "it, or choose another name"),
    (1, ("fit", "mcid", "{0}/train", "{0}/full", *SERIAL), "{0}/full exists and is not empty; choose another name for "
     "the run"),
    (1, ("resume", "{0}/none", *SERIAL), "{0}/none: no such run"),
    (1, ("resume", "{0}/full", *SERIAL), "{0}/full: not a run (no config.json)"),
    (1, ("report", "{0}/none"), "{0}/none: no such run"),
    (1, ("evaluate", "{0}/none", "{0}/test"), "{0}/none: no such run or model"),
    (1, ("evaluate", "{0}/train", "{0}/test"), "{0}/train: a data set, not a model (no bundle.json)"),
    (1, ("evaluate", "{0}/run", "{0}/none"), "{0}/none: no such file or data set"),
    (1, ("evaluate", "{0}/run", "{0}/bare"), "{0}/bare has no labels, {0}/run predicts classes"),
    (1, ("evaluate", "{0}/run", "{0}/wide"), "{0}/wide has 60 features, {0}/run 40; ingest it with --like the training "
     "data"),
    (1, ("evaluate", "{0}/run", "{0}/scaled"), "{0}/scaled has transforms l2norm, {0}/run none; ingest it with --like "
     "the training data"),
    (1, ("evaluate", "{0}/run", "{0}/other"), "{0}/other has 1 class (new; 61 rows) that is not among the 4 of "
     "{0}/run; --unknown-labels count counts them as errors"),
    (2, ("predict", "{0}/run", "{0}/test", "{0}/p.txt"), "{0}/p.txt: predictions are written as .csv or .zarr; choose "
     "one of these endings"),
    (1, ("predict", "{0}/run", "{0}/test", "{0}/no/p.csv"), "{0}/no/p.csv: there is no folder {0}/no; make it first"),
    (2, ("predict", "{0}/run", "{0}/test", "{0}/p.csv", "--top", "9"), "--top 9: the model has 4 classes"),
    (1, ("info", "{0}/none"), "{0}/none: no such data set, run or model"),
    (1, ("info", "{0}/file"), "{0}/file: not a data set, run or model of distls"),
    (1, ("info", "{0}/full"), "{0}/full: not a data set, run or model of distls"),
    (2, ("methods", "mcdi"), "no method 'mcdi'; did you mean 'mcid'?"),
    (2, ("plan", "mcdi", "{0}/train"), "no method 'mcdi'; did you mean 'mcid'?"),
    (2, ("generate", "dens", "{0}/g"), "unknown kind 'dens': did you mean 'dense'? known kinds are rcv1-4, rcv1-53, "
     "dense, odp, csgd, csgd-wide, alpha, axis, delta, lshtc1"),
    (1, ("columns", "{0}/none", *SERIAL), "{0}/none: no such data set"),
    (1, ("columns", "{0}/full", *SERIAL), "{0}/full: not a distls data set (no zarr.json)"),
    (2, ("columns", "{0}/wide", *SERIAL, "--workers", "2"), "--executor serial has no workers; drop --workers and "
     "--threads-per-worker, or use --executor dask"),
    (1, ("columns", "{0}/wide", *SERIAL, "--memory-limit", "100MiB"), "{0}/wide: a worker needs 210 MiB for a "
     "partition of 9 KiB but may use 92.0 MiB of its 100 MiB; allow at least --memory-limit 229MiB"),
    (1, ("generate", "dense", "{0}/full", *SERIAL), "{0}/full exists already; choose another name"),
    (1, ("ingest", "{0}/none.svm", "{0}/new", *SERIAL), "{0}/none.svm: no such file"),
    (2, ("ingest", "{0}/file", "{0}/new", "--transform", "sqrt", *SERIAL), "unknown transform 'sqrt'; there are log1p, "
     "idf, l2norm, scale, standardize, auto, none"),
    (1, ("predict", "{0}/test", "{0}/run"), "{0}/run: a run, not a data set (no zarr.json)"),
]  # fmt: skip


@pytest.mark.fast_cases(
    "1-arguments0", "2-arguments5-no", "2-arguments10", "2-arguments16", "2-arguments21", "2-arguments26",
    "1-arguments31", "1-arguments36", "1-arguments41", "1-arguments47", "1-arguments52", "2-arguments57",
)  # fmt: skip
@pytest.mark.parametrize(("code", "arguments", "message"), REFUSED)
def test_refused_in_one_line_and_nothing_is_written(place, code, arguments, message):
    before = sorted(place.iterdir())
    ended = distls(*(str(argument).format(place) for argument in arguments))
    assert ended == (code, "", f"distls: {message.format(place)}\n")
    assert sorted(place.iterdir()) == before


@pytest.mark.fast_cases("arguments0", "arguments3", "arguments7", "arguments10")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nope",), "No such command 'nope'"),
        (("fit",), "Missing argument 'DATASET'"),
        (("fit", "mcid", "a", "b", "--nope"), "No such option '--nope'"),
        (("fit", "mcid", "a", "b", "--passes", "0"), "'--passes': 0.0 is not in the range x>0"),
        (("train", "a", "b", "--tol", "-1"), "'--tol': -1.0 is not in the range x>0"),
        (("fit", "mcid", "a", "b", "--memory-limit", "6XB"), "'6XB' is not a size; write it like 600MiB or 2GiB"),
        (("fit", "mcid", "a", "b", "--memory-limit", "-5"), "'-5': a size must be positive"),
        (("fit", "mcid", "a", "b", "--workers", "0"), "'--workers': 0 is not in the range x>=1"),
        (("ingest", "a", "b", "--format", "xls"), "'xls' is not one of"),
        (("generate", "dense", "b", "--rows", "0"), "'--rows': 0 is not in the range x>=1"),
        (("evaluate", "a", "b", "--unknown-labels", "x"), "'x' is not one of"),
    ],
)  # fmt: skip
def test_wrong_usage(arguments, text):
    code, out, err = distls(*arguments)
    assert (code, out) == (2, "")
    assert text in err
    assert "Try 'distls" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train t.csv", "Missing argument; there must be FILE... MODEL"),
        ("train t.csv m --label y", "No such option '--label'; it is --label-column"),
        (
            "train t.csv m --target y",
            "Invalid value for '--target': 'y' is not one of 'auto', 'class', 'continuous'. "
            "--label-column names the column of labels.",
        ),
        ("train t.csv --out m", "No such option '--out'; it is the last argument, MODEL"),
        ("train t.csv m --epochs 5", "No such option '--epochs'; it is --passes"),
        ("train t.csv m --lr 0.1", "No such option '--lr'; it is -p eta0=X, of methods with steps to choose"),
        ("train t.csv m --batch-size 8", "No such option '--batch-size'; it is -p batch_size=VALUE"),
        ("train t.csv m --max-iter 8", "No such option '--max-iter'; the number of passes is --passes N"),
        ("predict m t.csv --epochs 5", "No such option '--epochs'."),
        ("evaluate m --out t.csv", "No such option '--out'."),
        ("export m f", "Missing option '--to'. Choose from: onnx, sklearn, liblinear, vw, npz, csv, weights"),
        ("test m t.csv", "No such command 'test'; it is distls evaluate"),
        ("lr m t.csv", "No such command 'lr'."),
    ],
)
def test_wrong_usage_is_answered_with_what_is_meant(words, said):
    last = distls(*words.split()).err.splitlines()[-1]
    assert last.partition(" (Did you mean")[0] == f"Error: {said}"


def test_what_cannot_fit_is_refused_with_the_numbers(place):
    for command in (FIT, ("plan", "mcid", "{0}/train")):
        code, out, err = distls(*(part.format(place) for part in command), "--memory-limit", "100MiB")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"distls: {place}/train: a worker needs ")
        assert "but may use 92.0 MiB of its 100 MiB; allow at least --memory-limit " in err
    limit = err.split("--memory-limit ")[1].split(",")[0].strip()
    assert distls("plan", "mcid", place / "train", "--memory-limit", limit, "--no-probe").code == 0


def test_the_scheduler_of_the_environment_gives_way_to_options(place, tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "nonsense")
    fitting = ("fit", "mcid", place / "train", tmp_path / "run", "--passes", 1, "--quiet")
    message = "--scheduler {}: expected an address like tcp://host:8786"
    assert distls(*fitting) == (2, "", f"distls: {message.format('nonsense')}\n")
    assert distls(*fitting, "--scheduler", "other") == (2, "", f"distls: {message.format('other')}\n")
    assert distls(*fitting, *SERIAL).code == 0


@pytest.mark.slow_cases("dask")
@pytest.mark.parametrize("command", ["distls", "dask"])
def test_a_traceback_with_debug_and_only_then(place, command):
    start = [sys.executable, "-m", *(["distls"] if command == "distls" else ["dask", "distls"])]
    failing = [*start, "fit", "mcid", str(place / "none"), str(place / "new")]
    plain = subprocess.run(failing, capture_output=True, text=True)
    assert (plain.returncode, plain.stdout) == (1, "")
    assert plain.stderr == f"distls: {place}/none: no such data set\n"
    debug = subprocess.run([*failing, "--debug"], capture_output=True, text=True)
    assert (debug.returncode, debug.stdout) == (1, "")
    assert "Traceback (most recent call last)" in debug.stderr
    usage = subprocess.run([*start, "methods", "mcdi"], capture_output=True, text=True)
    assert (usage.returncode, usage.stdout) == (2, "")
    assert usage.stderr == "distls: no method 'mcdi'; did you mean 'mcid'?\n"


def test_version_and_help():
    assert distls("--version").out.startswith("distls, version ")
    for command in ("", *cli.commands):
        code, out, err = distls(*filter(None, [command]), "-h")
        assert (code, err) == (0, "")
        assert out.startswith("Usage: ")


def _fields(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_of_a_dataset(place):
    code, out, err = distls("info", place / "train", "--json")
    found = _fields(out)
    assert (code, err) == (0, "")
    assert (found["kind"], found["n_rows"], found["n_features"]) == ("dataset", 600, 40)
    assert (found["classes"], found["partitions"]) == ([0, 1, 2, 3], 6)
    data = open_dataset(place / "train")
    assert (found["nnz"], found["fingerprint"]) == (data.meta.nnz, data.fingerprint)
    assert found["stored_bytes"] == data.stored_bytes.sum()


def test_columns_are_added_once_and_described(place, tmp_path):
    path = shutil.copytree(place / "train", tmp_path / "d")
    assert "columns" not in _fields(distls("info", path, "--json").out)
    code, out, err = distls("columns", path, *SERIAL)
    shards = open_dataset(path).columns
    line = f"{path}: 8 column shards of at most {shards.decoded_bytes.max() / 1024:.0f} KiB, "
    line += f"{shards.stored_bytes.sum() / 1024:.0f} KiB stored"
    assert (code, out) == (0, line + "\n")
    assert err == ""
    assert distls("columns", path) == (0, line + ", there already\n", "")
    assert distls("columns", path, "--shard-size", "16MiB").out == line + ", there already\n"
    assert _fields(distls("info", path, "--json").out)["columns"] == {
        "shards": 8, "shard_size": 16 * 2**20, "stored_bytes": shards.stored_bytes.sum(),
        "decoded_bytes": shards.decoded_bytes.sum(), "codec": "none", "digest": shards.digest,
    }  # fmt: skip
    assert distls("columns", path, "--shard-size", "2KiB", "--quiet", *SERIAL).err == ""
    replaced = open_dataset(path).columns
    assert (replaced.shard_size, len(replaced) > 8) == (2048, True)


@pytest.mark.fast_cases("ingest")
@pytest.mark.parametrize("command", ["ingest", "generate"])
def test_columns_at_once(place, tmp_path, command):
    source = (place / "scaled.svm",) if command == "ingest" else ("axis",)
    rows = () if command == "ingest" else ("--rows", 50)
    code, _, err = distls(command, *source, tmp_path / "d", *rows, "--columns", "--quiet", *SERIAL)
    assert (code, err) == (0, "")
    assert open_dataset(tmp_path / "d").columns is not None


def test_json_of_a_run_and_its_model(place):
    run = _fields(distls("info", place / "run", "--json").out)
    assert (run["kind"], run["method"], run["status"], run["passes"]) == ("run", "mcid", "MAX_PASSES", 2.0)
    assert run["params"]["alpha"] == 1e-3
    assert run["seconds"] > 0
    assert run["objective"] > 0
    assert run["certificate"]["kind"] == "gradient_norm"
    assert run["certificate"]["value"] > 0
    assert run["dataset_fingerprint"] == open_dataset(place / "train").fingerprint
    assert 0 < run["eval_error"] < 1
    model = _fields(distls("info", place / "run" / "model", "--json").out)
    assert (model["kind"], model["loss"], model["n_features"], model["dtype"]) == (
        "model", "softmax", 40, "float32"
    )  # fmt: skip
    assert model["weights_sha256"] == run["weights_sha256"]
    assert len(run["weights_sha256"]) == 64


def test_json_of_a_plan(place):
    code, out, err = distls("plan", "mcid", place / "train", "--passes", "3", "--json", "--workers", "2")
    plan = _fields(out)
    assert (code, err) == (0, "")
    assert plan["worker_bytes"] == sum(plan["worker_parts"].values()) <= plan["worker_limit"]
    assert plan["driver_bytes"] > 0
    assert plan["bytes_per_pass"] == open_dataset(place / "train").stored_bytes.sum()
    assert (plan["passes"], plan["lanes"], plan["rounds_per_pass"]) == (3.0, 6, 1)
    assert plan["seconds_per_pass"] > 0
    bare = _fields(distls("plan", "mcid", place / "train", "--json", "--no-probe").out)
    assert bare["seconds_per_pass"] is None


def test_json_of_an_evaluation(place):
    code, out, err = distls("evaluate", place / "run", place / "test", "--json")
    found = _fields(out)
    assert (code, err) == (0, "")
    run = _fields(distls("info", place / "run", "--json").out)
    assert (found["n_rows"], found["error"], found["unknown_labels"]) == (200, run["eval_error"], 0)
    assert found["log_loss"] > 0
    assert [row["class"] for row in found["per_class"]] == [0, 1, 2, 3]
    assert sum(row["n_rows"] for row in found["per_class"]) == 200
    assert sum(cell["count"] for cell in found["confusion"]) == 200
    counted = distls("evaluate", place / "run", place / "other", "--json", "--unknown-labels", "count")
    assert (counted.code, _fields(counted.out)["unknown_labels"]) == (0, 61)


def test_lines_of_events(place):
    events = [_fields(line) for line in (place / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events] == [1, 2]
    for event in events:
        assert {"passes", "seconds", "running_loss", "running_error", "n_rows", "bytes_read"} <= set(event)
        assert {"cached_bytes", "kernel_seconds", "wait_seconds", "worker_peaks", "averaging"} <= set(event)
        assert set(event["averaging"]) == {"loss_before", "loss_after", "penalty", "spread"}
    assert {"objective", "certificate", "eval_bytes_read", "eval_error", "eval_log_loss"} <= set(events[1])
    assert "objective" not in events[0]


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("quiet", [False, True])
def test_results_on_stdout_and_progress_on_stderr(place, tmp_path, quiet):
    options = ("--quiet",) if quiet else ()
    code, out, err = distls("fit", "mcid", place / "train", tmp_path / "run", "--passes", 2, *SERIAL, *options)
    assert code == 0
    assert out.startswith("MAX_PASSES: 2 passes, ")
    assert out.endswith(f"model in {tmp_path}/run\n")
    lines = err.splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ([] if quiet else ["round 1", "round 2"])
    assert lines[:1] == (
        [] if quiet else ["mcid (softmax): 600 rows of train, lanes 6, worker threads 1, passes 2 at most"]
    )
    code, out, err = distls("predict", tmp_path / "run", place / "bare", tmp_path / "p.csv", *options)
    assert (code, out) == (0, "")
    assert ("600 rows predicted into " in err) != quiet
    assert (err == "") == quiet
    with (tmp_path / "p.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 601


@pytest.mark.fast_cases("evaluate")
@pytest.mark.parametrize("command", ["evaluate", "calibrate", "predict"])
def test_notes_on_rows_to_score_are_silenced(tmp_path, command):
    table, later = tmp_path / "t.csv", tmp_path / "later.csv"
    table.write_text("job,y\n" + "baker,1\nnurse,0\n" * 20)
    later.write_text("job,y\n" + "baker,1\nnurse,0\npilot,0\n" * 20)
    assert distls("ingest", table, tmp_path / "data", "--label-column", "y", "--quiet").code == 0
    fit("gls", tmp_path / "data", tmp_path / "run", passes=1)
    words = (command, tmp_path / "run", later, *(["--labelled"] if command == "predict" else []))
    assert "not seen in training" in distls(*words).err
    assert distls(*words, "--quiet")[::2] == (0, "")


@pytest.mark.slow
def test_select_publishes_the_best_child(place, tmp_path):
    run = tmp_path / "run"
    code, out, err = distls("fit", "mcid", place / "train", run, "-p", "alpha=1e-2,1e-5", "-p", "loss=log,hinge",
                            "--select", place / "test", "--passes", 1, "--quiet", *SERIAL)  # fmt: skip
    assert (code, err) == (0, "")
    assert "\nselected loss=" in out
    found = _fields(distls("info", run, "--json").out)
    errors = [child["error"] for child in found["children"]]
    best = errors.index(min(errors))
    assert [(c["params"]["alpha"], c["params"]["loss"]) for c in found["children"]] == [
        (1e-2, "softmax"), (1e-2, "crammer_singer"), (1e-5, "softmax"), (1e-5, "crammer_singer")
    ]  # fmt: skip
    assert found["params"] == found["children"][best]["params"]
    assert found["select_error"] == errors[best]
    assert _fields(distls("evaluate", run, place / "test", "--json").out)["error"] == errors[best]
    child = _fields(distls("info", run / "children" / f"{best:03d}", "--json").out)
    assert child["weights_sha256"] == found["weights_sha256"]


@pytest.mark.slow
def test_what_diverges_is_told_of_parameters_that_it_has(tmp_path):
    x, y = labelled_rows(200, 20, 2)
    write_dataset(tmp_path / "d", x * 1e15, y)
    _, _, err = distls("fit", "c-adaline", tmp_path / "d", tmp_path / "run", "-p", "eta0=1e9", "--quiet", *SERIAL)
    assert err.endswith("; try a larger alpha, a smaller eta0, or scale the data\n")


@pytest.mark.fast_cases("lambda")
@pytest.mark.parametrize(("name", "hint"), [("lambda", "is alpha"), ("T", "--passes N"), ("eta", "eta0")])
def test_the_papers_names_of_parameters_are_translated(tmp_path, place, name, hint):
    code, _, err = distls("fit", "mcid", place / "train", tmp_path / "run", "-p", f"{name}=1", *SERIAL)
    assert code == 2
    assert hint in err


def test_divergence_fails_and_publishes_nothing(tmp_path):
    x, y = labelled_rows(200, 20, 3)
    write_dataset(tmp_path / "d", x * 1e15, y)
    code, out, err = distls("fit", "mcid", tmp_path / "d", tmp_path / "run", "-p", "alpha=1e-30", "-p", "lanes=1",
                            "--quiet", *SERIAL)  # fmt: skip
    assert (code, out) == (1, "")
    assert err == (
        f"distls: {tmp_path}/run: the weights are no longer finite; try a larger alpha or t0, or scale the data\n"
    )
    assert not (tmp_path / "run" / "model").exists()
    assert _fields((tmp_path / "run" / "status.json").read_text())["status"] == "DIVERGED"


def test_a_closed_pipe_is_no_traceback(place):
    command = f"{sys.executable} -m distls info {place}/train --json | true"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in ended.stderr
