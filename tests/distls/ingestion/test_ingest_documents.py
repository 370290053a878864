"""Raw text to data sets: recognition, fields, recipes taken over, refusals."""

import bz2
import gzip
import json
import shutil

import numpy as np
import pytest
from helpers import raised
from ingest_helpers import DOCUMENT_LABELS, make_documents, small_ranges, write_json, write_plain  # noqa: F401
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

import distls.ingestion.request.source_plan
import distls.workers.ingestion.formats.documents
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all

pytestmark = pytest.mark.usefixtures("small_ranges")


def vectorized(texts, **options):
    options = {"n_features": 64, "alternate_sign": False, "norm": None} | options
    return HashingVectorizer(**options).transform(texts)


@pytest.mark.parametrize(
    ("name", "pack"), [("a.jsonl", bytes), ("a.txt", bytes), ("a.gz", gzip.compress), ("a.bz2", bz2.compress)]
)
def test_json_lines_are_recognised(tmp_path, monkeypatch, name, pack):
    monkeypatch.setattr(distls.workers.ingestion.formats.documents, "_CHUNK_BYTES", 1000)
    texts, labels = make_documents()
    write_json(tmp_path / name, texts, labels, "intent", pack)
    report = ingest(tmp_path / name, tmp_path / "d", n_features=64, shuffle=False, partition_size=500)
    meta = open_dataset(tmp_path / "d").meta
    x, y = read_all(tmp_path / "d")
    assert np.array_equal(x, vectorized(texts).toarray())
    assert [meta.classes[code] for code in y] == labels
    assert (meta.classes, meta.zero_based, report.rows) == (sorted(DOCUMENT_LABELS), None, 150)
    assert len(open_dataset(tmp_path / "d")) > 5
    assert meta.source == {
        "format": "text",
        "files": [name],
        "recipe": {
            "n_features": 64, "ngrams": [1, 1], "analyzer": "word", "lowercase": True, "alternate_sign": False,
            "binary": False, "text_column": "text", "label_column": "intent", "weight_column": "",
        },
    }  # fmt: skip


def test_plain_lines_have_the_label_before_a_tab(tmp_path):
    texts, labels = make_documents()
    write_plain(tmp_path / "a.txt", texts, labels)
    ingest(tmp_path / "a.txt", tmp_path / "d", format="text", ngrams="1,2", n_features=64, shuffle=False)
    x, y = read_all(tmp_path / "d")
    classes = open_dataset(tmp_path / "d").meta.classes
    assert np.array_equal(x, vectorized(texts, ngram_range=(1, 2)).toarray())
    assert [classes[code] for code in y] == labels


def test_the_default_width(tmp_path):
    (tmp_path / "a.txt").write_text("1\tone\n2\ttwo\n")
    ingest(tmp_path / "a.txt", tmp_path / "d", format="text", shuffle=False)
    meta, part = open_dataset(tmp_path / "d").meta, open_dataset(tmp_path / "d").read(0)
    assert (meta.n_features, meta.classes) == (2**18, [1, 2])
    expected = vectorized(["one", "two"], n_features=2**18)
    assert np.array_equal(part.x.indices, expected.indices)


@pytest.mark.slow
def test_every_chunk_boundary_gives_the_same_rows(tmp_path, monkeypatch):
    text = "b\tsun rain\r\n\na\tfog\nb\t\nc\tüber über".encode()
    (tmp_path / "a.txt").write_bytes(text)
    expected = vectorized(["sun rain", "fog", "", "über über"]).toarray()
    for size in range(1, len(text) + 2):
        monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", size)
        ingest(tmp_path / "a.txt", tmp_path / "d", format="text", n_features=64, shuffle=False)
        x, y = read_all(tmp_path / "d")
        assert np.array_equal(x, expected)
        assert y.tolist() == [1, 0, 1, 2]
        shutil.rmtree(tmp_path / "d")


def test_weighting_is_left_to_the_transforms(tmp_path):
    texts, labels = make_documents()
    write_json(tmp_path / "a.jsonl", texts, labels)
    options = {"n_features": 64, "dtype": "float64"}
    ingest(tmp_path / "a.jsonl", tmp_path / "d", transform="idf,l2norm", shuffle=False, **options)
    expected = TfidfTransformer().fit_transform(vectorized(texts)).toarray()
    np.testing.assert_allclose(read_all(tmp_path / "d")[0], expected, rtol=1e-14)


