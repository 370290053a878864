"""Areas under curves from scores summed by value: exact, or within the bound that is returned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from distls.workers.evaluation.ranked_scores import (
    ALL_SCORES,
    average_precision,
    capacity_for,
    merge_ranked,
    ranked,
    rates,
    roc_auc,
)

ALL = 2**40  # more distinct scores than any test has


def rows(n, seed=0, share=0.3):
    rng = np.random.default_rng(seed)
    own = rng.random(n) < share
    return rng.standard_normal(n) + 1.2 * own, own, rng.integers(1, 5, n) / 4.0


def in_blocks(scores, own, weight, capacity, n):
    found = None
    for part in np.array_split(np.arange(len(scores)), n):
        block = ranked(scores[part], own[part], weight[part], capacity)
        found = block if found is None else merge_ranked(found, block, capacity)
    return found


@pytest.mark.parametrize("ties", [False, True])
def test_exact_where_all_scores_are_kept(ties):
    scores, own, weight = rows(900)
    scores = np.round(scores, 1) if ties else scores
    found = in_blocks(scores, own, weight, ALL, 7)
    expected = metrics.roc_auc_score(own, scores, sample_weight=weight)
    assert roc_auc(found) == (pytest.approx(expected, rel=1e-12), 0.0)
    expected = metrics.average_precision_score(own, scores, sample_weight=weight)
    assert average_precision(found) == (pytest.approx(expected, rel=1e-12), 0.0)


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=2, max_size=60), st.integers(2, 12))
def test_the_exact_values_are_within_the_bounds(given_rows, capacity):
    scores, own = np.array([s for s, _ in given_rows]), np.array([o for _, o in given_rows])
    found = in_blocks(scores, own, np.ones(len(own)), capacity, 3 if len(own) > 6 else 1)
    assert len(found.keys) <= capacity
    assert found.own.sum() == own.sum()
    assert found.others.sum() == (~own).sum()
    area, precision = roc_auc(found), average_precision(found)
    if own.any() and not own.all():
        assert abs(area.value - metrics.roc_auc_score(own, scores)) <= area.bound + 1e-12
    if own.any():
        exact = metrics.average_precision_score(own, scores)
        assert abs(precision.value - exact) <= precision.bound + 1e-12


def test_none_without_rows_of_both_kinds():
    scores, own, weight = rows(20)
    every = np.ones_like(own)
    assert roc_auc(ranked(scores, every, weight, ALL)) is None
    assert average_precision(ranked(scores, ~every, weight, ALL)) is None
    empty = ranked(scores[:0], own[:0], weight[:0], ALL)
    assert roc_auc(merge_ranked(empty, ranked(scores, own, weight, ALL), ALL)) is not None


def test_two_classes_are_ranked_exactly_up_to_a_million_scores():
    scores, own, weight = rows(100_000)
    found = in_blocks(scores, own, weight, capacity_for(1, ALL_SCORES), 3)
    assert roc_auc(found) == (pytest.approx(metrics.roc_auc_score(own, scores, sample_weight=weight)), 0.0)
    assert in_blocks(scores, own, weight, capacity_for(1), 3).level > 0


def test_rates_are_those_of_all_cuts():
    scores, own, weight = rows(200)
    scores = np.round(scores, 1)
    found = rates(ranked(scores, own, weight, ALL))
    wrong, recall, _ = metrics.roc_curve(own, scores, sample_weight=weight, drop_intermediate=False)
    np.testing.assert_allclose(found[:, :2], np.stack([wrong, recall], axis=1)[1:])
    precision = metrics.precision_recall_curve(own, scores, sample_weight=weight)[0]
    np.testing.assert_allclose(found[:, 2], precision[-2::-1])
    assert rates(ranked(scores, np.ones_like(own), weight, ALL)).shape == (0, 3)


@pytest.mark.parametrize("n_classes", [2, 20, 100])
def test_bounds_are_below_a_thousandth_at_the_capacity_that_is_used(n_classes):
    scores, own, _ = rows(300_000, share=1 / n_classes)
    found = in_blocks(scores, own, np.ones(len(own)), capacity_for(n_classes), 4)
    assert found.level > 0
    area, precision = roc_auc(found), average_precision(found)
    assert 0.0 < area.bound < 1e-3
    assert abs(area.value - metrics.roc_auc_score(own, scores)) <= area.bound
    assert 0.0 < precision.bound < 1e-3
    assert abs(precision.value - metrics.average_precision_score(own, scores)) <= precision.bound
