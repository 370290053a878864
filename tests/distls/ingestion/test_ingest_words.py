"""Labels that are words: classes, like, splits, refusals."""

import csv

import numpy as np
import pytest
import scipy.sparse
from helpers import raised
from ingest_helpers import WORD_LABELS as NAMES
from ingest_helpers import make_words as arrays
from ingest_helpers import small_ranges  # noqa: F401

import distls
import distls.workers.ingestion.records.labels
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError
from distls.testing.formats import read_all

pytestmark = pytest.mark.usefixtures("small_ranges")


@pytest.mark.parametrize("kind", ["memory", "object", "sparse", "npy", "npz"])
def test_words_become_sorted_classes(tmp_path, kind):
    x, y = arrays()
    source, options = x, {"y": y.astype(object) if kind == "object" else y}
    if kind == "sparse":
        source = scipy.sparse.csr_array(x)
    elif kind == "npy":
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        source, options = tmp_path / "x.npy", {"labels": tmp_path / "y.npy"}
    elif kind == "npz":
        np.savez(tmp_path / "x.npz", X=x, y=y)
        source, options = tmp_path / "x.npz", {}
    ingest(source, tmp_path / "d", **options, shuffle=False, partition_size=2000)
    meta = open_dataset(tmp_path / "d").meta
    got_x, got_y = read_all(tmp_path / "d")
    assert meta.classes == sorted(NAMES.tolist())
    assert meta.label_counts == [int((y == name).sum()) for name in meta.classes]
    assert np.array_equal(np.array(meta.classes)[got_y], y)
    assert np.array_equal(got_x, x.astype(np.float32))


def test_numbers_written_as_text_are_numbers(tmp_path):
    x = np.arange(8.0).reshape(4, 2)
    ingest(x, tmp_path / "d", y=np.array(["10", "9", "9.0", "+10"]), shuffle=False)
    assert open_dataset(tmp_path / "d").meta.classes == [9, 10]
    assert read_all(tmp_path / "d")[1].tolist() == [1, 0, 0, 1]
    ingest(x, tmp_path / "c", y=np.array(["0.5", "1", "2", "3"]))
    assert open_dataset(tmp_path / "c").meta.target == "continuous"


def test_numbers_beside_words_are_words(tmp_path):
    x, y = np.ones((6, 1)), np.array(["b", "10", "9", "007", "9.0", "-0.5"])
    ingest(x, tmp_path / "d", y=y, shuffle=False, target="class")
    assert open_dataset(tmp_path / "d").meta.classes == ["-0.5", "007", "10", "9", "b"]
    assert read_all(tmp_path / "d")[1].tolist() == [4, 2, 3, 1, 3, 0]


def test_like_keeps_the_classes_and_appends_new_ones(tmp_path):
    x, y = arrays()
    ingest(x, tmp_path / "d", y=y)
    again = np.array(["zebra", "7", "bee", "zebra"])
    report = ingest(x[:4], tmp_path / "t", y=again, like=tmp_path / "d", shuffle=False)
    assert open_dataset(tmp_path / "t").meta.classes == [*sorted(NAMES.tolist()), "7", "bee"]
    assert read_all(tmp_path / "t")[1].tolist() == [2, 4, 5, 2]
    assert report.notices == (f"2 labels not in {tmp_path / 'd'} appended: 7, bee",)


def test_numbers_that_are_classes_with_words_beside_them(tmp_path):
    ingest(np.ones((3, 1)), tmp_path / "d", y=np.array(["a", "7", "8"]))
    report = ingest(np.ones((2, 1)), tmp_path / "t", y=np.array([7, 9]), like=tmp_path / "d", shuffle=False)
    assert open_dataset(tmp_path / "t").meta.classes == ["7", "8", "a", "9"]
    assert report.notices == (f"1 label not in {tmp_path / 'd'} appended: 9",)
    assert read_all(tmp_path / "t")[1].tolist() == [0, 3]


