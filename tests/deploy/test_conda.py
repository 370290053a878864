"""The conda recipe asks for what the wheel asks for."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
# names of packages that conda-forge has in parts
PARTS = {"dask-core": "dask"}


def bounds(requirement):
    found = re.fullmatch(r"([\w-]+)\s*(.*)", requirement)
    name = PARTS.get(found[1], found[1])
    return name, frozenset(filter(None, found[2].replace(" ", "").split(",")))


def test_its_bounds_are_those_of_the_wheel():
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = dict(map(bounds, recipe["requirements"]["run"]))
    assert asked.pop("python") == {project["requires-python"]}
    assert asked == dict(map(bounds, project["dependencies"]))
    assert recipe["context"]["version"] == project["version"]
    assert recipe["about"]["summary"] == project["description"]
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == f"distls = {project['scripts']['distls']}"
