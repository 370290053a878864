"""The transforms of a single column of a table: of numbers before all others, of documents in their place."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, refuses
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.preprocessing import normalize

import distls
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, ParameterError
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")
N = 60
KIND = {"price": "number:log1p", "rank": "number:none"}


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": np.round(rng.normal(0, 4, N), 2),
            "price": np.round(np.exp(rng.normal(4, 2, N)), 2),
            "rank": rng.integers(1, 9, N),
            "note": [f"the rain fell on road {k}" for k in range(N)],
            "y": rng.integers(0, 2, N),
        }
    )


@pytest.mark.parametrize("note", [False, True], ids=["dense", "sparse"])
def test_a_column_has_a_transform_of_its_own(tmp_path, note):
    table = frame() if note else frame().drop(columns="note")
    table.to_csv(tmp_path / "a.csv", index=False)
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", shuffle=False, kind=KIND, transform="auto")
    data = open_dataset(tmp_path / "d")
    x = read_all(data)[0]
    found = dict(zip(data.feature_names(), x.T, strict=True))
    logged = np.log1p(table["price"].astype(np.float32))
    for name, values in (("price", logged), ("a", table["a"])):
        assert np.allclose(found[name], (values - values.mean()) / values.std(ddof=0), atol=1e-4)
    assert np.array_equal(found["rank"], table["rank"])
    shown = distls.info(tmp_path / "d")["table"]
    assert shown["a"].endswith("; standardize")
    assert shown["price"].endswith("; log1p, standardize")
    assert shown["rank"].endswith("; none")
    assert not note or shown["note"].endswith("; log1p, idf, l2norm")
    # later rows, in memory too
    ingest(table, tmp_path / "e", like=tmp_path / "d", shuffle=False)
    assert np.array_equal(read_all(open_dataset(tmp_path / "e"))[0], x)
    with pytest.raises(BadInputError, match="row 3: log1p of -5; values must be above -1"):
        ingest(table.assign(price=table["price"].where(table.index != 3, -5)), tmp_path / "f", like=tmp_path / "d",
               shuffle=False)  # fmt: skip


WORDS = {
    "none": lambda x: x,
    "tfidf": lambda x: TfidfTransformer().fit_transform(x).toarray(),
    "idf": lambda x: TfidfTransformer(norm=None).fit_transform(x).toarray(),
    "log1p+l2norm": lambda x: normalize(np.log1p(x)),
}


@pytest.mark.parametrize("chosen", WORDS)
@pytest.mark.parametrize("asked", [{}, {"transform": "auto"}], ids=["ingest", "train"])
def test_a_column_of_documents_has_transforms_of_its_own(tmp_path, chosen, asked):
    table = frame().assign(subject=[f"sun over road {k % 7} road" for k in range(N)])[["a", "subject", "note", "y"]]
    kind = {"subject": f"text:{chosen}", "note": "text"}
    report = ingest(table, tmp_path / "d", label_column="y", shuffle=False, kind=kind, n_features=64, **asked)
    data = open_dataset(tmp_path / "d")
    names, x = np.array(data.feature_names()), read_all(data)[0]

    def own(column, values):
        return values[:, [name.startswith(f"{column}[") for name in names]]

    counts = HashingVectorizer(n_features=64, norm=None, alternate_sign=False).transform(table["subject"]).toarray()
    if asked:  # which leaves out hashes of no word
        counts = counts[:, counts.any(axis=0)]
    assert np.allclose(own("subject", x), WORDS[chosen](counts), atol=1e-6)
    # the other one is as it would be beside a column without transforms of its own
    ingest(table, tmp_path / "e", label_column="y", shuffle=False, kind={**kind, "subject": "text"}, n_features=64,
           **asked)  # fmt: skip
    assert np.array_equal(own("note", x), own("note", read_all(open_dataset(tmp_path / "e"))[0]))
    shown = {name: text.partition("; ")[2] for name, text in distls.info(tmp_path / "d")["table"].items()}
    steps = {"tfidf": "idf, l2norm"}.get(chosen, chosen.replace("+", ", "))
    assert shown["subject"] == steps
    assert shown["note"] == ("log1p, idf, l2norm" if asked else "")
    assert not asked or any("transform auto: log1p,idf,l2norm,standardize" in note for note in report.notices)
    ingest(table, tmp_path / "f", like=tmp_path / "d", shuffle=False)
    assert np.array_equal(read_all(open_dataset(tmp_path / "f"))[0], x)


def test_exports_have_it(tmp_path):
    pipeline, table = pytest.importorskip("distls.interchange.sklearn_pipeline"), frame().drop(columns="note")
    table.to_csv(tmp_path / "a.csv", index=False)
    distls.train(tmp_path / "a.csv", tmp_path / "m", label_column="y", method="gls", params={"alpha": 0.1}, kind=KIND,
                 notify=print)  # fmt: skip
    model, rows = distls.load_model(tmp_path / "m"), table.drop(columns="y")
    own = model.predict_proba(rows)
    assert np.allclose(pipeline.pipeline_of(model)[0].predict_proba(rows.to_numpy()), own, atol=1e-5)
    runtime = pytest.importorskip("onnxruntime")
    distls.export(tmp_path / "m", tmp_path / "m.onnx", to="onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    made = session.run(["probabilities"], {"X": rows.to_numpy(np.float32)})[0]
    assert np.allclose(made, own, atol=1e-5)


def test_pipelines_and_single_rows_have_those_of_documents(tmp_path):
    pipeline, table = pytest.importorskip("distls.interchange.sklearn_pipeline"), frame()
    kind = {"note": "text:tfidf", "price": "number:log1p"}
    distls.train(table, tmp_path / "m", label_column="y", method="gls", params={"alpha": 0.1}, kind=kind, notify=print)
    model, rows = distls.load_model(tmp_path / "m"), table.drop(columns="y")
    own = model.predict_proba(rows)
    assert np.array_equal(model.predict_proba(rows.to_dict("records")), own)
    assert np.allclose(pipeline.pipeline_of(model)[0].predict_proba(rows), own, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "a=number:log2"}, "number:log1p and number:none"),
        ({"kind": "note=text:standardize"}, "kind text has no transform 'standardize': numbers have number:log1p"),
        ({"kind": "note=category:tfidf"}, "kind category has no transform 'tfidf'"),
        ({"kind": "note=set:idf"}, "kind set has no transform 'idf'"),
        ({"kind": "note=text:tfidf", "transform": "log1p", "ignore_columns": "a"}, "the transform log1p is for all"),
        (
            {"kind": "a=number:none", "transform": "l2norm", "ignore_columns": "note"},
            "the transform l2norm is for all columns",
        ),
        ({"kind": "b=number:log1p"}, 'no column "b"'),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path, options, message):
    frame().to_csv(tmp_path / "a.csv", index=False)
    refuses(ParameterError, message, ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y", **options)


# -- `transform=auto` ------------------------------------------------------------------------------------


SPARSE, Y = labelled_rows(60, 5, 2)
X = SPARSE.toarray()
TEXT = ["log1p", "idf", "l2norm"]


def _words(scale=1.0):
    counts = sp.random(40, 1500, 0.02, "csr", random_state=3)
    counts.data = scale * np.random.default_rng(1).integers(1, 5, counts.nnz).astype(np.float64)
    return counts


def _chosen(x, y, place):
    report = ingest(x, place, y=y, transform="auto")
    names = [step["name"] for step in open_dataset(place).meta.transforms]
    (notice,) = (text for text in report.notices if text.startswith("transform auto: "))
    return names, notice


def test_dense_rows_are_standardized(tmp_path):
    names, notice = _chosen(X, Y, tmp_path / "auto")
    assert names == ["standardize"]
    assert notice == "transform auto: standardize, for dense rows"
    ingest(X, tmp_path / "given", y=Y, transform="standardize")
    assert open_dataset(tmp_path / "auto").fingerprint == open_dataset(tmp_path / "given").fingerprint


def test_counts_of_words_get_idf_and_unit_rows(tmp_path):
    y = np.arange(40) % 2
    assert _chosen(_words(), y, tmp_path / "auto")[0] == TEXT
    ingest(_words(), tmp_path / "given", y=y, transform=TEXT)
    assert open_dataset(tmp_path / "auto").fingerprint == open_dataset(tmp_path / "given").fingerprint


@pytest.mark.parametrize(
    ("scale", "columns", "expected"),
    [
        (0.1, 1500, []),  # weights already, from 0.1 to 0.4
        (0.7, 1500, ["standardize"]),  # fractions above 1
        (-1.0, 1500, ["standardize"]),
        (1.0, 400, ["standardize"]),  # too few columns for words
    ],
)
def test_other_sparse_rows(tmp_path, scale, columns, expected):
    assert _chosen(_words(scale)[:, :columns], np.arange(40) % 2, tmp_path / "d")[0] == expected


def test_raw_text_is_text_however_short(tmp_path):
    (tmp_path / "a.txt").write_text("a\tone two\nb\tthree\na\tfour\n")
    ingest(tmp_path / "a.txt", tmp_path / "d", format="text", transform="auto")
    assert [step["name"] for step in open_dataset(tmp_path / "d").meta.transforms] == TEXT


def test_categories_of_a_table_are_not_words(tmp_path):
    lines = [f"c{i},{i % 7},{i % 2}" for i in range(1200)]
    (tmp_path / "a.csv").write_text("\n".join(["city,number,y", *lines]))
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", categorical=["city"], transform="auto")
    data = open_dataset(tmp_path / "d")
    assert data.meta.n_features == 1201
    assert [step["name"] for step in data.meta.transforms] == ["standardize"]


def test_rare_features_go_first(tmp_path):
    ingest(_words(), tmp_path / "d", y=np.arange(40) % 2, min_count=1, transform="auto")
    assert next(step["name"] for step in open_dataset(tmp_path / "d").meta.transforms) == "min_count"


def test_test_rows_take_what_was_chosen(tmp_path):
    _chosen(X, Y, tmp_path / "train")
    ingest(X, tmp_path / "test", y=Y, like=tmp_path / "train")
    train, test = open_dataset(tmp_path / "train").meta, open_dataset(tmp_path / "test").meta
    assert train.transforms_digest == test.transforms_digest


def test_auto_stands_alone(tmp_path):
    with pytest.raises(ParameterError, match="transform auto chooses all transforms; give it alone"):
        ingest(X, tmp_path / "d", y=Y, transform="auto,l2norm")
