"""Damaged and forged files under every reader: each ends well, or in a DistlsError of one line.

    python -m benchmarks.faults.fuzz [--seed 0] [--minutes 10] [--cases N] [--readers svmlight,npz] [--out FILE]

A case takes a good source, data set, model or run and changes one to three things of one of its files: flips bits,
cuts, repeats or removes a stretch, overwrites bytes with numbers that are limits of something, replaces a number of a
text or a value of JSON. Of JSON with a checksum or a fingerprint every other one is made right again, as whoever
wishes harm would. The file is then read to the end, in one process, with a limit of 4 GiB of address space and a
deadline. The printed table has the cases of each reader; a case is repeated by its seed, reader and number.

Cases run in processes of their own, BATCH at a time, so that one that dies is found and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.fuzz_seeds import READERS, make_seeds
from distls.storage.errors import DistlsError

BATCH = 400
SECONDS = 60  # of a case
ADDRESS_SPACE = 4 * 2**30
_LIMITS = (0, 1, -1, 2**15, 2**16, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
_NUMBERS = (
    b"nan", b"-inf", b"1e400", b"-0", b"1e-400", b"99999999999999999999", b"4294967296", b"-1", b"0x10", b"",
    b"1.5.5", b"9" * 400, b"\xff\xfe", b"\x00", b":", b",", b"|", b'"',
)  # fmt: skip
_VALUES = (
    None, True, -1, 0, 2**31, 2**63 - 1, 2**64, 1e308, -0.5, "", "../x", "\n", [], {}, [[]], [1, "a"], {"a": 1},
)  # fmt: skip


def changed(content: bytes, choose: random.Random) -> bytes:
    """Return the content with one to three things changed."""
    for _ in range(choose.randint(1, 3)):
        content = choose.choice(_CHANGES)(content, choose)
    return content


def _place(content: bytes, choose: random.Random) -> int:
    # headers and footers decide how the rest is read
    size = len(content)
    near = choose.choice([range(size), range(min(size, 200)), range(max(size - 200, 0), size)])
    return choose.choice(near) if near else 0


def _flip(content: bytes, choose: random.Random) -> bytes:
    at = _place(content, choose)
    return content[:at] + bytes(byte ^ 1 << choose.randrange(8) for byte in content[at : at + 1]) + content[at + 1 :]


def _cut(content: bytes, choose: random.Random) -> bytes:
    return content[: _place(content, choose)]


def _remove(content: bytes, choose: random.Random) -> bytes:
    at = _place(content, choose)
    return content[:at] + content[at + choose.randint(1, 64) :]


def _repeat(content: bytes, choose: random.Random) -> bytes:
    at = _place(content, choose)
    return content[:at] + content[at : at + choose.randint(1, 64)] * choose.choice([2, 3, 50]) + content[at:]


def _noise(content: bytes, choose: random.Random) -> bytes:
    at, size = _place(content, choose), choose.randint(1, 16)
    return content[:at] + choose.randbytes(size) + content[at + size :]


def _limit(content: bytes, choose: random.Random) -> bytes:
    at, size = _place(content, choose), choose.choice([1, 2, 4, 8])
    number = choose.choice(_LIMITS) % 2 ** (8 * size)
    return content[:at] + number.to_bytes(size, choose.choice(["little", "big"])) + content[at + size :]


def _number(content: bytes, choose: random.Random) -> bytes:
    at = _place(content, choose)
    end = at
    while end < len(content) and chr(content[end]) in "0123456789.-+e":
        end += 1
    return content[:at] + choose.choice(_NUMBERS) + content[max(end, at + 1) :]


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _cut, _remove, _repeat, _noise, _limit, _number
)  # fmt: skip


def forged(value: Any, choose: random.Random) -> Any:
    """Return a JSON value with one value in it replaced, removed or repeated."""
    if isinstance(value, dict) and value and choose.random() < 0.9:
        name = choose.choice(sorted(value))
        rest = {key: each for key, each in value.items() if key != name}
        return rest if choose.random() < 0.1 else {**value, name: forged(value[name], choose)}
    if isinstance(value, list) and value and choose.random() < 0.8:
        at = choose.randrange(len(value))
        new = choose.choice([[], [value[at]] * 2, [forged(value[at], choose)]])
        return value[:at] + new + value[at + 1 :]
    if isinstance(value, int) and choose.random() < 0.3:
        return value + choose.choice([-1, 1])
    return choose.choice(_VALUES)


def damage(path: Path, right: Callable[[Path], None] | None, choose: random.Random) -> str:
    """Change a file, or one of a folder's; return its name. `right` mends checksums."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    file = choose.choice(files)
    if file.suffix == ".json" and choose.random() < 0.7:
        file.write_text(json.dumps(forged(json.loads(file.read_text()), choose)))
    else:
        file.write_bytes(changed(file.read_bytes(), choose))
    if right is not None and choose.random() < 0.5:
        right(path)
    return file.name


