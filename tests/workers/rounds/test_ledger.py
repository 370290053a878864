"""The ledger of a round: sums, and the check that each partition and each row took part exactly once."""

import subprocess
import sys
import threading
from dataclasses import fields, replace

import numpy as np
import pytest
from helpers import labelled_rows, raised, refuses, write_dataset

from distls.evaluation.evaluate import evaluate
from distls.execution.serial import SerialExecutor
from distls.storage.errors import DistlsError
from distls.training.fitting import fit
from distls.workers.compilation import jit
from distls.workers.compilation.compile_clock import COMPILATION
from distls.workers.rounds.ledger import Ledger


def filled():
    return Ledger([0, 2], 30, 100, 7, 0.5, 0.25, 0.125, {"a": 1.0, "b": 2.0}, {"a": 10, "b": 20})


def test_merging_adds_costs_and_keeps_the_highest_peaks():
    other = Ledger([1], 12, 50, 3, 1.0, 2.0, 4.0, {"b": 0.5, "c": 4.0}, {"b": 15, "c": 5})
    both = filled().merge(other)
    assert both == Ledger(
        [0, 2, 1], 42, 150, 10, 1.5, 2.25, 4.125, {"a": 1.0, "b": 2.5, "c": 4.0}, {"a": 10, "b": 20, "c": 5}
    )


def test_what_compiles_in_kernels_is_no_time_in_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "kernel_folder", lambda: str(tmp_path))
    compiled, ledger = jit.kernel(lambda x: x + 1), Ledger()
    with ledger.in_kernels():
        compiled(1)
    assert ledger.compile_seconds > 0.01
    assert ledger.kernel_seconds > 0.0
    again = Ledger()
    with again.in_kernels():
        compiled(1)
    assert again.compile_seconds == 0.0


def test_what_another_thread_compiles_is_counted_while_it_goes_on():
    begun, ended = threading.Event(), threading.Event()

    def compiles():
        COMPILATION.begin()
        begun.set()
        ended.wait()
        COMPILATION.end()

    ledger, other = Ledger(), threading.Thread(target=compiles)
    other.start()
    begun.wait()
    with ledger.in_kernels():
        ended.set()
        other.join()
    assert ledger.compile_seconds > 0.0
    assert ledger.kernel_seconds >= 0.0


def test_merging_forgets_no_field():
    merged, empty = filled().merge(Ledger()), Ledger()
    assert merged == filled()
    assert all(getattr(merged, f.name) != getattr(empty, f.name) for f in fields(Ledger))


@pytest.mark.parametrize(
    ("blocks", "n_rows"),
    [([0, 1], 30), ([0, 1, 1], 30), ([0, 1, 2, 2], 30), ([0, 1, 3], 30), ([0, 1, 2], 29), ([0, 1, 2], 31)],
    ids=["missing", "twice for another", "twice", "another", "a row missing", "a row twice"],
)
def test_what_is_not_covered_exactly_once_is_refused(blocks, n_rows):
    Ledger([2, 0, 1], 30).check_cover(range(3), 30)
    expected = f"a round covered {len(blocks)} partitions and {n_rows} rows instead of 3 and 30; resume the run"
    assert raised(DistlsError, Ledger(blocks, n_rows).check_cover, range(3), 30) == expected


def test_the_check_does_not_depend_on_assertions():
    code = "from distls.workers.rounds.ledger import Ledger; Ledger([0], 5).check_cover([0], 6)"
    ran = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "a round covered 1 partitions and 5 rows instead of 1 and 6" in ran.stderr


class Forgetful(SerialExecutor):
    """Loses a partition from the results of tasks of one name."""

    def __init__(self, task):
        super().__init__()
        self.task = task

    def reduce(self, function, items, **options):
        result = super().reduce(function, items, **options)
        if type(function).__name__ != self.task:
            return result
        return replace(result, ledger=replace(result.ledger, blocks=result.ledger.blocks[1:]))


@pytest.mark.parametrize(
    ("method", "task"),
    [("sgd", "TrainTask"), ("gls", "PointTask"), ("stagewise", "BlockTask"), ("sgd", "GradientTask")],
)
def test_every_round_is_checked(tmp_path, method, task):
    data = write_dataset(tmp_path / "data", *labelled_rows(60, 8, 3), partition_rows=20)
    params = {"link": "softmax"} if method == "gls" else {}
    with pytest.raises(DistlsError, match="a round covered 2 partitions and 60 rows instead of 3 and 60"):
        fit(method, data, params=params, passes=2, executor=Forgetful(task))


def test_every_evaluation_is_checked(tmp_path):
    x, y = labelled_rows(60, 8, 3)
    data = write_dataset(tmp_path / "data", x, np.asarray(y), partition_rows=20)
    model = fit("sgd", data, passes=1).model
    assert model is not None
    refuses(DistlsError, "instead of 3 and 60", evaluate, model, data, executor=Forgetful("MetricsTask"))
