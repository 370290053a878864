"""What is damaged among compiled kernels is compiled anew, never unpickled, and said once."""

import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

from distls.workers.compilation.entry_files import DamagedEntryError, EntryFiles

CALL = (
    "import numpy as np\n"
    "from distls.workers.synthetic.topic_documents import alias_cells\n"
    "print(alias_cells(np.array([1, 3])), sum(alias_cells.stats.cache_misses.values()))\n"
)
NOTE = "{path}: a damaged file among compiled kernels; they are compiled again\n"
CELLS = "(array([0.5, 1. ]), array([1, 1]))"


def _call(cache, program=CALL, **options):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    environment.pop("DISTLS_NUMBA_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a cache of one kernel, and what a call of it prints."""
    cache = tmp_path_factory.mktemp("compiled")
    printed, told = _call(cache)
    assert printed.endswith(" 1")
    assert told == ""
    return cache, printed[:-2]


@pytest.fixture
def cache(compiled, tmp_path):
    """Return a copy of the cache."""
    shutil.copytree(compiled[0], tmp_path / "cache")
    return tmp_path / "cache"


def _flipped(content):
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: np.random.default_rng(0).bytes(len(content)),
    "zeroed end": lambda content: content[:-200] + bytes(200),
    "one bit": _flipped,
    "pickled": lambda content: pickle.dumps({}),
}


@pytest.mark.slow_cases(r"\.nbi-truncated", "(?!.nbc-one bit|.nbi-truncated)")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_file_is_replaced(cache, compiled, suffix, damage):
    """Fault: A compiled kernel truncated, emptied, overwritten, its end zeroed, one bit flipped, another file in its
    place | the index, the object | one note; it is compiled anew and replaced | bits"""
    (path,) = cache.rglob(f"*{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert _call(cache) == (f"{compiled[1]} 1", NOTE.format(path=path))
    assert _call(cache) == (f"{compiled[1]} 0", "")


@pytest.mark.slow
def test_processes_that_find_it_together_say_it_once(cache, compiled):
    (path,) = cache.rglob("*.nbc")
    path.write_bytes(b"")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for _ in range(3)
    ]  # fmt: skip
    ended = [process.communicate() for process in started]
    assert sorted(out.strip() for out, _ in ended) == [f"{compiled[1]} {n}" for n in (0, 0, 1)]
    assert "".join(told for _, told in ended) == NOTE.format(path=path)


def test_the_object_of_another_variant_is_not_loaded(tmp_path):
    files = EntryFiles(str(tmp_path), "kernel")
    files.save("int", 1)
    (first,) = tmp_path.glob("*.nbc")
    files.save("float", 1.0)
    (second,) = set(tmp_path.glob("*.nbc")) - {first}
    assert (files.load("int"), files.load("float"), files.load("str")) == (1, 1.0, None)
    shutil.copyfile(first, second)
    with pytest.raises(DamagedEntryError) as refused:
        files.load("float")
    assert refused.value.path == str(second)
    assert files.load("int") == 1


def test_the_index_of_another_kernel_is_not_read(tmp_path):
    files, others = EntryFiles(str(tmp_path), "kernel"), EntryFiles(str(tmp_path), "other")
    others.save("int", 1)
    shutil.copyfile(others.index_path, files.index_path)
    with pytest.raises(DamagedEntryError) as refused:
        files.load("int")
    assert refused.value.path == files.index_path


def test_an_object_that_is_gone_is_none(tmp_path):
    files = EntryFiles(str(tmp_path), "kernel")
    files.save("int", 1)
    next(tmp_path.glob("*.nbc")).unlink()
    assert files.load("int") is None
    files.save("int", 2)
    assert files.load("int") == 2


def test_what_is_replaced_is_removed(tmp_path):
    files = EntryFiles(str(tmp_path), "kernel")
    files.save("int", 1)
    files.save("int", 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    old, new = (tmp_path / f"k.nbi.{name}.partial" for name in ("0000", "ffff"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    EntryFiles(str(tmp_path), "k").save("int", 1)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_pipe_is_not_waited_for(tmp_path):
    files = EntryFiles(str(tmp_path), "kernel")
    os.mkfifo(files.index_path)
    with pytest.raises(DamagedEntryError):
        files.load("int")


@pytest.mark.slow
def test_without_room_each_process_compiles(tmp_path, compiled):
    """Fault: No room for compiled kernels | the first kernel | one note of each process, which compiles its own |
    bits"""
    limited = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + CALL.replace(
        "print(", "resource.setrlimit(resource.RLIMIT_FSIZE, (999, 999))\nprint("
    )
    printed, told = _call(tmp_path, limited)
    assert printed == f"{compiled[1]} 1"
    assert told.count("\n") == 1
    assert told.startswith("compiled kernels are not kept: a file grew past the allowed size")
    assert told.endswith("; each process compiles its own; NUMBA_CACHE_DIR names another folder\n")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
