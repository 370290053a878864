"""Commands and fits in folders of their own, and what a user does after one was struck: of `test_every_instant`, and of
`benchmarks.faults.storms`."""

import contextlib
import itertools
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fault_helpers import Faulty

from distls.storage.model.bundle import read_bundle
from distls.storage.model.model import load_model
from distls.training.run_folder import Run, is_run

SERIAL = ("--executor", "serial", "--quiet")
FIT = (*SERIAL, "--checkpoint-seconds", 0)


class Job(NamedTuple):
    """A command in a folder of its own.

    Attributes
    ----------
    given : what is in the folder at first
    arguments : ``{data}`` is the folder of what is only read
    run : name of its run, which `resume` continues, if it makes one
    measured : what else depends on how often it was stopped
    """

    arguments: Sequence[object]
    given: Sequence[str] = ()
    run: str | None = None
    measured: frozenset[str] = frozenset()


def fit(method: str, *more: object, data: str = "{data}/D") -> Job:
    """Return a fit that saves each round."""
    return Job(("fit", method, data, "run", *FIT, *more), run="run")


def given(**params: object) -> list[object]:
    return [text for name, value in params.items() for text in ("-p", f"{name}={value}")]


JUDGED = ("--eval", "{data}/T")
CUT = ("--partition-size", "2KiB")
TABLE = ("{data}/train.csv", "D", *CUT, "--label-column", "label", "--split", "held=0.2")
PATH = given(alpha="path", alphas="0.1:0.03")
CUT_OF = ("--calibrate", "{data}/two-held", "--threshold-for", "f1")
RARELY = ("--checkpoint-seconds", 9)
JOBS = {
    "ingest": Job(("ingest", "{data}/train.svm", "D", *SERIAL, *CUT)),
    "ingest of a table": Job(("ingest", *TABLE, *SERIAL)),
    "columns": Job(("columns", "D", *SERIAL), given=["D"]),
    "append": Job(("append", "D", "{data}/test.svm", *SERIAL, *CUT), given=["D"]),
    "sgd, patience": fit("sgd", *JUDGED, "--passes", 3, "--patience", 1),
    "sgd, rtol": fit("sgd", "--passes", 3, "--rtol", 0.05, *given(loss="log", alpha=0.1)),
    "sgd, seconds": fit("sgd", "--max-seconds", 0.001),
    "mcid, calibrate": fit("mcid", "--passes", 2, "--calibrate", "{data}/T"),
    "rls": fit("rls", "--passes", 1),
    "olbfgs": fit("olbfgs", "--passes", 1),
    "sdca": fit("sdca", *JUDGED, "--passes", 2),
    # blocks of classes that were finished before are not read again
    "ovr-sdca": fit("ovr-sdca", *given(class_block=2, alpha=0.01))._replace(measured=frozenset({"n_rows"})),
    "bcd": fit("bcd", "--rtol", 0.1, *given(alpha=0.01)),
    "fista": fit("fista", "--rtol", 0.3, "--passes", 3, *given(alpha=0.01, fit_intercept="false")),
    "gls": fit("gls", *JUDGED, "--passes", 2),
    "newton": fit("newton", "--passes", 4, *given(alpha=0.01)),
    "cls": fit("cls", *given(rounds=2)),
    "stagewise": fit("stagewise", *given(stages=2, block_size=6)),
    "diverging": fit("adaline", "--passes", 9, *given(eta0=1e30)),
    "from a model": fit("sgd", "--passes", 1, *given(init="{data}/M")),
    "more passes": Job(("resume", "M", "--passes", 3, *FIT), given=["M"], run="M"),
    "path of one read": fit("sgd", *RARELY, "--passes", 1, *PATH, "--select", "{data}/T"),
    "path of warm starts": fit("bcd", *RARELY, "--passes", 2, *PATH, *JUDGED),
    "folds": fit("sdca", *RARELY, "--passes", 1, *given(alpha="path", alphas="0.1:0.03", folds=2, lanes=1)),
    "refit": fit("sgd", *RARELY, "--passes", 1, *given(alpha="0.1,0.01"), "--select", "{data}/T", "--refit"),
    "settings": fit("sgd", "--passes", 1, *given(alpha="0.1,0.01"), "--select", "{data}/T", "--calibrate", "{data}/T2"),
    "train": Job(("train", *TABLE[:1], "run", "--method", "sgd", *TABLE[4:6], "--passes", 1, *SERIAL), run="run"),
    "threshold": fit("sgd", *CUT_OF, "--passes", 1, *given(loss="log"), data="{data}/two"),
    "without a method": Job(("fit", "{data}/two", "run", *FIT, "--passes", 2), run="run"),
    "calibrate": Job(("calibrate", "M", "{data}/T", *SERIAL), given=["M"]),
    "predict": Job(("predict", "{data}/M", "{data}/T", "out.csv", *SERIAL)),
    "predict, zarr": Job(("predict", "{data}/M", "{data}/T", "out.zarr", *SERIAL)),
    "predict of files": Job(("predict", "{data}/M", "{data}/test.svm", "out.csv", *SERIAL, "--labelled")),
    "evaluate": Job(("evaluate", "M", "{data}/test.svm", *SERIAL), given=["M"]),
    "import": Job(("import", "{data}/M.liblinear", "M", "--from", "liblinear")),
    "export": Job(("export", "{data}/M", "out.npz", "--to", "npz")),
    "report": Job(("report", "{data}/M", "--html", "out.html")),
}  # fmt: skip
# What is not synced: rows of data sets, which are refused when they are read if they were cut, and duals, which are
# recomputed with a note.
UNSYNCED = {"ingest", "ingest of a table", "append", "columns", "refit", "train", "sdca", "folds"}
# What a machine was measured to do, besides times.
MEASURED = frozenset({"bytes_read", "cached_bytes", "eval_bytes_read", "worker_peaks", "worker_limit"})


