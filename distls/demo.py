"""`distls demo`: the whole path on generated data, with nothing to prepare."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from distls.evaluation import evaluate
from distls.execution import ClusterOptions, open_executor
from distls.fitting import FitResult, fit
from distls.generation import generate
from distls.memory import human
from distls.probing import plan_fit
from distls.progress import fit_progress, work_progress
from distls.report import dataset_line, plan_lines
from distls.runs import Run
from distls.solvers.base import Status
from distls.storage.dataset import open_dataset

__all__ = ["run_demo"]

_PASSES = 5
# Far less than the decoded data, so that training really is out of core.
_MEMORY_LIMIT = 400 * 2**20


def run_demo(rows: int, directory: Path | None, workers: int | None) -> int:
    """Run the demonstration.

    Parameters
    ----------
    rows : int
        Training rows.
    directory : Path or None
        Where everything is kept; None for a temporary folder.
    workers : int or None
        Processes; default one a core.

    Returns
    -------
    exit code
    """
    console = Console(stderr=True, highlight=False)
    options = ClusterOptions(workers=workers or os.cpu_count(), memory_limit=_MEMORY_LIMIT)
    with _place(directory) as place:
        return _demonstrate(console, rows, place, options, kept=directory is not None)


@contextlib.contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="distls-demo-") as temporary:
        yield Path(temporary)


def _demonstrate(console: Console, rows: int, place: Path, options: ClusterOptions, *, kept: bool) -> int:
    text, train, run = place / "documents.svm", place / "train", place / "run"
    started = time.perf_counter()
    executor, budget = open_executor(options)
    try:
        console.rule(
            f"1  generate {rows:,} documents in the shape of RCV1, 4 classes, and write them as svmlight text"
        )
        with work_progress(quiet=False) as progress:
            _, test = generate("rcv1-4", place / "generated", rows=rows, executor=executor, progress=progress)
            size = _export(place / "generated", text, executor, progress)
        console.rule(
            f"2  ingest {human(size)} of text: parse, shuffle, compress, checksum, on {budget.workers} processes"
        )
        ingest_seconds = _ingest(text, train, executor)
        console.print(dataset_line(open_dataset(train)))
        console.rule(f"3  plan: workers may use {human(_MEMORY_LIMIT)} each")
        plan = plan_fit("mcid", train, {"loss": "hinge"}, passes=_PASSES, cluster=options)
        console.print("\n".join(plan_lines(plan)))
        console.rule("4  train: multi-class SVM, out of core, the same result with any number of workers")
        result = fit(
            "mcid", train, run, params={"loss": "hinge"}, passes=_PASSES, eval_data=test.path, eval_every=1,
            executor=executor, memory=budget, callbacks=[fit_progress()],
        )  # fmt: skip
        if result.status == Status.INTERRUPTED:
            return 3
        console.rule("5  evaluate on unseen documents")
        evaluation = evaluate(run, test.path, executor=executor)
    finally:
        executor.close()
    facts = {
        "test error": f"{100 * evaluation.error:.2f} % of {evaluation.n_rows:,} rows",
        "ingest": f"{size / ingest_seconds / 1e6:.0f} MB/s of text",
        **_facts(result, Run.open(run).events(), plan),
        "in all": f"{time.perf_counter() - started:.0f} s",
    }
    _show(console, facts)
    console.print(
        f"everything is in {place}"
        if kept
        else "--directory keeps the files; `distls --help` has the commands"
    )
    return 0


def _export(source: Path, text: Path, executor: Any, progress: Any) -> int:
    from distls.export import export_text

    return export_text(source, text, executor=executor, progress=progress)


def _ingest(text: Path, train: Path, executor: Any) -> float:
    from distls.ingestion import ingest

    started = time.perf_counter()
    with work_progress(quiet=False) as progress:
        ingest([str(text)], train, n_features=47_236, executor=executor, progress=progress)
    return time.perf_counter() - started


def _facts(result: FitResult, events: list[dict[str, Any]], plan: Any) -> dict[str, str]:
    last = events[-1]
    averaging = last.get("averaging")
    peaks = sorted(last["worker_peaks"].values())
    rows_per_second = sum(event["n_rows"] for event in events) / max(result.seconds, 1e-9)
    return {
        "training": f"{result.passes:g} passes in {result.seconds:.1f} s, {rows_per_second / 1e6:.2f} million rows/s",
        "objective": f"{result.record['objective']:.5f}",
        "averaging penalty": "none: one lane"
        if averaging is None
        else f"{averaging['penalty']:+.5f} loss on a fixed sample, after minus before",
        "bytes read": f"{human(sum(e['bytes_read'] for e in events))} from the store, "
        f"{human(sum(e['cached_bytes'] for e in events))} from the workers' caches",
        "peak memory a worker": f"{human(peaks[0])} to {human(peaks[-1])}; planned {human(plan.worker_bytes)}",
        "weights sha256": str(result.record["weights_sha256"])[:16]
        + " (the same with any number of workers)",
    }


def _show(console: Console, facts: dict[str, str]) -> None:
    table = Table(title="distls demo", show_header=False, title_style="bold")
    for name, value in facts.items():
        table.add_row(name, value)
    console.print(table)
