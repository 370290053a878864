"""What is recorded of an ingest, a fit, a run."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import INGESTS, Fit, Ingest
from folder import (
    ENDS,
    OF_EVALUATION,
    OF_PLAN,
    OF_ROUND,
    OF_RUN,
    Book,
    Entry,
    Interrupt,
    command,
    digest,
    exact,
    processes,
    tree_digest,
)

import distls


def dataset_facts(path: Path) -> dict[str, Any]:
    """Return what tells a data set from another."""
    info = json.loads(command("info", path, "--json"))
    if distls.open_dataset(path).fingerprint != info["fingerprint"]:
        raise RuntimeError("the fingerprints of open_dataset and of distls info differ")
    facts = {"fingerprint": info["fingerprint"], "n_rows": info["n_rows"], "files_sha256": tree_digest(path)}
    return facts | ({"columns_digest": info["columns"]["digest"]} if "columns" in info else {})


def ingested(book: Book, name: str, case: Ingest) -> Entry:
    """Make a data set, and its splits."""
    report = distls.ingest(book.resolved(case.sources), book.out / "data" / name, **book.options(case.options))
    notices = [book.plain(notice) for notice in report.notices]
    skipped = [book.plain(line) for line in report.skipped_lines]
    found: dict[str, Any] = {"notices": notices, "skipped": report.skipped, "skipped_lines": skipped}
    for path in map(Path, report.paths):
        found[path.name.removeprefix(name).lstrip("-") or "data"] = dataset_facts(path)
    return found


def generated(book: Book, kind: str) -> Entry:
    """Make 700 synthetic rows, and the test set, which is not kept."""
    path = book.out / "data" / f"generated-{kind}"
    distls.generate(kind, path, rows=700, seed=3, partition_size=2**18, columns=kind == "csgd")
    test = path.with_name(f"{path.name}-test")
    found = {"data": dataset_facts(path), "test_fingerprint": distls.open_dataset(test).fingerprint}
    shutil.rmtree(test)
    return found


def ingested_by_processes(book: Book, name: str) -> Entry:
    """Make a data set by two processes."""
    base = INGESTS[name]
    sources = base.sources if isinstance(base.sources, tuple) else (base.sources,)
    flags: list[object] = ["--columns"] if base.options.get("columns") else []
    for option in ("labels", "transform", "partition_size", "format", "n_features"):
        if option in base.options:
            flags += [f"--{option.replace('_', '-')}", book.resolved(base.options[option])]
    path = book.out / "processes" / name
    processes("ingest", *map(book.resolved, sources), path, "--split", "test=0.25", *flags)
    return {"data": dataset_facts(path), "test": dataset_facts(path.with_name(f"{name}-test"))}


def ingested_after_interrupt(book: Book, name: str) -> Entry:
    """Make a data set in several attempts, and then its column shards."""
    case, path, stages = INGESTS[name], book.out / "attempts" / name, []
    options = book.options({**case.options, "columns": False})

    def interrupt(done: int, total: int, stage: str) -> None:
        if done and stage not in stages:
            stages.append(stage)
            raise KeyboardInterrupt

    def attempts(do: Callable[[], Any]) -> None:
        for _ in range(10):
            with contextlib.suppress(KeyboardInterrupt):
                do()
                return

    attempts(lambda: distls.ingest(book.resolved(case.sources), path, progress=interrupt, **options))
    if case.options.get("columns"):
        attempts(lambda: distls.add_columns(path, progress=interrupt))
    return {"stages": stages, "data": dataset_facts(path)}


def evaluation(model: Path, data: Any, **options: Any) -> dict[str, Any]:
    """Score a model."""
    found = distls.evaluate(model, data, **options)
    return {name: exact(getattr(found, name)) for name in OF_EVALUATION if hasattr(found, name)}


def predictions(book: Book, model: Path, data: Any, kind: str = "csv", **options: Any) -> str:
    """Return the SHA-256 of a model's predictions as they are written."""
    with tempfile.TemporaryDirectory(prefix="bits-", dir=book.out) as scratch:
        distls.predict(model, data, Path(scratch) / f"out.{kind}", **options)
        return tree_digest(Path(scratch) / f"out.{kind}")