def test_continuous_targets_weights_and_several_labels(tmp_path):
    lines = [{"text": "sun", "y": 0.5, "w": 2, "tags": ["a", "b"]}, {"text": "fog", "y": 1, "w": 0, "tags": []}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ingest(tmp_path / "a.jsonl", tmp_path / "d", weight_column="w", shuffle=False)
    data = open_dataset(tmp_path / "d")
    part = data.read(0)
    assert (data.meta.target, part.y.tolist(), part.sample_weight.tolist()) == ("continuous", [[0.5], [1.0]], [2, 0])
    ingest(tmp_path / "a.jsonl", tmp_path / "m", label_column="tags", multilabel=True, shuffle=False)
    tags = open_dataset(tmp_path / "m").read(0).y
    assert open_dataset(tmp_path / "m").meta.classes == ["a", "b"]
    assert (tags.indptr.tolist(), tags.indices.tolist()) == ([0, 2, 2], [0, 1])


def test_sets_of_labels_are_found_under_their_usual_name(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x y", "labels": ["b", "a"]}\n{"text": "z", "labels": []}\n')
    ingest(tmp_path / "a.jsonl", tmp_path / "d", multilabel=True)
    assert open_dataset(tmp_path / "d").meta.classes == ["a", "b"]


# -- like ------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    texts, labels = make_documents()
    write_json(tmp_path / "train.jsonl", texts, labels, "intent")
    options = {"ngrams": (1, 2), "lowercase": False, "binary": True, "n_features": 64}
    ingest(tmp_path / "train.jsonl", tmp_path / "train", transform="idf,l2norm", **options)
    return tmp_path / "train"


def test_like_takes_the_recipe_over(trained, tmp_path):
    texts, labels = make_documents(40, seed=1)
    write_json(tmp_path / "a.jsonl", texts, labels, "intent")
    write_plain(tmp_path / "b.txt", texts, labels)
    write_json(tmp_path / "c.jsonl", texts, labels, "label")
    write_json(tmp_path / "d.jsonl", texts, labels, "other")
    (tmp_path / "PK.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    for name, options in (
        ("a.jsonl", {}),
        ("b.txt", {}),
        ("c.jsonl", {}),
        ("d.jsonl", {"label_column": "other"}),
        ("PK.txt", {"unlabelled": True}),
    ):
        ingest(tmp_path / name, tmp_path / f"{name}.d", like=trained, shuffle=False, **options)
        x, y = read_all(tmp_path / f"{name}.d")
        rows = vectorized(texts, ngram_range=(1, 2), lowercase=False, binary=True).toarray()
        rows = rows * open_dataset(trained).features()["idf"]
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
        np.testing.assert_allclose(x, rows, rtol=1e-5)
        if y is not None:
            assert [sorted(DOCUMENT_LABELS)[code] for code in y] == labels
    meta = open_dataset(tmp_path / "b.txt.d").meta
    assert (meta.source["recipe"]["ngrams"], meta.source["recipe"]["text_column"]) == ([1, 2], "")


@pytest.mark.fast_cases("options0", "options5")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngrams": "2"}, "ngrams=(2, 2), but {d} has ngrams=(1, 2)"),
        ({"analyzer": "char"}, "analyzer=char, but {d} has analyzer=word"),
        ({"lowercase": True}, "lowercase=True, but {d} has lowercase=False"),
        ({"binary": False}, "binary=False, but {d} has binary=True"),
        ({"alternate_sign": True}, "alternate_sign=True, but {d} has alternate_sign=False"),
        ({"n_features": 32}, "n_features=32, but {d} has n_features=64"),
    ],
)
def test_another_recipe_is_refused(trained, tmp_path, options, message):
    said = raised(MismatchError, ingest, tmp_path / "train.jsonl", tmp_path / "t", like=trained, **options)
    assert said == message.format(d=trained)
    ingest(tmp_path / "train.jsonl", tmp_path / "t", like=trained, ngrams=[1, 2], n_features=64, binary=True)


