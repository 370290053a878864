"""Run folders: what they refuse, what survives a crash, what is read back."""

import errno
import json
import os
import shutil
from dataclasses import asdict, dataclass, field

import msgspec
import numpy as np
import pytest
from helpers import raised, refuses

from distls import add_columns, fit, ingest, resume
from distls.execution.memory_budget import MemoryBudget
from distls.solvers.events import RoundEvent
from distls.solvers.loop import Progress, Standing
from distls.solvers.solver import Fitted, State
from distls.solvers.status import Status
from distls.storage.errors import CorruptDataError, FormatError, MismatchError, StorageError
from distls.training import run_folder, setting_fit
from distls.training.callbacks import Checkpointer, History
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run, is_run
from distls.workers.prediction.predictor import LinearPredictor

CONFIG = RunConfig(method="mcid", dataset="/data", dataset_fingerprint="", seed=0, grid=[{}])


@dataclass
class Small(State):
    """A state of one array and one number."""

    values: np.ndarray = field(default_factory=lambda: np.zeros(3))
    scale: float = 1.0


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", CONFIG)


def saved(run, number):
    """Save a checkpoint of a round."""
    run.save_checkpoint(Standing(Small(number)))


def newest_of(run):
    """The newest checkpoint that is sound, of a solver that keeps nothing of rows; None if there is none."""
    return run.load_checkpoint(Small, lambda state: True)


def rows_in(folder):
    """Ingest a few rows."""
    x = np.random.default_rng(0).normal(size=(60, 3))
    ingest(x, folder / "data", y=np.arange(60) % 3)
    return folder / "data"


def test_created_and_opened(tmp_path):
    made = Run.create(tmp_path / "a" / "b", CONFIG)
    assert is_run(made.path)
    assert Run.open(made.path).config == CONFIG
    assert made.status == {"status": "RUNNING", "passes": 0.0, "seconds": 0.0}
    assert made.events() == []
    assert newest_of(made) is None


def test_the_configuration_is_stored_member_by_member(run):
    written = json.loads((run.path / "config.json").read_text())
    assert set(written) == {
        "format_version", "method", "dataset", "dataset_fingerprint", "seed", "passes", "tol", "rtol", "max_seconds",
        "eval", "eval_every", "patience", "select", "grid", "request", "crc32c",
    }  # fmt: skip
    assert (written["format_version"], written["grid"], written["tol"]) == (1, [{}], None)
    assert "selected_on" not in written  # of child runs only


def test_numbers_of_a_configuration_stay_as_they_were_given(tmp_path):
    given = msgspec.structs.replace(CONFIG, passes=3, tol=0.5, selected_on="/other")
    read = Run.create(tmp_path / "run", given).config
    assert read == given
    assert (type(read.passes), type(read.tol), read.selected_on) == (int, float, "/other")


def test_an_empty_folder_may_become_a_run(tmp_path):
    (tmp_path / "empty").mkdir()
    assert is_run(Run.create(tmp_path / "empty", CONFIG).path)


def _run_there(path):
    Run.create(path, CONFIG)


def _file_there(path):
    path.write_text("mine")


def _folder_there(path):
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
def test_what_is_there_is_not_touched(tmp_path, prepare, message):
    path = tmp_path / "there"
    prepare(path)
    before = sorted(tmp_path.rglob("*"))
    assert raised(MismatchError, Run.create, path, CONFIG) == message.format(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    said = raised(StorageError, Run.create, tmp_path / "file" / "run", CONFIG)
    start = f"cannot write the run {tmp_path}/file/run: "
    assert said.startswith(start)
    assert said.endswith("; choose a writable place")


def test_not_a_run(tmp_path):
    assert raised(FormatError, Run.open, tmp_path / "none") == f"{tmp_path}/none: no such run"
    assert raised(FormatError, Run.open, tmp_path) == f"{tmp_path}: not a run (no config.json)"


@pytest.mark.fast_cases("config-$", "config-7", "status-7")
@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"passes": NaN}', "7"])
@pytest.mark.parametrize("name", ["config", "status"])
def test_files_that_cannot_be_read_are_named(run, name, content):
    (run.path / f"{name}.json").write_text(content)
    remedy = f"; {run.again}" if name == "status" else ""
    assert raised(FormatError, getattr, Run.open(run.path), name) == f"{run.path}: {name}.json cannot be read{remedy}"


