"""Several targets in the columns of a table, and sample weights of svmlight text."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from helpers import refuses

import distls
from distls import ingest, open_dataset
from distls.cli.evaluation_text import evaluation_lines
from distls.ingestion.request import source_plan
from distls.interchange.linear_form import output_names
from distls.storage.errors import BadInputError, DistlsError, MismatchError, ParameterError
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")
TARGETS = ["t, first", "t1"]


def make_frame(n_rows=60):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n_rows, 2))
    words = np.array(["u", "v"])[rng.integers(0, 2, n_rows)]
    return pd.DataFrame(
        {
            "a": x[:, 0], TARGETS[0]: 2 * x[:, 0] + x[:, 1], "b": x[:, 1], "w": words, TARGETS[1]: x[:, 0] - x[:, 1],
        }
    )  # fmt: skip


def sources(frame, folder):
    """Return the same rows in every format, with options."""
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "headless.csv", index=False, header=False)
    frame.to_parquet(folder / "a.parquet", index=False)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    named = {"label_column": TARGETS}
    return [
        (frame, named),
        (folder / "a.csv", named),
        (folder / "a.csv", {"label_column": '"t, first",t1'}),
        (folder / "headless.csv", {"label_column": "1,-1"}),
        (folder / "a.parquet", named),
        (folder / "a.parquet", {"kind": {name: "label" for name in TARGETS}}),
        (folder / "a.jsonl", {**named, "categorical": "w"}),
    ]


def test_several_targets_are_read_alike_from_every_table(tmp_path):
    frame = make_frame()
    for number, (source, options) in enumerate(sources(frame, tmp_path)):
        ingest(source, tmp_path / f"{number}", shuffle=False, **options)
        data = open_dataset(tmp_path / f"{number}")
        x, y = read_all(data)
        assert (data.meta.target, data.meta.n_targets, data.meta.n_features) == ("continuous", 2, 4)
        assert np.array_equal(y, frame[TARGETS].to_numpy())
        assert np.array_equal(x[:, :2], frame[["a", "b"]].to_numpy(np.float32))


def test_a_model_of_several_targets_scores_and_predicts_files(tmp_path):
    frame = make_frame()
    frame.to_csv(tmp_path / "a.csv", index=False)
    options = {"method": "gls", "params": {"alpha": 1e-6}, "notify": lambda _: None}
    distls.train(tmp_path / "a.csv", tmp_path / "m", label_column=TARGETS, test=[tmp_path / "a.csv"], **options)
    found = distls.evaluate(tmp_path / "m", tmp_path / "a.csv")
    assert found.mse < 1e-4
    assert [line["output"] for line in found.to_json()["per_output"]] == TARGETS
    assert [line.strip().split("  ")[0] for line in evaluation_lines(found)[2:]] == ["t, first", "t1"]
    assert output_names(distls.load_model(tmp_path / "m")) == TARGETS
    assert distls.evaluate(tmp_path / "m", frame).mse == found.mse
    new = frame.drop(columns=TARGETS)
    new.to_csv(tmp_path / "new.csv", index=False)
    expected = distls.load_model(tmp_path / "m").predict(new)
    for source in (tmp_path / "new.csv", tmp_path / "a.csv"):
        distls.predict(tmp_path / "m", source, tmp_path / "p.csv", overwrite=True)
        written = pd.read_csv(tmp_path / "p.csv")[[f"prediction_{name}" for name in TARGETS]].to_numpy()
        assert np.allclose(written, expected, rtol=1e-6)
    frame.drop(columns="t1").to_csv(tmp_path / "one.csv", index=False)
    refuses(MismatchError, 'no column "t1", the labels', distls.evaluate, tmp_path / "m", tmp_path / "one.csv")


def test_a_number_behind_prediction_is_a_place(tmp_path):
    """`prediction_2` is the second output, and not the target that is named so."""
    frame = make_frame().rename(columns=dict(zip(TARGETS, ["2", "t1"], strict=True)))
    options = {"method": "gls", "params": {"alpha": 1e-6}, "notify": lambda _: None}
    for labels, header in (
        (["2", "t1"], ["row", "prediction", "prediction_2"]),
        (["b", "t1"], ["row", "prediction_b", "prediction_t1"]),
    ):
        model = tmp_path / labels[0]
        distls.train(frame, model, label_column=labels, **options)
        distls.predict(model, frame, tmp_path / "p.csv", labelled=True, overwrite=True)
        assert list(pd.read_csv(tmp_path / "p.csv", nrows=1)) == header
        assert output_names(distls.load_model(model)) == labels


@pytest.mark.fast_cases(r"a\.csv-labels0", r"a\.csv-labels3", r"a\.parquet-labels1", r"a\.parquet-labels4")
@pytest.mark.parametrize(
    ("labels", "options", "kind", "keyword"),
    [
        (["b", "none"], {}, ParameterError, '"none"'),
        (["b", "b"], {}, ParameterError, "twice"),
        (["b", "w"], {}, BadInputError, '"w".*number'),
        (["b", "a"], {"target": "class"}, ParameterError, "several columns of labels"),
        (["b", "a"], {"ignore_columns": "a"}, ParameterError, '"a" is given as'),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_refused_targets(tmp_path, name, labels, options, kind, keyword):
    sources(make_frame(), tmp_path)
    refuses(kind, keyword, ingest, tmp_path / name, tmp_path / "d", label_column=labels, **options)


# -- weights of svmlight text ----------------------------------------------------------------------------


def weights_of(path):
    data = open_dataset(path)
    return np.concatenate([data.read(k).sample_weight for k in range(len(data))])


@pytest.fixture
def weighted(tmp_path, monkeypatch):
    """Write rows with weights behind the labels, and in a file; return the weights."""
    monkeypatch.setattr(source_plan, "RANGE_BYTES", 700)  # many items
    rng = np.random.default_rng(5)
    rows = [f"1:{a} 3:{b}" for a, b in rng.integers(1, 9, (200, 2))]
    weights = [0.0, 0.1, 1e-30, 3.4e38, 7, *np.round(rng.random(195), 4).tolist()]
    marked = [f"{k % 2}:{w} {row}\n" for k, (w, row) in enumerate(zip(weights, rows, strict=True))]
    (tmp_path / "marked.svm").write_text("".join(marked))
    (tmp_path / "a.svm").write_text("".join(f"{k % 2} {row}\n" for k, row in enumerate(rows)).rstrip())
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress((tmp_path / "a.svm").read_bytes()))
    (tmp_path / "w").write_text("".join(f"{w}\n" for w in weights))
    (tmp_path / "twice").write_text("".join(f"{w}\n" for w in weights * 2))
    return np.array(weights, dtype=np.float32)


def test_weights_behind_labels_or_in_a_file(weighted, tmp_path):
    ingest(tmp_path / "marked.svm", tmp_path / "marked", weight_column="label", shuffle=False)
    ingest(tmp_path / "a.svm", tmp_path / "own", weights=tmp_path / "w", shuffle=False)
    ingest(
        [tmp_path / "a.svm", tmp_path / "a.svm.gz"], tmp_path / "two", weights=tmp_path / "twice", shuffle=False,
    )  # fmt: skip
    ingest(tmp_path / "marked.svm", tmp_path / "like", like=tmp_path / "marked", shuffle=False)
    plain = read_all(tmp_path / "own")
    for name in ("marked", "like"):
        x, y = read_all(tmp_path / name)
        assert np.array_equal(x, plain[0])
        assert np.array_equal(y, plain[1])
        assert np.array_equal(weights_of(tmp_path / name), weighted)
    assert np.array_equal(weights_of(tmp_path / "own"), weighted)
    assert np.array_equal(weights_of(tmp_path / "two"), np.tile(weighted, 2))
    # labels without one count 1
    ingest(tmp_path / "a.svm", tmp_path / "ones", weight_column="label", shuffle=False)
    assert np.all(weights_of(tmp_path / "ones") == 1)


@pytest.mark.fast_cases(r"marked\.svm-options0", r"marked\.svm-options2", r"a\.svm-options5", r"bad\.svm")
@pytest.mark.parametrize(
    ("name", "options", "keyword"),
    [
        ("marked.svm", {}, "--weight-column label reads LABEL:WEIGHT"),
        ("marked.svm", {"weight_column": "w"}, "--weight-column label"),
        ("marked.svm", {"weight_column": "label", "weights": "w"}, "exclude"),
        ("marked.svm", {"weight_column": "label", "multilabel": True}, "exclude"),
        ("a.svm", {"weights": "twice"}, "400 weights, .* 200 lines"),
        ("a.svm", {"weights": "a.svm"}, "weights are numbers"),
        ("a.svm", {"weights": "negative"}, "not negative"),
        ("bad.svm", {"weight_column": "label"}, 'bad.svm:2: "-1": a sample weight.*3 of 4 lines'),
    ],
)
def test_refused_weights(weighted, tmp_path, name, options, keyword):
    (tmp_path / "negative").write_text("-1\n" * 200)
    (tmp_path / "bad.svm").write_text("1:1 1:1\n0:-1 1:1\n1:x 1:1\n0:1:2 1:2\n")
    if "weights" in options:
        options = {**options, "weights": tmp_path / options["weights"]}
    refuses(DistlsError, keyword, ingest, tmp_path / name, tmp_path / "d", **options)


def test_rows_without_one_of_several_targets_are_left_out_as_asked(tmp_path):
    frame = make_frame()
    frame.loc[7, TARGETS[1]] = np.nan
    for number, (source, options) in enumerate([*sources(frame, tmp_path)[:2], (frame[["a", "b"]].to_numpy(), {})]):
        options = options or {"y": frame[TARGETS].to_numpy()}
        with pytest.raises(BadInputError, match="no label; --drop unknown leaves such rows out"):
            ingest(source, tmp_path / f"r{number}", shuffle=False, **options)
        report = ingest(source, tmp_path / f"{number}", shuffle=False, drop=["unknown"], **options)
        assert report.dropped == {"unknown": 1}
        assert np.array_equal(read_all(open_dataset(tmp_path / f"{number}"))[1], frame[TARGETS].drop(7).to_numpy())
