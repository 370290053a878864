"""Svmlight text to data sets: rows, transforms, splits, bits."""

import shutil

import numpy as np
import pytest
from helpers import raised
from ingest_helpers import file_bytes, make_text, small_ranges, sorted_rows  # noqa: F401
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

import distls.ingestion.request.source_plan
from distls import ingest, open_dataset
from distls.storage.errors import MismatchError
from distls.testing.formats import read_all

pytestmark = pytest.mark.usefixtures("small_ranges")


def test_text_becomes_shuffled_partitions_of_the_same_rows(tmp_path):
    source = tmp_path / "a.svm"
    source.write_text(make_text())
    calls = []
    report = ingest(source, tmp_path / "d", partition_size=4000, progress=lambda *call: calls.append(call))
    x, y = load_svmlight_file(str(source))
    data = open_dataset(tmp_path / "d")
    got_x, got_y = read_all(tmp_path / "d")
    assert np.array_equal(sorted_rows(got_x, got_y), sorted_rows(x.toarray().astype(np.float32), y))
    assert not np.array_equal(got_y, y)
    assert (data.meta.classes, data.meta.zero_based, data.meta.n_features) == ([0, 1, 2], False, 50)
    assert data.meta.label_counts == np.bincount(y.astype(int)).tolist()
    assert (report.rows, report.nnz, report.notices) == (400, x.nnz, ())
    assert len(data) > 5
    assert 0.5 < data.decoded_bytes.max() / 4000 < 1.5
    assert not (tmp_path / "d" / ".ingest").exists()
    size = source.stat().st_size
    assert [call for call in calls if call[2] == "parse"][::10][0] == (0, size, "parse")
    assert (size, size, "parse") in calls


def test_rows_keep_their_order_without_shuffle(tmp_path):
    (tmp_path / "a.svm").write_text(make_text(300))
    (tmp_path / "b.svm").write_text(make_text(100, seed=1))
    files = [tmp_path / "a.svm", tmp_path / "b.svm"]
    ingest(files, tmp_path / "d", shuffle=False, partition_size=3000)
    x = np.concatenate([load_svmlight_file(str(f), n_features=50)[0].toarray() for f in files])
    y = np.concatenate([load_svmlight_file(str(f))[1] for f in files])
    got_x, got_y = read_all(tmp_path / "d")
    assert np.array_equal(got_x, x.astype(np.float32))
    assert np.array_equal(got_y, y)
    assert len(open_dataset(tmp_path / "d")) > 5


def test_every_chunk_boundary_gives_the_same_rows(tmp_path, monkeypatch):
    text = "1 1:1\r\n\n-1 2:2 # c\n1 3:3\n# 1 1:1\n1 4:4\n\n-1 1:5"
    (tmp_path / "a.svm").write_text(text)
    for size in range(1, len(text) + 2):
        monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", size)
        ingest(tmp_path / "a.svm", tmp_path / "d", shuffle=False)
        x, y = read_all(tmp_path / "d")
        assert x.tolist() == np.array([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4], [5, 0, 0, 0]]).tolist()
        assert y.tolist() == [1, 0, 1, 1, 0]
        shutil.rmtree(tmp_path / "d")


