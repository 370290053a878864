"""Thresholds of labels fitted to held-out rows: against a search over all cuts, stored, used everywhere, refused."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import zarr
from helpers import labelled_rows, printed, raised, refuses, write_dataset
from sklearn.metrics import f1_score
from target_helpers import made_model, rows_with_labels, write_targets

from distls import calibrate, evaluate, fit, load_model, predict
from distls.evaluation.metrics import LabelEvaluation
from distls.serving.fitted_model import fitted_model
from distls.storage.errors import FormatError, MismatchError, ParameterError
from distls.storage.model.model import save_model
from distls.workers.evaluation import calibration_task
from distls.workers.evaluation.calibration_task import best_cut
from distls.workers.evaluation.ranked_scores import ranked

N, D, K = 300, 6, 4


@pytest.fixture(scope="module")
def rows():
    x, y = rows_with_labels(N, D, K)
    y[:, 3] = (np.arange(N) % 40 == 0).astype(y.dtype)  # a rare label
    return x, y


@pytest.fixture(scope="module")
def held(rows, tmp_path_factory):
    return write_targets(tmp_path_factory.mktemp("h") / "held", *rows, "multilabel")


@pytest.fixture
def model(rows):
    """Least squares on the first rows, off by an offset, so that the loss's threshold is far from the best."""
    x, y = rows[0][:150], rows[1][:150]
    weights = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y.astype(float), rcond=None)[0]
    shift = np.array([0.3, -0.2, 0.0, 0.1])
    return made_model(D, K, "multilabel", weights=weights[:-1], intercept=weights[-1] + shift)


def scores_of(model, x):
    return np.asarray(x.astype(np.float64) @ model.weights + model.intercept)


def best_f1(scores, y):
    """The highest F1 of any threshold, by trying every score as the lowest that is predicted."""
    chosen, has = scores >= np.unique(scores)[:, None], y.astype(bool)
    return float((2 * (chosen & has).sum(axis=1) / (chosen.sum(axis=1) + has.sum())).max())


def test_one_threshold_has_the_best_micro_f1(model, held, rows):
    found = calibrate(model, held)
    assert found.model.calibration["kind"] == "micro-f1"
    assert found.model.calibration_arrays["threshold"].shape == (1,)
    wanted = best_f1(scores_of(model, rows[0]).ravel(), rows[1].ravel())
    assert found.evaluation.micro_f1 == pytest.approx(wanted, abs=1e-12)
    assert found.before.micro_f1 < wanted


def test_a_threshold_of_each_label_has_its_best_f1(model, held, rows):
    found = calibrate(model, held, "macro-f1")
    scores = scores_of(model, rows[0])
    wanted = [best_f1(scores[:, c], rows[1][:, c]) for c in range(K)]
    assert [row["f1"] for row in found.evaluation.per_class()] == pytest.approx(wanted, abs=1e-12)
    assert found.evaluation.macro_f1 == pytest.approx(np.mean(wanted), abs=1e-12)
    assert evaluate(found.model, held).to_json() == found.evaluation.to_json()


@pytest.mark.fast_cases("0", "6", "13", "19")
@pytest.mark.parametrize("seed", range(20))
def test_cuts_of_tied_scores(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, 30).astype(np.float32).astype(np.float64)
    own = rng.random(30) < 0.3
    own[0] = True
    cut = best_cut(ranked(scores, own, np.ones(30), 2**15), np.float32)
    assert f1_score(own, scores > cut) == pytest.approx(best_f1(scores, own), abs=1e-12)
    assert float(np.float32(cut)) == cut


def test_neighbours_in_the_type_of_the_weights_are_separated():
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2.0))
    scores, own = np.array([low, high], np.float64), np.array([False, True])
    cut = best_cut(ranked(scores, own, np.ones(2), 8), np.float32)
    assert (scores > cut).tolist() == [False, True]
    assert float(np.float32(cut)) == cut


def test_no_row_has_the_label(model, rows, tmp_path):
    x, y = rows[0], rows[1].copy()
    y[:, 1] = 0
    found = calibrate(model, write_targets(tmp_path / "d", x, y, "multilabel"), "macro-f1")
    assert found.model.calibration_arrays["threshold"][1] == 0.5  # that of the loss


def test_many_scores_share_bins(model, held, rows, monkeypatch):
    monkeypatch.setattr(calibration_task, "capacity_for", lambda _: 64)
    found = calibrate(model, held)
    wanted = best_f1(scores_of(model, rows[0]).ravel(), rows[1].ravel())
    assert max(found.before.micro_f1, wanted - 0.05) < found.evaluation.micro_f1 <= wanted + 1e-12


