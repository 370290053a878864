"""Vowpal Wabbit text to data sets."""

import numpy as np
import pytest
from helpers import raised
from ingest_helpers import make_vw, small_ranges  # noqa: F401

import distls.ingestion.request.source_plan
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.vw import name_hash

pytestmark = pytest.mark.usefixtures("small_ranges")

NUMBERED = "1 |f 3:2 0:1\r\n\r\n-1 |f 5 3:0.5\n1 'third |f\n"
HASHED = "1 2 |words sun sun|size:10 width:0.25\n0 0.5 |words fog\n1 |words sun:3\n"


def column(space, name, bits=18):
    return name_hash(name.encode(), name_hash(space.encode())) % 2**bits


def test_numbers_as_names_are_the_columns(tmp_path):
    (tmp_path / "a.txt").write_text(NUMBERED)
    report = ingest(tmp_path / "a.txt", tmp_path / "d", shuffle=False)
    x, y = read_all(tmp_path / "d")
    meta = open_dataset(tmp_path / "d").meta
    assert x.tolist() == [[1, 0, 0, 2, 0, 0], [0, 0, 0, 0.5, 0, 1], [0] * 6]
    assert y.tolist() == [1, 0, 1]
    assert (meta.classes, meta.zero_based, meta.weighted) == ([-1, 1], True, False)
    assert meta.source == {"format": "vw", "files": ["a.txt"], "recipe": {"hash_bits": None, "namespace": "f"}}
    assert report.notices == (
        "the names of features are numbers of columns; --hash-bits 18 hashes them as vw does",
        "tag ignored in 1 row",
    )


def test_other_names_are_hashed_as_vowpal_wabbit_does(tmp_path):
    (tmp_path / "a.vw").write_text(HASHED)
    report = ingest(tmp_path / "a.vw", tmp_path / "d", shuffle=False)
    part, meta = open_dataset(tmp_path / "d").read(0), open_dataset(tmp_path / "d").meta
    sun, fog, width = column("words", "sun"), column("words", "fog"), column("size", "width")
    rows = [
        dict(zip(part.x.indices[a:b].tolist(), part.x.data[a:b].tolist(), strict=True))
        for a, b in zip(part.x.indptr[:-1], part.x.indptr[1:], strict=True)
    ]
    assert rows == [{sun: 2.0, width: 2.5}, {fog: 1.0}, {sun: 3.0}]
    assert (meta.n_features, meta.zero_based, meta.weighted, meta.weight_sum) == (2**18, None, True, 3.5)
    assert part.sample_weight.tolist() == [2.0, 0.5, 1.0]
    assert report.notices == ("the names of features are hashed to 2**18 columns; --hash-bits chooses how many",)
    narrow = ingest(tmp_path / "a.vw", tmp_path / "e", hash_bits=3, shuffle=False)
    assert narrow.notices == ()
    assert open_dataset(tmp_path / "e").meta.n_features == 8
    expected = np.zeros((3, 8))
    for row, (name, space, value) in enumerate([("sun", "words", 2.0), ("fog", "words", 1.0), ("sun", "words", 3.0)]):
        expected[row, column(space, name, 3)] += value
    expected[0, column("size", "width", 3)] += 2.5
    assert np.array_equal(read_all(tmp_path / "e")[0], expected)


def test_numbers_are_hashed_when_asked_or_when_namespaces_differ(tmp_path):
    (tmp_path / "a.vw").write_text(NUMBERED)
    ingest(tmp_path / "a.vw", tmp_path / "d", shuffle=False, hash_bits=4)
    x, _ = read_all(tmp_path / "d")
    assert sorted(np.flatnonzero(x[1]).tolist()) == sorted(column("f", n, 4) for n in "53")
    (tmp_path / "b.vw").write_text("1 |f 1|g 1\n2 |f 2\n")
    ingest(tmp_path / "b.vw", tmp_path / "e", shuffle=False)
    first = sorted([column("f", "1"), column("g", "1")])
    assert open_dataset(tmp_path / "e").read(0).x.indices.tolist() == [*first, column("f", "2")]


def test_importance_is_the_weight_and_tags_are_ignored(tmp_path):
    (tmp_path / "a.vw").write_text(make_vw())
    (tmp_path / "b.vw").write_text(make_vw(80, seed=1))
    files = [tmp_path / "a.vw", tmp_path / "b.vw"]
    report = ingest(files, tmp_path / "d", split=["test=0.25"])
    assert (report.rows, report.notices[1:]) == (380, ("tag ignored in 380 rows",))
    text = make_vw() + make_vw(80, seed=1)
    weights = sum(int(line.split()[1]) for line in text.splitlines())
    sums = [open_dataset(path).meta.weight_sum for path in report.paths]
    assert sum(sums) == weights


def test_like_takes_over_how_names_become_columns(tmp_path):
    (tmp_path / "a.vw").write_text(HASHED)
    (tmp_path / "n.vw").write_text(NUMBERED)
    # on its own, this would be read as numbered columns
    (tmp_path / "b.vw").write_text("1 |words 7\n0 |words 9\n")
    ingest(tmp_path / "a.vw", tmp_path / "d", hash_bits=10)
    report = ingest(tmp_path / "b.vw", tmp_path / "e", like=tmp_path / "d", shuffle=False)
    part = open_dataset(tmp_path / "e").read(0)
    assert part.x.indices.tolist() == [column("words", "7", 10), column("words", "9", 10)]
    assert (open_dataset(tmp_path / "e").meta.n_features, report.notices) == (1024, ())
    ingest(tmp_path / "n.vw", tmp_path / "m")
    (tmp_path / "c.vw").write_text("1 |f 2:3\n")
    ingest(tmp_path / "c.vw", tmp_path / "f", like=tmp_path / "m")
    assert read_all(tmp_path / "f")[0].tolist() == [[0, 0, 3, 0, 0, 0]]


