"""Shrinking: columns that are far from getting weights are skipped, and swept again before the fit ends."""

from typing import Any

import numpy as np
import pytest
from contract import Rounds
from helpers import labelled_rows, refuses, write_dataset

from distls.solvers.coordinate_descent.bcd_round import RoundSetting
from distls.storage.errors import ParameterError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume
from distls.workers.runtime.rng import Purpose, rng
from reference import bcd

Array = np.ndarray[Any, np.dtype[np.float64]]
D, K = 60, 4
PLAIN = {"alpha": 2e-2, "fit_intercept": False}


def rows():
    return labelled_rows(330, D, K)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "train", *rows(), shard_size=2000)


def _fit(dataset, **params):
    kept = Rounds()
    given = {**PLAIN, "lanes": 1, "shrink": True, "tau": 1e-5, **params}
    return fit("bcd", dataset, params=given, passes=300, eval_every=0, callbacks=[kept]), kept


def shrunk_sweeps(p, order_of, tau, most):
    """Yuan et al. 2010, section 4.1.3, with blocks in place of weights, as section 5.2.4 says: W and blocks left out.

    Zero blocks with |G_j| < alpha - M are left out, M the largest violation of the sweep before; once the sum of the
    violations of the others is small all come back, and a sweep over all decides.
    """
    w, idle, largest, first = np.zeros((D, K)), np.zeros(D, bool), np.inf, None
    out = []
    left = []
    for number in range(most):
        left.append(int(idle.sum()))
        w, z, violations, marked = w.copy(), p.x @ w, [0.0], idle.copy()
        for j in order_of(number, np.flatnonzero(~idle)):
            if not w[j].any() and p.x[:, j].any():
                g = (p.weights * p.x[:, j]) @ bcd.rows_of(p, z)[1]
                marked[j] = np.sqrt(g @ g) <= p.alpha - largest
            w[j], z, violation, _ = bcd.solve_block(p, w, z, j, "line-search")
            violations.append(violation)
        out.append(w)
        first = first or sum(violations)
        if sum(violations) <= tau * first:
            if not idle.any():
                break
            idle, largest = np.zeros(D, bool), np.inf
        else:
            idle, largest = marked & ~w.any(axis=1), max(violations)
    return out, left


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["multiclass_squared_hinge", "softmax"])
def test_one_lane_is_yuan_s_shrinking(dataset, loss):
    x, y = rows()
    p, shards = bcd.Problem(x.toarray().astype(float), y, K, loss=loss, alpha=2e-2), dataset.columns

    def order(number, swept):
        out = []
        for place in rng(0, Purpose.BLOCKS, number, 0, 0).permutation(len(shards)):
            first, stop = shards.first[place : place + 2]
            mine = swept[(swept >= first) & (swept < stop)]
            out += mine[rng(0, Purpose.BLOCKS, number, 0, 0, first).permutation(len(mine))].tolist()
        return out

    expected, left = shrunk_sweeps(p, order, 1e-3, 300)
    result, kept = _fit(dataset, loss=loss, active_sweeps=0, tau=1e-3)
    assert result.status == "CONVERGED"
    assert kept.each("skipped") == left
    assert max(left) > 0
    assert left[-1] == 0
    np.testing.assert_allclose(kept.states[-1].weights, expected[-1], atol=1e-9)


@pytest.mark.fast_cases("1-l1$")
@pytest.mark.parametrize("penalty", ["l1l2", "l1", "elasticnet", "sparse-group", "l1linf"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_the_optimum_is_the_same_and_the_last_round_judges_every_column(dataset, penalty, lanes):
    x, y = rows()
    p = bcd.Problem(x.toarray().astype(float), y, K, penalty=penalty, alpha=2e-2)
    kept = _fit(dataset, penalty=penalty, lanes=lanes, tau=1e-7)
    plain = fit("bcd", dataset, params={**PLAIN, "lanes": lanes, "tau": 1e-7, "penalty": penalty},
                passes=300, eval_every=0)  # fmt: skip
    assert kept[0].status == plain.status == "CONVERGED"
    values = [bcd.objective(p, r.model.weights.astype(float)) for r in (kept[0], plain)]
    assert values[0] == pytest.approx(values[1], rel=1e-7)
    assert max(kept[1].each("skipped")) > 0
    assert kept[1].each("skipped")[-1] == 0


@pytest.mark.slow
def test_a_column_skipped_too_early_comes_back(dataset, monkeypatch):
    # every column that is zero after its second sweep is skipped
    monkeypatch.setattr(RoundSetting, "_idle_below", lambda self, state: 0.0 if state.largest < 0.0 else 2e-2)
    result, kept = _fit(dataset, tau=1e-7)
    plain = fit("bcd", dataset, params={**PLAIN, "lanes": 1, "tau": 1e-7}, passes=300, eval_every=0)
    assert max(kept.each("skipped")) > 0
    x, y = rows()
    p = bcd.Problem(x.toarray().astype(float), y, K, alpha=2e-2)
    values = [bcd.objective(p, r.model.weights.astype(float)) for r in (result, plain)]
    assert values[0] == pytest.approx(values[1], rel=1e-7)


@pytest.mark.slow
def test_a_stopped_fit_goes_on_with_the_same_columns(dataset, tmp_path):
    params = {**PLAIN, "lanes": 3, "shrink": True, "tau": 1e-6}
    whole = fit("bcd", dataset, params=params, passes=300, eval_every=0)
    with interrupted():
        fit("bcd", dataset, run=tmp_path / "run", params=params, passes=300, eval_every=0, callbacks=[StopAfter(6)])
    again = resume(tmp_path / "run")
    np.testing.assert_array_equal(whole.model.weights, again.model.weights)


def test_without_an_end_there_is_no_shrinking(dataset):
    refuses(ParameterError, "shrink needs tau > 0", _fit, dataset, tau=0)
