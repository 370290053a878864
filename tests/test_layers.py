"""Imports go one way, and each of zarr, numba, Dask and scikit-learn has its place."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# folders whose modules are rooms of their own
TOPS = ("distls", "distls/storage", "distls/workers")

# The rooms from the bottom up: a module imports from its own room and from rooms above it in this list, never from
# one below. A room is a folder; modules that lie directly in one of the three layers are rooms of their own, and
# so is the face of a package, what its `__init__` imports.
ROOMS = [
    "distls/clock",
    "distls/facts",
    "distls/storage/errors",
    "distls/storage/rows",
    "distls/storage/machine",
    "distls/storage",
    "distls/storage/filesystem",
    "distls/storage/sources",
    "distls/storage/dataset",
    "distls/storage/model",
    "distls/storage/temporary",
    "distls/workers",
    "distls/workers/compilation",
    "distls/workers/runtime",
    "distls/workers/simd",
    "distls/workers/linear_algebra",
    "distls/workers/losses",
    "distls/workers/penalties",
    "distls/workers/rounds",
    "distls/workers/duals",
    "distls/workers/features",
    "distls/workers/prediction",
    "distls/workers/evaluation",
    "distls/workers/least_squares",
    "distls/workers/stochastic",
    "distls/workers/stochastic/second_order",
    "distls/workers/coordinate_descent",
    "distls/workers/dual_ascent",
    "distls/workers/truncated_newton",
    "distls/workers/columns",
    "distls/workers/ingestion/parsing",
    "distls/workers/synthetic",
    "distls/workers/ingestion/records",
    "distls/workers/ingestion/formats",
    "distls/workers/ingestion/public_sets",
    "distls/workers/ingestion",
    "distls/workers/dask_log_preload",
    "distls/workers/forkserver_preload",
    "distls/execution",
    "distls/execution/dask",
    "distls/execution/",
    "distls/progress_bar",
    "distls/long_calls",
    "distls/request",
    "distls/memory_plan",
    "distls/problem",
    "distls/dual_problem",
    "distls/methods",
    "distls/model_check",
    "distls/columns",
    "distls/ingestion/request",
    "distls/ingestion/formats",
    "distls/ingestion",
    "distls/ingestion/",
    "distls/solvers",
    "distls/solvers/features",
    "distls/solvers/least_squares",
    "distls/solvers/stochastic",
    "distls/solvers/coordinate_descent",
    "distls/solvers/dual_ascent",
    "distls/solvers/truncated_newton",
    "distls/evaluation",
    "distls/serving",
    "distls/interchange",
    "distls/synthetic",
    "distls/prediction",
    "distls/training",
    "distls/planning",
    "distls/reporting",
    "distls/estimators",
    "distls/testing",
    "distls/",
    "distls/cli",
    "distls/cli/",
    "distls/__main__",
]

# library -> the only rooms that may import it
PLACES = {
    "zarr": ("distls/storage/",),
    "numcodecs": ("distls/storage/",),
    "google_crc32c": ("distls/storage/",),
    "h5py": ("distls/storage/sources/",),
    "numba": ("distls/workers/",),
    "obstore": ("distls/storage/filesystem/object_store.py",),
    # formats, and text that zstd has compressed
    "pyarrow": ("distls/workers/ingestion/formats/", "distls/workers/ingestion/parsing/text_blocks.py"),
    "llvmlite": ("distls/workers/",),
    # the executor, and the ingest of what are Dask's own arrays
    "dask": ("distls/execution/dask/", "distls/ingestion/formats/dask_arrays.py"),
    "distributed": ("distls/execution/dask/",),
    "sklearn": (
        "distls/estimators/",
        "distls/interchange/sklearn_pipeline.py",
        "distls/workers/ingestion/formats/document_records.py",
    ),
    "onnx": ("distls/interchange/onnx_graph.py",),
    "mlflow": ("distls/training/trackers.py",),
    "tensorboardX": ("distls/training/trackers.py",),
    "vowpalwabbit": ("distls/interchange/vw_model.py",),
    "skops": ("distls/interchange/sklearn_pipeline.py",),
    "bokeh": ("distls/reporting/",),
    "pytest": ("distls/testing/",),
}


def _modules():
    """Return the source files by path from the root."""
    paths = sorted((ROOT / "distls").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path for path in paths}


MODULES = _modules()


@functools.cache
def _read(path):
    """Return what a module imports and the private names that it takes from others."""
    nodes = [*ast.walk(ast.parse(path.read_bytes()))]
    return _imported(nodes, path), _private_reads(nodes)


def _imports(path):
    """Return the full names that a module imports, wherever in it; ``from a import b`` as ``a.b``."""
    return _read(path)[0]


def _imported(nodes, path):
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def _below(name, *prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def test_the_walk_sees_the_code():
    for expected in (
        "distls/storage/dataset/chunks.py",
        "distls/workers/linear_algebra/score_kernels.py",
        "distls/solvers/stochastic/stochastic.py",
    ):
        assert expected in MODULES
    assert "numba" in {name.split(".")[0] for name in _imports(MODULES["distls/workers/compilation/jit.py"])}


NAMES = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in MODULES}


def room_of(path):
    """Return the room of a module: its folder, or itself where it lies at the top or is a package's face."""
    folder, _, name = path.rpartition("/")
    if name == "__init__.py":
        return folder + "/" if folder + "/" in ROOMS else folder
    return path.removesuffix(".py") if folder in TOPS else folder


def _targets(name):
    """Return the module that an imported name is, or is defined in; None if it is not ours."""
    while name:
        if name in NAMES:
            return NAMES[name]
        name = name.rpartition(".")[0]
    return None


