"""One import package from three folders: the package list, the links and the folders agree."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
PREFIXES = {"distls": "distls", "storage": "distls.storage", "workers": "distls.workers"}


def _python_folders() -> dict[str, Path]:
    """Return each folder with Python files by the package it must be; the two links are not followed."""
    found = {}
    for folder, prefix in PREFIXES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.parent.relative_to(ROOT / folder).parts
            if folder != "distls" or relative[:1] not in {("storage",), ("workers",)}:
                found[".".join([prefix, *relative])] = path.parent
    return found


def test_every_python_folder_is_a_listed_package() -> None:
    assert set(SETUPTOOLS["packages"]) == set(_python_folders())


@pytest.mark.parametrize(("package", "folder"), _python_folders().items())
def test_every_package_has_an_init_file(package: str, folder: Path) -> None:
    assert (folder / "__init__.py").is_file(), f"{package}: {folder} has no __init__.py"


def test_package_dir_maps_the_three_folders() -> None:
    assert SETUPTOOLS["package-dir"] == {package: folder for folder, package in PREFIXES.items()}


@pytest.mark.parametrize("name", ["storage", "workers"])
def test_links_are_there_and_relative(name: str) -> None:
    link = ROOT / "distls" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", name)


def _sources() -> list[Path]:
    folders = ("distls", "storage", "workers", "tests", "benchmarks")
    return sorted({path.resolve() for name in folders for path in (ROOT / name).rglob("*.py")})


@pytest.mark.parametrize("path", _sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_bare_import_of_workers_or_storage(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").split(".")[0])
    assert not imported & {"workers", "storage"}, "import distls.workers or distls.storage instead"


def test_entry_points_name_the_command() -> None:
    (console,) = entry_points(group="console_scripts", name="distls")
    assert callable(console.load())
    (plugin,) = entry_points(group="dask_cli", name="distls")
    command = plugin.load()
    assert isinstance(command, click.Command)
    # Dask registers a plugin under the command's own name, not under the entry point's
    assert command.name == "distls"