_LEFT = re.compile(r".*lock|M\.[0-9a-f]{8}\.partial/.*|out\.(npz|html|csv|zarr)\.[0-9a-f]{8}\.partial(/.*)?")


class Bench:
    """Folders in which the jobs are done."""

    def __init__(self, root: Path, faulty: Faulty, seed: int = 0) -> None:
        self.data, self.work, self.faulty = root / "data", root / "work", faulty
        self._make(seed)

    def _make(self, seed: int) -> None:
        self.data.mkdir()
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=(12, 3))
        for name, rows in (("train", 90), ("test", 40), ("other", 40)):
            x = rng.normal(size=(rows, 12)).round(3)
            y = (x @ weights + rng.normal(size=(rows, 3))).argmax(axis=1)
            lines = [
                f"{code} " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(row))
                for code, row in zip(y, x, strict=True)
            ]
            (self.data / f"{name}.svm").write_text("\n".join(lines) + "\n")
        (self.data / "two.svm").write_text(re.sub(r"(?m)^2 ", "1 ", "\n".join(lines)) + "\n")
        table = ["label,a,b,c"] + [f"{'xyz'[i % 3]},{i},{i * i % 7},{'uv'[i % 2]}" for i in range(60)]
        (self.data / "train.csv").write_text("\n".join(table) + "\n")
        shape = ("--partition-size", "2KiB", *SERIAL)
        self.done("ingest", self.data / "train.svm", self.data / "D", *shape)
        shutil.copytree(self.data / "D", self.data / "plain")
        self.done("columns", self.data / "D", *SERIAL)
        self.done("ingest", self.data / "two.svm", self.data / "two", *shape, "--split", "held=0.3")
        for name, source in (("T", "test"), ("T2", "other")):
            self.done("ingest", self.data / f"{source}.svm", self.data / name, "--like", self.data / "D", *shape)
        self.done("fit", "sgd", self.data / "D", self.data / "M", *SERIAL, "--passes", 2, *given(loss="log"))
        self.done("export", self.data / "M", self.data / "M.liblinear", "--to", "liblinear")

    def done(self, *arguments: object) -> None:
        ended = self.faulty(*arguments)
        assert ended.code == 0, ended.err

    def prepared(self, job: Job) -> list[object]:
        """Empty the folder of work, put into it what is given, and return the command."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        for name in job.given:
            shutil.copytree(self.data / ("plain" if name == "D" else name), self.work / name)
        return [self.placed(each) for each in job.arguments]

    def placed(self, argument: object) -> object:
        if not isinstance(argument, str) or argument.startswith("-"):
            return argument
        own = argument in ("D", "M", "run") or argument.startswith("out.")
        return str(self.work / argument) if own else argument.replace("{data}", str(self.data))

    def following(self, job: Job, command: Sequence[object]) -> Sequence[object]:
        """Return what a user does next."""
        if job.run is not None and command[0] in ("fit", "train") and is_run(self.work / job.run):
            return ["resume", self.work / job.run, *SERIAL, "--checkpoint-seconds", 0]
        return command

    def ended(self, job: Job, command: Sequence[object], code: int) -> None:
        """Do what a user does next; it ends as the undisturbed command has."""
        command = self.following(job, command)
        ended = self.faulty(*command)
        if command[0] == "train" and "exists already; remove it" in ended.err:
            # ingested, and no run yet
            shutil.rmtree(self.work / "run-data")
            ended = self.faulty(*command)
        # by what was stopped afterwards
        done = ended.err.count("\n") == 1 and (
            "exists already" in ended.err or "has done" in ended.err or "very rows already" in ended.err
        )
        assert ended.code == code or done, ended.err

    def contents(self, job: Job) -> dict[str, Any]:
        """Return what is in the folder of work."""
        # a lock of a killed process is nobody's: the next writer takes it over; the rows that were made of files to be
        # scored, and half an export or page, may be those of a process at work
        files = [
            path
            for path in sorted(self.work.rglob("*"))
            if path.is_file() and not _LEFT.fullmatch(str(path.relative_to(self.work)))
        ]
        return {str(path.relative_to(self.work)): content_of(path, job.measured | MEASURED) for path in files}


def content_of(path: Path, measured: frozenset[str]) -> Any:
    with contextlib.suppress(ValueError):
        if path.suffix == ".json":
            return timeless(json.loads(path.read_text()), measured)
        if path.suffix == ".jsonl":
            return [timeless(json.loads(line), measured) for line in path.read_text().splitlines()]
    if path.suffix == ".html":
        return re.sub(r"\d", "", path.read_text())
    return path.read_bytes()


def timeless(value: Any, measured: frozenset[str]) -> Any:
    """Return a JSON value without times, and without the checksum of one that has some."""
    if isinstance(value, list):
        return [timeless(each, measured) for each in value]
    if not isinstance(value, dict):
        return value
    checked = "crc32c" in value and not {"attributes", "status"}.isdisjoint(value)
    return {
        key: timeless(each, measured)
        for key, each in value.items()
        if "seconds" not in key and key not in measured and not (checked and key == "crc32c")
    }


def differing(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, by file."""
    names = found.keys() | expected.keys()
    return {name: (found.get(name), expected.get(name)) for name in names if found.get(name) != expected.get(name)}


