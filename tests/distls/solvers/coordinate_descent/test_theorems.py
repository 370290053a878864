"""What the paper of block coordinate descent proves: K_j bounds the curvature of a block, and every outer iteration
descends; and its claim that one try of the line search usually suffices."""

import json

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls.training.fitting import fit
from distls.workers.losses.multiclass_squared_hinge import MulticlassSquaredHinge
from reference import bcd


def _gradient(x, y, m, w):
    return bcd.gradient(bcd.Problem(x, y, m), w)


@pytest.mark.fast_cases("2")
@pytest.mark.parametrize("m", [2, 3, 10])
def test_k_j_bounds_the_gradient_and_2m_is_attained(m):
    """|G_j(W) - G_j(W')| <= 2m/n sum x^2 |W_j - W'_j|; the printed 4(m-1)/n is 2(m-1)/m times that."""
    rng = np.random.default_rng(m)
    x, y = rng.standard_normal((40, 1)), rng.integers(0, m, 40)
    square = float(np.square(x).mean())
    ratios = []
    for _ in range(50):
        a, b = rng.standard_normal((2, 1, m)) * 0.3
        change = np.linalg.norm(_gradient(x, y, m, a) - _gradient(x, y, m, b)) / np.linalg.norm(a - b)
        ratios.append(change / square)
    sharp = MulticlassSquaredHinge().lipschitz(m)
    assert sharp == 2.0 * m
    assert max(ratios) <= sharp <= 4.0 * (m - 1)
    # attained where all rows are of one class, all rivals are within the margin, and the class moves against them
    away = np.full((1, m), -1.0 / m)
    away[0, 0] += 1.0
    change = np.linalg.norm(_gradient(x, 0 * y, m, 1e-3 * away) - _gradient(x, 0 * y, m, 0 * away))
    assert change / np.linalg.norm(1e-3 * away) / square == pytest.approx(sharp, rel=1e-9)


@pytest.mark.fast_cases("line")
@pytest.mark.parametrize("step", ["line-search", "constant"])
def test_every_outer_iteration_descends_and_one_try_suffices(tmp_path, step):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(300, 40, 4), shard_size=2000)
    given = {"alpha": 1e-3, "step": step}
    result = fit("bcd", dataset, tmp_path / "r", params=given, as_published=True, passes=30, eval_every=1)
    lines = (result.run / "events.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if "objective" in event]
    objectives = [event["objective"] for event in events]
    assert len(objectives) > 5
    assert (np.diff(objectives) <= 1e-14).all()
    moved = sum(event["details"]["blocks_moved"] for event in events)
    assert sum(event["details"]["tries"] for event in events) <= 1.01 * moved


def test_with_a_quarter_of_k_j_the_objective_rises():
    """K_j is no more than it has to be: rows of one class on both sides of zero, whose losses are quadratic there."""
    m = 5
    p = bcd.Problem(np.array([[1.0], [-1.0]]), np.zeros(2, int), m, alpha=0.0)
    w = np.full((1, m), -0.1 / m)
    w[0, 0] += 0.1
    k_j, g = bcd.constant(p, p.x[:, 0]), bcd.gradient(p, w)
    assert bcd.objective(p, w - g / k_j) < bcd.objective(p, w) < bcd.objective(p, w - 4.0 * g / k_j)
