"""A loaded model predicts rows in memory as `distls predict` does those of files."""

import asyncio
import concurrent.futures
import json
import pickle
import re
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import dask.array as da
import dask.bag as db
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import zarr
from helpers import raised, refuses
from ingest_helpers import make_documents, write_json
from table_helpers import HEADER, OPTIONS, make_rows, write_rows
from target_helpers import rows_with_labels, rows_with_numbers

import distls
from distls.storage.errors import BadInputError, DistlsError, FormatError, MismatchError, ParameterError

LOG = {"alpha": 1e-3, "loss": "log"}


def written(root, source, out, **options):
    """Return the arrays that `distls predict` writes for a source."""
    distls.predict(root / "run", root / source, root / out, **options)
    group = zarr.open_group(str(root / out), mode="r")
    return {name: group[name][...] for name, _ in group.arrays()}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    write_json(root / "train.jsonl", *make_documents(300), "intent")
    options = {"ngrams": (1, 2), "n_features": 512, "transform": "log1p,idf,l2norm", "min_count": 2}
    distls.ingest(root / "train.jsonl", root / "train", **options)
    distls.fit("mcid", root / "train", root / "run", params=LOG, passes=2)
    return root


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A model of a CSV file with numbers, a category and missing values, and rows to predict."""
    root = tmp_path_factory.mktemp("table")
    rows = make_rows()
    rows[5][2], rows[6][1] = "NA", ""
    write_rows(root / "train.csv", rows, HEADER)
    distls.ingest(root / "train.csv", root / "train", **OPTIONS, transform="standardize", na=0)
    distls.fit("mcid", root / "train", root / "run", params=LOG, passes=2)
    rows = make_rows(60, seed=1)
    rows[0][2], rows[1][2], rows[2][1], rows[3][2] = "nobody", "?", "NA", "12"
    write_rows(root / "test.csv", rows, HEADER)
    return root


def test_texts(text):
    texts, labels = make_documents(5000, seed=1)
    write_json(text / "test.jsonl", texts, labels, "intent")
    model = distls.load_model(text / "run")
    scores = written(text, "test.jsonl", "scores.zarr", top=3)
    for x in (texts, tuple(texts), np.array(texts), pd.Series(texts), pl.Series(texts), pd.DataFrame({"text": texts})):
        assert np.array_equal(np.sort(model.decision_function(x))[:, ::-1], scores["score"])
        assert np.array_equal(model.predict(x), model.classes_[scores["label"][:, 0]])
    proba = written(text, "test.jsonl", "proba.zarr", proba=True)["score"][:, 0]
    assert np.array_equal(model.predict_proba(texts).max(axis=1), proba)
    one = [model.decision_function([document])[0] for document in texts[:20]]
    assert np.array_equal(one, model.decision_function(texts[:20]))
    assert model.decision_function([]).shape == (0, 3)


def frames(frame):
    """Return the same rows in each form that has named columns."""
    return [
        frame, frame[["size", "job", "age"]], pl.from_pandas(frame), pa.Table.from_pandas(frame),
        frame.to_dict("list"), frame.to_dict("records"), frame.astype({"job": "category"}),
    ]  # fmt: skip


def test_tables(table):
    model = distls.load_model(table / "run")
    with pytest.warns(UserWarning, match="1 value of categories"):
        proba = written(table, "test.csv", "proba.zarr", labelled=True, proba=True)
    for x in frames(pd.read_csv(table / "test.csv")):
        with pytest.warns(UserWarning, match='1 value of categories .* row 0: column "job": "nobody"'):
            found = model.predict_proba(x)
        assert np.array_equal(found.max(axis=1), proba["score"][:, 0])
    assert model.feature_names_in_.tolist() == ["age", "job", "size"]
    assert model.get_feature_names_out().tolist()[:3] == ["age", "job=0", "job=12"]
    row = {"age": None, "job": None, "size": 1.5}
    assert np.array_equal(model.predict([row]), model.predict([{**row, "age": 0, "job": "0"}]))
    encoded = np.array([[0, 1, 0, 0, 0, 0, 0, 1.5]], np.float32)
    assert np.array_equal(model.predict_proba([row]), model.predict_proba(sp.csr_array(encoded)))


def test_parquet_and_plain_numbers(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((400, 6)).round(2), columns=list("abcdef"))
    labelled = frame.assign(y=np.where(frame.sum(axis=1) > 0, "up", "down"))
    labelled.to_parquet(tmp_path / "train.parquet")
    distls.ingest(tmp_path / "train.parquet", tmp_path / "train", label_column="y", transform="standardize")
    distls.fit("gls", tmp_path / "train", tmp_path / "run", params={"alpha": 1e-3}, passes=2)
    model = distls.load_model(tmp_path / "run")
    scores = written(tmp_path, "train.parquet", "scores.zarr", labelled=True, top=2)["score"]
    others = [frame.to_numpy(), frame.to_numpy().tolist(), np.asfortranarray(frame), sp.csr_matrix(frame)]
    for x in (*frames(labelled.assign(job="z", size=0, age=0))[2:3], frame[list("fedcba")], labelled, *others):
        if isinstance(x, pl.DataFrame):
            x = x.drop("job", "size", "age")
        decision = model.decision_function(x)
        assert decision.shape == (400,)
        assert np.array_equal(np.abs(decision), scores[:, 0])
    given = frame.to_numpy(np.float32)
    before = given.copy()
    model.predict(given)
    assert np.array_equal(given, before)
    x = given / model.features["std"] - model.features["mean"] / model.features["std"]
    assert np.allclose(x @ model.coef_.T + model.intercept_, decision[:, None], atol=1e-5)
    assert model.coef_.shape == (1, 6)
    assert model.intercept_.shape == (1,)
    frame.loc[7, "c"] = np.nan
    refuses(BadInputError, r'^X, row 7: column "c": the value is missing', model.predict, frame)
    refuses(BadInputError, r"^X, row 7: a value is not finite in float32", model.predict, frame.to_numpy())


def test_sparse_rows_and_rare_columns(tmp_path):
    rng = np.random.default_rng(0)
    x = sp.random_array((300, 50), density=0.1, format="csr", rng=rng, dtype=np.float32)
    y = np.asarray(x.sum(axis=1)).ravel() * 3 // 1
    distls.ingest(x, tmp_path / "train", y=y, min_count=25, transform="log1p,idf,l2norm", shuffle=False)
    distls.fit("mcid", tmp_path / "train", tmp_path / "run", params={"loss": "hinge"}, passes=2)
    model = distls.load_model(tmp_path / "run")
    assert 0 < model.n_features < model.n_features_in_ == 50
    scores = written(tmp_path, "train", "scores.zarr", top=len(model.classes))["score"]
    unsorted = sp.coo_array((x.data, x.nonzero()), shape=x.shape)
    for given in (x, sp.csr_matrix(x), x.tocsc(), unsorted):
        assert np.array_equal(np.sort(model.decision_function(given))[:, ::-1], scores)
    assert np.allclose(np.sort(model.decision_function(x.toarray()))[:, ::-1], scores, atol=1e-5)
    with pytest.raises(
        ParameterError, match=r"^predict_proba: .*run was trained with loss crammer_singer, which has no"
    ):
        model.predict_proba(x)
    with pytest.raises(AttributeError, match="have no names"):
        model.feature_names_in_  # noqa: B018
    assert not hasattr(model, "feature_names_in_")


FAMILIES = {
    "cls": ("class", {"rounds": 3}),
    "stagewise": ("class", {"stages": 2, "features": "fourier", "block_size": 16}),
    "gls": ("continuous", {"link": "identity"}),
    "bcd": ("multilabel", {"alpha": 1e-4}),
}


@pytest.mark.fast_cases("cls$")
@pytest.mark.parametrize("method", FAMILIES)
def test_families(tmp_path, method):
    target, params = FAMILIES[method]
    made = rows_with_labels if target == "multilabel" else rows_with_numbers
    x, y = made(500, 8, 3)
    if target == "class":
        y = y.argmax(axis=1)
    np.savez(tmp_path / "x.npz", X=x)
    multilabel = target == "multilabel"
    if multilabel:
        lines = (
            ",".join(map(str, np.flatnonzero(row))) + " " + " ".join(f"{j}:{v!r}" for j, v in enumerate(values))
            for row, values in zip(y, x.astype(np.float32).tolist(), strict=True)
        )
        (tmp_path / "train.svm").write_text("\n".join(lines) + "\n")
        distls.ingest(tmp_path / "train.svm", tmp_path / "train", multilabel=True, columns=True, shuffle=False)
    else:
        distls.ingest(x, tmp_path / "train", y=y, target=target, shuffle=False)
    distls.fit(method, tmp_path / "train", tmp_path / "run", params=params, passes=3)
    model = distls.load_model(tmp_path / "run")
    found = written(tmp_path, "train", "out.zarr", **({"top": 3} if target != "continuous" else {}))
    x = sp.csr_array(x) if multilabel else x
    if target == "continuous":
        assert np.allclose(model.predict(x), found["prediction"], rtol=1e-6)
        refuses(ParameterError, "predicts numbers; use predict", model.decision_function, x)
        return
    # the products of generated features and calibrations are those of BLAS, whose last bits depend on the rows at once
    same = np.array_equal if method == "bcd" else np.allclose
    assert same(np.sort(model.decision_function(x))[:, ::-1], found["score"])
    if multilabel:
        sets = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")["labels"]
        counts = np.diff(sets["indptr"][...])
        expected = np.zeros(y.shape, np.int64)
        expected[np.repeat(np.arange(len(y)), counts), sets["indices"][...]] = 1
        assert np.array_equal(model.predict(x), expected)
        assert 0 < expected.sum() < expected.size
    else:
        assert np.array_equal(model.predict(x), model.classes_[found["label"][:, 0]])
        with pytest.raises(AttributeError, match="generated features or a calibration"):
            model.coef_  # noqa: B018
    if method == "cls":
        assert np.allclose(model.predict_proba(x).sum(axis=1), 1)


def test_one_output(tmp_path):
    x, y = rows_with_numbers(300, 5, 1)
    result = distls.fit("gls", _ingested(tmp_path, x, y), tmp_path / "run", params={"link": "identity"})
    model = distls.load_model(tmp_path / "run", dtype="float64")
    assert model.predict(x).shape == (300,)
    assert np.allclose(x @ model.coef_ + model.intercept_, model.predict(x))
    assert not hasattr(model, "classes_")
    assert np.allclose(result.model.predict(x), model.predict(x), atol=1e-4)
    assert repr(result.model) == ("FittedModel(method='gls', loss='squared', 5 features, 1 outputs, source='memory')")
    refuses(ParameterError, "dtype must be one of", distls.load_model, tmp_path / "run", dtype="int")


def _ingested(root, x, y, **options):
    distls.ingest(x, root / "train", y=y, **options)
    return root / "train"


def test_labels_keep_their_types(tmp_path):
    x, y = rows_with_numbers(90, 4, 3)
    distls.fit("gls", _ingested(tmp_path, x, y.argmax(axis=1)), tmp_path / "run", passes=2)
    assert distls.load_model(tmp_path / "run").predict(x).dtype.kind == "i"


BAD = [
    (np.ones((3, 4)), r"X has 4 columns, RUN takes 8 features a row \(a frame of the source's columns is encoded\)"),
    (np.ones(3), r"X has shape \(3,\); RUN takes rows of 8 columns"),
    (sp.csr_array(np.ones((3, 9))), r"X has 9 columns, RUN takes 8"),
    ("words", "X is one text"),
    (["one", "two"], r'X holds values of type <U3; RUN takes a frame with the columns "age", "job", "size"'),
    (pd.DataFrame({"age": [1], "job": ["a"]}), r'X: no column "size", which is a feature of RUN'),
    (pd.DataFrame({"age": ["x"], "job": ["a"], "size": [1]}), r'X: column "age" is of kind text, .* of kind number'),
    (pd.DataFrame({"age": [1], "job": ["a"], "size": [1], "b": [2]}), r'X: column "b" is none of RUN; leave it out'),
    ({"age": [1, "x"], "job": ["a", "b"], "size": [1, 2]}, r'X: column "age" .*'),
    ({"age": [1.0], "job": ["baker"], "size": [np.inf]}, r'X, row 0: column "size": inf: a value must be finite'),
]  # fmt: skip


@pytest.mark.fast_cases("x0", "words", "x6", "x9")
@pytest.mark.parametrize(("x", "message"), BAD)
def test_bad_rows_have_one_clear_line(table, x, message):
    model = distls.load_model(table / "run")
    line = raised(DistlsError, model.predict, x)
    assert re.match(message.replace("RUN", re.escape(str(table / "run"))), line)


def test_lazy_texts(text):
    model, texts = distls.load_model(text / "run"), make_documents(20, seed=3)[0]
    lazy = da.from_array(np.array(texts, dtype=object), chunks=8)
    for method in (model.predict, model.decision_function, model.predict_proba):
        found = method(lazy)
        assert found.shape == method(texts).shape
        assert np.array_equal(found.compute(scheduler="synchronous"), method(texts))
    refuses(BadInputError, r"^X is a Dask collection; map this over its chunks$", model.transform, lazy)
    refuses(BadInputError, r"^X is a Dask bag; give an array or data frame$", model.predict, db.from_sequence(texts))


def test_no_rows_have_features_too(table):
    model = distls.load_model(table / "run")
    found = model.transform(np.ones((0, model.n_features_in_)))
    assert (found.shape, found.dtype) == ((0, model.n_features), model.row_dtype)


def test_bad_texts(text):
    model = distls.load_model(text / "run")
    refuses(BadInputError, r"^X, row 1: int; .* takes texts", model.predict, ["a", 3])
    refuses(MismatchError, r'no column "text" of documents', model.predict, {"a": ["x"], "b": ["y"]})
    refuses(MismatchError, r"^X has 3 columns, .* takes 512", model.predict, np.ones((2, 3)))


def test_sources_of_another_width_are_refused(text, table):
    model = distls.load_model(text / "run")
    source = {**model.source, "recipe": {**model.source["recipe"], "n_features": 10**6}}
    with pytest.raises(FormatError, match="its source has 1000000 features, its transforms are of 512"):
        replace(model, source=source).predict(["a"])
    model = distls.load_model(table / "run")
    recipe = model.source["recipe"]
    source = {**model.source, "recipe": {**recipe, "features": recipe["features"][:1]}}
    with pytest.raises(FormatError, match="its source has 1 features, its transforms are of 8"):
        replace(model, source=source).predict({"age": [1]})


@pytest.mark.slow
def test_threads_share_a_model(text):
    texts, _ = make_documents(400, seed=2)
    model = distls.load_model(text / "run")
    expected = [distls.load_model(text / "run").decision_function([document]) for document in texts[:40]]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            found = list(pool.map(lambda document: model.decision_function([document]), texts[:40]))
            assert np.array_equal(found, expected)


def test_a_dict_of_values_is_one_row(text, table):
    model = distls.load_model(table / "run")
    for row in ({"age": 30, "job": "12", "size": 1.5}, {"age": np.int64(30), "job": None, "size": 2}):
        assert np.array_equal(model.predict_proba(row), model.predict_proba([row]))
    assert len(model.predict({"age": [30, 31], "job": ["12", "0"], "size": [1.5, 2]})) == 2
    model = distls.load_model(text / "run")
    assert np.array_equal(model.predict_proba({"text": "wo ist"}), model.predict_proba(["wo ist"]))


@pytest.mark.slow
def test_no_answer_of_1000_concurrent_requests_is_lost_or_crossed(table):
    frame = pd.read_csv(table / "test.csv")[["age", "job", "size"]].iloc[4:]
    rows = frame.to_dict("records")
    alone = distls.load_model(table / "run")
    expected = [alone.predict_proba([row]) for row in rows]
    assert len({values.tobytes() for values in expected}) > len(rows) // 2  # crossed answers would be seen
    model = distls.load_model(table / "run")  # what it makes on first use is made by all threads at once

    def answer(request):
        place = request % len(rows)
        return model.predict_proba(rows[place] if request % 2 else frame.iloc[[place]])

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        found = list(pool.map(answer, range(1000)))
    assert all(np.array_equal(found[request], expected[request % len(rows)]) for request in range(1000))


@pytest.mark.filterwarnings("ignore")  # starlette's own
def test_the_service_of_the_page_answers_and_refuses(table, monkeypatch):
    pytest.importorskip("starlette")
    monkeypatch.chdir(table)
    page = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()
    service = {}
    exec(re.search(r"```python\n# service.py\n(.*?)```", page, re.S)[1], service)

    async def ask(body):
        sent, scope = ([], {"type": "http", "method": "POST", "path": "/predict", "headers": [], "query_string": b""})

        async def receive():
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message):
            sent.append(message)

        await service["app"](scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    async def ask_all(bodies):
        return await asyncio.gather(*map(ask, bodies))

    rows = pd.read_csv(table / "test.csv")[["age", "job", "size"]].iloc[4:104].to_dict("records")
    expected = distls.load_model(table / "run").predict(rows).tolist()
    assert len(set(expected)) > 1
    assert asyncio.run(ask_all(rows)) == [(200, [answer]) for answer in expected]
    assert asyncio.run(ask(rows[:9])) == (200, expected[:9])
    code, said = asyncio.run(ask({"age": 30, "shoe": 2}))
    assert code == 400
    assert "shoe" in said["error"]


def test_it_travels_by_pickle_without_what_it_caches(text):
    model = distls.load_model(text / "run")
    before = len(pickle.dumps(model))
    expected = model.predict(["wo ist es"])
    assert len(pickle.dumps(model)) == before
    assert pickle.loads(pickle.dumps(model)).predict(["wo ist es"]) == expected


@pytest.mark.slow
def test_nothing_is_written_and_no_cluster_is_loaded(text, tmp_path):
    code = f"""
        import sys, tempfile
        import distls
        model = distls.load_model({str(text / "run")!r})
        tempfile.mkdtemp = tempfile.mkstemp = None
        print(len(model.predict(["one", "two"])), {{"dask", "distributed", "zarr"}} & set(sys.modules))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert ran.stdout.split() == ["2", "set()"]
    assert not list(tmp_path.iterdir())


def test_known_categories_are_silent(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        distls.load_model(table / "run").predict({"age": [1], "job": ["12"], "size": [0.5]})


def test_the_features_of_a_row_times_the_weights_are_its_score(text, table):
    texts, _ = make_documents(50, seed=1)
    for root, rows in ((text, texts), (table, pd.read_csv(table / "test.csv").iloc[4:])):
        model = distls.load_model(root / "run")
        scores = model.transform(rows) @ model.coef_.T + model.intercept_
        assert np.allclose(scores, model.decision_function(rows), atol=1e-5)
