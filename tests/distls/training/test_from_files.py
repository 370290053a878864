"""From files to a model and its error in one call; streams in place of files."""

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import raised, refuses

import distls
from distls.cli import cli
from distls.storage.errors import BadInputError, DistlsError, MismatchError, ParameterError


def write_table(path, n_rows=60, seed=0, label="target"):
    random = np.random.default_rng(seed)
    rows = [f"a,b,{label}"]
    for _ in range(n_rows):
        code = int(random.integers(3))
        a, b = random.normal(size=2) + np.array([[0, 4], [4, 0], [-4, -4]])[code]
        rows.append(f"{a:.4f},{b:.4f},{['x', 'y', 'z'][code]}")
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture
def place(tmp_path, monkeypatch):
    write_table(tmp_path / "train.csv")
    write_table(tmp_path / "test.csv", 40, 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_to_a_model_and_its_error(place):
    said = []
    asked = {"method": "sgd", "params": {"alpha": 1e-4}, "transform": ()}
    found = distls.train("train.csv", "m", test="test.csv", notify=said.append, **asked)
    assert found.evaluation.n_rows == 40
    assert found.evaluation.error < 0.1
    assert said == ['the labels are column "target"; --label-column names another one']
    # the same bits as step by step
    distls.ingest("train.csv", "d", label_column="target")
    distls.fit("sgd", "d", "r", params={"alpha": 1e-4})
    assert distls.load_model("r").sha256 == distls.load_model("m").sha256
    assert found.evaluation.error == distls.evaluate("r", "test.csv").error
    assert found.dataset == place / "m-data" or str(found.dataset) == "m-data"


@pytest.mark.slow
def test_a_report_scores_the_test_files_again(place):
    (place / "bad.csv").write_text((place / "test.csv").read_text() + "1,?,x\n")
    asked = {"method": "sgd", "transform": (), "on_error": "skip", "notify": print}
    found = distls.train("train.csv", "m", test="bad.csv", **asked)
    assert "bad.csv, which --own-data would read" in distls.report("m").remarks[0]
    of_run, of_file = (distls.report("m", **given).judged for given in ({"own_data": True}, {"data": "test.csv"}))
    for judged in (of_run, of_file):
        assert judged.evaluation.confusion.tolist() == found.evaluation.confusion.tolist()
    assert (of_run.dataset, of_file.dataset) == (str(place / "bad.csv"), "test.csv")


def test_a_run_that_goes_on_keeps_its_test_files(place):
    distls.train("train.csv", "m", test="test.csv", method="sgd", params={"alpha": 1e-4}, passes=1)
    distls.resume("m", passes=2)
    assert distls.report("m", own_data=True).judged.dataset == str(place / "test.csv")


@pytest.mark.slow
def test_a_method_of_column_shards_has_them(place):
    found = distls.train("train.csv", "m", method="bcd", notify=print)
    assert found.fit.status == "CONVERGED"
    assert distls.open_dataset("m-data").columns is not None


@pytest.mark.slow
def test_nothing_chosen_is_what_suits_the_data(place):
    said = []
    found = distls.train("train.csv", "m", test="test.csv", notify=said.append)
    assert "transform auto: standardize, for dense rows" in said
    assert found.evaluation.error < 0.1
    distls.ingest("train.csv", "d", label_column="target", transform="standardize")
    assert distls.fit("auto", "d").model.sha256 == distls.load_model("m").sha256


def test_rows_of_a_published_algorithm_are_those_of_the_file(place):
    found = distls.train("train.csv", "m", method="gls", as_published=True, notify=print)
    assert distls.open_dataset(found.dataset).meta.transforms == []
    asked = {"method": "gls", "as_published": True, "transform": "standardize", "notify": print}
    chosen = distls.train("train.csv", "n", **asked)
    assert [step["name"] for step in distls.open_dataset(chosen.dataset).meta.transforms] == ["standardize"]


@pytest.mark.slow
def test_a_data_frame_is_what_its_file_is(place):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    train, test = (pandas.read_csv(f"{name}.csv") for name in ("train", "test"))
    asked = {"method": "sgd", "params": {"alpha": 1e-4}, "notify": print}
    found = distls.train(train, "m", test=test, **asked).evaluation.to_json()
    assert found == distls.train("train.csv", "n", test="test.csv", **asked).evaluation.to_json()
    model = distls.load_model("m")
    assert np.array_equal(model.weights, distls.load_model("n").weights)
    beside = distls.evaluate("m", test.drop(columns="target")[["b", "a"]], test["target"])
    assert beside.to_json() == found
    distls.predict("m", test, "p.csv")
    rows = pandas.read_csv("p.csv")
    assert rows["label"].tolist() == model.predict(test).tolist()
    refuses(ParameterError, "train takes files or a data frame; of arrays: ingest", distls.train, train.to_numpy(), "o")
    with pytest.raises(BadInputError, match=r'X: name the column of labels with --label-column.*"what"'):
        distls.train(train.rename(columns={"target": "what"}), "o")


def test_the_data_set_is_kept_or_discarded(place):
    distls.train("train.csv", "m", dataset="mine", label_column="target")
    assert sorted(path.name for path in place.iterdir()) == ["m", "mine", "test.csv", "train.csv"]
    found = distls.train("train.csv", "n", keep_dataset=False, label_column="target")
    assert found.dataset is None
    assert not (place / "n-data").exists()


@pytest.mark.fast_cases("options0", "options5")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"test": "absent.csv"}, ParameterError, "absent.csv: no such file"),
        ({"params": {"alhpa": 1}}, ParameterError, "did you mean 'alpha'"),
        ({"method": "sgdd"}, ParameterError, "sgdd"),
        ({"like": "x"}, ParameterError, "like is for ingest"),
        ({"unlabelled": True}, ParameterError, "rows without labels train nothing"),
        # of the data, so only after the ingest
        ({"params": {"init": "absent"}}, DistlsError, "absent"),
    ],
)
def test_what_is_refused_leaves_nothing(place, options, error, message):
    refuses(error, message, distls.train, "train.csv", "m", **{"label_column": "target"} | options)
    assert sorted(path.name for path in place.iterdir()) == ["test.csv", "train.csv"]


