"""Rows appended to a data set: as if they had been ingested with the others."""

import errno
import json
import os

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import printed, refuses

import distls
from distls import ingest, open_dataset
from distls.storage.dataset.extension import _link_file
from distls.storage.errors import BadInputError, MismatchError, ParameterError, StorageError

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(90, 5)).round(3), RNG.integers(0, 3, 90)
PLAIN = {"shuffle": False, "row_numbers": False}


def table(path, rows, names="abcde", **columns):
    """Write a CSV file of these rows."""
    head = [*names, "y", *columns]
    lines = [
        [*X[i, ["abcde".index(name) for name in names]], f"c{Y[i]}", *(each[i] for each in columns.values())]
        for i in range(90)[rows]
    ]
    path.write_text("\n".join(",".join(map(str, line)) for line in [head, *lines]) + "\n")
    return path


def rows_of(path):
    return distls.to_arrays(path)


@pytest.mark.fast_cases("locked")
@pytest.mark.parametrize("failing", ["locked", "extend"])
def test_a_disk_that_fails_is_one_line_that_says_what_to_do(tmp_path, monkeypatch, failing):
    distls.ingest(X, tmp_path / "d", y=Y)

    def fail(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "d" / "x"))

    monkeypatch.setattr(f"distls.ingestion.append.{failing}", fail)
    with pytest.raises(StorageError, match=r"cannot add rows to .*read-only .*append again"):
        distls.append(tmp_path / "d", X[:9] + 1, y=Y[:9])


def test_what_a_killed_call_had_half_removed_is_removed(tmp_path):
    distls.ingest(X[:50], tmp_path / "d", y=Y[:50])
    distls.ingest(X[50:], tmp_path / "d/.append", y=Y[50:])
    (tmp_path / "d/.append/zarr.json").unlink()
    distls.append(tmp_path / "d", X[50:], y=Y[50:])
    assert not (tmp_path / "d/.append").exists()
    assert distls.open_dataset(tmp_path / "d").meta.n_rows == 90


@pytest.mark.fast_cases("dense")
@pytest.mark.parametrize("layout", ["dense", "csr", "continuous", "multilabel", "weighted"])
def test_the_bits_are_those_of_one_ingest(tmp_path, layout):
    x = sp.csr_matrix(np.where(X > 0.5, X, 0)) if layout == "csr" else X
    y = Y
    if layout == "continuous":
        y = X @ np.ones((5, 2))
    if layout == "multilabel":
        y = np.eye(3, dtype=int)[Y] | np.eye(3, dtype=int)[np.roll(Y, 1)]
    weight = np.linspace(1, 2, 90) if layout == "weighted" else None
    given = {**PLAIN, "target": "continuous"} if layout == "continuous" else PLAIN

    def part(rows):
        return {"y": y[rows], "sample_weight": None if weight is None else weight[rows]}

    distls.ingest(x, tmp_path / "whole", **part(slice(None)), **given)
    distls.ingest(x[:50], tmp_path / "d", **part(slice(50)), **given)
    for rows in (slice(50, 60), slice(60, 90)):
        distls.append(tmp_path / "d", x[rows], **part(rows))
    whole, made = (distls.open_dataset(tmp_path / name) for name in ("whole", "d"))
    assert made.meta == whole.meta
    assert made.fingerprint == whole.fingerprint
    assert len(made) == 1


def test_partitions_are_linked_and_the_last_is_filled(tmp_path):
    data = tmp_path / "d"
    distls.ingest(X[:50], data, y=Y[:50], partition_size=600, **PLAIN)
    before = distls.open_dataset(data)
    stored = {file: file.stat().st_ino for file in sorted(data.glob("rows/*/X/c/0/0"))}
    distls.append(data, X[50:], y=Y[50:], partition_size=600)
    after = distls.open_dataset(data)
    kept = [file.stat().st_ino == stored.get(file) for file in sorted(data.glob("rows/*/X/c/0/0"))]
    assert kept[: len(before) - 1] == [True] * (len(before) - 1)
    assert len(after) > len(before) > 1
    assert after.meta.n_rows == 90
    x, y = rows_of(data)[:2]
    assert np.array_equal(x, X.astype(np.float32))
    assert [*after.meta.label_counts] == [*np.bincount(y)]
    # nothing of how it was made is left
    assert not [path for path in tmp_path.rglob("*") if "append" in path.name or "partial" in path.name]