def test_zero_based_is_decided_over_the_whole_input(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n" * 600 + "0 0:2 5:1\n")
    ingest(tmp_path / "a.svm", tmp_path / "d")
    meta = open_dataset(tmp_path / "d").meta
    assert (meta.zero_based, meta.n_features) == (True, 6)
    ingest(tmp_path / "a.svm", tmp_path / "e", n_features=9, zero_based="yes", dtype="float64")
    meta = open_dataset(tmp_path / "e").meta
    assert (meta.zero_based, meta.n_features, meta.dtype) == (True, 9, "float64")


def test_multilabel_unlabelled_and_continuous(tmp_path):
    (tmp_path / "m.svm").write_text("5,3 1:1\n 2:2\n7 1:1\n")
    ingest(tmp_path / "m.svm", tmp_path / "m", multilabel=True, shuffle=False)
    part, meta = open_dataset(tmp_path / "m").read(0), open_dataset(tmp_path / "m").meta
    assert (meta.target, meta.classes, meta.label_counts) == ("multilabel", [3, 5, 7], [1, 1, 1])
    assert (part.y.indptr.tolist(), part.y.indices.tolist()) == ([0, 2, 2, 3], [0, 1, 2])

    (tmp_path / "u.svm").write_text("1:1 2:2\n2:3\n")
    ingest(tmp_path / "u.svm", tmp_path / "u", unlabelled=True)
    assert open_dataset(tmp_path / "u").meta.target == "none"
    assert sorted(read_all(tmp_path / "u")[0].tolist()) == [[0, 3], [1, 2]]

    (tmp_path / "c.svm").write_text("1 1:1\n2.5 2:2\n")
    report = ingest(tmp_path / "c.svm", tmp_path / "c", shuffle=False)
    part, meta = open_dataset(tmp_path / "c").read(0), open_dataset(tmp_path / "c").meta
    assert (meta.target, meta.n_targets, meta.classes) == ("continuous", 1, [])
    assert part.y.tolist() == [[1.0], [2.5]]
    assert report.notices == (
        f"label 2.5 ({tmp_path}/c.svm:2) is not a whole number: labels are a continuous target (regression)",
    )
    ingest(tmp_path / "c.svm", tmp_path / "cc", target="class")
    assert open_dataset(tmp_path / "cc").meta.classes == [1, 2.5]


def test_transforms_agree_with_scikit_learn_and_are_taken_over(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())
    (tmp_path / "b.svm").write_text(make_text(100, seed=5))
    ingest(tmp_path / "a.svm", tmp_path / "d", shuffle=False, transform="log1p,idf,l2norm", dtype="float64")
    ingest(tmp_path / "b.svm", tmp_path / "e", shuffle=False, like=tmp_path / "d", dtype="float64")
    x = load_svmlight_file(str(tmp_path / "a.svm"))[0]
    b = load_svmlight_file(str(tmp_path / "b.svm"), n_features=50)[0]
    counts = TfidfTransformer(norm=None).fit(x)
    for source, name in ((x, "d"), (b, "e")):
        logged = source.copy()
        logged.data = np.log1p(logged.data)
        expected = normalize(counts.transform(logged)).toarray()
        np.testing.assert_allclose(read_all(tmp_path / name)[0], expected, rtol=1e-12)
    train, test = open_dataset(tmp_path / "d"), open_dataset(tmp_path / "e")
    assert train.meta.transforms_digest == test.meta.transforms_digest != ""
    assert np.array_equal(train.features()["idf"], test.features()["idf"])


def test_split_is_exact_stratified_and_fits_on_the_rest(tmp_path):
    text = "".join(f"{label} {i + 1}:1 5000:1\n" for i, label in enumerate([0] * 700 + [1] * 200 + [2] * 33))
    (tmp_path / "a.svm").write_text(text)
    report = ingest(
        tmp_path / "a.svm", tmp_path / "d", split={"val": 0.1, "test": 0.25}, transform="idf", partition_size=2000,
    )  # fmt: skip
    assert report.paths == tuple(tmp_path / name for name in ("d", "d-val", "d-test"))
    train, val, test = (open_dataset(path) for path in report.paths)
    assert val.meta.label_counts == [70, 20, 3]
    assert test.meta.label_counts == [175, 50, 8]
    assert train.meta.label_counts == [455, 130, 22]
    rows = np.concatenate([read_all(path)[0].argmax(axis=1) for path in report.paths])
    assert np.array_equal(np.sort(rows), np.sort(np.r_[np.arange(933)]))
    assert train.features()["idf"][4999] == 1.0
    seen = np.log((1 + 607) / 2) + 1
    assert np.count_nonzero(train.features()["idf"][:933] == seen) == 607
    assert np.array_equal(val.features()["idf"], train.features()["idf"])


def test_like_takes_classes_width_and_base(tmp_path):
    (tmp_path / "a.svm").write_text("3 1:1 4:1\n5 2:1\n")
    (tmp_path / "b.svm").write_text("5 1:1\n9 3:1\n4 1:1\n")
    ingest(tmp_path / "a.svm", tmp_path / "d")
    report = ingest(tmp_path / "b.svm", tmp_path / "e", like=tmp_path / "d", shuffle=False)
    meta = open_dataset(tmp_path / "e").meta
    assert (meta.classes, meta.n_features, meta.zero_based) == ([3, 5, 4, 9], 4, False)
    assert report.notices == (f"2 labels not in {tmp_path}/d appended: 4, 9",)
    assert read_all(tmp_path / "e")[1].tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "3 1:1\n\n5 7:1\n",
            {},
            "{b}:3: index 7, but {d} has 4 features; --unknown-features ignore leaves out the "
            "others, --n-features at the ingest of the training data makes room for them",
        ),
        ("3 0:1\n", {}, "{b}:1: index 0, but the features of {d} count from 1"),
        ("3 1:1\n", {"zero_based": "yes"}, "the features of {d} count from 1, zero_based says from 0"),
        ("3 1:1\n", {"n_features": 7}, "n_features=7, but {d} has 4"),
        ("3.5 1:1\n", {}, "{d} has a class target, these data a continuous one"),
    ],
)
def test_like_refuses_what_does_not_go_with_it(tmp_path, text, options, message):
    (tmp_path / "a.svm").write_text("3 1:1 4:1\n5 2:1\n")
    (tmp_path / "b.svm").write_text(text)
    ingest(tmp_path / "a.svm", tmp_path / "d")
    said = raised(MismatchError, ingest, tmp_path / "b.svm", tmp_path / "e", like=tmp_path / "d", **options)
    assert said == message.format(b=tmp_path / "b.svm", d=tmp_path / "d")
    assert not (tmp_path / "e").exists()


def test_a_byte_order_mark_is_passed_over(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf1 1:2\n0 2:1\n")
    ingest(tmp_path / "a", tmp_path / "d", shuffle=False)
    x, y = read_all(tmp_path / "d")
    assert (x.tolist(), y.tolist()) == ([[2, 0], [0, 1]], [1, 0])


@pytest.mark.parametrize(("n_rows", "several"), [(60, True), (300, False)])
def test_whole_numbers_that_look_like_a_quantity(tmp_path, n_rows, several):
    (tmp_path / "a.svm").write_text("".join(f"{20 + n % 40} 1:{n}\n" for n in range(n_rows)))
    report = ingest(tmp_path / "a.svm", tmp_path / "d")
    notice = (
        f"40 classes in {n_rows} rows: whole numbers are taken for classes; "
        "--target continuous if they are a quantity (regression)"
    )
    assert report.notices == ((notice,) if several else ())
    # who says so is not told
    assert ingest(tmp_path / "a.svm", tmp_path / "e", target="class").notices == ()


@pytest.mark.parametrize(("step", "first", "said"), [(1, 0, False), (1, 1, False), (1, 2, True), (2, 0, True)])
def test_whole_numbers_without_a_gap_are_codes(tmp_path, step, first, said):
    # of a quantity with 40 values, 60 rows would miss several
    lines = [f"{first + step * (n % 40)} 1:{n}\n" for n in range(60)]
    (tmp_path / "a.svm").write_text("".join(lines))
    assert bool(ingest(tmp_path / "a.svm", tmp_path / "d").notices) is said
