"""Models that LIBLINEAR trained predict the same here, and fits start from them."""

import csv
import shutil
import subprocess

import numpy as np
import pytest
from helpers import distls as command
from helpers import raised, refuses
from sklearn.datasets import dump_svmlight_file
from target_helpers import rows_with_numbers

import distls
from distls.storage.errors import BadInputError, MismatchError, ParameterError

MODEL = "solver_type L2R_LR\nnr_class 2\nlabel 3 -1\nnr_feature 2\nbias 2\nw\n0.5 \n-1 \n0.25 \n"


def trained(root, solver, k, *options):
    """Train and predict 10,000 rows with LIBLINEAR; return the rows and what it predicts."""
    if not shutil.which("liblinear-train"):
        pytest.skip("liblinear-train is not installed: apt install liblinear-tools")
    x, y = rows_with_numbers(10_000, 6, max(k, 1))
    x = x.astype(np.float32)
    labels = y[:, 0] if k == 1 else 10 - 3 * y[:, :k].argmax(axis=1)
    dump_svmlight_file(x[:1000], labels[:1000], str(root / "train.svm"), zero_based=False)
    dump_svmlight_file(x, labels, str(root / "x.svm"), zero_based=False)
    train = ["liblinear-train", "-q", "-s", str(solver), *options, str(root / "train.svm"), str(root / "m")]
    subprocess.run(train, check=True, capture_output=True)
    proba = ["-b", "1"] if solver in (0, 6, 7) else []
    run = ["liblinear-predict", *proba, str(root / "x.svm"), str(root / "m"), str(root / "out")]
    subprocess.run(run, check=True, capture_output=True)
    lines = (root / "out").read_text().splitlines()
    if not proba:
        return x, np.array(lines, float), None
    order = np.argsort([int(label) for label in lines[0].split()[1:]])
    table = np.array([line.split() for line in lines[1:]], float)
    return x, table[:, 0], table[:, 1:][:, order]


@pytest.mark.slow_cases("[1346]")
@pytest.mark.parametrize(("solver", "k"), [(0, 2), (6, 3), (1, 2), (3, 3), (4, 2), (4, 3), (11, 1)])
def test_predictions_are_those_of_liblinear(tmp_path, solver, k):
    x, expected, proba = trained(tmp_path, solver, k, "-B", "1")
    model = distls.import_model(tmp_path / "m", tmp_path / "model")
    loaded = distls.load_model(tmp_path / "model", dtype="float64")
    if k == 1:
        assert np.allclose(loaded.predict(x), expected, rtol=1e-4, atol=1e-4)
        return
    assert np.array_equal(model.predict(x), expected)
    assert np.array_equal(loaded.predict(x), expected)
    if proba is not None:
        assert np.allclose(loaded.predict_proba(x), proba, atol=1e-5)


def test_a_fit_starts_from_it(tmp_path):
    trained(tmp_path, 7, 3, "-B", "1")
    ran = command("import", tmp_path / "m", tmp_path / "model", "--from", "liblinear")
    assert ran.code == 0, ran
    assert "method='liblinear', loss='ovr_log', 6 features, 3 classes" in ran.err
    distls.ingest(tmp_path / "train.svm", tmp_path / "train")
    params = {"init": str(tmp_path / "model"), "loss": "ovr_log", "eta0": 1e-9, "fit_intercept": True}
    run = distls.fit("sgd", tmp_path / "train", params=params, passes=0.1)
    start = distls.load_model(tmp_path / "model")
    assert np.allclose(run.model.weights, start.weights, atol=1e-4)
    assert not np.allclose(start.weights, 0, atol=1e-2)
    error = distls.evaluate(tmp_path / "model", tmp_path / "train").error
    assert error < 0.3


def test_known_weights(tmp_path):
    (tmp_path / "m").write_text(MODEL)
    model = distls.import_model(tmp_path / "m", tmp_path / "model")
    assert model.classes_.tolist() == [-1, 3]
    assert model.coef_.tolist() == [[0.5, -1.0]]
    assert model.intercept_.tolist() == [0.5]


