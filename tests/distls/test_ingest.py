from __future__ import annotations

import bz2
import gzip
import os
import shutil
import struct

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

import distls.ingestion.plan
import distls.ingestion.run
import distls.workers.ingest
import distls.workers.text
from distls.execution.serial import SerialExecutor
from distls.ingestion import ingest
from distls.storage.dataset import open_dataset
from distls.storage.errors import (
    BadInputError,
    FormatError,
    IncompleteError,
    MismatchError,
    ParameterError,
    StorageError,
)
from distls.storage.rows import CsrRows


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    """Many items from little text."""
    monkeypatch.setattr(distls.ingestion.plan, "RANGE_BYTES", 2000)


def make_text(n_rows=400, n_features=50, n_classes=3, seed=0, base=1) -> str:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        columns = np.flatnonzero(random.random(n_features) < 0.2) + base
        values = random.integers(1, 1000, len(columns)) / 100
        pairs = " ".join(f"{c}:{v}" for c, v in zip(columns.tolist(), values.tolist(), strict=True))
        lines.append(f"{random.integers(n_classes)} {pairs}\n")
    return "".join(lines)


def read_all(path):
    """Return (dense X, y) of a dataset, partitions in order."""
    data = open_dataset(path)
    xs, ys = [], []
    for index in range(len(data)):
        part = data.read(index)
        if isinstance(part.x, CsrRows):
            shape = (len(part.x.indptr) - 1, data.meta.n_features)
            xs.append(scipy.sparse.csr_matrix((part.x.data, part.x.indices, part.x.indptr), shape).toarray())
        else:
            xs.append(part.x.values.copy())
        ys.append(
            None if part.y is None else np.array(part.y.indices if isinstance(part.y, CsrRows) else part.y)
        )
    y = None if ys[0] is None else np.concatenate(ys)
    return np.concatenate(xs), y


def sorted_rows(x, y=None):
    table = x if y is None else np.column_stack([y, x])
    return table[np.lexsort(table.T)]


def file_bytes(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


class Reversed(SerialExecutor):
    """Another schedule: items run last first, results come in order all the same."""

    def map(self, function, items, *, shared=None):
        results = {n: function(shared, items[n]) for n in reversed(range(len(items)))}
        return iter([results[n] for n in range(len(items))])


class Killed(Exception):
    pass


class Dying(SerialExecutor):
    """Dies after so many tasks."""

    def __init__(self, tasks):
        self.tasks = tasks

    def map(self, function, items, *, shared=None):
        for item in items:
            if self.tasks == 0:
                raise Killed
            self.tasks -= 1
            yield function(shared, item)


# -- what is read ----------------------------------------------------------------------------------------


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
        monkeypatch.setattr(distls.ingestion.plan, "RANGE_BYTES", size)
        ingest(tmp_path / "a.svm", tmp_path / "d", shuffle=False)
        x, y = read_all(tmp_path / "d")
        assert (
            x.tolist()
            == np.array([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4], [5, 0, 0, 0]]).tolist()
        )
        assert y.tolist() == [1, 0, 1, 1, 0]
        shutil.rmtree(tmp_path / "d")


@pytest.mark.parametrize(
    ("name", "pack"), [("a.gz", gzip.compress), ("a.bz2", bz2.compress), ("a.svm.gz", gzip.compress)]
)
def test_compressed_text(tmp_path, monkeypatch, name, pack):
    text = make_text().encode()
    (tmp_path / name).write_bytes(pack(text))
    (tmp_path / "plain.svm").write_bytes(text)
    for file in (name, "plain.svm"):
        ingest(tmp_path / file, tmp_path / f"d-{file}", shuffle=False)
    assert np.array_equal(read_all(tmp_path / f"d-{name}")[0], read_all(tmp_path / "d-plain.svm")[0])


