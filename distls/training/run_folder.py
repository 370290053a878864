"""A RUN folder: configuration, events, checkpoints, the published model.

::

    RUN/lock            while a fit or resume writes here
    RUN/config.json     the request, written first
    RUN/status.json     its status and last record; what was planned, and with which versions it was trained
    RUN/events.jsonl    one line a round, append-only
    RUN/state/          predictions of every row, while it runs; see distls.storage.temporary.row_state. The duals of
                        `sdca` stay: they prove how good the model is
    RUN/checkpoints/    round-NNNNNN, whole or absent; the last two are kept
    RUN/model/          published last
    RUN/final/          the last round of a fit that may go on with more passes, as a checkpoint
    RUN/children/       with --select: one RUN a setting
    RUN/search/         while it runs: the model that the last of them starts from, of a search in memory
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from distls.solvers.status import Record, Status
from distls.storage.dataset.metadata import Amount
from distls.storage.errors import CorruptDataError, DistlsError, FormatError, MismatchError, StorageError
from distls.storage.filesystem.append_log import Lines
from distls.storage.filesystem.atomic import (
    finite_json,
    is_half,
    os_errors_described,
    remove_tree,
    replace_directory,
    subfolders,
    sweep,
    write_json,
)
from distls.storage.filesystem.checksums import is_sealed, sealed
from distls.storage.filesystem.locks import is_held, locked
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import as_format_error, convert_json, parse_json, read_json
from distls.storage.model.bundle import write_bundle
from distls.storage.temporary.row_state import StateFolder
from distls.training.run_config import FORMAT_VERSION, RunConfig, check_written

# Whoever reads a run alone, such as `distls info`, loads no solvers, and with them no kernels.
if TYPE_CHECKING:
    from distls.solvers.loop import Standing
    from distls.solvers.solver import S, State

T = TypeVar("T", bound=msgspec.Struct)

_KEPT_CHECKPOINTS = 2  # a fit can go on from the older one if the newest is damaged
# Enough for two million rounds, one line each: a limit on what a forged file can make a reader allocate.
_LARGEST_EVENTS = 2**30
_LOG = logging.getLogger(__name__)
_CHECKPOINT = re.compile(r"round-\d{6,}")
# Beside the state of rows.
_WHILE_IT_RUNS = ("checkpoints", "all-rows", "search")


def _is_left_over(path: Place) -> bool:
    """Return whether the file is left over from a run that was killed before it had a configuration."""
    unused = path.name == "checkpoints" and not any(path.iterdir())
    return unused or path.name == "lock" or is_half(path)


class RunStatus(msgspec.Struct, frozen=True):
    """The fields of every ``status.json``: the run's status and costs."""

    status: Status
    passes: Amount
    seconds: Amount


def is_run(path: Place) -> bool:
    """Return whether `path` is a run folder."""
    return (path / "config.json").is_file()


