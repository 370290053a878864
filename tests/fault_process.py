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
import signal
import sys
from pathlib import Path
from typing import Any


class Steps:
    """Counts the steps below `root`, writes their names into `log`, and kills this process before step `kill`."""

    def __init__(self, root: str, kill: int, log: str) -> None:
        self.root, self.kill, self.done = root, kill, 0
        # with the functions as they are now
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reach(self, what: str, path: Any) -> None:
        """Come to a step; nothing of it is done yet."""
        text = os.fspath(path)
        if isinstance(text, str) and (text.startswith(self.root) or not text.startswith("/")):
            self.done += 1
            name = os.path.relpath(text, self.root) if text.startswith("/") else text
            os.write(self._log, f"{what} {name}\n".encode())
            if self.done == self.kill:
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Patch what this process writes with."""
        for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
            setattr(os, name, self._watched(name, getattr(os, name)))
        builtins.open = io.open = self._watched_open(io.open)  # type: ignore[assignment]
        import distls.storage.filesystem.atomic as atomic

        atomic._exchange = self._watched("exchange", atomic._exchange)
        atomic._sync = self._watched("sync", atomic._sync)

    def _watched(self, what: str, function: Any) -> Any:
        def watched(path: Any, *given: Any, **named: Any) -> Any:
            self.reach(what, path)
            return function(path, *given, **named)

        return watched

    def _watched_open(self, function: Any) -> Any:
        def watched(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return function(file, mode, *given, **named)
            self.reach("open", file)
            return Torn(function(file, mode, *given, **named), self, file)

        return watched


class Torn:
    """A file whose every write is done by halves."""

    def __init__(self, file: Any, steps: Steps, path: Any) -> None:
        self._file, self._steps, self._path = file, steps, path

    def write(self, content: Any) -> int:
        half = len(content) // 2
        written = self._file.write(content[:half])
        self._file.flush()
        self._steps.reach("write", self._path)
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

    Run.save_checkpoint = saving  # type: ignore[method-assign]


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

    for line in sys.stdin:
        job = json.loads(line)
        if "warm" in job:
            # kernels are loaded once, here, and no data are kept
            warm = job["warm"]
            result = distls.training.fitting.fit(warm.pop("method"), warm.pop("dataset"), **warm)
            clear_cache()
            print(json.dumps(result.model.sha256), flush=True)  # type: ignore[union-attr]
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