def test_same_bits_whatever_runs_it(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())
    options = {"partition_size": 4000, "split": ["test=0.25"], "transform": "log1p,idf,l2norm", "seed": 3}
    ingest(tmp_path / "a.svm", tmp_path / "d1", **options)
    ingest(tmp_path / "a.svm", tmp_path / "d2", **options, executor=Reversed())
    assert file_bytes(tmp_path / "d1") == file_bytes(tmp_path / "d2")
    assert file_bytes(tmp_path / "d1-test") == file_bytes(tmp_path / "d2-test")
    ingest(tmp_path / "a.svm", tmp_path / "d3", **{**options, "seed": 4})
    assert file_bytes(tmp_path / "d1") != file_bytes(tmp_path / "d3")


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
        f"label 2.5 ({tmp_path}/c.svm:2) is not a whole number: labels are a continuous target",
    )
    ingest(tmp_path / "c.svm", tmp_path / "cc", target="class")
    assert open_dataset(tmp_path / "cc").meta.classes == [1, 2.5]


# -- transforms, like, split -----------------------------------------------------------------------------


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
        tmp_path / "a.svm",
        tmp_path / "d",
        split={"val": 0.1, "test": 0.25},
        transform="idf",
        partition_size=2000,
    )
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
        ("3 1:1\n\n5 7:1\n", {}, "{b}:3: index 7, but {d} has 4 features"),
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
    with pytest.raises(MismatchError) as caught:
        ingest(tmp_path / "b.svm", tmp_path / "e", like=tmp_path / "d", **options)
    assert str(caught.value) == message.format(b=tmp_path / "b.svm", d=tmp_path / "d")
    assert not (tmp_path / "e").exists()


# -- arrays ----------------------------------------------------------------------------------------------


