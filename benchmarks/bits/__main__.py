"""What must not change when the code does: the bits of ingests, fits, predictions, plans, and what is refused.

    python benchmarks/bits record FOLDER [--only PATTERN]
    python benchmarks/bits compare FOLDER OTHER [--only PATTERN]
    python benchmarks/bits reopen FOLDER
    python benchmarks/bits list

`record` writes small seeded sources into FOLDER/sources, runs every case with the distls that is installed, writes what
came out into FOLDER/bits.json, an entry a case, and keeps data sets, runs and interrupted runs. `compare` does the same
in OTHER and prints where OTHER/bits.json differs from FOLDER/bits.json. `reopen` takes a FOLDER that an older version
has recorded: it opens its data sets, scores its models, resumes copies of its interrupted and finished runs, starts
from its models, and prints what is not as it was recorded. FOLDER must stay where it was recorded, since runs name
their data by absolute paths; `reopen` writes nothing there. The exit code of `compare` and `reopen` is 1 if anything
differs.

Only what `import distls` offers and the command line are used, so that this folder runs on any version. Bits depend
on the processor and on the versions of libraries too: FOLDER/environment.json says which, and a difference is told.
A case that fails has its error as its entry. PATTERN is of names of cases, as in `fit/gls-*` or `ingest/*`; what these
need is run besides; without one all cases are run but `large/*`, which take minutes. BITS_DEBUG=1 prints tracebacks.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cases import FITS, INGESTS
from entries import dataset_facts, evaluation, resumed, run_facts, scored_facts
from folder import ENDS, LIBRARIES, PLAIN, Book, Entry, command, tree_digest
from sources import WRITERS
from uses import CASES

import distls


def environment() -> dict[str, Any]:
    """Return what else than distls decides bits."""
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), "machine": platform.machine(), "processor": _processor(), **versions}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted names."""
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def record(folder: Path, pattern: str | None = None) -> dict[str, Entry]:
    """Run the cases in a new folder and return their entries, which bits.json there has too."""
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty; remove it or choose another folder")
    book = Book(CASES, folder)
    write_json(folder / "environment.json", environment())
    for writer in WRITERS:
        try:
            writer(folder / "sources")
        except Exception as error:
            book.entries[f"source/{writer.__name__}"] = book.plain(f"{type(error).__name__}: {error}")
    for path in sorted((folder / "sources").iterdir()):
        if path.suffix in PLAIN:
            book.entries[f"source/{path.name}"] = {"sha256": tree_digest(path)}
    asked = [name for name in CASES if not name.startswith("large/")]
    for name in asked if pattern is None else fnmatch.filter(CASES, pattern):
        book.entry(name)
        write_json(folder / "bits.json", book.entries)
    failed = [name for name, entry in book.entries.items() if isinstance(entry, str)]
    print(f"{len(book.entries)} cases in {folder / 'bits.json'}, {len(failed)} with an error", file=sys.stderr)
    for name in failed:
        print(f"  {name}: {book.entries[name]}", file=sys.stderr)
    return book.entries


def read_entries(folder: Path) -> dict[str, Entry]:
    """Read what was recorded in a folder."""
    entries: dict[str, Entry] = json.loads((folder / "bits.json").read_text("utf-8"))
    before, now = json.loads((folder / "environment.json").read_text("utf-8")), environment()
    for name in before.keys() | now.keys():
        if before.get(name) != now.get(name):
            print(f"note: recorded with {name} {before.get(name)}, this is {now.get(name)}", file=sys.stderr)
    return entries


def flat(entry: Any, prefix: str = "") -> dict[str, Any]:
    """Return the values of an entry by their names, joined by dots."""
    if not isinstance(entry, dict):
        return {prefix or "error": entry}
    found: dict[str, Any] = {}
    for name, value in entry.items():
        found |= flat(value, f"{prefix}.{name}" if prefix else name)
    return found


Difference = tuple[str, str, Any, Any]


def differences(name: str, before: Entry, now: Entry) -> list[Difference]:
    """Return (case, field, before, now) of each field of a case that differs."""
    old, new = flat(before), flat(json.loads(json.dumps(now)))
    fields = sorted(old.keys() | new.keys())
    return [
        (name, each, old.get(each, "absent"), new.get(each, "absent"))
        for each in fields
        if each not in old or each not in new or old[each] != new[each]
    ]


def tell(found: Sequence[Difference], n_cases: int) -> int:
    """Print differences as a table and return the exit code."""
    if found:
        print("| case | field | recorded | now |\n| --- | --- | --- | --- |")
    for name, each, before, now in found:
        print(f"| {name} | {each} | {_short(before)} | {_short(now)} |")
    print(f"{n_cases} cases, {len({name for name, *_ in found})} differ")
    return 1 if found else 0


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    digits = isinstance(value, str) and len(value) == 64 and " " not in value
    return value[:12] if digits else text if len(text) <= 300 else f"{text[:300]}..."


