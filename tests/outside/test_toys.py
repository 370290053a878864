"""Each addition of this package against the suite of its kind."""

import numpy as np
import pytest
import toys

from distls.testing.formats import FormatContract, Source
from distls.testing.losses import LossContract
from distls.testing.penalties import PenaltyContract
from distls.testing.solvers import SolverContract


class TestLoss(LossContract):
    @pytest.fixture
    def loss(self):
        return toys.ToySquared()


class TestPenalty(PenaltyContract):
    @pytest.fixture
    def penalty(self):
        return toys.ToyRidge()


class TestMethod(SolverContract):
    method = "toy-sgd"


class TestFormat(FormatContract):
    format = "toy"

    @pytest.fixture
    def source(self, tmp_path):
        rng = np.random.default_rng(0)
        x, y = rng.integers(-9, 9, (300, 3)) / 4, rng.integers(0, 2, 300)
        files = [tmp_path / "a.toy", tmp_path / "b.toy"]
        for file, rows in zip(files, (slice(0, 200), slice(200, 300)), strict=True):
            lines = ["/".join(map(str, [label, *row])) for label, row in zip(y[rows], x[rows], strict=True)]
            file.write_text("\n".join(lines) + "\n")
        return Source(files, x, y)
