"""What a run depends on may not be another one when it is resumed."""

import dataclasses
import json
import shutil

import pytest
from helpers import labelled_rows, refuses, write_dataset

from distls.methods.method_registry import METHODS
from distls.storage.errors import FormatError, MismatchError
from distls.training.fitting import fit, resume


class Stop:
    """Interrupts a fit after its second round."""

    def on_start(self, start):
        pass

    def on_round(self, event):
        if event.record["round"] == 2:
            raise KeyboardInterrupt

    def on_end(self, status, state):
        pass


def _half(folder, **asked):
    with pytest.raises(KeyboardInterrupt):
        fit(
            "mcid", folder / "data", folder / "run", passes=4, callbacks=[Stop()], checkpoint_seconds=0, **asked,
        )  # fmt: skip
    return folder / "run"


@pytest.fixture
def folder(tmp_path):
    for name, seed in (("data", 0), ("beside", 1), ("other", 2)):
        write_dataset(tmp_path / name, *labelled_rows(200, 12, 3, seed=seed), partition_rows=50)
    return tmp_path


@pytest.mark.fast_cases("eval_data")
@pytest.mark.parametrize("name", ["eval_data", "select", "calibrate", "init"])
def test_what_was_replaced_is_named_and_what_is_put_back_goes_on(folder, name):
    beside, other, asked = folder / "beside", folder / "other", {}
    if name == "init":
        for place in (beside, other):
            fit("mcid", place, folder / f"{place.name}-run", passes=1)
        beside, other = folder / "beside-run", folder / "other-run"
        asked["params"] = {"init": str(beside)}
    else:
        asked[name] = beside
        if name == "select":
            asked["params"] = {"alpha": [1e-3, 1e-2]}
    run = _half(folder, **asked)
    shutil.move(beside, folder / "kept")
    shutil.copytree(other, beside)
    refuses(MismatchError, "not what this run was started with", resume, run)
    shutil.rmtree(beside)
    shutil.move(folder / "kept", beside)
    assert resume(run).model is not None


def test_a_bit_of_a_limit_is_refused_and_an_edit_is_said(folder, caplog):
    run = _half(folder)
    path, text = folder / "run" / "config.json", (folder / "run" / "config.json").read_text()
    path.write_text(text.replace('"passes": 4', '"passes": 5'))
    refuses(FormatError, "does not match its checksum", resume, run)
    path.write_text(text.replace('"passes": 4', '"passes": 11'))
    assert resume(run).passes == 11
    assert "was edited" in caplog.text


def test_a_parameter_that_the_method_has_gained_since_takes_its_default(folder):
    undisturbed = fit("mcid", folder / "data", passes=4).record["weights_sha256"]
    run = _half(folder)
    path = run / "config.json"
    config = json.loads(path.read_text())
    # as an earlier version wrote it, without a parameter
    del config["grid"][0]["average"], config["request"], config["crc32c"]
    path.write_text(json.dumps(config))
    status = json.loads((run / "status.json").read_text())
    del status["request"], status["crc32c"]
    (run / "status.json").write_text(json.dumps(status))
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    assert resume(run).record["weights_sha256"] == undisturbed


def test_an_unfinished_run_that_names_no_solver_is_refused(folder):
    path = _half(folder) / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({name: config[name] for name in config.keys() - {"digests", "request", "crc32c"}}))
    status = path.with_name("status.json")
    told = json.loads(status.read_text())
    status.write_text(json.dumps({name: told[name] for name in told.keys() - {"request", "crc32c"}}))
    refuses(MismatchError, "begun by an earlier version", resume, path.parent)


def test_an_earlier_solver_goes_no_further_but_what_it_has_ended_stays(folder, monkeypatch):
    ended = fit("mcid", folder / "data", folder / "ended", passes=1).record["weights_sha256"]
    run = _half(folder)
    method = METHODS["mcid"]
    monkeypatch.setitem(METHODS, "mcid", dataclasses.replace(method, version=method.version + 1))
    assert resume(folder / "ended").record["weights_sha256"] == ended
    for place, more in ((run, {}), (folder / "ended", {"passes": 2})):
        refuses(MismatchError, "begun by an earlier version, whose mcid takes other steps", resume, place, **more)