def test_text_is_not_like_other_data(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n2 2:1\n")
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 1}')
    ingest(tmp_path / "a.svm", tmp_path / "d")
    said = raised(MismatchError, ingest, tmp_path / "a.jsonl", tmp_path / "t", like=tmp_path / "d", n_features=2)
    message = f"{tmp_path}/a.jsonl is raw text, but {tmp_path}/d has features of svmlight sources"
    assert said == message


# -- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_bad_lines_have_the_number_they_have_in_the_file(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(distls.workers.ingestion.formats.documents, "_CHUNK_BYTES", 300)
    texts, labels = make_documents()
    write_json(tmp_path / "a.jsonl", texts, labels)
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    lines[80], lines[120] = '{"text": 5, "label": 1}', "oops"
    (tmp_path / "a.jsonl").write_bytes(pack("\n".join(lines).encode()))
    first = f'{tmp_path}/a.jsonl:81: "{{"text": 5, "label": 1}}": field "text" must be a string'
    second = f'{tmp_path}/a.jsonl:121: "oops": not JSON (Expecting value: line 1 column 1 (char 0))'
    assert raised(BadInputError, ingest, tmp_path / "a.jsonl", tmp_path / "d").startswith(first)
    assert not (tmp_path / "d").exists()
    report = ingest(tmp_path / "a.jsonl", tmp_path / "d", on_error="skip")
    assert (report.rows, report.skipped_lines) == (148, (first, second))


@pytest.mark.fast_cases('\\{"a"', "a\\\\tb-options3", "1", "a\\\\tsun\\\\nb\\\\thail")
@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ('{"a": 1, "b": "x"}', {"format": "text"}, BadInputError,
         '{a}: no field named label, class, category, intent, target, y, labels; the first record has "a", "b": '
         "name one with --label-column or ingest --unlabelled"),
        ('{"label": 1, "b": "x"}', {"format": "text"}, BadInputError,
         '{a}: no field named text, document, sentence, content, body; the first record has "label", "b": '
         "name one with --text-column"),
        ('{"label": ', {}, BadInputError,
         "{a}: no field named label, class, category, intent, target, y, labels; the first record has none that can be "
         "read on its line: name one with --label-column or ingest --unlabelled"),
        ("a\tb", {"format": "text", "label_column": "c"}, ParameterError,
         "label_column is for JSON lines; the lines of {a} are LABEL<TAB>DOCUMENT, or documents with unlabelled"),
        ("a\tb", {"format": "text", "zero_based": "yes"}, ParameterError,
         "zero_based is for sources of format svmlight, these are text"),
        ("a\tb", {"format": "text", "n_features": 2**31}, ParameterError,
         "n_features=2147483648: text is hashed into 2147483647 columns at most"),
        ("1 1:1", {"ngrams": "1,2"}, ParameterError,
         "ngrams is for sources of format text or csv or parquet or jsonl, these are svmlight"),
        ("a\tb", {"format": "text", "ngrams": "2,1"}, ParameterError,
         "ngrams are the shortest and the longest, as in 1,2; '2,1' was given"),
        ("a\tb", {"format": "text", "analyzer": "words"}, ParameterError,
         "analyzer must be one of word, char, char_wb, not 'words'"),
        ("a\tsun\nb\thail", {"format": "text", "transform": "log1p", "alternate_sign": True, "n_features": 1},
         BadInputError, "{a}:2: log1p of -1; values must be above -1"),
    ],
)  # fmt: skip
def test_refused_options_and_fields(tmp_path, text, options, error, message):
    (tmp_path / "a.x").write_text(text)
    said = raised(error, ingest, tmp_path / "a.x", tmp_path / "d", **options)
    assert said == message.format(a=tmp_path / "a.x")
    assert not (tmp_path / "d").exists()


def test_memory_arrays_have_no_recipe(tmp_path):
    assert (
        raised(ParameterError, ingest, np.ones((2, 2)), tmp_path / "d", y=[0, 1], binary=True)
        == "binary is for sources of format text or csv or parquet or jsonl, these are arrays in memory"
    )


def test_a_first_record_of_more_than_64_kib_is_read(tmp_path):
    rows = [{"text": "w " * 40_000, "label": "a"}, {"text": "short one", "label": "b"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ingest(tmp_path / "a.jsonl", tmp_path / "d").rows == 2