def run_case(seeds: Path, reader: str, seed: int, number: int, place: Path) -> str | None:
    """Damage a copy and read it; return what is wrong with the end, None if nothing is."""
    choose = random.Random(f"{seed}, {reader}, {number}")
    found = READERS[reader]
    source = choose.choice(sorted((seeds / reader).iterdir()))
    copy = place / source.name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    damage(copy, found.right, choose)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.read(copy, place)
    except DistlsError as error:
        lines = str(error).splitlines()
        return None if len(lines) == 1 else f"{len(lines)} lines: {error}"
    except Exception as error:  # what a reader lets through is what is looked for
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        signal.alarm(0)
    return None


def _late(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def run_batch(seeds: Path, reader: str, seed: int, first: int, count: int) -> None:
    """Run cases in this process; print the number of each before it and its trouble after it."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _late)
    for number in range(first, first + count):
        print(json.dumps({"case": number}), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            trouble = run_case(seeds, reader, seed, number, Path(folder))
        print(json.dumps({"case": number, "trouble": trouble, "peak_mib": _peak_mib()}), flush=True)


def _peak_mib() -> int:
    # getrusage also counts what the parent had when it started this process
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def _batch(seeds: Path, reader: str, seed: int, first: int, count: int) -> list[dict[str, Any]]:
    """Run cases in a process of its own; the last is the one that it died of, if it did."""
    batch = [str(each) for each in (seeds, seed, first, count)]
    command = [sys.executable, "-m", "benchmarks.faults.fuzz", "--readers", reader, "--batch", *batch]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        written, _ = process.communicate(timeout=30 * SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        written, _ = process.communicate()
    lines = [json.loads(line) for line in written.splitlines()]
    ended = [line for line in lines if "trouble" in line]
    if process.returncode:
        at = lines[-1]["case"] if lines else first
        ended.append({"case": at, "trouble": f"the process ended with {process.returncode}", "peak_mib": 0})
    return ended


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run cases of each reader in turn until the time is over; return what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, default=10**9, help="of each reader, at most")
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--batch", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    readers = given.readers.split(",")
    if given.batch:
        seeds, seed, first, count = given.batch
        run_batch(Path(seeds), readers[0], int(seed), int(first), int(count))
        return {}
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ["TMPDIR"] = folder
        make_seeds(Path(folder) / "seeds", readers)
        report = _rounds(Path(folder) / "seeds", readers, given.seed, given.cases, until)
    print(f"{sum(report['cases'].values())} cases, seed {given.seed}: {len(report['trouble'])} with trouble")
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1))
    return report


def _rounds(seeds: Path, readers: Sequence[str], seed: int, most: int, until: float) -> dict[str, Any]:
    done: Counter[str] = Counter(dict.fromkeys(readers, 0))
    peaks: Counter[str] = Counter()
    trouble: list[dict[str, Any]] = []
    while time.monotonic() < until and min(done.values()) < most:
        for reader in readers:
            size = min(BATCH, most - done[reader])
            if size < 1 or time.monotonic() > until:
                continue
            for case in _batch(seeds, reader, seed, done[reader], size):
                done[reader] = case["case"] + 1
                peaks[reader] = max(peaks[reader], case["peak_mib"])
                if case["trouble"]:
                    trouble.append({"reader": reader, "case": case["case"], "trouble": case["trouble"]})
                    print(f"{reader} {case['case']}: {case['trouble']}", flush=True)
            print(f"{reader:10s} {done[reader]:7d} cases, peak {peaks[reader]} MiB", flush=True)
    return {"seed": seed, "cases": dict(done), "peak_mib": dict(peaks), "trouble": trouble}


if __name__ == "__main__":
    raise SystemExit(bool(main().get("trouble")))