def instants(acts: Sequence[str], mode: str) -> list[int]:
    """Return the numbers, from 1 on, of the acts before which the files differ in what a fault of a mode can show."""
    if mode == "kill":  # a sync changes nothing
        return [number for number, act in enumerate(acts, 1) if not act.startswith("sync")]
    if mode == "full":  # what is there when a file cannot grow, once for each file
        grown = [(number, act) for number, act in enumerate(acts, 1) if act.startswith(("write ", "mkdir "))]
        return [next(group)[0] for _, group in itertools.groupby(grown, key=lambda each: each[1])]
    durable = ("sync ", "sync_file_system ", "rename ", "replace ", "exchange ")
    # a removal too, of what was not durable without it: the first of several
    known = [act.split()[0] + " " for act in acts]
    first = [act == "unlink " and before != act for before, act in itertools.pairwise(["", *known])]
    return [n for n, (act, removes) in enumerate(zip(known, first, strict=True), 1) if act in durable or removes]


def check_readable(run: Path) -> None:
    """Nothing half-written has a name under which it would be read."""
    if is_run(run):
        opened = Run.open(run)
        assert opened.config.method
        assert [event["round"] for event in opened.events()] == list(range(1, len(opened.events()) + 1))
        for checkpoint in opened.checkpoints()[-2:]:
            read_bundle(checkpoint, "checkpoint")
        assert not opened.has_ended or opened.status["status"] == "DIVERGED" or load_model(run).sha256
        assert not (run / "model").exists() or load_model(run).sha256
