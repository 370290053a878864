"""Working sets: the optimum of the paper's sweeps and of independent programs, with a certificate in every round."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract
from helpers import labelled_rows, write_dataset
from sklearn.linear_model import LogisticRegression

from distls.columns.sharding import add_columns
from distls.solvers.coordinate_descent.working_set_round import WorkingSetRound
from distls.solvers.events import SilentCallback
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import ParameterError
from distls.training.fitting import fit
from distls.workers.coordinate_descent import all_rows
from distls.workers.coordinate_descent.prox_newton import ProxNewton

LOSSES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "elasticnet", "l1linf", "sparse-group"]


def with_columns(path: Path, x: Any, y: np.ndarray, **options: Any) -> Dataset:
    """Write a dataset with about a dozen column shards."""
    write_dataset(path, x, y, **options)
    return add_columns(path, shard_size=2000)


class TestContract(SolverContract):
    method = "bcd"
    params: ClassVar[dict[str, Any]] = {"alpha": 1e-2, "lanes": 5, "tau": 0.0, "fit_intercept": True}
    passes = 5
    random: ClassVar[bool] = False

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        x, y = labelled_rows(1050, 60, 5)
        return with_columns(tmp_path_factory.mktemp("data") / "train", x, y)


@pytest.fixture(scope="module", params=["csr", "dense"])
def small(request, tmp_path_factory):
    """300 rows of unequal weights, 40 features with means in 12 shards, 3 classes."""
    x, y = labelled_rows(300, 40, 3)
    full = np.asarray(x.todense())
    full[:, :5] += 0.3
    rows = sp.csr_matrix(full) if request.param == "csr" else full
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y)).astype(np.float32)
    return with_columns(tmp_path_factory.mktemp("small") / "train", rows, y, sample_weight=weight)


class Records(SilentCallback):
    """The records of a fit's rounds."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def on_round(self, event) -> None:
        self.found.append(event.record)


def records_of(dataset: Dataset, **params: Any) -> tuple[Any, list[dict[str, Any]]]:
    kept = Records()
    result = fit("bcd", dataset, params=params, rtol=1e-10, passes=60, callbacks=[kept])
    return result, kept.found


def sweeps_of(dataset: Dataset, **params: Any) -> float:
    """Return the optimum that the paper's sweeps find."""
    asked = {**params, "algorithm": "sweeps", "lanes": 1, "tau": 1e-10}
    return float(fit("bcd", dataset, params=asked, passes=600).record["objective"])


@pytest.mark.slow_cases("csr-(True|False)-(l1-|elastic|l1linf|sparse)|csr-True|dense|multitask|softmax")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_optimum_is_that_of_the_sweeps(small, intercept, penalty, loss):
    params = {"loss": loss, "penalty": penalty, "alpha": 1e-2, "fit_intercept": intercept}
    result, records = records_of(small, **params)
    best = sweeps_of(small, **params)
    assert result.status == "CONVERGED"
    assert result.record["objective"] == pytest.approx(best, rel=2e-10)
    assert len(records) <= 12
    # every round proves its own distance, and what it proves is true
    for record in records:
        assert record["certificate"]["kind"] == "duality_gap"
        assert record["objective"] - record["certificate"]["value"] <= best * (1 + 1e-12)
        assert record["eval_bytes_read"] == 0
