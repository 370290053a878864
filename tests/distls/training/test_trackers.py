"""MLflow and TensorBoard have the numbers of each round: read back from what their own packages wrote."""

import builtins
import struct

import pytest
from helpers import refuses, stored_rows

import distls
from distls.storage.errors import ParameterError
from distls.training.trackers import round_metrics

data = stored_rows(200, 20, 3)


def fit(data, *callbacks, **given):
    """Fit with callbacks; return the records of the rounds."""
    history = distls.History()
    options = {"passes": 3, "executor": "serial", "eval_every": 1, **given}
    distls.fit("sgd", data, callbacks=[*callbacks, history], **options)
    return history.records


def test_metrics_are_numbers():
    record = {"round": 3, "loss": 0.5, "certificate": {"kind": "none", "value": None, "relative": 2}, "ok": True}
    assert round_metrics(record) == {"loss": 0.5, "certificate.relative": 2.0}


@pytest.mark.slow
def test_mlflow_has_each_round(data, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    # a database needs a package more
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"file://{tmp_path}/m"
    tracker = distls.MLflowTracker("tried", tracking_uri=uri, tags={"who": "me"})
    records = fit(data, tracker)
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("tried").experiment_id])
    assert run.info.run_id == tracker.run_ids[0]
    assert (run.info.status, run.data.tags["who"]) == ("FINISHED", "me")
    assert run.data.tags["distls.status"] == "MAX_PASSES"
    assert (run.data.params["method"], run.data.params["n_rows"]) == ("sgd", "200")
    refuses(ParameterError, r"^MLflow: ", distls.MLflowTracker, tracking_uri="nowhere://x")
    history = client.get_metric_history(run.info.run_id, "running_loss")
    assert [(m.step, m.value) for m in history] == [(r["round"], r["running_loss"]) for r in records]


def scalars(folder):
    """Read the event files of a folder: records of a length, its checksum, the event, its checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found = {}
    (path,) = folder.glob("events.out.*")
    content = path.read_bytes()
    while content:
        (size,) = struct.unpack("<Q", content[:8])
        event = event_pb2.Event.FromString(content[12 : 12 + size])
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
        content = content[16 + size :]
    return found


def test_tensorboard_has_each_round(data, tmp_path):
    pytest.importorskip("tensorboardX")
    records = fit(data, distls.TensorBoardTracker(tmp_path / "t"))
    found = scalars(tmp_path / "t")
    assert [step for step, _ in found["objective"]] == [r["round"] for r in records]
    assert [value for _, value in found["objective"]] == pytest.approx([r["objective"] for r in records])
    assert "certificate/value" in found


def test_each_setting_has_a_folder(data, tmp_path):
    pytest.importorskip("tensorboardX")
    fit(data, distls.TensorBoardTracker(tmp_path), params={"alpha": [0.0, 1e-3]}, select=data)
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == ["alpha=0.001_2_of_2_", "alpha=0_1_of_2_"]
    assert all(scalars(tmp_path / name)["running_loss"] for name in folders)


@pytest.mark.parametrize(("name", "package"), [("MLflowTracker", "mlflow"), ("TensorBoardTracker", "tensorboardX")])
def test_a_missing_package_is_named(name, package, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(module, *rest):
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ParameterError, match=rf"^{name} needs the package {package}\S*: pip install 'distls\["):
        getattr(distls, name)(str(tmp_path / "t"))
