"""Exported models, read back by the programs they are for, predict the same on 10,000 rows."""

import csv
import functools
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import distls as command
from helpers import refuses
from ingest_helpers import make_documents, write_json
from sklearn.datasets import dump_svmlight_file
from table_helpers import HEADER, OPTIONS, make_rows, write_rows
from target_helpers import rows_with_labels, rows_with_numbers

import distls
from distls.interchange.export_formats import EXPORT_FORMATS, ExportFormat, register_export_format
from distls.storage.errors import DistlsError, MismatchError, ParameterError

N_ROWS = 10_000
STEPS = {"plain": "", "linear": "scale=2,idf,standardize", "all": "log1p,idf,l2norm,standardize,scale=0.5"}
KINDS = ("two", "many", "words", "ovr", "hinge")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return what fits a model of classes, once, and returns its run, it and rows to predict."""

    @functools.cache
    def fitted(kind, transform, sparse=False):
        root, rng = tmp_path_factory.mktemp("made"), np.random.default_rng(1)
        x = np.abs(rng.standard_normal((N_ROWS, 30))).astype(np.float32)
        if sparse:
            x[rng.random(x.shape) < 0.8] = 0
        y = x[:, : 2 if kind == "two" else 4].argmax(axis=1)
        if kind == "words":
            y = np.array(["a", "b, c", "ü", "d"])[y]
        rows = sp.csr_array(x) if sparse else x
        min_count = {"min_count": 400} if sparse else {}
        distls.ingest(rows[:2000], root / "train", y=y[:2000], transform=transform, **min_count)
        params = {"loss": {"ovr": "ovr_log", "hinge": "hinge"}.get(kind, "log"), "fit_intercept": True}
        run = distls.fit("sgd", root / "train", root / "run", params=params, passes=2).run
        return run, distls.load_model(run), rows

    return fitted


def same(found, expected):
    """Whether predictions are equal."""
    return np.array_equal(np.asarray(found), np.asarray(expected))


def close(found, expected):
    return np.allclose(found, expected, rtol=1e-4, atol=1e-5)


# -- ONNX ------------------------------------------------------------------------------------------------


def run_onnx(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": np.asarray(x, np.float32)}), strict=True))


@pytest.mark.fast_cases("many-all$")
@pytest.mark.parametrize("transform", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_onnx(made, tmp_path, kind, transform):
    run, model, x = made(kind, STEPS[transform])
    done = distls.export(run, tmp_path / "m.onnx", to="onnx")
    steps = STEPS[transform].replace("=2", "").replace("=0.5", "")
    assert done.expects == "rows of 30 numbers" + (f", before the transforms {steps}" if steps else "")
    found = run_onnx(done.path, x)
    assert same(found["label"], model.predict(x))
    assert ("probabilities" in found) == (kind != "hinge")
    if kind != "hinge":
        assert close(found["probabilities"], model.predict_proba(x))
    scores = found["scores"]
    assert close(scores[:, 1] if kind == "two" else scores, model.decision_function(x))


@pytest.mark.fast_cases("continuous")
@pytest.mark.parametrize("target", ["continuous", "multilabel"])
def test_numbers_and_sets(tmp_path, target):
    made_rows = rows_with_labels if target == "multilabel" else rows_with_numbers
    x, y = made_rows(N_ROWS, 8, 3)
    if target == "multilabel":
        with (tmp_path / "train.svm").open("wb") as file:
            dump_svmlight_file(x[:1000], y[:1000], file, multilabel=True)
        distls.ingest(tmp_path / "train.svm", tmp_path / "train", multilabel=True, n_features=8)
        distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"})
    else:
        distls.ingest(x[:1000], tmp_path / "train", y=y[:1000], transform="standardize")
        distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"})
    model = distls.load_model(tmp_path / "run")
    distls.export(model, tmp_path / "m.onnx", to="onnx")
    found = run_onnx(tmp_path / "m.onnx", x)
    if target == "multilabel":
        assert same(found["label"], model.predict(x))
        assert 0 < found["label"].sum() < found["label"].size
        distls.export(model, tmp_path / "m.skops", to="sklearn")
        labels = load_skops(tmp_path / "m.skops").predict(x)
        assert same(labels, found["label"])
        distls.export(model, tmp_path / "m.csv", to="csv")
        weights = pd.read_csv(tmp_path / "m.csv").iloc[:, 2:].to_numpy()
        assert same(x @ weights[1:] + weights[0] > 0, labels)
        with pytest.raises(ParameterError, match="a LIBLINEAR model cannot predict sets of labels"):
            distls.export(model, tmp_path / "m.model", to="liblinear")
    else:
        assert close(found["prediction"], model.predict(x))


# -- scikit-learn ----------------------------------------------------------------------------------------


def load_skops(path, trusted=()):
    import skops.io  # two seconds

    assert skops.io.get_untrusted_types(file=path) == [*trusted]
    return skops.io.load(path, trusted=[*trusted])


@pytest.mark.fast_cases("many-False$")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sklearn(made, tmp_path, kind, sparse):
    run, model, x = made(kind, STEPS["all"], sparse)
    distls.export(run, tmp_path / "m.skops", to="sklearn")
    found = load_skops(tmp_path / "m.skops")
    x = sp.csr_matrix(x) if sparse else x
    assert same(found.predict(x), model.predict(x))
    assert close(found.decision_function(x), model.decision_function(x))
    assert hasattr(found, "predict_proba") == (kind != "hinge")
    if kind != "hinge":
        assert close(found.predict_proba(x), model.predict_proba(x))


def test_sklearn_of_texts(tmp_path):
    write_json(tmp_path / "train.jsonl", *make_documents(300), "intent")
    options = {"ngrams": (1, 2), "n_features": 512, "transform": "log1p,idf,l2norm", "min_count": 2}
    distls.ingest(tmp_path / "train.jsonl", tmp_path / "train", **options)
    distls.fit("mcid", tmp_path / "train", tmp_path / "run", params={"loss": "log"}, passes=2)
    texts, _ = make_documents(N_ROWS, seed=1)
    done = distls.export(tmp_path / "run", tmp_path / "m.skops", to="sklearn")
    assert done.expects == "a list of texts"
    found, model = load_skops(done.path), distls.load_model(tmp_path / "run")
    assert same(found.predict(texts), model.predict(texts))
    assert close(found.predict_proba(texts), model.predict_proba(texts))
    with pytest.raises(ParameterError, match="hashing of text cannot be expressed in ONNX; --to sklearn includes"):
        distls.export(tmp_path / "run", tmp_path / "m.onnx", to="onnx")


def test_sklearn_of_tables(tmp_path):
    rows = make_rows()
    rows[0][2], rows[1][1] = "", "NA"
    write_rows(tmp_path / "train.csv", rows, HEADER)
    distls.ingest(tmp_path / "train.csv", tmp_path / "train", **OPTIONS, transform="standardize", na=0)
    distls.fit("mcid", tmp_path / "train", tmp_path / "run", params={"loss": "log"}, passes=2)
    rows = make_rows(N_ROWS, seed=1)
    rows[0][2], rows[1][2], rows[2][1] = "nobody", "", ""
    x = pd.read_csv(io.StringIO(_as_csv(rows)), dtype={"job": str})[["age", "job", "size"]]
    done = distls.export(tmp_path / "run", tmp_path / "m.skops", to="sklearn")
    assert done.expects == "a pandas frame with the columns age, job, size"
    found, model = load_skops(done.path, ["numpy.dtype"]), distls.load_model(tmp_path / "run")
    with pytest.warns(UserWarning, match="1 value of categories"):
        expected = model.predict_proba(x)
    assert close(found.predict_proba(x), expected)
    assert same(found.predict(x), model.classes_[expected.argmax(axis=1)])


# -- raw columns of tables ------------------------------------------------------------------------------

TOPICS = ("late slow parcel", "card refund bank", "lost login code")


def raw_rows(n_rows, seed):
    """Return a frame of raw columns, with gaps, and its labels; of whole numbers no value is missing."""
    rng = np.random.default_rng(seed)
    topic, plan = rng.integers(0, 3, n_rows), rng.integers(0, 4, n_rows)
    spent = rng.exponential(30, n_rows).round(2)
    frame = pd.DataFrame(
        {
            "note": [" ".join(rng.permutation([*TOPICS[t].split(), "please", "help"])[:4]) for t in topic],
            "clicks": rng.integers(0, 9, n_rows),
            "spent": np.where(rng.random(n_rows) < 0.1, np.nan, spent),
            "plan": np.array(["basic", "plus, family", "Größe", "None"], dtype=object)[plan],
            "tags": [";".join(rng.permutation(["a b", "c", "d"])[:k]) for k in rng.integers(1, 3, n_rows)],
        }
    )
    y = np.where(topic + (spent > 30) + (plan == 2) + rng.normal(0, 0.5, n_rows) > 2, "stays", "goes")
    return frame, y


RAW = {
    "mixed": (["note", "clicks", "spent", "plan", "tags"], ("sklearn",)),
    "tables": (["clicks", "spent", "plan"], ("sklearn", "onnx")),
    "numbers": (["clicks", "spent"], ("sklearn", "onnx")),
}


def onnx_columns(path, frame):
    """Return the outputs for the columns of a frame."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    texts = {each.name: "string" in each.type for each in session.get_inputs()}
    given = {
        name: frame[name].fillna("").to_numpy(object) if text else frame[name].to_numpy(np.float32)
        for name, text in texts.items()
    }
    names = [output.name for output in session.get_outputs()]
    found = session.run(None, {name: values[:, None] for name, values in given.items()})
    return dict(zip(names, found, strict=True)), session


