"""What the duals of a run prove, computed again: by `evaluate`, in `info`."""

import json

import numpy as np
import pytest
from helpers import distls, labelled_rows, printed, stored_rows, write_dataset
from target_helpers import write_targets

from distls import evaluate
from distls.evaluation.evaluate import prove
from distls.execution.serial import SerialExecutor
from distls.storage.errors import StateLostError
from distls.storage.model.model import load_model
from distls.training.fitting import fit

data = stored_rows(90, 12, 3)


def _evaluated(*arguments):
    """Return what the command says, on stdout and on stderr."""
    ended = distls("evaluate", *arguments)
    assert ended.code == 0, ended
    return ended.out + ended.err


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("intercept", [False, True])
def test_evaluate_computes_the_gap_again(data, tmp_path, intercept):
    params = {"alpha": 1e-2, "fit_intercept": intercept}
    record = fit("sdca", data, tmp_path / "run", params=params).record
    found = json.loads(_evaluated(tmp_path / "run", data.path, "--json"))
    # the published intercept is rounded; a fit also knows the bounds of earlier rounds
    assert found["objective"] == pytest.approx(record["objective"], rel=1e-6)
    assert found["certificate"]["value"] >= record["certificate"]["value"] * (1 - 1e-3)
    assert found["certificate"]["relative"] == found["certificate"]["value"] / found["objective"] < 2e-3
    assert "n_rows" in found
    last = _evaluated(tmp_path / "run", data.path).splitlines()[-1]
    share = 100 * found["certificate"]["relative"]
    assert last == (
        f"objective {found['objective']:.6f}, proven to be at most {share:.2g} % "
        f"({found['certificate']['value']:.2e}) above the lowest possible (duality_gap)"
    )


def test_other_data_and_other_methods_have_no_proof(data, tmp_path):
    other = write_dataset(tmp_path / "other", *labelled_rows(80, 12, 3))
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    fit("mcid", data, tmp_path / "mcid", passes=1)
    assert "objective" not in _evaluated(tmp_path / "run", other.path)
    assert "objective" not in _evaluated(tmp_path / "mcid", data.path)


@pytest.mark.slow
def test_the_duals_of_a_selected_setting(data, tmp_path):
    params = {"alpha": [1e-1, 1e-2], "fit_intercept": False}
    result = fit("sdca", data, tmp_path / "run", params=params, select=data)
    found = prove(tmp_path / "run", load_model(tmp_path / "run"), data, SerialExecutor())
    assert found["objective"] == pytest.approx(result.record["objective"], rel=1e-12)
    shown = json.loads(printed("info", tmp_path / "run", "--json"))
    assert shown["duals"]["folder"].startswith(str(tmp_path / "run" / "children"))
    assert shown["duals"]["files"] >= 1


def test_lost_duals_are_said_to_be_lost(data, tmp_path):
    """Fault: Duals (RUN/state of `sdca`) removed after the fit | `distls evaluate` on the training data | the
    scores, and a note that objective and gap are not recomputed"""
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    for file in (tmp_path / "run" / "state").glob("*.npy"):
        file.unlink()
    with pytest.raises(StateLostError):
        prove(tmp_path / "run", load_model(tmp_path / "run"), data, SerialExecutor())
    output = _evaluated(tmp_path / "run", data.path)
    assert "the objective and its bound are not recomputed" in output
    assert "error" in output


@pytest.mark.fast_cases("class$")
@pytest.mark.parametrize("kind", ["class", "multilabel", "continuous"])
def test_python_s_evaluate_has_the_proof_of_the_command(tmp_path, kind):
    x, y = labelled_rows(60, 8, 3)
    targets = {"class": y, "multilabel": np.eye(3, dtype=int)[y], "continuous": y[:, None].astype(float)}
    if kind == "class":
        train = write_dataset(tmp_path / "train", x, y)
    else:
        train = write_targets(tmp_path / "train", x, targets[kind], kind)
    fit("sdca", train, tmp_path / "run", params={"alpha": 1e-2})
    shown = json.loads(_evaluated(tmp_path / "run", train.path, "--json"))
    found = evaluate(tmp_path / "run", train)
    assert found.objective == shown["objective"]
    assert found.certificate == shown["certificate"]
    assert found.to_json() == shown
    # a model that has left its run, other data, another method
    other = write_dataset(tmp_path / "other", x[:50], y[:50]) if kind == "class" else None
    assert evaluate(load_model(tmp_path / "run"), train).objective is None
    assert other is None or evaluate(tmp_path / "run", other).certificate is None
    assert "objective" not in evaluate(load_model(tmp_path / "run"), train).to_json()


def test_python_s_evaluate_says_what_is_lost(data, tmp_path):
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    for file in (tmp_path / "run" / "state").glob("*.npy"):
        file.unlink()
    with pytest.warns(UserWarning, match="the objective and its bound are not recomputed: .*missing"):
        assert evaluate(tmp_path / "run", data).objective is None


@pytest.mark.slow
def test_a_fit_starts_from_the_duals_of_a_selected_setting(data, tmp_path):
    """As from the run of the setting that won."""
    parent = fit("sdca", data, tmp_path / "run", params={"alpha": [1.0, 1e-2, 1e-1]}, select=data)
    won = tmp_path / "run" / "children" / "001"
    assert load_model(won).sha256 == parent.model.sha256
    params = {"alpha": 1e-3, "init": str(won)}
    best = fit("sdca", data, params=params, passes=1).model
    assert (
        fit("sdca", data, params={**params, "init": str(tmp_path / "run")}, passes=1).model.sha256
        == best.sha256
    )
    for file in (won / "state").glob("*.npy"):
        file.unlink()
    with pytest.raises(StateLostError):
        prove(tmp_path / "run", parent.model, data, SerialExecutor())


@pytest.mark.slow
def test_the_best_weights_of_patience_have_no_duals(data, tmp_path):
    """Duals are those of the last round; where an earlier one is published, that is said."""
    x, _ = labelled_rows(40, 12, 3)
    judge = write_dataset(tmp_path / "judge", x, np.zeros(40, np.int32), n_classes=3)
    run = tmp_path / "run"
    params = {"alpha": 1e-3, "fit_intercept": True, "intercept_scaling": 1.0}
    result = fit("sdca", data, run, params=params, passes=9, eval_data=judge, patience=3)
    assert result.status == "EARLY_STOPPED"
    message = "no duals of these weights are kept"
    assert message in _evaluated(run, data.path)
    with pytest.warns(UserWarning, match=message):
        assert evaluate(run, data).objective is None
    assert json.loads(printed("info", run, "--json"))["duals"] is None
    # without duals the gradient bounds the distance, that of the penalised intercept included
    best = fit("sdca", data, params=params, rtol=1e-6).record["objective"]
    excess = result.record["objective"] - best
    assert 0.0 < excess <= result.record["certificate"]["value"]
