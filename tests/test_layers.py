"""Imports go one way, and each of zarr, numba, Dask and scikit-learn has its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = {"storage": "distls.storage", "workers": "distls.workers", "distls": "distls"}

# library -> the only places that may import it, as prefixes of paths
PLACES = {
    "zarr": ("storage/",),
    "numcodecs": ("storage/",),
    "google_crc32c": ("storage/",),
    "h5py": ("storage/sources/anndata_store.py",),
    "numba": ("workers/",),
    "obstore": ("storage/filesystem/object_store.py",),
    "pyarrow": ("workers/ingestion/formats/parquet.py",),
    "llvmlite": ("workers/",),
    # the executor, and the ingest of what are Dask's own arrays
    "dask": (
        "distls/execution/dask/connection.py",
        "distls/execution/dask/executor.py",
        "distls/execution/dask/remote_cluster.py",
        "distls/ingestion/formats/dask_arrays.py",
    ),
    "distributed": (
        "distls/execution/dask/connection.py",
        "distls/execution/dask/executor.py",
        "distls/execution/dask/remote_cluster.py",
        "distls/execution/dask/standing_cluster.py",
    ),
    "sklearn": (
        "distls/estimators/estimator_base.py",
        "distls/estimators/stochastic.py",
        "distls/estimators/least_squares.py",
        "distls/estimators/regressors.py",
        "distls/estimators/sparse.py",
        "distls/estimators/partial_fit.py",
        "workers/ingestion/formats/documents.py",
    ),
}


def _modules() -> dict[str, Path]:
    """Return the source files by path from the root, each once."""
    found = {}
    for folder in LAYERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] not in {("distls", "storage"), ("distls", "workers")}:
                found[relative.as_posix()] = path
    return found


MODULES = _modules()


def _imports(path: Path) -> Iterator[str]:
    """Yield the full names that a module imports, wherever in it; ``from a import b`` as ``a.b``."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _below(name: str, *prefixes: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def test_the_walk_sees_the_code() -> None:
    for expected in (
        "storage/dataset/chunks.py",
        "workers/linear_algebra/score_kernels.py",
        "distls/solvers/stochastic/stochastic.py",
    ):
        assert expected in MODULES
    assert "numba" in {name.split(".")[0] for name in _imports(MODULES["workers/compilation/jit.py"])}


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("storage/")])
def test_storage_imports_neither_workers_nor_the_driver(module: str) -> None:
    ours = [name for name in _imports(MODULES[module]) if _below(name, "distls")]
    assert [name for name in ours if not _below(name, "distls.storage")] == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("workers/")])
def test_workers_import_nothing_of_the_driver(module: str) -> None:
    ours = [name for name in _imports(MODULES[module]) if _below(name, "distls")]
    assert [name for name in ours if not _below(name, "distls.storage", "distls.workers")] == []


@pytest.mark.parametrize("library", PLACES)
def test_libraries_are_imported_in_their_places_only(library: str) -> None:
    users = [m for m, path in MODULES.items() if any(_below(name, library) for name in _imports(path))]
    assert [m for m in users if not m.startswith(PLACES[library])] == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("distls/solvers/")])
def test_solvers_know_no_machinery(module: str) -> None:
    forbidden = ("dask", "distributed", "zarr", "numba", "llvmlite", "distls.execution.dask.executor")
    assert [name for name in _imports(MODULES[module]) if _below(name, *forbidden)] == []


def _loaded_after(statement: str, *names: str) -> list[str]:
    """Return those of `names` that a fresh process has loaded after `statement`."""
    code = f"import sys\n{statement}\nprint(*(n for n in {names!r} if n in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_a_worker_does_not_load_the_driver() -> None:
    heavy = (
        "sklearn",
        "dask",
        "distributed",
        "distls.solvers",
        "distls.training.fitting",
        "distls.estimators.stochastic",
        "distls.cli",
    )
    for module in (
        "stochastic.lane_task",
        "evaluation.score_task",
        "prediction.predict_task",
        "ingestion.stage_task",
        "ingestion.assemble_task",
        "columns.transpose_task",
    ):
        assert _loaded_after(f"import distls.workers.{module}", *heavy) == []


def test_importing_distls_is_lazy() -> None:
    heavy = (
        "numpy", "msgspec", "zarr", "numba", "sklearn", "distributed", "distls.storage", "distls.training.fitting",
    )  # fmt: skip
    assert _loaded_after("import distls", *heavy) == []
    assert _loaded_after("import distls; distls.fit", "distls.training.fitting") == [
        "distls.training.fitting"
    ]


def test_the_command_line_loads_its_machinery_late() -> None:
    # it loads with every `dask` command
    heavy = ("zarr", "numba", "sklearn", "distls.training.fitting", "distls.memory_plan")
    assert _loaded_after("import distls.cli", *heavy) == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    import distls

    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        _ = distls.fitt
