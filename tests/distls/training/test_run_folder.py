"""Run folders: what they refuse, what survives a crash, what is read back."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from distls.columns.sharding import add_columns
from distls.ingestion.ingest import ingest
from distls.solvers.solver import State
from distls.storage.errors import CorruptDataError, FormatError, MismatchError, StorageError
from distls.training.fitting import fit, resume
from distls.training.run_folder import Run, RunConfig, is_run

CONFIG = RunConfig(method="mcid", dataset="/data", dataset_fingerprint="", seed=0, grid=[{}])


@dataclass
class Small(State):
    """A state of one array and one number."""

    values: np.ndarray = field(default_factory=lambda: np.zeros(3))
    scale: float = 1.0


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", CONFIG)


def newest_of(run: Run) -> tuple[Small, dict[str, Any], Any] | None:
    """The newest checkpoint that is sound, of a solver that keeps nothing of rows."""
    return run.load_checkpoint(Small, lambda state: True)


def test_created_and_opened(tmp_path: Path) -> None:
    made = Run.create(tmp_path / "a" / "b", CONFIG)
    assert is_run(made.path)
    assert Run.open(made.path).config == CONFIG
    assert made.status == {"status": "RUNNING", "passes": 0.0, "seconds": 0.0}
    assert made.events() == []
    assert newest_of(made) is None


def test_the_configuration_is_stored_member_by_member(run: Run) -> None:
    written = json.loads((run.path / "config.json").read_text())
    assert set(written) == {
        "format_version", "method", "dataset", "dataset_fingerprint", "seed", "passes", "tol", "rtol", "max_seconds",
        "eval", "eval_every", "patience", "select", "grid",
    }  # fmt: skip
    assert (written["format_version"], written["grid"], written["tol"]) == (1, [{}], None)
    assert "selected_on" not in written  # of child runs only


def test_numbers_of_a_configuration_stay_as_they_were_given(tmp_path: Path) -> None:
    given = msgspec.structs.replace(CONFIG, passes=3, tol=0.5, selected_on="/other")
    read = Run.create(tmp_path / "run", given).config
    assert read == given
    assert (type(read.passes), type(read.tol), read.selected_on) == (int, float, "/other")


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert is_run(Run.create(tmp_path / "empty", CONFIG).path)


def _run_there(path: Path) -> None:
    Run.create(path, CONFIG)


def _file_there(path: Path) -> None:
    path.write_text("mine")


def _folder_there(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("mine")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (_run_there, "{0} is a run already; `distls resume {0}` continues it, or choose another name"),
        (_file_there, "{0} exists and is not empty; choose another name for the run"),
        (_folder_there, "{0} exists and is not empty; choose another name for the run"),
    ],
)
def test_what_is_there_is_not_touched(tmp_path: Path, prepare: Any, message: str) -> None:
    path = tmp_path / "there"
    prepare(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(MismatchError) as caught:
        Run.create(path, CONFIG)
    assert str(caught.value) == message.format(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as caught:
        Run.create(tmp_path / "file" / "run", CONFIG)
    start = f"cannot write the run {tmp_path}/file/run: "
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("; choose a writable place")


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        Run.open(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: no such run"
    with pytest.raises(FormatError) as caught:
        Run.open(tmp_path)
    assert str(caught.value) == f"{tmp_path}: not a run (no config.json)"


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"passes": NaN}', "7"])
@pytest.mark.parametrize("name", ["config", "status"])
def test_files_that_cannot_be_read_are_named(run: Run, name: str, content: str) -> None:
    (run.path / f"{name}.json").write_text(content)
    with pytest.raises(FormatError) as caught:
        getattr(Run.open(run.path), name)
    remedy = f"; {run.again}" if name == "status" else ""
    assert str(caught.value) == f"{run.path}: {name}.json cannot be read{remedy}"


def test_a_run_of_another_version_is_refused(run: Run) -> None:
    (run.path / "config.json").write_text('{"format_version": 2}')
    with pytest.raises(FormatError) as caught:
        _ = run.config
    assert str(caught.value) == f"{run.path}: config.json is of version 2, expected 1"


@pytest.mark.parametrize(
    ("name", "value"),
    [("method", 3), ("dataset", "a\0b"), ("dataset_fingerprint", None), ("seed", -1), ("seed", True), ("seed", 1.0),
     ("grid", []), ("grid", [3]), ("passes", "2"), ("passes", -1), ("tol", []), ("max_seconds", False), ("eval", 1),
     ("eval_every", -0.5), ("patience", 2.0), ("select", "\0"), ("selected_on", {})],
)  # fmt: skip
def test_members_of_another_type_are_named(run: Run, name: str, value: Any) -> None:
    (run.path / "config.json").write_text(json.dumps(CONFIG.stored() | {name: value}))
    with pytest.raises(FormatError) as caught:
        _ = run.config
    assert str(caught.value).startswith(f"{run.path}: config.json was not written by distls (")
    assert f"at `$.{name}" in str(caught.value)


def test_patience_without_evaluation_data_is_refused(run: Run) -> None:
    (run.path / "config.json").write_text(json.dumps(CONFIG.stored() | {"patience": 2}))
    with pytest.raises(FormatError) as caught:
        _ = run.config
    assert "was not written by distls (patience needs held-out rows" in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"status": "DONE"}, {"status": None}, {"passes": "9"}, {"passes": -1}, {"seconds": True}]
)
def test_a_status_of_other_types(run: Run, changes: dict[str, Any]) -> None:
    known = {"status": "CONVERGED", "passes": 2, "seconds": 0.5, "objective": 1.0}
    run.write_status(known)
    assert run.status == known
    run.write_status(known | changes)
    with pytest.raises(FormatError, match=r"status\.json was not written by distls"):
        _ = run.status


def _events(run: Run, rounds: int) -> list[dict[str, Any]]:
    events = [{"round": done, "passes": done / 2} for done in range(1, rounds + 1)]
    for event in events:
        run.append_event(event)
    return events


def test_a_line_cut_off_by_a_crash_is_left_out(run: Run) -> None:
    events = _events(run, 3)
    path = run.path / "events.jsonl"
    whole = path.read_bytes()
    for cut in range(1, len(json.dumps(events[2])) + 1):
        path.write_bytes(whole[:-cut])
        assert run.events() == events[:2]
    run.truncate_events(2)
    run.append_event(events[2])
    assert run.events() == events


def test_events_after_the_checkpoint_are_dropped(run: Run) -> None:
    events = _events(run, 5)
    run.truncate_events(3)
    assert run.events() == events[:3]
    run.truncate_events(9)
    assert run.events() == events[:3]
    run.truncate_events(0)
    assert (run.path / "events.jsonl").read_text() == ""


def test_the_last_two_checkpoints_are_kept_and_the_newest_is_read(run: Run) -> None:
    for done in (1, 2, 999_999, 1_000_000):
        state = Small(done, done / 2, np.arange(3.0) * done, 0.1)
        run.save_checkpoint(state, {"progress": {"seconds": float(done)}})
    assert [path.name for path in run.checkpoints()] == ["round-999999", "round-1000000"]
    found = newest_of(run)
    assert found is not None
    state, extra, path = found
    assert path.name == "round-1000000"
    assert (state.round, state.passes, state.scale) == (1_000_000, 500_000.0, 0.1)
    assert state.values.tolist() == [0.0, 1e6, 2e6]
    assert extra == {"progress": {"seconds": 1e6}}
    run.clear()
    assert run.checkpoints() == []


def test_half_written_checkpoints_are_not_seen(run: Run) -> None:
    run.save_checkpoint(Small(3), {})
    for name in ("round-000004.1234abcd.partial", "round-000005.1234abcd.old", "round-9", "other"):
        (run.path / "checkpoints" / name).mkdir()
    assert [path.name for path in run.checkpoints()] == ["round-000003"]


def test_a_failed_checkpoint_leaves_the_one_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save_checkpoint(Small(1), {})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        run.save_checkpoint(Small(2), {})
    monkeypatch.undo()
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["round-000001"]


@pytest.mark.parametrize("missing", [False, True])
def test_of_a_damaged_checkpoint_the_one_before_is_read(
    run: Run, caplog: pytest.LogCaptureFixture, missing: bool
) -> None:
    """Fault: The newest checkpoint changed, an array of it removed | before `resume` | a note; the fit goes on from
    the one before"""
    run.save_checkpoint(Small(1), {})
    run.save_checkpoint(Small(2), {})
    older, newest = run.checkpoints()
    path = newest / "values.npy"
    content = path.read_bytes()
    path.unlink()
    if not missing:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with caplog.at_level("WARNING", "distls"):
        found = newest_of(run)
    assert found is not None
    assert found[0].round == 1
    (message,) = caplog.messages
    assert message.startswith(f"{path}: ")
    assert message.endswith(f"; the fit goes on from {older.name}")


@pytest.mark.parametrize(("whole", "expected"), [({1, 2}, 2), ({1}, 1), (set(), 2)])
def test_the_newest_checkpoint_whose_state_of_rows_is_whole_is_read(
    run: Run, caplog: pytest.LogCaptureFixture, whole: set[int], expected: int
) -> None:
    for done in (1, 2):
        run.save_checkpoint(Small(done), {})
    with caplog.at_level("WARNING", "distls"):
        found = run.load_checkpoint(Small, lambda state: state.round in whole)
    assert found is not None
    assert found[0].round == expected
    older, newest = run.checkpoints()
    lost = f"{newest}: what is kept of its rows was lost; the fit goes on from {older.name}"
    assert caplog.messages == ([lost] if expected == 1 else [])


@pytest.mark.parametrize(
    "changes", [{"grid": [{"alpha": 1.0}]}, {"seed": 1}, {"method": "sgd"}, {"dataset_fingerprint": "other"}]
)
def test_a_checkpoint_of_another_request_is_refused(run: Run, changes: dict[str, Any]) -> None:
    run.save_checkpoint(Small(1), {})
    changed = Run.open(run.path)
    changed.write_config(msgspec.structs.replace(CONFIG, passes=99))  # limits make no states
    assert newest_of(changed) is not None
    run.write_config(msgspec.structs.replace(CONFIG, **changes))
    with pytest.raises(FormatError, match=r"config\.json was changed"):
        newest_of(Run.open(run.path))


def test_a_damaged_checkpoint_is_refused(run: Run) -> None:
    run.save_checkpoint(Small(1), {})
    path = run.checkpoints()[0] / "values.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptDataError) as caught:
        newest_of(run)
    assert str(caught.value) == f"{path}: its bytes do not match bundle.json"


@pytest.mark.parametrize("seconds", [0, 1000])
@pytest.mark.parametrize("number", [2, 4])
def test_a_run_removed_while_it_is_trained_ends_in_one_line_and_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, number: int
) -> None:
    """Fault: The run folder removed in mid-fit | after a round, before or at the last | one line, exit code 1; it is
    not made again"""
    append = Run.append_event

    def append_and_remove(run: Run, event: dict[str, Any]) -> None:
        append(run, event)
        # before a checkpoint, or the model, which make the folders they need
        if event["round"] == number:
            shutil.rmtree(run.path)

    monkeypatch.setattr(Run, "append_event", append_and_remove)
    x = np.random.default_rng(0).normal(size=(60, 3))
    ingest(x, tmp_path / "data", y=np.arange(60) % 2)
    with pytest.raises(StorageError) as caught:
        fit(
            "sgd",
            tmp_path / "data",
            tmp_path / "run",
            params={"lanes": 1},
            passes=4,
            checkpoint_seconds=seconds,
        )
    lost = "the run was removed while it was trained; what it had learnt is lost"
    assert str(caught.value) == f"{tmp_path / 'run'}: {lost}"
    assert not (tmp_path / "run").exists()


@pytest.mark.fast_cases("sdca")
@pytest.mark.parametrize("method", ["bcd", "cls", "sdca", "ovr-sdca", "stagewise"])
def test_what_is_kept_of_rows_does_not_make_a_removed_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Fault: The run folder removed in mid-fit | after the first round of methods that keep state of rows | one
    line, exit code 1; it is not made again"""
    append = Run.append_event

    def append_and_remove(run: Run, event: dict[str, Any]) -> None:
        append(run, event)
        if event["round"] == 1:
            shutil.rmtree(run.path)

    monkeypatch.setattr(Run, "append_event", append_and_remove)
    x = np.random.default_rng(0).normal(size=(60, 3))
    ingest(x, tmp_path / "data", y=np.arange(60) % 3)
    add_columns(tmp_path / "data")
    params = {"block_size": 1, "stages": 3} if method == "stagewise" else {}
    with pytest.raises(StorageError) as caught:
        fit(method, tmp_path / "data", tmp_path / "run", params=params)
    lost = "the run was removed while it was trained; what it had learnt is lost"
    assert str(caught.value) == f"{tmp_path / 'run'}: {lost}"
    assert not (tmp_path / "run").exists()


