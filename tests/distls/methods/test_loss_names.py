"""Short names of losses: what they stand for is told, and the full names are accepted beside them."""

import pytest
from helpers import printed

from distls.methods.method_registry import METHODS

HINGES = [name for name, method in METHODS.items() if "hinge" in method.aliases]
BOTH = ("sgd", "asgd", "sdca")  # methods that have both hinges


@pytest.mark.parametrize("name", HINGES)
def test_a_method_tells_which_hinge_it_means(name):
    full = METHODS[name].aliases["hinge"]
    assert full in ("crammer_singer", "ovr_hinge")
    assert f"hinge = {full}" in printed("methods", name)
    assert METHODS[name].resolve({"loss": "hinge"})["loss"] == full
    assert METHODS[name].resolve({"loss": full})["loss"] == full


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.aliases])
def test_every_short_name_that_is_told_is_accepted(name):
    for short, full in METHODS[name].aliases.items():
        assert METHODS[name].resolve({"loss": short})["loss"] == full


@pytest.mark.parametrize("name", BOTH)
def test_both_hinges_have_names_where_both_exist(name):
    shown = " ".join(printed("methods", name).split())
    for full in ("crammer_singer", "ovr_hinge"):
        assert METHODS[name].resolve({"loss": full})["loss"] == full
    assert "crammer_singer (hinge)" in shown