def _refused(run, content):
    """Return what is said of a run with this configuration."""
    (run.path / "config.json").write_text(json.dumps(content))
    with pytest.raises(FormatError) as caught:
        _ = run.config
    return str(caught.value).removeprefix(f"{run.path}: config.json ")


def test_a_run_of_another_version_is_refused(run):
    assert _refused(run, {"format_version": 2}) == "is of version 2, expected 1"


@pytest.mark.fast_cases("method", r"seed-1\.0", "max_seconds", "selected_on")
@pytest.mark.parametrize(
    ("name", "value"),
    [("method", 3), ("dataset", "a\0b"), ("dataset_fingerprint", None), ("seed", -1), ("seed", True), ("seed", 1.0),
     ("grid", []), ("grid", [3]), ("passes", "2"), ("passes", -1), ("tol", []), ("max_seconds", False), ("eval", 1),
     ("eval_every", -0.5), ("patience", 2.0), ("select", "\0"), ("selected_on", {})],
)  # fmt: skip
def test_members_of_another_type_are_named(run, name, value):
    said = _refused(run, CONFIG.stored() | {name: value})
    assert said.startswith("was not written by distls (")
    assert f"at `$.{name}" in said


def test_patience_without_evaluation_data_is_refused(run):
    said = _refused(run, CONFIG.stored() | {"patience": 2})
    assert said.startswith("was not written by distls (patience needs held-out rows")


@pytest.mark.fast_cases("changes0", "changes4")
@pytest.mark.parametrize(
    "changes", [{"status": "DONE"}, {"status": None}, {"passes": "9"}, {"passes": -1}, {"seconds": True}]
)
def test_a_status_of_other_types(run, changes):
    known = {"status": "CONVERGED", "passes": 2, "seconds": 0.5, "objective": 1.0}
    run.write_status(known)
    assert run.status == known | {"request": run.request}
    run.write_status(known | changes)
    with pytest.raises(FormatError, match=r"status\.json was not written by distls"):
        _ = run.status


def _events(run, rounds):
    events = [{"round": done, "passes": done / 2} for done in range(1, rounds + 1)]
    for event in events:
        run.append_event(event)
    return events


def test_a_line_cut_off_by_a_crash_is_left_out(run):
    events = _events(run, 3)
    path = run.path / "events.jsonl"
    whole = path.read_bytes()
    for cut in range(1, len(json.dumps(events[2])) + 1):
        path.write_bytes(whole[:-cut])
        assert run.events() == events[:2]
    run.truncate_events(2)
    run.append_event(events[2])
    assert run.events() == events


def test_events_after_the_checkpoint_are_dropped(run):
    events = _events(run, 5)
    run.truncate_events(3)
    assert run.events() == events[:3]
    run.truncate_events(9)
    assert run.events() == events[:3]
    run.truncate_events(0)
    assert (run.path / "events.jsonl").read_text() == ""


def test_the_last_two_checkpoints_are_kept_and_the_newest_is_read(run):
    for done in (1, 2, 999_999, 1_000_000):
        state = Small(done, done / 2, np.arange(3.0) * done, 0.1)
        record = {"round": done, "objective": 0.1}
        run.save_checkpoint(Standing(state, Progress(float(done), bound=0.1), record))
    assert [path.name for path in run.checkpoints()] == ["round-999999", "round-1000000"]
    found = newest_of(run)
    assert (found.state.round, found.state.passes, found.state.scale) == (1_000_000, 500_000.0, 0.1)
    assert found.state.values.tolist() == [0.0, 1e6, 2e6]
    assert found.progress == Progress(1e6, bound=0.1)
    assert found.record == {"round": 1_000_000, "objective": 0.1}
    assert found.best is None
    run.clear()
    assert run.checkpoints() == []


def test_the_best_predictor_is_in_the_checkpoint(run):
    intercept, calibration = np.array([0.1, 1 / 3]), np.arange(4.0)
    predictor = LinearPredictor(np.ones((3, 2), np.float32), intercept, {"n_features": 3}, {"c": calibration})
    run.save_checkpoint(Standing(Small(7), Progress(best={"round": 5}), {}, Fitted(predictor, 0.5)))
    found = newest_of(run)
    kept = found.best.predictor
    assert (found.best.alpha, kept.recipe, found.progress.best) == (0.5, {"n_features": 3}, {"round": 5})
    assert kept.coefficients.dtype == np.float32
    assert kept.intercept.tolist() == intercept.tolist()
    assert kept.arrays["c"].tolist() == calibration.tolist()


