"""Datasets, runs and models in an object store: a real server that fails; the same bits as on a disk."""

import csv
import json
import os
import sys
from contextlib import closing
from typing import NamedTuple

import pytest
from helpers import Ended, distls, labelled_rows, raised, write_dataset
from store_helpers import BUCKET, WRONG_KEY, forget_clients, object_store

from distls import MCIDClassifier, evaluate, fit, ingest, open_dataset, predict, resume
from distls.execution import ClusterOptions, open_executor
from distls.execution.dask.local_cluster import start_local
from distls.storage.errors import CorruptDataError, DistlsError
from distls.storage.filesystem.paths import StorePath, place_of
from distls.storage.model.model import load_model
from distls.synthetic.text_export import export_text
from distls.training.run_folder import Run

ROWS = 2000
PARTITION = 2**17
PASSES = 12
# of one kind each: lanes, statistics, column shards
METHODS = {
    "mcid": {"params": {"alpha": 1e-4}, "passes": 3.0},
    "stagewise": {"params": {"stages": 2, "block_size": 50}, "passes": 4.0},
    "bcd": {"params": {"alpha": 1e-3}, "passes": 2.0},
}


@pytest.fixture(scope="module")
def broken():
    with object_store() as faults:
        yield faults


@pytest.fixture
def faults(broken):
    forget_clients()
    yield broken
    broken.heal()
    forget_clients()


@pytest.fixture(scope="module")
def text(broken, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_dataset(folder / "d", *labelled_rows(ROWS, 2000, 4), partition_rows=ROWS)
    export_text(folder / "d", folder / "d.svm")
    return folder / "d.svm"


class Tour(NamedTuple):
    """What a tour from text to predictions made."""

    fingerprint: str
    digest: str | None
    weights: list[str]
    error: float
    predictions: list[list[str]]


def tour(root, text, executor, methods):
    """Ingest, train, score and predict; column shards are made where a method reads them."""
    report = ingest(
        [str(text)], f"{root}/d", split={"held": 0.2}, partition_size=PARTITION, columns="bcd" in methods,
        executor=executor,
    )  # fmt: skip
    data = open_dataset(report.paths[0])
    held = open_dataset(f"{root}/d-held")
    weights = []
    for name, asked in methods.items():
        done = fit(
            name, f"{root}/d", f"{root}/{name}", eval_data=held, executor=executor, checkpoint_seconds=0, **asked,
        )  # fmt: skip
        weights.append(load_model(f"{root}/{name}").sha256)
        assert done.model.sha256 == weights[-1]
    predict(f"{root}/mcid", held, f"{root}/p.csv", executor=executor)
    rows = list(csv.reader(place_of(f"{root}/p.csv").read_text().splitlines()))
    error = evaluate(f"{root}/mcid", held, executor=executor).error
    return Tour(data.fingerprint, data.columns and data.columns.digest, weights, error, rows)


@pytest.fixture(scope="module")
def on_disk(text, tmp_path_factory):
    return tour(tmp_path_factory.mktemp("disk"), text, None, METHODS)


def _secret(_item):
    return os.environ.get("AWS_SECRET_ACCESS_KEY")


@pytest.mark.slow
@pytest.mark.usefixtures("faults")
def test_workers_have_the_credentials_of_now(monkeypatch):
    """Also when the process they are forked from was started before."""
    start_local(1).close()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of now")
    with closing(start_local(1)) as executor:
        assert list(executor.each_worker(_secret, None).values()) == ["of now"]


@pytest.mark.slow
def test_the_same_bits_on_worker_processes(faults, text, on_disk):
    executor, _ = open_executor(ClusterOptions(workers=2))
    try:
        assert tour(f"{BUCKET}/tour", text, executor, METHODS) == on_disk
    finally:
        executor.close()
    left = [str(place) for place in place_of(f"{BUCKET}/tour").objects()]
    assert [name for name in left if "/.ingest" in name or "/.columns" in name or "checkpoints" in name] == []
    described = json.loads(distls("info", f"{BUCKET}/tour/mcid", "--json").out)
    assert described["weights_sha256"] == on_disk.weights[0]
    assert described["dataset"] == f"{BUCKET}/tour/d"
    assert json.loads(distls("info", f"{BUCKET}/tour/d", "--json").out)["fingerprint"] == on_disk.fingerprint
    assert distls("plan", "mcid", f"{BUCKET}/tour/d", "--no-probe").code == 0
    assert "status MAX_PASSES" in distls("report", f"{BUCKET}/tour/mcid").out


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [{"error_every": 7}, {"slow": 0.02}, {"cut_reads_every": 5, "cut_writes_every": 6}],
    ids=["every 7th request fails", "slow reads", "answers and uploads cut off"],
)
def test_the_same_bits_from_a_store_that_fails(faults, text, on_disk, what, tmp_path):
    """Fault: Every 7th request answered 500; slow reads; every 5th answer and 6th upload cut in the middle | ingest,
    fit, evaluate, predict | nothing; everything complete | bits"""
    for name, value in what.items():
        setattr(faults, name, value)
    found = tour(f"{BUCKET}/{tmp_path.name}", text, None, {"mcid": METHODS["mcid"]})
    assert found == on_disk._replace(digest=None, weights=on_disk.weights[:1])
    assert "slow" in what or sum(faults.seen.values()) > 5


