"""Kernels that are compiled for other processors pass their tests as well, and have the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from helpers import labelled_rows, write_dataset
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from distls.columns.sharding import add_columns

TESTS = Path(__file__).parents[1]
ARM = os.environ.get("DISTLS_ARM", "")  # of tests/emulated_arm.sh
FOLDERS = ("simd", "linear_algebra", "losses", "dual_ascent")
AVX2 = "avx2", "fma", "bmi2", "f16c"
AVX512 = *AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"
# by LLVM's names, and what makes their code another than that of their kind without it
PROCESSORS = {
    "x86-64-v3": AVX2,
    "skylake-avx512": AVX512,
    "sapphirerapids": AVX512,
    "znver2": AVX2,
    "znver3": AVX2,
    "znver4": AVX512,
    "znver5": AVX512,
}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", PROCESSORS)
def test_kernels_for_another_processor_pass_their_tests(name, tmp_path):
    command = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--run-slow"]
    _run_for(name, tmp_path, *command, *(str(TESTS / folder) for folder in FOLDERS))


def _run_for(name, cache, *command, **others):
    """Run Python with kernels compiled for a processor, and other variables; return what it prints."""
    here = llvm.get_host_cpu_features()
    missing = [feature for feature in PROCESSORS[name] if not here.get(feature)]
    if missing:
        pytest.skip(f"this processor cannot execute code for {name}: it has no {', '.join(missing)}")
    environment = os.environ | {
        "NUMBA_CPU_NAME": name,
        # those of that processor, but what this one lacks
        "NUMBA_CPU_FEATURES": ",".join(f"-{feature}" for feature, there in here.items() if not there),
        "NUMBA_CACHE_DIR": str(cache),
    }
    ran = subprocess.run(
        [sys.executable, *command], env=environment | others, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    return ran.stdout


# Of one output and of several, of sparse and dense rows: every method that has kernels of its own, for each of which a
# processor compiles for seconds.
_FITS = """
import sys
from pathlib import Path
import distls
OF_KERNELS = [
    ("sparse4", "mcid", {"loss": "softmax"}), ("sparse4", "sgd", {"loss": "hinge"}), ("sparse4", "sgdqn", {}),
    ("sparse4", "sdca", {"loss": "log"}), ("sparse4", "sdca", {"loss": "hinge"}),
    ("sparse4", "ovr-sdca", {"sweeps": 3}),
    ("sparse2", "sdca", {"loss": "squared_hinge"}), ("dense2", "sdca", {"loss": "hinge"}),
    ("sparse2", "asgd", {"loss": "log"}), ("sparse2", "fobos", {}), ("dense2", "svmsgd2", {}), ("sparse2", "csgd", {}),
    ("sparse2", "olbfgs", {}), ("sparse2", "rls", {}),
]
OF_BOTH = [
    ("sparse4", "bcd", {"alpha": 1e-3}), ("dense2", "bcd", {"alpha": 1e-3, "loss": "log"}),
    ("sparse2", "newton", {}), ("sparse4", "gls", {}), ("sparse4", "fista", {}),
]
for data, method, params in OF_KERNELS + OF_BOTH * ("kernels" not in sys.argv):
    passes = None if "sweeps" in params else 4
    fitted = distls.fit(method, str(Path(sys.argv[1], data)), params=params, passes=passes, executor="serial")
    print(data, method, params, fitted.model.sha256, flush=True)
"""


@pytest.fixture(scope="module")
def fits_here(tmp_path_factory):
    """Return the folders of data and of kernels for the first of the processors, and what the fits print with these."""
    data, cache = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("kernels")
    for classes in (4, 2):
        x, y = labelled_rows(400, 300, classes)
        write_dataset(data / f"sparse{classes}", x, y, partition_rows=100)
    write_dataset(data / "dense2", x.toarray(), y, partition_rows=100)
    for each in data.iterdir():
        add_columns(each, shard_size=100)
    return data, cache, _run_for("x86-64-v3", cache, "-c", _FITS, str(data)).splitlines()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_row_methods_have_the_same_bits_with_the_code_of_numpy_and_blas_for_another_processor(fits_here):
    data, cache, expected = fits_here
    longer = [name for name in __cpu_dispatch__ if __cpu_features__[name] and name != "X86_V3"]
    others = {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": " ".join(longer)}
    found = _run_for("x86-64-v3", cache, "-c", _FITS, str(data), "kernels", **others).splitlines()
    assert len(found) > 10
    assert set(found) <= set(expected)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in PROCESSORS if name != "x86-64-v3"])
def test_fits_have_the_same_bits_on_every_processor_with_fused_multiply_add(name, fits_here, tmp_path):
    data, _, expected = fits_here
    assert _run_for(name, tmp_path, "-c", _FITS, str(data)).splitlines() == expected


# Before the fits: keeps which kernels they ask for, by their names and the types of their arguments.
_RECORD = """
import pickle, sys
from numba.core import serialize
from distls.workers.compilation.kernel_cache import KernelCache
asked, load = {}, KernelCache.load_overload
def recorded(cache, types, context):
    made = cache._py_func
    asked[made.__module__, made.__qualname__, str(types)] = serialize.dumps(types)
    with open(sys.argv[2], "wb") as out:
        pickle.dump(asked, out)
    return load(cache, types, context)
KernelCache.load_overload = recorded
"""
# Compiles these for 64-bit ARM, here, as an emulator takes many times as long. Nothing of it can be called here.
_CROSS = """
import importlib, pickle, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
arm = "aarch64-unknown-linux-gnu"
llvm.get_process_triple = lambda: arm
llvm.Target.from_default_triple = classmethod(lambda cls: cls.from_triple(arm))
import distls.workers.losses.loss_registry
with open(sys.argv[1], "rb") as recorded:
    asked = pickle.load(recorded)
for (module, name, _), types in asked.items():
    getattr(importlib.import_module(module), name).compile(pickle.loads(types))
"""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not ARM, reason="DISTLS_ARM names no folder that tests/emulated_arm.sh has made")
def test_row_methods_have_the_same_bits_on_an_emulated_arm_processor(fits_here, tmp_path):
    data, cache, expected = fits_here
    asked, emulator = str(tmp_path / "asked"), ("qemu-aarch64-static", "-L", ARM, f"{ARM}/usr/bin/python3")
    _run_for("x86-64-v3", cache, "-c", _RECORD + _FITS, str(data), asked, "kernels")
    environment = os.environ | {
        "PYTHONPATH": str(TESTS.parents[1]),
        "NUMBA_CPU_NAME": "neoverse-n1",
        "NUMBA_CPU_FEATURES": "+neon",
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
    }
    subprocess.run([sys.executable, "-c", _CROSS, asked], env=environment, check=True)
    fits = [*emulator, "-c", _FITS, str(data), "kernels"]
    found = subprocess.run(fits, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(found) > 10
    assert set(found) <= set(expected)