@pytest.mark.fast_cases("saved_at0")
@pytest.mark.parametrize(("saved_at", "expected"), [((3,), 5), ((3, 5), 5), ((5, 8), 8)])
def test_the_last_round_of_a_fit_is_a_checkpoint_too(run, saved_at, expected):
    for number in saved_at:
        saved(run, number)
    run.keep_final(Standing(Small(5), Progress(), {"round": 5}))
    assert newest_of(run).state.round == expected


@pytest.mark.fast_cases("array")
@pytest.mark.parametrize("damage", ["array", "description"])
def test_a_damaged_last_round_is_not_taken(run, caplog, damage):
    saved(run, 3)
    run.keep_final(Standing(Small(5)))
    described = run.path / "final" / "bundle.json"
    if damage == "array":
        os.truncate(run.path / "final" / "values.npy", 100)
    else:
        described.write_text(described.read_text().replace('"round": 5', '"round": 2'))
    with caplog.at_level("WARNING", "distls"):
        assert newest_of(run).state.round == 3
    (message,) = caplog.messages
    assert message.endswith("the fit goes on from round-000003")


def test_half_written_checkpoints_are_not_seen(run):
    saved(run, 3)
    for name in ("round-000004.1234abcd.partial", "round-000005.1234abcd.old", "round-9", "other"):
        (run.path / "checkpoints" / name).mkdir()
    assert [path.name for path in run.checkpoints()] == ["round-000003"]


def test_a_failed_checkpoint_leaves_the_one_before(run, monkeypatch):
    saved(run, 1)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    raised(OSError, saved, run, 2)
    monkeypatch.undo()
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["round-000001"]


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("missing", [False, True])
def test_of_a_damaged_checkpoint_the_one_before_is_read(run, caplog, missing):
    """Fault: The newest checkpoint changed, an array of it removed | before `resume` | a note; the fit goes on from
    the one before"""
    saved(run, 1)
    saved(run, 2)
    older, newest = run.checkpoints()
    path = newest / "values.npy"
    content = path.read_bytes()
    path.unlink()
    if not missing:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with caplog.at_level("WARNING", "distls"):
        assert newest_of(run).state.round == 1
    (message,) = caplog.messages
    assert message.startswith(f"{path}: ")
    assert message.endswith(f"; the fit goes on from {older.name}")


@pytest.mark.fast_cases("whole0")
@pytest.mark.parametrize(("whole", "expected"), [({1, 2}, 2), ({1}, 1), (set(), 2)])
def test_the_newest_checkpoint_whose_state_of_rows_is_whole_is_read(run, caplog, whole, expected):
    for done in (1, 2):
        saved(run, done)
    with caplog.at_level("WARNING", "distls"):
        found = run.load_checkpoint(Small, lambda state: state.round in whole)
    assert found.state.round == expected
    older, newest = run.checkpoints()
    lost = f"{newest}: what is kept of its rows was lost; the fit goes on from {older.name}"
    assert caplog.messages == ([lost] if expected == 1 else [])


@pytest.mark.parametrize(
    "changes", [{"grid": [{"alpha": 1.0}]}, {"seed": 1}, {"method": "sgd"}, {"dataset_fingerprint": "other"}]
)
def test_a_checkpoint_of_another_request_is_refused(run, changes):
    saved(run, 1)
    changed = Run.open(run.path)
    changed.write_config(msgspec.structs.replace(CONFIG, passes=99))  # limits make no states
    assert newest_of(changed) is not None
    path, before = run.path / "config.json", (run.path / "config.json").read_bytes()
    path.write_text(json.dumps({**json.loads(before), **changes}))
    with pytest.raises(FormatError, match=r"config\.json was changed"):
        newest_of(Run.open(run.path))
    # as earlier versions wrote it
    path.write_text(json.dumps(json.loads(before) | changes | {"request": None, "crc32c": None}))
    with pytest.raises(FormatError, match=r"config\.json was changed"):
        newest_of(Run.open(run.path))


def test_a_checkpoint_of_another_run_is_set_aside(run, caplog):
    saved(run, 7)
    other = Run.create(run.path.with_name("other"), msgspec.structs.replace(CONFIG, seed=1))
    saved(other, 1)
    (run.path / "checkpoints" / "round-000007").rename(other.path / "checkpoints" / "round-000007")
    assert newest_of(other).state.round == 1
    assert "a checkpoint of another fit" in caplog.text
    assert (other.path / "other-checkpoints" / "round-000007" / "bundle.json").exists()
    assert len(other.checkpoints()) == 1


