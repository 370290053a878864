"""What every penalty promises: a prox that is the minimum, values that add up over rows, a dual bound that is one."""

import numpy as np
import pytest
from numpy.typing import NDArray

from distls.workers.penalties.penalty import Penalty
from distls.workers.penalties.penalty_registry import penalty_value, prox_rows, register_penalty

RATIO = 0.3  # the share of the first of two parts, where a penalty has them


class PenaltyContract:
    """What every penalty must do; subclasses provide the fixture `penalty`, which need not be registered."""

    @pytest.fixture
    def name(self, penalty: Penalty) -> str:
        """Register the penalty, which is no harm if it is, and return its name."""
        return register_penalty(penalty).name

    @pytest.fixture
    def rows(self) -> NDArray[np.float64]:
        """Rows of weights, with ties, zeros and a row of zeros."""
        rows = np.random.default_rng(1).standard_normal((20, 4)).round(1)
        rows[3] = 0.0
        rows[4, 1:] = rows[4, 0]
        return rows

    def test_values_of_rows_add_up(self, name: str, rows: NDArray[np.float64]) -> None:
        total = sum(penalty_value(name, row[None], RATIO) for row in rows)
        assert penalty_value(name, rows, RATIO) == pytest.approx(total, rel=1e-12)
        assert penalty_value(name, np.zeros((2, 3)), RATIO) == 0.0

    @pytest.mark.parametrize("mu", [0.05, 0.7, 4.0])
    def test_nothing_near_the_prox_is_better(self, name: str, rows: NDArray[np.float64], mu: float) -> None:
        rng, best = np.random.default_rng(2), prox_rows(name, rows, mu, RATIO)

        def value(w: NDArray[np.float64], row: int) -> float:
            apart = w - rows[row]
            return 0.5 * float(apart @ apart) + mu * penalty_value(name, w[None], RATIO)

        for row in range(len(rows)):
            least = value(best[row], row)
            for size in (1.0, 1e-2, 1e-4):
                assert least <= value(best[row] + size * rng.uniform(-1, 1, 4), row) + 1e-12
            assert least <= value(rows[row], row) + 1e-12

    def test_it_is_convex_and_even(self, name: str, rows: NDArray[np.float64]) -> None:
        for one, two in zip(rows, rows[::-1], strict=True):
            ends = penalty_value(name, one[None], RATIO) + penalty_value(name, two[None], RATIO)
            assert penalty_value(name, (one + two)[None] / 2, RATIO) <= ends / 2 + 1e-12
        assert penalty_value(name, -rows, RATIO) == pytest.approx(penalty_value(name, rows, RATIO))

    def test_the_conjugate_bounds_every_product(self, penalty: Penalty, name: str, rows: NDArray[np.float64]) -> None:
        """Fenchel: no weights W have c V . W - alpha R(W) above the value that `conjugate` gives with the factor c."""
        alpha = 0.5
        factor, value = penalty.conjugate(rows, alpha, RATIO)
        rng = np.random.default_rng(3)
        for size in (1e-2, 1.0, 10.0):
            w = size * rng.standard_normal(rows.shape) + size * rows
            assert factor * (rows * w).sum() - alpha * penalty_value(name, w, RATIO) <= value + 1e-9
