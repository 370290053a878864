"""Stagewise regression on sets of labels: the oracle's stages of a logistic loss for each label, resumed fits."""

import numpy as np
import pytest
import scipy.sparse as sp
from target_helpers import write_targets

from distls.evaluation.evaluate import evaluate
from distls.storage.errors import ParameterError
from distls.training.fitting import fit
from reference import stagewise as oracle

K = 3
LOGIT = {
    "inner": "logit", "inner_rounds": 4, "block_size": 5, "order": "frequency", "dtype": "float64", "alpha": 1e-3
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of ten features, the second half of which fewer rows have, with up to three labels."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((120, 10)) * (rng.random((120, 10)) < np.linspace(0.95, 0.4, 10))
    y = (x @ rng.standard_normal((10, K)) + 0.3 * rng.standard_normal((120, K)) > 0.5).astype(int)
    path = tmp_path_factory.mktemp("d") / "train"
    return write_targets(path, sp.csr_matrix(x), y, "multilabel", partition_rows=40), x, y.astype(float)


@pytest.mark.fast_cases("none")
@pytest.mark.parametrize("accelerate", ["none", "nesterov"])
def test_every_stage_is_the_oracles(data, accelerate):
    dataset, x, y = data
    order = np.argsort(-(x != 0).sum(axis=0), kind="stable")
    stages = oracle.logistic(
        [x[:, np.sort(order[:5])], x[:, np.sort(order[5:])]],
        y,
        1e-3,
        s=np.ones(len(x)),
        intercept=True,
        rounds=4,
        accelerate=accelerate == "nesterov",
        lipschitz=0.25,
        mean=oracle.logits,
    )
    result = fit("stagewise", dataset, params={**LOGIT, "accelerate": accelerate})
    scores = x @ result.model.weights + result.model.intercept
    np.testing.assert_allclose(scores, stages[-1].after, rtol=1e-9, atol=1e-11)
    assert (result.model.loss, result.passes) == ("ovr_log", 9)  # one of them for the order
    found = evaluate(result.model, dataset)
    assert found.error == pytest.approx(np.any((scores > 0) != (y > 0), axis=1).mean(), abs=1e-12)


def test_one_block_ends_at_the_optimum(data):
    """Its certificate is that of its weights, which here minimise the objective."""
    params = {
        **LOGIT,
        "block_size": 10,
        "inner_rounds": 120,
        "accelerate": "nesterov",
        "fit_intercept": False,
    }
    record = fit("stagewise", data[0], params={**params, "alpha": 0.1}).record
    assert 0.0 <= record["certificate"]["value"] < 1e-9


def test_softmax_is_refused_with_what_suits(data):
    with pytest.raises(ParameterError, match="they need inner=logit or inner=linear or inner=calibrated"):
        fit("stagewise", data[0], params={"inner": "logistic"})
