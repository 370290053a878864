"""What the duals of a run prove, computed again: by `evaluate`, in `info`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import labelled_rows, write_dataset

from distls.cli import cli
from distls.execution.serial import SerialExecutor
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import StateLostError
from distls.training.fitting import fit
from distls.training.proof import prove


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("d") / "train", *labelled_rows(90, 12, 3))


def _evaluated(*arguments: object) -> str:
    result = CliRunner().invoke(cli, ["evaluate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("intercept", [False, True])
def test_evaluate_computes_the_gap_again(data: Dataset, tmp_path: Path, intercept: bool) -> None:
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
        f"objective {found['objective']:.6f}, at most {found['certificate']['value']:.2e} ({share:.2g} %) above the "
        "optimum (duality_gap)"
    )


def test_other_data_and_other_methods_have_no_proof(data: Dataset, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "other", *labelled_rows(80, 12, 3))
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    fit("mcid", data, tmp_path / "mcid", passes=1)
    assert "objective" not in _evaluated(tmp_path / "run", other.path)
    assert "objective" not in _evaluated(tmp_path / "mcid", data.path)


def test_the_duals_of_a_selected_setting(data: Dataset, tmp_path: Path) -> None:
    result = fit("sdca", data, tmp_path / "run", params={"alpha": [1e-1, 1e-2]}, select=data)
    found = prove(tmp_path / "run", data, SerialExecutor())
    assert found is not None
    assert found["objective"] == pytest.approx(result.record["objective"], rel=1e-12)
    shown = json.loads(CliRunner().invoke(cli, ["info", str(tmp_path / "run"), "--json"]).output)
    assert shown["duals"]["folder"].startswith(str(tmp_path / "run" / "children"))
    assert shown["duals"]["files"] >= 1


def test_lost_duals_are_said_to_be_lost(data: Dataset, tmp_path: Path) -> None:
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    for file in (tmp_path / "run" / "state").glob("*.npy"):
        file.unlink()
    with pytest.raises(StateLostError):
        prove(tmp_path / "run", data, SerialExecutor())
    output = _evaluated(tmp_path / "run", data.path)
    assert "the objective and its bound are not computed anew" in output
    assert "error" in output
