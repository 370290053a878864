"""Stagewise regression with other links inside: the oracle's stages, and counts, whose slopes have no bound."""

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset
from scipy.special import ndtr
from target_helpers import write_targets

from distls.storage.errors import ParameterError
from distls.training.fitting import fit
from reference import stagewise as oracle

STEPS = {
    "inner_rounds": 4,
    "block_size": 4,
    "dtype": "float64",
    "alpha": 1e-3,
    "order": "rareness",
}
POISSON = {**STEPS, "inner": "poisson", "inner_rounds": 60}


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 8))
    y = rng.poisson(np.exp(2.0 + x @ rng.standard_normal((8, 1)) * 0.4)).astype(np.float64)
    return write_targets(tmp_path_factory.mktemp("d") / "train", x, y, "continuous", partition_rows=90)


def test_a_bounded_link_is_the_oracles(tmp_path):
    x, y = labelled_rows(120, 8, 3)
    dense = x.toarray() * (np.random.default_rng(0).random((120, 8)) < np.linspace(0.3, 0.9, 8))
    order = np.argsort((dense != 0).sum(axis=0), kind="stable")  # the rarest first
    stages = oracle.logistic(
        [dense[:, np.sort(order[:4])], dense[:, np.sort(order[4:])]], np.eye(3)[y], 1e-3,
        s=np.ones(120), intercept=True, rounds=4, lipschitz=1.0 / np.sqrt(2.0 * np.pi), mean=ndtr,
    )  # fmt: skip
    model = fit(
        "stagewise", write_dataset(tmp_path / "d", dense, y), params={**STEPS, "inner": "probit"}
    ).model
    scores = dense @ model.weights + model.intercept
    np.testing.assert_allclose(scores, stages[-1].after, rtol=1e-9, atol=1e-11)


def test_one_block_of_counts_ends_at_the_optimum_of_gls(counts):
    # steps begin too long by far, as the mean count is above seven
    params = {**POISSON, "block_size": 8, "inner_rounds": 400, "alpha": 1e-2}
    found = fit("stagewise", counts, params=params).model
    best = fit("gls", counts, params={"link": "poisson", "alpha": 1e-2}, passes=400).model
    np.testing.assert_allclose(found.weights, best.weights, atol=1e-6)
    np.testing.assert_allclose(found.intercept, best.intercept, atol=1e-6)


@pytest.mark.slow
def test_every_block_of_counts_lowers_the_objective(counts):
    values = [
        fit("stagewise", counts, params={**POISSON, "stages": n}).record["objective"] for n in (1, 2, 4)
    ]
    assert values[0] > values[1] > values[2]


def test_acceleration_needs_a_bound(counts):
    with pytest.raises(ParameterError, match="accelerate=nesterov"):
        fit("stagewise", counts, params={**POISSON, "accelerate": "nesterov"})
