"""`distls warm`: what the first commands need is compiled before them."""

import os
import subprocess
import sys

import pytest
from helpers import distls


@pytest.mark.fast_cases("none")
@pytest.mark.parametrize("methods", [[], ["sgd", "bcd"]], ids=["none", "methods"])
def test_tables_and_text_are_used(methods):
    assert distls("warm", *methods) == (0, "", "the kernels of first commands are compiled\n")


def test_another_name_is_refused():
    done = distls("warm", "sgdd")
    assert done.code == 2
    assert "sgdd" in done.err


@pytest.mark.slow
def test_a_first_fit_then_compiles_nothing(tmp_path):
    cache = tmp_path / "cache"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}

    def run(*words):
        subprocess.run([sys.executable, "-m", "distls", *words], env=environment, check=True, cwd=tmp_path)
        return set(cache.rglob("*.nbc"))

    compiled = run("warm", "sgd", "--quiet")
    assert compiled
    (tmp_path / "t.csv").write_text("h,w,y\n" + "".join(f"{i},{i % 3},{'ab'[i % 2]}\n" for i in range(50)))
    assert run("train", "t.csv", "m", "--quiet") == compiled
    assert run("fit", "sgd", "m-data", "f", "--quiet") == compiled
    assert run("predict", "m", "t.csv", "p.csv", "--labelled") == compiled
