"""Files of data sets, runs, models and caches: bits flipped, cut, removed, moved, replaced by others of their kind.

    python -m benchmarks.faults.damages [--seed 0] [--minutes 10] [--trials N] [--subjects NAME,...]

A trial damages one file of a copy of a subject, each file in turn, at a random offset, and uses the copy: reads all of
it, or finishes what was left half-done. It must end as the undamaged subject does, or in a DistlsError of one line;
never with another result. A trial is repeated by its seed, subject and number.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import distls
from benchmarks.faults.fuzz import _cut, _flip
from benchmarks.faults.fuzz_seeds import _rows, _Stop
from distls.columns.sharding import add_columns
from distls.storage.errors import DistlsError
from distls.testing.formats import Dying, Killed
from distls.training.run_folder import Run
from distls.workers.compilation.entry_files import DamagedEntryError, EntryFiles
from distls.workers.rounds.block_stream import clear_cache


class Subject(NamedTuple):
    """Files that are damaged: how they, or others of their kind (twin 1), are made, and what using them gives."""

    make: Callable[[Path, int], None]
    use: Callable[[Path], Any]


def _ingest(place: Path, twin: int, *, dense: bool = False, dying: int | None = None, **options: Any) -> None:
    x, y = _rows()
    order = np.random.default_rng(twin).permutation(len(y))
    x, y = x[order], (y[order] + twin) % 3
    runner = "serial" if dying is None else Dying(dying)
    with contextlib.suppress(Killed):
        distls.ingest(x.toarray() if dense else x, place, y=y, partition_size=1000, executor=runner, **options)


def _digest(*values: Any) -> str:
    whole = hashlib.sha256()
    for value in values:
        whole.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return whole.hexdigest()


def _arrays(value: Any) -> list[Any]:
    return [array for each in value for array in _arrays(each)] if isinstance(value, tuple) else [value]


def _read(path: Path) -> str:
    """Read all of a data set."""
    data = distls.open_dataset(path)
    found = [data.meta, *data.features().values()]
    for blocks in (data, data.columns, data.origins):
        for index in range(0 if blocks is None else len(data if blocks is data.origins else blocks)):
            found += _arrays(tuple(blocks.read(index)))
    return _digest(*found)


def _half_columns(place: Path, twin: int) -> None:
    _ingest(place, twin)
    with contextlib.suppress(Killed):
        add_columns(place, shard_size=300, executor=Dying(len(distls.open_dataset(place)) + 4))


def _read_again(path: Path, finish: Callable[[Path], Any]) -> str:
    finish(path)
    return _read(path)


def _half_run(place: Path, twin: int, method: str, *, select: bool = False, **params: Any) -> None:
    data = place.with_name(f"data-{twin}")
    if not data.exists():
        _ingest(data, twin, columns=True)
    params = {"alpha": 0.2 if twin else 0.1, **params}
    beside = {"select": data} if select else {}
    with contextlib.suppress(KeyboardInterrupt):
        distls.fit(
            method, data, place, params=params, passes=None if method == "ovr-sdca" else 5, executor="serial",
            checkpoint_seconds=0, callbacks=[_Stop()], **beside,
        )  # fmt: skip


def _run(place: Path, twin: int, method: str, **params: Any) -> None:
    _half_run(place, twin, method, **params)
    distls.resume(place, executor="serial")


def _resumed(path: Path) -> Any:
    return distls.resume(path, executor="serial").record["weights_sha256"]


def _predicted(path: Path) -> str:
    model = distls.load_model(path)
    return _digest(model.sha256, model.predict(_rows()[0]))


def _told(path: Path) -> list[Any]:
    """Return what a run that has ended says."""
    run = Run.open(path)
    if not (path / "status.json").exists():
        raise DistlsError(f"{path}: a run that has not ended")
    return [run.status, run.config.grid, _predicted(path), _resumed(path)]


def _proved(path: Path) -> list[Any]:
    """Return the gap that the duals of a run prove."""
    found = distls.evaluate(path, Run.open(path).config.dataset, executor="serial")
    if found.certificate is None:
        raise DistlsError("the duals are lost, as a note says")
    return [_digest(found.objective), found.certificate]


def _kernels(place: Path, twin: int) -> None:
    place.mkdir()
    for name in ("one", "other"):
        EntryFiles(str(place), name).save("int", f"{name} {twin}")


def _loaded(path: Path) -> list[Any]:
    try:
        # what is missing is compiled anew
        return [EntryFiles(str(path), name).load("int") or f"{name} 0" for name in ("one", "other")]
    except DamagedEntryError as error:
        raise DistlsError(str(error)) from None


_HALF_RUNS: dict[str, dict[str, Any]] = {
    "mcid": {"loss": "log", "lanes": 2}, "gls": {}, "fista": {}, "bcd": {}, "cls": {}, "stagewise": {},
    "sdca": {"lanes": 2, "loss": "hinge"}, "ovr-sdca": {"class_block": 1},
}  # fmt: skip
SUBJECTS: dict[str, Subject] = {
    "dataset": Subject(partial(_ingest, columns=True), _read),
    "dense dataset": Subject(partial(_ingest, dense=True, transform="standardize"), _read),
    "half ingest": Subject(partial(_ingest, dying=1), partial(_read_again, finish=partial(_ingest, twin=0))),
    "half columns": Subject(_half_columns, partial(_read_again, finish=add_columns)),
    "model": Subject(partial(_run, method="gls"), _predicted),
    "run": Subject(partial(_run, method="mcid", loss="log"), _told),
    "duals": Subject(partial(_run, method="sdca", loss="hinge"), _proved),
    "kernels": Subject(_kernels, _loaded),
    "half select": Subject(partial(_half_run, method="mcid", select=True, alpha=[0.1, 0.2]), _resumed),
    **{
        f"half {name}": Subject(partial(_half_run, method=name, **params), _resumed)
        for name, params in _HALF_RUNS.items()
    },
}
KINDS = ("flip", "cut", "remove", "twin", "move")


def _files(folder: Path) -> list[Path]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if path.name not in ("lock", ".lock"))


def damage(copy: Path, twin: Path, number: int, choose: random.Random) -> str:
    """Damage a file; return how, and its name."""
    files = _files(copy)
    name = files[number % len(files)]
    file, content, kind = copy / name, (copy / name).read_bytes(), choose.choice(KINDS)
    alike = [other for other in files if other.name == name.name and other != name]
    if kind == "twin" and (twin / name).exists():
        shutil.copy(twin / name, file)
    elif kind == "move" and alike:
        shutil.copy(copy / choose.choice(alike), file)
    elif kind == "remove":
        file.unlink()
    else:
        file.write_bytes((_cut if kind == "cut" else _flip)(content, choose))
    return f"{kind} {name}"


def run_trial(name: str, made: Path, seed: int, number: int, place: Path, expected: Any) -> tuple[str, str | None]:
    """Damage a copy and use it; return what was done and what is wrong with the end, None if nothing is."""
    shutil.copytree(made / "whole", place)
    done = damage(place, made / "twin", number, random.Random(f"{seed}, {name}, {number}"))
    try:
        found = used(name, place)
    except DistlsError as error:
        lines = str(error).splitlines()
        return done, None if len(lines) == 1 else f"{len(lines)} lines: {error}"
    except Exception as error:  # what is let through is what is looked for
        return done, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return done, None if found == expected else f"another result: {str(found)[:200]}"


def used(name: str, place: Path) -> Any:
    """Return what using a subject gives."""
    clear_cache()  # of decoded blocks, which are those of the whole files
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(SUBJECTS[name].use(place), default=str))


def make_subject(name: str, folder: Path) -> Any:
    """Make a subject and its twin; return what using it gives."""
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for twin, part in enumerate(("whole", "twin")):
            SUBJECTS[name].make(folder / part, twin)
    shutil.copytree(folder / "whole", folder / "first")
    return used(name, folder / "first")


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run trials of each subject in turn until the time is over; return what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--trials", type=int, default=10**9, help="of each subject, at most")
    parser.add_argument("--subjects", default=",".join(SUBJECTS))
    given = parser.parse_args(arguments)
    names, until = given.subjects.split(","), time.monotonic() + 60 * given.minutes
    trials, trouble = Counter(dict.fromkeys(names, 0)), list[str]()
    with tempfile.TemporaryDirectory(prefix="damages-") as folder:
        made = {name: Path(folder) / name.replace(" ", "-") for name in names}
        expected = {name: make_subject(name, made[name]) for name in names}
        while time.monotonic() < until and min(trials.values()) < given.trials:
            for name in names:
                number, place = trials[name], made[name] / f"trial-{trials[name]}"
                done, wrong = run_trial(name, made[name], given.seed, number, place, expected[name])
                shutil.rmtree(place)
                trials[name] += 1
                if wrong is not None:
                    trouble.append(f"{name} {number}, {done}: {wrong}")
                    print(trouble[-1], flush=True)
    print(f"{sum(trials.values())} trials, seed {given.seed}: {len(trouble)} with trouble; {dict(trials)}")
    return {"trials": dict(trials), "trouble": trouble}


if __name__ == "__main__":
    raise SystemExit(bool(main()["trouble"]))
