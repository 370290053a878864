"""Models that LIBLINEAR trained predict the same here, and fits start from them."""

import shutil
import subprocess

import numpy as np
import pytest
from helpers import distls as command
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
    with pytest.raises(MismatchError, match="exists already"):
        distls.import_model(tmp_path / "m", tmp_path)