@pytest.mark.parametrize(
    ("known", "labels", "message"),
    [
        (["a", "b"], [1, 2], 'the classes of {d} are words, like "a", but these data have numbers, like 1'),
        ([1, 2], ["1", "x"], 'X, row 1: label "x" is a word, but the classes of {d} are numbers'),
    ],
)
def test_words_and_numbers_do_not_go_together(tmp_path, known, labels, message):
    ingest(np.ones((2, 1)), tmp_path / "d", y=np.array(known))
    said = raised(MismatchError, ingest, np.ones((2, 1)), tmp_path / "t", y=np.array(labels), like=tmp_path / "d")
    assert said == message.format(d=tmp_path / "d")
    assert not (tmp_path / "t").exists()


@pytest.mark.fast_cases("labels0", "labels3", "labels6")
@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["a", "", "b"], {}, "X, row 1: the label is empty"),
        (["a", "b", "c\ud800"], {}, "X, row 2: the label has a lone surrogate, which is no character"),
        (["1", "2", "x"], {"target": "continuous"},
         'X, row 2: label "x" is not a number, as a continuous target must be'),
        (["a", "0.5", "0.5"], {}, 'X, row 0: label "a" is a word, label 0.5 (X, row 1) a fraction; '
         "target=class makes classes of both"),
        (["a", "a", "a"], {}, "X: every label is a; two classes are needed at least"),
        (np.array(["a", 1, "b"], dtype=object), {}, "y: values of type object; real numbers or words are needed"),
        (np.array([["a"], ["b"], ["a"]]), {}, "y: string labels must be one-dimensional, got shape (3, 1)"),
    ],
)  # fmt: skip
def test_refused_words(tmp_path, labels, options, message):
    said = raised(BadInputError, ingest, np.ones((3, 1)), tmp_path / "d", y=np.array(labels), **options)
    assert said == message
    assert not (tmp_path / "d").exists()


def test_rows_without_a_label_are_skipped_when_asked(tmp_path):
    y = np.array(["a", "", "b"])
    report = ingest(np.ones((3, 1)), tmp_path / "d", y=y, on_error="skip", shuffle=False)
    assert report.skipped_lines == ("X, row 1: the label is empty",)
    assert read_all(tmp_path / "d")[1].tolist() == [0, 1]


def test_one_hash_for_two_words_in_different_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(distls.workers.ingestion.records.labels, "_hash", lambda word: float(len(word)))
    for name, word in (("a", "left"), ("b", "west")):
        np.savez(tmp_path / f"{name}.npz", X=np.ones((2, 1)), y=np.array([word, "other"]))
    said = raised(BadInputError, ingest, [tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "d")
    message = 'the labels "left" and "west" have the same hash; write one of them differently'
    assert said == message
    np.savez(tmp_path / "b.npz", X=np.ones((2, 1)), y=np.array([4, 5]))
    said = raised(BadInputError, ingest, [tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "d")
    assert said == 'the labels "left" and "4" have the same hash; write one of them differently'


def test_fractions_among_several_labels_are_classes_too(tmp_path):
    (tmp_path / "a.svm").write_text("0.5,2 1:1\n2 1:1\n7,0.25 1:1\n")
    ingest(tmp_path / "a.svm", tmp_path / "d", multilabel=True, shuffle=False)
    assert open_dataset(tmp_path / "d").meta.classes == [0.25, 0.5, 2, 7]
    assert read_all(tmp_path / "d")[1].tolist() == [1, 2, 2, 0, 3]


def test_words_from_fit_to_prediction(tmp_path):
    x, y = arrays()
    ingest(x, tmp_path / "d", y=y)
    ingest(x, tmp_path / "t", y=y, like=tmp_path / "d", shuffle=False)
    distls.fit("gls", tmp_path / "d", tmp_path / "run", params={"alpha": 1e-3})
    evaluation = distls.evaluate(tmp_path / "run", tmp_path / "t")
    distls.predict(tmp_path / "run", tmp_path / "t", tmp_path / "out.csv", top=2)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert np.mean([row["label"] != label for row, label in zip(rows, y, strict=True)]) == evaluation.error
    assert evaluation.error < 0.1
    assert {row["label_2"] for row in rows} <= set(NAMES.tolist())
    assert [row["class"] for row in evaluation.per_class()] == sorted(NAMES.tolist())