def run_facts(run: Path) -> dict[str, Any]:
    """Return what tells a run from another."""
    info = json.loads(command("info", run, "--json"))
    rounds = [
        {name: event[name] for name in OF_ROUND if name in event}
        for path in sorted(run.rglob("events.jsonl"))
        for event in map(json.loads, path.read_text().splitlines())
    ]
    found = {name: info[name] for name in OF_RUN if name in info}
    facts: dict[str, Any] = exact(found | {"n_rounds": len(rounds), "rounds_sha256": digest(exact(rounds))})
    return facts


def scored_facts(book: Book, run: Path, dataset: str) -> dict[str, Any]:
    """Return what tells a finished run from another, and how its model does."""
    data = book.held_out(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = {"evaluation": evaluation(run, data), "predictions_sha256": predictions(book, run, data)}
    return run_facts(run) | scores


def fitted(book: Book, name: str, case: Fit) -> Entry:
    """Train."""
    run = book.out / "runs" / name
    data = book.needed("data", case.dataset)
    distls.fit(case.method, data, run, params=book.options(case.params), **book.options(case.options))
    return scored_facts(book, run, case.dataset)


def fitted_by_processes(book: Book, name: str, case: Fit) -> Entry:
    """Train on a cluster of two processes, and tell whether the bits are those of one."""
    run = book.out / "processes" / name
    flags: list[object] = []
    for parameter, value in book.options(case.params).items():
        flags += ["-p", f"{parameter}={_written(value)}"]
    for option, value in book.options(case.options).items():
        flags += [f"--{option.removesuffix('_data').replace('_', '-')}", value]
    data = book.needed("data", case.dataset)
    processes("fit", case.method, data, run, *flags)
    return _compared(run_facts(run), book.entry(f"fit/{name}"))


def _written(value: Any) -> str:
    """Return a parameter as the command line has it."""
    if isinstance(value, list):
        return ",".join(map(_written, value))
    return json.dumps(value) if isinstance(value, (bool, dict)) else str(value)


def _compared(found: dict[str, Any], whole: Entry) -> dict[str, Any]:
    """Add whether a run has the bits of the undisturbed one."""
    same = isinstance(whole, dict) and all(found[name] == whole[name] for name in ("weights_sha256", "rounds_sha256"))
    return found | {"same_as_undisturbed": same}


def stopped(book: Book, how: str, name: str, case: Fit) -> Entry:
    """Begin to train, and resume a copy."""
    run = book.out / how / name
    data = book.needed("data", case.dataset)
    seconds = 0.0 if how == "killed" else 30.0  # who is interrupted saves, who is killed must have
    with contextlib.suppress(ENDS[how]):
        distls.fit(
            case.method, data, run, params=book.options(case.params), checkpoint_seconds=seconds,
            callbacks=[Interrupt(case.stop, ENDS[how])], **book.options(case.options),
        )  # fmt: skip
    return resumed(book, how, name)


def resumed(book: Book, how: str, name: str, *, cluster: bool = False) -> dict[str, Any]:
    """Resume a copy of a run that was stopped, in this process or by others."""
    run = book.path(how, name)
    stopped_as = json.loads(command("info", run, "--json"))["status"]
    if stopped_as != {"interrupted": "INTERRUPTED", "killed": "RUNNING"}[how]:
        raise RuntimeError(f"it ended as {stopped_as} before it was stopped")
    with book.copied(run) as copy:
        if cluster:
            processes("resume", copy)
        else:
            distls.resume(copy)
        found = _compared(run_facts(copy), book.entry(f"fit/{name}"))
    return found | {"stopped_as": stopped_as}


def resumed_by_processes(book: Book, name: str) -> Entry:
    """Resume a copy of an interrupted run on a cluster of two processes."""
    book.entry(f"interrupted/{name}")
    return resumed(book, "interrupted", name, cluster=True)


def planned(book: Book, method: str) -> Entry:
    """Plan a fit of a method with its defaults."""
    dataset = {"csgd": "numbers", "ncsgd": "numbers", "rls": "numbers"}.get(method, "sparse")
    flags = ("--json", "--no-probe", "--workers", 2, "--memory-limit", "1GiB")
    found = json.loads(command("plan", method, book.needed("data", dataset), *flags))
    wide = json.loads(
        command("plan", method, book.needed("data", dataset), *flags[:2], "--cluster", "40x4", "--bytes", "1GB")
    )
    return {
        **{name: found[name] for name in OF_PLAN if name in found},
        "cluster": {name: wide[name] for name in (*OF_PLAN, "round_bytes", "scheduler_bytes") if name in wide},
    }