def write_idx(path, array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def arrays(seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (60, 5, 4)).astype(np.uint8), random.integers(0, 4, 60).astype(np.uint8)


@pytest.mark.parametrize("kind", ["idx", "idx.gz", "npy", "npz", "npz-y", "memory"])
def test_dense_sources(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(distls.ingestion.plan, "RANGE_BYTES", 800)
    x, y = arrays()
    options = {"labels": tmp_path / "labels.npy"}
    source = tmp_path / f"x.{kind}"
    np.save(tmp_path / "labels.npy", y)
    if kind.startswith("idx"):
        write_idx(source, x)
        write_idx(tmp_path / "labels.idx.gz", y)
        options = {"labels": tmp_path / "labels.idx.gz"}
    elif kind == "npy":
        np.save(source, x)
    elif kind == "npz":
        source = tmp_path / "x.npz"
        np.savez(source, X=x)
    elif kind == "npz-y":
        source = tmp_path / "x.npz"
        np.savez_compressed(source, data=x, y=y)
        options = {}
    else:
        source, options = x.reshape(60, 20), {"y": y}
    ingest(source, tmp_path / "d", **options, shuffle=False, transform="scale=255", partition_size=700)
    meta = open_dataset(tmp_path / "d").meta
    got_x, got_y = read_all(tmp_path / "d")
    assert np.array_equal(got_x, x.reshape(60, 20).astype(np.float32) / np.float32(255))
    assert np.array_equal(got_y, y)
    assert (meta.layout, meta.dtype, meta.zero_based, len(open_dataset(tmp_path / "d"))) == (
        "dense",
        "float32",
        None,
        8,
    )
    shutil.rmtree(tmp_path / "d")
    ingest(
        source, tmp_path / "d", **options, split=["t=0.5"], transform="log1p,idf,l2norm", partition_size=700
    )
    assert open_dataset(tmp_path / "d-t").meta.label_counts == [round(n / 2) for n in np.bincount(y)]


@pytest.mark.parametrize("kind", ["npz", "memory"])
def test_sparse_sources(tmp_path, monkeypatch, kind):
    x = scipy.sparse.random_array((80, 30), density=0.2, rng=np.random.default_rng(0), format="csr")
    y = np.arange(80) % 3
    np.save(tmp_path / "y.npy", y)
    scipy.sparse.save_npz(tmp_path / "x.npz", x)
    source, options = (tmp_path / "x.npz", {"labels": tmp_path / "y.npy"}) if kind == "npz" else (x, {"y": y})
    ingest(source, tmp_path / "d", **options, shuffle=False, partition_size=1000, dtype="float64")
    got_x, got_y = read_all(tmp_path / "d")
    assert np.array_equal(got_x, x.toarray())
    assert np.array_equal(got_y, y)
    assert open_dataset(tmp_path / "d").meta.layout == "csr"


def test_memory_arrays_with_weights_and_targets(tmp_path):
    x = np.arange(12.0).reshape(6, 2)
    targets, weight = np.arange(12.0).reshape(6, 2) / 3, np.array([0, 1, 2, 0.5, 1, 1])
    ingest(x, tmp_path / "d", y=targets, sample_weight=weight)
    data = open_dataset(tmp_path / "d")
    part = data.read(0)
    assert (data.meta.target, data.meta.n_targets, data.meta.weighted) == ("continuous", 2, True)
    order = np.argsort(part.x.values[:, 0])
    assert np.array_equal(part.y[order], targets)
    assert np.array_equal(part.sample_weight[order], weight.astype(np.float32))
    assert data.meta.weight_sum == 5.5


def test_unsorted_and_repeated_columns_of_a_matrix_are_put_in_order(tmp_path):
    x = scipy.sparse.csr_matrix(
        (np.array([1.0, 2, 3, 0, 4]), np.array([2, 0, 2, 1, 1]), np.array([0, 3, 5])), (2, 3)
    )
    ingest(x, tmp_path / "d", y=np.array([0, 1]), shuffle=False)
    part = open_dataset(tmp_path / "d").read(0)
    assert part.x.indices.tolist() == [0, 2, 1]
    assert part.x.data.tolist() == [2, 4, 4]


# -- refusals --------------------------------------------------------------------------------------------


def test_bad_lines_have_the_number_they_have_in_the_file(tmp_path, monkeypatch):
    lines = make_text(120).splitlines()
    lines[77] = "1 5:1 3:1"
    (tmp_path / "a.svm").write_text("\n".join(lines))
    message = f'{tmp_path}/a.svm:78: "3:1": index 3 comes after index 5; indices must increase within a row'
    for size in (50, 700, 10**6):
        monkeypatch.setattr(distls.ingestion.plan, "RANGE_BYTES", size)
        with pytest.raises(BadInputError) as caught:
            ingest(tmp_path / "a.svm", tmp_path / "d", executor=Reversed())
        assert str(caught.value) == message
        assert not (tmp_path / "d").exists()
    report = ingest(tmp_path / "a.svm", tmp_path / "d", on_error="skip")
    assert (report.rows, report.skipped, report.skipped_lines) == (119, 1, (message,))
    assert report.notices == (f"1 line skipped; the first: {message}",)


def test_bad_lines_of_a_compressed_file_have_their_number_too(tmp_path):
    lines = make_text(300).splitlines()
    lines[211] = "1 5:x"
    lines[250] = "y 5:1"
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(BadInputError) as caught:
        ingest(tmp_path / "a.svm.gz", tmp_path / "d")
    first = f'{tmp_path}/a.svm.gz:212: "5:x": a value must be a decimal number'
    assert str(caught.value) == first
    report = ingest(tmp_path / "a.svm.gz", tmp_path / "d", on_error="skip")
    second = f'{tmp_path}/a.svm.gz:251: "y": a label must be a decimal number'
    assert (report.rows, report.skipped, report.skipped_lines) == (298, 2, (first, second))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_cannot_be_a_row_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(distls.workers.text, "MAX_LINE", 5000)
    monkeypatch.setattr(distls.workers.text, "_PIECE", 100)
    (tmp_path / "a.svm").write_bytes(pack(b"1 1:1\n\n2 " + b"1" * 20_000 + b"\n"))
    with pytest.raises(BadInputError) as caught:
        ingest(tmp_path / "a.svm", tmp_path / "d")
    assert str(caught.value) == f"{tmp_path}/a.svm:3: a line of more than 0 MiB: not svmlight text"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1 1:1\n1 2:1\n", {}, "{a}: every label is 1; two classes are needed at least"),
        ("# nothing\n\n", {}, "{a}: no rows"),
        ("x\ny\n", {"on_error": "skip"}, "{a}: no rows; all 2 lines with content were refused"),
        ("1\n2\n", {}, "{a}: no row has a feature; give n_features if that is meant"),
        ("1 1:1\n2 9:1\n", {"n_features": 3}, "{a}:2: index 9 does not fit into n_features=3"),
        ("1 0:1\n2 9:1\n", {"zero_based": "no"}, '{a}:1: "0:1": index 0 in a file that was declared to count from 1'
         " (--zero-based no)"),
        ("1 1:1\n# c\n2 2:-1\n", {"transform": "log1p"}, "{a}:3: log1p of -1; values must be above -1"),
        ("1 1:1\n2 2:-8\n", {"transform": "scale=4,log1p"}, "{a}:2: log1p of -2; values must be above -1"),
        ("", {}, "{a}: the file is empty"),
    ],
)  # fmt: skip
def test_refused_text(tmp_path, text, options, message):
    (tmp_path / "a.svm").write_text(text)
    with pytest.raises(BadInputError) as caught:
        ingest(tmp_path / "a.svm", tmp_path / "d", **options)
    assert str(caught.value) == message.format(a=tmp_path / "a.svm")
    assert not (tmp_path / "d").exists()


