"""Compiled kernels are read with pickle: only from where nobody else can write, else they are compiled anew."""

import fcntl
import gc
import importlib.util
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba import types
from numba.extending import overload

from distls.workers.compilation import kernel_cache
from distls.workers.compilation.compile_clock import compile_seconds
from distls.workers.compilation.entry_files import EntryFiles
from distls.workers.compilation.kernel_cache import cache_folder

REMEDY = "compiled kernels are not kept; set NUMBA_CACHE_DIR to a folder of your own"


@pytest.fixture(autouse=True)
def homes(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "first"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    monkeypatch.delenv("DISTLS_NUMBA_CACHE", raising=False)


def test_all_of_it_is_closed_to_others(tmp_path):
    made = cache_folder("numba-1")
    assert made == str(tmp_path / "first" / "distls" / "numba-1")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (Path(made), Path(made).parent)] == [0o700, 0o700]


def test_where_nothing_can_be_made_the_next_home_serves(tmp_path):
    (tmp_path / "first").write_text("a file")
    assert cache_folder("numba-1") == str(tmp_path / "second" / "distls" / "numba-1")


def test_a_home_that_cannot_be_written_to_is_passed_over(tmp_path, monkeypatch):
    made = cache_folder("numba-1")
    # as root may write anywhere, what the system says of a file system that is mounted read-only
    monkeypatch.setattr(os, "access", lambda path, mode: path != Path(str(made)))
    assert cache_folder("numba-1") == str(tmp_path / "second" / "distls" / "numba-1")


def test_it_can_be_switched_off(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTLS_NUMBA_CACHE", "0")
    assert cache_folder("numba-1") is None
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_others_can_write_to_is_not_used(tmp_path):
    folder = tmp_path / "first" / "distls"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="can write") as told:
        assert cache_folder("numba-1") is None
    assert [str(each.message) for each in told] == [f"other users can write to {folder}; {REMEDY}"]
    assert list(folder.iterdir()) == []


COUNT = (
    "import sys\n"
    "import numpy as np\n"
    "from distls.workers.synthetic.topic_documents import alias_cells\n"
    "alias_cells(np.array([1, 3]))\n"
    # how often it was compiled, and whether what compiles it was loaded
    "print(sum(alias_cells.stats.cache_misses.values()), int('numba.np.polynomial' in sys.modules))\n"
)


@pytest.mark.slow
def test_processes_that_start_together_compile_once():
    started = [subprocess.Popen([sys.executable, "-c", COUNT], stdout=subprocess.PIPE) for _ in range(3)]
    compiled = [tuple(map(int, process.communicate()[0].split())) for process in started]
    assert sorted(compiled) == [(0, 0), (0, 0), (1, 1)]


@pytest.mark.slow
def test_a_lock_that_is_never_let_go_delays_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_LONGEST_COMPILATION", 0.1)
    held = kernel_cache._lock(str(tmp_path / "kernel.lock"))
    assert held is not None
    assert kernel_cache._lock(str(tmp_path / "kernel.lock")) is None
    os.close(held)
    again = kernel_cache._lock(str(tmp_path / "kernel.lock"))
    assert again is not None
    os.close(again)


def test_an_interrupt_while_another_process_compiles_leaves_the_collector_on(tmp_path, monkeypatch):
    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(kernel_cache, "_lock", interrupt)
    compiled = numba.njit(lambda x: x + 1)
    compiled._cache = kernel_cache.KernelCache(compiled.py_func, str(tmp_path))
    before = compile_seconds()
    with pytest.raises(KeyboardInterrupt):
        compiled(1)
    assert gc.isenabled()
    # and its clock stands
    once = compile_seconds()
    assert compile_seconds() == once > before