# -- ends and goes on ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_arrays_of_estimators_go_through_the_store(faults, monkeypatch):
    x, y = labelled_rows(300, 20, 3)
    alone = MCIDClassifier(passes=2).fit(x, y).model_.sha256
    monkeypatch.setenv("DISTLS_TEMPORARY", f"{BUCKET}/temporary")
    executor, _ = open_executor(ClusterOptions(workers=2))
    try:
        assert MCIDClassifier(passes=2, executor=executor).fit(x, y).model_.sha256 == alone
    finally:
        executor.close()
    assert not place_of(f"{BUCKET}/temporary").objects()


@pytest.fixture(scope="module")
def data(broken, text):
    ingest([str(text)], f"{BUCKET}/data", partition_size=PARTITION)
    return f"{BUCKET}/data"


@pytest.fixture(scope="module")
def undisturbed(data):
    done = fit("mcid", data, f"{BUCKET}/undisturbed", params={"alpha": 1e-4}, passes=PASSES)
    return done.model.sha256


@pytest.mark.slow
def test_a_killed_driver_goes_on_from_its_checkpoint(faults, data, undisturbed, command):
    """Fault: SIGKILL of the driver of a run in a store | after a checkpoint, a half-written one added | a run that
    `resume` continues; the half is removed | bits"""
    run = place_of(f"{BUCKET}/killed")
    serial = ("--executor", "serial", "--quiet", "--checkpoint-seconds", "0")
    faults.slow = 0.05  # it must not end before it is killed
    started = command("fit", "mcid", data, run, "-p", "alpha=1e-4", "--passes", str(PASSES), *serial)
    started.when(lambda: len(Run(run).checkpoints()) >= 2)
    started.process.kill()
    started.end()
    faults.heal()
    before = json.loads(distls("info", run, "--json").out)
    assert before["status"] == "RUNNING"
    # one that was being written
    (run / "checkpoints" / "round-000999" / "arrays-00000000" / "weights.npy").write_bytes(b"half")
    assert resume(str(run)).model.sha256 == undisturbed
    events = (run / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in events] == list(range(1, len(events) + 1))
    assert not (run / "checkpoints").exists()


@pytest.mark.slow
def test_a_store_that_is_gone_ends_the_fit_in_one_line(faults, data, undisturbed, monkeypatch):
    """Fault: A store that becomes unreachable | from the fifth round of a fit | one line with the URL; a run that
    `resume` continues | bits"""
    monkeypatch.setenv("DISTLS_STORE_RETRY_SECONDS", "1")
    forget_clients()
    run = f"{BUCKET}/gone"

    class Breaks:
        def on_start(self, start): ...

        def on_round(self, event):
            faults.down = event.record["round"] >= 5

        def on_end(self, *_): ...

    with pytest.raises(DistlsError) as ended:
        fit(
            "mcid", data, run, params={"alpha": 1e-4}, passes=PASSES, callbacks=[Breaks()], checkpoint_seconds=0,
        )  # fmt: skip
    line = str(ended.value)
    assert line.startswith(f"{run}/")
    assert line.endswith(
        ": the object store fails (InternalError); once it works again, repeat the command, or run `distls resume`"
    )
    assert "\n" not in line
    faults.heal()
    assert resume(run).model.sha256 == undisturbed