@pytest.mark.parametrize(
    ("like", "text", "options", "message"),
    [
        (HASHED, HASHED, {"hash_bits": 4}, "hash_bits=4, but {d} has hash_bits=18"),
        (NUMBERED, NUMBERED, {"hash_bits": 4}, "hash_bits=4, but {d} has column numbers as names"),
        (
            NUMBERED,
            "1 |f 7\n",
            {},
            "{b}:1: index 7, but {d} has 6 features; --unknown-features ignore leaves out the "
            "others, --n-features at the ingest of the training data makes room for them",
        ),
        ("1 1:1\n2 2:1\n", HASHED, {}, "{b}: names that are no column numbers, but {d} is of numbered columns"),
        ("1 1:1\n2 2:1\n", "1 | 1\n", {}, "the features of {d} count from 1, those of Vowpal Wabbit text from 0"),
    ],
)  # fmt: skip
def test_like_refuses_what_does_not_go_with_it(tmp_path, like, text, options, message):
    (tmp_path / "a").write_text(like)
    (tmp_path / "b.vw").write_text(text)
    ingest(tmp_path / "a", tmp_path / "d")
    said = raised(MismatchError, ingest, tmp_path / "b.vw", tmp_path / "e", like=tmp_path / "d", **options)
    assert said == message.format(b=tmp_path / "b.vw", d=tmp_path / "d")
    assert not (tmp_path / "e").exists()


def test_a_late_name_is_refused_and_not_taken_for_something_else(tmp_path, monkeypatch):
    monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", 50_000)
    text = "1 |f 1:1 2:1\n0 |f 3\n" * 10_000
    (tmp_path / "a.vw").write_text(text + "1 |f price:3\n" + text)
    assert raised(BadInputError, ingest, tmp_path / "a.vw", tmp_path / "d") == (
        f'{tmp_path}/a.vw:20001: "price:3": names are column numbers here; '
        "to hash names instead, ingest all data with --hash-bits 18, or another number"
    )
    assert not (tmp_path / "d").exists()
    ingest(tmp_path / "a.vw", tmp_path / "d", hash_bits=18)
    assert open_dataset(tmp_path / "d").meta.n_rows == 40_001


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (NUMBERED, {"zero_based": "no"}, ParameterError, "zero_based is for sources of format svmlight, these are vw"),
        (NUMBERED, {"hash_bits": 40}, ParameterError, "hash_bits must be from 1 to 31, not 40"),
        (HASHED, {"n_features": 99}, ParameterError, "n_features=99, but names are hashed to 2**18 = 262144 columns; "
         "choose their number with hash_bits"),
        ("1 1:1\n", {"hash_bits": 4}, ParameterError, "hash_bits is for sources of format vw, these are svmlight"),
        (NUMBERED, {"n_features": 4}, BadInputError, "{a}:3: index 5 does not fit into n_features=4"),
        ("|f 1\n|f 2\n", {}, BadInputError, '{a}:1: "|f": the row has no label (what touches the | is a tag); files '
         "without labels are for ingest --unlabelled, and predict; 2 of 2 lines read are refused for this"),
        ("1 |f 1\n2 |f 2:-3\n", {"transform": "log1p"}, BadInputError, "{a}:2: log1p of -3; values must be above -1"),
    ],
)  # fmt: skip
def test_refused_text_and_options(tmp_path, text, options, error, message):
    (tmp_path / "a").write_text(text)
    said = raised(error, ingest, tmp_path / "a", tmp_path / "d", **options)
    assert said == message.format(a=tmp_path / "a")
    assert not (tmp_path / "d").exists()


def test_unlabelled_multilabel_and_skipped_rows(tmp_path):
    (tmp_path / "u.vw").write_text("'a |f 1\n|f 2:3\n")
    ingest(tmp_path / "u.vw", tmp_path / "u", unlabelled=True)
    assert read_all(tmp_path / "u")[0].tolist() == [[0, 1, 0], [0, 0, 3]]
    (tmp_path / "m.vw").write_text("5,3 | 1:1\n| 2:2\n7 0.5 2 | 1\n")
    report = ingest(tmp_path / "m.vw", tmp_path / "m", multilabel=True, shuffle=False)
    meta = open_dataset(tmp_path / "m").meta
    assert (meta.target, meta.classes, meta.label_counts, meta.weighted) == ("multilabel", [3, 5, 7], [1, 1, 1], True)
    assert report.notices[1:] == ("base ignored in 1 row",)
    (tmp_path / "s.vw").write_text("1 |f 1\nx |f 2\n2 |f 1\n")
    report = ingest(tmp_path / "s.vw", tmp_path / "s", on_error="skip")
    assert (report.rows, report.skipped_lines) == (2, (f'{tmp_path}/s.vw:2: "x": a label must be a decimal number',))
