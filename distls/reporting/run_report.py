"""The report of a run: everything it knows about itself and, on labelled data, what its model does; JSON or a page."""

from dataclasses import dataclass, field
from typing import Any, Unpack

from distls.execution import executor_of
from distls.execution.executor import Executor
from distls.facts import Fact, Shown
from distls.long_calls import Workers, long_call
from distls.reporting.costs import costs_of
from distls.reporting.judgement import Judgement, judge
from distls.reporting.run_record import RunRecord, fit_command, read_run
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import DistlsError, MismatchError
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import as_format_error
from distls.training.fit_facts import RECORDED, fit_facts
from distls.training.run_config import moved_along


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """A run, and its model on labelled data."""

    record: RunRecord
    training: Dataset | None  # None unless asked for, where it is no longer there, or another one
    judged: Judgement | None
    remarks: list[str] = field(default_factory=list)

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        return [Fact("run", self.record.path, str), *fit_facts(self.record.status)]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; docs/cli.md lists the fields."""
        record, status = self.record, self.record.status
        return {
            "kind": "report",
            "run": str(record.path),
            "method": record.config.method,
            "dataset": record.config.dataset,
            "dataset_fingerprint": record.config.dataset_fingerprint,
            "seed": record.config.seed,
            "params": record.params,
            "status": status["status"],
            "passes": status["passes"],
            **{name: status[name] for name in RECORDED if name in status},
            "command": fit_command(record.config, str(record.path)),
            "versions": status.get("versions"),
            "costs": costs_of(record.events, status),
            "events": record.events,
            "settings": record.settings,
            "notes": [*status.get("notes", []), *self.remarks],
            "evaluation": None if self.judged is None else self.judged.to_json(),
        }


def make_report(
    run: str | Place,
    data: str | Place | None = None,
    *,
    executor: Executor | None = None,
    own_data: bool = False,
) -> Report:
    """Read a run, and score its model on `data`, a data set or a file, if that is given.

    With `own_data` what the run's files name is opened too: its training data are described, and if `data` is None
    the model is scored on those of `eval_data` or `select`, or on the test files of `train`, if they are still there. A
    run of somebody else may name any path or URL. Raises FormatError if `run` is no run, MismatchError if the model
    cannot score the data.
    """
    record = read_run(run)
    remarks: list[str] = []
    training = _training(record, remarks) if own_data else None
    if data is not None:
        if record.model is None:
            raise MismatchError(f"{run}: no model yet; `distls resume {run}` continues the run")
        found = judge(record.model, data, str(run), executor, notify=remarks.append)
        return Report(record, training, found, remarks)
    own, reading = record.judged_on
    if record.model is None or not own:
        return Report(record, training, None, remarks)
    if not own_data:
        said = f"the model was not evaluated: the run names {', '.join(own)}, which --own-data would read"
        return Report(record, None, None, [said])
    try:
        with as_format_error(str(run)):
            found = judge(record.model, own, str(run), executor, notify=remarks.append, **reading)
    except (DistlsError, OSError) as error:
        # the run itself is sound: its report must not fail for data that were moved since
        return Report(
            record,
            training,
            None,
            [*remarks, f"the model was not evaluated: {error}; --data DATASET or FILE names other rows"],
        )
    return Report(record, training, found, remarks)


def _training(record: RunRecord, remarks: list[str]) -> Dataset | None:
    """Return the training data if they are still there, else note why not."""
    try:
        found = open_dataset(moved_along(record.config.dataset, record.path))
    except (DistlsError, OSError):
        remarks.append(f"the training data {record.config.dataset} are no longer there")
        return None
    if found.fingerprint == record.config.dataset_fingerprint:
        return found
    remarks.append(f"{record.config.dataset} is not what the model was trained on: it was replaced")
    return None


def write_report(
    run: str | Place,
    out: str | Place,
    data: str | Place | None = None,
    *,
    executor: Executor | None = None,
    own_data: bool = False,
) -> None:
    """Write the report of a run, as of `make_report`, as one HTML file that needs no network.

    An older report at `out` is replaced, any other file is refused. Raises as `make_report`; BadInputError if Bokeh
    is not installed, MismatchError or StorageError if `out` cannot be written.
    """
    report(run, data, html=out, executor=executor, own_data=own_data)


@long_call
def report(
    run: str | Place,
    data: str | Place | None = None,
    *,
    html: str | Place | None = None,
    own_data: bool = False,
    executor: Any = None,
    **workers: Unpack[Workers],
) -> Report:
    """Return the report of a run, as `distls report` shows it, and with `html` write its page too.

    Parameters and errors are those of `make_report` and `write_report`.
    """
    from distls.reporting.page import checked_page, write_page
    from distls.reporting.run_page import render_report

    page = None if html is None else checked_page(html)
    made = make_report(run, data, executor=executor_of(executor), own_data=own_data)
    if page is not None:
        write_page(page, render_report(made))
    return made