@pytest.mark.slow
def test_an_ingest_goes_on(faults, text, data, monkeypatch):
    """Fault: An ingest that is ended between two objects | at its 40th write | one line; repeating the ingest
    continues it | bits"""
    write_parts, calls = StorePath.write_parts, iter(range(10**6))

    def stop(place, *parts):
        if next(calls) == 40:
            raise KeyboardInterrupt
        write_parts(place, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(StorePath, "write_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            ingest([str(text)], f"{BUCKET}/half", partition_size=PARTITION)
    ended = distls("info", f"{BUCKET}/half")
    assert ended.code == 1
    assert f"{BUCKET}/half: an ingest into it did not finish; run the same ingest again" in ended.err
    ingest([str(text)], f"{BUCKET}/half", partition_size=PARTITION)
    assert open_dataset(f"{BUCKET}/half").fingerprint == open_dataset(data).fingerprint


def test_a_changed_object_is_refused(faults, text):
    """Fault: An object changed, truncated, deleted | an array of a partition, one after the other; 3 changes | one
    line naming partition and array"""
    ingest([str(text)], f"{BUCKET}/changed", partition_size=PARTITION)
    changed = open_dataset(f"{BUCKET}/changed")
    chunk = place_of(f"{BUCKET}/changed/rows/00000001/indices/c/0")
    content = chunk.read_bytes()
    for written, why in {
        content[:100] + bytes([content[100] ^ 1]) + content[101:]: "its checksum does not match, bytes were changed",
        content[:-1]: f"{len(content) - 1} bytes on disk, {len(content)} recorded",
        b"": "its chunk is missing",
    }.items():
        assert isinstance(chunk, StorePath)
        chunk.write_parts(written)
        if not written:
            chunk.unlink()
        said = raised(CorruptDataError, changed.read, 1)
        where = f"{BUCKET}/changed: partition 1, array indices"
        assert said == f"{where}: {why}; ingest the data set again"


# -- one line --------------------------------------------------------------------------------------------


def test_what_is_not_there(faults):
    expected = {
        f"{BUCKET}/no": f"{BUCKET}/no: no such data set, run or model",
        "s3://nope/d": "s3://nope/d: there is no bucket s3://nope; make it first, or check AWS_ENDPOINT_URL",
    }
    for url, line in expected.items():
        assert distls("info", url) == Ended(1, "", f"distls: {line}\n")
    assert distls("fit", "mcid", f"{BUCKET}/no", f"{BUCKET}/r") == Ended(
        1, "", f"distls: {BUCKET}/no: no such data set\n"
    )
    assert distls("ingest", f"{BUCKET}/x.svm", f"{BUCKET}/d", "--executor", "serial", "--quiet") == Ended(
        1, "", f"distls: {BUCKET}/x.svm: sources are read from files; fetch it to a disk first\n"
    )


@pytest.mark.slow
def test_wrong_credentials_are_named_and_not_shown(faults, data, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", WRONG_KEY)
    forget_clients()
    ended = distls("info", data)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"distls: {data}")
    assert ended.err.endswith(
        ": access denied (status 403); check the credentials in the environment, of the workers too\n"
    )
    assert WRONG_KEY not in ended.err
    assert "something" not in ended.err


def test_a_store_over_plain_http_is_asked_for(faults, data, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    forget_clients()
    ended = distls("info", data)
    assert ended.err.endswith(": its endpoint is not https; set AWS_ALLOW_HTTP=true to allow that\n")


def test_without_the_library(faults, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    line = "distls: object stores need the package obstore: pip install 'distls[stores]'\n"
    assert distls("info", data) == Ended(1, "", line)
