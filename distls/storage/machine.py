"""The memory and the cores of this machine that this process may use: its control groups may allow less than there is.

Containers and batch systems limit processes by control groups: files below /sys/fs/cgroup, in version 2 one tree, in
version 1 a tree for each kind of limit. A limit anywhere between a process's group and the root holds for it.
"""

import contextlib
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from distls.storage.errors import WorkerError

# Bytes of addresses, most of them never used, that numba, Dask and BLAS reserve.
_ADDRESSES = 2 * 2**30

_ROOT = Path("/")


class _Group(NamedTuple):
    folder: Path
    unified: bool  # version 2


def available_memory() -> int:
    """Return the bytes that this process may still use: of the machine, or within its control groups."""
    import psutil  # which small jobs do not ask

    free = [int(psutil.virtual_memory().available)]
    for folder, unified in _groups("memory"):
        limit = _number(folder / ("memory.max" if unified else "memory.limit_in_bytes"))
        used = _number(folder / ("memory.current" if unified else "memory.usage_in_bytes"))
        if limit is not None and used is not None:
            # Files in the cache are given up before the limit is met, so they count as free.
            free.append(max(limit - used + _reclaimable(folder, unified), 0))
    return min(free)


def check_addresses() -> None:
    """Raise WorkerError if a limit on addresses is too low: libraries would fail, or try for ever to get some."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESSES:
        raise WorkerError(
            f"this process may use {limit // 2**20} MiB of addresses (ulimit -v), and libraries reserve more than "
            f"that: allow {_ADDRESSES // 2**30} GiB, and limit memory with --memory-limit"
        )


def available_cores() -> int:
    """Return the number of cores that this process may use: those it is bound to, or the share of its groups."""
    cores = [float(len(os.sched_getaffinity(0)))]
    for folder, unified in _groups("cpu"):
        quota, period = _share(folder, unified)
        if quota and period and quota > 0:
            # The quota is a share of each period: more threads would only be throttled.
            cores.append(quota / period)
    return max(math.ceil(min(cores)), 1)


def _share(folder: Path, unified: bool) -> tuple[int | None, int | None]:
    """Return the microseconds of a group in each period; None or -1 for no limit."""
    if not unified:
        return _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return _parsed(quota), _parsed(period)


def _reclaimable(folder: Path, unified: bool) -> int:
    """Return the bytes of files that the kernel drops from its cache before the limit is met."""
    name = "inactive_file" if unified else "total_inactive_file"
    lines = (line.split() for line in _text(folder / "memory.stat").splitlines())
    return next((_parsed(line[1]) or 0 for line in lines if len(line) == 2 and line[0] == name), 0)


def _groups(controller: str) -> Iterator[_Group]:
    """Yield the folders of this process's groups that limit memory or cores, up to the roots of their trees."""
    mounts = _ROOT / "sys/fs/cgroup"
    for line in _text(_ROOT / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            roots = [mounts]
        elif controller in names.split(","):
            roots = [mounts / names, mounts / controller]
        else:
            continue
        root = next((each for each in roots if each.is_dir()), roots[0])
        # in a container the path may be that of the host, and only the root is there
        inner = PurePosixPath(path.lstrip("/"))
        for below in (inner, *inner.parents):
            if ".." not in below.parts:
                yield _Group(root / below, not names)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return path.read_text()
    return ""


def _number(path: Path) -> int | None:
    return _parsed(_text(path))


def _parsed(text: str) -> int | None:
    """Return a number; None for "max" and what is none."""
    with contextlib.suppress(ValueError):
        return int(text)
    return None
