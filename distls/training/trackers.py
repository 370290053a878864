"""Callbacks that pass the rounds of a fit on to MLflow and TensorBoard; both packages are optional."""

import re
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from distls.solvers.events import Callback, FitStart, RoundEvent
from distls.solvers.solver import State
from distls.solvers.status import Record, Status
from distls.storage.errors import ParameterError, needing

_NOT_METRICS = ("round", "n_lanes")
_ENDS = {Status.DIVERGED: "FAILED", Status.RUNNING: "FAILED", Status.INTERRUPTED: "KILLED"}


def round_metrics(record: Record) -> dict[str, float]:
    """Return the numbers of a round's record by name, nested ones as in ``certificate.value``."""
    return {name: float(value) for name, value in _numbers(record, "") if name not in _NOT_METRICS}


def _numbers(values: Record, prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


class MLflowTracker(Callback):
    """Logs a fit as a run of MLflow: its setting, the numbers of each round, how it ended.

    A fit of several settings has a run for each. The steps are the rounds.

    Parameters
    ----------
    experiment : str
        Name; made if it does not exist.
    tracking_uri : str, optional
        Server, database or folder of MLflow; by default the one that MLflow is set to.
    tags : mapping of str to str, optional
        Of each run.

    Raises
    ------
    ParameterError
        The package mlflow is not installed, or MLflow refuses the address.
    """

    def __init__(
        self, experiment: str = "distls", *, tracking_uri: str | None = None, tags: dict[str, str] | None = None
    ) -> None:
        with needing("MLflowTracker needs the package mlflow-skinny: pip install 'distls[mlflow]'"):
            from mlflow.entities import Metric, Param
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        self._metric, self._param = Metric, Param
        try:
            self._client = MlflowClient(tracking_uri)
            found = self._client.get_experiment_by_name(experiment)
            self._experiment = self._client.create_experiment(experiment) if found is None else found.experiment_id
        except MlflowException as error:
            raise ParameterError(f"MLflow: {' '.join(str(error).split())[:300]}") from None
        self._tags = dict(tags or {})
        # fits that share reads take turns, each in a context of its own
        self._run: ContextVar[str] = ContextVar("run")
        self.run_ids: list[str] = []

    def on_start(self, start: FitStart) -> None:
        """Start a run."""
        name = f"{start.method} on {start.dataset}" + (f", {start.what}" if start.what else "")
        made = self._client.create_run(self._experiment, tags=self._tags, run_name=name)
        run = made.info.run_id
        self._run.set(run)
        self.run_ids.append(run)
        # Unset facts are left out, as MLflow's parameters are texts.
        params = {key: value for key, value in vars(start).items() if value not in (None, "")}
        self._client.log_batch(run, params=[self._param(key, str(value)) for key, value in params.items()])

    def on_round(self, event: RoundEvent) -> None:
        """Log the numbers of the round."""
        # Milliseconds are MLflow's unit.
        clock, number = int(1000 * time.time()), int(event.record["round"])
        metrics = round_metrics(event.record).items()
        self._client.log_batch(
            self._run.get(), metrics=[self._metric(name, value, clock, number) for name, value in metrics]
        )

    def on_end(self, status: Status, state: State) -> None:
        """End the run."""
        self._client.set_tag(self._run.get(), "distls.status", str(status.value))
        self._client.set_terminated(self._run.get(), _ENDS.get(status, "FINISHED"))


class TensorBoardTracker(Callback):
    """Writes the numbers of each round as scalars for TensorBoard, ``tensorboard --logdir FOLDER``.

    A fit of several settings has a subfolder for each. The steps are the rounds.

    Parameters
    ----------
    folder : path
        Of the event files; made if it does not exist.

    Raises
    ------
    ParameterError
        The package tensorboardX is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        with needing("TensorBoardTracker needs the package tensorboardX: pip install 'distls[tensorboard]'"):
            from tensorboardX import SummaryWriter
        self._folder, self._open = Path(folder), SummaryWriter
        # fits that share reads take turns, each in a context of its own
        self._writer: ContextVar[Any] = ContextVar("writer")

    def on_start(self, start: FitStart) -> None:
        """Open the event file."""
        # of several settings: a name that is a folder
        own = re.sub(r"[^\w.=-]+", "_", start.what)
        writer = self._open(str(self._folder / own))
        self._writer.set(writer)
        setting = "  \n".join(f"{name}: {value}" for name, value in vars(start).items() if value not in (None, ""))
        writer.add_text("fit", setting, 0)

    def on_round(self, event: RoundEvent) -> None:
        """Write the numbers of the round."""
        for name, value in round_metrics(event.record).items():
            self._writer.get().add_scalar(name.replace(".", "/"), value, int(event.record["round"]))

    def on_end(self, status: Status, state: State) -> None:
        """Close the event file."""
        self._writer.get().add_text("status", str(status.value), state.round)
        self._writer.get().close()
