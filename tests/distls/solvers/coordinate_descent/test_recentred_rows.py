"""Rows of weights less their best constant: the same optimum in fewer rounds."""

import numpy as np
import pytest
from contract import Rounds
from helpers import labelled_rows, stored_rows

from distls.solvers.coordinate_descent.bcd import BcdState, BlockCoordinateDescent
from distls.training.fitting import fit
from distls.workers.penalties.penalty_registry import penalty_named
from reference import bcd

dataset = stored_rows(330, 40, 4, shard_size=2000)


def _without(monkeypatch):
    """Start fits whose rows are not recentred."""
    begin = BlockCoordinateDescent.init

    def init(self):
        state = begin(self)
        return BcdState(weights=state.weights, intercept=state.intercept)

    monkeypatch.setattr(BlockCoordinateDescent, "init", init)


PROBLEM = {"penalty": "sparse-group", "alpha": 5e-3, "tau": 0, "lanes": 1, "fit_intercept": False}


def _objectives(dataset, p):
    kept = Rounds()
    params = {**PROBLEM, "loss": p.loss, "penalty": p.penalty, "alpha": p.alpha}
    fit("bcd", dataset, params=params, passes=40, eval_every=0, callbacks=[kept])
    return np.array([bcd.objective(p, state.weights) for state in kept.states])


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["multiclass_squared_hinge", "softmax"])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "l1linf", "sparse-group"])
def test_the_same_optimum_and_never_further_from_it(dataset, monkeypatch, loss, penalty):
    x, y = labelled_rows(330, 40, 4)
    p = bcd.Problem(x.toarray().astype(float), y, 4, loss=loss, penalty=penalty, alpha=5e-3)
    now = _objectives(dataset, p)
    _without(monkeypatch)
    before = _objectives(dataset, p)
    best = min(now.min(), before.min())
    assert (np.diff(now) <= 1e-10 * best).all()
    now, before = now / best - 1, before / best - 1
    needed = [int(np.argmax(values <= 1e-7)) if values.min() <= 1e-7 else 99 for values in (now, before)]
    assert needed[0] <= needed[1]
    assert now[-1] <= 1e-7


@pytest.mark.slow
def test_every_row_is_left_at_its_best_constant(dataset):
    params = {**PROBLEM, "loss": "softmax"}
    w = fit("bcd", dataset, params=params, passes=3, eval_every=0).model.weights
    w = w[w.any(axis=1)]
    np.testing.assert_allclose(penalty_named("sparse-group").best_constants(w, 0.5), 0.0, atol=1e-12)


@pytest.mark.slow
def test_losses_that_feel_a_constant_and_the_papers_algorithm_are_left_alone(dataset, monkeypatch):
    settings = [{"loss": "multitask_squared_hinge"}, {"loss": "softmax", "active_sweeps": 0}]
    now = [fit("bcd", dataset, params={**PROBLEM, **own}, passes=3, eval_every=0) for own in settings]
    _without(monkeypatch)
    before = [fit("bcd", dataset, params={**PROBLEM, **own}, passes=3, eval_every=0) for own in settings]
    assert [each.model.sha256 for each in now] == [each.model.sha256 for each in before]