def test_everything_predicts_with_them(model, held, rows, tmp_path):
    save_model(tmp_path / "m", model)
    found = calibrate(tmp_path / "m", held, "macro-f1")
    loaded = load_model(tmp_path / "m")
    cuts = found.model.calibration_arrays["threshold"]
    assert np.array_equal(loaded.calibration_arrays["threshold"], cuts)
    assert loaded.sha256 == model.sha256
    wanted = scores_of(model, rows[0]) > cuts
    judged = evaluate(tmp_path / "m", held)
    assert isinstance(judged, LabelEvaluation)
    assert judged.to_json()["calibration"] == "macro-f1"
    assert judged.macro_f1 == pytest.approx(f1_score(rows[1], wanted, average="macro"), abs=1e-12)
    assert np.array_equal(fitted_model(loaded, "m").predict(rows[0]), wanted)
    predict(tmp_path / "m", held, tmp_path / "p.zarr")
    sets = zarr.open_group(tmp_path / "p.zarr", mode="r")["labels"]
    ends = np.asarray(sets["indptr"])
    assert np.array_equal(np.diff(ends), wanted.sum(axis=1))
    predict(tmp_path / "m", held, tmp_path / "p.csv")
    with open(tmp_path / "p.csv") as file:
        texts = [row["labels"] for row in csv.DictReader(file)]
    assert texts == [",".join(map(str, np.flatnonzero(row))) for row in wanted]


def test_the_command_and_the_option_of_fit(held, rows, tmp_path):
    write_targets(tmp_path / "train", rows[0][:150], rows[1][:150], "multilabel")
    asked = ["--calibrate", str(held.path), "--executor", "serial"]
    done = printed("fit", "gls", tmp_path / "train", tmp_path / "run", "-p", "link=logit", *asked)
    assert "thresholds of labels (micro-f1) fitted to 300 held-out rows, on which now F1 " in done
    again = printed("calibrate", tmp_path / "run", held.path, "--calibration", "macro-f1")
    now, before = again.splitlines()
    assert now.startswith("thresholds of labels (macro-f1) fitted to 300 held-out rows, on which now F1 ")
    assert before.startswith("before: F1 ")
    assert "weighted (thresholds fitted: macro-f1)" in printed("evaluate", tmp_path / "run", held.path)
    assert load_model(tmp_path / "run").calibration["kind"] == "macro-f1"


def test_probabilities_stay_those_of_the_loss(model, held, tmp_path):
    log = replace(model, loss="ovr_log")
    for each in (log, calibrate(log, held).model):
        predict(each, held, tmp_path / f"{len(each.calibration)}.csv", proba=True, top=K)
    texts = [(tmp_path / f"{n}.csv").read_text().splitlines() for n in (0, 3)]
    without = [[line.rsplit(",", 2 * K)[1:] for line in text] for text in texts]
    assert without[0] == without[1]
    with pytest.raises(ParameterError, match="has no probabilities"):  # a calibrated threshold gives none
        predict(calibrate(model, held).model, held, tmp_path / "none.csv", proba=True)


def test_what_is_refused(model, held, tmp_path):
    assert raised(ParameterError, calibrate, model, held, "platt") == (
        "calibration platt: expected one of micro-f1, macro-f1 for the model, which predicts sets of labels"
    )
    with pytest.raises(MismatchError, match="is what the model was trained on"):
        calibrate(replace(model, dataset_fingerprint=held.fingerprint), held)
    classes = write_dataset(tmp_path / "c", *labelled_rows(90, 6, 3, 0), n_classes=3)
    with pytest.raises(ParameterError, match=r"calibration micro-f1: expected one of temperature, .*classes$"):
        fit("sgd", classes, tmp_path / "run", calibrate=classes, calibration="micro-f1")


@pytest.mark.parametrize(
    "changes",
    [{"threshold": np.zeros(2)}, {"threshold": np.array([np.nan])}, {"scale": np.zeros(1)}],
    ids=["size", "nan", "name"],
)
def test_forged_thresholds_are_refused(model, held, changes, tmp_path):
    save_model(tmp_path / "m", replace(calibrate(model, held).model, calibration_arrays=changes))
    refuses(FormatError, "a calibration micro-f1 ", evaluate, tmp_path / "m", held)