def test_refused_sources(tmp_path):
    def refusal(source, **options):
        with pytest.raises(BadInputError) as caught:
            ingest(source, tmp_path / "d", **options)
        assert not (tmp_path / "d").exists()
        return str(caught.value)

    (tmp_path / "a.csv").write_text("1,2,3\n4,5,6\n")
    assert refusal(tmp_path / "a.csv") == (
        f'{tmp_path}/a.csv: not recognised by its name or its start ("1,2,3"); '
        "name its format, one of svmlight, npz, npy, idx"
    )
    assert refusal(tmp_path / "none.svm") == f"{tmp_path}/none.svm: no such file"
    assert refusal(tmp_path) == f"{tmp_path}: a folder; name the files in it"
    whole = gzip.compress(make_text().encode())
    (tmp_path / "cut.svm.gz").write_bytes(whole[: len(whole) // 2])
    assert refusal(tmp_path / "cut.svm.gz", format="svmlight").startswith(
        f"{tmp_path}/cut.svm.gz: damaged or cut short gzip file ("
    )
    np.save(tmp_path / "x.npy", np.array([[1.0, 2], [np.nan, 1], [3, 4]]))
    np.save(tmp_path / "y.npy", np.array([0, 1, 0]))
    np.save(tmp_path / "short.npy", np.array([0, 1]))
    assert refusal(tmp_path / "x.npy", labels=tmp_path / "y.npy") == (
        f"{tmp_path}/x.npy, row 1: a value is not finite in float32"
    )
    assert (
        refusal(tmp_path / "x.npy", labels=tmp_path / "short.npy")
        == f"{tmp_path}/short.npy: 2 labels for 3 rows"
    )
    assert (
        refusal(tmp_path / "x.npy")
        == f"{tmp_path}/x.npy: no labels; give their file with --labels, or --unlabelled"
    )
    assert refusal(np.array([[1.0], [1e300]]), y=[0, 1]) == "X, row 1: a value is not finite in float32"
    assert refusal(np.ones((2, 2)), y=[0, np.inf]) == "X, row 1: the label is not finite"
    assert refusal(np.ones((2, 2)), y=[0]) == "y: shape (1,) does not go with the 2 rows of X"
    assert (
        refusal(np.array([["a"]]), y=[0])
        == "X: an array of shape (1, 1) and type <U1; rows of real numbers are needed"
    )
    assert (
        refusal(-np.ones((2, 1)), y=[0, 1], transform="log1p")
        == "X, row 0: log1p of -1; values must be above -1"
    )
    report = ingest(
        tmp_path / "x.npy", tmp_path / "d", labels=tmp_path / "y.npy", on_error="skip", target="continuous"
    )
    assert (report.rows, report.skipped) == (2, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": ["a"]}, "a split is NAME=FRACTION with a fraction between 0 and 1, not 'a'"),
        ({"split": ["a=1.5"]}, "a split is NAME=FRACTION with a fraction between 0 and 1, not 'a=1.5'"),
        ({"split": ["a=.5", "b=.5"]}, "the fractions of all splits must add up to less than 1"),
        ({"split": ["a=.2", "a=.5"]}, "two splits have the same name"),
        ({"format": "csv"}, "format must be one of auto, svmlight, npz, npy, idx, not 'csv'"),
        ({"transform": "sqrt"}, "unknown transform 'sqrt'; there are log1p, idf, l2norm, scale"),
        ({"unlabelled": True, "multilabel": True}, "unlabelled and multilabel exclude each other"),
        ({"labels": "y.npy"}, "labels is for array sources; svmlight text has its own"),
        ({"y": [1]}, "y and sample_weight go with arrays in memory; files were given"),
        ({"split": {"a": 0.001}}, "split a=0.001 of 20 rows holds out none"),
    ],
)
def test_refused_options(tmp_path, options, message):
    (tmp_path / "a.svm").write_text(make_text(20))
    with pytest.raises(ParameterError) as caught:
        ingest(tmp_path / "a.svm", tmp_path / "d", **options)
    assert str(caught.value) == message
    assert not (tmp_path / "d").exists()


def test_an_existing_folder_is_not_touched(tmp_path):
    (tmp_path / "a.svm").write_text(make_text(20))
    ingest(tmp_path / "a.svm", tmp_path / "d")
    before = file_bytes(tmp_path / "d")
    with pytest.raises(StorageError) as caught:
        ingest(tmp_path / "a.svm", tmp_path / "d")
    assert str(caught.value) == f"{tmp_path}/d: exists already; remove it or choose another name"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(StorageError):
        ingest(tmp_path / "a.svm", tmp_path / "mine")
    (tmp_path / "new-x").write_text("a file")
    with pytest.raises(StorageError):
        ingest(tmp_path / "a.svm", tmp_path / "new", split=["x=0.3"])
    assert not (tmp_path / "new").exists()
    assert file_bytes(tmp_path / "d") == before
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "x"


# -- resume ----------------------------------------------------------------------------------------------


OPTIONS = {"partition_size": 4000, "split": ["test=0.25"], "transform": "idf", "seed": 1}


def test_what_is_staged_is_not_staged_again(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())
    ingest(tmp_path / "a.svm", tmp_path / "whole", **OPTIONS)
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS, executor=Dying(6))
    for name in ("d", "d-test"):
        with pytest.raises(IncompleteError) as caught:
            open_dataset(tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path}/{name}: an ingest into it did not finish; run the same ingest again to resume it, "
            "or remove it"
        )
    staged = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "d" / ".ingest" / "chunks").glob("*.bin")}
    assert len(staged) == 6
    ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS, executor=Checking(tmp_path / "d", staged))
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")


