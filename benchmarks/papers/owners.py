"""The sets of the papers: made of their owners' files where these are given, else generated.

The files are named as their owners name them, plain or packed; docs/papers/real-files.md has the commands, which these
options are.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import distls
from benchmarks.quality.real import arrays_of
from distls.ingestion.request.source_start import source_file

Options = dict[str, Any]

_RCV1 = {"rcv1-4": 1, "rcv1-53": 2}  # levels of the hierarchy of topics
_CATEGORY = "CCAT"  # of SGD-QN, against the rest


def made(kind: str, path: Path, *, real: Path | None, rows: int | None, **options: Any) -> Path:
    """Return a set and its test rows, ``PATH-test``, made at the first request.

    Parameters
    ----------
    kind : str
        As of ``distls generate``; rcv1 for SGD-QN's two classes.
    real : path, optional
        Folder of the owners' files.
    rows : int, optional
        Training rows, the first of the set. Default: all.
    **options
        `partition_size` and `columns` of the ingest.
    """
    if path.exists():
        return path
    if real is not None and are_there(kind, real):
        whole = path.with_name(f"{kind}-of-owners")
        if not whole.exists():
            READERS[kind](real, whole, options)
        return _first_rows(whole, path, rows, options)
    if real is not None:
        print(f"{kind}: without {', '.join(NEEDED.get(kind, ()))} in {real} its rows are generated", flush=True)
    distls.generate(kind, path, rows=rows, **options)
    return path


def are_there(kind: str, real: Path | None) -> bool:
    """Return whether a folder has the owner's files of a set."""
    return real is not None and all(files(real, pattern) for pattern in NEEDED.get(kind, ("none",)))


def _first_rows(whole: Path, path: Path, rows: int | None, options: Options) -> Path:
    """Copy the first rows, which ingest has shuffled, and all test rows."""
    x, y = arrays_of(whole)
    distls.ingest(x[:rows], path, y=y[:rows], shuffle=False, **options)
    test_x, test_y = arrays_of(whole.with_name(f"{whole.name}-test"))
    distls.ingest(test_x, path.with_name(f"{path.name}-test"), y=test_y, like=path, shuffle=False)
    return path


def files(folder: Path, *patterns: str) -> list[Path]:
    """Return the files of a folder or of its folders that have these names, maybe packed."""
    found: list[Path] = []
    for pattern in patterns:
        named = (sorted(folder.glob(f"**/{pattern}{ending}")) for ending in ("", ".gz", ".bz2", ".xz"))
        found += next(filter(None, named), [])
    return found


def _rcv1(kind: str, folder: Path, path: Path, options: Options) -> None:
    """Ingest MCID's sets, which are trained on what LYRL2004 calls test."""
    labels, tree = files(folder, "rcv1-v2.topics.qrels", "rcv1.topics.hier.orig")
    rows: Options = {"id_column": "label", "labels": labels, "label_map": tree, "label_level": _RCV1[kind]}
    rows["drop"] = "several,unknown"
    distls.ingest(files(folder, "lyrl2004_vectors_test_pt*.dat"), path, **rows, **options)
    test = path.with_name(f"{path.name}-test")
    distls.ingest(files(folder, "lyrl2004_vectors_train.dat"), test, like=path, **rows)


def _rcv1_binary(folder: Path, path: Path, options: Options) -> None:
    """Ingest SGD-QN's set: whether a story is of a category, trained on what LYRL2004 calls test."""
    (judged,) = files(folder, "rcv1-v2.topics.qrels")
    with opened(judged) as lines:
        topics = [line.decode().split()[:2] for line in lines if line.strip()]
    own = {story for topic, story in topics if topic == _CATEGORY}
    labels = path.with_name("rcv1-category.txt")
    labels.write_text("".join(f"{story} {int(story in own)}\n" for story in {story for _, story in topics}))
    rows: Options = {"id_column": "label", "labels": labels, "drop": "unknown"}
    distls.ingest(files(folder, "lyrl2004_vectors_test_pt*.dat"), path, **rows, **options)
    test = path.with_name(f"{path.name}-test")
    distls.ingest(files(folder, "lyrl2004_vectors_train.dat"), test, like=path, **rows)


