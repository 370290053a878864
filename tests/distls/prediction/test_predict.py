"""`predict`: what is in the files, that they are whole or absent, and that memory does not grow with classes."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import zarr
from helpers import labelled_rows, raised, read_csv, refuses, write_dataset
from scipy.special import softmax

from distls import evaluate, fit, ingest, predict
from distls.execution.serial import SerialExecutor
from distls.storage.errors import MismatchError, ParameterError, StorageError
from distls.storage.filesystem.locks import locked
from distls.storage.filesystem.safe_read import first_bytes
from distls.storage.model import predictions
from distls.storage.model.model import LinearModel, save_model
from distls.storage.model.predictions import are_predictions
from distls.workers.prediction.predict_task import top_classes

CLASSES = ["a,b", 'say "x"', "é", 7, "two\nlines"]
K, D = len(CLASSES), 30


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    return LinearModel(
        weights=rng.standard_normal((D, K)).astype(np.float32), intercept=rng.standard_normal(K).astype(np.float32),
        classes=CLASSES, method="mcid", loss="softmax", params={}, transforms=[], transforms_digest="",
        dataset_fingerprint="",
    )  # fmt: skip


@pytest.fixture(scope="module")
def x():
    return labelled_rows(250, D, K)[0]


@pytest.fixture(scope="module")
def dataset(x, tmp_path_factory):
    """Three partitions, no labels."""
    return write_dataset(tmp_path_factory.mktemp("d") / "new", x, None)


def expected(model, x, top, proba):
    values = x.toarray().astype(np.float64) @ model.weights + model.intercept
    values = softmax(values, axis=1) if proba else values
    codes = np.argsort(-values, axis=1, kind="stable")[:, :top]
    return codes, np.take_along_axis(values, codes, axis=1)


@pytest.mark.fast_cases("False-1", "True-5")
@pytest.mark.parametrize("top", [1, 3, K])
@pytest.mark.parametrize("proba", [False, True])
def test_csv(dataset, model, x, tmp_path, top, proba):
    assert predict(model, dataset, tmp_path / "p.csv", top=top, proba=proba) == 250
    header, *rows = read_csv(tmp_path / "p.csv")
    value = "probability" if proba else "score"
    later = [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", value)]
    assert header == ["row", "label", value, *later]
    codes, values = expected(model, x, top, proba)
    assert [row[0] for row in rows] == [str(number) for number in range(250)]
    names = np.array([str(label) for label in CLASSES])
    assert [row[1::2] for row in rows] == names[codes].tolist()
    np.testing.assert_allclose([[float(v) for v in row[2::2]] for row in rows], values, rtol=2e-5, atol=1e-6)


@pytest.mark.fast_cases("False-1", "True-3")
@pytest.mark.parametrize("top", [1, 3])
@pytest.mark.parametrize("proba", [False, True])
def test_zarr(dataset, model, x, tmp_path, top, proba):
    predict(model, dataset, tmp_path / "p.zarr", top=top, proba=proba)
    group = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    codes, values = expected(model, x, top, proba)
    assert group.attrs["classes"] == CLASSES
    assert np.array_equal(group["label"][:], codes)
    assert group["score"].dtype == np.float32
    np.testing.assert_allclose(group["score"][:], values, rtol=2e-5, atol=1e-6)


def test_from_a_run_with_progress(dataset, model, tmp_path):
    save_model(tmp_path / "run" / "model", model)
    calls = []
    predict(tmp_path / "run", dataset.path, tmp_path / "a.csv", progress=lambda *call: calls.append(call))
    assert calls == [(1, 3, "predicting"), (2, 3, "predicting"), (3, 3, "predicting")]
    predict(model, dataset, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.fast_cases("csv")
@pytest.mark.parametrize("ending", ["csv", "zarr"])
def test_what_a_killed_process_left_is_swept(dataset, model, tmp_path, ending):
    """Fault: What a killed `predict` left half-written | before the next one of that name | nothing; it is swept"""
    (tmp_path / f"out.{ending}.0123abcd.partial").write_text('row,label,score\r\n0,"a,b",1.5\r\n1,"tw')
    (tmp_path / f"out.{ending}.4567abcd.partial").mkdir()
    zarr.create_group(str(tmp_path / f"out.{ending}.89abcdef.partial"), attributes={"classes": ["a"]})
    # nothing that a name alone says is ours
    others = {"in.csv.0123abcd.partial", f"out.{ending}.partial", f"out.{ending}.cdef0123.partial"}
    for name in others:
        (tmp_path / name).write_text("not ours")
    predict(model, dataset, tmp_path / f"out.{ending}")
    assert {path.name for path in tmp_path.iterdir()} == {f"out.{ending}", *others}


def test_one_process_writes_a_file_of_predictions(dataset, model, tmp_path):
    with (
        locked(tmp_path / ".out.csv.lock", "it"),
        pytest.raises(StorageError, match=r"out\.csv is being written by process \d+ on "),
    ):
        predict(model, dataset, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast_cases("1")
@pytest.mark.parametrize("top", [1, 2, 4])
def test_ties_go_to_the_lower_class(top):
    values = np.array([[1.0, 2, 2, 0], [3, 3, 3, 3], [0, -1, 0, 1]])
    codes, best = top_classes(values, top)
    assert codes.tolist() == [row[:top] for row in ([1, 2, 0, 3], [0, 1, 2, 3], [3, 0, 2, 1])]
    assert np.array_equal(best, np.take_along_axis(values, codes, axis=1))


@pytest.mark.fast_cases("3")
@pytest.mark.parametrize("k", [3, 40])
def test_the_top_classes_are_those_of_whole_sorted_rows(k):
    rng = np.random.default_rng(k)
    for values in (rng.standard_normal((50, k)), rng.integers(0, 4, (50, k)).astype(float), np.ones((50, k))):
        odd = [np.where(rng.random((50, k)) < 0.05, value, values) for value in (np.nan, np.inf, -np.inf)]
        for changed in (values, *odd, values[:0]):
            for top in (2, 3, min(k, 20)):
                whole = np.argsort(-changed, axis=1, kind="stable")[:, :top]
                assert np.array_equal(top_classes(changed, top)[0], whole)


def test_equal_classes_tie_in_the_file(dataset, model, tmp_path):
    same = replace(model, weights=np.repeat(model.weights[:, :1], K, axis=1), intercept=np.zeros(K, np.float32))
    predict(same, dataset, tmp_path / "p.csv", top=2)
    assert {tuple(row[1::2]) for row in read_csv(tmp_path / "p.csv")[1:]} == {(CLASSES[0], CLASSES[1])}


class Failing(SerialExecutor):
    """The third partition cannot be predicted."""

    def __init__(self, error):
        self.error = error

    def map(self, function, items, *, shared=None):
        for item in items:
            if item == 2:
                raise self.error
            yield function(shared, item)


@pytest.mark.fast_cases("error0-csv")
@pytest.mark.parametrize("ending", ["csv", "zarr"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("x")])
def test_what_fails_leaves_nothing(dataset, model, tmp_path, ending, error):
    raised(type(error), predict, model, dataset, tmp_path / f"p.{ending}", executor=Failing(error))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast_cases("csv")
@pytest.mark.parametrize("ending", ["csv", "zarr"])
def test_a_full_disk_is_reported_and_leaves_nothing(dataset, model, tmp_path, ending):
    full = Failing(OSError(28, "No space left on device"))
    assert raised(StorageError, predict, model, dataset, tmp_path / f"p.{ending}", executor=full) == (
        f"cannot write {tmp_path}/p.{ending}: the disk is full; nothing was written under that name; make room and "
        "predict again"
    )
    assert list(tmp_path.iterdir()) == []


TAKEN = "{0}/there.csv exists already; choose another name"
OTHERS = "{0}/mine.zarr: not predictions of distls, which alone are overwritten; choose another name"
ENDINGS = "predictions are written as .csv or .zarr; choose one of these endings"


@pytest.mark.fast_cases(r"p\.txt", r"no/p\.csv", r"p\.csv-options7")
@pytest.mark.parametrize(
    ("out", "options", "error", "message"),
    [
        ("p.txt", {}, ParameterError, "{0}/p.txt: " + ENDINGS),
        ("p", {}, ParameterError, "{0}/p: " + ENDINGS),
        ("there.csv", {}, MismatchError, TAKEN),
        ("mine.zarr", {"overwrite": True}, MismatchError, OTHERS),
        ("no/p.csv", {}, StorageError, "{0}/no/p.csv: there is no folder {0}/no; make it first"),
        ("no/p.zarr", {}, StorageError, "{0}/no/p.zarr: there is no folder {0}/no; make it first"),
        ("p.csv", {"top": 6}, ParameterError, "--top 6: the model has 5 classes"),
        ("p.csv", {"top": 0}, ParameterError, "--top 0: the model has 5 classes"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_read(dataset, model, tmp_path, out, options, error, message):
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "mine.zarr").mkdir()
    said = raised(error, predict, model, dataset, tmp_path / out, executor=Failing(AssertionError("read")), **options)
    assert said == message.format(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.zarr", "there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


@pytest.mark.fast_cases("csv")
@pytest.mark.parametrize("ending", ["csv", "zarr"])
def test_predictions_are_replaced_when_the_new_ones_are_complete(dataset, model, tmp_path, ending):
    place, fresh = tmp_path / f"p.{ending}", tmp_path / f"fresh.{ending}"
    predict(model, dataset, place, top=2)
    before = _content(place)
    with pytest.raises(StorageError):
        predict(model, dataset, place, overwrite=True, executor=Failing(OSError(28, "No space left on device")))
    assert _content(place) == before  # a failure leaves the old ones
    predict(model, dataset, place, overwrite=True)
    predict(model, dataset, fresh)
    assert _content(place) == _content(fresh) != before
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == [fresh.name, place.name]


def test_predictions_with_a_long_header_are_replaced(tmp_path):
    """Of 3,000 named targets the header is longer than what is read of other files."""
    names = [f"the name of the target with the number, {k}" for k in range(3000)]
    header = ",".join(["row", *(f'"prediction_{name}"' for name in names)])
    rows = [f"{row},{','.join(['0.5'] * len(names))}" for row in range(2)]
    for ending, ours in (("", True), ("\r\n7,mine", False)):
        (tmp_path / "p.csv").write_text("\r\n".join([header, *rows]) + ending, newline="")
        assert are_predictions(tmp_path / "p.csv") == ours
    for start in (header[: 2**17], "row,predictions" * 2**16):  # no header ends
        (tmp_path / "p.csv").write_text(start, newline="")
        assert not are_predictions(tmp_path / "p.csv")


def test_little_is_read_of_a_file_whose_first_line_ends_otherwise(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(predictions, "first_bytes", lambda path, size: sizes.append(size) or first_bytes(path, size))
    for header in ("row,prediction", 'row,"prediction_a\nb"'):
        (tmp_path / "p.csv").write_text(f"{header}\n" + "0,1.5\n" * 2**15)
        assert not are_predictions(tmp_path / "p.csv")
    assert sizes == [2**16] * 2


OTHERS_FILES = {
    "a source": "a,b,y\r\n1,2,ja\r\n",
    "columns in another order": "row,score,label\r\n0,1.5,a\r\n",
    "a column of another program": "row,label,score,mine\r\n0,a,1.5,x\r\n",
    "other line ends": "row,label,score\n0,a,1.5\n",
    "other rows": "row,label,score\r\n7,a,1.5\r\n3,b,2\r\n",
    "other lines below": "row,label,score\r\n0,a,1.5\r\nmy notes\r\n",
    "empty": "",
}


@pytest.mark.fast_cases("a source", "other line ends", "empty")
@pytest.mark.parametrize("name", OTHERS_FILES)
def test_only_predictions_are_replaced(dataset, model, tmp_path, name):
    out = tmp_path / "mine.csv"
    out.write_text(OTHERS_FILES[name], newline="")
    refuses(MismatchError, "not predictions of distls", predict, model, dataset, out, overwrite=True)
    assert out.read_bytes() == OTHERS_FILES[name].encode()


def test_a_group_of_another_program_is_not_replaced(dataset, model, tmp_path):
    for attributes, arrays in (({}, ["score", "label"]), ({"classes": ["a"]}, ["score", "label", "mine"])):
        group = zarr.create_group(str(tmp_path / "p.zarr"), attributes=attributes, overwrite=True)
        for array in arrays:
            group.create_array(array, shape=(1, 1), dtype=np.float32)
        with pytest.raises(MismatchError, match="not predictions of distls"):
            predict(model, dataset, tmp_path / "p.zarr", overwrite=True)


@pytest.mark.fast_cases("itself")
@pytest.mark.parametrize("how", ["itself", "link", "hard link", "relative"])
def test_what_is_predicted_is_not_replaced(tmp_path, monkeypatch, how):
    """Predictions may be the source of others: what is in the file does not protect it."""
    monkeypatch.chdir(tmp_path)
    source, out = tmp_path / "p.csv", tmp_path / "out.csv"
    source.write_text("row,label,score\r\n" + "".join(f"{i},{'ab'[i % 2]},{i % 3}\r\n" for i in range(20)), newline="")
    ingest(source, tmp_path / "d", label_column="label")
    fit("gls", tmp_path / "d", tmp_path / "run", passes=1)
    if how == "link":
        out.symlink_to(source)
    elif how == "hard link":
        out.hardlink_to(source)
    target = {"itself": source, "relative": "x/../p.csv"}.get(how, out)
    (tmp_path / "x").mkdir()
    before = source.read_bytes()
    with pytest.raises(MismatchError, match="the data that are predicted"):
        predict(tmp_path / "run", source, target, labelled=True, overwrite=True)
    assert source.read_bytes() == before
    predict(tmp_path / "run", source, tmp_path / "new.csv", labelled=True)


@pytest.mark.fast_cases("csv")
@pytest.mark.parametrize("ending", ["csv", "zarr"])
def test_what_appears_under_the_name_meanwhile_stays(dataset, model, tmp_path, ending):
    """Fault: A file of another program appears as OUT | while rows are predicted | one line; the file stays"""
    out = tmp_path / f"p.{ending}"
    with pytest.raises(MismatchError, match="exists already"):
        predict(model, dataset, out, progress=lambda done, total, what: out.write_text("mine") and None)
    assert out.read_text() == "mine"


def _content(place):
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def test_no_probabilities_without_softmax(dataset, model, tmp_path):
    with pytest.raises(ParameterError) as caught:
        predict(replace(model, loss="crammer_singer"), dataset, tmp_path / "p.csv", proba=True)
    assert str(caught.value) == (
        "--proba: the model was trained with loss crammer_singer, which has no probabilities; train with "
        "softmax or ovr_log (loss=log), or calibrate it on held-out rows: `distls calibrate RUN DATASET`"
    )


def test_wider_rows_are_refused(model, tmp_path):
    wide = write_dataset(tmp_path / "w", labelled_rows(20, D + 1, K)[0], None)
    refuses(MismatchError, rf"has {D + 1} features, the model {D}", predict, model, wide, tmp_path / "p.csv")


@pytest.mark.fast_cases(r"p\.csv")
@pytest.mark.parametrize("how", ["p.csv", "p.zarr", "evaluate"])
def test_rows_times_classes_is_never_held(model, tmp_path, how):
    rows, k = 6000, 6000
    x, y = labelled_rows(rows, D, 5)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=rows, classes=list(range(k)), n_classes=k)
    many = replace(
        model, weights=np.zeros((D, k), np.float32), intercept=np.zeros(k, np.float32), classes=list(range(k))
    )

    def work():
        return evaluate(many, data) if how == "evaluate" else predict(many, data, tmp_path / how)

    work()  # compiles
    if how != "evaluate":
        (tmp_path / how).rename(tmp_path / f"before-{how}")
    tracemalloc.start()
    try:
        work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < rows * k * 4 / 3, f"{peak / 2**20:.0f} MiB"