def compare(folder: Path, other: Path, pattern: str | None = None) -> int:
    """Run the cases in another folder and tell where they differ."""
    before = read_entries(folder)
    now = record(other, pattern)
    names = sorted(before.keys() | now.keys()) if pattern is None else sorted(now)
    found = [
        each
        for name in names
        for each in differences(name, before.get(name, "no such case"), now.get(name, "no such case"))
    ]
    return tell(found, len(names))


def reopen(folder: Path) -> int:
    """Use what an older version has written, and tell what is not as it was."""
    recorded, found, n_cases = read_entries(folder), [], 0
    with tempfile.TemporaryDirectory(prefix="bits-reopen-") as scratch:
        book = Book(CASES, folder, Path(scratch), dict(recorded))
        for name, check in reopenings(recorded):
            n_cases += 1
            began = time.perf_counter()
            try:
                found += check(book)
            except Exception as error:
                if os.environ.get("BITS_DEBUG"):
                    traceback.print_exc()
                found.append((name, "error", None, book.plain(f"{type(error).__name__}: {error}")))
            print(f"{time.perf_counter() - began:7.1f} s  {name}", file=sys.stderr, flush=True)
    return tell(found, n_cases)


Check = Callable[[Book], list[Difference]]


def reopenings(recorded: Mapping[str, Entry]) -> Iterator[tuple[str, Check]]:
    """Yield by name what can be asked of the folder of an older version, but for cases that had failed."""
    for name, entry in recorded.items():
        if isinstance(entry, str):
            continue
        kind, _, short = name.partition("/")
        if kind == "ingest":
            yield f"open {name}", partial(check_dataset, name=short, entry=entry)
            if short in INGESTS and "like" in INGESTS[short].options:
                yield f"like {name}", partial(check_again, name=name, entry=entry)
        elif kind == "fit":
            yield f"score {name}", partial(check_run, name=short, entry=entry)
            yield f"resume {name}", partial(check_finished, name=short)
            if "init" in FITS[short].params:
                yield f"start {name}", partial(check_again, name=name, entry=entry)
        elif kind in ENDS:
            yield f"resume {name}", partial(check_stopped, how=kind, name=short, entry=entry)
        elif kind in ("use", "plan", "resume-by-processes"):
            yield name, partial(check_again, name=name, entry=entry)


def check_dataset(book: Book, name: str, entry: dict[str, Any]) -> list[Difference]:
    """Open a data set and its splits, and read all of their rows."""
    now = dict(entry)
    for split in (part for part in entry if isinstance(entry[part], dict)):
        path = book.folder / "data" / (name if split == "data" else f"{name}-{split}")
        now[split] = dataset_facts(path)
        data = distls.open_dataset(path)
        for index in range(len(data)):
            data.read(index)  # refused where it does not match its checksums
    return differences(f"ingest/{name}", entry, now)


def check_run(book: Book, name: str, entry: dict[str, Any]) -> list[Difference]:
    """Describe a run, report on it, and score it, its model's folder and its loaded model."""
    run = book.folder / "runs" / name
    command("report", run)
    data = book.held_out(FITS[name].dataset)
    info = json.loads(command("info", run / "model", "--json"))
    now = scored_facts(book, run, FITS[name].dataset) | {"weights_sha256": info["weights_sha256"]}
    found = differences(f"fit/{name}", entry, now)
    for how, model in (("model", run / "model"), ("loaded", distls.load_model(run))):
        scores = {"evaluation": evaluation(model, data)}
        found += differences(f"fit/{name} ({how})", {"evaluation": entry["evaluation"]}, scores)
    return found


def check_finished(book: Book, name: str) -> list[Difference]:
    """Resume a copy of a finished run, in which nothing changes."""

    def facts(run: Path) -> dict[str, Any]:
        # status.json of a run with children is written anew, and names them by their places
        return run_facts(run) | {"files_sha256": tree_digest(run, without=("lock", "status.json"))}

    with book.copied(book.folder / "runs" / name) as copy:
        before = facts(copy)
        distls.resume(copy)
        command("resume", copy, "--quiet", "--executor", "serial")
        return differences(f"fit/{name} (resumed)", before, facts(copy))


def check_stopped(book: Book, how: str, name: str, entry: dict[str, Any]) -> list[Difference]:
    """Describe a run that was stopped, report on it, and resume a copy."""
    command("report", book.folder / how / name)
    return differences(f"{how}/{name}", entry, resumed(book, how, name))


def check_again(book: Book, name: str, entry: dict[str, Any]) -> list[Difference]:
    """Run a case on the data sets and models that are there."""
    return differences(name, entry, CASES[name](book))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, folders in (("record", ["folder"]), ("compare", ["folder", "other"]), ("reopen", ["folder"])):
        added = commands.add_parser(name)
        for folder in folders:
            added.add_argument(folder, type=Path)
        if name != "reopen":
            added.add_argument("--only", metavar="PATTERN", help="names of cases")
    commands.add_parser("list")
    options = parser.parse_args(argv)
    if options.command == "list":
        print("\n".join(CASES))
        return 0
    if options.command == "record":
        record(options.folder, options.only)
        return 0
    if options.command == "compare":
        return compare(options.folder, options.other, options.only)
    return reopen(options.folder)


if __name__ == "__main__":
    sys.exit(main())
