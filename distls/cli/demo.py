"""`distls demo`: the complete workflow on generated data."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from distls.cli.data import dataset_line
from distls.cli.progress import fit_progress, work_progress
from distls.cli.report import plan_lines
from distls.clock import begin, parts_text
from distls.evaluation.evaluate import evaluate
from distls.evaluation.metrics import Evaluation
from distls.execution import ClusterOptions, open_executor
from distls.execution.memory_budget import human
from distls.ingestion.ingest import ingest
from distls.memory_plan import Plan
from distls.methods.default_losses import OF_WIDE_CLASSES
from distls.planning.fit_plan import plan_fit
from distls.progress_bar import live_console
from distls.reporting.costs import round_seconds
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import printable
from distls.storage.filesystem.memory_folder import temporary_folder
from distls.synthetic.generation import generate
from distls.synthetic.text_export import export_text
from distls.training.fitting import fit
from distls.training.run_folder import Run
from distls.training.setting_fit import FitResult
from distls.workers.compilation.kernel_cache import is_stored
from distls.workers.ingestion.compile_beside import beside
from distls.workers.stochastic.sgd_kernels import sgd_block

_PASSES = 5
_COMPILATION = "from distls.cli.demo import compile_fit; compile_fit()"
# Much less than the decoded data, so that training really is out of core.
_MEMORY_LIMIT = 350 * 2**20


def run_demo(rows: int, directory: Path | None, workers: int | None) -> int:
    """Run the demonstration with `rows` training rows in a folder (None: a temporary one); return the exit code."""
    console = live_console()
    options = ClusterOptions(workers=workers, memory_limit=_MEMORY_LIMIT)
    with _place(directory) as place:
        return _demonstrate(console, rows, place, options, kept=directory is not None)


@contextlib.contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    # swept by a later command where it is not removed at the end, as when workers still write
    with temporary_folder("distls-demo-", None) as temporary:
        yield temporary


def _demonstrate(console: Console, rows: int, place: Path, options: ClusterOptions, *, kept: bool) -> int:
    started = time.perf_counter()
    facts = _prepare(console, rows, place, options)
    console.rule(f"3  plan: workers may use {human(_MEMORY_LIMIT)} each")
    plan = plan_fit("mcid", place / "train", {"loss": OF_WIDE_CLASSES}, passes=_PASSES, cluster=options)
    console.print("\n".join(plan_lines(plan)))
    trained = _train(console, place, options, plan)
    facts = {"test error": trained.pop("test error"), **facts, **trained}
    _show(console, {**facts, "in all": f"{time.perf_counter() - started:.0f} s"})
    hint = "--directory keeps the files; `distls --help` has the commands"
    console.print(printable(f"everything is in {place}") if kept else hint)
    return 0


def _prepare(console: Console, rows: int, place: Path, options: ClusterOptions) -> dict[str, str]:
    """Generate documents as text and ingest them; return the entry of the final table."""
    text = place / "documents.svm"
    compiled = contextlib.nullcontext() if is_stored(sgd_block) else beside(_COMPILATION)
    with compiled, open_executor(options) as (executor, budget):
        console.rule(f"1  generate {rows:,} documents as svmlight text")
        with work_progress(quiet=False) as progress:
            generate("rcv1-4", place / "generated", rows=rows, executor=executor, progress=progress)
            size = export_text(place / "generated", text, executor=executor, progress=progress)
        console.rule(f"2  ingest {human(size)} of text on {budget.workers} processes")
        started = time.perf_counter()
        with work_progress(quiet=False) as progress:
            ingest([str(text)], place / "train", n_features=47_236, executor=executor, progress=progress)
        seconds = time.perf_counter() - started
    console.print(printable(dataset_line(open_dataset(place / "train"))))
    return {"ingest": f"{size / seconds / 1e6:.0f} MB/s of text, parsed, shuffled, compressed, checksummed"}


def compile_fit() -> None:
    """Fit few documents as the demonstration does, for its kernels."""
    # swept by a later command where this process is stopped
    with temporary_folder("distls-demo-", 2**20) as folder:
        train, test = generate("rcv1-4", folder / "data", rows=100)
        fit("mcid", train, params={"loss": OF_WIDE_CLASSES}, passes=2, eval_data=test)


def _train(console: Console, place: Path, options: ClusterOptions, plan: Plan) -> dict[str, str]:
    """Train and evaluate on fresh workers, so that their peak memory is the fit's."""
    run, test = place / "run", place / "generated-test"
    begin()  # the seconds of the fit are its own
    # the certificate of each pass would be one more read of all rows
    console.rule("4  train a multi-class SVM out of core")
    with open_executor(options) as (executor, budget):
        result = fit(
            "mcid",
            place / "train",
            run,
            params={"loss": OF_WIDE_CLASSES},
            passes=_PASSES,
            eval_data=test,
            eval_every=_PASSES,
            executor=executor,
            memory=budget,
            callbacks=[fit_progress()],
        )
        console.rule("5  evaluate on unseen documents")
        evaluation = evaluate(run, test, executor=executor)
        assert isinstance(evaluation, Evaluation)
    error = {"test error": f"{100 * evaluation.error:.2f} % of {evaluation.n_rows:,} rows"}
    return error | _facts(result, Run.open(run).events(), plan)


def _facts(result: FitResult, events: list[dict[str, Any]], plan: Plan) -> dict[str, str]:
    last = events[-1]
    averaging = last.get("averaging")
    peaks = sorted(last["worker_peaks"].values())
    rows_per_second = sum(event["n_rows"] for event in events) / max(round_seconds(last), 1e-9)
    return {
        "fit": f"{result.passes:g} passes in {result.seconds:.1f} s ({parts_text(result.record)}), "
        f"{rows_per_second / 1e6:.2f} million rows/s in rounds",
        "objective": f"{result.record['objective']:.5f}",
        "averaging penalty": "none: one lane"
        if averaging is None
        else f"{averaging['penalty']:+.5f} loss on a fixed sample, after minus before",
        "bytes read": f"{human(sum(e['bytes_read'] for e in events))} from the store, "
        f"{human(sum(e['cached_bytes'] for e in events))} from the workers' caches",
        "peak memory a worker": f"{human(peaks[0])} to {human(peaks[-1])}; planned {human(plan.worker_bytes)}",
        "weights sha256": str(result.record["weights_sha256"])[:16] + " (the same with any number of workers)",
    }


def _show(console: Console, facts: dict[str, str]) -> None:
    table = Table(title="distls demo", show_header=False, title_style="bold")
    for name, value in facts.items():
        table.add_row(name, value)
    console.print(table)
