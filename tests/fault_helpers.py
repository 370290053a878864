"""Commands with faults in them, each a process of its own that is forked from one which has loaded everything."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import fault_process
import pytest

from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.training.run_folder import Run

KILLED = -9


class Ended(NamedTuple):
    """How a command ended: exit code (negative: the signal), stdout, stderr."""

    code: int
    out: str
    err: str


class Faulty:
    """Runs `distls` commands that something befalls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, fault_process.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
        )  # fmt: skip

    def _ask(self, job: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the process that starts the commands has ended"
        return json.loads(answer)

    def fit(self, method: str, dataset: Path, **options: Any) -> str:
        """Fit undisturbed; return the digest of the weights. Later commands have the kernels loaded."""
        return str(self._ask({"warm": {"method": method, "dataset": str(dataset), **options}}))

    def warm(self, *arguments: object) -> None:
        """Run a command undisturbed in the process that later ones are forked from."""
        self._ask({"arguments": [str(argument) for argument in arguments], "here": True})

    def __call__(self, *arguments: object, **faults: dict[str, Any]) -> Ended:
        """Run a command with the named faults of `fault_process`."""
        out, err = self._folder / "out", self._folder / "err"
        given = [str(argument) for argument in arguments]
        code = self._ask({"arguments": given, "faults": faults, "out": str(out), "err": str(err)})
        return Ended(code, out.read_text(), err.read_text())

    def killed_at(self, step: int, root: Path, *arguments: object, mode: str = "kill") -> tuple[Ended, list[str]]:
        """Run a command that is struck before its n-th step below `root`; 0: never. Return its steps as well."""
        log = self._folder / "steps"
        log.unlink(missing_ok=True)
        ended = self(*arguments, steps={"root": str(root), "kill": step, "log": str(log), "mode": mode})
        return ended, log.read_text().splitlines()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """Commands that something befalls."""
    made = Faulty(tmp_path_factory.mktemp("faulty"))
    yield made
    made.close()


class Disk:
    """A file system of a few KiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.path)], check=True)

    def fill(self, left: int) -> None:
        """Leave only `left` bytes."""
        (self.path / "ballast").unlink(missing_ok=True)
        there = os.statvfs(self.path)
        (self.path / "ballast").write_bytes(bytes(max(there.f_bavail * there.f_frsize - left, 0)))

    def make_room(self) -> None:
        (self.path / "ballast").unlink()


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield Disk(path)
    subprocess.run(["umount", "-l", str(path)], check=True)


def options_of(params: dict[str, Any], **limits: object) -> list[object]:
    """Return parameters and limits as on the command line."""
    given = [text for name, value in params.items() for text in ("-p", f"{name}={value}")]
    return [*given, *(text for name, value in limits.items() for text in (f"--{name.replace('_', '-')}", value))]


def digest_of(run: Path) -> str:
    """Return the digest of a finished run's weights."""
    return str(json.loads((run / "status.json").read_text())["weights_sha256"])


def rounds_of(run: Path) -> list[int]:
    """Return the rounds of a run's events."""
    return [event["round"] for event in Run(run).events()]


def left_behind(folder: Path) -> list[str]:
    """Return the names of temporary and half-written files."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name.endswith((".partial", ".old", "lock"))
        or path.name in ("state", "checkpoints", "best")
        or path.name.startswith(".probe-")
    )


def chunk_of(dataset: Path, index: int, array: str = "data", kind: str = "rows") -> Path:
    """Return the file of an array of a partition or column shard."""
    return dataset / kind / f"{index:08d}" / array / "c" / "0"


def opened(path: Path) -> Dataset | None:
    """Return the dataset if it is whole."""
    from distls.storage.errors import DistlsError

    try:
        return open_dataset(path)
    except DistlsError:
        return None
