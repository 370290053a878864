"""Models on source files: the same bits as from a dataset made like the training data."""

import csv
import errno
import json
import os
import re
import warnings

import numpy as np
import pytest
import zarr
from helpers import distls as command
from helpers import printed, raised
from ingest_helpers import make_documents, make_text, write_json, write_plain

import distls
import distls.ingestion.adhoc_dataset
from distls.cli import support
from distls.execution import ClusterOptions, open_executor
from distls.ingestion.formats.format_registry import format_names
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError, FormatError, MismatchError, ParameterError, StorageError
from distls.workers.ingestion.records.messages import ENCODED

PARAMS = {"alpha": 1e-3, "loss": "log"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model of raw text, test documents in several forms, and the dataset made of them."""
    root = tmp_path_factory.mktemp("scorable")
    write_json(root / "train.jsonl", *make_documents(300), "intent")
    options = {"ngrams": (1, 2), "n_features": 512, "transform": "log1p,idf,l2norm"}
    distls.ingest(root / "train.jsonl", root / "train", **options)
    distls.fit("mcid", root / "train", root / "run", params=PARAMS, passes=3)
    texts, labels = make_documents(80, seed=1)
    write_json(root / "test.jsonl", texts, labels, "intent")
    write_plain(root / "test.tsv", texts, labels)
    (root / "docs.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (root / "half.txt").write_text("".join(f"{text}\n" for text in texts[:40]), encoding="utf-8")
    (root / "rest.txt").write_text("".join(f"{text}\n" for text in texts[40:]), encoding="utf-8")
    distls.ingest(root / "test.jsonl", root / "test", like=root / "train", shuffle=False)
    return root


def predicted(place, out, sources, **options):
    assert distls.predict(place / "run", sources, out, **options) == 80
    assert not [path for path in out.parent.iterdir() if path.name.endswith(".partial")]
    return scores_of(out)


def scores_of(out):
    """Return the rows of a file without the columns that say where each was read."""
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: text for name, text in row.items() if not name.startswith("source_")} for row in rows]


@pytest.mark.slow
def test_predictions_of_source_files_have_the_bits_of_those_of_a_dataset(place, tmp_path):
    expected = predicted(place, tmp_path / "a.csv", place / "test", top=2, proba=True)
    for number, (sources, options) in enumerate(
        [
            (place / "test.jsonl", {}),
            (place / "test.jsonl", {"labelled": True}),
            (place / "docs.txt", {}),
            ([place / "half.txt", place / "rest.txt"], {}),
            (place / "test.tsv", {"labelled": True}),
        ]
    ):
        out = tmp_path / f"{number}.csv"
        assert predicted(place, out, sources, top=2, proba=True, **options) == expected
    distls.predict(distls.load_model(place / "run"), place / "docs.txt", tmp_path / "a.zarr")
    distls.predict(place / "run", place / "test", tmp_path / "b.zarr")
    one, other = (zarr.open_group(str(tmp_path / name), mode="r") for name in ("a.zarr", "b.zarr"))
    assert np.array_equal(one["score"][...], other["score"][...])


def test_the_command_line(place, tmp_path):
    expected = predicted(place, tmp_path / "a.csv", place / "test")
    out = tmp_path / "b.csv"
    ran = command("predict", place / "run", place / "half.txt", place / "rest.txt", out, "--quiet")
    assert ran == (0, "", "")
    assert scores_of(out) == expected
    one, other = (
        json.loads(printed("evaluate", place / "run", place / name, "--json")) for name in ("test", "test.tsv")
    )
    assert one == other
    ran = command("predict", place / "run", place / "test", tmp_path / "c.csv", "--labelled")
    assert (ran.code, "labelled is for source files" in ran.err) == (2, True)


def test_formats_are_those_of_ingest():
    assert support.FormatName().choices == ("auto", *format_names())


def test_labels_with_commas_survive_the_csv(place, tmp_path):
    predicted(place, tmp_path / "a.csv", place / "docs.txt")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        found = [row["label"] for row in csv.DictReader(file)]
    assert "order, big" in found
    assert set(found) <= set(open_dataset(place / "train").meta.classes)


def test_evaluations_of_source_files_are_those_of_a_dataset(place, monkeypatch):
    expected = distls.evaluate(place / "run", place / "test").to_json()
    assert expected["error"] < 0.4
    for source in ("test.jsonl", "test.tsv"):
        assert distls.evaluate(place / "run", place / source).to_json() == expected
    monkeypatch.chdir(place / "run")
    assert distls.evaluate(".", "../test.tsv").to_json() == expected
    model = distls.load_model(place / "run")
    assert distls.evaluate(model, [place / "test.tsv"]).to_json() == expected
    assert not list(place.glob("*.partial"))


def test_workers_ingest_and_predict_the_same_bits(place, tmp_path):
    expected = predicted(place, tmp_path / "a.csv", place / "docs.txt")
    executor, _ = open_executor(ClusterOptions(executor="dask", workers=2))
    try:
        assert predicted(place, tmp_path / "b.csv", place / "docs.txt", executor=executor) == expected
    finally:
        executor.close()


def test_like_a_run_is_like_its_training_data(place, tmp_path):
    distls.ingest(place / "test.jsonl", tmp_path / "a", like=place / "run", shuffle=False)
    distls.ingest(place / "test.jsonl", tmp_path / "b", like=place / "run" / "model", shuffle=False)
    distls.ingest(place / "test.jsonl", tmp_path / "c", like=open_dataset(place / "train"), shuffle=False)
    fingerprints = {open_dataset(path).fingerprint for path in (place / "test", *tmp_path.iterdir())}
    assert len(fingerprints) == 1


def test_models_of_svmlight_text(tmp_path):
    (tmp_path / "a.svm").write_text("3 0:1\n" + make_text(200, base=0))
    (tmp_path / "b.svm").write_text(make_text(50, seed=1))
    lines = (tmp_path / "b.svm").read_text().splitlines()
    (tmp_path / "c.txt").write_text("".join(line.split(" ", 1)[1] + "\n" for line in lines))
    distls.ingest(tmp_path / "a.svm", tmp_path / "train", transform="idf", n_features=60)
    distls.ingest(tmp_path / "b.svm", tmp_path / "test", like=tmp_path / "train", shuffle=False)
    distls.fit("mcid", tmp_path / "train", tmp_path / "run", passes=1)
    assert distls.load_model(tmp_path / "run").zero_based is True
    for name, source, options in (
        ("1.csv", "test", {}), ("2.csv", "b.svm", {"labelled": True}), ("3.csv", "c.txt", {"format": "svmlight"}),
    ):  # fmt: skip
        distls.predict(tmp_path / "run", tmp_path / source, tmp_path / name, **options)
    one, *others = (path.read_bytes() for path in sorted(tmp_path.glob("*.csv")))
    assert others == [one, one]
    x, y = np.ones((4, 60)), np.array([0, 1, 2, 0])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    found = distls.evaluate(tmp_path / "run", tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert found.n_rows == 4


def test_labels_the_model_does_not_know(place, tmp_path):
    write_plain(tmp_path / "a.tsv", ["sun", "fog"], ["greeting", "surprise"])
    said = raised(MismatchError, distls.evaluate, place / "run", tmp_path / "a.tsv")
    # the file that was given, not the temporary data set made of it
    known = f"that is not among the 3 of {place}/run; --unknown-labels count counts them as errors"
    assert said == f"{tmp_path}/a.tsv has 1 class (surprise; 1 row) {known}"
    with pytest.warns(UserWarning, match=r"\w") as noted:
        found = distls.evaluate(place / "run", tmp_path / "a.tsv", unknown_labels="count")
    assert (found.n_rows, found.unknown) == (2, 1)
    assert texts_of(noted) == [f"1 label not in {place}/run appended: surprise"]


def test_a_table_without_its_labels_is_not_evaluated(tmp_path):
    (tmp_path / "a.csv").write_text("x,z,y\n" + "".join(f"{x},1,{x % 2}\n" for x in range(9)))
    distls.ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    distls.fit("gls", tmp_path / "d", tmp_path / "run", passes=1)
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    assert raised(MismatchError, distls.evaluate, tmp_path / "run", tmp_path / "b.csv") == (
        f'{tmp_path}/b.csv: no column "y", the labels of {tmp_path}/run; --label-column names another '
        'one, and predict takes rows without labels; there are "x", "z"'
    )


def texts_of(noted):
    # of the line that called, not of one inside the package
    assert {warning.filename for warning in noted} == {__file__}
    return [str(warning.message) for warning in noted]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """A folder with a model of rows that have a qid, standardized, and two files to score, the second without any."""
    root = tmp_path_factory.mktemp("ranked")
    lines = make_text(120).splitlines()
    with_qid = [line.replace(" ", f" qid:{number // 4} ", 1) for number, line in enumerate(lines)]
    (root / "train.svm").write_text("\n".join(with_qid))
    (root / "test.svm").write_text("\n".join(with_qid[:30]))
    (root / "plain.svm").write_text("\n".join(lines[:30]))
    distls.ingest(root / "train.svm", root / "train", transform="standardize")
    distls.ingest(root / "test.svm", root / "test", like=root / "train", shuffle=False)
    distls.fit("mcid", root / "train", root / "run", params=PARAMS, passes=1)
    return root


QIDS = "qid ignored in 30 rows"


def test_notices_of_the_ingest_are_warnings(ranked, tmp_path):
    with pytest.warns(UserWarning, match=r"\w") as noted:
        distls.evaluate(ranked / "run", ranked / "test.svm")
    assert texts_of(noted) == [QIDS]
    with pytest.warns(UserWarning, match=r"\w") as noted:
        distls.predict(distls.load_model(ranked / "run"), ranked / "test.svm", tmp_path / "a.csv", labelled=True)
    assert texts_of(noted) == [QIDS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # what was said of the training rows is not repeated
        distls.evaluate(ranked / "run", ranked / "plain.svm")
        distls.evaluate(ranked / "run", ranked / "test")
        taken = []
        distls.evaluate(ranked / "run", ranked / "test.svm", notify=taken.append)
        distls.predict(ranked / "run", ranked / "test.svm", tmp_path / "b.csv", labelled=True, notify=taken.append)
        assert taken == [QIDS] * 2
        with pytest.raises(UserWarning, match=QIDS):
            distls.predict(ranked / "run", ranked / "test.svm", tmp_path / "c.csv", labelled=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv"]
    assert not list(ranked.glob("*.partial"))


def test_notices_of_the_ingest_are_lines_on_stderr(ranked, tmp_path):
    def run(*arguments):
        code, out, error = command(*arguments)
        assert code == 0
        return out, error

    notes = f"note: {QIDS}\n"
    expected, error = run("evaluate", ranked / "run", ranked / "test", "--json")
    assert error == ""
    assert run("evaluate", ranked / "run", ranked / "test.svm", "--json") == (expected, notes)
    out = tmp_path / "a.csv"
    printed, error = run("predict", ranked / "run", ranked / "test.svm", out, "--labelled")
    lines = error.splitlines()
    assert (printed, lines[-1]) == ("", f"30 rows predicted into {out}")
    assert [line for line in lines if line.startswith("note: ")] == notes.splitlines()
    quiet = ("--labelled", "--quiet")
    assert run("predict", ranked / "run", ranked / "test.svm", tmp_path / "b.csv", *quiet) == ("", "")


def test_a_refusal_is_one_line_without_notices(ranked, tmp_path):
    (tmp_path / "a.svm").write_text("1 qid:1 1:1\n77 qid:1 2:1\n")
    ran = command("evaluate", ranked / "run", tmp_path / "a.svm")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "has 1 class (77; 1 row) that is not among the" in ran.err


def test_refusals(place, tmp_path):
    def refusal(error, call, *given, **options):
        said = raised(error, call, place / "run", *given, **options)
        assert not list(tmp_path.glob("*.partial"))
        assert not list(place.glob("*.partial"))
        return said

    out = tmp_path / "a.csv"
    message = "{} is for source files; a data set says itself what is in it"
    for name, value in (("labelled", True), ("format", "text")):
        assert refusal(ParameterError, distls.predict, place / "test", out, **{name: value}) == message.format(name)
    assert refusal(ParameterError, distls.evaluate, place / "test", labels="y.npy") == message.format("labels")
    assert refusal(FormatError, distls.predict, place / "none", out) == f"{place}/none: no such file or data set"
    (tmp_path / "bad.txt").write_bytes(b"sun\nr\xffin\n")
    message = refusal(BadInputError, distls.predict, tmp_path / "bad.txt", out)
    assert message == f'{tmp_path}/bad.txt:2: "r\\xffin": byte 2 of the line is not UTF-8; {ENCODED}'
    message = refusal(BadInputError, distls.evaluate, place / "docs.txt")
    assert message.startswith(f"{place}/docs.txt:1: ")
    assert "expected LABEL<TAB>DOCUMENT; documents alone are for ingest --unlabelled, and predict" in message
    message = refusal(BadInputError, distls.predict, [place / "docs.txt", place / "none"], out)
    assert message == f"{place}/none: no such file"
    (tmp_path / "wide.jsonl").write_text(json.dumps({"text": "x", "label": 4}))
    message = refusal(MismatchError, distls.evaluate, tmp_path / "wide.jsonl")
    assert message == (f'the classes of {place}/run are words, like "greeting", but these data have numbers, like 4')


def test_of_a_prediction_its_result_alone_is_synced(place, tmp_path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), sync(file))[1])
    predicted(place, tmp_path / "a.csv", place / "docs.txt")
    assert [re.sub(r"csv\.\w+\.partial", "csv", path) for path in synced] == [f"{tmp_path}/a.csv", str(tmp_path)]


def test_a_full_disk_says_what_can_be_done(place, tmp_path, monkeypatch):
    def full(self, name, value):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("distls.storage.temporary.ingest_staging.StagingArea.write_document", full)
    message = raised(StorageError, distls.predict, place / "run", place / "docs.txt", tmp_path / "a.csv")
    assert message.startswith(f"the sources could not be ingested into {tmp_path}/a.csv.")
    assert message.endswith(
        f'.partial: the disk is full; make room there, or ingest them elsewhere with --like "{place}/run"'
    )
    assert list(tmp_path.iterdir()) == []


def test_features_that_training_did_not_have(tmp_path):
    lines = [f"{n % 2} 1:{n % 2 + 1} 2:{n}.5 3:1" for n in range(20)]
    (tmp_path / "train.svm").write_text("\n".join(lines))
    (tmp_path / "wide.svm").write_text("\n".join(f"{line} 4:9 70000:1" for line in lines))
    distls.ingest(tmp_path / "train.svm", tmp_path / "d", transform="log1p")
    distls.fit("gls", tmp_path / "d", tmp_path / "run")
    assert raised(MismatchError, distls.evaluate, tmp_path / "run", tmp_path / "wide.svm").startswith(
        f"{tmp_path}/wide.svm:1: index 70000, but {tmp_path}/run has 3 features; --unknown"
    )
    said = []
    options = {"unknown_features": "ignore", "notify": said.append}
    found = distls.evaluate(tmp_path / "run", tmp_path / "wide.svm", **options)
    assert found.log_loss == distls.evaluate(tmp_path / "run", tmp_path / "train.svm").log_loss
    assert said == [f"features beyond the 3 of {tmp_path}/run are left out"]
    for name, given in [("wide", options), ("train", {})]:
        out = tmp_path / f"{name}.csv"
        distls.predict(tmp_path / "run", tmp_path / f"{name}.svm", out, labelled=True, **given)
    assert (tmp_path / "wide.csv").read_bytes() == (tmp_path / "train.csv").read_bytes()


def test_columns_that_training_did_not_have(tmp_path):
    (tmp_path / "train.csv").write_text("a,y\n1,0\n2,1\n3,0\n4,1\n")
    (tmp_path / "wide.csv").write_text("b,a,y\nx,1,0\nx,2,1\n")
    distls.ingest(tmp_path / "train.csv", tmp_path / "d", label_column="y")
    options = {"like": tmp_path / "d", "shuffle": False}
    said = raised(MismatchError, distls.ingest, tmp_path / "wide.csv", tmp_path / "e", **options)
    assert said.endswith("--ignore-columns leaves it out, --unknown-features ignore all like it")
    distls.ingest(tmp_path / "wide.csv", tmp_path / "e", unknown_features="ignore", **options)
    assert distls.open_dataset(tmp_path / "e").read(0).x.values.tolist() == [[1], [2]]
    with pytest.raises(ParameterError, match="it needs like"):
        distls.ingest(tmp_path / "train.csv", tmp_path / "f", label_column="y", unknown_features="ignore")
