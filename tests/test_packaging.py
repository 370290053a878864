"""One import package: the package list and the folders agree, and the top level names its parts by links."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def _python_folders():
    """Return each folder with Python files by the package it must be."""
    folders = {path.parent for path in (ROOT / "distls").rglob("*.py")}
    return {".".join(folder.relative_to(ROOT).parts): folder for folder in sorted(folders)}


def test_every_python_folder_is_a_listed_package():
    assert set(SETUPTOOLS["packages"]) == set(_python_folders())


def test_the_public_names_are_data_of_the_package():
    # distls reads its stub as it is imported: a wheel without it has no public names
    assert set(SETUPTOOLS["package-data"]["distls"]) >= {"py.typed", "__init__.pyi"}


def test_every_package_has_an_init_file():
    assert [str(f) for f in _python_folders().values() if not (f / "__init__.py").is_file()] == []


def test_the_package_has_no_links():
    assert [path for path in (ROOT / "distls").rglob("*") if path.is_symlink()] == []


@pytest.mark.parametrize("name", ["storage", "workers"])
def test_the_top_level_links_into_the_package(name):
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("distls", name)


def _sources():
    return sorted(path for name in ("distls", "tests", "benchmarks") for path in (ROOT / name).rglob("*.py"))


def _imported(path):
    """Return the packages that a file imports by their full names."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").split(".")[0])
    return imported


def test_no_bare_import_of_workers_or_storage():
    bare = [str(path) for path in _sources() if _imported(path) & {"workers", "storage"}]
    assert bare == [], "import distls.workers or distls.storage instead"


def test_entry_points_name_the_command():
    (console,) = entry_points(group="console_scripts", name="distls")
    assert callable(console.load())
    (plugin,) = entry_points(group="dask_cli", name="distls")
    command = plugin.load()
    assert isinstance(command, click.Command)
    # Dask registers a plugin under the command's own name, not under the entry point's
    assert command.name == "distls"


# -- what another package adds passes the suites of `distls.testing` there, without an edit or a test of this one ---


PACKAGE = Path(__file__).parent / "outside"


@pytest.mark.parametrize(
    ("suites", "tests"),
    [
        ("TestPenalty", 6),
        pytest.param("TestLoss or TestFormat", 11, marks=pytest.mark.slow),
        pytest.param("TestMethod", 7, marks=pytest.mark.slow),
    ],
)
def test_a_package_of_its_own_passes_the_suites(tmp_path, suites, tests):
    for name in ("toys.py", "test_toys.py"):
        shutil.copy(PACKAGE / name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    # its modules are on the path of the process that starts a local cluster, which hands the path on
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", suites],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) >= tests