def test_a_kernel_that_cannot_be_compiled_is_not_waited_for(tmp_path):
    text = "from distls.workers.compilation.jit import kernel\n\n@kernel\ndef broken(x):\n    return x.none\n"
    (tmp_path / "broken_kernel.py").write_text(text)
    spec = importlib.util.spec_from_file_location("broken_kernel", tmp_path / "broken_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(numba.TypingError):
        module.broken(1)
    path = module.broken._cache._lock_path
    with open(path) as file:  # BlockingIOError: somebody else holds it
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_edit_changes_the_digest_of_what_imports_it_alone(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "rows.py").write_text("ROWS = 1\n")
    for name, text in (
        ("one", "from distls.storage import rows\n"),
        ("two", "from distls.workers.one import (\n    X,\n)\n"),
        ("three", "import math\n"),
    ):
        (tmp_path / f"{name}.py").write_text(text)

    def digests():
        program = (
            "import sys\nfrom pathlib import Path\nfrom distls.workers.compilation import kernel_cache as c\n"
            f"c._FOLDERS.update({{'distls.workers': Path({str(tmp_path)!r}), "
            f"'distls.storage': Path({str(tmp_path / 'storage')!r})}})\n"
            f"print(*(c.source_digest({str(tmp_path)!r} + f'/{{n}}.py') for n in ('one', 'two', 'three')))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return dict(zip(("one", "two", "three"), done.stdout.split(), strict=True))

    before = digests()
    (tmp_path / "storage" / "rows.py").write_text("ROWS = 2\n")
    after = digests()
    assert {name for name in before if before[name] != after[name]} == {"one", "two"}


class Planted:
    """Makes a folder where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.makedirs, (str(self.trace), 0o700, True)


COMPILE = (
    "import numpy as np\n"
    "from distls.workers.synthetic.topic_documents import alias_cells\n"
    "print(alias_cells(np.array([1, 3])))\n"
)


def _compile():
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def _planted(folder, base, trace):
    """Return an index that makes a folder where it is unpickled, with the checksum of an index."""
    listed = pickle.dumps(Planted(trace))
    return EntryFiles(str(folder), base)._seal(listed) + listed


@pytest.mark.slow
def test_what_others_plant_is_not_unpickled(tmp_path):
    """Fault: Files planted among compiled kernels | every index file of a cache that others can write to | one
    warning; kernels are recompiled"""
    cells, told = _compile()
    assert told == ""
    folder, trace = tmp_path / "first" / "distls", tmp_path / "trace"
    indices = list(folder.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(_planted(index.parent, index.stem, trace))
    folder.chmod(0o777)
    assert _compile() == (cells, f"distls:0: UserWarning: other users can write to {folder}; {REMEDY}\n")
    assert not trace.exists()
    # a folder of one's own is trusted, and a checksum is no signature: it would have been run
    folder.chmod(0o700)
    assert _compile()[0] == cells
    assert trace.exists()


def test_kernels_are_not_interpreted():
    done = subprocess.run(
        [sys.executable, "-m", "distls", "plan", "mcid", "nowhere"], capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2,
        "distls: NUMBA_DISABLE_JIT is set: the kernels of distls cannot be interpreted; unset it\n",
    )


def _seen(x):
    """Notes whether the collector is on while it is typed; kernels get x back."""


@pytest.mark.fast_cases("True")
@pytest.mark.parametrize("on", [True, False])
def test_the_collector_waits_while_kernels_are_compiled_or_cannot_be(tmp_path, on):
    seen = []

    @overload(_seen)
    def _overload(x):
        seen.append(gc.isenabled())
        return (lambda x: x) if isinstance(x, types.Integer) else None

    compiled = numba.njit(lambda x: _seen(x))
    compiled._cache = kernel_cache.KernelCache(compiled.py_func, str(tmp_path))
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        assert compiled(1) == 1
        with pytest.raises(numba.TypingError):
            compiled("text")
        assert gc.isenabled() == on
    finally:
        (gc.enable if was_on else gc.disable)()
    assert seen
    assert not any(seen)