def test_origins_are_linked_once_there_are_several_files(tmp_path):
    data, source = (tmp_path / "d", [table(tmp_path / f"{k}.csv", slice(30 * k, 30 * k + 30)) for k in range(3)])
    options = {"shuffle": False, "partition_size": 200}
    distls.ingest(source[0], data, label_column="y", **options)
    for number in (1, 2):
        before = {file: file.stat().st_ino for file in data.glob("origins/0*/row/c/0")}
        distls.append(data, source[number], partition_size=200)
        linked = [file.stat().st_ino == node for file, node in before.items()]
        # the first files have no numbers of files, which all need afterwards
        assert any(linked) == all(linked[:-1]) == (number == 2)
    opened = distls.open_dataset(data)
    rows = [opened.origins.read(index) for index in range(len(opened))]
    assert [*np.concatenate([each.rows for each in rows])] == [*range(30)] * 3
    assert [*np.concatenate([each.files for each in rows])] == [0] * 30 + [1] * 30 + [2] * 30


def test_transforms_classes_and_origins_go_on(tmp_path):
    ids = [f"r{i}" for i in range(90)]
    first = table(tmp_path / "1.csv", slice(40), id=ids)
    options = {"label_column": "y", "id_column": "id", "transform": "standardize", "shuffle": False}
    distls.ingest(first, tmp_path / "d", **options)
    means = distls.open_dataset(tmp_path / "d").features()["mean"]
    # columns in another order, another separator, and a class that was not there
    second = table(tmp_path / "2.csv", slice(40, 90), "ecbda", id=ids)
    second.write_text(second.read_text().replace(",", ";").replace("c2", "new"))
    report = distls.append(tmp_path / "d", second)
    data = distls.open_dataset(tmp_path / "d")
    assert report.rows == 50
    assert report.paths == (tmp_path / "d",)
    assert data.meta.classes == ["c0", "c1", "c2", "new"]
    assert np.array_equal(data.features()["mean"], means)
    # as the recorded transforms make them
    distls.ingest(second, tmp_path / "e", like=tmp_path / "d", shuffle=False)
    assert np.array_equal(rows_of(tmp_path / "d")[0][40:], rows_of(tmp_path / "e")[0])
    sources = data.origins.read(0)
    assert data.origins.facts.files == ["1.csv", "2.csv"]
    assert sources.ids.texts() == ids
    assert [*sources.files] == [0] * 40 + [1] * 50
    assert [*sources.rows] == [*range(40), *range(50)]


def test_the_same_rows_are_refused_unless_asked(tmp_path):
    data = tmp_path / "d"
    first, second = table(tmp_path / "1.csv", slice(40)), table(tmp_path / "2.csv", slice(40, 90))
    distls.ingest(first, data, label_column="y")
    distls.append(data, second)
    for source in (first, second):
        refuses(MismatchError, "--again", distls.append, data, source)
    assert distls.open_dataset(data).meta.n_rows == 90
    distls.append(data, second, again=True)
    assert distls.open_dataset(data).meta.n_rows == 140


def test_refusals_leave_the_data_as_they_were(tmp_path):
    data = tmp_path / "d"
    distls.ingest(table(tmp_path / "1.csv", slice(40)), data, label_column="y")
    before = distls.open_dataset(data).fingerprint
    bad = tmp_path / "bad.csv"
    for text, error, word in (
        ("a,b,c,d,y\n1,2,3,4,c1\n", MismatchError, '"e"'),
        ("a,b,c,d,e,y\n1,2,3,x,5,c1\n", BadInputError, "x"),
        ("a,b,c,d,e\n1,2,3,4,5\n", MismatchError, "label"),
    ):
        bad.write_text(text)
        refuses(error, word, distls.append, data, bad)
    with pytest.raises(MismatchError, match="weights"):
        distls.append(data, X[:3], y=[f"c{c}" for c in Y[:3]], sample_weight=np.ones(3) / 2)
    refuses(ParameterError, "object store", distls.append, "s3://bucket/d", bad)
    assert distls.open_dataset(data).fingerprint == before
    assert not (data / ".append").exists()


