"""What a process may use of its machine, with the files of control groups as kernels and containers show them."""

import os
from types import SimpleNamespace

import pytest

from distls.storage import machine
from distls.storage.machine import available_cores, available_memory

MIB = 2**20
FREE = 8000 * MIB
# the largest number of pages: no limit, in version 1
UNLIMITED = 9223372036854771712


@pytest.fixture
def root(monkeypatch, tmp_path):
    """The root of a machine of 8 cores and 8000 free MiB, without control groups."""
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=FREE))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(8)))
    return tmp_path


def _write(root, groups, **files):
    """Write the process's groups, and the files of each folder below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for folder, contents in files.items():
        where = root / "sys/fs/cgroup" / folder.replace("__", "/").strip("/")
        where.mkdir(parents=True, exist_ok=True)
        for name, value in contents.items():
            (where / name).write_text(f"{value}\n")


def test_without_groups_it_is_the_machine(root):
    assert (available_memory(), available_cores()) == (FREE, 8)


def test_affinity(root, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {3, 5})
    assert available_cores() == 2


def test_version_2(root):
    own = {
        "memory.max": 420 * MIB,
        "memory.current": 120 * MIB,
        "memory.stat": f"anon 7\ninactive_file {20 * MIB}\nactive_file 5",
        "cpu.max": "150000 100000",
    }
    _write(root, "0::/job/step\n", job__step=own)
    assert (available_memory(), available_cores()) == (320 * MIB, 2)


def test_the_strictest_of_nested_groups_holds(root):
    inner = {"memory.max": "max", "memory.current": 100 * MIB, "cpu.max": "max 100000"}
    outer = {"memory.max": 500 * MIB, "memory.current": 450 * MIB, "cpu.max": "300000 100000"}
    _write(root, "0::/job/step\n", job__step=inner, job=outer)
    assert (available_memory(), available_cores()) == (50 * MIB, 3)


def test_version_1(root):
    memory = {
        "memory.limit_in_bytes": 420 * MIB,
        "memory.usage_in_bytes": 120 * MIB,
        "memory.stat": f"inactive_file 1\ntotal_inactive_file {20 * MIB}",
    }
    cpu = {"cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000}
    groups = "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"
    _write(root, groups, memory__docker__abc=memory, **{"cpu,cpuacct__docker__abc": cpu})
    assert (available_memory(), available_cores()) == (320 * MIB, 1)


def test_in_a_container_the_path_is_that_of_the_host(root):
    memory = {"memory.limit_in_bytes": 420 * MIB, "memory.usage_in_bytes": 20 * MIB}
    _write(root, "4:memory:/docker/abc\n", memory=memory)
    assert available_memory() == 400 * MIB


def test_no_limit_and_more_used_than_allowed(root):
    memory = {"memory.limit_in_bytes": UNLIMITED, "memory.usage_in_bytes": 20 * MIB}
    cpu = {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000}
    _write(root, "4:memory:/a\n1:cpu:/\n", memory__a=memory, cpu=cpu, memory={
        "memory.limit_in_bytes": 10 * MIB, "memory.usage_in_bytes": 20 * MIB
    })  # fmt: skip
    assert (available_memory(), available_cores()) == (0, 8)


@pytest.mark.parametrize("text", ["", "nonsense", "-7 x", "max"])
def test_files_that_are_unreadable_limit_nothing(root, text):
    contents = dict.fromkeys(("memory.max", "memory.current", "memory.stat", "cpu.max"), text)
    _write(root, "0::/../outside\n0::/job\n:\nx\n", job=contents)
    assert (available_memory(), available_cores()) == (FREE, 8)
