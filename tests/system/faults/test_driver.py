"""SIGKILL of the driver at every act on the files of a run: whatever is there, `resume` ends with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_helpers import KILLED, Faulty, digest_of, faulty, left_behind, options_of, rounds_of
from helpers import labelled_rows, write_dataset

from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import FormatError
from distls.storage.model.bundle import read_bundle
from distls.storage.model.model import load_model
from distls.training.fitting import fit
from distls.training.run_folder import Run, is_run

__all__ = ["faulty"]

PARAMS = {"loss": "hinge", "alpha": 1e-3}
PASSES = 3
OPTIONS = options_of(PARAMS, passes=PASSES, eval_every=0, checkpoint_seconds=0, executor="serial")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    x, y = labelled_rows(300, 20, 3)
    return write_dataset(tmp_path_factory.mktemp("data") / "train", x, y)


@pytest.fixture(scope="module")
def undisturbed(faulty: Faulty, train: Dataset) -> str:
    digest = faulty.fit("mcid", train.path, params=PARAMS, passes=PASSES, eval_every=0)
    result = fit("mcid", train, params=PARAMS, passes=PASSES, eval_every=0)
    assert result.model is not None
    assert result.model.sha256 == digest
    return digest


@pytest.fixture(scope="module")
def acts(
    faulty: Faulty, train: Dataset, undisturbed: str, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """All acts of an undisturbed fit, in order."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended, acts = faulty.killed_at(0, run, "fit", "mcid", train.path, run, *OPTIONS, "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert digest_of(run) == undisturbed
    return acts


def numbers_of(acts: list[str], *parts: str) -> list[int]:
    """Return the numbers, from 1 on, of the acts on the given files; a sync changes nothing that a kill could show."""
    return [
        number
        for number, act in enumerate(acts, 1)
        if not act.startswith("sync ") and any(part in act for part in parts)
    ]


def check_what_is_there(run: Path, digest: str) -> None:
    """Nothing half-written has a name under which it would be read."""
    if is_run(run):
        opened = Run.open(run)
        assert opened.config.method == "mcid"
        assert opened.status["status"] in ("RUNNING", "MAX_PASSES")
        assert rounds_of(run) == list(range(1, len(rounds_of(run)) + 1))
        if opened.status["status"] == "RUNNING":
            for checkpoint in opened.checkpoints()[-2:]:
                read_bundle(checkpoint, "checkpoint")
    try:
        assert load_model(run / "model").sha256 == digest
    except FormatError:
        assert not (run / "model").exists()


def end_it(faulty: Faulty, run: Path, again: list[object]) -> list[str]:
    """Do what a user does next; return what was left to do."""
    if not is_run(run):
        ended, acts = faulty.killed_at(0, run, *again)
    else:
        ended, acts = faulty.killed_at(0, run, "resume", run, "--executor", "serial", "--quiet")
    assert (ended.code, ended.err) == (0, ""), ended.err
    return acts


# Of a fit of three rounds that saves each of them. What a tree of files is removed by has no folder in its name.
PLACES = {
    "before it begins": ("mkdir checkpoints", "mkdir .", "lock", "config.json", ".probe-"),
    "first checkpoint": ("round-000001",),
    "last checkpoint": ("mkdir checkpoints/round-000003", "rename checkpoints/round-000003"),
    "events": ("events.jsonl",),
    "status": ("status.json",),
    "model": (" model.",),
    "state of its end": (" final",),
    "removal": ("unlink ", "rmdir "),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", list(PLACES))
def test_killed_at_each_act(
    faulty: Faulty, train: Dataset, undisturbed: str, acts: list[str], tmp_path: Path, place: str
) -> None:
    """Fault: SIGKILL of the driver | before each open, rename and removal and in the middle of each write, of
    configuration, lock, checkpoints, events, status, model, state of the end; some 140 acts | `resume`, or the
    same `fit` where there is no configuration yet, ends; no temporary files remain | bits"""
    numbers = numbers_of(acts, *PLACES[place])
    assert numbers
    for number in numbers:
        run = tmp_path / f"run-{number}"
        again = ["fit", "mcid", train.path, run, *OPTIONS, "--quiet"]
        killed, done = faulty.killed_at(number, run, *again)
        assert (killed.code, killed.out, killed.err) == (KILLED, "", "")
        assert len(done) == number
        check_what_is_there(run, undisturbed)
        end_it(faulty, run, again)
        assert digest_of(run) == undisturbed, acts[number - 1]
        assert load_model(run).sha256 == undisturbed
        assert rounds_of(run) == [1, 2, 3]
        assert left_behind(run) == []


def test_every_act_is_tried(acts: list[str]) -> None:
    tried = set().union(*(numbers_of(acts, *parts) for parts in PLACES.values()))
    rest = [act for number, act in enumerate(acts, 1) if number not in tried and not act.startswith("sync ")]
    assert [act for act in rest if "round-000002" not in act and "round-000003" not in act] == []


@pytest.mark.slow
def test_a_run_killed_at_its_end_does_not_start_over(
    faulty: Faulty, train: Dataset, acts: list[str], tmp_path: Path
) -> None:
    """Of the model published and no status yet, the last checkpoint is what it goes on from: no round is done again.

    Fault: SIGKILL between model and status | at the end of a fit | continues from its last checkpoint without
    repeating a round
    """
    run = tmp_path / "run"
    number = max(numbers_of(acts, "replace status.json"))
    faulty.killed_at(number, run, "fit", "mcid", train.path, run, *OPTIONS, "--quiet")
    assert (run / "model").exists()
    assert Run(run).status["status"] == "RUNNING"
    assert not [act for act in end_it(faulty, run, []) if "round-" in act and act.startswith("open")]


@pytest.mark.slow
def test_a_fit_with_children_killed_at_each_act(
    faulty: Faulty, train: Dataset, undisturbed: str, tmp_path: Path
) -> None:
    """Fault: SIGKILL of a fit with `--select` | renames and status writes of parent and children; 25 acts | `resume`
    finishes, the same setting is chosen | bits"""
    run = tmp_path / "run"
    params = {"loss": "hinge", "alpha": "1e-3,1e-1"}
    limits = options_of(params, passes=1, eval_every=0, executor="serial", select=train.path)

    def arguments(run: Path) -> list[object]:
        return ["fit", "mcid", train.path, run, *limits, "--quiet"]

    ended, acts = faulty.killed_at(0, run, *arguments(run))
    assert ended.code == 0
    digest, selected = digest_of(run), Run(run).status["selected"]
    for number in numbers_of(acts, "replace ", "rename ", "write status.json"):
        run = tmp_path / f"run-{number}"
        killed, _ = faulty.killed_at(number, run, *arguments(run))
        assert killed.code == KILLED
        if not (run / "model").exists():
            with pytest.raises(FormatError):
                load_model(run)
        end_it(faulty, run, arguments(run))
        assert (digest_of(run), Run(run).status["selected"]) == (digest, selected), acts[number - 1]
        assert load_model(run).sha256 == digest
        assert left_behind(run) == []