@pytest.mark.filterwarnings("ignore:.*of categories not seen")
@pytest.mark.fast_cases("tables-impute")
@pytest.mark.parametrize("how", ["impute", "na"])
@pytest.mark.parametrize("kind", RAW)
def test_raw_columns(tmp_path, kind, how):
    columns, formats = RAW[kind]
    frame, y = raw_rows(600, 0)
    kinds = {"kind": ["tags=set:;"]} if "tags" in columns else {}
    asked = {"impute": ["median"]} if how == "impute" else {"na": 0}
    if how == "impute":
        frame.loc[::20, "plan"] = None  # of no value is a category
    options = {"label_column": "y", "transform": "auto", **kinds, **asked}
    distls.ingest(frame[columns].assign(y=y), tmp_path / "train", **options)
    distls.fit("newton", tmp_path / "train", tmp_path / "run", params={"alpha": 1e-3}, executor="serial")
    model = distls.load_model(tmp_path / "run")
    rows = raw_rows(1000, 1)[0][columns[::-1]]
    if "plan" in columns:
        rows.loc[0, "plan"] = "nobody"
    expected, labels = model.predict_proba(rows), model.predict(rows)
    assert len(set(labels)) == 2
    for to in formats:
        done = distls.export(model, tmp_path / f"m.{to}", to=to)
        assert sorted(done.columns) == sorted(columns)
        if to == "onnx":
            found, session = onnx_columns(done.path, rows)
            assert same(found["label"], labels)
            assert close(found["probabilities"], expected)
            props = session.get_modelmeta().custom_metadata_map
            assert json.loads(props["features"]) == model.get_feature_names_out().tolist()
        else:
            reader = load_skops(done.path, ["numpy.dtype"])
            assert same(reader.predict(rows), labels)
            assert close(reader.predict_proba(rows), expected)
    if how == "impute":
        with pytest.raises(ParameterError, match="cannot be exported to csv; --to weights has the weights by"):
            distls.export(model, tmp_path / "m.csv", to="csv")
    done = distls.export(model, tmp_path / "w.csv", to="weights")
    assert done.expects.endswith("after the transforms " + ",".join(s["name"] for s in model.transforms))
    table = pd.read_csv(done.path)
    used, weights = table["feature"][1:].astype(int), table[table.columns[2:]].to_numpy()
    assert table["name"][1:].tolist() == model.get_feature_names_out()[used].tolist()
    scores = sp.csr_matrix(model.transform(rows))[:, used] @ weights[1:] + weights[0]
    assert close(scores[:, 0], model.decision_function(rows))