def _directory(folder: Path, path: Path, options: Options) -> None:
    distls.ingest(
        files(folder, "content.rdf.u8"), path, label_level=1, drop="empty", min_count=100, split="test=0.2", **options
    )


def _challenge(kind: str, folder: Path, path: Path, options: Options) -> None:
    """Ingest the first 100,000 and the last 50,000 rows of a training set of the PASCAL challenge."""
    sources = files(folder, f"{kind}_train.dat", f"{kind}_train.lab")
    with opened(sources[1]) as lines:
        n = sum(1 for _ in lines)
    read: Options = {"format": "csv", "separator": "space", "header": "no", **options}
    test = path.with_name(f"{path.name}-test")
    for place, start, stop in ((path, 0, min(100_000, 2 * n // 3)), (test, max(n - 50_000, 2 * n // 3), n)):
        parts = [place.with_name(f"{place.name}.{ending}") for ending in ("dat", "lab")]
        for source, part in zip(sources, parts, strict=True):
            with opened(source) as lines, part.open("wb") as own:
                own.writelines(itertools.islice(lines, start, stop))
        own_options = read if place == path else {"like": path}
        distls.ingest(parts[0], place, labels=parts[1], **own_options)


def _pictures(folder: Path, path: Path, options: Options) -> None:
    distls.ingest(files(folder, "data_batch_*.bin"), path, transform=("scale=255",), **options)
    distls.ingest(files(folder, "test_batch.bin"), path.with_name(f"{path.name}-test"), like=path)


def _split(kind: str, folder: Path, path: Path, options: Options) -> None:
    """Ingest all rows of BCD's sets, whose fifth is for tests, of each seed another."""
    sources = files(folder, *NEEDED[kind])
    labels = sources.pop() if kind == "amazon7" else None
    distls.ingest(sources, path, labels=labels, split=("test=0.2",), **options)


def opened(path: Path) -> IO[bytes]:
    """Open a file, maybe packed, for its lines."""
    return io.BufferedReader(cast(io.RawIOBase, source_file(path).open()))


_VECTORS = ("lyrl2004_vectors_test_pt*.dat", "lyrl2004_vectors_train.dat", "rcv1-v2.topics.qrels")
NEEDED = {
    "rcv1-4": (*_VECTORS, "rcv1.topics.hier.orig"),
    "rcv1-53": (*_VECTORS, "rcv1.topics.hier.orig"),
    "rcv1": _VECTORS,
    "odp": ("content.rdf.u8",),
    "alpha": ("alpha_train.dat", "alpha_train.lab"),
    "delta": ("delta_train.dat", "delta_train.lab"),
    "cifar": ("data_batch_*.bin", "test_batch.bin"),
    "amazon7": ("amazon7/x.npz", "amazon7/y.npy"),
    "news20": ("news20.scale", "news20.t.scale"),
    "sector": ("sector.scale", "sector.t.scale"),
}
READERS: dict[str, Callable[[Path, Path, Options], None]] = {
    "rcv1-4": lambda *given: _rcv1("rcv1-4", *given),
    "rcv1-53": lambda *given: _rcv1("rcv1-53", *given),
    "rcv1": _rcv1_binary,
    "odp": _directory,
    "alpha": lambda *given: _challenge("alpha", *given),
    "delta": lambda *given: _challenge("delta", *given),
    "cifar": _pictures,
    "amazon7": lambda *given: _split("amazon7", *given),
    "news20": lambda *given: _split("news20", *given),
    "sector": lambda *given: _split("sector", *given),
}
SPLIT = ("amazon7", "news20", "sector")  # by a seed, and not generated