def test_a_damaged_checkpoint_is_refused(run):
    saved(run, 1)
    path = run.checkpoints()[0] / "values.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert raised(CorruptDataError, newest_of, run) == f"{path}: its bytes do not match bundle.json"


def _removed_in_mid_fit(folder, monkeypatch, number, method, **options):
    """Fit in a run that is removed after a round, which ends in one line and leaves nothing."""
    append, run = Run.append_event, folder / "run"

    def append_and_remove(of, event):
        append(of, event)
        # before a checkpoint, or the model, which make the folders they need
        if event["round"] == number:
            shutil.rmtree(of.path)

    monkeypatch.setattr(Run, "append_event", append_and_remove)
    lost = "the run was removed or renamed while it was trained; by a new name `distls resume` continues it"
    assert raised(StorageError, fit, method, folder / "data", run, **options) == f"{run}: {lost}"
    assert not run.exists()


@pytest.mark.fast_cases("2-0")
@pytest.mark.parametrize("seconds", [0, 1000])
@pytest.mark.parametrize("number", [2, 4])
def test_a_run_removed_while_it_is_trained_ends_in_one_line_and_is_not_made_again(
    tmp_path, monkeypatch, seconds, number
):
    """Fault: The run folder removed in mid-fit | after a round, before or at the last | one line, exit code 1; it is
    not made again"""
    rows_in(tmp_path)
    options = {"params": {"lanes": 1}, "passes": 4, "checkpoint_seconds": seconds}
    _removed_in_mid_fit(tmp_path, monkeypatch, number, "sgd", **options)


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("cached", [False, True])
def test_a_data_set_renamed_while_it_is_read_is_put_back(tmp_path, monkeypatch, cached):
    """Fault: The data set renamed in mid-fit | after a round, its rows read again or kept | one line, exit code 1;
    once it is put back `resume` finishes | bits"""
    (tmp_path / "d.csv").write_text("name,y\n" + "".join(f"{i % 5},{i % 3}\n" for i in range(60)))
    data = tmp_path / "data"
    ingest(tmp_path / "d.csv", data, label_column="y")
    whole, append = fit("sgd", data, passes=4), Run.append_event

    def renamed(run, event):
        append(run, event)
        if event["round"] == 2:
            data.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(Run, "append_event", renamed)
    memory = MemoryBudget(cache_limit=None if cached else 0)
    with pytest.raises(StorageError, match=r"data was removed or renamed meanwhile; put it back, and `distls resume"):
        fit("sgd", data, tmp_path / "run", passes=4, checkpoint_seconds=0, memory=memory)
    (tmp_path / "elsewhere").rename(data)
    assert resume(tmp_path / "run").model.sha256 == whole.model.sha256


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bcd", "cls", "sdca", "ovr-sdca", "stagewise"])
def test_what_is_kept_of_rows_does_not_make_a_removed_run_again(tmp_path, monkeypatch, method):
    """Fault: The run folder removed in mid-fit | after the first round of methods that keep state of rows | one
    line, exit code 1; it is not made again"""
    add_columns(rows_in(tmp_path))
    params = {"block_size": 1, "stages": 3} if method == "stagewise" else {}
    _removed_in_mid_fit(tmp_path, monkeypatch, 1, method, params=params)