@pytest.mark.fast_cases("sklearn")
@pytest.mark.parametrize("to", ["sklearn", "onnx"])
def test_a_missing_category_is_the_most_frequent(tmp_path, to):
    frame, y = raw_rows(300, 0)
    frame = frame[["clicks", "plan"]]
    frame.loc[::10, "plan"] = None
    options = {"label_column": "y", "impute": ["plan=most_frequent"], "executor": "serial"}
    distls.ingest(frame.assign(y=y), tmp_path / "train", **options)
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"}, executor="serial")
    model = distls.load_model(tmp_path / "run")
    rows = raw_rows(60, 1)[0][["plan", "clicks"]]
    rows.loc[::3, "plan"], rows.loc[1::3, "plan"] = "", None
    expected = model.decision_function(rows)
    done = distls.export(model, tmp_path / "m", to=to)
    if to == "onnx":
        assert close(onnx_columns(done.path, rows)[0]["scores"][:, 1], expected)
    else:
        assert close(load_skops(done.path, ["numpy.dtype"]).decision_function(rows), expected)


def test_own_missing_markers_are_refused(tmp_path):
    frame, y = raw_rows(300, 0)
    frame = frame[["clicks", "plan"]].astype({"clicks": str}).assign(y=y)
    frame.loc[::10, "clicks"] = "-999"
    frame.to_csv(tmp_path / "train.csv", index=False)
    options = {"label_column": "y", "impute": ["median"], "na_values": ["-999"], "executor": "serial"}
    distls.ingest(tmp_path / "train.csv", tmp_path / "train", **options)
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"}, executor="serial")
    for to, reader in {"onnx": "ONNX", "sklearn": "sklearn"}.items():
        message = f"run: -999 stand for missing values of this model, which {reader} would take for values"
        refuses(ParameterError, message, distls.export, tmp_path / "run", tmp_path / "m", to=to)
    distls.export(tmp_path / "run", tmp_path / "m.npz", to="npz")