def test_a_paper_without_a_method_is_refused_before_the_ingest(place, monkeypatch):
    monkeypatch.setattr("distls.training.from_files.ingest", None)
    with pytest.raises(ParameterError, match="as_published: of a method that is named"):
        distls.train("train.csv", "m", as_published=True, label_column="target")


def test_whole_numbers_of_many_values_are_asked_about(place):
    lines = [f"{x},{3 * x}" for x in range(60)]
    (place / "age.csv").write_text("\n".join(["x,target", *lines]) + "\n")
    assert raised(BadInputError, distls.train, "age.csv", "m", notify=print) == (
        "60 classes in 60 rows, all whole numbers: --target continuous if they are a quantity "
        "to predict (regression), --target class if they are classes"
    )
    assert not (place / "m-data").exists()
    assert not (place / "m").exists()
    found = distls.train("age.csv", "m", target="continuous", test="age.csv", notify=print)
    assert found.evaluation.r2 > 0.9


@pytest.mark.slow
def test_a_run_that_is_there_is_not_overwritten(place):
    distls.train("train.csv", "m", label_column="target")
    refuses(MismatchError, "m is a run already", distls.train, "train.csv", "m", label_column="target")


def test_a_column_of_labels_that_is_not_found_is_asked_for(place):
    write_table(place / "other.csv", label="what")
    with pytest.raises(
        BadInputError, match=r'name the column of labels with --label-column \(or ingest .*"a", "b", "what"'
    ):
        distls.train("other.csv", "m")


# -- the command line --------------------------------------------------------------------------------------


def run(*arguments, **options):
    return CliRunner().invoke(cli, list(map(str, arguments)), **options)


def test_the_command_trains_and_predicts(place):
    done = run("train", "train.csv", "m", "--test", "test.csv", "--transform", "standardize", "--quiet")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "model in m" in lines
    assert any(line.startswith("40 rows, error ") for line in lines)
    to_file = run("predict", "m", "test.csv", "out.csv", "--quiet")
    assert to_file.exit_code == 0, to_file.output
    expected = (place / "out.csv").read_bytes()
    for arguments, given in [
        (["test.csv"], None),
        (["test.csv", "-"], None),
        (["-"], (place / "test.csv").read_bytes()),
    ]:
        found = run("predict", "m", *arguments, "--quiet", input=given)
        assert (found.exit_code, found.stdout_bytes) == (0, expected)
    scored = run("evaluate", "m", "-", input=(place / "test.csv").read_bytes())
    assert scored.stdout == run("evaluate", "m", "test.csv").stdout
    assert not [path for path in place.iterdir() if "partial" in path.name]


@pytest.mark.slow
def test_messages_about_streams(place):
    run("train", "train.csv", "m", "--quiet")
    refused = run("predict", "m", "-", input=b"a,b\n1,x\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert 'stdin:2: column "b": "x": a value must be a decimal number' in refused.stderr
    assert "stdin: no data" in run("predict", "m", "-", input=b"").stderr


@pytest.mark.slow
def test_the_interpreter_writes_predictions_to_a_pipe(place):
    run("train", "train.csv", "m", "--quiet")
    command = [sys.executable, "-m", "distls", "predict", "m", "-", "--quiet"]
    done = subprocess.run(command, input=b"a,b\n0,4\n4,0\n", capture_output=True, check=True)
    assert [line.split(",")[1] for line in done.stdout.decode().splitlines()] == ["label", "x", "y"]


def test_a_model_that_answers_one_class_is_said(tmp_path):
    random = np.random.default_rng(0)
    y = (np.arange(400) % 20 == 0).astype(int)
    x = random.normal(size=(400, 2)) + 0.5 * y[:, None]
    lines = [f"{a:.4f},{b:.4f},{['no', 'yes'][code]}" for (a, b), code in zip(x, y, strict=True)]
    (tmp_path / "few.csv").write_text("\n".join(["a,b,label", *lines]) + "\n")
    said = []
    distls.train(tmp_path / "few.csv", tmp_path / "m", notify=said.append)
    (line,) = [line for line in said if "answers" in line]
    assert line.startswith("the model answers no for 100.0 % of the training rows, of which 95.0 % are no: ")
    said.clear()
    distls.train(tmp_path / "few.csv", tmp_path / "b", notify=said.append, params={"class_weight": "balanced"})
    assert not [line for line in said if "answers" in line]