def test_a_run_removed_while_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(run: Run, _event: dict[str, Any]) -> None:
        shutil.rmtree(run.path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a file of it")

    monkeypatch.setattr(Run, "append_event", remove)
    x = np.random.default_rng(0).normal(size=(60, 3))
    ingest(x, tmp_path / "data", y=np.arange(60) % 2)
    with pytest.raises(StorageError, match="the run was removed while it was trained"):
        fit("sgd", tmp_path / "data", tmp_path / "run")


@pytest.mark.parametrize("damage", ["no model", "a damaged model", "a damaged status"])
def test_a_run_that_lost_what_it_had_ended_with_says_how_to_have_it_again(
    tmp_path: Path, damage: str
) -> None:
    """Fault: Model of an ended run removed or damaged, its status damaged | before `resume` | one line that says how
    to train again | bits"""
    x, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
    ingest(x, tmp_path / "data", y=y)
    right = fit("gls", tmp_path / "data", tmp_path / "run", passes=3)
    status = tmp_path / "run" / "status.json"
    if damage == "no model":
        shutil.rmtree(tmp_path / "run" / "model")
    elif damage == "a damaged model":
        os.truncate(tmp_path / "run" / "model" / "weights.npy", 100)
    else:
        os.truncate(status, 40)
    with pytest.raises((FormatError, CorruptDataError)) as caught:
        resume(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(f"remove {status}, and `distls resume {tmp_path / 'run'}` trains again")
    status.unlink()
    assert resume(tmp_path / "run").model.sha256 == right.model.sha256


def test_a_fit_without_a_run_folder_names_none(tmp_path: Path) -> None:
    ingest(np.arange(20.0).reshape(10, 2), tmp_path / "d", y=np.arange(10) % 2)
    done = fit("mcid", tmp_path / "d", passes=1, params={"alpha": 1e-2})
    assert done.run is None
    assert "run" not in [fact.label for fact in done.facts()]
    kept = fit("mcid", tmp_path / "d", tmp_path / "r", passes=1, params={"alpha": 1e-2})
    assert repr(kept).endswith(f"run {tmp_path}/r>")