def test_sets_are_said_to_be_read_as_text(tmp_path):
    frame, y = raw_rows(300, 0)
    lists = [json.dumps(text.split(";")) for text in frame["tags"]]
    frame = frame[["clicks"]].assign(tags=lists, y=y)
    options = {"label_column": "y", "kind": ["tags=set"], "executor": "serial"}
    distls.ingest(frame, tmp_path / "train", **options)
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"}, executor="serial")
    done = distls.export(tmp_path / "run", tmp_path / "m.skops", to="sklearn")
    assert done.expects.endswith('tags; "tags" as text with "|" between values, not as a list')
    model, reader = distls.load_model(tmp_path / "run"), load_skops(done.path, ["numpy.dtype"])
    marked = frame[["clicks"]].assign(tags=["|".join(json.loads(text)) for text in lists])
    assert close(reader.decision_function(marked), model.decision_function(frame[["clicks", "tags"]]))


@pytest.mark.slow
def test_what_a_format_cannot_read_is_named(tmp_path):
    frame, y = raw_rows(300, 0)
    since = pd.Series(pd.date_range("2024-01-01", periods=300)).dt.strftime("%Y-%m-%d")
    frame = frame.assign(since=since, y=y)
    distls.ingest(frame.drop(columns="note"), tmp_path / "dates", label_column="y", na=0)
    distls.fit("newton", tmp_path / "dates", tmp_path / "run", params={"alpha": 1e-2}, executor="serial")
    with pytest.raises(
        ParameterError, match=r'"since" holds dates, which sklearn cannot .*--ignore-columns "since" of train'
    ):
        distls.export(tmp_path / "run", tmp_path / "m.skops", to="sklearn")
    distls.ingest(frame.drop(columns="since"), tmp_path / "words", label_column="y", na=0)
    distls.fit("newton", tmp_path / "words", tmp_path / "run2", params={"alpha": 1e-2}, executor="serial")
    with pytest.raises(ParameterError, match=r'"note" holds documents, which ONNX .*--to sklearn includes'):
        distls.export(tmp_path / "run2", tmp_path / "m.onnx", to="onnx")
    names = distls.load_model(tmp_path / "run2").get_feature_names_out()
    expected = distls.export(tmp_path / "run2", tmp_path / "w.csv", to="weights").expects
    assert f"rows of {len(names)} numbers, categories as indicators from {names[0]} to {names[-1]}, " in expected