class Checking(SerialExecutor):
    """Asserts that the chunks staged earlier are not written again."""

    def __init__(self, root, staged):
        self.root, self.staged = root, staged

    def map(self, function, items, *, shared=None):
        for result in super().map(function, items, shared=shared):
            for name, mtime in self.staged.items():
                assert (self.root / ".ingest" / "chunks" / name).stat().st_mtime_ns == mtime
            yield result


@pytest.mark.parametrize("share", [0.05, 0.4, 0.6, 0.7, 0.8, 0.95])
def test_killed_at_each_stage_it_resumes_to_the_same_bits(tmp_path, share):
    (tmp_path / "a.svm").write_text(make_text())
    counter = Dying(10**6)
    ingest(tmp_path / "a.svm", tmp_path / "whole", **OPTIONS, executor=counter)
    tasks = int(share * (10**6 - counter.tasks))
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS, executor=Dying(tasks))
    ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS)
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")
    assert file_bytes(tmp_path / "d-test") == file_bytes(tmp_path / "whole-test")


def test_killed_between_the_two_publications_it_resumes(tmp_path, monkeypatch):
    (tmp_path / "a.svm").write_text(make_text())
    ingest(tmp_path / "a.svm", tmp_path / "whole", **OPTIONS)
    publish = distls.ingestion.run.publish

    def dies_at_the_second(root, *args):
        if root.name == "d":
            raise Killed
        return publish(root, *args)

    monkeypatch.setattr(distls.ingestion.run, "publish", dies_at_the_second)
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS)
    monkeypatch.undo()
    monkeypatch.setattr(distls.ingestion.plan, "RANGE_BYTES", 2000)
    ingest(tmp_path / "a.svm", tmp_path / "d", **OPTIONS)
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")
    assert file_bytes(tmp_path / "d-test") == file_bytes(tmp_path / "whole-test")