def test_column_shards_are_of_the_rows_before(tmp_path):
    data = tmp_path / "d"
    distls.ingest(X[:50], data, y=Y[:50], columns=True)
    report = distls.append(data, X[50:], y=Y[50:])
    assert "distls columns" in report.notices[-1]
    assert distls.open_dataset(data).columns is None


def test_rows_of_another_time_are_told(tmp_path):
    data = tmp_path / "d"
    x = RNG.normal(size=(4000, 2))
    distls.ingest(x, data, y=np.arange(4000) % 2)
    distls.append(data, x + 1, y=np.r_[np.zeros(3999, int), 1], partition_size=8000)
    measured = distls.open_dataset(data).exchangeability
    assert measured.labels.times_chance > 1


def test_files_are_copied_where_there_are_no_links(tmp_path, monkeypatch):
    def no_link(*given):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_link)
    (tmp_path / "a").write_text("x")
    _link_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "x"


def test_command(tmp_path):
    first, second = table(tmp_path / "1.csv", slice(40)), table(tmp_path / "2.csv", slice(40, 90))
    printed("ingest", first, tmp_path / "d", "--label-column", "y")
    assert "90 rows" in printed("append", tmp_path / "d", second, "--quiet")
    stored = json.loads((tmp_path / "d" / "zarr.json").read_text())["attributes"]
    assert len(stored["appended"]) == 2


# -- rows that are held out ------------------------------------------------------------------------------


def held(folder, y, splits):
    """Return the label counts of each part, and the notices."""
    x = np.arange(2.0 * len(y)).reshape(-1, 2)
    report = ingest(x, folder / "d", y=np.array(y), split=splits)
    parts = [open_dataset(path).meta for path in report.paths]
    return [dict(zip(m.classes, m.label_counts, strict=True)) for m in parts], report.notices


def test_classes_that_are_too_small_for_a_row_take_turns(tmp_path):
    y = [0] * 400 + [c for c in range(1, 101) for _ in range(4)]
    (train, test), notices = held(tmp_path, y, {"held": 0.1})
    assert sum(test.values()) == 80
    assert test[0] == 40
    assert max(count for label, count in test.items() if label) == 1
    assert min(train.values()) >= 3
    assert notices == ()


@pytest.mark.parametrize(("counts", "fractions"), [((33, 33, 34), [0.1]), ((7, 5, 3), [0.3, 0.3]), ((60, 1, 2), [0.5])])
def test_parts_have_the_size_that_was_asked_for(tmp_path, counts, fractions):
    y = np.repeat(np.arange(len(counts)), counts)
    found, _ = held(tmp_path, y, {f"h{k}": fraction for k, fraction in enumerate(fractions)})
    sizes = [sum(part.values()) for part in found]
    assert sizes[1:] == [round(fraction * len(y)) for fraction in fractions]
    assert all(found[0].values()), "no class leaves training"
    assert {label: sum(part[label] for part in found) for label in found[0]} == dict(enumerate(counts))


def test_a_part_that_would_take_the_last_row_of_a_class_is_smaller_with_a_notice(tmp_path):
    (train, test), (notice,) = held(tmp_path, [0] * 10 + [1], {"held": 0.99})
    assert train == {0: 1, 1: 1}
    assert test == {0: 9, 1: 0}
    assert "9 of 11 rows, not 11" in notice


@pytest.mark.parametrize(("y", "fraction"), [([0.5] * 9, 0.99), ([0, 1] * 5, 0.01)])
def test_no_part_is_empty(tmp_path, y, fraction):
    refuses(ParameterError, "leaves none", held, tmp_path, y, {"held": fraction})


@pytest.mark.parametrize("name", ["part.csv", "d-held"])
def test_a_file_is_no_data_set_to_write_and_stays(tmp_path, name):
    (tmp_path / name).write_text("mine")
    target = tmp_path / (name if name == "part.csv" else "d")
    refuses(StorageError, "a file, and the last name", ingest, np.eye(4), target, y=[0, 1, 0, 1], split={"held": 0.5})
    assert (tmp_path / name).read_text() == "mine"