def test_encoded_numbers_are_named(tmp_path):
    write_rows(tmp_path / "train.csv", make_rows(), HEADER)
    distls.ingest(tmp_path / "train.csv", tmp_path / "train", **OPTIONS)
    distls.fit("mcid", tmp_path / "train", tmp_path / "run", params={"loss": "log"}, passes=2)
    done = distls.export(tmp_path / "run", tmp_path / "m.model", to="liblinear")
    assert done.columns[:3] == ("age", "job=12", "job=Köhler")
    assert "7 numbers, categories as indicators from age to size, whose names `--to weights` lists" in done.expects


def _as_csv(rows):
    file = io.StringIO()
    csv.writer(file).writerows([HEADER, *rows])
    return file.getvalue()


@pytest.mark.slow
def test_sklearn_of_numbers(tmp_path):
    x, y = rows_with_numbers(N_ROWS, 8, 1)
    distls.ingest(x[:1000], tmp_path / "train", y=y[:1000])
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"})
    distls.export(tmp_path / "run", tmp_path / "m.skops", to="sklearn")
    assert close(load_skops(tmp_path / "m.skops").predict(x), distls.load_model(tmp_path / "run").predict(x))


# -- LIBLINEAR -------------------------------------------------------------------------------------------


def run_liblinear(root, x, *options):
    """Return labels, and with ``-b 1`` probabilities."""
    if not shutil.which("liblinear-predict"):
        pytest.skip("liblinear-predict is not installed: apt install liblinear-tools")
    dump_svmlight_file(x, np.zeros(len(x)), str(root / "x.svm"), zero_based=False)
    command = ["liblinear-predict", *options, str(root / "x.svm"), str(root / "m.model"), str(root / "out")]
    subprocess.run(command, check=True, capture_output=True)
    lines = (root / "out").read_text().splitlines()
    if not options:
        return np.array(lines, float), None
    order = [int(label) for label in lines[0].split()[1:]]
    table = np.array([line.split() for line in lines[1:]], float)
    return table[:, 0], table[:, 1:][:, np.argsort(order)]


