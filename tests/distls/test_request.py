"""A request is declared once: who else names its fields, what is generated from it, the walk of a setting."""

import ast
import inspect
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import setting_walk

import distls
from distls.cli import cli
from distls.request import ALONE, OPTIONS, Options, Request
from distls.storage.errors import ParameterError
from distls.training.run_config import RunConfig

SETTING_WALK = setting_walk.__file__

PRODUCT = Path(distls.__file__).parent
BY_NAME = {option.name: option for option in OPTIONS}


def _named_in(path):
    """Return the names that a module's code has: variables, attributes, keywords, and texts that are one word."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        for field in ("id", "attr", "arg", "value"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                names.add(name)
    return names


@pytest.mark.fast_cases("max_seconds")
@pytest.mark.parametrize(
    ("limit", "others"),
    [
        ("max_seconds", set()),
        ("eval_every", {"cli/demo.py"}),  # which asks for it
        ("patience", {"training/configuration.py"}),  # not with `debias`, a method's own
    ],
)
def test_a_limit_is_named_where_it_is_declared_and_where_it_acts(limit, others):
    said = [path for path in PRODUCT.rglob("*.py") if limit in path.read_text()]
    found = {path.relative_to(PRODUCT).as_posix() for path in said if limit in _named_in(path)}
    assert found == {"request.py", "solvers/loop.py"} | others


def test_type_checkers_are_told_of_every_option():
    assert set(Options.__annotations__) == set(BY_NAME)
    ours = {"bool": bool, "int": int, "float | None": float, "int | None": int}
    told = {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in Options.__annotations__.items()}
    assert {n: ours[t] for n, t in told.items() if t in ours} == {
        o.name: o.kind for o in OPTIONS if o.kind in (bool, int, float)
    }


@pytest.mark.parametrize(("function", "names"), [(distls.fit, list(BY_NAME)), (distls.train, ALONE)])
def test_keywords_have_their_names_defaults_and_texts(function, names):
    parameters = inspect.signature(function).parameters
    assert "asked" not in parameters
    for name in names:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == BY_NAME[name].default
        assert f"\n{name} : " in (function.__doc__ or "")
    assert "%(" not in (function.__doc__ or "")


def test_the_keywords_of_fit_are_those_that_users_know():
    known = ("method dataset run params passes tol rtol max_seconds eval_data eval_every patience select refit seed "
             "calibrate calibration threshold_for as_published parallelism executor client memory callbacks "
             "workers threads memory_limit progress "
             "checkpoint_seconds")  # fmt: skip
    assert set(inspect.signature(distls.fit).parameters) == set(known.split())


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("fit", list(BY_NAME)),
        ("train", ALONE),
        ("plan", ("passes", "seed", "as_published", "parallelism")),
        ("calibrate", ("calibration",)),
    ],
)
def test_commands_take_what_is_declared(command, names):
    options = {parameter.name: parameter for parameter in cli.commands[command].params}
    for name in names:
        option = options[name]
        assert option.opts == [BY_NAME[name].flag]
        assert getattr(option, "help", None) == BY_NAME[name].help
        assert (option.default or None) == (BY_NAME[name].default or None)


def test_a_keyword_that_is_none_is_refused():
    with pytest.raises(TypeError, match="patients"):
        distls.fit("sgd", "anywhere", patients=3)


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.low is not None], ids=lambda option: option.name)
def test_numbers_are_held_to_their_bounds(option):
    for value in (-1, math.nan, math.inf, *([option.low] if option.open else []), *([0.5] if option.low == 1 else [])):
        with pytest.raises(ParameterError, match=option.name):
            Request(**{option.name: value}).check_bounds()
    Request(**{option.name: option.low + option.open}).check_bounds()


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.needs], ids=lambda option: option.name)
def test_what_needs_a_data_set_is_refused_without_it(option):
    value = True if option.kind is bool else next(iter(option.choices), 3)
    with pytest.raises(ParameterError, match=option.name):
        Request(**{option.name: value}).check_needs()
    asked = Request(**{option.name: value, option.needs: "data"})
    asked.check_needs()
    assert asked.without(option.needs) == Request()


def test_whole_numbers_are_whole():
    with pytest.raises(ParameterError, match="whole"):
        Request(patience=2.5).check_bounds()


def test_a_record_names_all_that_can_be_asked_for():
    config = RunConfig(
        method="sgd", dataset="d", dataset_fingerprint="", grid=[{}], passes=np.float64(3), eval_data="e", patience=2,
        select="s", refit=True, calibrate="c", calibration="platt", threshold_for="f1", tol=1.0, rtol=0.5,
        max_seconds=9.0, eval_every=1.0, seed=7, as_published=True, parallelism=16,
    )  # fmt: skip
    assert json.loads(json.dumps(config.stored()))["passes"] == 3
    assert {option.key for option in config.asked} == {option.key for option in OPTIONS} <= set(config.stored())


@pytest.mark.slow
def test_the_walk_of_a_setting_is_short():
    # in a process that has rehearsed nothing: the kernel meets the setting first when it is compiled
    ran = subprocess.run([sys.executable, "-W", "ignore", SETTING_WALK], capture_output=True, text=True, check=True)
    *stays, counts = ran.stdout.splitlines()
    assert stays[0] == "cli/training.fit"
    assert stays[-1].endswith("SgdLearner.of")
    # what is handed on to one more function than today has to be looked at; both may fall
    n_stays, n_climbs = map(int, re.findall(r"\d+", counts))
    assert len(stays) == n_stays <= 33
    assert n_climbs <= 8