class Run:
    """One run folder."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self._events = Lines(path / "events.jsonl", _LARGEST_EVENTS)

    @classmethod
    def create(cls, path: Place, config: RunConfig) -> Run:
        """Make a new run folder; raise MismatchError if the path exists, StorageError if it cannot be written."""
        cls.check_new(path)
        made = cls(path)
        with os_errors_described(f"cannot write the run {path}", "choose a writable place"):
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
            with made.held():
                if is_run(path):
                    cls.check_new(path)  # another process was faster
                write_json(path / "config.json", config.stored())
        made.request = config.makers
        return made

    @staticmethod
    def check_new(path: Place) -> None:
        """Raise MismatchError if something exists at the path."""
        if is_run(path):
            raise MismatchError(f"{path} is a run already; `distls resume {path}` continues it, or choose another name")
        if path.exists() and (not path.is_dir() or not all(map(_is_left_over, path.iterdir()))):
            raise MismatchError(f"{path} exists and is not empty; choose another name for the run")

    @classmethod
    def open(cls, path: Place) -> Run:
        """Open an existing run folder; raise FormatError if it is not a run."""
        if not is_run(path):
            raise FormatError(f"{path}: not a run (no config.json)" if path.exists() else f"{path}: no such run")
        return cls(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the run against other writers, and remove what a killed one left.

        Raises StorageError, naming the other process, if it is locked.
        """
        with contextlib.ExitStack() as held:
            again = f"once that is fixed, `distls resume {self.path}` continues"
            remedy = again if is_run(self.path) else "make room, or choose another place"
            with os_errors_described(f"cannot write the run {self.path}", remedy):
                held.enter_context(locked(self.path / "lock", str(self.path)))
                self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove what was being written, or removed, when a process was killed."""
        if isinstance(self.path, StorePath):
            whole = self.checkpoints()
            for path in subfolders(self.path / "checkpoints"):
                if path not in whole:
                    remove_tree(path)
            return
        for folder in (self.path, self.path / "checkpoints"):
            sweep(folder)
        for path in self.path.glob(".probe-*"):
            path.unlink()
        if self.has_ended and (self.path / "model").is_dir():
            self.clear()

    @property
    def config(self) -> RunConfig:
        """The request of the run."""
        config = self._read("config.json")
        version = config.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(f"{self.path}: config.json is of version {version}, expected {FORMAT_VERSION}")
        found = self._decoded("config.json", config, RunConfig)
        check_written(self.path / "config.json", config, found)
        return found

    @cached_property
    def request(self) -> str:
        """The digest of the request, which checkpoints and status name."""
        return self.config.makers

    @property
    def state(self) -> StateFolder:
        """The folder of what is kept for each row."""
        # The absolute path: workers have other current folders.
        return StateFolder.of(self.path.absolute() / "state", self.request)

    def write_config(self, config: RunConfig) -> None:
        """Replace the request of the run."""
        write_json(self.path / "config.json", config.stored())

    @property
    def status(self) -> Record:
        """The fields of `RunStatus` and of the last record; RUNNING before the file exists."""
        if not (self.path / "status.json").exists():
            return {"status": "RUNNING", "passes": 0.0, "seconds": 0.0}
        status = self._read("status.json", f"; {self.again}")
        if is_sealed(status) is False:
            raise FormatError(f"{self.path}: status.json does not match its checksum; {self.again}")
        self._decoded("status.json", status, RunStatus)
        return status

    @property
    def has_ended(self) -> bool:
        """Whether it came to an end, so that there is nothing to train."""
        return self.status["status"] not in (Status.RUNNING, Status.INTERRUPTED)

    @property
    def is_stopped(self) -> bool:
        """Whether it did not come to an end, and no process is at work on it."""
        return self.status["status"] == "RUNNING" and not is_held(self.path / "lock")

    @property
    def again(self) -> str:
        """How to have again what the run had ended with: without a status it goes on from its newest checkpoint."""
        return f"remove {self.path / 'status.json'}, and `distls resume {self.path}` trains again"

    def _read(self, name: str, remedy: str = "") -> Record:
        try:
            return read_json(self.path / name, Record, self.path)
        except FormatError:
            raise
        except ValueError:
            raise FormatError(f"{self.path}: {name} cannot be read{remedy}") from None

    def _decoded(self, name: str, found: Record, kind: type[T]) -> T:
        try:
            return convert_json(found, kind)
        except ValueError as error:
            raise FormatError(f"{self.path}: {name} was not written by distls ({error})") from None

    def check_there(self) -> None:
        """Raise StorageError if the run was removed: its parts would be written into a folder that is no run."""
        # what a store says to be missing may be there a moment later
        if not isinstance(self.path, StorePath) and not is_run(self.path):
            raise StorageError(
                f"{self.path}: the run was removed or renamed while it was trained; by a new name `distls resume` "
                "continues it"
            )

    @contextlib.contextmanager
    def removal_described(self) -> Iterator[None]:
        """Raise StorageError for an error that occurred because the run was removed."""
        try:
            yield
        except (OSError, DistlsError):
            self.check_there()
            raise

    def write_status(self, status: Record) -> None:
        """Replace the status; the files that `train` tested the model with stay named."""
        self.check_there()
        self._events.flush()
        with contextlib.suppress(OSError, DistlsError):
            status = {"test": self.status["test"], **status} if "test" in self.status else status
        write_json(self.path / "status.json", sealed(finite_json({**status, "request": self.request})))

    def append_event(self, event: Record) -> None:
        """Add one line to the events."""
        try:
            self._events.append(json.dumps(event))
        except FileNotFoundError:
            self.check_there()
            raise

    def flush_events(self) -> None:
        """Write buffered events to an object store."""
        self._events.flush()

    def events(self) -> list[Record]:
        """Return all whole event lines; a line cut off by a crash is left out."""
        try:
            return [parse_json(line.encode(), Record) for line in self._events.read()]
        except ValueError as error:
            raise FormatError(f"{self._events.path}: not the events of a run ({error})") from None

    def truncate_events(self, last_round: int) -> None:
        """Drop the events after `last_round`: a resumed run writes them again."""
        events = self.events()
        with as_format_error(str(self.path / "events.jsonl")):
            kept = [event for event in events if event["round"] <= last_round]
        self._events.replace([json.dumps(event) for event in kept])

    def save_checkpoint(self, done: Standing[State]) -> None:
        """Write where a fit stands as a checkpoint, then remove all but the last two."""
        self._write_state(self._checkpoint(done.state.round), done)
        for old in self.checkpoints()[:-_KEPT_CHECKPOINTS]:
            remove_tree(old)

    def keep_final(self, done: Standing[State]) -> None:
        """Keep the last round: what the fit ends with, and goes on from with more passes."""
        self._write_state(self.path / "final", done)

    def _write_state(self, folder: Place, done: Standing[State]) -> None:
        from distls.training.checkpoint import packed

        self.check_there()
        # events must be stored before the checkpoint: a resume truncates them to its round
        self._events.flush()
        write_bundle(folder, "checkpoint", *packed(done, self.request))

    def _checkpoint(self, number: int) -> Place:
        return self.path / "checkpoints" / f"round-{number:06d}"

    def checkpoints(self) -> list[Place]:
        """Return the whole checkpoints, oldest first."""
        folder = self.path / "checkpoints"
        found = subfolders(folder) if folder.is_dir() else []
        rounds = sorted(int(p.name[6:]) for p in found if _CHECKPOINT.fullmatch(p.name))
        # the description is written last: in an object store a checkpoint under way has none
        return [path for path in map(self._checkpoint, rounds) if (path / "bundle.json").exists()]

    def load_checkpoint(self, state_type: type[S], holds: Callable[[S], bool]) -> Standing[S] | None:
        """Read the newest checkpoint that is sound, or None when there is none yet; raises the newest one's error.

        Where `holds` misses what is kept of rows, an older checkpoint for which it does is read; those of another fit
        are set aside. Raises FormatError for one of another request than the run's if either may have been changed.
        """
        from distls.training.checkpoint import read_checkpoint

        paths = self._states()
        errors: list[CorruptDataError] = []
        sound: list[Standing[S]] = []
        for path in reversed(paths):
            try:
                done = read_checkpoint(path, self.path, state_type, self.request)
            except CorruptDataError as error:
                errors.append(error)
                continue
            except MismatchError as error:
                self._set_aside(path, error)
                continue
            sound.append(done)
            if len(paths) == 1 or holds(done.state):
                if path != paths[-1]:
                    lost = errors[0] if errors else f"{paths[-1]}: what is kept of its rows was lost"
                    _LOG.warning("%s; the fit goes on from %s", lost, path.name)
                return sound[-1]
        if errors and not sound:
            raise errors[0]
        return sound[0] if sound else None

    def _states(self) -> list[Place]:
        """Return the checkpoints and the last round of a fit that had ended, oldest first."""
        from distls.training.checkpoint import round_of

        found, final = self.checkpoints(), self.path / "final"
        if not (final / "bundle.json").exists():
            return found
        ended = math.inf  # damaged: it is said which checkpoint is taken instead
        with contextlib.suppress(CorruptDataError):
            ended = round_of(final)
        older = [path for path in found if int(path.name[6:]) < ended]
        return [*older, final, *found[len(older) :]]

    def _set_aside(self, path: Place, error: MismatchError) -> None:
        """Move a checkpoint of another fit out of the way, where it is neither read nor removed."""
        # a configuration that says itself which request it is was not changed
        if self._read("config.json").get("request") is None:
            raise FormatError(f"{path}: no checkpoint of this fit: {self.path / 'config.json'} was changed")
        aside = self.path / "other-checkpoints"
        aside.mkdir(exist_ok=True)
        remove_tree(aside / path.name)
        replace_directory(path, aside / path.name)
        _LOG.warning("%s; the fit goes on without it, from its own ones or from the start", error)

    def reopen(self, config: RunConfig) -> None:
        """Make a run that has ended one that was stopped after its last round, and is to end as `config` says.

        Raises MismatchError if its last round was not kept.
        """
        if not (self.path / "final" / "bundle.json").exists():
            raise MismatchError(
                f"{self.path}: its last round was not kept, as by fits of several settings, of methods that end by "
                f"themselves; start from its model instead: -p init={self.path}"
            )
        # first: a process that is killed here leaves a run that ends as before
        self.write_status({**self.status, "status": Status.INTERRUPTED})
        self.write_config(config)

    def clear(self) -> None:
        """Remove what only a resume needs: the model is published, and the duals in the state of rows, if there are."""
        for name in _WHILE_IT_RUNS:
            remove_tree(self.path / name)
        if not (self.path / "state" / "point" / "bundle.json").exists():
            remove_tree(self.path / "state")
