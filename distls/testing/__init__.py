"""Suites that every method, loss, penalty, format, executor and store passes; for pytest, which has to be installed.

A package that adds one inherits the suite and says which one is meant::

    from distls.testing.losses import LossContract

    class TestMyLoss(LossContract):
        @pytest.fixture
        def loss(self):
            return MyLoss()

`CONTRIBUTING.md`, "How to add", names the suite of each kind.
"""

import pytest

# assertions that fail show their values
pytest.register_assert_rewrite(
    *(f"{__name__}.{suite}" for suite in ("executors", "formats", "losses", "penalties", "solvers", "stores"))
)