def test_a_compressed_file_resumes_inside(tmp_path, monkeypatch):
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress(make_text().encode()))
    ingest(tmp_path / "a.svm.gz", tmp_path / "whole")
    write = distls.workers.ingest._write_batch

    def dies_at_the_fourth(spec, item, part, *rest):
        if part == 3:
            raise Killed
        return write(spec, item, part, *rest)

    monkeypatch.setattr(distls.workers.ingest, "_write_batch", dies_at_the_fourth)
    with pytest.raises(Killed):
        ingest(tmp_path / "a.svm.gz", tmp_path / "d")
    parts = []
    monkeypatch.setattr(
        distls.workers.ingest, "_write_batch", lambda *call: parts.append(call[2]) or write(*call)
    )
    ingest(tmp_path / "a.svm.gz", tmp_path / "d")
    assert parts[0] == 3
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")


def test_other_arguments_or_sources_do_not_resume(tmp_path):
    source = tmp_path / "a.svm"
    source.write_text(make_text())
    with pytest.raises(Killed):
        ingest(source, tmp_path / "d", seed=1, executor=Dying(4))

    def refusal(*sources, **options):
        with pytest.raises(IncompleteError) as caught:
            ingest(list(sources), tmp_path / "d", **{"seed": 1, **options})
        return str(caught.value)

    tail = f"give the same arguments to resume it, or remove {tmp_path}/d to start over"
    start = f"{tmp_path}/d: holds an unfinished ingest, and"
    assert refusal(source, seed=2) == f"{start} its seed was 1, not 2; {tail}"
    shutil.copy(source, tmp_path / "b.svm")
    assert refusal(source, tmp_path / "b.svm") == f"{start} its sources were a.svm; {tail}"
    os.utime(source, (1, 1))
    assert refusal(source) == f"{start} {source} has changed since; {tail}"
    source.unlink()
    with pytest.raises(BadInputError, match="no such file"):
        ingest(source, tmp_path / "d", seed=1)
    assert (tmp_path / "d" / ".ingest").exists()


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())

    def change(done, total, stage):
        if done > 3000 and stage == "parse":
            with (tmp_path / "a.svm").open("a") as file:
                file.write("1 1:1\n")

    with pytest.raises(BadInputError) as caught:
        ingest(tmp_path / "a.svm", tmp_path / "d", progress=change)
    assert str(caught.value) == (
        f"{tmp_path}/a.svm: changed while it was being ingested; ingest it again from the start"
    )
    with pytest.raises(FormatError):
        open_dataset(tmp_path / "d")


@pytest.mark.parametrize("step", ["write_chunk", "write_record"])
def test_a_full_disk_is_reported_and_the_ingest_resumes(tmp_path, monkeypatch, step):
    (tmp_path / "a.svm").write_text(make_text())
    ingest(tmp_path / "a.svm", tmp_path / "whole")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"distls.storage.staging.StagingArea.{step}", full)
    with pytest.raises(StorageError) as caught:
        ingest(tmp_path / "a.svm", tmp_path / "d")
    assert str(caught.value) == (
        f"{tmp_path}/d: the ingest stopped: the disk is full; the output is incomplete: run the same ingest again "
        f"to resume it, or remove {tmp_path}/d"
    )
    monkeypatch.undo()
    monkeypatch.setattr(distls.ingestion.plan, "RANGE_BYTES", 2000)
    ingest(tmp_path / "a.svm", tmp_path / "d")
    assert file_bytes(tmp_path / "d") == file_bytes(tmp_path / "whole")
