"""A metric is a fact of its evaluation: what shows evaluations shows it, and names none of them."""

from dataclasses import dataclass

import numpy as np

from distls.evaluation.metrics import RegressionEvaluation
from distls.facts import Fact, as_json
from distls.reporting.markup import card


@dataclass(frozen=True, eq=False, repr=False)
class WithRoot(RegressionEvaluation):
    """An evaluation with the root of the mean squared error."""

    def facts(self):
        return [*super().facts(), Fact("rmse", self.mse**0.5, ".3f", key="rmse")]


def test_a_metric_from_outside_is_shown():

    found = WithRoot(10, np.array([4.0]), np.array([8.0]), False)
    assert repr(found).endswith("rmse 2.000>")
    assert as_json(found.facts())["rmse"] == 2.0
    assert "rmse" in card("evaluation", found.facts())
