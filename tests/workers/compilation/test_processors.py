"""Kernels that are compiled for other processors pass their tests as well."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

TESTS = Path(__file__).parents[1]
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
    here = llvm.get_host_cpu_features()
    missing = [feature for feature in PROCESSORS[name] if not here.get(feature)]
    if missing:
        pytest.skip(f"this processor cannot execute code for {name}: it has no {', '.join(missing)}")
    environment = os.environ | {
        "NUMBA_CPU_NAME": name,
        # those of that processor, but what this one lacks
        "NUMBA_CPU_FEATURES": ",".join(f"-{feature}" for feature, there in here.items() if not there),
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--run-slow"]
    ran = subprocess.run(
        [*command, *(str(TESTS / folder) for folder in FOLDERS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