def _arrows():
    """Return the imports between rooms: (importing, imported) -> modules."""
    arrows = {}
    for path, source in MODULES.items():
        for name in _imports(source):
            target = _targets(name)
            if target is not None and room_of(path) != room_of(target):
                arrows.setdefault((room_of(path), room_of(target)), []).append(f"{path}: {name}")
    return arrows


def test_every_room_has_its_floor():
    assert {room_of(path) for path in MODULES} == set(ROOMS)


def test_imports_between_rooms_run_downward():
    floor = {room: number for number, room in enumerate(ROOMS)}
    upward = {
        f"{importing} -> {imported}": lines[:3]
        for (importing, imported), lines in _arrows().items()
        if floor[imported] > floor[importing]
    }
    assert upward == {}


def test_rooms_are_small():
    modules = [path for path in MODULES if not path.endswith("__init__.py")]
    folders = {path.rpartition("/")[0] for path in modules}
    counts = {folder: sum(path.rpartition("/")[0] == folder for path in modules) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > 17} == {}


@pytest.mark.parametrize("library", PLACES)
def test_libraries_are_imported_in_their_places_only(library):
    users = [m for m, path in MODULES.items() if any(_below(name, library) for name in _imports(path))]
    assert [m for m in users if not m.startswith(PLACES[library])] == []


def test_evaluation_knows_no_solver_but_the_interface():
    imports = [name for m in MODULES if m.startswith("distls/evaluation/") for name in _imports(MODULES[m])]
    interface = ("distls.solvers.solver", "distls.solvers.loop")
    assert [name for name in imports if _below(name, "distls.solvers") and not _below(name, *interface)] == []


def test_solvers_know_no_machinery():
    forbidden = ("dask", "distributed", "zarr", "numba", "llvmlite", "distls.execution.dask.dask_executor")
    imports = [(m, name) for m in MODULES if m.startswith("distls/solvers/") for name in _imports(MODULES[m])]
    assert len(imports) > 100
    assert [pair for pair in imports if _below(pair[1], *forbidden)] == []


# Private names of libraries, and where: each has a comment there, and the hooks of Dask a test that names them
PRIVATE_OF_LIBRARIES = {
    ("distls/cli/interrupts.py", "_exit"),
    ("distls/estimators/estimator_base.py", "_meta"),
    ("distls/execution/dask/forkserver.py", "_config"),
    ("distls/execution/dask/private_hooks.py", "_run"),
    ("distls/ingestion/formats/dask_arrays.py", "_meta"),
    ("distls/serving/fitted_model.py", "_meta"),
    ("distls/ingestion/formats/memory_arrays.py", "_meta"),
}
_OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields"}


def _is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in _OF_NAMED_TUPLES


def _private_reads(nodes):
    """Return the private names that a module takes from others: imported, or attributes that it does not define."""
    own, read = set(), set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            read |= {alias.name for alias in node.names if (node.module or "").startswith("distls")}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr)
        elif (
            isinstance(node, ast.Attribute)
            and _is_private(node.attr)
            and (ast.unparse(node.value) not in ("self", "cls", "super()"))
        ):
            read.add(node.attr)
    return {name for name in read - own if _is_private(name)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from distls.a import _b", {"_b"}),
        ("def f(solver):\n    return solver._first", {"_first"}),
        ("class A:\n    def f(self, other):\n        self._a = other._a", set()),
        ("class A(B):\n    def f(self):\n        return super()._a + self._b", set()),
        ("from distls import __version__\npair._replace(a=1)", set()),
    ],
)
def test_private_reads_are_found(text, expected):
    assert _private_reads(ast.walk(ast.parse(text))) == expected


def test_no_private_name_is_read_from_outside_its_module():
    found = {(path, name) for path, file in MODULES.items() for name in _read(file)[1]}
    assert found == PRIVATE_OF_LIBRARIES


def _loaded_after(statement, *names):
    """Return those of `names` that a fresh process has loaded after `statement`."""
    code = f"import sys\n{statement}\nprint(*(n for n in {names!r} if n in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_a_worker_does_not_load_the_driver():
    heavy = (
        "sklearn",
        "dask",
        "distributed",
        "distls.solvers",
        "distls.training.fitting",
        "distls.estimators.stochastic",
        "distls.cli",
        # losses, links and Grams load them when they first need them
        "scipy.special",
        "scipy.linalg",
    )
    tasks = (
        "stochastic.lane_task", "evaluation.score_task", "prediction.predict_task", "ingestion.stage_task",
        "ingestion.assemble_task", "columns.transpose_task",
    )  # fmt: skip
    # one process for all: what none of them loads, each does not load
    assert _loaded_after("import " + ", ".join(f"distls.workers.{task}" for task in tasks), *heavy) == []


def test_importing_distls_is_lazy():
    heavy = (
        "numpy", "msgspec", "zarr", "numba", "sklearn", "distributed", "distls.storage", "distls.training.fitting",
    )  # fmt: skip
    assert _loaded_after("import distls", *heavy) == []
    assert _loaded_after("import distls; distls.fit", "distls.training.fitting") == ["distls.training.fitting"]


def test_the_command_line_loads_its_machinery_late():
    # it loads with every `dask` command
    heavy = ("zarr", "numba", "sklearn", "distls.training.fitting", "distls.memory_plan")
    assert _loaded_after("import distls.cli", *heavy) == []


def test_a_prediction_loads_no_solver():
    heavy = ("zarr", "numcodecs", "sklearn", "distls.solvers.solver", "distls.columns.sharding")
    modules = "distls.prediction.predict, distls.ingestion.ingest, distls.cli.progress"
    assert _loaded_after(f"import {modules}", *heavy) == []


def test_an_unknown_name_is_an_attribute_error():
    import distls

    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        _ = distls.fitt