def test_a_run_that_could_not_be_begun_is_not_said_to_go_on(tmp_path, monkeypatch):
    def full(*_given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a lock")

    monkeypatch.setattr(run_folder, "locked", full)
    data = rows_in(tmp_path)
    refuses(StorageError, "make room, or choose another place", fit, "sgd", data, tmp_path / "run")


@pytest.mark.slow
def test_more_passes_that_were_stopped_before_their_end_are_asked_for_again(tmp_path, monkeypatch):
    def full(*_given):
        raise StorageError("no room for the model")

    data = rows_in(tmp_path)
    fit("sgd", data, tmp_path / "run", passes=2)
    with monkeypatch.context() as patched:
        patched.setattr(setting_fit, "store", full)
        for _ in range(2):
            refuses(StorageError, "no room", resume, tmp_path / "run", passes=3)
    resumed, whole = resume(tmp_path / "run", passes=3), fit("sgd", data, passes=3)
    assert resumed.model.sha256 == whole.model.sha256


@pytest.mark.slow
def test_a_run_removed_while_a_file_is_written(tmp_path, monkeypatch):
    def remove(run, _event):
        shutil.rmtree(run.path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a file of it")

    monkeypatch.setattr(Run, "append_event", remove)
    data = rows_in(tmp_path)
    refuses(StorageError, "the run was removed or renamed while it was trained", fit, "sgd", data, tmp_path / "run")


@pytest.mark.fast_cases("no", "a digit")
@pytest.mark.parametrize(
    "damage", ["no model", "a damaged model", "a model of another run", "a damaged status", "a digit"]
)
def test_a_run_that_lost_what_it_had_ended_with_says_how_to_have_it_again(tmp_path, damage):
    """Fault: Model of an ended run removed, damaged or replaced, its status damaged, or a digit of it | before `resume`
    | one line that says how to train again | bits"""
    x, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
    ingest(x, tmp_path / "data", y=y)
    right = fit("gls", tmp_path / "data", tmp_path / "run", passes=3)
    status = tmp_path / "run" / "status.json"
    if damage == "no model":
        shutil.rmtree(tmp_path / "run" / "model")
    elif damage == "a damaged model":
        os.truncate(tmp_path / "run" / "model" / "weights.npy", 100)
    elif damage == "a model of another run":
        fit("sgd", tmp_path / "data", tmp_path / "other", passes=1)
        shutil.rmtree(tmp_path / "run" / "model")
        shutil.copytree(tmp_path / "other" / "model", tmp_path / "run" / "model")
    elif damage == "a digit":
        status.write_text(status.read_text().replace('"passes": 3', '"passes": 2'))
    else:
        os.truncate(status, 40)
    with pytest.raises((FormatError, CorruptDataError)) as caught:
        resume(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(f"remove {status}, and `distls resume {tmp_path / 'run'}` trains again")
    status.unlink()
    assert resume(tmp_path / "run").model.sha256 == right.model.sha256


def test_a_fit_without_a_run_folder_names_none(tmp_path):
    ingest(np.arange(20.0).reshape(10, 2), tmp_path / "d", y=np.arange(10) % 2)
    done = fit("gls", tmp_path / "d", passes=1, params={"alpha": 1e-2})
    assert done.run is None
    assert "run" not in [fact.label for fact in done.facts()]
    kept = fit("gls", tmp_path / "d", tmp_path / "r", passes=1, params={"alpha": 1e-2})
    assert repr(kept).endswith(f"run {tmp_path}/r>")


def _without_clock(path):
    measured = {"bytes_read", "cached_bytes", "eval_bytes_read", "worker_peaks"}
    status = json.loads((path / "status.json").read_text())
    status["plan"].pop("worker_limit")
    del status["crc32c"]
    return {name: value for name, value in status.items() if "seconds" not in name and name not in measured}


@pytest.mark.fast_cases("sgd-asked0")
@pytest.mark.parametrize(
    ("method", "asked"), [("sgd", {"patience": 1, "passes": 9}), ("sgd", {"passes": 2}), ("sdca", {"passes": 2})]
)
def test_a_fit_that_was_stopped_at_its_end_ends_there(tmp_path, monkeypatch, method, asked):
    """Its evaluation, its bound, the best weights and the warnings are those of a fit that was not stopped."""
    rng = np.random.default_rng(0)
    for name in ("data", "held"):
        ingest(rng.normal(size=(60, 3)), tmp_path / name, y=np.arange(60) % 3)
    asked = {**asked, "eval_data": tmp_path / "held", "checkpoint_seconds": 0, "executor": "serial"}
    whole = fit(method, tmp_path / "data", tmp_path / "whole", **asked)

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "the model")

    with monkeypatch.context() as broken:
        broken.setattr(setting_fit, "save_model", fail)
        raised(StorageError, fit, method, tmp_path / "data", tmp_path / "run", **asked)
    rounds = History()
    resumed = resume(tmp_path / "run", executor="serial", callbacks=[rounds])
    assert rounds.records == []
    assert (resumed.status, resumed.warnings) == (whole.status, whole.warnings)
    assert _without_clock(tmp_path / "run") == _without_clock(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        path.name for path in (tmp_path / "whole").iterdir()
    )


def test_an_end_by_the_clock_is_kept(run):
    """Another clock would end the fit elsewhere; also of several settings, which keep no last round."""
    saver = Checkpointer(run, 1e9)
    saver.on_round(RoundEvent({"round": 3}, Small(3), asdict(Progress(9.0))))
    saver.on_end(Status.MAX_PASSES, Small(3))
    assert newest_of(run) is None
    saver.on_end(Status.MAX_SECONDS, Small(3))
    found = newest_of(run)
    assert (found.state.round, found.progress.seconds, found.record) == (3, 9.0, {"round": 3})
