"""Of any table nothing is lost without a word: no digits, no label, no class, no row, and no file of the user's."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from table_property_helpers import csv_of, json_of

import distls
from distls import DistlsError, ingest, open_dataset
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")
ROWS = 12
INTEGERS = st.integers(-(2**62), 2**62)
NEAR = st.tuples(INTEGERS, st.integers(1, 2**20)).flatmap(
    lambda at: st.lists(st.integers(0, at[1]), min_size=ROWS, max_size=ROWS).map(
        lambda steps: [at[0] + step for step in steps]
    )
)
SPREAD = st.lists(INTEGERS, min_size=ROWS, max_size=ROWS)
FAR = st.tuples(NEAR, INTEGERS).map(lambda drawn: [*drawn[0][1:], drawn[1]])
PARTS = st.lists(st.fractions(-1, 1, max_denominator=1000).map(float), min_size=ROWS - 1, max_size=ROWS - 1)
FRACTIONS = st.tuples(PARTS, INTEGERS).map(lambda drawn: [*drawn[0], float(drawn[1])])
LABELS = st.lists(INTEGERS, min_size=2, max_size=5, unique=True)
CLASSES = st.lists(st.integers(1, 40), min_size=2, max_size=6)
SHARES = st.lists(st.floats(0.02, 0.45), min_size=1, max_size=2)
KINDS = ("json", "npy", "frame", "csv", "parquet")
READ = st.tuples(
    SPREAD | NEAR | FAR | FRACTIONS,
    st.sampled_from(KINDS),
    st.sampled_from(((), "auto", "standardize")),
    st.sampled_from(("float32", "float64")),
)


def source(frame, folder, kind):
    """Return a frame as a source of some kind, and the options that read it."""
    path, named = folder / f"a.{kind}", {"label_column": "y"}
    if kind == "npy":
        np.save(path, np.ascontiguousarray(frame[["x", "other"]]))
        np.save(folder / "y.npy", frame["y"].to_numpy())
        return path, {"labels": folder / "y.npy"}
    if kind == "frame":
        return frame, named
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    else:
        path.write_bytes(csv_of(frame) if kind == "csv" else json_of(frame))
    return path, named | ({"format": "jsonl"} if kind == "json" else {})


def outcome(function, *given, **options):
    """Return what a call returns, or else None, and the words in which it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*given, **options), None
        except DistlsError as refused:
            return None, str(refused)


@examples(100)
@given(LABELS, READ)
def test_digits_and_labels_stay_or_are_named(labels, read):
    values, kind, transform, dtype = read
    frame = pd.DataFrame(
        {"x": values, "other": np.arange(ROWS) % 2, "y": [labels[k % len(labels)] for k in range(ROWS)]}
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given, options = source(frame, folder, kind)
        options |= {"transform": transform, "dtype": dtype, "shuffle": False}
        options |= {} if kind == "npy" else {"id_column": None}
        report = ingest(given, folder / "d", **options)
        data = open_dataset(folder / "d")
        assert sorted(map(int, data.meta.classes)) == sorted(labels)
        stored, names = read_all(data)[0], data.feature_names() or ["x", "other"]
        said = [notice for notice in report.notices if '"x"' in notice or '"0"' in notice]
        if "x" not in names:  # a column of integers that are all different may be left out
            assert said
            return
        kept, merged = (len(set(stored[:, names.index("x")].tolist())), [n for n in said if "become equal" in n])
        # of a few fractions nobody is to be told that float32 rounds them, unless they are near each other
        assert kept == len(set(values)) or merged
        assert kept < len(set(map(float, values))) or not any("once transformed" in notice for notice in said)


@examples(100)
@given(CLASSES, SHARES, st.integers(0, 2**31))
def test_rows_and_classes_survive_a_split(counts, shares, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    x = np.arange(2.0 * len(y)).reshape(-1, 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split = {f"h{k}": share for k, share in enumerate(shares)}
        report, refused = outcome(ingest, x, folder / "d", y=y, split=split, dtype="float64", seed=seed)
        if refused:
            assert "leaves none" in refused
            assert not (folder / "d").exists()
            return
        parts = [open_dataset(path) for path in report.paths]
        rows = np.concatenate([read_all(part)[0] for part in parts])
        assert np.array_equal(np.sort(rows[:, 0]), x[:, 0]), "each row is in one part"
        held = [part.meta.n_rows for part in parts[1:]]
        assert held == [round(share * len(y)) for share in shares] or report.notices
        assert np.all(np.asarray(parts[0].meta.label_counts) > 0), "no class leaves training"


NAMES = ("mine.csv", "mine.zarr", "mine.html", "mine.joblib", "mine", "config.json")
WORDS = (
    b"row,label,score", b"\r\n", b"\n", b"0,a,1.5", b"{}", b'{"format": "distls"}', b"<html>", b"", b"\x89HDF",
    b"mine",
)  # fmt: skip
CONTENTS = st.lists(st.sampled_from(WORDS), max_size=6).map(b"".join)
COMMANDS = {
    "predict": lambda run, data, path: distls.predict(run, data, path, overwrite=True),
    "ingest": lambda run, data, path: distls.ingest(np.eye(4), path, y=[0, 1, 0, 1]),
    "fit": lambda run, data, path: distls.fit("gls", data, path),
    "export": lambda run, data, path: distls.export(run, path, to="sklearn"),
    "report": lambda run, data, path: distls.report(run, path),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    ingest(np.random.default_rng(0).normal(size=(40, 3)), folder / "d", y=np.arange(40) % 2)
    distls.fit("gls", folder / "d", folder / "run")
    return folder


@examples(100)
@given(st.sampled_from(sorted(COMMANDS)), st.sampled_from(NAMES), CONTENTS)
def test_no_command_replaces_a_file_of_the_users(trained, command, name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        _, refused = outcome(COMMANDS[command], trained / "run", trained / "d", path)
        assert refused is None or "\n" not in refused
        assert path.read_bytes() == content
