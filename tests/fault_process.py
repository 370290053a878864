"""A process that starts `distls` commands with a fault in them; `fault_helpers.Faulty` talks to it.

Each line of its input is a job; it forks a process that runs the command, and answers with how that ended. The fork
costs milliseconds, a new interpreter seconds: so every step of a command can be tried. Steps are acts on the file
system below one folder: what a file is opened, half written, synced, renamed, removed for.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any


class Steps:
    """Counts the steps below `root`, writes their names into `log`, and strikes before step `kill`.

    What strikes is ``kill``, the SIGKILL of this process; ``lost``, a power failure: what was renamed in a folder that
    was not synced since has its old name, and of what was written and not synced half is left; or ``full``: from there
    on no file can be made or grow, and the process goes on.
    """

    def __init__(self, root: str, kill: int, log: str, mode: str = "kill") -> None:
        self.root, self.kill, self.done, self.mode = root, kill, 0, mode
        self._counting = threading.Lock()  # zarr writes in threads
        # with the functions as they are now
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write = os.write
        # on the file system of the root, whose files it links
        self._power = Power(os.path.join(os.path.dirname(root), "shadow")) if mode == "lost" else None

    def _below(self, path: Any) -> str | None:
        """Return the name of a path below the root; what trees are removed by has no folder in its name."""
        text = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
        text = os.fsdecode(text)
        if text.startswith("/"):
            return os.path.relpath(text, self.root) if text.startswith(self.root) else None
        return text

    def reach(self, what: str, path: Any) -> bool:
        """Come to a step, of which nothing is done yet; return whether it is one below the root."""
        name = self._below(path)
        if name is None:
            return False
        with self._counting:
            self.done = number = self.done + 1
            self._write(self._log, f"{what} {name}\n".encode())
        if self.mode == "full":
            if 0 < self.kill <= number and what in GROWS:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        elif number == self.kill:
            if self._power is not None:
                self._power.fail(self.root)
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def install(self) -> None:
        """Patch what this process writes with."""
        import distls.storage.filesystem.atomic as atomic

        for owner, names in (
            (os, ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync")),
            (atomic, ("_exchange", "_sync_file_system")),
        ):
            for name in names:
                what = name.removeprefix("_").removeprefix("f")
                setattr(owner, name, self._watched(what, getattr(owner, name)))
        builtins.open = io.open = self._watched_open(io.open)
        os.write = self._torn_write
        os.open = self._watched_descriptor(os.open)

    def _watched(self, what: str, function: Any) -> Any:
        noted = getattr(self._power, what, None)

        def watched(path: Any, *given: Any, **named: Any) -> Any:
            if self.reach(what, path) and noted is not None:
                noted(path, *given)
            return function(path, *given, **named)

        return watched

    def _watched_open(self, function: Any) -> Any:
        def watched(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+") or not self.reach("open", file):
                return function(file, mode, *given, **named)
            opened = function(file, mode, *given, **named)
            if self._power is not None:
                self._power.opened(opened.fileno())
            return Torn(opened, self, file)

        return watched

    def _watched_descriptor(self, function: Any) -> Any:
        def watched(path: Any, flags: int, *given: Any, **named: Any) -> int:
            if flags & os.O_CREAT:
                self.reach("open", path)
            return int(function(path, flags, *given, **named))

        return watched

    def _torn_write(self, descriptor: int, content: Any) -> int:
        if self._below(descriptor) in (None, "..") or not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            return self._write(descriptor, content)
        half = self._write(descriptor, content[: len(content) // 2])
        self.wrote(descriptor, descriptor)
        return half + self._write(descriptor, content[half:])

    def wrote(self, descriptor: int, path: Any) -> None:
        """Come to the middle of a write."""
        if self._power is not None:
            self._power.wrote(descriptor)
        self.reach("write", path)


GROWS = ("mkdir", "open", "write")


class Power:
    """What a failure of the power takes away: what no sync has made durable."""

    def __init__(self, shadow: str) -> None:
        self._shadow, self._count = shadow, 0
        self._synced: dict[int, int] = {}  # durable bytes by inode, of files that were written
        self._renamed: list[tuple[int, str, str, str | None]] = []  # folder's inode, old and new name, what was there
        self._rename, self._truncate = os.rename, os.truncate
        shutil.rmtree(shadow, ignore_errors=True)
        os.mkdir(shadow)

    def opened(self, descriptor: int) -> None:
        """Note what is in a file already."""
        there = os.fstat(descriptor)
        self._synced.setdefault(there.st_ino, there.st_size)

    def wrote(self, descriptor: int) -> None:
        """Note that a file has grown, or was begun anew."""
        there = os.fstat(descriptor)
        self._synced[there.st_ino] = min(self._synced.get(there.st_ino, 0), there.st_size)

    def sync(self, descriptor: int) -> None:
        """Note that a file, or the names in a folder, are durable."""
        there = os.fstat(descriptor)
        self._synced[there.st_ino] = there.st_size
        self._renamed = [each for each in self._renamed if each[0] != there.st_ino]

    def sync_file_system(self, path: Any) -> None:
        """Note that all is durable."""
        self._synced, self._renamed = {}, []

    def rename(self, old: Any, new: Any) -> None:
        """Note a rename, and keep what was there."""
        old, new, kept = os.fspath(old), os.fspath(new), None
        if os.path.exists(new):
            self._count += 1
            kept = f"{self._shadow}/{self._count}"
            shutil.copytree(new, kept, copy_function=os.link) if os.path.isdir(new) else os.link(new, kept)
        self._renamed.append((os.stat(os.path.dirname(new)).st_ino, old, new, kept))

    replace = exchange = rename

    def fail(self, root: str) -> None:
        """Take it away."""
        for _, old, new, kept in reversed(self._renamed):
            if not os.path.exists(new):
                continue
            shutil.rmtree(old, ignore_errors=True)
            self._rename(new, old)
            if kept is not None:
                self._rename(kept, new)
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                there = os.stat(path)
                durable = self._synced.get(there.st_ino, there.st_size)
                self._truncate(path, durable + (there.st_size - durable) // 2)


class Torn:
    """A file whose every write is done by halves."""

    def __init__(self, file: Any, steps: Steps, path: Any) -> None:
        self._file, self._steps, self._path = file, steps, path

    def write(self, content: Any) -> int:
        half = len(content) // 2
        written = self._file.write(content[:half])
        self._file.flush()
        self._steps.wrote(self._file.fileno(), self._path)
        return int(written + self._file.write(content[half:]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Torn:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def kill_after_saves(number: int) -> None:
    """Kill this process as soon as so many checkpoints are saved."""
    from distls.training.run_folder import Run

    save, saved = Run.save_checkpoint, []

    def saving(run: Run, *given: Any) -> None:
        save(run, *given)
        saved.append(run)
        if len(saved) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Run.save_checkpoint = saving


def fail_reads(below: str, every: int, number: int, times: int, torn: bool = False) -> None:
    """Have every so many opened files below a folder fail, `times` times in a row, or be torn on their way."""
    from distls.storage.dataset import chunks
    from distls.storage.filesystem import safe_read as untrusted

    opened, left = [], []
    true = untrusted.open_regular

    def opening(path: Any, within: Any = None) -> int:
        if not str(path).startswith(below):
            return true(path, within)
        opened.append(path)
        if len(opened) % every == 0:
            left.extend([path] * times)
        if not left:
            return true(path, within)
        left.pop()
        if torn:
            return _torn_copy(path)
        raise OSError(number, os.strerror(number))

    untrusted.open_regular = chunks.open_regular = opening


def _torn_copy(path: Path) -> int:
    content = path.read_bytes()
    copy = os.memfd_create("torn")
    os.write(copy, content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    os.lseek(copy, 0, os.SEEK_SET)
    return copy


FAULTS = {"saves": kill_after_saves, "reads": fail_reads}


def run(job: dict[str, Any]) -> None:
    """Run a command in this process, which ends with it."""
    code: Any = 1
    try:
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        from distls.cli import main

        for name, given in job["faults"].items():
            Steps(**given).install() if name == "steps" else FAULTS[name](**given)
        sys.argv = ["distls", *job["arguments"]]
        main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve() -> None:
    """Answer jobs until the input ends."""
    import distls.cli
    import distls.training.fitting
    import distls.workers.forkserver_preload
    from distls.workers.rounds.block_stream import clear_cache

    # no plug is pulled, so nothing waits for the disk: half of the time
    os.fsync = lambda descriptor: None
    for line in sys.stdin:
        job = json.loads(line)
        if "warm" in job:
            # kernels are loaded once, here, and no data are kept
            warm = job["warm"]
            result = distls.training.fitting.fit(warm.pop("method"), warm.pop("dataset"), **warm)
            clear_cache()
            print(json.dumps(result.model.sha256), flush=True)
            continue
        if job.get("here"):
            # what it imports and compiles, processes that are forked later have
            # and how it fails, a process of its own says
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, Exception):
                sys.argv = ["distls", *job["arguments"]]
                distls.cli.main()
            clear_cache()
            print("0", flush=True)
            continue
        process = os.fork()
        if not process:
            run(job)
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])), flush=True)


def dask_setup(_worker: object) -> None:
    """Put the faults of the environment into a worker that preloads this module."""
    for name, given in json.loads(os.environ["DISTLS_TEST_FAULTS"]).items():
        FAULTS[name](**given)


EIO, ESTALE = errno.EIO, errno.ESTALE

if __name__ == "__main__":
    serve()
