"""Any table: what pandas reads is what is read, and a model predicts alike from every file of the same rows."""

import csv
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from table_property_helpers import ROLES, csv_of, json_of, tables

import distls
from distls import StochasticClassifier, ingest, open_dataset
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")
WRITTEN = {
    "separator": st.sampled_from(",;\t|"),
    "quoting": st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)),
    "na": st.sampled_from(("", "NA", "null", "nan")),
    "encoding": st.sampled_from(("utf-8", "utf-8-sig", "utf-16", "cp1252", "utf-16-le")),
}


def asked(written):
    """Return the options that a file needs which does not say its encoding itself."""
    known = {"utf-8", "utf-8-sig", "utf-16"}
    return {} if written["encoding"] in known else {"encoding": written["encoding"]}


def rows_of(source, folder, name, label_column="y", **options):
    """Return rows, names of the features, labels, weights and ids that a source is read into, in its order."""
    ingest(source, folder / name, label_column=label_column, shuffle=False, transform="auto", **options)
    data = open_dataset(folder / name)
    ids = data.origins.read(0).ids
    weights = data.read(0).sample_weight
    return read_all(data)[0], data.feature_names(), read_all(data)[1], weights, ids and ids.texts()


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@examples(40)
@given(tables(), st.fixed_dictionaries(WRITTEN))
def test_a_table_is_read_as_pandas_reads_it(frame, written):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.csv").write_bytes(csv_of(frame, **written))
        encoding = "utf-8-sig" if written["encoding"].startswith("utf-8") else written["encoding"]
        roles = frame.attrs
        frame = pd.read_csv(folder / "a.csv", sep=written["separator"], encoding=encoding)
        frame.to_parquet(folder / "a.parquet", index=False)
        (folder / "a.jsonl").write_bytes(json_of(frame))
        expected = rows_of(frame, folder, "frame", **roles)
        options = asked(written) | roles
        assert equal(rows_of(folder / "a.csv", folder, "csv", **options), expected)
        assert equal(rows_of(folder / "a.parquet", folder, "parquet", **roles), expected)
        assert equal(rows_of(folder / "a.jsonl", folder, "json", **roles, format="jsonl"), expected)
        targets = frame[roles["label_column"].split(",")].to_numpy()
        assert np.array_equal(expected[2].reshape(targets.shape), targets)
        assert expected[4] is None if "id_column" not in roles else expected[4] == frame["key"].tolist()
        if "weight_column" in roles:
            assert np.array_equal(expected[3], frame["w"].to_numpy(np.float32))
        # numbers, where there is nothing else, are those of pandas
        features = frame.drop(columns=["y", *({*ROLES} & {*frame.columns})])
        if all(c.startswith("number") for c in features.columns):
            ingest(folder / "a.csv", folder / "plain", shuffle=False, **options)
            plain = read_all(open_dataset(folder / "plain"))[0]
            assert np.array_equal(plain, features.to_numpy(np.float32))


@examples(40)
@given(tables(roles=False), st.permutations(range(5)), st.fixed_dictionaries(WRITTEN))
def test_a_model_predicts_alike_from_every_file(frame, order, written):
    with tempfile.TemporaryDirectory() as name:
        folder, new = Path(name), frame.drop(columns="y")
        (folder / "train.csv").write_bytes(csv_of(frame))
        distls.train(
            folder / "train.csv", folder / "m", method="sgd", passes=1, notify=lambda _: None,
            params={"loss": "log", "alpha": 0.1}, target="class",
        )  # fmt: skip
        shuffled = new[[new.columns[k] for k in order if k < len(new.columns)]].assign(more="x")
        (folder / "a.csv").write_bytes(csv_of(shuffled, **written))
        (folder / "a.jsonl").write_bytes(json_of(new))
        new.to_parquet(folder / "a.parquet", index=False)
        model = distls.load_model(folder / "m")
        expected = model.predict_proba(new)
        # estimators read frames as train reads files, but for those of numbers alone
        if any(not name.startswith(("number", "gaps", "truth")) for name in new.columns):
            estimator = StochasticClassifier(passes=1).fit(new, frame["y"])
            assert estimator.model_.source["recipe"]["features"] == model.source["recipe"]["features"]
        records = [{n: None if v != v else v for n, v in row.items()} for row in new.to_dict("records")]
        assert np.array_equal(model.predict_proba(records), expected)
        assert np.array_equal(model.predict_proba(new[7:8]), expected[7:8])
        if all(name.startswith("number") for name in new.columns):
            assert np.array_equal(model.predict_proba(new.to_numpy()), expected)
        files = []
        for source in (new, folder / "a.csv", folder / "a.jsonl", folder / "a.parquet"):
            out = folder / f"{len(files)}.csv"
            distls.predict(
                folder / "m", source, out, proba=True, unknown_features="ignore", notify=lambda _: None,
                **(asked(written) if getattr(source, "suffix", "") == ".csv" else {}),
            )  # fmt: skip
            files.append(out.read_text())
        assert len({*files}) == 1


@examples(40)
@given(tables(roles=False), st.permutations(range(3)), st.fixed_dictionaries(WRITTEN))
def test_files_in_any_order_and_without_header_are_one_table(frame, order, written):
    """Compare a table in one file, in several whatever their order, and without a header."""
    with tempfile.TemporaryDirectory() as name:
        folder, options = Path(name), asked(written)
        parts = [frame[:13], frame[13:20], frame[20:]]
        for k, part in enumerate(parts):
            # columns may have another order in any file but the first
            (folder / f"{k}.csv").write_bytes(csv_of(part[part.columns[:: 1 - 2 * (k == order[1])]], **written))
        together = pd.concat([parts[k] for k in order])
        (folder / "one.csv").write_bytes(csv_of(together, **written))
        expected = rows_of(folder / "one.csv", folder, "one", **options)
        assert equal(rows_of([folder / f"{k}.csv" for k in order], folder, "several", **options), expected)
        (folder / "headless.csv").write_bytes(csv_of(together, **written, header=False))
        x, names, *_ = rows_of(folder / "headless.csv", folder, "headless", "0", **options)
        assert np.array_equal(x, expected[0])
        place = {name: f"{c}" for c, name in enumerate(frame.columns)}
        assert names == [re.sub(r"^\w+(\n\d)?", lambda found: place[found[0]], name) for name in expected[1]]