@pytest.mark.fast_cases("two-plain$")
@pytest.mark.parametrize("transform", ["plain", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_liblinear(made, tmp_path, kind, transform):
    _, model, x = made(kind, STEPS[transform])
    done = distls.export(model, tmp_path / "m.model", to="liblinear")
    assert "column j of an array is index j + 1 of a file" in done.expects
    codes = model.decision_function(x)
    codes = codes.argmax(axis=1) if codes.ndim > 1 else codes > 0
    assert same(run_liblinear(tmp_path, x)[0], codes)
    if kind in ("two", "ovr"):
        labels, proba = run_liblinear(tmp_path, x, "-b", "1")
        assert same(labels, codes)
        assert np.allclose(proba, model.predict_proba(x), atol=1e-4)
    assert ("labels are the numbers of the classes, from 0 for a" in done.expects) == (kind == "words")


@pytest.mark.slow
def test_liblinear_of_numbers(tmp_path):
    x, y = rows_with_numbers(N_ROWS, 8, 1)
    distls.ingest(x[:1000], tmp_path / "train", y=y[:1000], transform="standardize")
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"})
    distls.export(tmp_path / "run", tmp_path / "m.model", to="liblinear")
    assert close(run_liblinear(tmp_path, x)[0], distls.load_model(tmp_path / "run").predict(x))


# -- Vowpal Wabbit ---------------------------------------------------------------------------------------


def run_vw(root, lines):
    """Return the predictions of ``vw -t`` for lines of text."""
    workspace = pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit to test its models").Workspace
    (root / "x.txt").write_text("".join(f"{line}\n" for line in lines))
    workspace(f"-t -i {root / 'm.vw'} -d {root / 'x.txt'} -p {root / 'out'} --quiet").finish()
    return np.loadtxt(root / "out")


def vw_lines(x):
    return ["|" + "".join(f" {j}:{value!r}" for j, value in enumerate(row)) for row in x.tolist()]


@pytest.mark.fast_cases("two-plain$")
@pytest.mark.parametrize("transform", ["plain", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_vw(made, tmp_path, kind, transform):
    pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit to test its models")
    _, model, x = made(kind, STEPS[transform])
    done = distls.export(model, tmp_path / "m.vw", to="vw")
    assert "column j of an array is the feature named j" in done.expects
    codes = model.decision_function(x)
    codes = codes.argmax(axis=1) + 1 if codes.ndim > 1 else np.where(codes > 0, 1, -1)
    assert same(run_vw(tmp_path, vw_lines(x)), codes)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["ovr_hinge", "ovr_log"])
def test_vw_of_sets_of_labels(tmp_path, loss):
    workspace = pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit to test its models").Workspace
    x, y = rows_with_labels(3000, 8, 5)
    with (tmp_path / "train.svm").open("wb") as file:
        dump_svmlight_file(x[:1000], y[:1000], file, multilabel=True)
    distls.ingest(tmp_path / "train.svm", tmp_path / "train", multilabel=True, n_features=8)
    distls.fit("sgd", tmp_path / "train", tmp_path / "run", params={"loss": loss, "fit_intercept": True})
    done = distls.export(tmp_path / "run", tmp_path / "m.vw", to="vw")
    assert "from 0 for" in done.expects
    model = distls.load_model(tmp_path / "run")
    reader = workspace(f"-t -i {tmp_path / 'm.vw'} --quiet")
    found = [sorted(reader.predict(line)) for line in vw_lines(x)]
    reader.finish()
    expected = [np.flatnonzero(row).tolist() for row in model.predict(x)]
    assert found == expected
    assert any(expected), "some rows have labels"


@pytest.mark.slow
def test_vw_of_numbers(tmp_path):
    pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit to test its models")
    x, y = rows_with_numbers(N_ROWS, 8, 1)
    y = 100 * y
    distls.ingest(x[:1000], tmp_path / "train", y=y[:1000], transform="standardize")
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"link": "identity"})
    distls.export(tmp_path / "run", tmp_path / "m.vw", to="vw")
    assert np.abs(y).max() > 1000
    found, expected = run_vw(tmp_path, vw_lines(x)), distls.load_model(tmp_path / "run").predict(x)
    assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.fast_cases("True")
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_vw_of_its_own_text(tmp_path, fit_intercept):
    pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit to test its models")
    rng = np.random.default_rng(0)
    words = rng.integers(0, 300, (N_ROWS, 12))
    lines = [" ".join(["|a", *(f"w{w}" for w in row[:6]), "|b", *(f"w{w}" for w in row[6:])]) for row in words.tolist()]
    y = words.argmin(axis=1) // 4
    text = "".join(f"{label} {line}\n" for label, line in zip(y[:2000].tolist(), lines, strict=False))
    (tmp_path / "train.vw").write_text(text)
    (tmp_path / "all.vw").write_text("".join(f"{line}\n" for line in lines))
    distls.ingest(tmp_path / "train.vw", tmp_path / "train", format="vw", hash_bits=14)
    params = {"fit_intercept": fit_intercept, "loss": "log"}
    distls.fit("sgd", tmp_path / "train", tmp_path / "run", params=params, passes=2)
    done = distls.export(tmp_path / "run", tmp_path / "m.vw", to="vw")
    assert "text of Vowpal Wabbit with the names of training" in done.expects
    distls.predict(tmp_path / "run", tmp_path / "all.vw", tmp_path / "out.csv", format="vw")
    assert same(run_vw(tmp_path, lines), pd.read_csv(tmp_path / "out.csv")["label"] + 1)


# -- arrays and tables -----------------------------------------------------------------------------------


@pytest.mark.fast_cases("words$")
@pytest.mark.parametrize("kind", KINDS)
def test_npz(made, tmp_path, kind):
    _, model, x = made(kind, STEPS["all"])
    wanted = model.predict(x)
    distls.export(model, tmp_path / "m.npz", to="npz")
    with np.load(tmp_path / "m.npz") as file:
        arrays = dict(file)
    for step in json.loads(str(arrays["transforms"])):
        x = {
            "log1p": lambda x, _: np.log1p(x),
            "idf": lambda x, _: x * arrays["idf"],
            "l2norm": lambda x, _: x / np.linalg.norm(x, axis=1, keepdims=True),
            "scale": lambda x, step: x / step["divisor"],
            "standardize": lambda x, _: (x - arrays["mean"]) / arrays["std"],
        }[step["name"]](x, step)
    scores = x @ arrays["weights"] + arrays["intercept"]
    codes = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    assert same(arrays["classes"][codes], wanted)


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("sparse", [False, True])
def test_csv(made, tmp_path, sparse):
    _, model, x = made("words", STEPS["linear"], sparse)
    distls.export(model, tmp_path / "m.csv", to="csv")
    table = pd.read_csv(tmp_path / "m.csv")
    assert table["name"][0] == "(intercept)"
    weights = table[table.columns[2:]].to_numpy()
    scores = x[:, table["column"][1:].astype(int)] @ weights[1:] + weights[0]
    assert same(np.array(table.columns[2:])[scores.argmax(axis=1)], model.predict(x))
    _, model, _ = made("two", "l2norm")
    message = "the transform l2norm cannot be expressed in csv; --to sklearn, onnx or npz"
    refuses(ParameterError, message, distls.export, model, tmp_path / "b.csv", to="csv")


# -- refusals --------------------------------------------------------------------------------------------


def test_the_command_and_its_refusals(tmp_path):
    x, y = rows_with_numbers(300, 6, 3)
    distls.ingest(x, tmp_path / "train", y=y.argmax(axis=1))
    distls.fit("gls", tmp_path / "train", tmp_path / "run", passes=2)
    arguments = ["export", tmp_path / "run", tmp_path / "m.onnx", "--to", "onnx"]
    assert command(*arguments) == (0, "", f"note: {tmp_path / 'm.onnx'} takes rows of 6 numbers\n")
    ran = command(*arguments)
    assert ran.code == 1
    assert "exists already" in ran.err
    with pytest.raises(ParameterError, match="--to must be one of onnx, sklearn"):
        distls.export(tmp_path / "run", tmp_path / "m", to="pmml")
    refuses(DistlsError, "there is no folder", distls.export, tmp_path / "run", tmp_path / "no" / "m", to="csv")
    refuses(MismatchError, "exists already", distls.export, tmp_path / "run", tmp_path / "m.onnx", to="csv")


@pytest.mark.fast_cases("onnx-cls-calibrated least squares$")
@pytest.mark.parametrize(("method", "what"), [("cls", "calibrated least squares"), ("stagewise", "generated features")])
@pytest.mark.parametrize("to", ["onnx", "sklearn", "liblinear", "vw", "npz", "csv"])
def test_what_is_not_linear_is_refused(tmp_path, method, what, to):
    x, y = rows_with_numbers(200, 6, 3)
    distls.ingest(x, tmp_path / "train", y=y.argmax(axis=1))
    params = {"rounds": 2} if method == "cls" else {"features": "fourier", "block_size": 8, "stages": 2}
    distls.fit(method, tmp_path / "train", tmp_path / "run", params=params)
    with pytest.raises(ParameterError, match=rf"run: {what}.* cannot be exported to {to}"):
        distls.export(tmp_path / "run", tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


@pytest.mark.fast_cases("onnx")
@pytest.mark.parametrize(("to", "package"), [("onnx", "onnx"), ("sklearn", "skops.io"), ("vw", "vowpalwabbit")])
def test_missing_packages_are_named(tmp_path, monkeypatch, to, package):
    x, y = rows_with_numbers(200, 6, 3)
    distls.ingest(x, tmp_path / "train", y=y.argmax(axis=1))
    distls.fit("gls", tmp_path / "train", tmp_path / "run", passes=1)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ParameterError, match=rf"^--to {to} needs the package .*; pip install 'distls\[{to}\]'"):
        distls.export(tmp_path / "run", tmp_path / "out", to=to)


def lines_of(model):
    """Write a format of another program's: the intercept of each output, a line each."""
    return "\n".join(map(str, model.intercept)).encode(), "rows of numbers"


def test_a_format_registered_from_outside(made, tmp_path):
    register_export_format(ExportFormat("lines", f"{__name__}:lines_of"))
    try:
        _, model, _ = made("two", "")
        done = distls.export(model, tmp_path / "out", to="lines")
    finally:
        del EXPORT_FORMATS["lines"]
    assert (tmp_path / "out").read_text().split() == list(map(str, model.intercept))
    assert done.expects == "rows of numbers"
