"""The line that says that kernels are compiled: once, by one process, only while it lasts."""

import os
import subprocess
import sys
import threading

import pytest

from distls.workers.compilation import kernel_cache
from distls.workers.compilation.kernel_cache import CompilingNotice

_LINE = "compiling kernels, once for this machine; this takes from seconds to a minute ...\n"


@pytest.fixture
def said(monkeypatch):
    """Return an event that is set when the line is logged."""
    monkeypatch.setenv("DISTLS_COMPILING_NOTICE", "1")
    monkeypatch.setattr(kernel_cache, "_PATIENCE_SECONDS", 0.0)
    told = threading.Event()
    monkeypatch.setattr(kernel_cache._LOG, "warning", lambda text: told.set())
    return told


def test_it_is_said_once_of_many_kernels(said, tmp_path):
    notice = CompilingNotice()
    notice.begin(str(tmp_path))
    assert said.wait(60)
    notice.end()
    said.clear()
    notice.begin(str(tmp_path))
    assert notice._timer is None
    assert not said.is_set()


@pytest.mark.slow
def test_another_process_has_said_it(said, tmp_path):
    first, second = CompilingNotice(), CompilingNotice()
    assert first._is_first(str(tmp_path))
    assert not second._is_first(str(tmp_path))
    second._tell(str(tmp_path))
    assert not said.is_set()


@pytest.mark.slow
def test_quick_compilations_add_up_before_it_is_said(said, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_PATIENCE_SECONDS", 1e6)
    notice = CompilingNotice()
    notice.begin(str(tmp_path))
    notice.end()
    assert not said.is_set()
    notice._spent = 2e6
    notice.begin(str(tmp_path))
    assert said.wait(60)


def test_it_can_be_silenced(said, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLS_COMPILING_NOTICE", "0")
    CompilingNotice()._tell(str(tmp_path))
    assert not said.is_set()


_PROGRAM = """
from distls.workers.compilation import kernel_cache
kernel_cache._PATIENCE_SECONDS = 0.0
from distls.workers.compilation.jit import kernel

@kernel
def added(a):
    return a + 1

added(1)
"""


@pytest.mark.slow
def test_a_fresh_machine_says_it_and_a_warm_one_does_not(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "DISTLS_COMPILING_NOTICE": "1"}
    printed = [
        subprocess.run(
            [sys.executable, str(program)], env=environment, stderr=subprocess.PIPE, text=True, check=True
        ).stderr
        for _ in range(2)
    ]
    assert printed == [_LINE, ""]