BAD = [
    ("label 3 -1", "label 3 3", "2 classes with the labels 3 3"),
    ("nr_feature 2", "nr_feature 3", "3 weights, not 4 finite ones"),
    ("nr_feature 2", "nr_feature 99999999", "99999999 features and 1 outputs, but"),
    ("L2R_LR", "ONECLASS_SVM", "solver_type ONECLASS_SVM"),
    ("\nw\n", "\n", "it has no line w"),
    ("bias 2\n", "", "it has no line bias"),
    ("-1 \n0", "nan \n0", "3 weights, not 3 finite ones"),
    ("label 3 -1\n", "", "'label'"),
]


@pytest.mark.fast_cases("label 3 -1-label", "\\\\nw\\\\n", "label 3 -1\\\\n")
@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_other_files_are_refused(tmp_path, old, new, message):
    assert old in MODEL
    (tmp_path / "m").write_text(MODEL.replace(old, new))
    with pytest.raises(BadInputError, match=f"m: not a model file of LIBLINEAR \\({message}"):
        distls.import_model(tmp_path / "m", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_wrong_requests_are_refused(tmp_path):
    (tmp_path / "m").write_text(MODEL)
    with pytest.raises(ParameterError, match="--from must be one of liblinear"):
        distls.import_model(tmp_path / "m", tmp_path / "model", source="pmml")
    refuses(MismatchError, "exists already", distls.import_model, tmp_path / "m", tmp_path)


# -- models that Vowpal Wabbit trained predict the same here, and fits start from them --------------------


HEAD = "Version 9.11.9\nbits:4\noptions:{}\nChecksum: 1\n:0\n"


def example_lines(n, k):
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(n):
        y = int(rng.integers(k))
        label = y + 1 if k > 2 else 2 * y - 1
        lines.append(f"{label} |f w{y}:{rng.random():.2f} u{rng.integers(9)} |g a{rng.integers(3)}:0.5 {y + 3}:1")
    return lines


def trained_by_vw(folder, options, k, kind):
    """Train vw; return the model, its lines, and what vw itself predicts of them."""
    vw = pytest.importorskip("vowpalwabbit")
    lines = example_lines(400, k)
    binary, text = folder / "m", folder / "m.txt"
    readable = "" if kind == "binary" else f"--{kind} {text}"
    made = vw.Workspace(f"--quiet -b 12 {options} -f {binary} {readable}")
    for line in lines[:200]:
        made.learn(line)
    made.finish()
    testing = vw.Workspace(f"--quiet -t -i {binary}")
    found = np.array([testing.predict(line) for line in lines])
    testing.finish()
    return (binary if kind == "binary" else text), lines, found


def predictions(model, lines, folder):
    (folder / "x.vw").write_text("\n".join(lines) + "\n")
    distls.predict(model, folder / "x.vw", folder / "p.csv", labelled=True)
    with (folder / "p.csv").open(newline="") as file:
        return list(csv.reader(file))[1:]


@pytest.mark.fast_cases("binary")
@pytest.mark.parametrize("kind", ["binary", "readable_model", "invert_hash"])
def test_classes_are_those_of_vw(tmp_path, kind):
    path, lines, found = trained_by_vw(tmp_path, "--oaa 3 --loss_function logistic", 3, kind)
    model = distls.import_model(path, tmp_path / "model", source="vw")
    assert model.classes == [1, 2, 3]
    assert [int(row[1]) for row in predictions(tmp_path / "model", lines, tmp_path)] == found.tolist()
    assert len(set(found.tolist())) == 3


@pytest.mark.fast_cases("$")
@pytest.mark.parametrize("options", ["", "--noconstant"])
def test_numbers_are_those_of_vw(tmp_path, options):
    path, lines, found = trained_by_vw(tmp_path, options, 2, "readable_model")
    distls.import_model(path, tmp_path / "model", source="vw")
    mine = [float(row[1]) for row in predictions(tmp_path / "model", lines, tmp_path)]
    np.testing.assert_allclose(np.clip(mine, -1, 1), found, atol=2e-5)


@pytest.mark.slow_cases("--link")
@pytest.mark.parametrize("options", ["--binary", "--link logistic"])
def test_two_classes(tmp_path, options):
    path, lines, found = trained_by_vw(tmp_path, f"--loss_function logistic {options}", 2, "readable_model")
    model = distls.import_model(path, tmp_path / "model", source="vw")
    rows = predictions(tmp_path / "model", lines, tmp_path)
    assert [int(row[1]) for row in rows] == np.where(found > (0.5 if "link" in options else 0), 1, -1).tolist()
    if "link" in options:
        plain = [line.split(" ", 1)[1] for line in lines]
        (tmp_path / "u.vw").write_text("\n".join(plain) + "\n")
        distls.predict(tmp_path / "model", tmp_path / "u.vw", tmp_path / "q.csv", proba=True)
        with (tmp_path / "q.csv").open(newline="") as file:
            best = [float(row[2]) for row in list(csv.reader(file))[1:]]
        np.testing.assert_allclose(best, np.maximum(found, 1 - found), atol=2e-5)
    assert model.classes == [-1, 1]


@pytest.mark.slow
def test_a_fit_starts_from_a_model_of_vw(tmp_path):
    path, lines, _ = trained_by_vw(tmp_path, "--oaa 3", 3, "readable_model")
    distls.import_model(path, tmp_path / "model", source="vw")
    (tmp_path / "x.vw").write_text("\n".join(lines) + "\n")
    distls.ingest(tmp_path / "x.vw", tmp_path / "d", like=tmp_path / "model")
    given = {"init": str(tmp_path / "model"), "eta0": 1e-12}
    distls.fit("sgd", tmp_path / "d", tmp_path / "run", params=given, passes=1, executor="serial")
    old, new = (distls.load_model(tmp_path / name) for name in ("model", "run"))
    np.testing.assert_allclose(new.weights, old.weights, atol=1e-6)


@pytest.mark.fast_cases(
    "Version 9\\\\nbits",
    "Version 9\\.11\\.9\\\\nbits:4\\\\noptions:\\\\nChecksum: 1\\\\n:0\\\\n16",
    "Version 9\\.11\\.9\\\\nbits:4\\\\noptions: --oaa 99\\\\nChecksum",
)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("Version 9\nbits:4\n", "it has no line Checksum; make it with --readable_model or --invert_hash"),
        (HEAD.format(" --quadratic fg"), "it was trained with --quadratic; models linear in the hashed"),
        (HEAD.format(" --hash_seed 3"), "it was trained with --hash_seed; models"),
        (HEAD.format("") + "16:1.5\n", "the weight 16:1.5"),
        (HEAD.format("") + "3:nan\n", "the weight 3:nan"),
        (HEAD.format(" --oaa 3") + "3:1.0\n", "the weight 3:1.0"),
        (HEAD.format(" --oaa 99"), "4 bits for 99 classes"),
    ],
)  # fmt: skip
def test_what_is_not_such_a_model_is_refused(tmp_path, content, reason):
    (tmp_path / "m").write_text(content)
    said = raised(BadInputError, distls.import_model, tmp_path / "m", tmp_path / "model", source="vw")
    assert said.startswith(f"{tmp_path}/m: not a model file of Vowpal Wabbit ({reason}")
    assert not (tmp_path / "model").exists()


@pytest.mark.fast_cases(r"--learning_rate 0\.2$")
@pytest.mark.parametrize(
    "options", ["--learning_rate 0.2", "--power_t 0.3", "--adaptive", "--normalized --invariant", "--ftrl", "--coin"]
)
def test_models_are_read_whatever_rule_their_steps_followed(tmp_path, options):
    (tmp_path / "m").write_text(HEAD.format(f" {options}") + "3:0.5 1 2\n")
    model = distls.import_model(tmp_path / "m", tmp_path / "model", source="vw")
    assert model.weights[3, 0] == 0.5
