"""Parameters of a method: what a refused value's message holds."""

import pytest
from helpers import raised

from distls.methods.method_registry import METHODS
from distls.storage.errors import ParameterError


def test_every_method_has_an_intercept_by_default():
    for name, method in METHODS.items():
        defaults = {p.name: p.default for p in method.parameters}
        assert defaults["fit_intercept"] is True, name
        assert not {"fit_intercept"} & {*method.continuous, *method.multilabel}, name


def test_a_short_value_is_shown_whole():
    with pytest.raises(ParameterError, match=r"^sgd: alpha=few: "):
        METHODS["sgd"].resolve({"alpha": "few"})


def test_a_long_value_is_cut():
    deep = "[" * 100_000
    message = raised(ParameterError, METHODS["sgd"].resolve, {"class_weight": deep})
    assert message.startswith(f"sgd: class_weight={'[' * 80}...: ")
    assert len(message) < 300
